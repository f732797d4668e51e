"""Adds to the document of an unfinished procedure what its end would have written: remarks, levels, how to continue."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import TypeVar

from msgspec.structs import replace

from fastllmload.documents.experiment import Cell, ExperimentDocument, FindingTable
from fastllmload.documents.fields import Number, Withheld
from fastllmload.errors import coded
from fastllmload.experiment.journal import DONE, RUNNING
from fastllmload.experiment.level.result import level_warnings

QUICK = "--quick: durations and request counts are below those of the methodology"
SIMULATED = "the target was fastllmload's own simulated engine"
LEVELS = "levels-finished"  # id of the table
E = TypeVar("E", bound=ExperimentDocument)


def with_final_remarks(document: E) -> E:
    """*document* with how to continue; if killed, also with the deviations and warnings that its end would have added."""
    if document.status == DONE:
        return document
    document = replace(document, sentences=unique(document.sentences, [how_to_continue(document)]))
    if document.status != RUNNING:
        return document
    added = [text for text, holds in ((QUICK, document.quick), (SIMULATED, document.manifest.simulated)) if holds]
    return replace(
        document,
        deviations=unique(document.deviations, added),
        warnings=unique(document.warnings, [coded(code, text) for code, text in level_warnings(document.levels)]),
        public=unique(document.public, added),
    )


def unique(known: Iterable[str], more: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*known, *more]))


def with_levels(document: E) -> E:
    """*document*, if unfinished, with a table of its finished levels after the others."""
    known = any(table.id == LEVELS for table in document.tables)
    if document.status == DONE or not document.levels or known:
        return document
    table = replace(level_table(document), id=LEVELS, title="Levels that were finished")
    return replace(document, tables=(*document.tables, table))


def how_to_continue(document: ExperimentDocument) -> str:
    """That the same command continues the procedure, and the command unless it was redacted."""
    many = len(document.levels)
    done = f"{many} level{'s are' if many != 1 else ' is'} finished and will not be measured again; " if many else ""
    command = document.command if isinstance(document.command, tuple) else ()
    unnamed = command and not any(word.startswith(("-o", "--output", "--runs")) for word in command)
    where = "this folder as --output" if unnamed else "the same --output"
    text = f": {shlex.join(command)}" if command else ""
    return f"not finished: {done}the same command with {where} continues it{text}"


def level_table(document: ExperimentDocument) -> FindingTable:
    """All levels that were measured, in order."""
    columns = ("Level", "Name", "Load", "Output (tok/s)", "Requests (r/s)", "TTFT P99 (ms)", "Client", "Folder")
    rows = tuple(
        (level.number, level.name, level.load, cell(level.output_tok_s), cell(level.req_s), cell(level.ttft_p99_ms),
         level.certificate, level.folder)
        for level in document.levels
    )  # fmt: skip
    return FindingTable(columns=columns, rows=rows)


def cell(value: Number) -> Cell:
    return value.value if isinstance(value, Withheld) else value
