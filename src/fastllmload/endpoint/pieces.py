"""The fixed bytes of request bodies: everything but the prompt and the output length, encoded once per plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from fastllmload.errors import InputError
from fastllmload.plan.settings import Workload

FIXED = ("model", "stream", "max_tokens")  # what other options decide


@dataclass(frozen=True)
class BodyPieces:
    """body = before + prompt as JSON + middle[0] + N + tail, N = the request's output tokens."""

    before: bytes
    middle: tuple[bytes, ...]
    tail: bytes

    def encode(self, prompt: str, tokens: int) -> bytes:
        """One body, for a request outside a plan."""
        return self.before + msgspec.json.encode(prompt) + self.middle[0] + str(tokens).encode() + self.tail


def json_fields(fields: dict[str, Any]) -> bytes:
    """`"name":value,...` without the braces."""
    return msgspec.json.encode(fields)[1:-1]


def body_tail(workload: Workload, prompt_field: str) -> bytes:
    """The fields behind the output length; those of --extra-body replace fields of the same name. InputError when it
    sets what other options decide.
    """
    extra = extra_fields(workload)
    for name in (*FIXED, prompt_field):
        if name in extra:
            raise InputError(f"--extra-body sets {name!r}, which other options decide; leave it out")
    fields: dict[str, Any] = {"stream": workload.streaming}
    if workload.streaming:
        fields["stream_options"] = {"include_usage": True}
    if workload.temperature is not None:
        fields["temperature"] = workload.temperature
    if workload.ignore_eos:
        fields["ignore_eos"] = True
    return b"," + json_fields({**fields, **extra}) + b"}"


def extra_fields(workload: Workload) -> dict[str, Any]:
    """--extra-body as a dict; InputError when it is no JSON object."""
    if workload.extra_body is None:
        return {}
    try:
        extra = msgspec.json.decode(workload.extra_body)
    except msgspec.DecodeError as problem:
        raise InputError(f"--extra-body is not JSON: {problem}") from None
    if not isinstance(extra, dict):
        raise InputError(f"--extra-body must be a JSON object, not {workload.extra_body!r}")
    return extra
