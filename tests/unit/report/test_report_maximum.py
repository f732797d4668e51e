"""One rule selects the levels for the maximum throughput and for the maximum below a limit (IETF C.1)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from golden_file import GOLDEN
from typed_documents import typed_procedure

from fastllmload.documents.fields import Number
from fastllmload.report.documents.forms import text_of
from fastllmload.report.documents.maximum import below, maximum
from fastllmload.report.documents.subject import subject_of

LIMIT_MS = 500.0


def level(load: float, tok_s: float, ttft: float = 100.0, **fields: Any) -> dict[str, Any]:
    """A steady level that the system and the client sustained, changed by *fields*."""
    criteria = {"generator_limited": False, "offered_in_full": True} | fields.pop("criteria", {})
    held = {"saturated": False, "steady": True, "certificate": "valid", "criteria": criteria}
    return (
        {"load": load, "loop": "open", "output_tok_s": tok_s, "ttft_p99_ms": ttft, "tpot_p99_ms": 20.0} | held | fields
    )


def document(levels: list[dict[str, Any]], procedure: str = "tradeoff", **findings: Any) -> dict[str, Any]:
    for number, one in enumerate(levels):
        one |= {
            "number": number,
            "name": f"{one['load']:g}",
            "folder": f"levels/{number:03d}",
            "completed": 9,
            "failed": 1,
        }
    found = json.loads((GOLDEN / "report" / "procedure.json").read_text())
    status = "done" if findings else "interrupted"
    return found | {
        "procedure": procedure, "status": status, "levels": levels, "findings": findings, "parameters": {"test": {}}
    }  # fmt: skip


def figures(found: dict[str, Any]) -> tuple[Number, float | None]:
    procedure = typed_procedure(found)
    top = maximum(procedure)
    return None if top is None else top.output_tok_s, below(procedure, LIMIT_MS)


LATE = {"generator_limited": True}
UNCOUNTED = {
    "saturated": level(9, 999.0, saturated=True),
    "not steady": level(9, 999.0, steady=False),
    "nothing known": level(9, 999.0, saturated=None, steady=None),
    "the client was the limit": level(9, 999.0, saturated=None, criteria=LATE),
    "a late client that offered less": level(9, 999.0, criteria=LATE | {"offered_in_full": False}),
    "of the closed loop that measured the capacity": level(9, 999.0, loop="closed"),
    "failed the test's own criteria": level(9, 999.0, passes=False),
    "no figure": level(9, 0.0) | {"output_tok_s": None},
}


@pytest.mark.parametrize("why", UNCOUNTED)
def test_levels_not_eligible_for_the_maximum_do_not_count_under_the_limit(why: str) -> None:
    assert figures(document([level(4, 400.0), UNCOUNTED[why]])) == (400.0, 400.0)
    assert figures(document([dict(UNCOUNTED[why])])) == (None, None)


def test_a_level_with_a_late_client_that_offered_the_full_load_is_eligible() -> None:
    assert figures(document([level(4, 400.0), level(6, 570.0, criteria=LATE)])) == (570.0, 570.0)


def test_loads_above_the_answer_of_a_search_are_not_eligible() -> None:
    """The search rejected 25/s: one passing run with a higher throughput does not make it sustainable."""
    levels = [level(20, 1461.5), level(25, 1633.7, saturated=True), level(20, 1168.9), level(25, 1596.9)]
    found = document(levels, "throughput", sustainable_load=20.0, max_output_tok_s=1168.9, limits={})
    assert figures(found) == (1168.9, 1168.9)
    top = maximum(typed_procedure(found))
    assert top is not None and top.number == 2  # the run that the test reports, not the other at that load


def test_in_an_interrupted_search_loads_with_a_failed_run_are_not_eligible() -> None:
    found = document([level(20, 700.0), level(25, 900.0), level(25, 901.0, saturated=True)], "throughput")
    assert figures(found) == (700.0, 700.0)


def test_a_search_that_found_no_load_has_no_maximum() -> None:
    found = document([level(20, 700.0)], "throughput", sustainable_load=None, max_output_tok_s=None, limits={})
    assert figures(found) == (None, None)


def test_the_objectives_of_the_test_apply_to_both() -> None:
    levels = [level(10, 500.0, 150.0), level(20, 900.0, 250.0)]
    assert figures(document(levels, limits={"ttft": 200.0})) == (500.0, 500.0)
    assert figures(document(levels, limits={"tpot": 19.9})) == (None, None)
    cut = document(levels) | {
        "findings": {},
        "parameters": {"test": {"slo_ttft_p99_ms": 200.0, "slo_tpot_p99_ms": None}},
    }
    assert figures(cut) == (500.0, 500.0)


def test_the_limit_is_strict_and_a_lower_load_never_exceeds_the_maximum() -> None:
    assert figures(document([level(10, 500.0, 499.9), level(20, 900.0, 500.0)])) == (900.0, 500.0)
    levels = [level(10, 450.0), level(18, 910.0), level(20, 900.0, 600.0)]
    found = document(levels, "throughput", sustainable_load=20.0, max_output_tok_s=900.0, limits={})
    assert figures(found) == (900.0, 450.0)


def test_one_of_several_runs_represents_a_load() -> None:
    """The run with the median throughput, of two the lower, even if another run met the P99 limit."""
    assert figures(document([level(8, 399.0, 600.0), level(8, 570.0), level(8, 571.0)])) == (570.0, 570.0)
    assert figures(document([level(8, 399.0, 600.0), level(8, 570.0)])) == (399.0, None)


def test_a_capacity_is_that_of_the_levels_that_pass() -> None:
    """Levels that miss the objective are not eligible, although they have more throughput and meet the limit."""
    unknown = {"saturated": None, "steady": None, "loop": "closed"}
    levels = [
        level(slots, rate, ttft, passes=ok, **unknown)
        for slots, rate, ttft, ok in ((4, 379.0, 20.5, True), (8, 757.7, 20.4, True), (16, 795.0, 220.8, False))
    ]
    assert figures(document(levels, "capacity", max_concurrency=8, output_tok_s=757.7)) == (757.7, 757.7)
    assert figures(document(levels, "capacity")) == (757.7, 757.7)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tradeoff whose level at the maximum is the second of three."""
    found = document([level(4, 400.0), level(6, 570.0), level(9, 999.0, saturated=True)])
    (tmp_path / "procedure.json").write_text(json.dumps(found))
    run = json.loads((GOLDEN / "report" / "run.json").read_text())
    for number, one in enumerate(found["levels"]):
        (tmp_path / one["folder"]).mkdir(parents=True)
        run["counts"]["dispatched"] = 100 + number
        (tmp_path / one["folder"] / "run.json").write_text(json.dumps(run))
    return tmp_path


def test_the_minimum_report_has_one_scope_and_names_it(folder: Path) -> None:
    text = text_of(subject_of(folder), "minimum")
    assert "- Request Count: 101\n" in text
    assert "- Max Throughput: 570.00 tok/s\n- Throughput at P99 TTFT < 500ms: 570.00 tok/s (from sweep)\n" in text
    assert "levels/001, " in text and "3 levels with 30 requests" in text
    assert "(not saturated, steady)" in text
    public = text_of(subject_of(folder, redacted=True), "minimum")
    assert "Request Count: withheld" in public and " in all" not in public and "570" not in public


def test_without_an_eligible_level_there_is_no_maximum(folder: Path) -> None:
    found = json.loads((folder / "procedure.json").read_text())
    for one in found["levels"]:
        one["saturated"] = True
    (folder / "procedure.json").write_text(json.dumps(found))
    text = text_of(subject_of(folder), "minimum")
    assert "- Max Throughput: not measured\n" in text and "P99 TTFT < 500ms: not measured\n" in text
    assert "system sustained" in text


def test_other_tests_do_not_search_for_a_maximum(folder: Path) -> None:
    found = json.loads((folder / "procedure.json").read_text()) | {"procedure": "fairness"}
    (folder / "procedure.json").write_text(json.dumps(found))
    text = text_of(subject_of(folder), "minimum")
    assert "- Max Throughput is that " in text
    assert "< 500ms: not measured" in text
