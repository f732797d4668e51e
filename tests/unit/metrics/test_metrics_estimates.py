"""Intervals, steadiness and unfinished requests as they are in run.json, on folders made up for the purpose."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic_run import ORIGIN_NS, Request, Shape, draw_requests, duration_phase, write_manifest, write_workers

from fastllmload.documents.metric import Metric, WithUnfinished
from fastllmload.documents.run_parts.objectives import Objectives
from fastllmload.metrics.distribution.summary import distribution
from fastllmload.metrics.objectives.report import with_bounds
from fastllmload.metrics.public import measure
from fastllmload.metrics.run.bounds import bounds_in_place
from fastllmload.metrics.run.steadiness import little
from fastllmload.metrics.run.window import window_of
from fastllmload.records import layout
from fastllmload.records.run import load
from fastllmload.statistics.kaplan_meier import bounds

pytestmark = pytest.mark.slow

S = 1_000_000_000
ANSWER_S = 2.0  # from the server's turn to its first token, in `cut_run`
FIGURES = {"p50", "p75", "p90", "p95", "p99", "p999", "mean"}


def measured(folder: Path, requests: list[Any], seconds: float, status: str = "done") -> dict[str, Any]:
    folder.mkdir()
    write_workers(folder, requests)
    write_manifest(folder, status, [duration_phase(ORIGIN_NS, seconds)])
    return measure(load(folder))


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """1,500 requests, none failing, half a minute at 50/s."""
    requests = draw_requests(3, Shape(requests=1500, failures=0.0))
    return measured(tmp_path_factory.mktemp("runs") / "run", requests, 30.0)


def test_every_figure_has_an_interval_or_a_reason(document: dict[str, Any]) -> None:
    checked = set()
    for name, metric in document["metrics"].items():
        if metric.get("n") and "not_estimable" in metric:
            assert set(metric["ci95"]) == FIGURES, name
            missing = {figure for figure, ends in metric["ci95"].items() if ends is None}
            assert missing == set(metric["not_estimable"]), name
            assert all(why["reason"] for why in metric["not_estimable"].values())
            checked.add(name)
    assert checked >= {"ttft", "ttft_sched", "e2e", "tpot", "itl", "idle_latency", "jitter"}


def test_intervals_hold_their_figure(document: dict[str, Any]) -> None:
    for metric in document["metrics"].values():
        for figure, ends in (metric["ci95"] if "not_estimable" in metric and metric.get("n") else {}).items():
            if ends is not None:
                assert ends[0] <= metric[figure] <= ends[1]


def test_p50_of_a_real_sample_is_estimable_and_p999_is_not(document: dict[str, Any]) -> None:
    ttft = document["metrics"]["ttft"]
    assert ttft["ci95"]["p50"] is not None and ttft["ci95"]["mean"] is not None
    assert ttft["ci95"]["p999"] is None and ttft["not_estimable"]["p999"]["requests_needed"] > 1500


def test_rates_and_shares_have_intervals(document: dict[str, Any]) -> None:
    for name in ("req_s", "output_tok_s", "input_tok_s", "success_rate"):
        metric = document["metrics"][name]
        assert metric["ci95"][0] <= metric["value"] <= metric["ci95"][1], name


def test_nothing_measured_has_neither() -> None:
    assert distribution(np.empty(0), "ms").ci95 is None


def test_a_steady_run_is_called_steady(document: dict[str, Any]) -> None:
    found = document["steadiness"]["transient"]["ttft"]
    assert found["steady"] and found["cut_share"] < 0.2
    assert found["window_cut_seconds"] == pytest.approx(3.0, abs=0.2)
    assert document["steadiness"]["littles_law"] is None  # not counted


def answered(requests: list[Request]) -> list[tuple[int, Request]]:
    """Those with an answer token, and their numbers."""
    return [(k, request) for k, request in enumerate(requests) if request.fields.get("t_first")]


def test_answers_that_take_twice_as_long_in_the_end_are_not_steady(tmp_path: Path) -> None:
    """The first token as before, every gap after it longer and longer: ITL and End-to-End move, TTFT does not."""
    requests = draw_requests(5, Shape(requests=1500, failures=0.0))
    for k, request in answered(requests):
        first = request.fields["t_first"]
        for name in ("t_last", "t_end", "t_end_user"):
            request.fields[name] = first + (request.fields[name] - first) * (1500 + k) // 1500
        request.events = [(max(t, first + (t - first) * (1500 + k) // 1500), *rest) for t, *rest in request.events]
    found = measured(tmp_path / "run", requests, 30.0)["steadiness"]
    moved = {name for name, each in found["drift"].items() if not each["steady"]}
    assert moved == {"itl", "e2e"} and set(found["drift"]) == {"ttft", "ttft_any", "itl", "e2e"}
    assert found["steady"] is False


def test_the_first_token_of_any_kind_is_judged_where_answers_reason(tmp_path: Path) -> None:
    """A pause between reasoning and answer that shrinks as the wait for the reasoning grows leaves TTFT where it was."""
    requests = draw_requests(6, Shape(requests=1500, failures=0.0))
    for k, request in answered(requests):
        wait = request.fields["t_first"] - request.fields["t_submit"]
        request.fields["t_any"] = request.fields["t_submit"] + wait * (1500 + k) // 3000
    drift = measured(tmp_path / "run", requests, 30.0)["steadiness"]["drift"]
    assert drift["ttft"]["steady"] and not drift["ttft_any"]["steady"]
    assert drift["ttft_any"]["second_half"] > 1.25 * drift["ttft_any"]["first_half"]


def test_slow_first_requests_are_the_transient(tmp_path: Path) -> None:
    """The first 200 of 1,500 wait up to 2 s longer, less and less."""
    requests = draw_requests(4, Shape(requests=1500, failures=0.0))
    for k, request in enumerate(requests[:200]):
        late = (200 - k) * S // 100
        for name in ("t_headers", "t_any", "t_first", "t_last", "t_end", "t_end_user"):
            if request.fields.get(name):
                request.fields[name] += late
        request.events = [(t + late, *rest) for t, *rest in request.events]
    found = measured(tmp_path / "run", requests, 30.0)["steadiness"]["transient"]["ttft"]
    assert found["steady"] and 150 <= found["cut_requests"] <= 230
    assert found["cut_seconds"] == pytest.approx(requests[200].fields["t_sched"] / 1e9 - ORIGIN_NS / 1e9, abs=0.6)


def test_requests_cut_off_are_not_forgotten(tmp_path: Path) -> None:
    """Every tenth request times out after 60 s without a token: P95 of what ended seems fine, but is at least 60 s."""
    requests = draw_requests(5, Shape(requests=600, failures=0.0))
    for request in requests[::10]:
        fields = request.fields
        for name in ("t_any", "t_first", "t_last", "events", "content_events", "reasoning_events", "leading_events"):
            fields.pop(name, None)
        request.events, fields["status"] = [], layout.TIMEOUT
        fields["t_end"] = fields["t_end_user"] = fields["t_submit"] + 60 * S
    metrics = measured(tmp_path / "run", requests, 12.0)["metrics"]
    found = metrics["ttft"]["with_unfinished"]
    assert found["n_unfinished"] == pytest.approx(0.1 * found["n"], abs=4)
    assert metrics["ttft"]["p50"] < found["p50"] < 1.3 * metrics["ttft"]["p50"]
    assert found["p95"] is None and found["at_least"]["p95"] == pytest.approx(60_000)
    assert metrics["ttft"]["p95"] < 1000
    assert metrics["e2e"]["with_unfinished"]["n_unfinished"] == found["n_unfinished"]

    stated = metrics["ttft"]["unfinished_bounds"]
    assert stated["p95"] == {"low": pytest.approx(60_000), "high": None} and stated["max"]["low"] == pytest.approx(
        60_000
    )
    assert "p50" not in stated or stated["p50"]["high"] == found["at_most"]["p50"]


def cut_run(n: int, each_s: float, watched_s: float) -> list[Request]:
    """One server that takes *each_s* a request and 100 requests/s offered: a request that is not done *watched_s* after the
    first arrival is cancelled.
    """
    requests = [each for each in draw_requests(6, Shape(requests=2 * n, failures=0.0)) if "t_first" in each.fields][:n]
    end = ORIGIN_NS + round(watched_s * S)
    for k, request in enumerate(requests):
        fields = request.fields
        submitted = ORIGIN_NS + k * S // 100
        first = ORIGIN_NS + round((ANSWER_S + (k + 1) * each_s) * S)
        moved = submitted - fields["t_submit"]
        for name in ("t_sched", "t_dispatch", "t_submit_start", "t_submit"):
            fields[name] += moved
        if first < end:
            late = first - fields["t_first"]
            for name in ("t_headers", "t_any", "t_first", "t_last", "t_end", "t_end_user"):
                fields[name] += late
            request.events = [(t + late, *rest) for t, *rest in request.events]
        else:
            for name in (
                "t_any",
                "t_first",
                "t_last",
                "events",
                "content_events",
                "reasoning_events",
                "leading_events",
            ):
                fields.pop(name, None)
            request.events, fields["status"] = [], layout.CANCELLED
            fields["t_end"] = fields["t_end_user"] = end
    return requests


def test_a_run_that_was_cut_states_bounds_that_hold_the_truth(tmp_path: Path) -> None:
    """Waiting decides who is cut off, so no estimate is right: of 656 requests the true P99 of TTFT is 8.5 s."""
    n, each_s = 656, 0.02
    whole = [ANSWER_S + (k + 1) * each_s - k / 100 for k in range(66, n)]  # those after the ramp of a tenth
    metric = measured(tmp_path / "run", cut_run(n, each_s, 10.8), 6.6)["metrics"]["ttft"]
    found = metric["unfinished_bounds"]
    assert metric["with_unfinished"]["n_unfinished"] > 150
    for name, q in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        true = 1e3 * float(np.quantile(whole, q, method="inverted_cdf"))
        assert name not in found or found[name]["low"] - 1 <= true <= (found[name]["high"] or np.inf) + 1, name
    assert found["p99"]["high"] is None and metric["p99"] < 0.8 * 1e3 * float(np.quantile(whole, 0.99))


def test_a_handful_of_cut_requests_leaves_the_median_alone() -> None:
    times, ended = np.arange(1.0, 1001.0), np.arange(1000) > 1
    figures = Metric(mean=501.5, max=1000.0, p50=501.0, p99=990.5)
    least = {name: both[0] for name, q in (("p50", 0.5), ("p99", 0.99)) if (both := bounds(times, ended, q))}
    most = {name: both[1] for name, q in (("p50", 0.5), ("p99", 0.99)) if (both := bounds(times, ended, q))}
    lowest = {**least, "mean": 500.5, "max": 1000.0}
    assert bounds_in_place(WithUnfinished(n=1000, n_unfinished=2, at_least=lowest, at_most=most), figures) == {}
    assert bounds_in_place(WithUnfinished(n=1000, n_unfinished=0, at_least=lowest, at_most=most), Metric()) == {}


def test_attainment_has_bounds_where_requests_did_not_end() -> None:
    found = with_bounds(Objectives(met=60, submitted=90), 20, 10)
    assert (found.unfinished, found.slo_attainment_bounds) == (30, (0.6, 0.9))
    assert with_bounds(Objectives(met=60, submitted=90), 0, 0).unfinished is None


def test_without_unfinished_requests_nothing_is_said_of_them(document: dict[str, Any]) -> None:
    assert "with_unfinished" not in document["metrics"]["ttft"]


def counted(t_ns: np.ndarray, in_flight: np.ndarray) -> np.ndarray:
    """Samples of two workers, each with half of the requests in flight, the second one looked at 5 us later."""
    columns = np.dtype([("t_ns", "<i8"), ("worker", "<i4"), ("in_flight", "<i8")])
    samples = np.zeros(2 * len(t_ns), columns)
    samples["t_ns"] = np.repeat(t_ns, 2) + np.tile([0, 5_000], len(t_ns))
    samples["worker"] = np.tile([0, 1], len(t_ns))
    samples["in_flight"][::2], samples["in_flight"][1::2] = in_flight // 2, in_flight - in_flight // 2
    return samples


def test_littles_law_over_what_the_workers_counted(tmp_path: Path) -> None:
    """Right counts hold; counts that miss a tenth of the requests do not."""
    requests = draw_requests(6, Shape(requests=900, failures=0.0))
    measured(tmp_path / "run", requests, 18.0)
    run = load(tmp_path / "run")
    at = ORIGIN_NS + np.arange(4 * S, 17 * S, S // 4)
    begun, ended = run.rows["t_dispatch"], run.rows["t_end"]
    there = np.array([np.count_nonzero((begun <= t) & (ended > t)) for t in at])
    right = replace(run, samples=counted(at, there))
    found = little(right, window_of(right))
    assert found is not None and found.holds and found.residual == 0.0
    assert found.in_flight == pytest.approx(found.rate_per_s * found.time_s, rel=0.1)
    lossy = replace(run, samples=counted(at, np.round(there * 0.9).astype(int)))
    found = little(lossy, window_of(lossy))
    assert found is not None and not found.holds
