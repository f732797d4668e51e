"""Parses a server's list of models in OpenAI's or Ollama's format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec


def offered_models(body: bytes) -> list[str] | None:
    """Ids of an OpenAI model list, or names of Ollama's; None when *body* is neither."""
    listed = model_list(body)
    ids = [] if listed is None else [one[listed[0]] for one in listed[1] if isinstance(one.get(listed[0]), str)]
    return ids or None


def model_list(body: bytes) -> tuple[str, list[dict[str, Any]]] | None:
    """(key of a model's name, the models) of an OpenAI or Ollama list."""
    try:
        decoded: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(decoded, dict):
        return None
    key, data = ("id", decoded["data"]) if "data" in decoded else ("name", decoded.get("models"))
    return (key, [one for one in data if isinstance(one, dict)]) if isinstance(data, list) else None


def context_limit(body: bytes, model: str) -> int | None:
    """`max_model_len` of *model* in an OpenAI model list, as vLLM and others report it."""
    for item in msgspec.json.decode(body).get("data", ()):
        limit = item.get("max_model_len") if isinstance(item, dict) and item.get("id") == model else None
        if isinstance(limit, int) and limit > 0:
            return limit
    return None


def quoted_list(names: Sequence[str]) -> str:
    text = ", ".join(repr(name) for name in names[:8])
    return text + (f" and {len(names) - 8} more" if len(names) > 8 else "")
