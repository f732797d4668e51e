"""Files of prompts in other forms, as entries of `custom`: lines of text, tables, and AIPerf's JSON lines.

A line of AIPerf's is a request (single_turn, random_pool: `text`; mooncake_trace: `text_input`) or a conversation
(multi_turn: `turns`, whose first may be a system prompt, and whose `delay` is in milliseconds). `output_length` is that of
the answer, `extra` are fields of the body.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fastllmload import quantities
from fastllmload.errors import InputError
from fastllmload.workload.request import field_error

TYPES = ("single_turn", "multi_turn", "random_pool", "mooncake_trace")
OF_TURN = ("text", "texts", "text_input", "role", "output_length", "extra", "delay", "timestamp", "type")
LONGEST_FIELD = 1 << 30  # bytes of a cell; the csv module's default is too small for prompts
ROLES = ("prompt", "output_tokens", "class")  # of columns
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


def csv_entries(path: Path, raw: bytes, columns: Mapping[str, str]) -> Iterator[Entry]:
    """Rows of a table whose first line has names; *columns*: by role, the name of the column that has it."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise InputError("dataset-invalid", f"{path} is not text: byte {problem.start} is not UTF-8") from None
    csv.field_size_limit(LONGEST_FIELD)
    table = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        names = [name.strip().lower() for name in next(table, [])]
        roles = {columns.get(role, role).strip().lower(): role for role in ROLES}
        absent = next((name for name, role in roles.items() if name not in names and role in columns), None)
        if absent is not None:
            raise InputError(
                "dataset-column-unknown", f"--dataset-column names {absent!r}; {path} has {', '.join(names)}"
            )
        if "prompt" not in [roles.get(name) for name in names]:
            raise InputError(
                "dataset-invalid", f"{path} line 1: column 'prompt' is missing; it has {', '.join(names) or 'nothing'}"
            )
        repeated = next((name for name in names if name and names.count(name) > 1), None)
        if repeated is not None:
            raise InputError("option-repeated", f"{path} line 1: there are two columns {repeated!r}; keep one")
        next_line = table.line_num + 1
        for cells in table:
            where, next_line = f"{path} line {next_line}", table.line_num + 1
            if len(cells) > len(names):
                raise field_error(
                    f"{where}: {len(cells)} values, the header has {len(names)}; quote texts that contain a comma"
                )
            if cells:
                row = {roles[name]: cell for name, cell in zip(names, cells, strict=False) if name in roles}
                yield _entry(row, where), where
    except csv.Error as problem:
        raise InputError("dataset-invalid", f"{path} line {table.line_num} is not CSV: {problem}") from None


def _entry(row: Mapping[str, str], where: str) -> dict[str, Any]:
    """The entry of a table's *row* of texts."""
    length = row.get("output_tokens", "").strip()
    tokens = quantities.number(length)
    if length and (tokens is None or tokens < 0 or tokens != int(tokens)):
        raise field_error(f"{where}: its output_tokens {length[:40]!r} is not a number of tokens")
    if not row.get("prompt"):
        raise field_error(f"{where}: its prompt is empty")
    found = {"output_tokens": None if tokens is None else int(tokens), "class": row.get("class", "").strip() or None}
    return {"prompt": row["prompt"], **found}


def by_columns(entries: Iterator[Entry], columns: Mapping[str, str]) -> Iterator[Entry]:
    """*entries* with the fields that *columns* names by their role, and no others."""
    for entry, where in entries:
        absent = next((name for name in columns.values() if name not in entry), None)
        if absent is not None:
            raise InputError(
                "dataset-column-unknown", f"--dataset-column names {absent!r}; {where} has {', '.join(entry)}"
            )
        yield {role: entry[name] for role, name in columns.items()}, where


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
