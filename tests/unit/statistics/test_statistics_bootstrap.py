"""The block bootstrap: what is read from a grid is what sorting each resample gives; its spread is right."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastllmload.statistics.batches import batch_edges, block_weights, resampled_means, resampled_percentiles


def put_together(values: np.ndarray, edges: np.ndarray, weights: np.ndarray) -> list[np.ndarray]:
    parts = np.split(values, edges[1:-1])
    return [np.concatenate([np.tile(part, int(k)) for part, k in zip(parts, row, strict=True)]) for row in weights]


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.integers(100, 3000), st.sampled_from([0.5, 0.9, 0.99]))
def test_percentiles_from_the_grid_are_those_of_the_resamples(seed: int, n: int, q: float) -> None:
    """Within one step of the grid, counted in places of the whole sample."""
    values = np.random.default_rng(seed).exponential(1, n)
    edges, weights = batch_edges(n, 20), block_weights(20, 30, seed)
    found = resampled_percentiles(values, edges, q, weights)
    exact = [np.quantile(sample, q) for sample in put_together(values, edges, weights)]
    ranks = np.searchsorted(np.sort(values), [found, exact])
    assert np.abs(ranks[0] - ranks[1]).max() <= n / 400 + 6  # a block that was not drawn leaves holes


def test_means_are_those_of_the_resamples() -> None:
    values = np.random.default_rng(1).integers(0, 100, 777)
    edges, weights = batch_edges(777, 20), block_weights(20, 50)
    expected = [sample.mean() for sample in put_together(values, edges, weights)]
    assert resampled_means(values, edges, weights) == pytest.approx(expected)


def test_the_spread_of_the_mean_is_that_of_its_blocks() -> None:
    values = np.random.default_rng(2).normal(0, 1, 4000)
    spread = resampled_means(values, batch_edges(4000, 40), block_weights(40)).std()
    assert spread == pytest.approx(1 / 4000**0.5, rel=0.25)
