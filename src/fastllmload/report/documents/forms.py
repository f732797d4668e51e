"""The forms in which `fastllmload report` shows a run or a procedure: name -> text of the whole report."""

from __future__ import annotations

import importlib

import msgspec

from fastllmload.errors import InputError
from fastllmload.report.documents.subject import Subject

DOCUMENTS = ("markdown", "minimum", "full", "blog", "asiai")  # modules of this package
TERMINAL, JSON, HTML = "terminal", "json", "html"
FORMS = (TERMINAL, *DOCUMENTS, HTML, JSON)


def text_of(subject: Subject, form: str) -> str:
    """*form* of *subject*, one of FORMS but the terminal's. InputError when the subject has no such form."""
    if form == JSON:
        return msgspec.json.format(msgspec.json.encode(subject.document), indent=2).decode() + "\n"
    if form == HTML:
        return html(subject)
    found: str = importlib.import_module(f"{__package__}.{form}").render(subject)
    return found


def html(subject: Subject) -> str:
    """The page of a run; a procedure's is its own affair."""
    if subject.redacted:
        raise InputError("--redact leaves out what the plots of --as html show; use --as full, markdown or minimum")
    from fastllmload.report.html import render

    return render(subject.run, subject.document)
