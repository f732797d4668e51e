"""Verdicts on whole runs: what fires on an overloaded slot server, what does not apply, when the client is to blame."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace as replace_struct
from slot_runs import SlotTarget, closed_loop, write_rows
from slot_server import SlotServer
from synthetic_run import ORIGIN_NS, Shape, draw_requests, duration_phase, write_manifest, write_workers
from typed_documents import with_keys

from fastllmload.experiment.level import verdict as module
from fastllmload.experiment.level.evidence import ALL, FAILED, evidence_of, growth
from fastllmload.experiment.level.limits import judge_limits
from fastllmload.experiment.level.margins import drift_ends
from fastllmload.experiment.level.result import Level
from fastllmload.experiment.level.verdict import IN_FLIGHT, TOO_SHORT, Lowest, in_flight_of, judge_level, lowest_of
from fastllmload.metrics.objectives.objective import Objective
from fastllmload.metrics.objectives.report import slo_ok
from fastllmload.metrics.run.window import window_of
from fastllmload.procedure.tests import capacity
from fastllmload.records import layout
from fastllmload.records.run import Run, load
from fastllmload.settings import Load, Output, RunSettings
from fastllmload.statistics.sequential_tests import Decision

pytestmark = pytest.mark.slow

PASS, FAIL, CLIENT = Decision.PASS, Decision.FAIL, Decision.CLIENT
SERVER = SlotServer(32, 1.0)
BUSY = {"code": "cpu", "severity": "suspect", "limits_generator": True, "text": "a worker used 93 % of its core"}
WANT_OF_CPU = {"generator_limited": True, "reasons": [BUSY], "offered_rate": 16.0, "planned_rate": 16.0}


class Silent:
    def finish(self, document: Any, folder: str) -> None:
        """Nothing to show."""


def measured(folder: Path, rate: float, seconds: float = 100.0, **target: Any) -> Run:
    """A level of the slot server in simulated time."""
    settings = RunSettings(load=Load(rate=rate, duration=seconds), output=Output(directory=str(folder)))
    SlotTarget(SERVER, **target).execute(settings, None, Silent(), None)
    return load(folder)


def closed(folder: Path, slots: int, **target: Any) -> Run:
    settings = RunSettings(load=Load(concurrency=slots, duration=100.0), output=Output(directory=str(folder)))
    SlotTarget(SERVER, **target).execute(settings, None, Silent(), None)
    return load(folder)


def test_an_overload_fires_all_three_criteria(tmp_path: Path) -> None:
    """1.5 times the capacity: the queue grows, two thirds are completed, P99 TTFT is far above that of the lowest."""
    low = measured(tmp_path / "low", 8)
    verdict = judge_level(measured(tmp_path / "high", 48), lowest_of(low))
    assert verdict.saturated is True and verdict.decision is FAIL
    assert verdict.fired == ("queue growing", "completion", "latency")
    assert dict(verdict.inapplicable).keys() == {"no gain"} and "closed loops" in dict(verdict.inapplicable)["no gain"]
    assert verdict.figures.completion_rate == pytest.approx(2 / 3, abs=0.05)
    assert verdict.figures.in_flight_last > 1_000
    assert not verdict.cascading and verdict.limits == ()


def test_a_level_below_the_capacity_holds(tmp_path: Path) -> None:
    """Half of the capacity: nothing fires, throughput is steady, all arrivals are completed."""
    verdict = judge_level(measured(tmp_path / "run", 16))
    assert verdict.saturated is False and verdict.steady is True and verdict.decision is PASS
    assert verdict.fired == () and verdict.loop == "open"
    assert verdict.figures.completion_rate == pytest.approx(1, abs=0.03)
    assert verdict.figures.output_tok_s == pytest.approx(16 * 20, rel=0.15)
    assert verdict.figures.in_flight_mean == pytest.approx(16, rel=0.25)  # Little's law


def test_a_late_client_fails_only_what_fails_whatever_it_did_late(tmp_path: Path) -> None:
    """The same overload with releases 20 ms late is decided: the queue grows by a thousand, TTFT is in minutes. Below the
    capacity the level still holds.
    """
    low = lowest_of(measured(tmp_path / "low", 8))
    verdict = judge_level(measured(tmp_path / "high", 48, late_above=1), low)
    assert "dispatch lag is 20 ms, above 1 ms" in verdict.limits[0]
    assert verdict.saturated is True and verdict.decision is FAIL and not verdict.generator_limited
    assert verdict.fired == ("queue growing", "completion", "latency") and verdict.in_question == ()
    assert "dispatch lag is 20 ms" in verdict.why()
    half = judge_level(measured(tmp_path / "half", 16, late_above=1))
    assert half.limits and half.decision is PASS and not half.generator_limited


@pytest.mark.parametrize(
    ("margin_ms", "saturated", "decision"),
    [
        (-2.5, True, FAIL),  # far above the limit
        (-0.7, None, CLIENT),  # it may have been within, had nothing been sent late
        (0.7, None, CLIENT),  # its users waited for what was sent late as well: it may have been above
        (20.0, False, PASS),  # far within
    ],
)
def test_a_lag_counts_unless_the_margin_is_larger(
    tmp_path: Path, margin_ms: float, saturated: bool | None, decision: Decision
) -> None:
    """Releases 1.5 ms late, and a limit of P99 TTFT *margin_ms* above what was measured. In time, both sides are decided."""
    run = measured(tmp_path / "run", 16, late_above=1, late_s=0.0015)
    p99 = judge_level(run).figures.ttft_p99_ms
    assert p99 is not None
    limit = (p99 + margin_ms) / 10
    late = judge_level(run, Lowest(1.0, limit, limit, 0.1))
    assert (late.saturated, late.decision, late.generator_limited) == (saturated, decision, decision is CLIENT)
    assert late.in_question == (("latency",) if decision is CLIENT else ())
    assert late.limits and late.fired == (("latency",) if margin_ms < 0 else ())
    in_time = judge_level(measured(tmp_path / "in time", 16), Lowest(1.0, limit, limit, 0.1))
    assert in_time.limits == () and in_time.decision is (PASS if in_time.figures.ttft_p99_ms <= 10 * limit else FAIL)


def test_the_p50_of_the_lowest_level_is_not_exact_either(tmp_path: Path) -> None:
    """Ten times 20 us of a late read are the margin of 0.1 ms; a P50 that is exact leaves it."""
    run = measured(tmp_path / "run", 16, late_above=1, late_s=0.0011)
    p99 = judge_level(run).figures.ttft_p99_ms
    assert p99 is not None
    p50 = (p99 + 2.0) / 10
    exact = Lowest(1.0, p50, p50, 0.1)
    assert judge_level(run, exact).saturated is False
    assert judge_level(run, replace_struct(exact, p50_ends=(p50 - 0.2, p50))).in_question == ("latency",)


def test_slots_that_stood_empty_may_be_why_more_of_them_gained_nothing(tmp_path: Path) -> None:
    """A closed loop in which every dispatch is 20 ms late, with requests of 1 s: 2 % of throughput are uncertain, and the
    rule requires 5 % more than the lower level had.
    """
    run = closed(tmp_path / "run", 32, late_above=1)
    rate = judge_level(run).figures.output_tok_s
    assert rate is not None
    for lower, saturated in ((1.2, True), (1.06, True), (0.96, None), (0.94, None), (0.8, False)):
        assert judge_level(run, None, [(16, lower * rate)]).saturated is saturated, lower


@pytest.mark.parametrize(("margin_ms", "said"), [(-2.5, FAIL), (-0.7, CLIENT), (0.7, CLIENT), (20.0, PASS)])
def test_an_objective_on_ttft_is_held_against_both_ends(tmp_path: Path, margin_ms: float, said: Decision) -> None:
    """Releases 1.5 ms late and a limit *margin_ms* above P99: of the throughput and of the capacity test. What lies between
    tokens was not sent late, so a limit of TPOT just missed stays missed.
    """
    run = measured(tmp_path / "run", 16, late_above=1, late_s=0.0015)
    found = Level(0, "16 per second", RunSettings(), tmp_path / "run", run.document)
    p99, tpot = found.figure("ttft", "p99"), found.figure("tpot", "p99")
    assert p99 is not None and tpot is not None
    assert judge_limits(found, {"ttft": p99 + margin_ms}, late=True) is said
    assert judge_limits(found, {"ttft": p99 + margin_ms}, late=False) is (PASS if margin_ms > 0 else FAIL)
    assert judge_limits(found, {"ttft": p99 + margin_ms, "tpot": tpot - 0.1}, late=True) is FAIL
    limited = replace(found, document=with_keys(run, certificate={"generator_limited": True}).document)
    assert capacity.judge(limited, capacity.Parameters(slo_ttft_p99_ms=p99 + margin_ms)) is said


def test_requests_that_did_not_end_are_part_of_the_latency(tmp_path: Path) -> None:
    """P99 of those that ended is far below 10 s, at both ends; with those that did not it is at least 60 s."""
    low, high = measured(tmp_path / "low", 8), measured(tmp_path / "run", 16)
    found = Level(0, "16 per second", RunSettings(), tmp_path / "run", high.document)
    assert judge_limits(found, {"ttft": 10_000.0}, late=False) is PASS and not judge_level(high, lowest_of(low)).fired
    ttft = {**high.manifest["metrics"]["ttft"], "unfinished_bounds": {"p99": {"low": 60_000.0, "high": None}}}
    manifest = {**high.manifest, "metrics": {**high.manifest["metrics"], "ttft": ttft}}
    (tmp_path / "run" / "run.json").write_text(json.dumps(manifest))
    found = replace(found, document=load(tmp_path / "run").document)
    assert found.figure("ttft", "p99") == 60_000.0
    assert {judge_limits(found, {"ttft": 10_000.0}, late) for late in (False, True)} == {FAIL}
    assert judge_level(load(tmp_path / "run"), lowest_of(low)).fired == ("latency",)


@pytest.mark.parametrize(
    ("status", "error", "failed", "said"),
    [
        (layout.HTTP_ERROR, "", 0.05, False),  # the server's own
        (layout.CONNECTION_ERROR, "no_port", 0.05, None),  # ours
        (layout.CONNECTION_ERROR, "body_too_large", 0.05, None),  # ours: no memory was left for it
        (layout.PROTOCOL_ERROR, "body_too_large", 0.05, False),
        (layout.CANCELLED, "", 0.05, False),  # far more than end within 1.5 ms
        (layout.CANCELLED, "", 0.01, None),
        (layout.OK, "", 0.05, True),
    ],
)
def test_requests_that_the_server_failed_are_not_the_clients(
    tmp_path: Path, status: int, error: str, failed: float, said: bool | None
) -> None:
    """More than the 1 % that may be incomplete, by one request where nearly none could have ended 1.5 ms earlier."""
    run = measured(tmp_path / "run", 16, seconds=1000.0, late_above=1, late_s=0.0015)
    window = window_of(run)
    assert window is not None
    rows = np.array(run.rows)
    inside = np.flatnonzero(window.holds(rows["t_submit"]))
    spoilt = inside[: math.floor(failed * len(inside)) + 1]
    share = 1.0 if status == layout.OK else 1 - len(spoilt) / len(inside)
    rows["status"][spoilt] = status
    rows["error"][spoilt] = layout.ERROR_NAMES.index(error) if error else 0
    document = {"certificate": {"generator_limited": True}, "metrics": {"success_rate": {"value": share}}}
    found = SimpleNamespace(run=replace(run, rows=rows), success_rate=share, generator_limited=True, document=document)
    assert capacity.complete(found) is said  # type: ignore[arg-type]


def test_a_trend_that_the_lag_may_have_made_is_in_question() -> None:
    """Tokens in time decide with those that were measured."""
    flat, rising, falling = np.full(10, 100.0), np.linspace(94.0, 107.0, 10), np.linspace(107.0, 94.0, 10)
    assert drift_ends(rising, rising) is True and drift_ends(flat, flat) is False
    assert drift_ends(rising, flat) is None and drift_ends(flat, rising) is None and drift_ends(rising, falling) is None


def test_one_stall_puts_no_steady_level_in_question(tmp_path: Path) -> None:
    """The requests of 0.9 s before the end are sent together: no trend is made by that, and a server without a queue had
    none. It may have had one where requests are sent later and later.
    """
    run = measured(tmp_path / "run", 16)
    window = window_of(run)
    assert window is not None
    rows = np.array(run.rows)
    stalled = (rows["t_sched"] > window.w1_ns - round(1e9)) & (rows["t_sched"] < window.w1_ns - round(0.1e9))
    rows["t_dispatch"][stalled] = window.w1_ns - round(0.1e9)
    late = with_keys(replace(run, rows=rows), certificate=WANT_OF_CPU)
    verdict = judge_level(late, queue=np.zeros(180))
    assert stalled.any() and verdict.limits and verdict.decision is PASS and verdict.in_question == ()
    later = (rows["t_sched"] > window.w0_ns + round(10e9)) & (rows["t_sched"] < window.w1_ns)
    rows["t_dispatch"][later] += np.linspace(0, 3e9, int(later.sum())).astype(np.int64)
    assert judge_level(replace(late, rows=rows), queue=np.zeros(180)).in_question == ("queue growing",)


def test_a_limited_client_that_did_not_offer_the_load_passes_nothing(tmp_path: Path) -> None:
    """A pass below the planned rate does not count as a pass at the planned rate."""
    run = measured(tmp_path / "run", 16, late_above=1)
    slow = {"offered_rate": 12.0, "planned_rate": 16.0}
    verdict = judge_level(with_keys(run, certificate=slow))
    assert verdict.saturated is False and not verdict.offered_in_full and verdict.decision is CLIENT


def test_want_of_ports_and_the_certificate_limit_the_client(tmp_path: Path) -> None:
    """Both by their own words, each once."""
    run = measured(tmp_path / "run", 16)
    rows = np.array(run.rows)
    rows["error"][:3] = layout.ERROR_NAMES.index("no_port")
    reasons = [
        {"code": "cpu", "severity": "suspect", "limits_generator": True, "text": "a worker used 93 % of its core"},
        {"code": "gc", "severity": "suspect", "limits_generator": False, "text": "the garbage collector ran"},
        {"code": "headroom", "severity": "note", "limits_generator": True, "text": "headroom of 1.9x"},
    ]
    certificate = {"generator_limited": True, "reasons": reasons}
    verdict = judge_level(with_keys(replace(run, rows=rows), certificate=certificate))
    requests, core = verdict.limits
    assert requests.startswith("3 requests ") and core == "a worker used 93 % of its core"


def test_the_latency_criterion_does_not_apply_where_lengths_do_it(tmp_path: Path) -> None:
    """The lowest level's own P99 is above ten times its P50: said, and not counted."""
    verdict = judge_level(measured(tmp_path / "run", 16), Lowest(1.0, 5.0, 60.0))
    assert (
        "(1) P99 TTFT is" in dict(verdict.inapplicable)["latency"]
        and "12 times" in dict(verdict.inapplicable)["latency"]
        and "P50" in dict(verdict.inapplicable)["latency"]
    )


def test_a_closed_loop_is_saturated_when_more_slots_gain_nothing(tmp_path: Path) -> None:
    """32 places: 16 to 32 doubles the tokens, 32 to 64 adds none; queue and completions do not apply."""
    at = {slots: closed(tmp_path / str(slots), slots) for slots in (16, 32, 64)}
    rates = {slots: judge_level(run).figures.output_tok_s for slots, run in at.items()}
    assert rates[32] == pytest.approx(2 * rates[16], rel=0.1)
    assert judge_level(at[32], None, [(16, rates[16])]).saturated is False
    verdict = judge_level(at[64], None, [(16, rates[16]), (32, rates[32])])
    assert verdict.saturated is True and verdict.fired == ("no gain",) and verdict.loop == "closed"
    assert set(dict(verdict.inapplicable)) == {"queue growing", "completion"}


def test_a_drift_of_the_throughput_is_not_steady(tmp_path: Path) -> None:
    """A run whose tokens rise from part to part, without a growing queue, is unsteady: to be run again, longer."""
    folder = tmp_path / "run"
    measured(folder, 16)
    served = SERVER.serve(16, 100.0, np.random.default_rng(1))
    kept = np.random.default_rng(2).random(len(served.arrive)) < 0.2 + 0.008 * served.arrive
    thin = replace(served, arrive=served.arrive[kept], begin=served.begin[kept], end=served.end[kept])
    write_rows(folder, thin, late_s=10e-6, broken=False)
    verdict = judge_level(load(folder), queue=np.full(100, 16.0))
    assert verdict.steady is False and verdict.saturated is False and verdict.unsteady and verdict.decision is FAIL


def test_a_level_shorter_than_ten_requests_is_warned_about(tmp_path: Path) -> None:
    """Mean e2e of 1 s in a level of 8 s."""
    verdict = judge_level(measured(tmp_path / "run", 16, seconds=8.0))
    assert any(text.endswith(TOO_SHORT) for text in verdict.warnings)


def test_a_broken_server_cascades(tmp_path: Path) -> None:
    """Every request fails: no completion, no token, nothing steady."""
    verdict = judge_level(measured(tmp_path / "run", 16, broken_above=1))
    assert verdict.cascading and verdict.saturated is True and "completion" in verdict.fired and verdict.steady is None


def test_a_gauge_of_the_server_is_used_in_place_of_the_requests_in_flight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A growing gauge makes a level saturated whose requests in flight do not grow; the verdict names the source of the
    queue, and also has the requests in flight.
    """
    run = measured(tmp_path / "run", 16)
    assert judge_level(run).queue == IN_FLIGHT
    with monkeypatch.context() as patched:
        patched.setattr(module, "waiting", lambda run, window: (np.linspace(0, 50, 100), "vllm:num_requests_waiting"))
        verdict = judge_level(run)
    assert verdict.queue == "vllm:num_requests_waiting" and verdict.fired == ("queue growing",)
    assert verdict.figures.queue_last == 50 and verdict.figures.in_flight_mean == pytest.approx(16, rel=0.25)
    assert judge_level(run, queue=np.linspace(0, 50, 100)).fired == ("queue growing",)
    window = window_of(run)
    assert window is not None and len(in_flight_of(run, window)) == 180


def test_an_empty_run_says_nothing(tmp_path: Path) -> None:
    """No window: neither saturated nor steady."""
    folder = tmp_path / "run"
    folder.mkdir()
    np.save(folder / "requests.npy", np.zeros(0, layout.REQUEST))
    np.save(folder / "tokens.npy", np.zeros(0, layout.EVENT))
    write_manifest(folder)
    verdict = judge_level(load(folder))
    assert verdict.saturated is None and verdict.steady is None and verdict.warnings == ("nothing was measured",)
    assert evidence_of(load(folder), (), 54.0) is None


# -- evidence ---------------------------------------------------------------------------------------------------------


def test_severities_are_above_one_exactly_where_an_objective_is_missed(tmp_path: Path) -> None:
    """Over made-up requests of every kind and every objective: the same requests as `slo` counts, failed ones inf."""
    folder = tmp_path / "run"
    folder.mkdir()
    write_workers(folder, draw_requests(4, Shape(requests=300)))
    write_manifest(folder, phases=[duration_phase(ORIGIN_NS, 6.0)])
    run = load(folder)
    asked = (
        Objective("ttft", 80.0), Objective("tpot", 15.0), Objective("itl", 40.0), Objective("e2el", 400.0),
        Objective("reading", 20.0), Objective("fluidity", 0.9), Objective("idle", 200.0), Objective("ttft", 60.0, "1"),
    )  # fmt: skip
    found = evidence_of(run, asked, 5.4)
    assert found is not None
    submitted = len(found.severities[ALL].at_s)
    for wanted in (one for one in asked if one.name != "ttft"):
        chosen = chosen_of(run)
        met = slo_ok(run, chosen, {wanted.name: wanted.limit})
        severe = found.severities[wanted.name].severity > 1
        if wanted.request_class is None:
            assert submitted == len(met) == len(severe)
            np.testing.assert_array_equal(severe, ~met, wanted.name)
    everything = slo_ok(run, chosen_of(run), {one.name: one.limit for one in asked})
    np.testing.assert_array_equal(found.severities[ALL].severity > 1, ~everything)
    failed = found.severities[FAILED].severity
    assert 0 < np.isinf(failed).sum() < submitted and set(failed[np.isfinite(failed)]) == {0.0}
    assert len(found.severities["1/ttft"].at_s) + len(found.severities["ttft"].at_s) == submitted


def chosen_of(run: Run) -> Any:
    from fastllmload.metrics.run.window import populations

    return populations(run, window_of(run)).submitted


def test_growth_counts_what_was_in_flight_at_the_borders() -> None:
    """By hand: borders at 0, 1, 2 s; the spread sees what happens between them; what began before counts."""
    s = 1_000_000_000
    begin = np.array([-s, s // 4, s // 4, s // 4, 3 * s // 2])
    end = np.array([s // 2, s // 2, s // 2])
    found = growth(begin, end, 2 * s, 2)
    assert found.at_borders.tolist() == [1, 1, 2]
    assert found.spread == 3 and found.seconds == 2
    assert found.jolt == min(2.0, np.var([3, 1], ddof=1) * 2 / 2)
    empty = growth(np.empty(0, np.int64), np.empty(0, np.int64), s, 4)
    assert empty.at_borders.tolist() == [0] * 5 and empty.spread == 0 and empty.jolt == 0


def test_a_closed_slot_server_keeps_its_slots_full() -> None:
    """The yardstick of the closed loop: C in flight all the time, at most N served."""
    served = closed_loop(SlotServer(4, 0.5), 10, 50.0, np.random.default_rng(1))
    looks = np.linspace(5, 45, 50)
    flight = [np.count_nonzero((served.arrive <= t) & (served.end > t)) for t in looks]
    assert set(flight) == {10}
    assert max(np.count_nonzero((served.begin <= t) & (served.end > t)) for t in looks) == 4
