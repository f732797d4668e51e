"""Gaps have the name of the option that they were pooled under (IETF B.2.1) in every report, and each figure says of what it
is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from example_runs import run_of, streamed
from msgspec.structs import replace
from summary_text import summary_lines
from typed_documents import with_keys

from fastllmload.certificate.figures import describe_figures, headline_figures
from fastllmload.documents.certificate import Certificate
from fastllmload.metrics.run.measure import measure
from fastllmload.report.documents.forms import text_of
from fastllmload.report.documents.results import client_table, latency_table
from fastllmload.report.documents.subject import Subject
from fastllmload.report.html.render import render
from fastllmload.report.run_page.context import ReportContext
from fastllmload.report.run_page.evidence import evidence
from fastllmload.report.run_page.setup import section as setup

FOUR_A_CHUNK = streamed([], ended=200, chunks=[[100 + 30 * k, 4, "text"] for k in range(3)], output_tokens=12)
SINGLE = streamed([50, 60, 70])
THINKS = streamed([], ended=210, chunks=[[100 + 10 * k, 1, "reason"] for k in range(5)]
                  + [[150 + 20 * k, 1, "text"] for k in range(4)], output_tokens=9, hidden_reasoning_tokens=5)  # fmt: skip
ALONE = streamed([], ended=140, chunks=[[100 + 10 * k, 1, "reason"] for k in range(5)], output_tokens=5)


def made(*requests: dict[str, Any], option: str = "auto") -> ReportContext:
    manifest = {"config": {"output": {"goodput": [], "itl_option": option}}, "status": "done"}
    run = run_of(list(requests), manifest)
    document = measure(run)
    certificate = Certificate(verdict="valid", figures=describe_figures(headline_figures(document)))
    return ReportContext(run.with_document(replace(document, certificate=certificate)))


@pytest.mark.parametrize(
    ("request_", "option", "name", "label", "meaning"),
    [
        (SINGLE, "auto", "itl", "ITL", "consecutive content tokens"),
        (FOUR_A_CHUNK, "A", "tbc", "Time Between Chunks", "(option A): a chunk"),
        (FOUR_A_CHUNK, "B", "itl_b", "ITL (B)", "(option B): tokens"),
    ],
)
def test_gaps_have_their_own_name(request_: Any, option: str, name: str, label: str, meaning: str) -> None:
    context = made(*[request_] * 4, option=option)
    rows = {line.text.split()[0]: line.text.split() for line in summary_lines(context.document, 120)}
    assert rows[name][1] != "n/a" and {"itl", "tbc", "itl_b"} & set(rows) == {name}
    assert f" {name} " in " ".join(rows["stamps"])
    assert label in [str(row[0]) for row in latency_table(context.document).rows]
    page = render([setup(context)])
    assert f"<code>{name}</code>" in page and meaning in page
    assert [other in page for other in ("<code>itl</code>", "<code>itl_b</code>")] == [name == "itl", name == "itl_b"]
    short = {"itl": "ITL ", "tbc": "time between chunks ", "itl_b": "ITL (B) "}[name]
    assert f", {short}" in str(evidence(context))


def test_classes_have_the_gaps_of_option_b() -> None:
    two = [{**FOUR_A_CHUNK, "class": number} for number in (0, 1)]
    classes = made(*two, option="B").document.classes or {}
    assert [one.itl_b.n for one in classes.values()] == [11, 11]


def test_the_error_of_a_figure_is_not_that_of_a_request() -> None:
    """The terminal has the first in us; the table has both, the first with its share as well."""
    context = made(*[SINGLE] * 4)
    bars = {"ttft": {"p99": 509.5}, "itl": {"p99": 244.1}}
    p99 = {"value": 70.0, "error_share": 0.001}
    certificate = {"figures": {"ttft": {"p99": p99}}, "latency_error_bar_us": bars}
    document = with_keys(context.run, certificate=certificate).document
    rows = {str(row[0]): row[1] for row in client_table(document).rows}
    assert rows["Stamp error of one request's TTFT, P99 over requests (us)"] == "509.5"
    assert rows["Stamp error of one gap, P99 over gaps (us)"] == "244.1"
    assert rows["P99 of TTFT is known within (us, share)"] == "70.00, 0.1 %"
    stamps = next(line.text for line in summary_lines(document, 120) if line.text.startswith("stamps"))
    assert "P99 known" in stamps and "us: ttft 70.00" in stamps


def test_the_end_of_an_answer_that_is_all_reasoning_is_explained() -> None:
    last = "of an answer that is all reasoning to its last reasoning token"
    assert last in render([setup(made(THINKS, ALONE))]) and last not in render([setup(made(THINKS, THINKS))])


@pytest.mark.parametrize(
    ("requests", "said"),
    [
        (
            (SINGLE, SINGLE),
            "TTFT is to the first content token; TTFT and TPOT are of the 2 ok requests submitted in the window",
        ),
        (
            (THINKS, THINKS, ALONE),
            "TTFT is to the first answer token, TPOT of the answer tokens, of the 2 ok requests with an answer submitted in "
            "the window; to the first token of any kind, reasoning included: P50 100.00 ms, P99 100.00 ms",
        ),
        ((THINKS, THINKS, ALONE), "1 of 3 answers were all reasoning"),
        (
            (ALONE,),
            "no answer token arrived, so TTFT and TPOT are not available; to the first token of any kind, reasoning "
            "included: P50",
        ),
    ],
)
def test_the_minimum_report_describes_its_ttft(requests: Any, said: str) -> None:
    text = text_of(Subject(Path("run"), made(*requests).document), "minimum")
    assert f"- {said}" in text
    assert ("reasoning" in text) == (requests != (SINGLE, SINGLE))
