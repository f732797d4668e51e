"""A procedure's document as it may be published: a test of capacity keeps what was done and how; any other test loses
its loads, its counts, and the tables and sentences that tell of capacity.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fastllmload.report.redaction.load import COUNTS, coarse, withhold_counts, withhold_whole_numbers, without_loads
from fastllmload.report.redaction.texts import command_without_loads, texts_without_figures
from fastllmload.report.text.numbers import WITHHELD

CAPACITY_TESTS = ("throughput", "tradeoff", "capacity", "memory-pressure")
CAPACITY_WORDS = re.compile(
    r"capacity|knee|saturat|peak|optimal|optimum|maximum|sustainable|oversub|preempt|out of memory|in flight|bracket"
    r"|mixed load|throughput(?!.*percent)",
    re.IGNORECASE,
)
# What a test was asked for and that tells nothing of the answer; shares of a capacity do not without the capacity
HARMLESS = re.compile(r"duration_s|slo_\w+|output_tokens|lengths|levels|share_of_capacity|isolated")
TEXTS = frozenset(("loop", "baseline", "configurations", "throughput", "oom_pattern"))
COUNT_HEAD = re.compile(r"n|count|requests|samples|refused|runs|submitted|ok|failed", re.IGNORECASE)
SHARE = re.compile(r"starv|share|success|hit.rate|attainment", re.IGNORECASE)
COUNT_ROW = re.compile(r"\b(?:requests|samples|gaps)\b", re.IGNORECASE)


def of_procedure(found: dict[str, Any]) -> dict[str, Any]:
    """A copy of a procedure.json."""
    limits = found.get("procedure") in CAPACITY_TESTS
    told = texts_without_figures({
        **found,
        "tables": [] if limits else [_table(each) for each in found.get("tables") or () if not _tells(each)],
        "sentences": [] if limits else _untelling(found.get("sentences")),
        "findings": _findings(found.get("findings") or {}, limits),
        "warnings": _untelling(found.get("warnings")),
        "parameters": _parameters(found.get("parameters")),
        "plots": [],
        "levels": [],
    })  # fmt: skip
    for name in ("warmup", "warmups", "steps"):
        withhold_counts(told.get(name))
    if "server_log" in told:
        told["server_log"] = {}
    if found.get("command"):
        told["command"] = _command(found["command"], limits)
    if limits and told.get("compliance"):
        told["compliance"] = _without_reasons(told["compliance"])
    return dict(told)


def _untelling(texts: Any) -> list[str]:
    return [text for text in texts or () if not CAPACITY_WORDS.search(text)]


def _command(command: Any, limits: bool) -> Any:
    """Of a test of capacity nothing: what it was given is where the answer lies."""
    told = limits or any(str(word).startswith("--capacity") for word in command)
    return WITHHELD if told else command_without_loads(command)


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
    withhold_whole_numbers(kept)
    return kept


def _coarse(value: Any, name: str) -> Any:
    if not SHARE.search(name):
        return value
    return {key: coarse(each) for key, each in value.items()} if isinstance(value, Mapping) else coarse(value)


def _level_list(value: Any) -> Any:
    """Findings of each level, without their loads."""
    return [without_loads(each) for each in value] if isinstance(value, list) else value


def _parameters(found: Any) -> Any:
    """What a user wrote of where a capacity is from goes as well: it is mostly a sum that gives it."""
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
    """Without counts: whole numbers beside the first column, columns of counts, rows of counts."""
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
    """Whether the columns say what is in them: then a row named after requests holds their latencies."""
    return any("(ms)" in str(column) for column in (table.get("columns") or ())[1:])


def _number(cell: object) -> bool:
    return isinstance(cell, (int, float)) and not isinstance(cell, bool)


def _tells(table: Mapping[str, Any]) -> bool:
    words = f"{table.get('id')} {table.get('title')}"
    return bool(CAPACITY_WORDS.search(words)) or str(table.get("id")).endswith("levels")


def _without_reasons(compliance: Any) -> Any:
    """What has no key word is about loads, orders and counts of levels: of a test of capacity their numbers go."""
    if not isinstance(compliance, dict) or not compliance.get("beside"):
        return compliance
    kept = [
        {**entry, "reason": WITHHELD if any(map(str.isdigit, str(entry.get("reason")))) else entry.get("reason")}
        for entry in compliance["beside"]
    ]
    return {**compliance, "beside": kept}
