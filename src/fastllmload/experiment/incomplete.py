"""Adds to the document of an unfinished procedure what its end would have written: remarks, levels, how to continue."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from fastllmload.errors import coded
from fastllmload.experiment.journal import DONE, RUNNING
from fastllmload.experiment.level.result import level_warnings

QUICK = "--quick: durations and request counts are below those of the methodology"
SIMULATED = "the target was fastllmload's own simulated engine"
LEVELS = "levels-finished"  # id of the table
Document = Mapping[str, Any]


def with_final_remarks(document: Document) -> dict[str, Any]:
    """*document* with how to continue; if killed, also with the deviations and warnings that its end would have added."""
    found = dict(document)
    if found.get("status") == DONE:
        return found
    levels = found.get("levels") or ()
    found["sentences"] = [*dict.fromkeys([*(found.get("sentences") or ()), how_to_continue(found)])]
    if found.get("status") != RUNNING:
        return found
    quick, simulated = bool(found.get("quick")), bool((found.get("manifest") or {}).get("simulated"))
    added = [text for text, holds in ((QUICK, quick), (SIMULATED, simulated)) if holds]
    found["deviations"] = [*dict.fromkeys([*(found.get("deviations") or ()), *added])]
    warnings = [coded(code, text) for code, text in level_warnings(levels)]
    found["warnings"] = [*dict.fromkeys([*(found.get("warnings") or ()), *warnings])]
    return found


def with_levels(document: Document) -> dict[str, Any]:
    """*document*, if unfinished, with a table of its finished levels after the others."""
    found = dict(document)
    tables, levels = list(found.get("tables") or ()), found.get("levels") or ()
    if found.get("status") != DONE and levels and all(table.get("id") != LEVELS for table in tables):
        found["tables"] = [*tables, {"id": LEVELS, "title": "Levels that were finished", **level_table(found)}]
    return found


def how_to_continue(document: Document) -> str:
    """That the same command continues the procedure, and the command unless it was redacted."""
    many = len(document.get("levels") or ())
    done = f"{many} level{'s are' if many != 1 else ' is'} finished and will not be measured again; " if many else ""
    found = document.get("command")
    command = [str(word) for word in found] if isinstance(found, list) else []
    unnamed = command and not any(word.startswith(("-o", "--output", "--runs")) for word in command)
    where = "this folder as --output" if unnamed else "the same --output"
    text = f": {shlex.join(command)}" if command else ""
    return f"not finished: {done}the same command with {where} continues it{text}"


def level_table(document: Document) -> dict[str, Any]:
    """All levels that were measured, in order."""
    columns = ["Level", "Name", "Load", "Output (tok/s)", "Requests (r/s)", "TTFT P99 (ms)", "Client", "Folder"]
    names = ("number", "name", "load", "output_tok_s", "req_s", "ttft_p99_ms", "certificate", "folder")
    rows = [[level.get(name) for name in names] for level in document["levels"]]
    return {"columns": columns, "rows": rows, "notes": []}
