"""Sampled series become charts: gauges unchanged, counters per second, a sum and its count as their mean."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from fastllmload.report.run_page import telemetry
from fastllmload.report.series.axis import TimeAxis
from fastllmload.telemetry.series import TelemetrySeries

S = 1_000_000_000
AXIS = TimeAxis(zero_ns=100 * S, width_ns=S, bins=10)


def series(
    name: str, values: list[float], kind: str = "gauge", unit: str = "requests", origin: str = "server"
) -> TelemetrySeries:
    """One value per second from the zero of the axis."""
    t = (100 + np.arange(len(values), dtype=np.int64)) * S
    return TelemetrySeries(name, name, origin, "server", unit, kind, "", t, t, np.array(values, np.float64))


def curves(*given: TelemetrySeries) -> dict[tuple[str, str], telemetry.TelemetryCurve]:
    return {(curve.title, curve.name): curve for curve in telemetry.curves_of(given, AXIS)}


def test_a_gauge_is_drawn_unchanged() -> None:
    found = curves(series("running", [1, 5, 3]), series("waiting", [0, 2, math.nan]))
    running = found[("Requests at the server", "running")]
    assert running.x.tolist() == [0, 1, 2] and running.y.tolist() == [1, 5, 3]
    assert ("Requests at the server", "waiting") in found, "they share a chart"


def test_a_counter_is_drawn_per_second_and_a_restart_is_a_gap() -> None:
    found = curves(series("generation_tokens", [100, 150, 160, 5, 25], "counter", "tokens"))
    (curve,) = found.values()
    assert curve.unit == "tokens/s"
    assert curve.y[[0, 1, 3]].tolist() == [50, 10, 20] and math.isnan(curve.y[2])


def test_a_sum_and_its_count_are_drawn_as_a_mean() -> None:
    found = curves(
        series("queue_time_sum", [1.0, 1.5, 1.5, 4.5], "counter", "s"),
        series("queue_time_count", [10, 20, 20, 50], "counter"),
    )
    (curve,) = found.values()
    assert (curve.title, curve.unit) == ("Mean queue_time", "ms")
    assert curve.y[[0, 2]] == pytest.approx([50.0, 100.0]) and math.isnan(curve.y[1])


def test_series_of_several_sources_share_a_chart_under_their_own_names() -> None:
    found = curves(series("gpu0.power_w", [300], unit="W"), series("gpu1.power_w", [310], unit="W"))
    assert set(found) == {("Power of each gpu", "gpu0"), ("Power of each gpu", "gpu1")}
    two = curves(series("running", [1], origin="http://a"), series("running", [2], origin="http://b"))
    assert {name for _, name in two} == {"running http://a", "running http://b"}


def test_gpus_of_exporters_are_named_by_node_and_number() -> None:
    exporter = series("gpu.power_w", [300], unit="W")
    one = replace(exporter, labels="gpu='3',node='n1',uuid='GPU-x'", pool="decode")
    assert set(curves(one, series("gpu0.power_w", [310], unit="W"))) == {
        ("Power of each gpu", "n1 gpu3 decode"), ("Power of each gpu", "gpu0")}  # fmt: skip


def test_servers_of_one_pool_have_names_of_their_own() -> None:
    """Also where one of them has only zeros; the only server of a pool has the pool's name."""
    given = [
        replace(series("waiting", values, origin=f"http://{name}"), pool=pool)
        for name, pool, values in (("a", "decode", [1.0]), ("b", "decode", [0.0]), ("c", "prefill", [2.0]))
    ]
    assert {name for _, name in curves(*given)} == {
        "waiting decode http://a", "waiting decode http://b", "waiting prefill"}  # fmt: skip


def test_curves_with_equal_names_are_not_compared_by_their_values() -> None:
    one, other = telemetry.curves_of([series("waiting", [1.0, 2.0]), series("waiting", [0.0, 0.0])], AXIS)
    assert one != other and other not in [one]


def test_energy_that_is_renewed_rarely_is_drawn_between_new_values() -> None:
    """300 W, renewed every 3 s: neither zeros nor 900 W, and nothing before the first new value."""
    given = series("gpu.energy_j", [300.0 * (t // 3 * 3) for t in range(10)], "counter", "J")
    (curve,) = curves(given).values()
    assert curve.x.tolist() == [6.0, 9.0] and curve.y.tolist() == [300.0, 300.0]
    (steady,) = curves(series("gpu.energy_j", [300.0 * t for t in range(10)], "counter", "J")).values()
    assert steady.y.tolist() == [300.0] * 9


def test_values_outside_of_the_axis_are_dropped() -> None:
    found = curves(series("running", [1.0] * 30))
    (curve,) = found.values()
    assert curve.x.max() <= AXIS.seconds


def test_long_series_are_thinned_to_means() -> None:
    wide = TimeAxis(zero_ns=100 * S, width_ns=60 * S, bins=60)
    x, y = telemetry.values(
        series("running", [float(k % 2) for k in range(3600)]), wide.zero_ns, wide.zero_ns + 3600 * S
    )
    assert 300 <= len(x) <= 400
    assert y.mean() == pytest.approx(0.5, abs=0.02)
