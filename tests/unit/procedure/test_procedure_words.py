"""What single tests of the ten derive and say: baselines of fairness, preemptions, the best level of a capacity."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from fake_runs import installed, made
from typed_documents import typed

from fastllmload.documents.experiment import CriteriaFigures
from fastllmload.documents.procedure import GuardrailFindings
from fastllmload.documents.run import RunDocument
from fastllmload.documents.run_parts.classes import ClassFairness
from fastllmload.experiment.level.result import Level
from fastllmload.experiment.level.verdict import COMPLETION, NO_GAIN, QUEUE, LevelVerdict, nothing_measured
from fastllmload.experiment.report.findings import Findings
from fastllmload.procedure.procedure_test import Conditions
from fastllmload.procedure.run import client_limited_text
from fastllmload.procedure.tests import fairness, guardrail, prefix_cache
from fastllmload.procedure.tests.capacity import Levels, Parameters, count_matching
from fastllmload.procedure.tests.fairness import CLASSES, MIXED, expected_tokens, overloaded
from fastllmload.procedure.tests.memory_pressure import preempted, preemption_text
from fastllmload.search import saturation
from fastllmload.search.bisection import PermanentFailure
from fastllmload.search.load_sweep import LevelResult, LoadSweep
from fastllmload.search.saturation import SaturationCapacity
from fastllmload.settings import RunSettings
from fastllmload.statistics.sequential_tests import Decision


def test_same_tokens_follow_from_the_workloads_definition() -> None:
    """The factors of spec/procedures 5.6: 2.754 for short, 0.2819 for long, from 462.9 in and 149.0 out of the mix."""
    assert expected_tokens(MIXED) == pytest.approx(462.9 + 149.0, abs=0.1)
    factors = {name: expected_tokens(MIXED) / expected_tokens(workload) for name, (workload, _) in CLASSES.items()}
    assert factors == {"short": pytest.approx(2.754, abs=5e-4), "long": pytest.approx(0.2819, abs=5e-5)}


@pytest.mark.parametrize(
    ("counted", "said"),
    [
        ([(1.0, 0), (1.25, 0)], ["none seen"]),
        ([(1.0, None), (1.25, None)], ["not measured"]),
        ([(1.0, 0), (1.25, None)], ["not measured"]),
        ([(1.0, 0), (1.1, 0), (1.25, 3), (1.5, 9)], ["begins above 110%", "at 125%", "at the latest"]),
        ([(1.0, None), (1.25, 3)], ["begins at 125%", "or below"]),
        ([(1.0, 2), (1.25, 0)], ["begins at 100%", "or below"]),
    ],
)
def test_no_preemption_needs_a_count_of_every_level(counted: list[tuple[float, int | None]], said: list[str]) -> None:
    assert [value for value in said if value not in preemption_text(counted)] == []


def test_a_hit_rate_that_is_not_stated_has_its_reason(tmp_path: Path) -> None:
    metrics = ({"cache_hit_rate": {"value": 0.5}}, {"cache_hit_rate": {"value": None, "note": "null: another unit"}})
    levels = {
        state: Level(0, state, RunSettings(), tmp_path, typed({"metrics": each}))
        for state, each in zip(("off", "warm"), metrics, strict=True)
    }
    assert list(prefix_cache.hit_notes(levels)) == ["cache hit rate, warm: null: another unit"]


def test_client_limited_levels_are_one_sentence(tmp_path: Path) -> None:
    """By their numbers; a single one by its name as well."""
    levels = [Level(number, f"{number} slots", RunSettings(), tmp_path, RunDocument()) for number in (2, 5)]
    assert "level 2 (2 slots): " in client_limited_text(levels[:1])
    assert "levels 2, 5: " in client_limited_text(levels)


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

    def at(load_sweep: LoadSweep, load: float, repetition: int = 0, **fields: Any) -> LevelResult:
        result = LevelResult(load_sweep.experiment.level(f"{load:g}", saturation.changed(load_sweep.settings, load={
            "rate": None, "concurrency": round(load)})), verdict(saturated=load >= 16, fired=(NO_GAIN,) * (load >= 16),
            figures=CriteriaFigures(output_tok_s=figures[round(load)][1])))  # fmt: skip
        load_sweep.results.append(result)
        return result

    monkeypatch.setattr(LoadSweep, "at", at)
    with made(tmp_path / "p") as experiment:
        found = saturation.measured(experiment, experiment.base, Findings())
    assert found is not None and found.req_s == 14.7
    assert found.limited_by.startswith("at 16 slots, no gain: 1,990 ") and "less than 5%" in found.limited_by
    assert found.entry().limited_by == found.limited_by


def test_a_capacity_names_what_ended_its_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A criterion, the client, or that nothing did up to the most slots that are tried."""
    installed(monkeypatch).answer = lambda settings: {}
    with made(tmp_path) as experiment:
        level = experiment.level("8", saturation.changed(experiment.base, load={"rate": None, "concurrency": 8}))
    late = verdict(saturated=None, generator_limited=True, fired=(QUEUE,), limits=("the lag is 3 ms",))
    assert re.findall("8 slots|client|3 ms", saturation.ended_by(LevelResult(level, late))) == [
        "8 slots",
        "client",
        "3 ms",
    ]
    unsaturated = saturation.ended_by(LevelResult(level, verdict(saturated=False, steady=True)))
    assert "8 slots" in unsaturated and "not saturated" in unsaturated


@pytest.mark.parametrize(
    ("said", "judged"),
    [
        ("torch.cuda.OutOfMemoryError: tried to allocate", PermanentFailure("an out-of-memory error")),
        ("busy", Decision.PASS),
    ],
)
def test_a_level_whose_errors_speak_of_memory_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, judged: Decision | PermanentFailure
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
    experiment = made(tmp_path)
    monkeypatch.setattr(experiment, "is_unreachable", lambda: False)
    levels = Levels(experiment, experiment.base, Parameters(slo_ttft_p99_ms=100.0), Findings())
    assert levels.judge(4, 0) == judged


def test_texts_about_memory_are_counted_by_request(tmp_path: Path) -> None:
    texts = [{"text": "cuda OUT OF MEMORY", "requests": 4}, {"text": "busy", "requests": 9}]
    documents = [typed({"error_texts": {"texts": texts}}), RunDocument()]
    levels = [Level(0, "one", RunSettings(), tmp_path, document) for document in documents]
    assert [count_matching(level, "out of memory|OOM") for level in levels] == [4, 0]


@pytest.mark.parametrize(
    ("client_limited", "asked", "limited"),
    [
        ({(4, 0)}, [(4, 0), (4, 1), (8, 0)], False),  # a busy moment: run again, and on
        ({(8, 0), (8, 1)}, [(4, 0), (8, 0), (8, 1), (8, 2)], False),
        ({(8, 0), (8, 1), (8, 2)}, [(4, 0), (8, 0), (8, 1), (8, 2)], True),
    ],
)
def test_a_capacity_is_not_ended_by_one_late_level(
    client_limited: set[tuple[int, int]],
    asked: list[tuple[int, int]],
    limited: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """8 slots saturate; where the client was late in all three runs of a level, that ends it and is reported."""
    installed(monkeypatch).answer = lambda settings: {
        "metrics": {"req_s": {"value": settings.load.concurrency}, "output_tok_s": {"value": settings.load.concurrency}}
    }
    seen: list[tuple[int, int]] = []

    def at(load_sweep: LoadSweep, load: float, repetition: int = 0, **fields: Any) -> LevelResult:
        seen.append((round(load), repetition))
        late = seen[-1] in client_limited
        level = load_sweep.experiment.level(f"{load:g}, {repetition}", saturation.changed(load_sweep.settings, load={
            "rate": None, "concurrency": round(load)}))  # fmt: skip
        result = LevelResult(level, verdict(saturated=None if late else load >= 8, generator_limited=late))
        load_sweep.results.append(result)
        return result

    monkeypatch.setattr(LoadSweep, "at", at)
    with made(tmp_path / "p") as experiment:
        found = saturation.measured(experiment, experiment.base, Findings())
    assert seen == asked
    assert found is not None and (found.req_s, found.limited) == (8, limited)


def test_a_declared_capacity_leaves_the_baselines_throughput_to_be_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the other configurations' reductions have nothing to refer to (IETF 5.10.4)."""
    measured = {"baseline, ": 20.0, "input, ": 15.0}
    installed(monkeypatch)
    monkeypatch.setattr(Conditions, "warm_up", lambda *arguments: None)
    monkeypatch.setattr(
        guardrail,
        "measured",
        lambda experiment, settings, found, prefix: SaturationCapacity(
            measured[prefix], "here", output_tok_s=3 * measured[prefix] + 8
        ),
    )

    def at(load_sweep: LoadSweep, load: float, repetition: int = 0, **fields: Any) -> LevelResult:
        return LevelResult(
            load_sweep.experiment.level(f"{load_sweep.prefix}{load:g}", load_sweep.settings), verdict(saturated=False)
        )

    monkeypatch.setattr(LoadSweep, "at", at)
    asked = guardrail.Parameters(capacity=10.0, capacity_source="known", configurations=("baseline", "input"))
    with made(tmp_path / "p") as experiment:
        monkeypatch.setattr(experiment, "switch", lambda group, name: None)
        guardrail.TEST.run(experiment, asked, found := Findings())
    assert isinstance(found.values, GuardrailFindings)
    assert found.values.throughput_req_s == {"baseline": 20.0, "input": 15.0}
    assert found.values.throughput_output_tok_s == {"baseline": 68.0, "input": 53.0}
    assert found.values.throughput_change_percent == {"input": pytest.approx(-22.06, abs=0.005)}
    (table,) = [one for one in found.tables if one.id == "guardrail-throughput"]
    assert table.columns[:3] == ("Configuration", "Max Throughput (tok/s)", "Reduction")  # as in IETF Table 14
    assert table.rows == (("Baseline", 68.0, "-", 20.0), ("Input filter", 53.0, "-22.1%", 15.0))


@pytest.mark.parametrize(("rate", "text"), [(0.003, "0.3%"), (0.021, "2.1%"), (0.0, "0.0%"), (None, None)])
def test_starvation_is_printed_as_in_table_9(rate: float | None, text: str | None) -> None:
    assert fairness.starved(ClassFairness(starvation_rate=rate)) == text


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({"server": {"preemptions": {"value": 46.0}}, "counts": {"submitted_in_window": 425}}, "10.8%"),
        ({"server": {"preemptions": {"value": 0.0}}, "counts": {"submitted_in_window": 400}}, "0.0%"),
        ({"server": {}, "counts": {"submitted_in_window": 400}}, "not measured"),
        ({"server": {"preemptions": {"value": 3.0}}, "counts": {"submitted_in_window": 0}}, "not measured"),
    ],
)
def test_preemptions_are_printed_as_in_table_11(document: dict[str, Any], text: str) -> None:
    level: Any = SimpleNamespace(document=typed(document))
    assert preempted(level) == text
