"""Runs with reasoning have both kinds of first token in every report, by name; runs without keep their wording."""

from __future__ import annotations

from typing import Any

import pytest
from example_runs import run_of, streamed
from summary_text import summary_lines
from typed_documents import typed

from fastllmload.certificate.figures import headline_figures
from fastllmload.compare.figure import OF_REASONING, standard_figures
from fastllmload.documents.certificate import Certificate
from fastllmload.documents.redaction import redacted
from fastllmload.metrics.run.measure import measure
from fastllmload.records.run import Run
from fastllmload.report.documents import asiai, blog
from fastllmload.report.documents.results import class_table, interval_table, latency_table
from fastllmload.report.html.render import render
from fastllmload.report.run_page.context import ReportContext
from fastllmload.report.run_page.evidence import evidence
from fastllmload.report.run_page.latency import section
from fastllmload.report.run_page.over_time import section as over_time
from fastllmload.report.run_page.overview import tiles
from fastllmload.report.run_page.setup import section as meanings
from fastllmload.report.text.tokens import LABELS, notes

THINKS = streamed([], ended=210, chunks=[[100 + 10 * k, 1, "reason"] for k in range(5)]
                  + [[150 + 20 * k, 1, "text"] for k in range(4)], output_tokens=9, hidden_reasoning_tokens=5)  # fmt: skip
ALONE = streamed([], ended=140, chunks=[[100 + 10 * k, 1, "reason"] for k in range(5)], output_tokens=5)
PLAIN = streamed([50, 60, 70])
OURS = ("ttft_any", "tpot_any")


def made(*requests: dict[str, Any], goodput: tuple[tuple[str, float], ...] = ()) -> Run:
    manifest = {"config": {"output": {"goodput": [list(each) for each in goodput]}}, "status": "done"}
    run = run_of(list(requests), manifest)
    return run.with_document(measure(run))


def summary(*requests: dict[str, Any]) -> str:
    return "\n".join(line.text for line in summary_lines(made(*requests).document, 100))


def test_the_summary_has_both_and_labels_them() -> None:
    text = summary(THINKS, ALONE, PLAIN)
    rows = {line.split()[0]: line.split() for line in text.splitlines() if line}
    assert rows["ttft_any"][2] == "100.0" and "tpot_any" in rows
    assert "ttft_any, tpot_any: with" in text
    assert "10 reasoning" in " ".join(text.split()) and "7 answer" in " ".join(text.split())
    assert "100.0 reasoning tok/s per request (P50)" in " ".join(text.split())
    assert "1 of 3 answers were all" in " ".join(text.split())


def test_a_run_without_reasoning_does_not_mention_it() -> None:
    text = summary(PLAIN, PLAIN)
    assert "reasoning" not in text and "_any" not in text
    context = ReportContext(made(PLAIN, PLAIN))
    pages = render((section(context), tiles(context), over_time(context)))
    assert "easoning" not in render((tiles(context), over_time(context), meanings(context)))
    assert "to first token" in pages and "answer token" not in pages
    assert latency_table(context.document).rows[0][0] == "TTFT" and notes(context.document) == []


def test_tables_name_both() -> None:
    document = made(*[THINKS] * 4, ALONE).document
    table = latency_table(document)
    named = {str(row[0]): row for row in table.rows}
    assert {LABELS[name] for name in ("ttft", "ttft_any", "tpot", "tpot_any")} <= set(named)
    n, null = named["TTFT (first answer token)"][1:3]
    assert (n, null) == ("4", "1") and named[LABELS["ttft_any"]][1] == "5"
    assert "1 of 5 answers were all" in " ".join(table.notes)
    intervals = interval_table(document)
    assert intervals is not None and LABELS["ttft_any"] in [row[0] for row in intervals.rows]


def test_the_page_names_both() -> None:
    context = ReportContext(made(*[THINKS] * 4, ALONE))
    page = render((tiles(context), section(context), over_time(context), meanings(context)))
    for text in (
        *("First answer token", "First token of any kind", "Time to first answer token", "Per token of any kind"),
        *("1 of 5 answers were all reasoning", "25 reasoning tokens", "reasoning_tok_s", "reasoning, white space"),
    ):
        assert text in page, text
    for figure in ("cdf-ttft-any", "time-ttft-any"):
        assert figure in page


def test_a_page_of_answers_that_are_all_reasoning() -> None:
    context = ReportContext(made(*[ALONE] * 4))
    page = render((tiles(context), section(context), over_time(context)))
    assert "had an answer token" in page and "cdf-ttft-any" in page
    assert "ttft_any" in summary(*[ALONE] * 4)


def test_unknown_numbers_are_reported() -> None:
    silent = THINKS | {"hidden_reasoning_tokens": -1, "output_tokens": 90}
    silent["chunks"] = [[t, 0, what] for t, _, what in silent["chunks"]]
    (note, *_) = notes(made(THINKS, silent).document)
    assert "5 reasoning" in note and "4 answer" in note and "1 more" in note


def test_hidden_reasoning_has_tokens_and_one_kind_of_first_token() -> None:
    text = summary(streamed([50, 60, 70], output_tokens=13, hidden_reasoning_tokens=10))
    assert ("10 reasoning" in text and "3 answer" in text) and "ttft_any" not in text


def test_withheld_counts_do_not_hide_that_there_is_reasoning() -> None:
    said = notes(typed(redacted(made(THINKS, ALONE).manifest, limit=True)))
    assert said[0].startswith("Withheld reasoning tokens") and "withheld of withheld answers" in said[1].lower()


@pytest.mark.parametrize("asked", [(), (("ttft_any", 200.0),), (("0/tpot_any", 40.0),)])
def test_the_certificate_judges_them_where_they_are_headlines_or_asked_for(
    asked: tuple[tuple[str, float], ...],
) -> None:
    wanted = {name.rpartition("/")[2] for name, _ in asked}
    judged = {figure.metric for figure in headline_figures(made(PLAIN, PLAIN, goodput=asked).document)}
    assert judged & set(OURS) == wanted and "ttft" in judged
    assert set(OURS) <= {figure.metric for figure in headline_figures(made(THINKS, goodput=asked).document)}


def test_compare_has_both_where_one_side_reasons() -> None:
    plain, thinks = made(PLAIN, PLAIN).document, made(THINKS, THINKS).document
    names = [figure.name for figure in standard_figures([plain, thinks])]
    assert set(OF_REASONING) <= set(names) and names.index("p99_e2e_ms") < names.index(OF_REASONING[0])
    assert not set(OF_REASONING) & {figure.name for figure in standard_figures([plain, plain])}


def test_other_tables_have_both_or_a_note() -> None:
    """The class table also has the first token of any kind; the blog's table and asiai's block have a note."""
    document = made(THINKS | {"class": 1}, PLAIN | {"class": 0}).document
    table = class_table(document)
    assert table is not None and "TTFT P50 of any token (ms)" in table.columns
    column = table.columns.index("TTFT P50 of any token (ms)")
    assert [str(row[column]).strip("*") for row in table.rows if str(row[3]).startswith("150")] == ["100.0"]
    assert "75.00 ms" in blog.reasoning_note(document)[0] and "11.88 ms" in blog.reasoning_note(document)[0]
    assert "any kind is 75.00 ms" in asiai.reasoning_note(document)[0]
    plain = made(PLAIN | {"class": 1}, PLAIN | {"class": 0}).document
    other = class_table(plain)
    assert other is not None and not [name for name in other.columns if "any token" in name]
    assert blog.reasoning_note(plain) == asiai.reasoning_note(plain) == []


def test_the_evidence_has_the_bound_of_any_token_where_answers_reason() -> None:
    for requests, there in (((THINKS, ALONE), True), ((PLAIN, PLAIN), False)):
        judged = made(*requests).changed(certificate=Certificate(verdict="valid"))
        shown = str(evidence(ReportContext(judged)))
        assert ("TTFT of any token" in shown) is there and "P99 is known within" in shown and "TTFT_ANY" not in shown
