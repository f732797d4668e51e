"""The server's own waiting requests are the queue where telemetry has them, and only where it has all of them."""

from __future__ import annotations

import numpy as np
import pytest

from fastllmload.experiment.level.criteria import waiting_of
from fastllmload.metrics.run.window import Window
from fastllmload.telemetry.series import TelemetryRecord, TelemetrySeries

S = 1_000_000_000
WINDOW = Window(100 * S, 130 * S, closed=False)


def gauge(values: list[float], first_s: float = 95.0, name: str = "waiting", kind: str = "server") -> TelemetrySeries:
    t = ((first_s + np.arange(len(values))) * S).astype(np.int64)
    return TelemetrySeries(
        name=name, source_name="vllm:num_requests_waiting", origin="http://a/metrics", source_kind=kind,
        unit="requests", kind="gauge", labels="", t_before=t, t_after=t + 1_000_000, value=np.array(values),
    )  # fmt: skip


def test_one_servers_gauge_at_every_interval_of_the_window() -> None:
    """Read each second from 95 s on: each of the window's 30 samples is the latest read before it."""
    found = waiting_of(TelemetryRecord((gauge([float(k) for k in range(40)]),)), WINDOW)
    assert found is not None
    queue, source = found
    assert source == "vllm:num_requests_waiting"
    assert len(queue) == 30 and np.abs(queue - (np.arange(30) + 5)).max() <= 1


def test_the_queues_of_all_servers_are_one() -> None:
    found = waiting_of(TelemetryRecord((gauge([3.0] * 40), gauge([4.0] * 40))), WINDOW)
    assert found is not None and found[0].tolist() == [7.0] * 30


@pytest.mark.parametrize(
    "series",
    [
        [],
        [gauge([1.0] * 40, name="running")],
        [gauge([1.0] * 40, kind="host")],
        [gauge([1.0] * 20)],  # it ends in the middle of the window
        [gauge([1.0] * 10 + [float("nan")] * 10 + [1.0] * 20)],  # ten reads gave nothing
        [gauge([1.0] * 40), gauge([float("nan")] * 40)],  # one of two servers never said anything
    ],
)
def test_half_a_queue_is_none(series: list[TelemetrySeries]) -> None:
    assert waiting_of(TelemetryRecord(tuple(series)), WINDOW) is None
