"""Paths under a base URL, and the fixed bytes of request bodies: all except prompt and output length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from fastllmload.errors import InputError


def resource_path(base_path: str, resource: str) -> str:
    """Path of *resource* (`chat/completions`, `models`).

    A base URL without a path means /v1; one with a path means that path, as in the OpenAI SDK. A base that
    already ends in the resource is used unchanged.
    """
    path = base_path.rstrip("/")
    if path.endswith("/" + resource):
        return path
    return f"{path or '/v1'}/{resource}"


def base_of(base_path: str, resource: str) -> str:
    """*base_path* without a trailing *resource*."""
    return base_path.rstrip("/").removesuffix("/" + resource)


# Placeholders for each body's own bytes. JSON text contains no control characters, so they cannot occur elsewhere.
PROMPT = msgspec.Raw(b"\x00")
NUMBER = msgspec.Raw(b"\x01")


@dataclass(frozen=True)
class BodyPieces:
    """body = before + prompt as JSON + middle[0] + N + middle[1] + N … + tail.

    N is the request's output tokens; *middle* has an entry for each N. The prompt is a string or an array of
    token ids.
    """

    before: bytes
    middle: tuple[bytes, ...]
    tail: bytes

    def encode(self, prompt: str | Sequence[int] | Sequence[dict[str, Any]], tokens: int) -> bytes:
        """One body, for a request outside a plan; the same bytes as in a plan."""
        return self.before + msgspec.json.encode(prompt) + (b"%d" % tokens).join((*self.middle, self.tail))


def cut(fields: dict[str, Any]) -> BodyPieces:
    """The pieces of a body of *fields*, in their order: `PROMPT` once, then `NUMBER` any number of times.

    InputError when a text in it is not valid Unicode, which command-line arguments can be.
    """
    try:
        body = msgspec.json.encode(fields)
    except UnicodeEncodeError as problem:
        raise InputError(
            "body-not-encodable", f"the request body cannot be encoded: {problem.object!r} is not UTF-8 text"
        ) from None
    before, after = body.split(bytes(PROMPT))
    *middle, tail = after.split(bytes(NUMBER))
    return BodyPieces(before, tuple(middle), tail)
