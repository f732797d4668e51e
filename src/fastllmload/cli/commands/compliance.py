"""`compliance`: checks a finished run or procedure against the requirements of the IETF draft."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fastllmload.cli.group import current_redactor
from fastllmload.errors import InputError
from fastllmload.report.terminal.outlet import on_screen

if TYPE_CHECKING:
    from fastllmload.compliance.evidence import ComplianceEvidence

NOT_COMPLIANT = 1
WIDEST = 120


@click.command("compliance")
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path))
@click.option(
    "--against",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Another system's run or procedure; adds what the draft asks of comparisons. Repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Prints one JSON document.")
@click.option("--all", "everything", is_flag=True, help="Lists every requirement, not only those that are not met.")
def compliance(folder: Path, against: tuple[Path, ...], as_json: bool, everything: bool) -> int:
    """Judge the run or procedure in FOLDER by the requirements of the IETF draft on benchmarking LLM serving.

    A requirement is met if the recorded rows and figures show it, or if it is declared; a declaration is not checked.
    Exit code 1 when the run is not compliant.
    """
    from dataclasses import replace

    import msgspec

    from fastllmload.compliance.evidence import read
    from fastllmload.compliance.report import blocks
    from fastllmload.compliance.verdict import NOT, document, document_with_all, judge
    from fastllmload.documents.write import plain
    from fastllmload.records.folder_lock import describe_leftover_files
    from fastllmload.report.render.text import lines

    evidence = replace(read(folder), others=tuple(read(other) for other in against))
    validate_same_test(evidence)
    judgement = judge(evidence)
    redact = current_redactor()
    if as_json:
        found = document_with_all(judgement) if everything else plain(document(judgement))
        text = msgspec.json.format(msgspec.json.encode(found)).decode()
    else:
        width = min(WIDEST, shutil.get_terminal_size((100, 24)).columns)
        text = "\n".join(lines(blocks(judgement, everything), width))
    click.echo(on_screen(redact(text)))
    for one in (folder, *against):
        if (left := describe_leftover_files(one)) is not None:
            click.echo(on_screen(redact(f"note       {left}")), err=True)
    return NOT_COMPLIANT if judgement.verdict == NOT else 0


def validate_same_test(evidence: ComplianceEvidence) -> None:
    """InputError where a folder is given twice, or holds a different test than the first."""
    seen = {evidence.folder.resolve()}
    for other in evidence.others:
        if other.folder.resolve() in seen:
            raise InputError("run-repeated", f"{other.folder} is given twice; compare different runs or procedures")
        seen.add(other.folder.resolve())
        if other.test != evidence.test:
            kinds = [f"the test {one.test}" if one.test else "a run outside of a test" for one in (evidence, other)]
            raise InputError(
                "tests-differ",
                f"{evidence.folder} is {kinds[0]} and {other.folder} is {kinds[1]}: only the same test can be compared",
            )
