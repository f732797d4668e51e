"""A level that moves is called unsteady, one that only scatters is not; a queue that grows is seen."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import numpy.typing as npt
import pytest

from fastllmload.documents.read import convert
from fastllmload.documents.run import RunDocument
from fastllmload.documents.run_parts.steadiness import InFlightTrend
from fastllmload.metrics.run.steadiness import drifted, queue
from fastllmload.metrics.run.window import Window
from fastllmload.records import layout
from fastllmload.statistics.interval import Sample
from fastllmload.statistics.trend import drift

sys.path.insert(0, str(Path(__file__).parents[3] / "bench" / "statistical"))
from alarms import queue as sojourns

pytestmark = pytest.mark.slow

S = 1_000_000_000
N = 756


def steady(values: npt.NDArray[np.float64]) -> bool:
    found = drifted(Sample(values, np.sort(values)))
    assert found is not None
    return bool(found.steady)


def test_ttft_that_doubles_over_the_run_is_not_steady() -> None:
    """40 ms at the start, 80 ms at the end, each request off by some 30 %."""
    rng = np.random.default_rng(1)
    rising = 40e6 * np.linspace(1, 2, N)
    assert sum(not steady(rising * np.exp(0.3 * rng.standard_normal(N))) for _ in range(50)) == 50


def test_a_step_late_in_the_run_is_not_steady() -> None:
    rng = np.random.default_rng(2)
    step = 40e6 * np.where(np.arange(N) < 0.7 * N, 1.0, 2.0)
    assert sum(not steady(step * np.exp(0.3 * rng.standard_normal(N))) for _ in range(50)) >= 48


@pytest.mark.parametrize("load", [0.0, 0.3, 0.5, 0.7])
def test_stationary_runs_are_hardly_ever_called_unsteady(load: float) -> None:
    """Independent latencies (load 0) and those of a queue: at most 5 %, and two standard errors."""
    rng = np.random.default_rng(3)
    alarms = 0
    for _ in range(300):
        values = (
            sojourns(rng, rng.exponential(1 / load, N), load, 0.0) if load else np.exp(0.5 * rng.standard_normal(N))
        )
        alarms += not steady(values)
    assert alarms / 300 <= 0.05 + 0.025


def test_a_small_rise_is_not_worth_a_word() -> None:
    assert steady(40e6 * np.linspace(1, 1.2, N))
    assert not steady(40e6 * np.linspace(1, 2, N))


def test_a_level_that_does_not_move_has_no_p_below_one() -> None:
    found = drift(np.full(20, 7.0))
    assert (found.first, found.second, found.p, found.p_step) == (7.0, 7.0, 1.0, 1.0)
    assert not found.moved(0.1)


def test_few_requests_say_nothing() -> None:
    values = np.ones(100)
    assert drifted(Sample(values, values)) is None


def flight(rate: float, taken_s: npt.NDArray[np.float64], loop: str = "open") -> InFlightTrend | None:
    """Requests at *rate* that take so long."""
    rows = np.zeros(len(taken_s), layout.REQUEST)
    rows["t_submit"] = S + (np.arange(len(rows)) / rate * S).astype(np.int64)
    rows["t_end"] = rows["t_submit"] + (taken_s * S).astype(np.int64)
    document = convert({"plan": {"description": {"load": {"loop": loop}}}}, RunDocument)
    run = SimpleNamespace(rows=rows, document=document)
    window = Window(2 * S, int(rows["t_submit"][-1]), closed=False)
    return queue(run, window, SimpleNamespace(measured=np.ones(len(rows), np.bool_)))  # type: ignore[arg-type]


def test_a_queue_that_grows_is_seen_and_one_that_does_not_is_not() -> None:
    rng = np.random.default_rng(4)
    growing = flight(100.0, np.linspace(0.2, 3.0, 800))
    assert growing is not None and growing.growing and growing.second_half > 1.5 * growing.first_half
    alarms = [flight(100.0, rng.exponential(0.5, 800)) for _ in range(200)]
    assert sum(found.growing for found in alarms if found is not None) <= 4
    assert flight(100.0, np.linspace(0.2, 3.0, 800), "closed") is None
