"""Shapes of known distributions come out as what they are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastllmload.documents.metric import Metric
from fastllmload.documents.write import values
from fastllmload.metrics.distribution import shape
from fastllmload.statistics import order_statistics

MS = 1_000_000


def in_ns(ms: np.ndarray) -> np.ndarray:
    return np.round(ms * MS).astype(np.int64)


def test_one_regime_is_unimodal() -> None:
    rng = np.random.default_rng(1)
    found = shape.modality(in_ns(rng.lognormal(np.log(20), 0.2, 20_000)))
    assert found is not None and found.label == "unimodal" and found.n == 20_000
    assert found.peaks_ms[0] == pytest.approx(20, rel=0.05)


@pytest.mark.parametrize("share", [0.5, 0.2])
def test_two_regimes_are_multimodal(share: float) -> None:
    """Decode steps of 20 ms, some of them held up by a prefill to 80 ms."""
    rng = np.random.default_rng(2)
    centre = np.where(rng.random(20_000) < share, 80.0, 20.0)
    found = shape.modality(in_ns(centre * rng.lognormal(0, 0.1, 20_000)))
    assert found is not None and found.label == "multimodal"
    assert found.peaks_ms == (pytest.approx(20, rel=0.05), pytest.approx(80, rel=0.05))


def test_a_rare_second_regime_is_below_a_tenth_of_the_peak() -> None:
    rng = np.random.default_rng(3)
    centre = np.where(rng.random(20_000) < 0.02, 200.0, 20.0)
    found = shape.modality(in_ns(centre * rng.lognormal(0, 0.1, 20_000)))
    assert found is not None and len(found.peaks_ms) == 1


def test_gaps_inside_one_read_are_not_a_regime() -> None:
    gaps = in_ns(np.concatenate([np.zeros(500), np.full(100, 0.05), np.linspace(19, 21, 400)]))
    found = shape.modality(gaps)
    assert found is not None and found.n == 400 and len(found.peaks_ms) == 1
    assert shape.modality(in_ns(np.zeros(5))) is None and shape.modality(in_ns(np.empty(0))) is None
    same = shape.modality(in_ns(np.full(7, 20.0)))
    assert same is not None and same.peaks_ms == pytest.approx((20.0,)) and same.label == "unimodal"


def test_the_density_from_cells_is_that_of_every_gap() -> None:
    """The histogram represents the sample: against a plain sum of kernels."""
    rng = np.random.default_rng(4)
    gaps = in_ns(rng.gamma(3, 8, 500) + 0.2)
    logs = np.log(gaps)
    grid = np.linspace(logs.min() - 0.5, logs.max() + 0.5, shape.GRID)
    width = 0.15
    cells = shape.cells_of(gaps)
    assert cells is not None and cells.n == 500
    plain = np.exp(-0.5 * ((grid[:, None] - logs[None, :]) / width) ** 2).sum(axis=1)
    assert np.abs(shape.kernel_density(cells, grid, width) - plain).max() < 0.002 * plain.max()


def test_silverman_of_every_gap() -> None:
    rng = np.random.default_rng(6)
    gaps = in_ns(rng.lognormal(3, 0.4, 3000))
    logs = np.log(gaps)
    expected = 0.9 * min(logs.std(), np.subtract(*np.percentile(logs, [75, 25])) / 1.34) * 3000**-0.2
    cells = shape.cells_of(gaps)
    assert cells is not None and shape.silverman(cells) == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize(
    ("density", "found"),
    [
        ([0, 10, 5, 9, 0], [1, 3]),  # valley 5 < 0.8 * 9
        ([0, 10, 8, 9, 0], [1]),  # valley 8 is not a valley
        ([0, 9, 8, 10, 0], [3]),
        ([0, 10, 0, 0.9, 0], [1]),  # below a tenth
        ([5, 5, 5], [0]),
        ([0, 4, 4, 0, 4, 4, 0], [1, 4]),  # plateaus
        ([10, 1, 8], [0, 2]),  # at the rims
        ([0, 10, 8.2, 8.5, 7, 10, 0], [1, 5]),  # a ripple between two modes hides neither
    ],
)
def test_modes(density: list[float], found: list[int]) -> None:
    assert shape.modes(np.array(density, float)) == found


@pytest.mark.parametrize(
    ("label", "draw", "xi"),
    [
        ("exponential", lambda rng: rng.exponential(20, 60_000), 0.0),
        ("heavy", lambda rng: 10 * (rng.pareto(2, 60_000) + 1), 0.5),
        ("light", lambda rng: 10 + rng.random(60_000) * 20, -1.0),
    ],
)
def test_class_of_the_tail(label: str, draw: object, xi: float) -> None:
    found = shape.tail(in_ns(draw(np.random.default_rng(7))))  # type: ignore[operator]
    assert found is not None and found.label == label and found.k == 3000
    assert abs(found.xi - xi) < 0.05 + 4 * found.standard_error


def test_few_gaps_have_a_value_without_a_class() -> None:
    rng = np.random.default_rng(8)
    few = shape.tail(in_ns(rng.exponential(20, 200)))
    assert few is not None and few.k == 10 and few.label is None and few.standard_error > 0.15


@pytest.mark.parametrize("gaps", [np.empty(0), np.arange(1.0, 30), np.zeros(1000), np.full(1000, 20.0)])
def test_no_tail(gaps: np.ndarray) -> None:
    """Fewer than 2 in the tail, a threshold of 0, all equal."""
    assert shape.tail(in_ns(gaps)) is None


@given(st.lists(st.integers(0, 10**10), max_size=60))
def test_anything_has_a_shape_or_none(gaps: list[int]) -> None:
    values = np.array(gaps, np.int64)
    found, tail = shape.modality(values), shape.tail(values)
    assert (found is None) == (not (values >= shape.SHORTEST_NS).any())
    assert found is None or (len(found.peaks_ms) >= 1 and np.isfinite(found.bandwidth))
    assert tail is None or (np.isfinite(tail.xi) and np.isfinite(tail.standard_error))
    assert shape.modality(np.sort(values)) == found  # the order of gaps does not matter


def test_tail_ratio() -> None:
    assert shape.tail_ratio(20, 50) == 2.5
    assert shape.tail_ratio(0, 50) is shape.tail_ratio(None, None) is None


def test_pieces_of_a_long_sample_have_the_same_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    gaps = in_ns(np.random.default_rng(9).exponential(20, 1000))
    modes, tail = shape.modality(gaps), shape.tail(gaps)
    monkeypatch.setattr(order_statistics, "AT_ONCE", 7)
    monkeypatch.setattr(order_statistics, "MANY", 1)
    again = shape.tail(gaps)
    assert shape.modality(gaps) == modes and modes is not None
    assert tail is not None and again is not None and (again.k, again.label) == (tail.k, tail.label)
    assert again.xi == pytest.approx(tail.xi, rel=1e-12)


def test_what_run_json_says() -> None:
    gaps = in_ns(np.random.default_rng(1).exponential(20, 6000))
    found = values(shape.shape_metrics(gaps, "tbc", Metric(p50=14.0, p99=91.0)))
    assert found["tail_ratio"] == {"unit": "ratio", "value": 6.5, "pooled_as": "tbc", "n": 6000, "enough": True}
    assert found["tail_index"]["label"] == "exponential" and found["tail_index"]["heavy_above"] == 0.15
    assert found["modality"]["label"] == "unimodal" and len(found["modality"]["peaks_ms"]) == 1
    nothing = values(shape.shape_metrics(np.empty(0, np.int64), "itl", Metric()))
    assert {name: metric["value"] for name, metric in nothing.items()} == dict.fromkeys(found)
    assert nothing["modality"]["label"] is nothing["tail_index"]["label"] is None and not nothing["modality"]["enough"]
