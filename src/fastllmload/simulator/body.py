"""The fields of a completion request that the simulated engine reads; all others are accepted and ignored."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Annotated

import msgspec

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class RequestBody(msgspec.Struct, frozen=True, gc=False):
    """`prompt` and `messages` stay raw JSON: they are counted and hashed by compiled code, never built."""

    model: str | None = None
    prompt: msgspec.Raw = msgspec.Raw()
    messages: msgspec.Raw = msgspec.Raw()
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Int32 | None = None
    max_completion_tokens: Int32 | None = None
    min_tokens: Int32 = 0
    ignore_eos: bool | None = None
    n: Int32 | None = None
    return_token_ids: bool | None = None
    logprobs: bool | Int32 | None = None  # chat says whether, completions how many
    priority: Int32 = 0
    loads: str = ""  # Ollama: nothing is generated, this body is the answer


_decode = msgspec.json.Decoder(RequestBody).decode


class Called(msgspec.Struct, frozen=True):
    id: str
    function: dict[str, str]


class Message(msgspec.Struct, frozen=True):
    role: str
    tool_calls: list[Called] | None = None
    tool_call_id: str | None = None


_messages = msgspec.json.Decoder(list[Message]).decode


def decode(body: bytes) -> RequestBody:
    """ValueError: not JSON, not UTF-8, nested too deep, a field of another type, tool calls that are not answered."""
    with value_errors():
        asked = _decode(body)
        if b"tool_call" in bytes(asked.messages):
            check_calls(_messages(asked.messages))
        return asked


@contextlib.contextmanager
def value_errors() -> Iterator[None]:
    """Raise ValueError for what cannot be decoded in the block."""
    try:
        yield
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from None
    except RecursionError:
        raise ValueError("it is nested too deep") from None


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
