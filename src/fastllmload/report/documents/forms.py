"""Renders a run or a procedure in one of the forms of `fastllmload report`."""

from __future__ import annotations

import importlib

import msgspec

from fastllmload.errors import InputError
from fastllmload.report.documents.subject import Subject

DOCUMENTS = ("markdown", "minimum", "full", "blog", "asiai")  # modules of this package
TERMINAL, JSON, HTML = "terminal", "json", "html"
FORMS = (TERMINAL, *DOCUMENTS, HTML, JSON)


def text_of(subject: Subject, form: str) -> str:
    """*subject* in *form*, one of FORMS except TERMINAL. InputError where the subject does not have the form."""
    if form == JSON:
        return msgspec.json.format(msgspec.json.encode(subject.raw), indent=2).decode() + "\n"
    if form == HTML:
        return html(subject)
    found: str = importlib.import_module(f"{__package__}.{form}").render(subject)
    return found


def html(subject: Subject) -> str:
    """The HTML page of a run; procedures have their own."""
    if subject.redacted:
        raise InputError(
            "redaction-unsupported",
            "--redact is not available with --as html, whose plots show the load; use --as full, markdown or minimum",
        )
    from fastllmload.report.html import render

    return render(subject.run, subject.raw)
