"""Ollama's API of the simulated engine besides its streams: the fields of a request, and the pages."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from fastllmload import __version__
from fastllmload.simulator.body import Int32, RequestBody, StreamOptions, value_errors

PAGES = ("/api/tags", "/api/ps", "/api/version", "/api/show")
DETAILS = {
    "parent_model": "",
    "format": "simulated",
    "family": "simulated",
    "families": ["simulated"],
    "parameter_size": "0",
    "quantization_level": "none",
}


class OllamaOptions(msgspec.Struct, frozen=True):
    num_predict: Int32 | None = None


class OllamaBody(msgspec.Struct, frozen=True, gc=False):
    """`stream` is on unless it is false; a num_predict below 1 means no limit, as in Ollama."""

    model: str | None = None
    prompt: msgspec.Raw = msgspec.Raw()
    messages: msgspec.Raw = msgspec.Raw()
    stream: bool | None = None
    options: OllamaOptions | None = None
    keep_alive: str | float | None = None


_decode = msgspec.json.Decoder(OllamaBody).decode


def decode_ollama(body: bytes) -> RequestBody:
    """The same request in OpenAI's words. ValueError says what is wrong with *body*."""
    with value_errors():
        asked = _decode(body)
    most = None if asked.options is None else asked.options.num_predict
    return RequestBody(
        model=None if asked.model is None else asked.model.removesuffix(":latest"),
        prompt=asked.prompt,
        messages=asked.messages,
        stream=asked.stream is not False,
        stream_options=StreamOptions(include_usage=True),
        max_tokens=most if most is not None and most > 0 else None,
        loads=loaded(asked) if nothing_to_do(asked) else "",
    )


def nothing_to_do(asked: OllamaBody) -> bool:
    """A request without a prompt only loads the model, or unloads it."""
    return bytes(asked.prompt) in (b"", b'""', b"null") and bytes(asked.messages) in (b"", b"[]", b"null")


def loaded(asked: OllamaBody) -> str:
    reason = "unload" if asked.keep_alive in (0, "0") else "load"
    said: dict[str, Any] = {"model": asked.model, "created_at": utc(time.time())}
    if bytes(asked.messages):
        said["message"] = {"role": "assistant", "content": ""}
    else:
        said["response"] = ""
    return msgspec.json.encode({**said, "done_reason": reason, "done": True}).decode()


def page(path: str, model: str) -> bytes:
    if path == "/api/version":
        return msgspec.json.encode({"version": f"{__version__}-simulator"})
    if path == "/api/show":
        return msgspec.json.encode({"details": DETAILS, "model_info": {}, "capabilities": ["completion"]})
    name = f"{model}:latest"
    card: dict[str, Any] = {"name": name, "model": name, "size": 0, "digest": "0" * 64, "details": DETAILS}
    now = time.time()
    if path == "/api/ps":
        card |= {"expires_at": utc(now + 300), "size_vram": 0}
    else:
        card["modified_at"] = utc(now)
    return msgspec.json.encode({"models": [card]})


def utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
