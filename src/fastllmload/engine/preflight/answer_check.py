"""Detects answers to the probe that a run would count as failed: other protocols, web pages, encoded or invalid bodies."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from fastllmload._ext.http1 import CONTENTS, HeadReader, find_head_end, parse_head

# Patterns that occur in the events of one protocol only; its name, and the --endpoint-type that reads it.
LOOKS_LIKE: tuple[tuple[bytes, str, str], ...] = (
    (rb'"type"\s*:\s*"response\.', "OpenAI Responses", "openai-responses"),
    (rb'"type"\s*:\s*"(?:message_start|content_block_(?:start|delta))"', "Anthropic Messages", "anthropic-messages"),
    (rb'"object"\s*:\s*"response"', "OpenAI Responses", "openai-responses"),
    (rb'"type"\s*:\s*"message"\s*,.*"role"\s*:\s*"assistant"', "Anthropic Messages", "anthropic-messages"),
    (rb'"object"\s*:\s*"chat\.completion', "OpenAI chat completions", "openai-chat"),
    (rb'"object"\s*:\s*"text_completion"', "OpenAI completions", "openai-completions"),
    (rb'"message"\s*:\s*\{.*"done"\s*:', "Ollama's chat", "ollama-chat"),
    (rb'"response"\s*:\s*".*"done"\s*:', "Ollama's generate", "ollama-generate"),
    (rb'"token"\s*:\s*\{\s*"id"\s*:', "Text Generation Inference (TGI)", "tgi"),
    (rb'"generated_text"\s*:\s*"', "Text Generation Inference (TGI)", "tgi"),
    (rb'"candidates"\s*:\s*\[', "Gemini", ""),
    (rb'"meta_info"\s*:\s*\{', "SGLang's generate", "sglang-generate"),
    (rb'"text_output"\s*:\s*"', "Triton's generate", ""),
    (rb'"(?:type|event_type)"\s*:\s*"(?:content-delta|message-start|text-generation)"', "Cohere", ""),
    (rb'"stop"\s*:\s*(?:true|false).*"(?:id_slot|tokens_predicted|generation_settings)"', "llama.cpp's completion", ""),
    (rb'"(?:id_slot|tokens_predicted)".*"stop"\s*:\s*(?:true|false)', "llama.cpp's completion", ""),
    (rb'"object"\s*:\s*"embedding"', "OpenAI embeddings", ""),
    (rb'"request_id"\s*:.*"choices"\s*:\s*\[\s*\{[^{}]*"token_ids"\s*:', "vLLM's generate", ""),
    (rb'"choices"\s*:\s*\[\s*\{[^{}]*"text"\s*:\s*"', "OpenAI completions", "openai-completions"),
    (rb'"choices"\s*:\s*\[\s*\{[^{}]*"(?:delta|message)"\s*:\s*\{', "OpenAI chat completions", "openai-chat"),
)
PAGE = re.compile(rb"\s*(?:<!--.*?-->\s*)?<(?:!doctype\s+html|html|head)\b", re.IGNORECASE | re.DOTALL)
BAD_KIND = 11  # delta.EventKind


def another_protocol(content: bytes, own: str) -> Iterator[tuple[str, str]]:
    """(name, --endpoint-type) of protocols other than *own* that *content* looks like."""
    for pattern, name, option in LOOKS_LIKE:
        if option != own and re.search(pattern, content, re.DOTALL):
            yield name, option


def body_format(content_type: str) -> str:
    """How a worker reads a body of this Content-Type: one of http1.CONTENTS."""
    head = HeadReader()
    line = " ".join(content_type.split())
    unread = head.read_bytes(f"HTTP/1.1 200 OK\r\nContent-Type: {line}\r\n\r\n".encode("latin-1", "replace"))
    return "other" if unread else CONTENTS[head.content]


def refused_head(head: bytes) -> str | None:
    """Why a worker rejects the last of the heads in *head*; None when it does not."""
    at = 0
    while head.startswith(b"HTTP/1.1 100", at) and (end := find_head_end(head[at:])):
        at += end
    parsed = parse_head(head[at:])
    return None if parsed["error"] == "ok" else parsed["message"] or parsed["error"]


def is_web_page(content: bytes, content_type: str) -> bool:
    return "text/html" in content_type.lower() or PAGE.match(content) is not None


def is_encoded(encoding: str) -> bool:
    """Whether a body of this Content-Encoding must be decoded."""
    return encoding.strip().lower() not in ("", "identity")


def unreadable(content_type: str, kinds: Sequence[int], own: str) -> str | None:
    """Why a run would count every such answer as failed; None: it would not. *kinds*: those of its events."""
    if body_format(content_type) == "other":
        return f"a body of {content_type or 'no Content-Type'}"
    if kinds and all(kind == BAD_KIND for kind in kinds):
        return f"a body that {own} has no form for"
    return None
