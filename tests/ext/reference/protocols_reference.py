"""Plain-Python twin of the classifier for the protocols that tests/ext/dialects.py describes, one function for each."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ext.reference.delta_reference import FINISHES, Shape, constant, is_a, meaning, tokens


class Stream:
    """What the events before one have said."""

    def __init__(self) -> None:
        self.characters = 0
        self.input: list[int] = [-1, -1, -1]


def reason(word: Any, more: dict[str, str] | None = None) -> str:
    known = FINISHES | (more or {})
    return known.get(is_a(str, word).lower(), "other") if is_a(str, word) else "none"


def table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def length(value: Any) -> int:
    return len(value) if isinstance(value, list) else -1


def judged(
    content: str | None = None, *, reasoning: str | None = None, refusal: str | None = None, tool: str | None = None,
    calls: bool = False, finish: str = "none", done: bool = False, choice: bool = False, ids: int = -1,
    answer: bool = False, counts: dict[str, int] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The table of delta.pyx. *tool*: the text of a call that says something; *answer*: the ids are the answer."""
    kind, text = "", content
    if content and not (content.isspace() and tool is not None):
        kind = "whitespace" if content.isspace() else "content"
    elif tool is not None:
        kind, text = "tool", tool
    elif reasoning:
        kind, text = "reasoning", reasoning
    elif refusal:
        kind, text = "refusal", refusal
    elif answer and ids > 0 and content is None:
        kind = "content"
    elif finish != "none":
        kind = "finish"
    elif done and ids <= 0:
        kind = "done"
    elif choice or (content, reasoning, refusal) != (None, None, None):
        kind = "empty"
    else:
        kind = "usage" if max((counts or {"": -1}).values()) >= 0 else "other"
    return meaning(kind, finish, text, counts) | {"listed_tokens": ids, "done": done, "calls": calls}


def failed(event: dict[str, Any]) -> bool:
    return isinstance(event.get("error"), dict) or bool(event.get("error"))


def text(value: Any) -> str | None:
    return None if value is None else is_a(str, value)


def responses(event: dict[str, Any], stream: Stream) -> dict[str, Any]:
    kind = event.get("type")
    if failed(event) or kind in ("error", "response.failed"):
        return meaning("error")
    if not event.keys() & {"type", "error"}:
        return meaning("bad")
    fields = {
        "response.output_text.delta": "content", "response.reasoning_text.delta": "reasoning",
        "response.reasoning_summary_text.delta": "reasoning", "response.refusal.delta": "refusal",
    }  # fmt: skip
    if kind in fields if isinstance(kind, str) else False:
        return judged(**{fields[kind]: text(event.get("delta"))})
    if kind in ("response.function_call_arguments.delta", "response.custom_tool_call_input.delta"):
        value = event.get("delta")
        said = "" if isinstance(value, dict) else is_a(str, value)
        return judged(tool=said if value else None, calls=bool(value))
    if kind == "response.output_item.added":
        item = table(event.get("item"))
        name = is_a(str, item.get("name")) if item.get("type") in ("function_call", "custom_tool_call") else ""
        return judged(tool=name or None, calls=bool(name))
    if kind in ("response.completed", "response.incomplete"):
        response = is_a(dict, event.get("response"))
        return judged(done=True, calls=isinstance(response.get("id"), str), **response_end(response))
    return judged()


def response_end(response: dict[str, Any]) -> dict[str, Any]:
    words = {"completed": "stop", "max_output_tokens": "length", "steered": "stop"}
    status = reason(response.get("status"), words)
    detail = reason(table(response.get("incomplete_details")).get("reason"), words)
    usage = table(response.get("usage"))
    return {
        "finish": status if detail == "none" else detail,
        "counts": {
            "prompt_tokens": tokens(usage, "input_tokens"),
            "completion_tokens": tokens(usage, "output_tokens"),
            "cached_tokens": tokens(usage.get("input_tokens_details"), "cached_tokens"),
            "reasoning_tokens": tokens(usage.get("output_tokens_details"), "reasoning_tokens"),
        },
    }


def messages(event: dict[str, Any], stream: Stream) -> dict[str, Any]:
    kind = event.get("type")
    if failed(event) or kind == "error":
        return meaning("error")
    if not event.keys() & {"type", "error"}:
        return meaning("bad")
    if kind == "content_block_delta":
        delta = is_a(dict, event.get("delta"))
        if delta.get("type") == "signature_delta":
            return judged(calls=isinstance(delta.get("signature"), str))
        field = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}.get(
            delta.get("type") if isinstance(delta.get("type"), str) else ""
        )
        value = delta.get(field) if field else None
        if field == "partial_json":
            said = "" if isinstance(value, dict) else is_a(str, value)
            return judged(tool=said if value else None, calls=bool(value))
        return judged(**{"content" if field == "text" else "reasoning": text(value)})
    if kind == "content_block_start":
        block = is_a(dict, event.get("content_block"))
        if repeated_thought(block):
            return judged(calls=True)
        name = is_a(str, block.get("name")) if block.get("type") == "tool_use" else ""
        return judged(tool=name or None, calls=bool(name))
    if kind == "message_start":
        return judged(counts=messages_usage(is_a(dict, event.get("message")).get("usage"), stream))
    if kind == "message_delta":
        finish = reason(is_a(dict, event.get("delta")).get("stop_reason"))
        return judged(finish=finish, counts=messages_usage(event.get("usage"), stream))
    return judged(done=kind == "message_stop")


def messages_usage(usage: Any, stream: Stream) -> dict[str, int]:
    """What is said last of each of three counts makes the input."""
    said = [tokens(usage, name) for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")]
    stream.input = [old if new < 0 else new for old, new in zip(stream.input, said, strict=True)]
    known = max(said) >= 0 and stream.input[0] >= 0
    return {
        "prompt_tokens": min(sum(max(each, 0) for each in stream.input), 2**31 - 1) if known else -1,
        "completion_tokens": tokens(usage, "output_tokens"),
        "cached_tokens": said[1],
        "reasoning_tokens": tokens(table(usage).get("output_tokens_details"), "thinking_tokens"),
    }


def generate(event: dict[str, Any], stream: Stream) -> dict[str, Any]:
    if failed(event):
        return meaning("error")
    if not event.keys() & {"request_id", "error", "prompt_token_ids", "choices", "usage"}:
        return meaning("bad")
    chosen = None
    for choice in is_a(list, event.get("choices")):
        index = is_a(int, is_a(dict, choice).get("index"))
        if index < 0:
            raise Shape
        if index == 0:
            chosen = choice or {}
            break
    usage = table(event.get("usage"))
    asked = tokens(usage, "prompt_tokens")
    listed = length(event.get("prompt_token_ids"))
    names = list(event)
    if (
        "usage" in names
        and "prompt_token_ids" in names
        and "prompt_tokens" in usage
        and usage["prompt_tokens"] is not None
    ):
        listed = max(listed, asked) if names.index("usage") < names.index("prompt_token_ids") else asked
    else:
        listed = max(listed, asked)
    counts = {
        "prompt_tokens": listed,
        "completion_tokens": tokens(usage, "completion_tokens"),
        "cached_tokens": tokens(usage.get("prompt_tokens_details"), "cached_tokens"),
    }
    choice = chosen or {}
    return judged(
        text(choice.get("text")), finish=reason(choice.get("finish_reason")), choice=chosen is not None,
        ids=length(choice.get("token_ids")), answer=True, counts=counts,
    )  # fmt: skip


def sglang(event: dict[str, Any], stream: Stream) -> dict[str, Any]:
    if failed(event):
        return meaning("error")
    if not event.keys() & {"text", "output_ids", "error", "meta_info"}:
        return meaning("bad")
    content, ids = text(event.get("text")), length(event.get("output_ids"))
    info = is_a(dict, event.get("meta_info"))
    counts = {name: tokens(info, name) for name in ("prompt_tokens", "completion_tokens", "cached_tokens")}
    counts["reasoning_tokens"] = tokens(info, "reasoning_tokens")
    finish = reason(table(info.get("finish_reason")).get("type"))
    if content is not None and not 0 <= ids < counts["completion_tokens"]:
        content = so_far(content, stream)
    return judged(content, finish=finish, choice=True, ids=ids, counts=counts)


def so_far(content: str, stream: Stream) -> str:
    known, stream.characters = stream.characters, max(stream.characters, len(content))
    return content[known:]


def tgi(event: dict[str, Any], stream: Stream) -> dict[str, Any]:
    if failed(event):
        return meaning("error")
    if not event.keys() & {"token", "generated_text", "details", "error"}:
        return meaning("bad")
    token, details = is_a(dict, event.get("token")), table(event.get("details"))
    content = text(token.get("text"))
    return judged(
        "" if token.get("special") is True else content, finish=reason(details.get("finish_reason")), choice=True,
        ids=1 if type(token.get("id")) in (int, float) else -1, done=event.get("generated_text") is not None,
        counts={"prompt_tokens": tokens(details, "input_length"), "completion_tokens": tokens(details, "generated_tokens")},
    )  # fmt: skip


def triton(event: dict[str, Any], stream: Stream, cumulative: bool = False) -> dict[str, Any]:
    if failed(event):
        return meaning("error")
    known = {"model_name", "text_output", "finish_reason", "error", "num_input_tokens", "num_output_tokens"}
    if not event.keys() & known:
        return meaning("bad")
    content = text(event.get("text_output"))
    if cumulative and content is not None:
        content = so_far(content, stream)
    return judged(
        content, finish=reason(event.get("finish_reason"), {"none": "none"}), choice=True,
        ids=tokens(event, "num_output_tokens"), counts={"prompt_tokens": tokens(event, "num_input_tokens")},
    )  # fmt: skip


def triton_so_far(event: dict[str, Any], stream: Stream) -> dict[str, Any]:
    return triton(event, stream, cumulative=True)


PROTOCOLS: list[Callable[[dict[str, Any], Stream], dict[str, Any]]] = [
    responses, messages, generate, sglang, tgi, triton, triton_so_far,
]  # fmt: skip
SENTINELS = [True, True, True, True, False, False, False]


def classify(data: bytes, protocol: int, stream: Stream) -> dict[str, Any]:
    """Meaning of one event, behind those that *stream* knows."""
    if SENTINELS[protocol] and data.strip(b" \t\r\n") in (b"[DONE]", b""):
        return meaning("done" if data.strip(b" \t\r\n") else "other")
    before = stream.characters, stream.input
    try:
        event = is_a(dict, json.loads(data.decode("utf-8", "replace"), parse_constant=constant))
        return PROTOCOLS[protocol](event, stream)
    except (ValueError, RecursionError, Shape):
        stream.characters, stream.input = before
        return meaning("bad")


# -- whole answers of those that have parts -------------------------------------------------------------------------------


def joined(parts: list[str | None]) -> str | None:
    said = [part for part in parts if part is not None]
    return "".join(said) if said else None


def whole(data: bytes, protocol: int) -> dict[str, Any]:
    """Meaning of a whole body of Responses or Messages: never one of a stream's own kinds."""
    try:
        event = is_a(dict, json.loads(data.decode("utf-8", "replace"), parse_constant=constant))
        said = (responses_body, messages_body)[protocol](event)
    except (ValueError, RecursionError, Shape):
        return meaning("bad")
    from fastllmload.records.layout import EVENT_NAMES

    if EVENT_NAMES[said["kind"]] in ("usage", "finish", "role", "done", "empty"):
        said["kind"] = EVENT_NAMES.index("other")
    return said


def responses_body(body: dict[str, Any]) -> dict[str, Any]:
    if failed(body):
        return meaning("error")
    if not body.keys() & {"object", "error", "output", "status", "incomplete_details", "usage"}:
        return meaning("bad")
    texts: dict[str, list[str | None]] = {"content": [], "reasoning": [], "refusal": []}
    calls: list[tuple[str, str]] = []
    for item in is_a(list, body.get("output")):
        kind = is_a(dict, item).get("type") if item is not None else None
        if kind == "message":
            for part in is_a(list, item.get("content")):
                found = is_a(dict, part).get("type") if part is not None else None
                if found == "output_text":
                    texts["content"].append(text(part.get("text")))
                elif found == "refusal":
                    texts["refusal"].append(text(part.get("refusal")))
        elif kind == "reasoning":
            for part in is_a(list, item.get("content")):
                texts["reasoning"].append(text(is_a(dict, part).get("text")))
        elif kind == "function_call":
            calls.append(call(item.get("name"), item.get("arguments")))
    said = {"calls": isinstance(body.get("id"), str), **tool_said(calls)}
    return judged(**{name: joined(each) for name, each in texts.items()}, **said, **response_end(body))


def messages_body(body: dict[str, Any]) -> dict[str, Any]:
    if failed(body) or body.get("type") == "error":
        return meaning("error")
    if not body.keys() & {"type", "error"}:
        return meaning("bad")
    if body.get("type") != "message":
        return judged()
    contents: list[str | None] = []
    thoughts: list[str | None] = []
    calls: list[tuple[str, str]] = []
    repeated = False
    for block in is_a(list, body.get("content")):
        kind = is_a(dict, block).get("type") if block is not None else None
        if kind == "text":
            contents.append(text(block.get("text")))
        elif kind == "thinking":
            thoughts.append(text(block.get("thinking")))
        elif kind == "tool_use":
            calls.append(call(block.get("name"), block.get("input")))
        repeated |= block is not None and repeated_thought(block)
    counts = messages_usage(body.get("usage"), Stream())
    finish = reason(body.get("stop_reason"))
    said = {"calls": repeated, **tool_said(calls)}
    return judged(joined(contents), reasoning=joined(thoughts), finish=finish, counts=counts, **said)


def repeated_thought(block: dict[str, Any]) -> bool:
    """Whether a later request repeats what it says besides the text."""
    field = {"thinking": "signature", "redacted_thinking": "data"}.get(str(block.get("type")))
    return field is not None and isinstance(block.get(field), str)


def call(name: Any, arguments: Any) -> tuple[str, str, bool]:
    written = "" if isinstance(arguments, dict) else is_a(str, arguments)
    return is_a(str, name), written, bool(name) or bool(arguments)


def tool_said(calls: list[tuple[str, str, bool]]) -> dict[str, Any]:
    if not any(said for _, _, said in calls):
        return {}
    words = [each[1] for each in calls if each[1]] + [each[0] for each in calls if each[0]]
    return {"tool": words[0] if words else "", "calls": True}
