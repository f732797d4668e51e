"""Doubts about the figures of a run are reported on the terminal and in report.md, with numbers."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

import pytest
from example_runs import run_of, streamed
from summary_text import summary_lines
from typed_documents import typed, typed_metric

from fastllmload.documents.run import RunDocument
from fastllmload.report.documents.identity import configuration_pairs
from fastllmload.report.documents.results import latency_table, objective_table
from fastllmload.report.documents.subject import Subject
from fastllmload.report.html.render import render
from fastllmload.report.run_page.context import ReportContext
from fastllmload.report.run_page.overview import reasons
from fastllmload.report.run_page.setup import section as meanings
from fastllmload.report.text.doubts import bound, token_texts, unfinished_text, unsteady_texts
from fastllmload.report.text.tokens import event_tokens_text

LEVEL = {"first_half": 47.0, "second_half": 66.0, "p": 1e-6, "step_at": 0.75, "before_step": 40.0, "after_step": 80.0}
TTFT = {
    "unit": "ms", "n": 439, "n_null": 0, "mean": 1800.0, "p50": 1700.0, "p90": 3300.0, "p95": 3700.0, "p99": 4024.0,
    "p999": 4100.0, "max": 4120.0,
    "unfinished_bounds": {"p50": {"low": 1690.0, "high": 2100.0}, "p99": {"low": 4129.0, "high": None}},
    "with_unfinished": {"n": 656, "n_unfinished": 217},
}  # fmt: skip


def document(**parts: Any) -> dict[str, Any]:
    return {"status": "done", "metrics": {"ttft": TTFT}, **parts}


def shown(found: dict[str, Any], width: int = 80) -> str:
    return "\n".join(line.text for line in summary_lines(typed(found), width))


def test_figures_that_unfinished_requests_can_change_are_bounds() -> None:
    text = shown(document())
    row = next(line for line in text.splitlines() if line.startswith("ttft "))
    assert ">=4,129" in row and "4,024" not in text and "1,800" in row
    assert "656 requests had no" in " ".join(text.split())
    table = latency_table(typed(document()), ["ttft"])
    assert "≥4,129" in table.rows[0] and "1,690-2,100" in table.rows[0] and "4,024" not in str(table.rows)
    assert any("217 of 656" in note for note in table.notes)


def test_figures_of_a_run_whose_requests_all_ended_are_figures() -> None:
    ended = {name: value for name, value in TTFT.items() if name not in ("unfinished_bounds", "with_unfinished")}
    found = document(metrics={"ttft": ended})
    assert "4,024" in shown(found) and ">=" not in shown(found)
    assert unfinished_text(typed(found)) is None and bound(typed_metric(ended), "p99") is None


def test_a_bound_that_is_not_public_is_withheld() -> None:
    assert bound(typed_metric({"unfinished_bounds": {"p99": {"low": "withheld"}}}), "p99") == "withheld"


def test_an_unsteady_run_has_a_warning_on_the_terminal() -> None:
    steadiness = {
        "drift": {"ttft": {**LEVEL, "p_step": 1e-3, "steady": False}, "itl": {**LEVEL, "p_step": 1.0, "steady": True}},
        "in_flight": {"first_half": 12.0, "second_half": 30.0, "p": 1e-4, "growing": True},
    }
    text = " ".join(shown(document(steadiness=steadiness)).split())
    assert "Not steady: TTFT 47.00 ms" in text and "window, 66.00 ms in" in text
    assert "queue was growing: 12.00 requests" in text and "window, 30.00 in" in text
    assert "ITL" not in text


def test_a_step_is_reported_as_a_step() -> None:
    steadiness = {"drift": {"ttft": {**LEVEL, "p_step": 1e-9, "steady": False}, "itl": None}, "in_flight": None}
    (text,) = unsteady_texts(typed({"steadiness": steadiness}))
    assert "TTFT 40.00 ms" in text and "first 75.0 %" in text and "80.00 ms after" in text


def test_a_steady_run_and_one_of_an_earlier_version_have_no_warning() -> None:
    assert unsteady_texts(typed({"steadiness": {"drift": {"ttft": {**LEVEL, "steady": True}}}})) == []
    assert unsteady_texts(typed({"steadiness": {"transient": {"ttft": {"steady": False}}}})) == []
    assert unsteady_texts(typed({})) == []


def test_attainment_is_stated_with_its_bounds() -> None:
    slo = {
        "objectives": [{"objective": "ttft", "limit": 500, "unit": "ms"}], "met": 64, "submitted": 656,
        "slo_attainment": 0.098, "unfinished": 303, "slo_attainment_bounds": [0.098, 0.559],
    }  # fmt: skip
    table = objective_table(typed({"slo": slo}))
    assert table is not None and "303 did not" in table.notes[0] and "9.8 % to 55.9 %" in table.notes[0]


def counted(sources: dict[str, int], pooled: str = "itl", **plan: bool) -> dict[str, Any]:
    single = {"token_times_source": sources, "pooled_as": pooled}
    return {"metrics": {"ttft": TTFT, "share_single": single}, "plan": {"description": plan}}


@pytest.mark.parametrize(
    ("found", "text", "matters"),
    [
        (counted({"server": 9}, continuous_usage=True), "server's usage", False),
        (counted({"server": 9}, "tbc", token_ids=True), "server's token ids", True),
        (counted({"server": 9}), "(usage, token ids or logprobs)", False),
        (counted({"single": 9, "chunk": 0}), "so one each", False),
        (counted({"text": 9}), "the tokenizer", True),
        (counted({"single": 8, "chunk": 1}), "of 1 answers: not known", True),
    ],
)
def test_reports_name_the_source_of_tokens_per_event(found: dict[str, Any], text: str, matters: bool) -> None:
    """Always in the setup; on the terminal where figures depend on more than the server's reports."""
    assert text in str(event_tokens_text(typed(found)))
    assert ("tokens     " in shown({"status": "done", **found}, 120)) is matters
    pairs = dict(configuration_pairs(Subject(Path(), typed(found))))
    assert text in pairs["Source of tokens per event"]
    assert text in html.unescape(render([meanings(ReportContext(run_of([streamed([50])], found)))]))


def test_a_run_without_a_stream_has_no_source_of_tokens_per_event() -> None:
    assert event_tokens_text(typed({})) is None and event_tokens_text(typed(counted({"server": 0}))) is None
    assert "Source of tokens per event" not in dict(configuration_pairs(Subject(Path(), RunDocument())))


@pytest.mark.parametrize(("asked", "advised"), [(None, True), (False, False)])
def test_an_option_that_the_server_ignored_is_not_advised(asked: bool | None, advised: bool) -> None:
    single = {"itl_option_asked": "B", "itl_option": "A"}
    (text,) = token_texts(typed({"metrics": {"share_single": single}, "target": {"continuous_usage": asked}}))
    assert ("--continuous-usage on" in text) is advised and "--record-text on with --tokenizer would provide it" in text


def test_a_note_on_tokens_on_the_page_has_no_remedy_of_failures() -> None:
    document = {"completed": 3, "metrics": {"share_single": {"itl_option_asked": "B", "itl_option": "A"}}}
    (found,) = [
        each for each in reasons(ReportContext(run_of([streamed([50])], document))) if each.severity == "tokens"
    ]
    assert found.todo == ""
