"""The report of a procedure, from procedure.json: terminal text, and the page of procedure.md and procedure.html."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from fastllmload.documents.fields import known
from fastllmload.documents.procedure import ProcedureDocument
from fastllmload.documents.redaction import HIDDEN
from fastllmload.documents.run_parts.compliance import Compliance
from fastllmload.experiment.console import Console
from fastllmload.experiment.incomplete import level_table, with_final_remarks, with_levels
from fastllmload.experiment.report.parts import (
    chart_of,
    facts,
    remarks,
    table_of,
    terminal_lines,
    with_state,
    write_files,
)
from fastllmload.report.blocks import Block, Items, Page, Paragraph, Section, Table, Text, Verdict
from fastllmload.report.documents.titled_page import titled_page
from fastllmload.report.text.numbers import redaction_notice

NAME = "procedure"
LISTED = 6  # ids in a line; all of them are in procedure.json and in `fastllmload compliance`
TONES = {"unconditionally compliant": "valid", "conditionally compliant": "suspect", "not compliant": "invalid"}


def show(document: ProcedureDocument, folder: Path, console: Console) -> None:
    """Print the tables and sentences."""
    for line in lines(document):
        console.say(line)
    console.say(f"files      {folder}/{NAME}.json, {NAME}.md, {NAME}.html, levels/")


def write(folder: Path, document: ProcedureDocument) -> None:
    """Write procedure.md and procedure.html."""
    write_files(folder, NAME, page(document))


def lines(document: ProcedureDocument) -> Iterator[str]:
    """Terminal lines. For an unfinished procedure also its finished levels, and how to continue."""
    document = with_levels(with_final_remarks(document))
    redacted = redaction_notice(document.withheld)
    blocks: list[Block] = [*map(table_of, document.tables), *map(Paragraph, document.sentences)]
    word, *tallies = compliance_texts(document.compliance)
    last = [("", redacted)] if redacted is not None else []
    more = [*last, ("compliance", word), *(("", text) for text in tallies)]
    yield from terminal_lines(headline(document), blocks, document, *more)


def headline(document: ProcedureDocument) -> str:
    return with_state(f"IETF {document.section} {document.title}", document)


def compliance_texts(compliance: Compliance | None) -> Iterator[str]:
    """The verdict, how many requirements hold, and what to do."""
    if compliance is None:
        yield "not evaluated"
        yield "to evaluate what was measured: fastllmload compliance FOLDER"
        return
    yield str(compliance.verdict)
    for tally, kind in ((compliance.must, "MUST, REQUIRED"), (compliance.should, "SHOULD, RECOMMENDED")):
        open_ = [*tally.false, *tally.undeclared, *tally.unchecked]
        more = f" and {len(open_) - LISTED} more" if len(open_) > LISTED else ""
        listed = f"; not: {', '.join(open_[:LISTED])}{more}" if open_ else ""
        yield f"{known(tally.hold) or 0:g} of {known(tally.of) or 0:g} {kind} hold{listed}"
    yield "what to do about each: fastllmload compliance FOLDER"


def page(document: ProcedureDocument) -> Page:
    document = with_final_remarks(document)
    redacted, manifest = redaction_notice(document.withheld), document.manifest
    results: list[Block] = [] if redacted is None else [Paragraph(f"{redacted[0].upper()}{redacted[1:]}.")]
    if document.sentences:
        results.append(Items(document.sentences))
    sections = [Section("Results", [*results, *map(table_of, document.tables)])]
    if document.plots:
        sections.append(Section("Plots", list(map(chart_of, document.plots))))
    sections += remarks(document)
    if redacted is None:
        levels = replace(level_table(document), title="Levels in the order measured")
        sections.append(Section("Levels", [table_of(levels)]))
    if manifest.declarations:
        declared = list(manifest.declarations.items())
        sections.append(Section("Declarations", [Table("", ["Name", "Declared"], declared)]))
    more: dict[str, Text] = {
        "Workload": str(manifest.workload),
        "Levels": str(len(document.levels)) if redacted is None else HIDDEN,
    }
    word, *tallies = compliance_texts(document.compliance)
    verdict = Verdict(word, "; ".join(tallies), tone=TONES.get(word, ""), of="compliance")
    what_was_run = {**facts(document), **more}
    return titled_page(headline(document), sections, what_was_run, verdict=verdict, simulated=manifest.simulated)
