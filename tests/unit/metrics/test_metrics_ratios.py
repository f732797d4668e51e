"""Figures that compare two runs: inflation, prefix cache, guardrails, cost, power, network. None is never 0."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from typed_documents import typed

from fastllmload.documents.procedure import ByPercentile, ByStatistic
from fastllmload.documents.run import RunDocument
from fastllmload.documents.write import values
from fastllmload.metrics.levels import fairness, prefix_cache
from fastllmload.metrics.request import network
from fastllmload.metrics.request.durations import NULL
from fastllmload.metrics.run import cost
from fastllmload.metrics.run import cost as power_efficiency
from fastllmload.records import layout
from fastllmload.records.run import Run

TTFT = ByStatistic(p50=100.0, p95=200.0, p99=400.0, mean=0.0)


def test_inflation_per_percentile() -> None:
    found = fairness.latency_inflation(ByStatistic(p50=250.0, p95=300.0, mean=5.0), TTFT)
    assert found == ByStatistic(p50=2.5, p95=1.5)


def test_prefix_cache() -> None:
    on = ByPercentile(p50=50.0, p95=250.0)
    assert prefix_cache.ttft_reductions(TTFT, on) == ByPercentile(p50=50.0, p95=-25.0)
    assert prefix_cache.change_percent(100, 120) == pytest.approx(20)
    assert prefix_cache.change_percent(0, 120) is prefix_cache.change_percent(None, 1) is None


@pytest.mark.parametrize(
    ("cached", "prefix", "rate"),
    [
        ([-1, -1], [600, 600], None),  # the server says nothing
        ([300, -1], [600, 600], 0.5),  # left out where it says nothing
        ([0, 0], [600, 600], 0.0),
        ([50, 900], [0, 600], 1.0),  # sharing requests only, and no more than the prefix
        ([5], [0], None),
        ([], [], None),
    ],
)
def test_cache_hit_rate(cached: list[int], prefix: list[int], rate: float | None) -> None:
    assert prefix_cache.cache_hit_rate(np.array(cached, np.int64), np.array(prefix, np.int64)) == rate


def test_guardrail_overheads_of_table_13() -> None:
    """IETF Table 13: medians 98 to 112 ms TTFT, 4.2 to 4.8 and 5.0 s E2E."""

    def medians_of(ttft: float, e2e: float) -> prefix_cache.Latencies:
        return prefix_cache.Latencies(ByStatistic(p50=ttft), ByStatistic(p50=e2e))

    baseline = medians_of(98, 4200)
    found = prefix_cache.overheads(baseline, medians_of(112, 4300), medians_of(101, 4800), medians_of(118, 5000))
    medians = {name: None if value is None else value.p50 for name, value in found.items()}
    assert medians == {"input_filter_ttft_ms": 14, "output_filter_e2e_ms": 600, "total_e2e_ms": 800}
    assert prefix_cache.overheads(baseline)["total_e2e_ms"] is None


def test_cost_needs_what_the_user_declares() -> None:
    assert cost.tok_per_gpu_s(100, None) is cost.tokens_per_dollar(None, 3) is cost.tokens_per_dollar(5, None) is None


def test_power_is_a_time_average() -> None:
    """10 W for 1 s, a ramp to 30 W for 1 s, then 30 W: (10 + 20 + 30) / 3."""
    t = np.array([0, 1, 2]) * 10**9 + 5
    assert power_efficiency.power_w(t, np.array([10.0, 10.0, 30.0]), 5, 3 * 10**9 + 5) == pytest.approx(20)
    cut = power_efficiency.power_w(t, np.array([10.0, 10.0, 30.0]), 10**9 + 5, 2 * 10**9 + 5)
    assert cut == pytest.approx(20)  # only the ramp


@pytest.mark.parametrize("window", [(5, 5), (100, 200), (9, 5)])
def test_a_span_without_sample_has_no_power(window: tuple[int, int]) -> None:
    assert power_efficiency.power_w(np.array([1, 5, 300]), np.array([3.0, np.nan, 3.0]), *window) is None


def test_tokens_per_second_and_watt() -> None:
    assert power_efficiency.tok_s_per_w(50, 12.5) == 4
    assert power_efficiency.tok_s_per_w(50, None) is power_efficiency.tok_s_per_w(None, 5) is None
    assert power_efficiency.tok_s_per_w(50, 0) is None  # a sensor that reads 0 W has not measured


def test_network() -> None:
    found = network.rtt_ms(np.array([NULL, 1_000_000, 3_000_000]))
    assert found.n == 2 and found.p50 == 2 and found.p95 == pytest.approx(2.9)
    assert network.rtt_ms(np.array([NULL])).p50 is None
    assert network.ttft_net_adjusted(100, 2) == 98 and network.ttft_net_adjusted(100, None) is None


def test_a_round_trip_is_known_where_every_connection_was_open_before(tmp_path: Path) -> None:
    """No request had to connect, so the connects ahead of the run tell, as in a run on loopback."""
    rows = np.zeros(3, layout.REQUEST)
    rows["t_dispatch"] = 1_000
    manifest = {"target": {"connect_ms": [0.4, 0.2, 0.3]}, "config": {"output": {"ttft_net_adjusted": True}}}
    run = Run(tmp_path, typed(manifest), rows, np.zeros(0, layout.EVENT), np.zeros(4, np.int64))
    found = values(network.network_metrics(run, np.ones(3, bool)))
    beside = {"unit": "ms", "method": "connects before and after the run"}
    assert found["rtt_ms"] == {**beside, "n": 3, "p50": 0.3, "p95": pytest.approx(0.39)}
    assert found["ttft_net_adjusted"]["rtt_p50_ms"] == 0.3
    run = run.changed(target=replace(run.document.target, connect_after_ms=(0.1, 0.1)))
    again = values(network.network_metrics(run, np.ones(3, bool)))
    assert again["rtt_ms"] == {**beside, "n": 5, "p50": 0.2, "p95": 0.38}
    rows["t_connected"][1] = 8_001_000  # one that a request waited for
    waited = network.network_metrics(run, np.ones(3, bool))["rtt_ms"]
    assert (waited.p50, waited.method) == (8, "connects of requests")
    bare = Run(tmp_path, RunDocument(), np.zeros_like(rows), run.events, run.first_event)
    assert network.network_metrics(bare, np.ones(3, bool))["rtt_ms"].n == 0


def test_requests_that_share_a_connection_of_http2(tmp_path: Path) -> None:
    """Two connections of one worker and one of another with the same port; a request that was not sent counts nowhere."""
    requests = [  # worker, port, sent, ended
        (0, 7, 1_000, 5_000),
        (0, 7, 2_000, 3_000),
        (0, 7, 3_000, 9_000),  # the second has ended
        (0, 8, 2_500, 4_000),
        (1, 7, 2_600, 4_000),
        (0, 7, 8_000, 0),  # it has not ended
        (0, 0, 0, 6_000),
    ]
    rows = np.zeros(len(requests), layout.REQUEST)
    for name, column in zip(
        ("worker", "local_port", "t_submit_start", "t_end"), zip(*requests, strict=True), strict=True
    ):
        rows[name] = column
    run = Run(
        tmp_path, typed({"target": {"http_version": "2"}}), rows, np.zeros(0, layout.EVENT), np.zeros(8, np.int64)
    )
    found = network.streams_per_connection(run, np.ones(len(rows), bool))
    assert found is not None
    assert (found.n, found.connections, found.window_waits) == (6, 3, 0)
    assert (found.mean, found.p50, found.max) == (pytest.approx(9 / 6), 1.5, 2)
    some = network.streams_per_connection(run, rows["local_port"] == 8)
    assert some is not None and (some.n, some.mean, some.connections) == (1, 1.0, 3)
    over_http1 = run.changed(target=replace(run.document.target, http_version="1.1"))
    assert network.streams_per_connection(over_http1, np.ones(len(rows), bool)) is None


def test_a_constant_power_is_exactly_that() -> None:
    """Not 123.49999999999997: sums of rounded seconds must not show."""
    t = np.arange(0, 40_000_000_000, 333_333_337) + 7
    assert power_efficiency.power_w(t, np.full(len(t), 123.5), 1_234_567, 37_654_321_987) == 123.5
