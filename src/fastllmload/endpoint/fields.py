"""Body fields other than model and prompt: those of the workload, modified by --extra-body."""

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
    """Fields in the order of the body; `NUMBER` is the request's output tokens.

    Fields of --extra-body replace ours; null removes one of ours. Its value "{output_tokens}", at any depth, becomes
    each request's output length: {"max_completion_tokens": "{output_tokens}"} replaces max_tokens. InputError when it
    is not a JSON object, or contradicts what the plan and the report say was sent.
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
        numbered = _with_numbers(extra)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
        raise InputError(
            "extra-body-invalid", f"--extra-body {_quoted(text)} is not JSON that can be sent: {problem}"
        ) from None
    if not isinstance(extra, dict):
        raise InputError(
            "extra-body-invalid", f'--extra-body {_quoted(text)} is not a JSON object; write {{"field": value}}'
        )
    for name, option in DECIDED.items():
        if name in extra:
            raise InputError(
                "extra-body-reserved", f"--extra-body sets {name!r}, which {option} decides; use that option"
            )
    if extra.get("n") not in (None, 1):
        raise InputError(
            "extra-body-reserved",
            f"--extra-body asks for n={extra['n']} replies per request, of which only the first could be timed; "
            "leave it out and send more requests",
        )
    for name in LENGTHS:
        if numbered.get(name) not in (None, NUMBER):
            raise InputError(
                "extra-body-reserved",
                f"--extra-body sets {name!r}, which --osl decides for each request; "
                f'use --osl, or the value "{OUTPUT_TOKENS}" for the length that it draws',
            )
    return dict(numbered)


def _with_numbers(value: Any) -> Any:
    """*value* with `NUMBER` in place of every text "{output_tokens}"."""
    if isinstance(value, dict):
        return {name: _with_numbers(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_with_numbers(inner) for inner in value]
    return NUMBER if value == OUTPUT_TOKENS else value


def _quoted(text: str) -> str:
    """*text* quoted, without credentials, and short enough for a message."""
    text = public_body(text)
    return repr(text if len(text) <= 60 else text[:60] + "…")
