"""Redacts procedure.json for publication, by what its types, its tables and its sentences declare to reveal.

A capacity test keeps only its description. Any other test keeps its latencies: it loses its loads and counts, the tables
and sentences that are not declared to reveal nothing, its levels and its plots.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from fastllmload.documents.experiment import FindingValues
from fastllmload.documents.fields import Reveals
from fastllmload.documents.procedure import FINDINGS, ProcedureDocument
from fastllmload.documents.redaction import HIDDEN, OF_LOAD, WITH_LOAD, Redaction, coarse, command_without_values

CAPACITY_TESTS = ("throughput", "tradeoff", "capacity", "memory-pressure")
OF_LIMITS = f"results and levels, which are the capacity; {OF_LOAD}"
OTHERS = "remarks that may quote a load are withheld (IETF 7.1)"
SHOWN = frozenset((Reveals.NOTHING, Reveals.SHARE))


def redacted_procedure(document: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a procedure.json that may be published; its entry `withheld` lists what is missing."""
    name = str(document.get("procedure"))
    limits = name in CAPACITY_TESTS
    urls = (document.get("manifest") or {}).get("urls") or ()
    redaction = Redaction(WITH_LOAD, {str(url): f"target-{number}" for number, url in enumerate(urls)})
    found: dict[str, Any] = redaction.table(document, ProcedureDocument)
    public = frozenset(map(str, document.get("public") or ()))
    findings = document.get("findings") or {}
    found |= {
        "findings": dict.fromkeys(findings, HIDDEN)
        if limits
        else redaction.table(findings, FINDINGS.get(name, FindingValues)),
        "tables": [] if limits else list(public_tables(document.get("tables") or (), public)),
        "sentences": [] if limits else [text for text in document.get("sentences") or () if text in public],
        "plots": [],
        "levels": [],
        "withheld": OF_LIMITS if limits else OF_LOAD,
    }
    for kind in ("deviations", "warnings"):
        found[kind] = remarks(document.get(kind) or (), public)
    if found.get("compliance"):
        found["compliance"]["deviations"] = remarks((document["compliance"].get("deviations") or ()), public)
    found["public"] = [text for kind in ("sentences", "deviations", "warnings") for text in found[kind]]
    if document.get("command"):
        found["command"] = command(document["command"], limits)
    return found


def remarks(texts: Iterable[str], public: Collection[str]) -> list[str]:
    """Those of *texts* that reveal nothing, and that there are others."""
    kept = [text for text in texts if text in public]
    return kept + [OTHERS] * any(text not in public for text in texts)


def command(words: Any, limits: bool) -> Any:
    """Withheld completely for a capacity test, as its options bracket the result."""
    if limits or isinstance(words, str) or any(str(word).startswith("--capacity") for word in words):
        return HIDDEN
    return command_without_values(words, with_load=False)


def public_tables(tables: Iterable[Mapping[str, Any]], public: Collection[str]) -> Iterable[dict[str, Any]]:
    """Those of *tables* that are declared to reveal nothing as a whole, without the cells that do. A table of an earlier
    version declares nothing.
    """
    for table in tables:
        if table.get("reveals") != Reveals.NOTHING.value:
            continue
        of_columns, of_rows = table.get("column_reveals") or (), table.get("row_reveals") or ()
        rows = [  # the first column names the rows
            [cell if k == 0 else public_cell(cell, {*of_columns[k : k + 1], *of_rows[r : r + 1]})
             for k, cell in enumerate(row)]
            for r, row in enumerate(table.get("rows") or ())
        ]  # fmt: skip
        yield {
            **table,
            "columns": table.get("public_columns") or table.get("columns") or [],
            "rows": rows,
            "notes": [note for note in table.get("notes") or () if note in public],
        }


def public_cell(cell: Any, kinds: Collection[str]) -> Any:
    """A cell of a column and a row that reveal *kinds*; 0 and missing cells reveal nothing."""
    if not {Reveals(kind) for kind in kinds} <= SHOWN:
        return cell if cell is None or cell == 0 else HIDDEN
    return coarse(cell) if Reveals.SHARE.value in kinds else cell
