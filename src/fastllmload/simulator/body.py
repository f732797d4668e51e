"""The fields of a request that the simulated engine reads, where its API has them; all others are accepted and ignored."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Annotated, Any

import msgspec

from fastllmload._ext.simbody.form import beginning
from fastllmload._ext.simbody.template import filled
from fastllmload.endpoint.call import PREFIX
from fastllmload.endpoint.simulated import SimulatedApi
from fastllmload.endpoint.turns import Part, ToolTurn
from fastllmload.simulator.stored import StoredReplies, items_of

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
# A prompt stays raw JSON: it is counted and hashed by compiled code, never built.
PROMPT = (msgspec.Raw, msgspec.Raw())
FLAG = (bool | None, None)
NUMBER = (Int32 | None, None)
ABSENT = (None, PROMPT[1])
INNER = "in_"
REPLY = re.compile("[0-9a-f]{16}", re.ASCII)
TOKEN_DIGITS = 8
FIELDS: dict[str, tuple[Any, Any]] = {
    "model": (str | None, None),
    "prompt": PROMPT,
    "before": PROMPT,
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
    "request_id": (str | None, None),
    "previous": (str | None, None),
    "store": FLAG,
}


_messages = msgspec.json.Decoder(list[dict[str, Any]]).decode


def decoder(api: SimulatedApi) -> Callable[[bytes], Any]:
    """Of the bodies of *api*: a struct of FIELDS, whatever the API calls them. `loads` is an answer without generated text.

    ValueError: not JSON, not UTF-8, nested too deep, a field of another type, tool calls without an answer, thoughts that
    were changed. LookupError: it continues a reply that is not kept.
    """
    named = {name: getattr(api.keys, name, name) for name in FIELDS}
    paths = {name: [path for path in ([one] if isinstance(one, str) else one) if path] for name, one in named.items()}
    direct = {name: several[0] for name, several in paths.items() if len(several) == 1 and "." not in several[0]}
    others = {name: several for name, several in paths.items() if several and name not in direct}
    decode = msgspec.json.Decoder(body_struct(direct, others)).decode
    tools = api.answered_calls
    signs = [] if tools is None else [(tools.call.mark or (tools.call.inside,))[-1].encode(), tools.answer.id.encode()]
    stored = StoredReplies()
    getters = [(name, getter([INNER + path for path in several], FIELDS[name][1])) for name, several in others.items()]

    def asked(body: bytes) -> Any:
        if api.read is not None:
            body = api.read(message_of(body))
        try:
            said: Any = decode(unpacked(body, api.packed) if api.packed else body)
            if api.keys.store:
                with_history(said, stored)
            if tools is not None and any(sign in bytes(said.prompt) for sign in signs):
                check_calls(_messages(said.prompt), tools)
            if api.signs_thoughts and b'"thinking"' in bytes(said.prompt):
                check_thoughts(_messages(said.prompt))
        except msgspec.MsgspecError as error:
            raise ValueError(str(error)) from None
        except RecursionError:
            raise ValueError("it is nested too deep") from None
        for name, get in getters:
            setattr(said, name, get(said))
        if bytes(said.before) and bytes(said.prompt):
            listed = bytes(said.prompt) if bytes(said.prompt).startswith(b"[") else b"[%b]" % bytes(said.prompt)
            said.prompt = msgspec.Raw(b"[%b,%b" % (bytes(said.before), listed[1:]))
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


def with_history(said: Any, stored: StoredReplies) -> None:
    """*said* with what was said before, and `keep` where its reply is kept."""
    if not bytes(said.prompt):
        return  # it will be refused
    own = items_of(bytes(said.prompt))
    if said.previous is not None:
        said.prompt = msgspec.Raw(b"[%b]" % b",".join([*stored.history(said.previous), own]))
    if said.store is not False:
        said.keep = partial(stored.keep, said.previous, own)


def message_of(body: bytes) -> bytes:
    """The one message of a call of gRPC. ValueError: it is compressed, or there is another number of them."""
    if body[:1] != b"\0" or int.from_bytes(body[1:PREFIX], "big") != len(body) - PREFIX:
        raise ValueError("one message that is not compressed is taken")
    return body[PREFIX:]


def unpacked(body: bytes, name: str) -> bytes:
    """*body* with the JSON in the text of its field *name* in place of the text."""
    fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    if name in fields:
        fields[name] = msgspec.Raw(msgspec.json.decode(fields[name], type=str))
    return msgspec.json.encode(fields)


def body_struct(direct: dict[str, str], others: dict[str, list[str]]) -> type[msgspec.Struct]:
    """A struct whose FIELDS are read from the keys of *direct*; the *others* are in fields that begin with INNER."""
    inner = struct_fields({path: FIELDS[name] for name, several in others.items() for path in several})
    fields = [(name, *field) for name, field in FIELDS.items()] + [("loads", str, ""), ("keep", Any, None)]
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
        return lambda found: next((value for get in several if (value := get(found)) not in ABSENT), default)
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


def check_calls(messages: list[dict[str, Any]], tools: ToolTurn) -> None:
    """Each call is answered after it, and nothing else is answered; no other message comes between."""
    due: list[str] = []
    for message in (*messages, {}):  # as after the last one
        answers, calls = parts(message, tools.answer), parts(message, tools.call)
        if due and not answers and not calls:
            raise ValueError(f"tool calls must be followed by their answers; there is none for {', '.join(due)}")
        for answer in answers:
            if answer not in due:
                raise ValueError(f"the tool's answer for {answer!r} answers no call before it")
            due.remove(answer)
        due += calls


def check_thoughts(messages: list[dict[str, Any]]) -> None:
    """Each is signed as the reply that it was the beginning of, and is in front of what that said."""
    for message in messages:
        found = message.get("content")
        blocks = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
        thoughts = [one for one in blocks if one.get("type") == "thinking"]
        if blocks[: len(thoughts)] != thoughts:
            raise ValueError("blocks of thinking are in front of all others")
        for one in thoughts:
            reply, _, tokens = str(one.get("signature")).partition("-")
            if not (REPLY.fullmatch(reply) and tokens.isdecimal() and len(tokens) < TOKEN_DIGITS):
                raise ValueError("a block of thinking has no signature of this server")
            if one.get("thinking") != beginning(int(reply, 16), int(tokens)):
                raise ValueError("the signature of a block of thinking is not that of its text")


def parts(message: dict[str, Any], part: Part) -> list[str]:
    """Ids of the calls or answers in a message."""
    found = message.get(part.inside) if part.inside else [message]
    objects = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    return [str(one.get(part.id)) for one in objects if not part.mark or one.get(part.mark[0]) == part.mark[1]]
