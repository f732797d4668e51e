"""Plain-Python twin of the event classifier, on the json module; it shares nothing with the compiled one."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from fastllmload.records.layout import EVENT_NAMES, FINISH_NAMES

FINISHES = {
    word: reason
    for reason, words in {
        "stop": "stop eos eos_token end_turn stop_sequence stop_token pause_turn complete",
        "length": "length max_tokens model_length model_context_window_exceeded",
        "tool_calls": "tool_calls function_call tool_use tool_call",
        "content_filter": "content_filter content_filtered guardrail_intervened refusal safety recitation blocklist "
        "prohibited_content spii image_safety",
        "failed": "abort aborted error error_toxic error_limit failed cancel cancelled canceled timeout overloaded "
        "internal_error server_error network_error insufficient_system_resource malformed_function_call "
        "unexpected_tool_call",
    }.items()
    for word in words.split()
}
OLLAMA_CHAT, OLLAMA_GENERATE = 2, 3
DURATIONS = ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration")
OLLAMA_KEYS = {
    "model", "error", "done", "done_reason", "prompt_eval_count", "prompt_eval_cached_count", "eval_count", "logprobs",
    *DURATIONS,
}  # fmt: skip
COUNTS = ("prompt_tokens", "completion_tokens", "reasoning_tokens", "cached_tokens")


class Shape(Exception):
    """JSON that is not an event."""


def constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def meaning(
    kind: str, finish: str = "none", text: str | None = None, counts: dict[str, int] | None = None
) -> dict[str, Any]:
    """The compiled classifier's dict, without ``decoder`` and with the text expanded."""
    said = dict.fromkeys(COUNTS, -1) | (counts or {})
    return {
        "kind": EVENT_NAMES.index(kind),
        "finish": FINISH_NAMES.index(finish),
        "has_usage": any(count >= 0 for count in said.values()),
        "listed_tokens": -1,
        "text": re.sub("[\ud800-\udfff]", "\ufffd", text) if text else None,
        "done": False,
        "calls": False,
        "server_ns": [0, 0, 0, 0],
        **said,
    }


def is_a(kind: type, value: Any) -> Any:
    if value is None:
        return kind()
    if type(value) is not kind:
        raise Shape
    return value


def tokens(counts: Any, name: str) -> int:
    count = counts.get(name) if isinstance(counts, dict) else None
    return count if type(count) is int and 0 <= count < 2**31 else -1


def usage_counts(usage: Any) -> dict[str, int]:
    if not isinstance(usage, dict):
        return {}
    return {
        "prompt_tokens": tokens(usage, "prompt_tokens"),
        "completion_tokens": tokens(usage, "completion_tokens"),
        "reasoning_tokens": tokens(usage.get("completion_tokens_details"), "reasoning_tokens"),
        "cached_tokens": tokens(usage.get("prompt_tokens_details"), "cached_tokens"),
    }


def timed_choice(event: dict[str, Any]) -> dict[str, Any] | None:
    for choice in is_a(list, event.get("choices")):
        index = is_a(int, is_a(dict, choice).get("index"))
        if index < 0:
            raise Shape
        if index == 0:
            return choice or {}
    return None


def listed(choice: dict[str, Any]) -> int:
    """Tokens that the choice lists: its token_ids, else its logprobs."""
    if isinstance(choice.get("token_ids"), list):
        return len(choice["token_ids"])
    logprobs = choice.get("logprobs")
    lists = (logprobs.get("content"), logprobs.get("tokens")) if isinstance(logprobs, dict) else ()
    return max((len(found) for found in lists if isinstance(found, list)), default=-1)


def tool_texts(delta: dict[str, Any]) -> tuple[bool, str]:
    """Whether a tool call says anything, and its text: the first arguments, else the first name."""
    functions: list[dict[str, Any]] = []
    for key, value in delta.items():
        if key == "function_call":
            functions.append(is_a(dict, value))
        elif key == "tool_calls":
            functions += [is_a(dict, is_a(dict, call).get("function")) for call in is_a(list, value)]
    names, arguments, said = [], [], False
    for function in functions:
        names.append(is_a(str, function.get("name")))
        value = function.get("arguments")
        said = said or bool(names[-1]) or bool(value)
        arguments.append("" if isinstance(value, dict) else is_a(str, value))
    return said, next(filter(None, arguments), "") or next(filter(None, names), "")


def text_of(delta: dict[str, Any]) -> tuple[str, str] | None:
    content, reasoning, older, refusal = (
        is_a(str, delta.get(key)) for key in ("content", "reasoning", "reasoning_content", "refusal")
    )
    tool, tool_text = tool_texts(delta)
    if content.strip():
        return "content", content
    if tool:
        return "tool", tool_text
    if content:
        return "whitespace", content
    if older or reasoning:
        return "reasoning", older or reasoning
    return ("refusal", refusal) if refusal else None


def classify(data: bytes, dialect: int, whole: bool = False) -> dict[str, Any]:
    """Meaning of one event, or of a *whole* body."""
    if dialect in (OLLAMA_CHAT, OLLAMA_GENERATE):
        return classify_ollama(data, dialect, whole)
    if not whole and data.strip(b" \t\r\n") == b"[DONE]":
        return meaning("done")
    if not whole and not data.strip(b" \t\r\n"):
        return meaning("other")
    try:
        event = json.loads(data.decode("utf-8", "replace"), parse_constant=constant)
        return of_event(is_a(dict, event), dialect, whole)
    except (ValueError, RecursionError, Shape):
        return meaning("bad")


def of_event(event: dict[str, Any], dialect: int, whole: bool) -> dict[str, Any]:
    error = event.get("error")
    if isinstance(error, dict) or error or event.get("object") == "error":
        return meaning("error")
    if not event.keys() & {"choices", "usage", "error", "object", "id"}:
        return meaning("bad")
    chosen = timed_choice(event)
    choice = chosen or {}
    delta = {"content": choice.get("text")} if dialect else is_a(dict, choice.get("message" if whole else "delta"))
    role = is_a(str, delta.get("role"))
    reason = is_a(str, choice.get("finish_reason"))
    finish = FINISHES.get(reason.lower(), "other") if reason else "none"
    counts = usage_counts(event.get("usage"))
    said = text_of(delta)
    calls = {"calls": bool(delta.get("tool_calls")), "listed_tokens": listed(choice)}
    if said is not None:
        return meaning(said[0], finish, said[1], counts) | calls
    kind = "other"
    if not whole:
        usage = any(count >= 0 for count in counts.values())
        kind = "role" if role else "empty" if chosen is not None else "usage" if usage else "other"
        kind = "finish" if reason else kind
    return meaning(kind, finish, counts=counts) | calls


def classify_ollama(data: bytes, dialect: int, whole: bool) -> dict[str, Any]:
    """Meaning of one line, or of a *whole* body, of Ollama's chat or generate."""
    try:
        event = is_a(dict, json.loads(data.decode("utf-8", "replace"), parse_constant=constant))
        return of_ollama(event, dialect == OLLAMA_CHAT, whole)
    except (ValueError, RecursionError, Shape):
        return meaning("bad")


def duration(value: Any) -> int:
    return value if type(value) is int and 0 <= value < 10**18 else 0


def of_ollama(event: dict[str, Any], chat: bool, whole: bool) -> dict[str, Any]:
    error = event.get("error")
    if isinstance(error, dict) or error:
        return meaning("error")
    if not event.keys() & (OLLAMA_KEYS | ({"message"} if chat else {"response", "thinking"})):
        return meaning("bad")
    said_flat = {"content": event.get("response"), "thinking": event.get("thinking")}
    carrier = is_a(dict, event.get("message")) if chat else said_flat
    calls = {"tool_calls": carrier.get("tool_calls")} if chat else {}
    said = text_of({"content": carrier.get("content"), "reasoning": carrier.get("thinking"), **calls})
    role = is_a(str, carrier.get("role"))
    done, reason = is_a(bool, event.get("done")), is_a(str, event.get("done_reason"))
    known = reason if reason in ("load", "unload") else FINISHES.get(reason.lower(), "other")
    finish = known if reason and done else "none"
    counts = {
        "prompt_tokens": tokens(event, "prompt_eval_count"),
        "completion_tokens": tokens(event, "eval_count"),
        "cached_tokens": tokens(event, "prompt_eval_cached_count"),
    }
    kind = said[0] if said else "other"
    if said is None and not whole:
        kind = "finish" if finish != "none" else "done" if done else "role" if role else "empty"
    return {
        **meaning(kind, finish, said[1] if said else None, counts),
        "done": done,
        "calls": bool(calls.get("tool_calls")),
        "listed_tokens": len(event["logprobs"]) if isinstance(event.get("logprobs"), list) else -1,
        "server_ns": [duration(event.get(name)) for name in DURATIONS],
    }
