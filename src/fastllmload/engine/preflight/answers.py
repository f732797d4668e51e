"""Reads a server's answers to the preflight: models, the probe's answer, and what a run would count as failed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from fastllmload._ext.events.delta import Classifier
from fastllmload._ext.events.dialect import Dialect
from fastllmload._ext.events.grpc import GrpcParser
from fastllmload._ext.events.ndjson import NdjsonParser
from fastllmload._ext.events.sse import SseParser
from fastllmload._ext.http.response import CONTENTS, HeadReader, find_head_end, parse_head
from fastllmload.endpoint import ENDPOINTS
from fastllmload.endpoint.endpoint import Endpoint
from fastllmload.engine.preflight.client import LARGEST_ANSWER

# Patterns that occur in the answers of one protocol only, and its name: of protocols that no endpoint has as its title.
OTHERS: tuple[tuple[bytes, str], ...] = (
    (rb'"candidates"\s*:\s*\[', "Gemini"),
    (rb'"(?:type|event_type)"\s*:\s*"(?:content-delta|message-start|text-generation)"', "Cohere"),
    (rb'"stop"\s*:\s*(?:true|false).*"(?:id_slot|tokens_predicted|generation_settings)"', "llama.cpp's completion"),
    (rb'"(?:id_slot|tokens_predicted)".*"stop"\s*:\s*(?:true|false)', "llama.cpp's completion"),
)
# How servers say that a request lacks a field: FastAPI's list, pydantic's lines, serde, OpenAI's API.
MISSING = (
    re.compile(r"""loc["']\s*:\s*[\[(]\s*["']body["'],\s*["'](\w+)["']\s*[\])],\s*["']msg["']\s*:\s*["']field req""", re.I),
    re.compile(r"(?:\\n|\b)(\w+)(?::|\\n|\s)+field required", re.I),
    re.compile(r"missing (?:required )?(?:field|parameter|argument)s?:? ?[`'\"\\]+(\w+)", re.I),
    re.compile(r"[`'\"\\]+(\w+)[`'\"\\]+ (?:is|field is) (?:required|missing)", re.I),
)  # fmt: skip
PAGE = re.compile(rb"\s*(?:<!--.*?-->\s*)?<(?:!doctype\s+html|html|head)\b", re.IGNORECASE | re.DOTALL)
ERROR_KIND, DONE_KIND, BAD_KIND = 9, 10, 11  # delta.EventKind
USAGE, TOKEN_IDS, NEITHER = "on", "token-ids", "off"  # ways to request token counts in events
CONTENT_KINDS = (2, 3, 4, 5, 6)  # delta.EventKind: whitespace, content, reasoning, tool call, refusal


def another_protocol(content: bytes, own: str) -> Iterator[tuple[str, str]]:
    """(name, --endpoint-type, "" for none) of protocols other than *own* that *content* may be."""
    titles = {one.title for one in ENDPOINTS.values()}
    surest = [(sign, one.title, one.name) for one in ENDPOINTS.values() for sign in one.signs[:1]]
    weaker = [(sign, one.title, one.name) for one in ENDPOINTS.values() for sign in one.signs[1:]]
    others = [(sign, name, "") for sign, name in OTHERS if name not in titles]
    for pattern, name, option in (*surest, *others, *weaker):
        if option != own and re.search(pattern, content, re.DOTALL):
            yield name, option


def missing_fields(content: bytes) -> list[str]:
    """Names of the fields that a refusal says a request lacks."""
    text = content.decode(errors="replace")
    return list(dict.fromkeys(name for pattern in MISSING for name in pattern.findall(text)))


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
    return encoding.strip().lower() not in ("", "identity")


def unreadable(content_type: str, kinds: Sequence[int], own: Endpoint) -> str | None:
    """Why a run would count every such answer as failed; None: it would not. *kinds*: those of its events."""
    form = body_format(content_type)
    if form == "other" or (form == "grpc") != (own.call is not None):
        return f"a body of {content_type or 'no Content-Type'}"
    if kinds and all(kind == BAD_KIND for kind in kinds):
        return f"a body that {own.name} has no form for"
    return None


def offered_models(body: bytes) -> list[str] | None:
    """Ids of an OpenAI model list, or names of Ollama's; None when *body* is neither."""
    listed = model_list(body)
    ids = [] if listed is None else [one[listed[0]] for one in listed[1] if isinstance(one.get(listed[0]), str)]
    return ids or None


def model_list(body: bytes) -> tuple[str, list[dict[str, Any]]] | None:
    """(key of a model's name, the models) of an OpenAI, Ollama or Triton list."""
    try:
        decoded: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if isinstance(decoded, list):  # Triton's, of which some are not loaded
        decoded = {"models": [one for one in decoded if isinstance(one, dict) and one.get("state", "READY") == "READY"]}
    if not isinstance(decoded, dict):
        return None
    key, data = ("id", decoded["data"]) if "data" in decoded else ("name", decoded.get("models"))
    return (key, [one for one in data if isinstance(one, dict)]) if isinstance(data, list) else None


def context_limit(body: bytes, model: str) -> int | None:
    """`max_model_len` of *model* in an OpenAI model list, as vLLM and others report it."""
    listed: Any = msgspec.json.decode(body)
    for item in listed.get("data", ()) if isinstance(listed, dict) else ():
        limit = item.get("max_model_len") if isinstance(item, dict) and item.get("id") == model else None
        if isinstance(limit, int) and limit > 0:
            return limit
    return None


def quoted_list(names: Sequence[str]) -> str:
    text = ", ".join(repr(name) for name in names[:8])
    return text + (f" and {len(names) - 8} more" if len(names) > 8 else "")


class ProbeAnswer(NamedTuple):
    """*usage*: an event had usage, None: there was no answer; *counted*: all events with text had completion_tokens,
    *listed*: all had a list of their tokens; *texts*: events with text; *ended*: finish_reason or [DONE];
    *cached*: prompt tokens that were cached, None: it does not say.
    """

    usage: bool | None
    counted: bool = False
    listed: bool = False
    texts: int = 0
    ended: bool = False
    cached: int | None = None

    def reports(self, way: str) -> bool:
        return self.counted if way == USAGE else self.listed

    @property
    def reports_without_field(self) -> bool:
        """The events report their tokens without a request for it, or none of them had text."""
        return self.counted or self.listed or self.texts == 0


def parse_answer(content: bytes, content_type: str, dialect: Dialect) -> tuple[list[int], list[bytes], ProbeAnswer]:
    """Kinds of the events of an answer, their data, and what they contain in addition to text."""
    classifier = Classifier(dialect)
    form = body_format(content_type)
    if form == "sse":
        events = SseParser(limit=LARGEST_ANSWER).feed(content)
        texts = [b"event: error data: " * (name == b"error") + data for name, data, _, _ in events]
        found = [classifier.classify_bytes(data) for _, data, _, _ in events]
        for meaning, (name, _, _, _) in zip(found, events, strict=True):
            if name == b"error":
                meaning["kind"] = ERROR_KIND
    elif form == "ndjson":
        lines = NdjsonParser(limit=LARGEST_ANSWER)
        texts = [data for _, data, _, _ in lines.feed(content) + lines.eof()]
        found = [classifier.classify_bytes(data) for data in texts]
    elif form == "grpc":
        texts = GrpcParser(limit=LARGEST_ANSWER).feed(content)
        found = [classifier.classify_bytes(data) for data in texts]
        texts = [meaning["text"] or b"" if meaning["kind"] == ERROR_KIND else b"a message" for meaning in found]
    else:
        texts = [content]
        found = [classifier.classify_body_bytes(content)]
    kinds = [int(meaning["kind"]) for meaning in found]
    speaking = [meaning for meaning, kind in zip(found, kinds, strict=True) if kind in CONTENT_KINDS]
    cached = max((int(meaning["cached_tokens"]) for meaning in found), default=-1)
    counts, lists = ([one[name] for one in speaking] for name in ("completion_tokens", "listed_tokens"))
    return kinds, texts, ProbeAnswer(
        any(meaning["has_usage"] for meaning in found),
        bool(counts) and min(counts) >= 0,
        bool(lists) and min(lists) >= 0 < max(lists),
        len(speaking),
        any(meaning["finish"] or meaning["kind"] == DONE_KIND for meaning in found),
        cached if cached >= 0 else None,
    )  # fmt: skip
