"""`report`: reports again on a run or a procedure, in any of the report forms."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fastllmload.cli.group import current_redactor
from fastllmload.cli.streams import naming_output
from fastllmload.errors import RunFolderError, coded
from fastllmload.files import write_named
from fastllmload.redact import Redactor
from fastllmload.report.terminal.outlet import on_screen

if TYPE_CHECKING:
    from fastllmload.documents.procedure import ProcedureDocument
    from fastllmload.report.documents.subject import Subject

OF_ROWS = ("html", "blog", "asiai")
FORMS = ("terminal", "markdown", "minimum", "full", "blog", "asiai", "html", "json")


@click.command("report")
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option(
    "--as",
    "form",
    type=click.Choice(FORMS),
    default="terminal",
    show_default=True,
    help='minimum, full: reports of the IETF draft (C.1, C.2); blog: the table of "LLM Inference '
    "Performance Benchmarking from Scratch\"; asiai: that of asiai's benchmark.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File to write; standard output when absent.")
@click.option(
    "--redact",
    is_flag=True,
    help="For publication (IETF 7.1): without capacity limits, knees, memory thresholds, host names, URLs and paths; of a "
    "closed loop, a test or a search also without loads, rates and counts. Kept: latencies, model, hardware, names of "
    "classes, --declare, --price-per-hour.",
)
@click.option(
    "--exclude-host",
    "excluded",
    metavar="NAME",
    multiple=True,
    help="Measures and judges a run over many hosts again without this host, by name or number; repeatable. The folder "
    "keeps its figures.",
)
def report(folder: Path, form: str, output: Path | None, redact: bool, excluded: tuple[str, ...]) -> int:
    """Report again on the run, procedure, search or sweep in folder RUN, also if it did not finish."""
    from fastllmload.procedure.reshow import saved_report
    from fastllmload.records.folder_lock import clean_up_killed
    from fastllmload.report.documents.subject import subject_of, subject_without

    secrets = current_redactor()
    found = None if excluded else saved_report(folder, form, redact)
    if found is not None:
        write(readable(secrets(found), form), output)
        return 0
    tidied = clean_up_killed(folder)
    subject = subject_without(folder, excluded, redact) if excluded else subject_of(folder, redact)
    if form == "terminal" and output is None:
        show(subject, secrets)
        refresh(subject, secrets)
    else:
        write(readable(secrets(text_of(subject, form)), form), output)
        warn(subject, form, secrets)
    if not subject.is_procedure:
        warn_of_unlisted(subject.folder, secrets)
    if tidied is not None:
        click.echo(on_screen(f"note       {tidied}"), err=form != "terminal")
    return 0


def readable(text: str, form: str) -> str:
    """*text* of a report without terminal control characters. HTML has escaped them already; JSON gets \\u escapes."""
    from fastllmload.documents.write import printable_json

    if form == "html":
        return text
    return printable_json(text) if form == "json" else on_screen(text)


def warn_of_unlisted(folder: Path, secrets: Redactor) -> None:
    """Warn on standard error where the run's document does not list the files of its folder."""
    from fastllmload.records.integrity import missing_checksums
    from fastllmload.records.run import read_document

    text = missing_checksums(read_document(folder))
    if text is not None:
        click.echo(on_screen(secrets(f"note       {text}")), err=True)


def refresh(subject: Subject, secrets: Redactor) -> None:
    """Write the report files of a run's folder again; for a killed run, for the first time."""
    document = subject.run_document
    if document is None or subject.is_procedure or subject.redacted or subject.excluded:
        return
    from fastllmload.report.documents.forms import write_again

    problems = write_again(lambda: subject.run.with_document(document))
    for problem in problems:
        click.echo(on_screen(secrets(f"note       {problem}")), err=True)


def warn(subject: Subject, form: str, secrets: Redactor) -> None:
    """Warn of damaged files of the run. Forms that need only run.json check sizes, not contents."""
    if subject.is_procedure:
        warn_of_levels(subject, secrets)
        return
    from fastllmload.records.integrity import find_damage
    from fastllmload.records.run import read_document

    of_rows = form in OF_ROWS
    stored = read_document(subject.folder)
    damage = subject.run.damage if of_rows else find_damage(subject.folder, stored, False).values()
    for problem in damage:
        click.echo(on_screen(secrets(f"note       {coded('run-file-damaged', problem)}")), err=True)


def warn_of_levels(subject: Subject, secrets: Redactor) -> None:
    """Warn of levels that differ from the procedure's tables; redacted, of their number only: names reveal loads."""
    from fastllmload.report.documents.subject import read_procedure

    found = list(problems_of_levels(subject.folder, read_procedure(subject.folder)[1]))
    if subject.redacted and found:
        found = [f"{len(found)} levels are not as procedure.json has them; without --redact the report names them"]
    for text in found:
        click.echo(on_screen(secrets(f"note       {coded('levels-differ', text)}")), err=True)


def problems_of_levels(folder: Path, document: ProcedureDocument) -> Iterator[str]:
    from fastllmload.compliance.evidence import unlisted
    from fastllmload.records.integrity import find_damage
    from fastllmload.records.run import read_document

    yield from unlisted(folder, document)
    for level in document.levels:
        if level.folder is None:
            continue
        place = folder / level.folder
        try:
            yield from find_damage(place, read_document(place), False).values()
        except RunFolderError as problem:
            yield f"the level {level.folder} cannot be read: {problem.message}"


def show(subject: Subject, secrets: Redactor) -> None:
    """Print the summary, with the width and the colors that the terminal has."""
    from fastllmload.report.render.terminal import print_screen
    from fastllmload.report.terminal.outlet import Outlet
    from fastllmload.report.terminal.summary import summary

    if subject.run_document is None or subject.is_procedure:
        write(on_screen(secrets(text_of(subject, "terminal"))), None)
        warn_of_levels(subject, secrets)
        return
    print_screen(Outlet(sys.stdout, secrets), summary(subject.run_document, subject.shown_folder))


def text_of(subject: Subject, form: str) -> str:
    from fastllmload.report.documents import forms

    if subject.is_procedure and form != "json":
        return of_procedure(subject, form)
    return forms.text_of(subject, form)


def of_procedure(subject: Subject, form: str) -> str:
    """In the procedure's own views; in other forms with what the document of one that did not finish lacks."""
    from dataclasses import replace

    from fastllmload.experiment.incomplete import with_final_remarks, with_levels
    from fastllmload.experiment.report.procedure import lines, page
    from fastllmload.report.documents import forms
    from fastllmload.report.html import page as html

    document = named(subject)
    if form == "html":
        return html.render(page(document))
    if form == "terminal":
        return "\n".join(lines(document)) + "\n"
    return forms.text_of(replace(subject, document=with_levels(with_final_remarks(document))), form)


def named(subject: Subject) -> ProcedureDocument:
    """The document of a procedure, with section and title, which a procedure that ended early may not have written."""
    from msgspec.structs import replace

    from fastllmload.procedure.tests import NAMES, test_named

    assert subject.procedure is not None
    document, name = subject.procedure, subject.procedure.procedure
    section, title = (test_named(name).section, test_named(name).title) if name in NAMES else ("5", name)
    return replace(document, section=document.section or section, title=document.title or title)


def write(text: str, output: Path | None) -> None:
    if output is None:
        click.echo(text, nl=False)
        return
    with naming_output(f"--output {output}"):
        write_named(output, text)
