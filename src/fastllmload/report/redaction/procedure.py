"""Redacts the document of a procedure: a capacity test keeps only its description; any other test loses its loads, its
counts, and the tables and sentences on capacity.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fastllmload.report.redaction.load import COUNTS, coarse, withhold_counts, withhold_integers, without_loads
from fastllmload.report.redaction.texts import WITHHELD, command_without_loads, texts_without_figures

CAPACITY_TESTS = ("throughput", "tradeoff", "capacity", "memory-pressure")
CAPACITY_WORDS = re.compile(
    r"capacity|knee|saturat|peak|optimal|optimum|maximum|sustainable|oversub|preempt|out of memory|in flight|bracket"
    r"|mixed load|throughput(?!.*percent)",
    re.IGNORECASE,
)
# Parameters that do not reveal the result; shares of a capacity do not without the capacity
HARMLESS = re.compile(r"duration_s|slo_\w+|output_tokens|lengths|levels|share_of_capacity|isolated")
TEXTS = frozenset(("loop", "baseline", "configurations", "throughput", "oom_pattern"))
COUNT_HEAD = re.compile(r"n|count|requests|samples|refused|runs|submitted|ok|failed", re.IGNORECASE)
SHARE = re.compile(r"starv|share|success|hit.rate|attainment", re.IGNORECASE)
COUNT_ROW = re.compile(r"\b(?:requests|samples|gaps)\b", re.IGNORECASE)


def of_procedure(found: dict[str, Any]) -> dict[str, Any]:
    """A copy of a procedure.json."""
    limits = found.get("procedure") in CAPACITY_TESTS
    redacted = texts_without_figures({
        **found,
        "tables": [] if limits else [_table(each) for each in found.get("tables") or () if not _reveals_capacity(each)],
        "sentences": [] if limits else _without_capacity(found.get("sentences")),
        "findings": _findings(found.get("findings") or {}, limits),
        "warnings": _without_capacity(found.get("warnings")),
        "parameters": _parameters(found.get("parameters")),
        "plots": [],
        "levels": [],
    })  # fmt: skip
    for name in ("warmup", "warmups", "steps"):
        withhold_counts(redacted.get(name))
    if "server_log" in redacted:
        redacted["server_log"] = {}
    if found.get("command"):
        redacted["command"] = _command(found["command"], limits)
    if limits and redacted.get("compliance"):
        redacted["compliance"] = _without_reasons(redacted["compliance"])
    return dict(redacted)


def _without_capacity(texts: Any) -> list[str]:
    return [text for text in texts or () if not CAPACITY_WORDS.search(text)]


def _command(command: Any, limits: bool) -> Any:
    """Withheld completely for a capacity test, as its options bracket the result."""
    revealing = limits or any(str(word).startswith("--capacity") for word in command)
    return WITHHELD if revealing else command_without_loads(command)


def _findings(found: Mapping[str, Any], limits: bool) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, value in found.items():
        if limits or CAPACITY_WORDS.search(name):
            kept[name] = WITHHELD
        elif name in COUNTS and isinstance(value, Mapping):
            kept[name] = dict.fromkeys(value, WITHHELD)
        else:
            kept[name] = value if name == "lengths" else _coarse(_level_list(without_loads(value, name)), name)
    withhold_counts(kept)
    withhold_integers(kept)
    return kept


def _coarse(value: Any, name: str) -> Any:
    if not SHARE.search(name):
        return value
    return {key: coarse(each) for key, each in value.items()} if isinstance(value, Mapping) else coarse(value)


def _level_list(value: Any) -> Any:
    """Findings of each level, without their loads."""
    return [without_loads(each) for each in value] if isinstance(value, list) else value


def _parameters(found: Any) -> Any:
    """Also without the user's text on the source of a capacity, which usually reveals it."""
    if not isinstance(found, Mapping):
        return found
    test = found.get("test")
    if not isinstance(test, Mapping):
        return without_loads(found)
    return {
        **without_loads({**found, "test": None}),
        "test": {name: _asked(name, value) for name, value in test.items()},
    }


def _asked(name: str, value: Any) -> Any:
    harmless = HARMLESS.fullmatch(name) or name in TEXTS
    return value if harmless or value is None or isinstance(value, bool) else WITHHELD


def _table(table: Mapping[str, Any]) -> dict[str, Any]:
    """Without counts: integers after the first column, columns of counts, rows of counts."""
    heads = [bool(COUNT_HEAD.fullmatch(str(column))) for column in table.get("columns") or ()]
    rows = []
    for row in table.get("rows") or ():
        counted = bool(row) and bool(COUNT_ROW.search(str(row[0]))) and len(heads) > 1 and not _latencies(table)
        rows.append([
            WITHHELD if k and _number(cell) and cell and (isinstance(cell, int) or counted or heads[k]) else cell
            for k, cell in enumerate([coarse(cell) for cell in row] if row and SHARE.search(str(row[0])) else row)
        ])  # fmt: skip
    return {**table, "rows": rows}


def _latencies(table: Mapping[str, Any]) -> bool:
    """Whether columns are latencies, also in a row named after requests."""
    return any("(ms)" in str(column) for column in (table.get("columns") or ())[1:])


def _number(cell: object) -> bool:
    return isinstance(cell, (int, float)) and not isinstance(cell, bool)


def _reveals_capacity(table: Mapping[str, Any]) -> bool:
    words = f"{table.get('id')} {table.get('title')}"
    return bool(CAPACITY_WORDS.search(words)) or str(table.get("id")).endswith("levels")


def _without_reasons(compliance: Any) -> Any:
    """Without reasons that contain numbers, of requirements without a key word: they are loads and counts of levels."""
    key = "beside"  # prose: allow, a key of the document
    if not isinstance(compliance, dict) or not compliance.get(key):
        return compliance
    kept = [
        {**entry, "reason": WITHHELD if any(map(str.isdigit, str(entry.get("reason")))) else entry.get("reason")}
        for entry in compliance[key]
    ]
    return {**compliance, key: kept}
