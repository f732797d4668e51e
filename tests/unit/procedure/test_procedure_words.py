"""What single tests of the ten derive and say: baselines of fairness, preemptions, the best level of a capacity."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from fake_runs import installed, made

from fastllmload.procedure import saturating
from fastllmload.procedure.findings import Findings
from fastllmload.procedure.ladder import Ladder, Rung
from fastllmload.procedure.tests.capacity import Levels, Parameters
from fastllmload.procedure.tests.fairness import CLASSES, MIXED, expected_tokens, overloaded
from fastllmload.procedure.tests.memory_pressure import preemption_words
from fastllmload.procedure.verdict import COMPLETION, QUEUE, LevelVerdict, nothing_measured


def test_same_tokens_follow_from_the_workloads_definition() -> None:
    """The factors of procedures.md 5.6: 2.754 for short, 0.2819 for long, from 462.9 in and 149.0 out of the mix."""
    assert expected_tokens(MIXED) == pytest.approx(462.9 + 149.0, abs=0.1)
    factors = {name: expected_tokens(MIXED) / expected_tokens(workload) for name, (workload, _) in CLASSES.items()}
    assert factors == {"short": pytest.approx(2.754, abs=5e-4), "long": pytest.approx(0.2819, abs=5e-5)}


@pytest.mark.parametrize(
    ("first", "counted", "said"),
    [
        (None, [0, 0], "preemption: none seen"),
        (None, [None, None], "not measured"),
        (None, [0, None], "not measured"),
        (1.25, [0, 3], "begins at 125%"),
    ],
)
def test_no_preemption_is_told_only_where_somebody_counted(
    first: float | None, counted: list[int | None], said: str
) -> None:
    assert said in preemption_words(first, counted)


def verdict(**fields: Any) -> LevelVerdict:
    return msgspec.structs.replace(nothing_measured("open"), **fields)


def test_a_baseline_that_overloads_is_seen_also_where_the_client_was_late() -> None:
    """A limited client leaves saturation unknown; a growing queue speaks against the baseline all the same."""
    assert overloaded(verdict(saturated=True, fired=(QUEUE, COMPLETION))) == "queue growing, completion"
    assert overloaded(verdict(saturated=None, generator_limited=True, fired=(QUEUE,))) == "queue growing"
    assert overloaded(verdict(saturated=False, steady=True)) == ""


def test_the_best_level_of_a_capacity_is_that_with_the_most_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """8 slots happened to get short answers: more requests/s at fewer tokens/s than 16 slots."""
    figures = {4: (5.0, 1000.0), 8: (16.4, 1970.0), 16: (14.7, 1990.0)}
    runs = installed(monkeypatch)

    def answer(settings: Any) -> dict[str, Any]:
        req_s, tok_s = figures[settings.load.concurrency]
        return {"metrics": {"req_s": {"value": req_s}, "output_tok_s": {"value": tok_s}}}

    runs.answer = answer

    def at(ladder: Ladder, load: float, repetition: int = 0, **fields: Any) -> Rung:
        rung = Rung(ladder.lab.level(f"{load:g}", saturating.changed(ladder.settings, load={
            "rate": None, "concurrency": round(load)})), verdict(saturated=load >= 16))  # fmt: skip
        ladder.rungs.append(rung)
        return rung

    monkeypatch.setattr(Ladder, "at", at)
    with made(tmp_path / "p") as lab:
        found = saturating.measured(lab, lab.base, Findings())
    assert found is not None and found.req_s == 14.7


@pytest.mark.parametrize(("said", "holds"), [("torch.cuda.OutOfMemoryError: tried to allocate", False), ("busy", True)])
def test_a_level_whose_errors_speak_of_memory_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, holds: bool
) -> None:
    """One failure in a thousand would not fail it otherwise (IETF 5.5.2)."""
    texts = [{"http_status": 500, "error": "http_status", "text": said, "requests": 1}]
    runs = installed(monkeypatch)
    runs.answer = lambda settings: {
        "completed": 999,
        "failed": 1,
        "metrics": {"success_rate": {"value": 0.999}, "ttft": {"p99": 50.0}},
        "error_texts": {"texts": texts, "left_out": 0},
    }
    lab = made(tmp_path)
    monkeypatch.setattr(lab, "gone", lambda: False)
    levels = Levels(lab, lab.base, Parameters(slo_ttft_p99_ms=100.0), Findings())
    assert levels.holds(4, 0) is holds
