"""Values read by rank without a sorted copy: what a sort has there, whatever the values are like, and no large array."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import numpy as np
import pytest

from fastllmload.metrics.distribution.percentiles import NAMED, percentile
from fastllmload.metrics.distribution.summary import summarize
from fastllmload.statistics import order_statistics
from fastllmload.statistics.order_statistics import Ranked, collected, in_order, pieces

RNG = np.random.default_rng(5)
SAMPLES = {
    "log-normal": RNG.lognormal(10, 2, 50_000).astype(np.int64),
    "one value": np.full(20_000, 7),
    "two values far apart": RNG.integers(0, 2, 30_000) * 10**15,
    "a dense lump and one far away": np.append(RNG.integers(10**9, 10**9 + 50, 30_000), 2**62),
    "the whole range": np.array([-(2**63), 2**63 - 1, 0, 5, -7]),
    "below and above 0": RNG.integers(-(2**62), 2**62, 20_000),
    "few": np.array([3, 1, 2]),
}


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("picked", [1, 100, 1 << 17])
def test_each_rank_has_the_value_that_a_sorted_copy_has(
    monkeypatch: pytest.MonkeyPatch, name: str, picked: int
) -> None:
    monkeypatch.setattr(order_statistics, "PICKED", picked)
    values = SAMPLES[name]
    ordered, found = np.sort(values), Ranked(lambda: pieces(values))
    ranks = [0, len(values) - 1, len(values) // 2, *RNG.integers(0, len(values), 30).tolist()]
    found.prepare(ranks[::2])
    assert [found[rank] for rank in ranks] == ordered[ranks].tolist()
    assert (len(found), found.low, found.high, found[-1]) == (len(values), ordered[0], ordered[-1], ordered[-1])
    with pytest.raises(IndexError, match="have no rank"):
        found[len(values)]


def test_prepared_ranks_need_no_pass_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order_statistics, "PICKED", 200)
    values, passes = SAMPLES["log-normal"], 0

    def blocks() -> Iterator[np.ndarray]:
        nonlocal passes
        passes += 1
        return pieces(values)

    found = Ranked(blocks)
    ranks = [int(q * (len(values) - 1)) for q in NAMED.values()]
    found.prepare(ranks)
    once = passes
    assert once <= 6
    for rank in ranks:
        found[rank]
    assert passes == once


def test_figures_of_many_values_are_those_of_a_sorted_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    values = RNG.lognormal(16, 0.5, 60_000).astype(np.int64)
    first = np.arange(0, len(values) + 1, 100)
    sorted_copy = summarize(values, "ms", first=first)
    monkeypatch.setattr(order_statistics, "MANY", 1)
    assert isinstance(in_order(values), Ranked)
    by_rank = summarize(values, "ms", first=first)
    for figure, ends in sorted_copy["ci95"].items():
        assert by_rank["ci95"][figure] == pytest.approx(ends, rel=1e-12), figure
    assert by_rank["std"] == pytest.approx(sorted_copy["std"], rel=1e-12)
    same = [name for name in sorted_copy if name not in ("std", "ci95")]
    assert {name: by_rank[name] for name in same} == {name: sorted_copy[name] for name in same}


def test_an_empty_sample_has_no_ranks() -> None:
    found = Ranked(lambda: iter(()))
    assert (len(found), percentile(found, 0.5)) == (0, None)
    assert len(collected(lambda: iter(()), 0)) == 0


def test_memory_does_not_grow_with_the_number_of_values() -> None:
    def blocks(n: int) -> Iterator[np.ndarray]:
        for seed in range(n):
            yield np.random.default_rng(seed).integers(0, 10**9, 1 << 16)

    peaks = []
    for n in (20, 80):
        tracemalloc.start()
        found = Ranked(lambda n=n: blocks(n))  # type: ignore[misc]
        assert found[len(found) // 2] == pytest.approx(5e8, rel=0.01)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]
