"""Recorded words are the state of hdrhistogram's own HdrHistogram, value for value and percentile for percentile."""

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram

from fastllmload._ext.record import histogram

HOUR_NS = 3_600_000_000_000


def reference(values: np.ndarray) -> HdrHistogram:
    expected = HdrHistogram(1, HOUR_NS, 3)
    for value in values.tolist():
        assert expected.record_value(value)
    return expected


def counts(of: HdrHistogram) -> np.ndarray:
    return np.frombuffer(of.counts, np.int64)


def random_values(n: int) -> np.ndarray:
    """Evenly spread over the orders of magnitude, with every bucket border and both ends of the range."""
    rng = np.random.default_rng(7)
    values = np.exp(rng.uniform(0, np.log(HOUR_NS), n)).astype(np.int64)
    borders = np.array([2**k + d for k in range(41) for d in (-1, 0, 1)] + [0, 1, HOUR_NS - 1, HOUR_NS])
    return np.concatenate([values, borders])


def test_constants_are_those_of_the_package() -> None:
    expected = HdrHistogram(1, HOUR_NS, 3)
    assert expected.counts_len == histogram.COUNTS
    assert expected.highest_trackable_value == histogram.HIGHEST
    assert expected.significant_figures == histogram.DIGITS


def test_every_count_equals_record_value_for_200000_values() -> None:
    values = random_values(200_000)
    words = histogram.empty()
    histogram.record_many(words, values)
    expected = reference(values)
    got = histogram.to_hdrhistogram(words)
    assert np.array_equal(counts(got), counts(expected))
    assert (got.total_count, got.min_value, got.max_value) == (
        expected.total_count,
        expected.min_value,
        expected.max_value,
    )
    assert got.encode() == expected.encode()
    for q in (0.0, 0.001, 0.25, 0.5, 0.9, 0.99, 0.999, 1.0):
        assert histogram.percentile(words, q) == expected.get_value_at_percentile(100 * q)


def test_an_empty_histogram_has_no_percentile_and_converts() -> None:
    words = histogram.empty()
    assert histogram.percentile(words, 0.5) is None
    got = histogram.to_hdrhistogram(words)
    assert got.total_count == 0
    assert got.min_value == HdrHistogram(1, HOUR_NS, 3).min_value


def test_values_out_of_range_are_clamped_and_counted() -> None:
    words = histogram.empty()
    histogram.record_many(words, np.array([-5, HOUR_NS + 1, 2 * HOUR_NS], np.int64))
    assert words[histogram.TOTAL] == 3
    assert words[histogram.MINIMUM] == 0
    assert words[histogram.MAXIMUM] == HOUR_NS
    assert words[histogram.OVERFLOW] == 2
    assert words[0] == 1


def test_adding_equals_recording_everything_in_one() -> None:
    values = random_values(1000)
    parts = [histogram.empty() for _ in range(3)]
    for part, chunk in zip(parts, (values[:10], values[10:700], values[700:]), strict=True):
        histogram.record_many(part, chunk)
    together, whole = histogram.empty(), histogram.empty()
    for part in [histogram.empty(), *parts]:
        histogram.add(together, part)
    histogram.record_many(whole, values)
    assert np.array_equal(together, whole)


def test_the_difference_of_two_readings_gives_the_percentile_between_them() -> None:
    words = histogram.empty()
    histogram.record_many(words, np.full(1000, 5, np.int64))
    before = words.copy()
    histogram.record_many(words, np.full(10, 900, np.int64))
    assert histogram.percentile(words - before, 0.5) == 900


def test_wrong_sizes_and_shares_are_refused() -> None:
    with pytest.raises(ValueError, match="33800 words"):
        histogram.record_many(np.zeros(5, np.int64), np.zeros(1, np.int64))
    with pytest.raises(ValueError, match="share between 0 and 1"):
        histogram.percentile(histogram.empty(), 99)
