"""Single checks on evidence that is at the border of what they accept."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from case_builder import Cases
from compliance_scenes import SCENES, gateway, itl, plain, throughput, ttft
from typed_documents import typed

from fastllmload.compliance.applies import why_not
from fastllmload.compliance.checks import clocks, comparison, streaming, tests, warmup, workload
from fastllmload.compliance.checks.load import arrivals_redrawn, loop_is
from fastllmload.compliance.evidence import ComplianceEvidence, MeasuredRun
from fastllmload.compliance.outcome import FALSE, TRUE, RequirementOutcome
from fastllmload.compliance.statement import Check
from fastllmload.documents.experiment import LevelEntry
from fastllmload.documents.procedure import ProcedureDocument
from fastllmload.records import layout


def said(cases: Cases, folder: Path, check: Check) -> RequirementOutcome:
    return check(cases.evidence(folder))


def document(cases: Cases) -> dict[str, Any]:
    assert cases.procedure is not None
    return cases.procedure


@pytest.mark.parametrize(("label", "state"), [("256-511", TRUE), ("300-511", FALSE)])
def test_buckets_begin_where_they_should(label: str, state: str, tmp_path: Path) -> None:
    """Edges are those of the recommendation, where lengths vary."""
    cases = ttft(1_000)
    document(cases)["tables"][1]["rows"][1][0] = label
    assert said(cases, tmp_path, tests.length_classes).state == state


def test_shares_of_the_capacity_are_those_asked_for(tmp_path: Path) -> None:
    """Loads over the capacity that was found; each of the shares is there."""
    assert said(itl(), tmp_path, tests.fractions(0.25, 0.5, 0.75, 0.9)).state == TRUE
    assert said(itl(), tmp_path, tests.fractions(0.25, 0.6)).state == FALSE


def test_a_round_trip_is_reported_and_near(tmp_path: Path) -> None:
    """Connect times of the checks before the run, where no connection of a request was timed."""
    cases = gateway()
    assert said(cases, tmp_path, clocks.rtt_reported).state == TRUE
    cases.run.manifest["target"]["connect_ms"] = [30.0, 31.0, 32.0]
    cases.run.remeasured()
    cases.run.manifest["target"]["connect_ms"] = []
    cases.run.remeasured()


@pytest.mark.parametrize(("rate", "state"), [(50.0, TRUE), (0, FALSE), (-1.0, FALSE), (1e9, FALSE)])
def test_a_rate_that_no_option_gives_draws_no_schedule(rate: float, state: str, tmp_path: Path) -> None:
    """It is a finding about the folder, and no error of the command that judges it."""
    cases = plain(10)
    cases.run.manifest["plan"]["description"]["load"]["arrivals"]["rate"] = rate
    assert said(cases, tmp_path, arrivals_redrawn("poisson")).state == state


@pytest.mark.parametrize(("bound_ns", "state"), [(80_000, TRUE), (10_000_001, FALSE), (None, FALSE)])
def test_clocks_of_several_hosts_of_the_client_are_stated_as_compared(
    bound_ns: int | None, state: str, tmp_path: Path
) -> None:
    """IETF 4.7.2: method and accuracy are measured and need no declaration; the accuracy is that of the worst host."""
    cases = gateway()
    assert "one clock" in said(cases, tmp_path, clocks.synchronised).reason
    facts = [{"bound_ns": 50_000}, None if bound_ns is None else {"bound_ns": bound_ns}]
    cases.run.manifest["hosts"] = [{"host": number, "clock": clock} for number, clock in enumerate(facts)]
    assert said(cases, tmp_path, clocks.synchronised).state == state
    stated = said(cases, tmp_path, clocks.synchronisation_stated("clock.accuracy_ms"))
    if bound_ns is not None:
        assert stated.state == TRUE and f"{bound_ns / 1e6:.3g} ms" in stated.reason
    else:
        assert stated.state == FALSE
    cases.run.manifest["excluded_hosts"] = [1]
    assert said(cases, tmp_path, clocks.synchronised).state == TRUE


def test_protocols_of_classes_are_all_reported(tmp_path: Path) -> None:
    """One class over server-sent events and one over NDJSON: both are named, and neither alone is recommended."""
    cases = gateway()
    assert said(cases, tmp_path, streaming.protocol_is("sse")).state == TRUE
    cases.run.manifest["target"]["classes"] = [
        {"endpoint_type": "openai-completions"},
        {"endpoint_type": "ollama-chat"},
    ]
    found = said(cases, tmp_path, streaming.protocol_reported)
    assert found.state == TRUE and "sse and ndjson" in found.reason
    assert said(cases, tmp_path, streaming.protocol_is("sse")).state == FALSE


def test_a_closed_loop_that_only_finds_the_capacity_breaks_no_open_loop() -> None:
    """IETF 5.3.2 asks the levels of the tradeoff to be open; the capacity that they are shares of is another matter."""

    def level(name: str, loop: str) -> MeasuredRun:
        run = SimpleNamespace(document=typed({"plan": {"description": {"load": {"loop": loop}}}}))
        return MeasuredRun(run, name, LevelEntry(name=name))  # type: ignore[arg-type]

    found = ComplianceEvidence(
        Path("p"), (level("capacity, 4 slots", "closed"), level("5 per second", "open")), ProcedureDocument()
    )
    assert loop_is("open")(found).holds
    assert not loop_is("open")(ComplianceEvidence(Path("p"), (level("4 slots", "closed"),), ProcedureDocument())).holds


@pytest.mark.parametrize(
    ("cached", "state", "words"),
    [
        ([192], TRUE, "0 of 400"),
        ([0, 192], FALSE, "200 of 400 requests"),
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
    found = said(cases, tmp_path, warmup.prefixes_cached)
    assert found.state == state and words in found.reason


def test_a_warm_cache_needs_something_that_prompts_share(tmp_path: Path) -> None:
    found = said(plain(), tmp_path, warmup.prefixes_cached)
    assert found.state == FALSE and "be filled" in found.reason


def test_short_answers_are_those_that_the_procedure_says_it_left_out(tmp_path: Path) -> None:
    """Answers that came out short, though longer ones were asked for: a note says which gaps lack them; not all may."""
    cases = itl()
    rows = cases.levels[1].rows
    rows["completion_tokens"][rows["phase"] == layout.MEASURE] = np.where(np.arange(100) < 7, 20, 60)
    cases.levels[1].remeasured()
    found = said(cases, tmp_path / "untold", tests.long_enough_outputs(50))
    assert found.state == FALSE and (
        "7 requests" in found.reason and "50 tokens" in found.reason and "0 were excluded" in found.reason
    )
    document(cases)["findings"]["levels"] = [{"short": 0}, {"short": 7}, {"short": 0}, {"short": 0}]
    assert said(cases, tmp_path / "reported", tests.long_enough_outputs(50)).state == TRUE
    rows["completion_tokens"][rows["phase"] == layout.MEASURE] = 20
    document(cases)["findings"]["levels"][1]["short"] = 100
    assert said(cases, tmp_path / "all", tests.long_enough_outputs(50)).state == FALSE


@pytest.mark.parametrize(
    ("asked", "stream", "state"),
    [(42, "42/arrivals", TRUE), (7, "42/arrivals", FALSE), (42, "7/arrivals", FALSE), (42, "421/arrivals", FALSE)],
)
def test_one_seed_is_reported(asked: int, stream: str, state: str, tmp_path: Path) -> None:
    """What was asked for, what the plan says and what the instants were drawn from are the same seed."""
    cases = plain(40)
    cases.run.manifest["config"].setdefault("client", {})["seed"] = asked
    cases.run.manifest["plan"]["description"]["load"]["arrivals"]["stream"] = stream
    assert said(cases, tmp_path, workload.seed_reported).state == state


def test_a_warm_up_is_what_its_rows_say(tmp_path: Path) -> None:
    """procedure.json claims enough; of the requests in the warm-up's own folder most failed."""
    warm = plain(120).run.run(tmp_path / "warm")
    measured = np.flatnonzero(warm.rows["phase"] == layout.MEASURE)
    warm.rows["completion_tokens"] = 100
    evidence = dataclasses.replace(ttft(1_000).evidence(tmp_path / "p"), warmups=(warm,))
    assert warmup.enough(evidence).state == TRUE
    warm.rows["status"][measured[12:]] = layout.TIMEOUT
    found = warmup.enough(evidence)
    assert found.state == FALSE and "the warm-up had 12 successful requests and 1,200" in found.reason


def probe_series(*ttft_ms: float) -> list[dict[str, float]]:
    return [{"ttft_ms": value, "e2e_ms": value} for value in ttft_ms]


SHORT = {"requests": 12, "tokens": 1_200}
ENOUGH = {"requests": 120, "tokens": 12_000, "probe_before": {}, "probes": probe_series(1, 1, 1, 1, 1)}


@pytest.mark.parametrize(
    ("second", "check", "words"),
    [
        (SHORT, warmup.enough, "warm-up 2 of 2 had 12 successful requests and 1,200 output tokens"),
        ({"probe_before": None}, warmup.probed, "0 probe before and 5 after"),
        ({"probes": probe_series(1, 2, 1, 2, 1)}, warmup.stable, "by at most 100.0%"),
        ({"probes": probe_series(1, 1)}, warmup.stable, "2 probes"),
    ],
)
def test_each_of_several_warm_ups_is_judged(second: dict[str, Any], check: Check, words: str, tmp_path: Path) -> None:
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
    """Many requests in one folder do not make up for those that failed in another."""
    good, bad = (plain(120).run.run(tmp_path / name) for name in ("01-002-warm-up", "01-007-warm-up"))
    for run in (good, bad):
        run.rows["completion_tokens"] = 100
    bad.rows["status"][np.flatnonzero(bad.rows["phase"] == layout.MEASURE)[12:]] = layout.TIMEOUT
    cases = ttft(1_000)
    document(cases)["warmups"] = [ENOUGH | {"folders": [run.directory.name]} for run in (good, bad)]
    evidence = dataclasses.replace(cases.evidence(tmp_path / "p"), warmups=(good, bad))
    found = warmup.enough(evidence)
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
    outcome = said(cases, tmp_path, comparison.repeated)
    assert outcome.state == state and words in outcome.reason


def test_a_copy_is_not_a_further_run(tmp_path: Path) -> None:
    """It began when the other did."""
    cases = compared_runs(*(repetition(0, "a") for _ in range(3)))
    assert "runs per system: 1" in said(cases, tmp_path, comparison.repeated).reason


def test_levels_are_not_runs(tmp_path: Path) -> None:
    """A search over five levels has measured a system once."""
    cases = throughput()
    cases.others = [throughput()]
    assert "runs per system: 1" in said(cases, tmp_path, comparison.repeated).reason


def test_constant_arrivals_need_no_other_seeds(tmp_path: Path) -> None:
    """Nothing is drawn, so that runs at the same instants are as independent as they can be."""
    runs = [repetition(0, "a", k) for k in range(3)]
    for run in runs:
        run.run.manifest["plan"]["description"]["load"]["arrivals"]["name"] = "constant"
    assert said(compared_runs(*runs), tmp_path, comparison.repeated).state == TRUE


@pytest.mark.parametrize(("last", "state"), [(2, TRUE), (3, FALSE)])
def test_each_repetition_has_its_like_on_the_other_side(last: int, state: str, tmp_path: Path) -> None:
    """Repetitions differ in their arrivals; systems must not."""
    runs = [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1), ("b", last)]
    cases = compared_runs(*(repetition(number, model, k) for k, (model, number) in enumerate(runs)))
    outcome = said(cases, tmp_path, comparison.same_load)
    assert outcome.state == state
    assert "poisson (42/arrivals/2)" in outcome.reason


def test_equal_hardware_is_not_normalised(tmp_path: Path) -> None:
    """IETF 6.2 is about hardware that differs."""
    cases = compared_runs(repetition(0, "a"), repetition(0, "b"))
    assert why_not(cases.evidence(tmp_path / "1"), ["unequal_hardware"]) == "the hardware is equal"
    cases.others[0].declare(sut__hardware__count="8")
    assert why_not(cases.evidence(tmp_path / "2"), ["unequal_hardware"]) is None
