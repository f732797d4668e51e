"""The forms of `fastllmload report`, each with its renderer, and the files that some are written to in a run folder."""

from __future__ import annotations

import errno
import importlib
import os
from collections.abc import Callable, Collection

from fastllmload.documents.run import RunDocument
from fastllmload.documents.write import encoded
from fastllmload.errors import InputError, RunFolderError, coded
from fastllmload.files import replace_with
from fastllmload.records.run import Run
from fastllmload.report.documents.subject import Subject
from fastllmload.report.render import markdown, text
from fastllmload.report.render.terminal import screen_lines
from fastllmload.report.terminal.summary import summary
from fastllmload.report.text.tokens import has_tokens

# Of modules of this package, which have `blocks(subject)`.
RENDERERS = {
    "markdown": markdown.render,
    "minimum": text.render,
    "full": markdown.render,
    "blog": text.render,
    "asiai": text.render,
}
TERMINAL, JSON, HTML = "terminal", "json", "html"
OF_TOKENS = ("blog", "asiai")
FORMS = (TERMINAL, *RENDERERS, HTML, JSON)


def text_of(subject: Subject, form: str) -> str:
    """*subject* in *form*, one of FORMS; TERMINAL for a run only. InputError where the subject does not have the form."""
    if form == TERMINAL:
        lines = screen_lines(summary(subject.run_document or RunDocument(), subject.shown_folder))
        return "".join(f"{line.text}\n" for line in lines)
    if form == JSON:
        return encoded(subject.json).decode()
    if form == HTML:
        return html(subject)
    document = subject.run_document
    if form in OF_TOKENS and document is not None and (document.classes_with_tokens or not has_tokens(document)):
        whose = "some classes" if document.classes_with_tokens else document.target.endpoint_type
        raise InputError(
            "protocol-unsupported",
            f"--as {form} is about tokens, and answers of {whose} are not tokens; use --as markdown or html",
        )
    return RENDERERS[form](importlib.import_module(f"{__package__}.{form}").blocks(subject))


def html(subject: Subject) -> str:
    """The HTML page of a run; procedures have their own."""
    if subject.redacted:
        raise InputError(
            "redaction-unsupported",
            "--redact is not available with --as html, whose plots show the load; use --as full, markdown or minimum",
        )
    return page_of(subject.run.with_document(subject.run_document or RunDocument()))


def page_of(run: Run) -> str:
    """The HTML text, also of a run that is incomplete: killed, without a successful request, without samples."""
    from fastllmload.report.html import page as html
    from fastllmload.report.run_page.context import ReportContext
    from fastllmload.report.run_page.page import page

    return html.render(page(ReportContext(run)))


def write_page(run: Run) -> None:
    replace_with(run.directory / "report.html", page_of(run))


def write_markdown(run: Run) -> None:
    replace_with(run.directory / "report.md", text_of(Subject(run.directory, run.document), "markdown"))


def write_intervals(run: Run) -> None:
    from fastllmload.report.documents import hlog

    hlog.write(run)


# Each writes its file into run.directory, completely or not at all; OSError when the disk is full, RunFolderError for a
# damaged file of the run.
WRITERS: dict[str, Callable[[Run], None]] = {
    "report.html": write_page,
    "report.md": write_markdown,
    "latency.hlog": write_intervals,
}


def write_reports(run: Run, names: Collection[str] = tuple(WRITERS)) -> list[str]:
    """Write the report files *names* of a measured run.

    Returns a sentence for each file that could not be written; run.json already holds the measurement.
    """
    problems = []
    for what in names:
        try:
            WRITERS[what](run)
        except OSError as problem:
            way = "move it away" if problem.errno == errno.EINVAL else "make room"
            unwritten = f"{what} could not be written: {problem.strerror}; {way} and run `fastllmload report`"
            problems.append(coded("report-not-written", unwritten))
        except RunFolderError as problem:
            problems.append(f"{what} could not be written: {problem}")
    return problems


def write_again(load: Callable[[], Run]) -> list[str]:
    """Write them again for an existing folder, whose rows *load* reads: rows may be damaged, the folder may be read-only."""
    try:
        run = load()
    except RunFolderError as problem:
        return [f"{' and '.join(WRITERS)} could not be written: {problem}"]
    if not os.access(run.directory, os.W_OK):
        unwritten = f"{' and '.join(WRITERS)} were not written: {run.directory} is not writable"
        return [coded("report-not-written", unwritten)]
    if run.damaged:
        return write_missing(run)
    return write_reports(run)


def write_missing(run: Run) -> list[str]:
    """Write only the missing reports of a damaged folder: existing ones were written before the damage and are kept."""
    missing = [what for what in WRITERS if not (run.directory / what).is_file()]
    kept = [what for what in WRITERS if what not in missing]
    unchanged = [coded("report-kept", f"{' and '.join(kept)} were kept as written before")] if kept else []
    damage = [coded("run-file-damaged", f"{problem}; the report shows the rest of the run") for problem in run.damage]
    return [*damage, *unchanged, *write_reports(run, missing)]
