"""The fields of a completion request that the simulated engine reads; all others are accepted and ignored."""

from __future__ import annotations

import msgspec


class StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool | None = None


class RequestBody(msgspec.Struct, frozen=True, gc=False):
    """`prompt` and `messages` stay raw JSON: they are counted and hashed by compiled code, never built."""

    model: str | None = None
    prompt: msgspec.Raw = msgspec.Raw()
    messages: msgspec.Raw = msgspec.Raw()
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    min_tokens: int = 0
    ignore_eos: bool | None = None
    n: int | None = None
    priority: int = 0


decode = msgspec.json.Decoder(RequestBody).decode
