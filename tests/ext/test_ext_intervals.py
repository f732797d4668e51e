"""Histograms per interval add up to the histogram of everything, and each value is in the interval of its event."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastllmload._ext.measure import intervals
from fastllmload._ext.record import histogram

BEGIN, WIDTH, INTERVALS = 1_000, 100, 6
NS = st.integers(0, 4_000_000_000_000)


def words(n: int = INTERVALS) -> np.ndarray:
    return np.zeros((n, histogram.WORDS), np.int64)


def whole(values: np.ndarray) -> np.ndarray:
    found = histogram.empty()
    histogram.record_many(found, np.ascontiguousarray(values, np.int64))
    return found


def summed(parts: np.ndarray) -> np.ndarray:
    found = histogram.empty()
    for part in parts:
        histogram.add(found, part)
    return found


@given(st.lists(st.tuples(st.integers(0, 2_000), NS), max_size=40))
def test_values_are_in_the_interval_of_their_time(pairs: list[tuple[int, int]]) -> None:
    t_ns, values = np.array(pairs, np.int64).reshape(-1, 2).T.copy()
    found = words()
    counted = intervals.record_values(t_ns, values, BEGIN, WIDTH, found)
    inside = (t_ns >= BEGIN) & (t_ns < BEGIN + INTERVALS * WIDTH)
    assert counted == inside.sum()
    for number in range(INTERVALS):
        mine = inside & ((t_ns - BEGIN) // WIDTH == number)
        assert (found[number] == whole(values[mine])).all()


@given(st.lists(st.lists(st.integers(0, 2_000), max_size=8).map(sorted), max_size=8), st.data())
def test_gaps_are_in_the_interval_of_the_later_token(lists: list[list[int]], data: st.DataObject) -> None:
    chosen = np.array([data.draw(st.booleans()) for _ in lists], np.uint8)
    t_ns = np.array([t for each in lists for t in each], np.int64)
    first = np.cumsum([0, *map(len, lists)]).astype(np.int64)
    found = words()
    counted = intervals.record_gaps(t_ns, first, chosen, BEGIN, WIDTH, found)
    gaps = [(b, b - a) for keep, each in zip(chosen, lists, strict=True) if keep for a, b in pairwise(each)]
    inside = [(t, gap) for t, gap in gaps if BEGIN <= t < BEGIN + INTERVALS * WIDTH]
    assert counted == len(inside)
    for number in range(INTERVALS):
        mine = [gap for t, gap in inside if (t - BEGIN) // WIDTH == number]
        assert (found[number] == whole(np.array(mine, np.int64))).all()
    assert (summed(found) == whole(np.array([gap for _, gap in inside], np.int64))).all()


def test_times_that_go_back_are_still_counted_where_they_belong() -> None:
    """Rows are sorted by time, but a damaged file must not count into memory that is not there."""
    t_ns = np.array([BEGIN + 550, BEGIN + 10, BEGIN + 560, -5], np.int64)
    found = words()
    assert intervals.record_gaps(t_ns, np.array([0, 4]), np.ones(1, np.uint8), BEGIN, WIDTH, found) == 2
    assert found[0, histogram.TOTAL] == 1
    assert found[5, histogram.TOTAL] == 1


@pytest.mark.parametrize(
    ("first", "chosen", "width", "columns", "problem"),
    [
        ([0, 3], [1], 100, histogram.WORDS, IndexError),
        ([0, -1], [1], 100, histogram.WORDS, IndexError),
        ([2, 0], [1], 100, histogram.WORDS, IndexError),
        ([0, 2], [1, 1], 100, histogram.WORDS, ValueError),
        ([0, 2], [1], 0, histogram.WORDS, ValueError),
        ([0, 2], [1], 100, 10, ValueError),
    ],
)
def test_lists_that_do_not_fit_are_refused(
    first: list[int], chosen: list[int], width: int, columns: int, problem: type[Exception]
) -> None:
    with pytest.raises(problem):
        intervals.record_gaps(
            np.array([1, 2], np.int64), np.array(first, np.int64), np.array(chosen, np.uint8), 0, width,
            np.zeros((2, columns), np.int64),
        )  # fmt: skip


def test_as_many_times_as_values() -> None:
    with pytest.raises(ValueError, match="as many times"):
        intervals.record_values(np.zeros(2, np.int64), np.zeros(3, np.int64), 0, 1, words())
