"""Checks that decide no verdict by themselves: what a test's tables, levels, steps and reports must show."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from case_builder import Cases
from compliance_scenes import SCENES, fairness, gateway, guardrail, itl, plain, prefix_cache, throughput, tradeoff, ttft

from fastllmload.compliance.applies import why_not
from fastllmload.compliance.checks import CHECKS
from fastllmload.compliance.checks.load import loop_is
from fastllmload.compliance.checks.streaming import named_tbc, option_follows
from fastllmload.compliance.evidence import ComplianceEvidence, MeasuredRun
from fastllmload.compliance.outcome import DECLARED, FALSE, INAPPLICABLE, TRUE, RequirementOutcome
from fastllmload.records import layout


def said(cases: Cases, folder: Path, name: str, **params: Any) -> RequirementOutcome:
    return CHECKS[name](cases.evidence(folder), **params)


def document(cases: Cases) -> dict[str, Any]:
    assert cases.procedure is not None
    return cases.procedure


def test_a_table_is_known_by_its_columns_and_rows(tmp_path: Path) -> None:
    """Others may stand between; order counts; a row that is missing is named."""
    cases = ttft(1_000)
    wanted = {"columns": ["Metric", "Value"], "rows": ["TTFT P50", "TTFT P99", "TTFT P99.9"]}
    assert said(cases, tmp_path, "table", **wanted).state == TRUE
    assert said(cases, tmp_path, "table", columns=["Value", "Metric"]).state == FALSE
    assert "TPOT" in said(cases, tmp_path, "table", columns=["Metric"], rows=["TPOT"]).reason


def test_a_finding_may_be_a_value_a_row_or_a_sentence(tmp_path: Path) -> None:
    """Wherever a test says it, it is said."""
    cases = ttft(1_000)
    assert said(cases, tmp_path, "finding", names=["requests"]).state == TRUE
    assert said(cases, tmp_path, "finding", names=["ttft_p50"]).state == TRUE
    assert said(cases, tmp_path, "finding", names=["knee_point"]).state == FALSE
    document(cases)["sentences"] = ["Knee point: 14 requests/s"]
    assert said(cases, tmp_path, "finding", names=["knee_point"], words=["knee point"]).state == TRUE


@pytest.mark.parametrize(("label", "state"), [("256-511", TRUE), ("300-511", FALSE)])
def test_buckets_begin_where_they_should(label: str, state: str, tmp_path: Path) -> None:
    """Edges are those of the recommendation, where lengths vary."""
    cases = ttft(1_000)
    document(cases)["tables"][1]["rows"][1][0] = label
    assert said(cases, tmp_path, "buckets", edges=[0, 256, 512, 1024, 2048, 4096]).state == state


def test_levels_cover_the_range(tmp_path: Path) -> None:
    """From a tenth of the capacity to a saturated level."""
    cases = tradeoff()
    assert said(cases, tmp_path, "spans_to_saturation").state == FALSE
    document(cases)["findings"] = {"capacity": {"req_s": 20.0}}
    assert said(cases, tmp_path, "spans_to_saturation").state == TRUE
    cases.run.entry["saturated"] = False  # type: ignore[index]
    assert said(cases, tmp_path, "spans_to_saturation").state == FALSE


def test_shares_of_the_capacity_are_those_asked_for(tmp_path: Path) -> None:
    """Loads over the capacity that was found; each of the shares is there."""
    assert said(itl(), tmp_path, "fractions", wanted=[0.25, 0.5, 0.75, 0.9]).state == TRUE
    assert said(itl(), tmp_path, "fractions", wanted=[0.25, 0.6]).state == FALSE


def test_levels_go_up(tmp_path: Path) -> None:
    """In the order in which they were measured."""
    cases = itl()
    assert said(cases, tmp_path, "ascending").state == TRUE
    cases.levels.reverse()
    assert said(cases, tmp_path, "ascending").state == FALSE


def test_the_same_requests_in_every_state(tmp_path: Path) -> None:
    """Equal loads have equal plans, or states cannot be compared."""
    cases = prefix_cache()
    assert said(cases, tmp_path, "same_sequence").state == TRUE
    cases.levels[1].manifest["plan"]["digest"] = "d2"
    assert said(cases, tmp_path, "same_sequence").state == FALSE


@pytest.mark.parametrize(
    ("step", "state"),
    [({"name": "guardrail-input", "how": "command", "status": 0}, TRUE),
     ({"name": "guardrail-input", "how": "operator", "status": 0}, DECLARED),
     ({"name": "guardrail-input", "how": "command", "status": 1}, FALSE),
     ({"name": "restart", "how": "command", "status": 0}, FALSE)],
)  # fmt: skip
def test_a_step_is_recorded(step: dict[str, Any], state: str, tmp_path: Path) -> None:
    """A hook that ended well was done; what an operator confirmed is declared."""
    cases = guardrail()
    document(cases)["steps"] = [step]
    assert said(cases, tmp_path, "step_done", words=["guardrail-input"]).state == state


def test_classes_lie_in_their_rectangles_and_shares(tmp_path: Path) -> None:
    """Lengths and shares of a mix, by the numbers of the classes."""
    cases = fairness()
    rows = cases.run.rows
    rows["request_class"][120:] = [1] * 40 + [0] * 160
    rows["input_target"][120:], rows["output_target"][120:] = [2000] * 40 + [100] * 160, [500] * 40 + [64] * 160
    assert said(cases, tmp_path, "classes_least", least=2).state == TRUE
    assert said(cases, tmp_path, "class_shares").state == TRUE
    long = {"number": 1, "input": [1024, 4096], "output": [256, 1024]}
    assert said(cases, tmp_path, "class_within", **long).state == TRUE
    assert said(cases, tmp_path, "requests_per_class", least=500).state == FALSE
    rows["input_target"][125] = 1023
    assert said(cases, tmp_path, "class_within", **long).state == FALSE
    rows["request_class"][170:250] = 1
    assert said(cases, tmp_path, "class_shares").state == FALSE


def test_a_round_trip_is_reported_and_near(tmp_path: Path) -> None:
    """Connect times of the checks before the run, where no connection of a request was timed."""
    cases = gateway()
    assert said(cases, tmp_path, "rtt_reported").state == TRUE
    assert said(cases, tmp_path, "near").state == TRUE
    cases.run.manifest["target"]["connect_ms"] = [30.0, 31.0, 32.0]
    cases.run.remeasured()
    assert said(cases, tmp_path, "near").state == FALSE
    cases.run.manifest["target"]["connect_ms"] = []
    cases.run.remeasured()
    assert said(cases, tmp_path, "near").state == INAPPLICABLE


def test_protocols_of_classes_are_all_reported(tmp_path: Path) -> None:
    """One class over server-sent events and one over NDJSON: both are named, and neither alone is recommended."""
    cases = gateway()
    assert CHECKS["protocol_is"](cases.evidence(tmp_path), name="sse").state == TRUE
    cases.run.manifest["target"]["classes"] = [
        {"endpoint_type": "openai-completions"},
        {"endpoint_type": "ollama-chat"},
    ]
    found = said(cases, tmp_path, "protocol_reported")
    assert found.state == TRUE and "sse and ndjson" in found.reason
    assert CHECKS["protocol_is"](cases.evidence(tmp_path), name="sse").state == FALSE


def test_a_minimum_report_is_read_line_by_line(tmp_path: Path) -> None:
    """A label without a value is no line; notes must say something."""
    lines = (
        "=== LLM Benchmark Report (Minimum) ===",
        "- Model: m",
        "- Hardware:",
        "Notes:",
        "- Guardrails: none",
        "=== End",
    )
    (tmp_path / "minimum.md").write_text("\n".join(lines))
    cases = plain()
    assert said(cases, tmp_path, "line", label="Model").state == TRUE
    assert said(cases, tmp_path, "line", label="Hardware").state == FALSE
    assert said(cases, tmp_path, "note", words=["guardrail"]).state == TRUE
    assert said(cases, tmp_path, "note", words=["deviation"]).state == FALSE


def test_a_full_report_is_read_by_its_sections(tmp_path: Path) -> None:
    """Six numbered headings of the template."""
    titles = ("System Identification", "Test Configuration", "Results")
    (tmp_path / "report.md").write_text("".join(f"## {k}. {title}\n\ntext\n" for k, title in enumerate(titles, 1)))
    assert said(plain(), tmp_path, "section", number=3).state == TRUE
    assert said(plain(), tmp_path, "section", number=4).state == FALSE


@pytest.mark.parametrize("name", sorted(SCENES))
def test_every_check_that_needs_nothing_answers_on_every_scene(name: str, tmp_path: Path) -> None:
    """No check fails on evidence of another kind than it was made for."""
    import inspect

    evidence = SCENES[name]().evidence(tmp_path)
    for function in CHECKS.values():
        given = [p for p in inspect.signature(function).parameters.values() if p.name != "evidence"]
        if all(parameter.default is not inspect.Parameter.empty for parameter in given):
            assert function(evidence).reason or function(evidence).state != FALSE


def test_a_closed_loop_that_only_finds_the_capacity_breaks_no_open_loop() -> None:
    """IETF 5.3.2 asks the levels of the tradeoff to be open; the capacity that they are shares of is another matter."""

    def level(name: str, loop: str) -> MeasuredRun:
        run = SimpleNamespace(manifest={"plan": {"description": {"load": {"loop": loop}}}})
        return MeasuredRun(run, name, {"name": name})  # type: ignore[arg-type]

    found = ComplianceEvidence(Path("p"), (level("capacity, 4 slots", "closed"), level("5 per second", "open")), {})
    assert loop_is(found, names=["open"]).holds
    assert not loop_is(ComplianceEvidence(Path("p"), (level("4 slots", "closed"),), {}), names=["open"]).holds


@pytest.mark.parametrize("check", [named_tbc, lambda evidence: option_follows(evidence, option="A")])
def test_answers_without_an_answer_token_have_no_gaps_to_name(check: Callable[[ComplianceEvidence], Any]) -> None:
    """All reasoning: nothing to call ITL or TBC. Gaps that are missing for another reason stay a fault."""
    metrics = {"ttft": {"n": 0}, "tbc": {"n": 0}, "itl": {"n": 0}, "share_single": {"value": None, "itl_option": "B"}}
    states = []
    for alone in (3, 0):
        document = {"metrics": metrics, "counts": {"all_reasoning": alone}}
        states.append(
            check(ComplianceEvidence(Path("p"), (MeasuredRun(SimpleNamespace(manifest=document), "a"),), {})).state
        )  # type: ignore[arg-type]
    assert states == [INAPPLICABLE, FALSE]


@pytest.mark.parametrize(
    ("cached", "state", "words"),
    [
        ([192], TRUE, "0 of 400"),
        ([0, 192], FALSE, "200 of 400"),
        ([99], FALSE, "400 of 400"),  # less than half of a prefix is another one's beginning
        ([-1, 192], FALSE, "for 200 requests"),
    ],
)
def test_a_warm_cache_is_one_in_which_the_server_found_every_prefix(
    cached: list[int], state: str, words: str, tmp_path: Path
) -> None:
    """Whatever was sent ahead: a plain run's warm-up has prefixes of its own, and fills the cache with those."""
    cases = SCENES["warm_cache"]().copy()
    measured = np.flatnonzero(cases.run.rows["phase"] == layout.MEASURE)
    cases.run.rows["cached_tokens"][measured] = np.resize(cached, len(measured))
    found = said(cases, tmp_path, "prefixes_cached")
    assert found.state == state and words in found.reason


def test_a_warm_cache_needs_something_that_prompts_share(tmp_path: Path) -> None:
    found = said(plain(), tmp_path, "prefixes_cached")
    assert found.state == FALSE and "be filled" in found.reason


def test_short_answers_are_those_that_the_procedure_says_it_left_out(tmp_path: Path) -> None:
    """Answers that came out short, though longer ones were asked for: some may be left out of the gaps, told; not all."""
    cases = itl()
    rows = cases.levels[1].rows
    rows["completion_tokens"][rows["phase"] == layout.MEASURE] = np.where(np.arange(100) < 7, 20, 60)
    cases.levels[1].remeasured()
    found = said(cases, tmp_path / "untold", "long_enough_outputs", tokens=50)
    assert found.state == FALSE and ("7 requests" in found.reason and "50 tokens" in found.reason)
    document(cases)["findings"]["levels"] = [{"short": 0}, {"short": 7}, {"short": 0}, {"short": 0}]
    assert said(cases, tmp_path / "told", "long_enough_outputs", tokens=50).state == TRUE
    rows["completion_tokens"][rows["phase"] == layout.MEASURE] = 20
    document(cases)["findings"]["levels"][1]["short"] = 100
    assert said(cases, tmp_path / "all", "long_enough_outputs", tokens=50).state == FALSE


@pytest.mark.parametrize(
    ("asked", "stream", "state"),
    [(42, "42/arrivals", TRUE), (7, "42/arrivals", FALSE), (42, "7/arrivals", FALSE), (42, "421/arrivals", FALSE)],
)
def test_one_seed_is_reported(asked: int, stream: str, state: str, tmp_path: Path) -> None:
    """What was asked for, what the plan says and what the instants were drawn from are the same seed."""
    cases = plain(40)
    cases.run.manifest["config"].setdefault("client", {})["seed"] = asked
    cases.run.manifest["plan"]["description"]["load"]["arrivals"]["stream"] = stream
    assert said(cases, tmp_path, "seed_reported").state == state


def test_a_warm_up_is_what_its_rows_say(tmp_path: Path) -> None:
    """procedure.json claims enough; of the requests in the warm-up's own folder most failed."""
    warm = plain(120).run.run(tmp_path / "warm")
    measured = np.flatnonzero(warm.rows["phase"] == layout.MEASURE)
    warm.rows["completion_tokens"] = 100
    evidence = dataclasses.replace(ttft(1_000).evidence(tmp_path / "p"), warmups=(warm,))
    assert CHECKS["enough"](evidence).state == TRUE
    warm.rows["status"][measured[12:]] = layout.TIMEOUT
    found = CHECKS["enough"](evidence)
    assert found.state == FALSE and "the warm-up had 12 successful requests and 1,200" in found.reason


def probe_series(*ttft_ms: float) -> list[dict[str, float]]:
    return [{"ttft_ms": value, "e2e_ms": value} for value in ttft_ms]


SHORT = {"requests": 12, "tokens": 1_200}
ENOUGH = {"requests": 120, "tokens": 12_000, "probe_before": {}, "probes": probe_series(1, 1, 1, 1, 1)}


@pytest.mark.parametrize(
    ("second", "check", "words"),
    [
        (SHORT, "enough", "warm-up 2 of 2 had 12 successful requests and 1,200 output tokens"),
        ({"probe_before": None}, "probed", "0 probe before and 5 after"),
        ({"probes": probe_series(1, 2, 1, 2, 1)}, "stable", "at most 100.0%"),
        ({"probes": probe_series(1, 1)}, "stable", "2 probes"),
    ],
)
def test_each_of_several_warm_ups_is_judged(second: dict[str, Any], check: str, words: str, tmp_path: Path) -> None:
    """After every restart the system is cold again, so each warm-up must be complete."""
    cases = ttft()
    document(cases)["warmups"] = [ENOUGH, ENOUGH]
    assert said(cases, tmp_path / "whole", check).state == TRUE
    for pair in ([ENOUGH, ENOUGH | second], [ENOUGH | second, ENOUGH]):
        document(cases)["warmups"] = pair
        found = said(cases, tmp_path / "broken", check)
        assert found.state == FALSE and words.split(" had ")[-1] in found.reason
    assert words in said(broken_second(cases, second), tmp_path / "second", check).reason


def broken_second(cases: Cases, second: dict[str, Any]) -> Cases:
    document(cases)["warmups"] = [ENOUGH, ENOUGH | second]
    return cases


def test_each_warm_up_has_the_rows_of_its_own_runs(tmp_path: Path) -> None:
    """Many requests in one folder do not stand for those that failed in another."""
    good, bad = (plain(120).run.run(tmp_path / name) for name in ("01-002-warm-up", "01-007-warm-up"))
    for run in (good, bad):
        run.rows["completion_tokens"] = 100
    bad.rows["status"][np.flatnonzero(bad.rows["phase"] == layout.MEASURE)[12:]] = layout.TIMEOUT
    cases = ttft(1_000)
    document(cases)["warmups"] = [ENOUGH | {"folders": [run.directory.name]} for run in (good, bad)]
    evidence = dataclasses.replace(cases.evidence(tmp_path / "p"), warmups=(good, bad))
    found = CHECKS["enough"](evidence)
    assert found.state == FALSE and "warm-up 2 of 2 had 12 successful requests and 1,200" in found.reason


def repetition(number: int, model: str, start: int | None = None) -> Cases:
    """A run of *model* at the arrivals of a repetition, begun at *start*."""
    found = plain().declare(sut__model__name=model)
    stream = f"42/arrivals/{number}"
    for described in (found.run.manifest["plan"]["description"], found.run.plan["description"]):
        described["load"] = {**described["load"], "arrivals": {**described["load"]["arrivals"], "stream": stream}}
    found.run.manifest["plan"]["digest"] = f"d{number}"
    found.run.manifest["environment"] = {"time_utc": f"2026-01-02T03:04:{number if start is None else start:02d}Z"}
    return found


def compared_runs(*runs: Cases) -> Cases:
    return Cases(runs[0].levels, others=list(runs[1:]))


@pytest.mark.parametrize(
    ("runs", "state", "words"),
    [
        ([("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1), ("b", 2)], TRUE, "runs per system: 3, 3"),
        ([("a", 0), ("b", 0), ("b", 1)], FALSE, "runs per system: 1, 2"),
        ([("a", 0), ("a", 0), ("a", 0), ("b", 0), ("b", 1), ("b", 2)], FALSE, "system: 1, 3"),
    ],
)
def test_three_independent_runs_of_each_system(
    runs: list[tuple[str, int]], state: str, words: str, tmp_path: Path
) -> None:
    """Not three of all together, and not three at the same arrivals."""
    cases = compared_runs(*(repetition(number, model, k) for k, (model, number) in enumerate(runs)))
    outcome = said(cases, tmp_path, "repeated")
    assert outcome.state == state and words in outcome.reason


def test_a_copy_is_no_further_run(tmp_path: Path) -> None:
    """It began when the other did."""
    cases = compared_runs(*(repetition(0, "a") for _ in range(3)))
    assert "runs per system: 1" in said(cases, tmp_path, "repeated").reason


def test_levels_are_no_runs(tmp_path: Path) -> None:
    """A search over five levels has measured a system once."""
    cases = throughput()
    cases.others = [throughput()]
    assert "runs per system: 1" in said(cases, tmp_path, "repeated").reason


def test_constant_arrivals_need_no_other_seeds(tmp_path: Path) -> None:
    """Nothing is drawn, so that runs at the same instants are as independent as they can be."""
    runs = [repetition(0, "a", k) for k in range(3)]
    for run in runs:
        run.run.manifest["plan"]["description"]["load"]["arrivals"]["name"] = "constant"
    assert said(compared_runs(*runs), tmp_path, "repeated").state == TRUE


@pytest.mark.parametrize(("last", "state"), [(2, TRUE), (3, FALSE)])
def test_each_repetition_has_its_like_on_the_other_side(last: int, state: str, tmp_path: Path) -> None:
    """Repetitions differ in their arrivals; systems must not."""
    runs = [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1), ("b", last)]
    cases = compared_runs(*(repetition(number, model, k) for k, (model, number) in enumerate(runs)))
    outcome = said(cases, tmp_path, "same_load")
    assert outcome.state == state
    assert "poisson (42/arrivals/2)" in outcome.reason


def test_equal_hardware_is_not_normalised(tmp_path: Path) -> None:
    """IETF 6.2 is about hardware that differs."""
    cases = compared_runs(repetition(0, "a"), repetition(0, "b"))
    assert why_not(cases.evidence(tmp_path / "1"), ["unequal_hardware"]) == "the hardware is equal"
    cases.others[0].declare(sut__hardware__count="8")
    assert why_not(cases.evidence(tmp_path / "2"), ["unequal_hardware"]) is None


def test_classes_of_length_belong_to_prompts_that_differ(tmp_path: Path) -> None:
    """IETF 5.1.4.2: of one length there is no such table, and nothing to be remedied."""
    cases = ttft(1_000)
    assert why_not(cases.evidence(tmp_path / "0"), ["lengths"]) is None
    cases.run.rows["input_target"] = 128
    assert why_not(cases.evidence(tmp_path / "1"), ["lengths"]) == "no two answered prompts differ in length"
    cases.run.rows["status"] = layout.OK + 1
    assert why_not(cases.evidence(tmp_path / "2"), ["lengths"]) == "no two answered prompts differ in length"
