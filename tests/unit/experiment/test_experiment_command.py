"""The command line in what a procedure, a search, a sweep and repeated tests leave: pasted, it does what was done."""

from __future__ import annotations

import html
import re
import shlex

from typed_documents import typed_procedure

from fastllmload.experiment.report.procedure import page
from fastllmload.report.documents.identity import command_line
from fastllmload.report.html.page import render
from fastllmload.report.render.markdown import code_span, render_page

WORDS = ["fastllmload", "procedure", "itl", "--hook", "cache-off=echo starting; echo key=*_x | tr a b ; exit 1",
         "--capacity-source", "8 slots, 200 ms each", "--model", "it's <m>", ""]  # fmt: skip
DOCUMENT = typed_procedure({
    "command": WORDS, "started_utc": "2026-01-01T00:00:00Z", "status": "done", "section": "5.4", "title": "ITL",
    "manifest": {"urls": [], "declarations": {}}, "tables": [], "plots": [], "levels": [], "warnings": [],
    "deviations": [],
})  # fmt: skip


def test_a_shell_reads_the_words_that_were_given() -> None:
    assert shlex.split(command_line(DOCUMENT.command) or "") == WORDS


def test_in_markdown_it_is_code_that_nothing_escapes() -> None:
    line = next(line for line in render_page(page(DOCUMENT)).splitlines() if line.startswith("* Command: "))
    assert line == f"* Command: `{shlex.join(WORDS)}`"


def test_on_the_page_too() -> None:
    shown = re.search(r"<dt>Command</dt>\s*<dd><code>(.*?)</code></dd>", render(page(DOCUMENT)), re.S)
    assert shown is not None and shlex.split(html.unescape(shown[1])) == WORDS


def test_code_with_backticks_has_longer_ones_around_it() -> None:
    assert code_span("a `b` ``c") == "```a `b` ``c```"
    assert code_span("`a`") == "`` `a` ``"


def test_a_command_that_was_withheld_is_a_word() -> None:
    assert command_line("withheld") == "withheld" and command_line(None) is None and command_line([]) is None
