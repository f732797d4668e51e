"""The fields of a body besides model and prompt: what the workload asks for, changed by --extra-body."""

from __future__ import annotations

from typing import Any

import msgspec

from fastllmload.endpoint.pieces import NUMBER
from fastllmload.errors import InputError
from fastllmload.redact import public_body
from fastllmload.settings import Workload

OUTPUT_TOKENS = "{output_tokens}"  # in --extra-body: the request's own output length
LENGTHS = ("max_tokens", "max_completion_tokens")
DECIDED = {"model": "--model", "stream": "--stream", "messages": "--workload", "prompt": "--workload"}


def sampling_fields(workload: Workload) -> dict[str, Any]:
    """Fields in the order of the body; `NUMBER` stands for the request's output tokens.

    Fields of --extra-body replace ours; null takes one of ours out. Its value "{output_tokens}", anywhere,
    becomes each request's number: {"max_completion_tokens": "{output_tokens}"} takes the place of max_tokens.
    InputError when it is no JSON object, or contradicts what the plan and the report say was sent.
    """
    extra = extra_fields(workload.extra_body)
    fields: dict[str, Any] = {} if extra.get("max_completion_tokens") is NUMBER else {"max_tokens": NUMBER}
    if workload.ignore_eos:
        fields |= {"min_tokens": NUMBER, "ignore_eos": True}
    if workload.temperature is not None:
        fields["temperature"] = workload.temperature
    fields["stream"] = workload.streaming
    if workload.streaming:
        fields["stream_options"] = {"include_usage": True, **workload.usage_asked("continuous_usage_stats")}
        fields |= workload.ids_asked("return_token_ids")
    removed = [name for name, value in extra.items() if value is None and name in fields]
    return {name: value for name, value in (fields | extra).items() if name not in removed}


def extra_fields(text: str | None) -> dict[str, Any]:
    """--extra-body as a dict, with `NUMBER` for "{output_tokens}"."""
    if text is None:
        return {}
    try:
        extra = msgspec.json.decode(text)
        numbered = with_numbers(extra)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
        raise InputError(f"--extra-body {shown(text)} is not JSON that can be sent: {problem}") from None
    if not isinstance(extra, dict):
        raise InputError(f'--extra-body {shown(text)} is not a JSON object; write {{"field": value}}')
    for name, option in DECIDED.items():
        if name in extra:
            raise InputError(f"--extra-body sets {name!r}, which {option} decides; use that option")
    if extra.get("n") not in (None, 1):
        raise InputError(
            f"--extra-body asks for n={extra['n']} replies to a request, of which only the first could be timed; "
            "leave it out and send as many requests"
        )
    for name in LENGTHS:
        if numbered.get(name) not in (None, NUMBER):
            raise InputError(
                f"--extra-body sets {name!r}, which --osl decides for each request; "
                f'use --osl, or the value "{OUTPUT_TOKENS}" for the length that it draws'
            )
    return dict(numbered)


def with_numbers(value: Any) -> Any:
    """*value* with `NUMBER` in place of every text "{output_tokens}"."""
    if isinstance(value, dict):
        return {name: with_numbers(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [with_numbers(inner) for inner in value]
    return NUMBER if value == OUTPUT_TOKENS else value


def shown(text: str) -> str:
    """*text* quoted, without credentials, and short enough for a message."""
    text = public_body(text)
    return repr(text if len(text) <= 60 else text[:60] + "…")
