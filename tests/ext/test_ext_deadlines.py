"""The compiled deadlines agree with the definitions, written out in plain Python, on every stream."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastllmload._ext.measure import deadlines, tokenline

gap = st.one_of(st.integers(0, 200), st.integers(0, 5).map(lambda n: n * 50), st.integers(0, 10**12))
streams = st.lists(st.lists(gap, max_size=30), max_size=6)
deadline = st.integers(1, 300)


def csr(requests: list[list[int]], origin: int = 1_000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(token times, borders, origins) of requests that are given by their gaps, the first counted from the origin."""
    times = [origin + t for gaps in requests for t in np.cumsum(gaps, dtype=np.int64)]
    first = np.concatenate([[0], np.cumsum([len(gaps) for gaps in requests])]).astype(np.int64)
    return np.array(times, np.int64), first, np.full(len(requests), origin, np.int64)


def fluidity_reference(gaps: list[int], due: list[int], d_d: int) -> tuple[int, int]:
    """(met tokens, missed deadlines), as spec/metrics 5.9 says it."""
    met, missed, slack = 0, 0, 0
    for s, d in zip(gaps, due, strict=True):
        if s <= d + slack:
            met, slack = met + 1, slack + d - s
        else:
            missed, slack = missed + (s - slack - d) // d_d + 1, 0
    return met, missed


@given(streams, deadline, deadline)
def test_fluidity(requests: list[list[int]], d_p: int, d_d: int) -> None:
    t_ns, first, origin = csr(requests)
    tallies = np.empty((len(requests), 3), np.int64)
    deadlines.fluidity(t_ns, first, origin, np.full(len(requests), d_p), d_d, tallies)
    for found, gaps in zip(tallies.tolist(), requests, strict=True):
        met, missed = fluidity_reference(gaps, [d_p, *[d_d] * (len(gaps) - 1)][: len(gaps)], d_d)
        decode, _ = fluidity_reference(gaps[1:], [d_d] * (len(gaps[1:])), d_d)
        assert found == [met, missed, decode]
        assert met <= len(gaps) <= met + missed


@given(st.lists(gap, min_size=1, max_size=30), st.integers(1, 40))
def test_the_least_deadline_keeps_the_bound_and_a_step_less_does_not(gaps: list[int], step: int) -> None:
    def miss_rate(d_d: int) -> Fraction:
        met, missed = fluidity_reference(gaps, [d_d] * len(gaps), d_d)
        return Fraction(missed, met + missed)

    t_ns, first, _ = csr([[7, *gaps]])
    found = np.empty(1, np.int64)
    deadlines.least_deadline(t_ns, first, step, found)
    best = int(found[0])
    assert 0 <= best <= max(gaps)
    assert best == 0 or miss_rate(best) <= Fraction(1, deadlines.MISS_SHARE)
    assert best <= step or any(miss_rate(d) > Fraction(1, 10) for d in range(max(1, best - step), best))


def test_below_two_tokens_there_is_no_least_deadline() -> None:
    t_ns, first, _ = csr([[], [5]])
    found = np.zeros(2, np.int64)
    deadlines.least_deadline(t_ns, first, 1, found)
    assert found.tolist() == [deadlines.NEVER, deadlines.NEVER]


def idle_of_a_reader(times: list[int], d_1: int, per_token: int, ended: int | None) -> int:
    """A reader who needs token 1 at d_1 and takes *per_token* for each: how long it stands idle, until *ended* at
    most.
    """
    ready, idle = d_1, 0
    for t in times:
        idle += max(0, t - ready)
        ready = max(ready, t) + per_token
    return idle if ended is None else idle + max(0, ended - ready)


@given(streams, st.integers(0, 500), st.integers(1, 300), st.none() | st.integers(0, 10**6))
def test_lateness_clamped_is_what_a_reader_waits(
    requests: list[list[int]], d_1: int, per_token: int, longer: int | None
) -> None:
    """*longer*: the streams break so long after their last token, and the reader still waits then."""
    t_ns, first, origin = csr(requests)
    last = [sum(gaps) for gaps in requests]
    ended = [None if longer is None else end + longer + 1 for end in last]
    until = np.array([0 if end is None else 1_000 + end for end in ended], np.int64)
    late = np.empty(len(requests), np.int64)
    deadlines.lateness(t_ns, first, origin, until, d_1, per_token, late)
    for found, gaps, end in zip(late.tolist(), requests, ended, strict=True):
        times = np.cumsum(gaps, dtype=np.int64).tolist()
        if not times and end is None:
            assert found == deadlines.NEVER
        else:
            assert max(0, found) == idle_of_a_reader(times, d_1, per_token, end)


@given(streams)
def test_the_gaps_of_a_request_add_up_to_its_last_less_its_first_token(requests: list[list[int]]) -> None:
    t_ns, first, _ = csr(requests)
    kept = np.array([bool(k % 3) for k in range(len(requests))], np.uint8)
    chosen = [gaps for gaps, keep in zip(requests, kept, strict=True) if keep]
    found = np.empty(sum(max(0, len(gaps) - 1) for gaps in chosen), np.int64)
    tokenline.take_gaps(t_ns, first, kept, found)
    assert found.tolist() == [step for gaps in chosen for step in gaps[1:]]
    borders = np.concatenate([[0], np.cumsum([max(0, len(gaps) - 1) for gaps in chosen])]).astype(np.int64)
    jitter, longest = np.empty(len(chosen)), np.empty(len(chosen))
    tokenline.gap_figures(found, borders, jitter, longest)
    for k, gaps in enumerate(chosen):
        steps = np.array(gaps[1:])
        assert longest[k] == steps.max() if len(steps) else np.isnan(longest[k])
        assert jitter[k] == pytest.approx(steps.std(), rel=1e-9, abs=1e-6) if len(steps) > 1 else np.isnan(jitter[k])


@pytest.mark.parametrize("borders", [[0, 9], [-1, 2], [0, 2, 1, 2], []])
def test_borders_outside_the_items_are_refused(borders: list[int]) -> None:
    t_ns, first = np.array([1, 2], np.int64), np.array(borders, np.int64)
    room = max(0, len(borders) - 1)
    into = np.empty(room, np.int64)
    with pytest.raises(IndexError, match="lie within|before it begins|before they begin"):
        deadlines.least_deadline(t_ns, first, 1, into)
    with pytest.raises(IndexError, match="lie within|before it begins"):
        tokenline.take_gaps(t_ns, first, np.ones(room, np.uint8), into)


def test_impossible_settings_are_refused() -> None:
    t_ns, first, origin = csr([[1, 2]])
    with pytest.raises(ValueError, match="above 0"):
        deadlines.fluidity(t_ns, first, origin, origin, 0, np.empty((1, 3), np.int64))
    with pytest.raises(ValueError, match="above 0"):
        deadlines.least_deadline(t_ns, first, 0, np.empty(1, np.int64))
    with pytest.raises(ValueError, match="per request"):
        tokenline.take_gaps(t_ns, first, np.ones(3, np.uint8), np.empty(1, np.int64))
    with pytest.raises(IndexError, match="room for 0"):
        tokenline.take_gaps(t_ns, first, np.ones(1, np.uint8), np.empty(0, np.int64))
    with pytest.raises(ValueError, match="do not fill 3 places"):
        tokenline.spread(t_ns, np.ones(2, np.uint32), np.empty(3, np.int64))
