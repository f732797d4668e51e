"""The fields of a request that the simulated engine reads, where its API has them; all others are accepted and ignored."""

from __future__ import annotations

import time
from collections.abc import Callable
from operator import attrgetter
from typing import Annotated, Any

import msgspec

from fastllmload._ext.simbody.template import filled
from fastllmload.endpoint.simulated import SimulatedApi

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
# A prompt stays raw JSON: it is counted and hashed by compiled code, never built.
PROMPT = (msgspec.Raw, msgspec.Raw())
FLAG = (bool | None, None)
NUMBER = (Int32 | None, None)
INNER = "in_"
FIELDS: dict[str, tuple[Any, Any]] = {
    "model": (str | None, None),
    "prompt": PROMPT,
    "tokens": NUMBER,
    "stream": FLAG,
    "usage": FLAG,
    "counted": FLAG,
    "ids": FLAG,
    "logprobs": (bool | Int32 | None, None),  # chat says whether, completions how many
    "min_tokens": (Int32, 0),
    "ignore_eos": FLAG,
    "n": NUMBER,
    "priority": (Int32, 0),
    "keep_alive": (str | float | None, None),
}


class Called(msgspec.Struct, frozen=True):
    id: str
    function: dict[str, str]


class Message(msgspec.Struct, frozen=True):
    role: str
    tool_calls: list[Called] | None = None
    tool_call_id: str | None = None


_messages = msgspec.json.Decoder(list[Message]).decode


def decoder(api: SimulatedApi) -> Callable[[bytes], Any]:
    """Of the bodies of *api*: a struct of FIELDS, whatever the API calls them. `loads` is an answer without generated text.

    ValueError: not JSON, not UTF-8, nested too deep, a field of another type, tool calls that are not answered.
    """
    named = {name: getattr(api.keys, name, name) for name in FIELDS}
    paths = {name: [path for path in ([one] if isinstance(one, str) else one) if path] for name, one in named.items()}
    direct = {name: several[0] for name, several in paths.items() if len(several) == 1 and "." not in several[0]}
    others = {name: several for name, several in paths.items() if several and name not in direct}
    decode = msgspec.json.Decoder(body_struct(direct, others)).decode
    getters = [(name, getter([INNER + path for path in several], FIELDS[name][1])) for name, several in others.items()]

    def asked(body: bytes) -> Any:
        try:
            said: Any = decode(body)
            if api.answered_calls and b"tool_call" in bytes(said.prompt):
                check_calls(_messages(said.prompt))
        except msgspec.MsgspecError as error:
            raise ValueError(str(error)) from None
        except RecursionError:
            raise ValueError("it is nested too deep") from None
        for name, get in getters:
            setattr(said, name, get(said))
        if api.load_answer and bytes(said.prompt) in (b"", b'""', b"[]", b"null"):
            said.loads = loaded(api.load_answer, said.model, said.keep_alive)
        if api.unlimited and said.tokens is not None and said.tokens < 1:
            said.tokens = None
        said.tokens = api.output_tokens or said.tokens
        if said.stream is None:
            said.stream = api.stream_default
        if not api.keys.usage:
            said.usage = True
        if said.model is not None:
            said.model = said.model.removesuffix(api.model_tag)
        return said

    return asked


def body_struct(direct: dict[str, str], others: dict[str, list[str]]) -> type[msgspec.Struct]:
    """A struct whose FIELDS are read from the keys of *direct*; the *others* are in fields that begin with INNER."""
    inner = struct_fields({path: FIELDS[name] for name, several in others.items() for path in several})
    fields = [(name, *field) for name, field in FIELDS.items()] + [("loads", str, "")]
    # What is not read from a key of its own has a name that no request uses.
    keys = {name: direct.get(name, f"/{name}") for name, *_ in fields} | {INNER + name: name for name, *_ in inner}
    fields += [(INNER + name, *field) for name, *field in inner]
    return msgspec.defstruct("Body", fields, rename=keys, gc=False)


def struct_fields(fields: dict[str, tuple[Any, Any]]) -> list[tuple[str, Any, Any]]:
    """Of a struct with *fields* of (type, default); a dotted name is a field of an object."""
    inner: dict[str, dict[str, tuple[Any, Any]]] = {}
    plain = []
    for path, field in fields.items():
        name, dot, rest = path.partition(".")
        if dot:
            inner.setdefault(name, {})[rest] = field
        else:
            plain.append((name, *field))
    return plain + [
        (name, msgspec.defstruct("Inner", struct_fields(below), frozen=True) | None, None)
        for name, below in inner.items()
    ]


def getter(paths: list[str], default: Any) -> Callable[[Any], Any]:
    """Gets the last of *paths* that is given out of a struct."""
    if len(paths) > 1:
        several = [getter([path], None) for path in reversed(paths)]
        return lambda found: next((value for get in several if (value := get(found)) is not None), default)
    name, dot, rest = paths[0].partition(".")
    outer = attrgetter(name)
    if not dot:
        return outer
    inner = getter([rest], default)
    return lambda found: default if (place := outer(found)) is None else inner(place)


def loaded(answer: str, model: str | None, keep_alive: object) -> str:
    reason = "unload" if keep_alive in (0, "0") else "load"
    text = filled(answer, {"now": utc(time.time()), "reason": reason}).decode()
    return text.replace("$asked", msgspec.json.encode(model).decode())


def utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def check_calls(messages: list[Message]) -> None:
    """As OpenAI has it: each call is answered by a message directly after it, and no other message has answers."""
    due: list[str] = []
    for message in (*messages, Message("user")):  # as after the last one
        if message.role == "tool":
            if message.tool_call_id not in due:
                raise ValueError(
                    f"the tool message for {message.tool_call_id!r} answers no call of the message before it"
                )
            due.remove(message.tool_call_id)
            continue
        if due:
            raise ValueError(f"tool_calls must be followed by tool messages; there is none for {', '.join(due)}")
        due = [call.id for call in message.tool_calls or ()]
