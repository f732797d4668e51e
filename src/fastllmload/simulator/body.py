"""The fields of a completion request that the simulated engine reads; all others are accepted and ignored."""

from __future__ import annotations

from typing import Annotated

import msgspec

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool | None = None


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
    priority: Int32 = 0
    loads: str = ""  # Ollama: nothing is generated, this body is the answer


_decode = msgspec.json.Decoder(RequestBody).decode


def decode(body: bytes) -> RequestBody:
    """ValueError says what is wrong with *body*: no JSON, not UTF-8, nested too deep, a field of another type."""
    try:
        return _decode(body)
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from None
    except RecursionError:
        raise ValueError("it is nested too deep") from None
