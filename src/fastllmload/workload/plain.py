"""Files of prompts in the forms of other tools, as entries of `custom`: lines of text, and AIPerf's JSON lines.

A line of AIPerf's is a request (single_turn, random_pool: `text`; mooncake_trace: `text_input`) or a conversation
(multi_turn: `turns`, whose first may be a system prompt, and whose `delay` is in milliseconds). `output_length` is that of
the answer, `extra` are fields of the body.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fastllmload.errors import InputError
from fastllmload.workload.request import field_error

TYPES = ("single_turn", "multi_turn", "random_pool", "mooncake_trace")
OF_TURN = ("text", "texts", "text_input", "role", "output_length", "extra", "delay", "timestamp", "type")
Entry = tuple[dict[str, Any], str]  # of `custom`, and its place


def text_entries(path: Path, raw: bytes) -> Iterator[Entry]:
    """Each line that is not empty is a prompt."""
    try:
        lines = raw.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as problem:
        raise InputError("dataset-invalid", f"{path} is not text: byte {problem.start} is not UTF-8") from None
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield {"prompt": line.strip()}, f"{path} line {number}"


def aiperf_entries(lines: Iterator[Entry]) -> Iterator[Entry]:
    """The requests of AIPerf's *lines*; those of a conversation have its `session`."""
    for entry, where in lines:
        kind = entry.get("type")
        if kind is not None and kind not in TYPES:
            raise field_error(f"{where}: type is {kind!r}, not one of {', '.join(TYPES)}")
        if "turns" not in entry:
            if entry.get("delay"):
                raise field_error(f"{where}: delay is for the turns of a conversation; leave it out")
            yield _request(entry, where), where
            continue
        turns = entry["turns"]
        if not isinstance(turns, list) or not turns or not all(isinstance(turn, dict) for turn in turns):
            raise field_error(f"{where}: turns is not an array of objects")
        system = turns[0].get("text") if turns[0].get("role") == "system" and len(turns) > 1 else None
        for number, turn in enumerate(turns[1:] if system is not None else turns):
            found = _request(turn, where)
            if system is not None and number == 0:
                messages = [{"role": "system", "content": system}]
                found["messages"] = [*messages, {"role": "user", "content": found.pop("prompt")}]
            delay = {"delay": turn["delay"] / 1000} if _is_number(turn.get("delay")) and number else {}
            yield {**found, **delay, "session": entry.get("session_id") or where}, where


def _request(entry: dict[str, Any], where: str) -> dict[str, Any]:
    unknown = [name for name in entry if name not in OF_TURN]
    if unknown:
        raise field_error(f"{where}: {unknown[0]!r} is not sent; the fields are {', '.join(OF_TURN)}")
    texts = entry.get("texts")
    if isinstance(texts, list) and len(texts) == 1:
        texts = texts[0].get("contents", texts) if isinstance(texts[0], dict) else texts
    prompt = entry.get("text") or entry.get("text_input") or (texts[0] if isinstance(texts, list) and texts else None)
    if not isinstance(prompt, str) or not prompt or (isinstance(texts, list) and len(texts) != 1):
        raise field_error(f"{where}: a request needs one text, as text, text_input or the only one of texts")
    if entry.get("role") not in (None, "user"):
        raise field_error(f"{where}: role is {entry['role']!r}; a prompt is the user's, or the system's before it")
    found: dict[str, Any] = {"prompt": prompt}
    if entry.get("output_length") is not None:
        found["output_tokens"] = entry["output_length"]
    if entry.get("extra") is not None:
        found["body"] = entry["extra"]
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
