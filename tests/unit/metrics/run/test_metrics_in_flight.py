"""Tokens in flight against a count at every instant."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastllmload.documents.run import RunDocument
from fastllmload.metrics.run import in_flight
from fastllmload.metrics.run.window import Window
from fastllmload.metrics.tokens.counts import count_tokens
from fastllmload.records import layout
from fastllmload.records.run import Run

pytestmark = pytest.mark.slow

T0 = 1_000


def run_of(requests: list[tuple[int, int, int, list[int]]]) -> Run:
    """(t_submit, t_end, prompt tokens, times of single-token events); t_end 0 for one that is still in flight."""
    rows = np.zeros(len(requests), layout.REQUEST)
    events, first = [], [0]
    for number, (t_submit, t_end, prompt, times) in enumerate(requests):
        rows[number]["t_submit"], rows[number]["t_end"], rows[number]["prompt_tokens"] = t_submit, t_end, prompt
        rows[number]["completion_tokens"], rows[number]["phase"] = len(times), layout.MEASURE
        rows[number]["cached_tokens"] = rows[number]["reasoning_tokens"] = -1
        events += [(t, number, layout.EVENT_CONTENT, 1, 1, 0, 0) for t in sorted(times)]
        first.append(len(events))
    made = np.array(events, layout.EVENT) if events else np.empty(0, layout.EVENT)
    return Run(Path("."), RunDocument(), rows, made, np.array(first, np.int64))


def measured(run: Run, window: Window) -> in_flight.TokensInFlight | None:
    return in_flight.tokens_in_flight(run, window, count_tokens(run), np.ones(len(run.rows), bool))


def by_hand(requests: list[tuple[int, int, int, list[int]]], window: Window) -> tuple[float, float]:
    """The level in each of the window's instants, one by one."""
    levels = []
    for now in range(window.w0_ns, window.w1_ns):
        alive = [r for r in requests if r[0] <= now < (r[1] or window.w1_ns)]
        levels.append(sum(prompt + sum(t <= now for t in times) for _, _, prompt, times in alive))
    return float(np.mean(levels)), float(max(levels))


@st.composite
def request_of(draw: st.DrawFn) -> tuple[int, int, int, list[int]]:
    begin = draw(st.integers(T0 - 20, T0 + 50))
    times = sorted(draw(st.lists(st.integers(begin, T0 + 70), max_size=6)))
    end = draw(st.sampled_from([0, max([begin, *times]), max([begin, *times]) + draw(st.integers(1, 30))]))
    return begin, end, draw(st.integers(0, 9)), times


@settings(deadline=None)
@given(st.lists(request_of(), max_size=8))
def test_as_counted_by_hand(requests: list[tuple[int, int, int, list[int]]]) -> None:
    window = Window(T0, T0 + 60, closed=False)
    found = measured(run_of(requests), window)
    assert found is not None
    mean, highest = by_hand(requests, window)
    assert found.mean == pytest.approx(mean) and found.max == pytest.approx(highest)


def test_pieces_do_not_change_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are read a few at a time; one row may have more events than a piece."""
    rng = np.random.default_rng(5)
    requests = [(int(t), int(t) + 60, 5, rng.integers(t, t + 60, rng.integers(0, 9)).tolist())
                for t in rng.integers(T0, T0 + 500, 40)]  # fmt: skip
    window = Window(T0 + 50, T0 + 500, closed=False)
    whole = measured(run_of(requests), window)
    monkeypatch.setattr(in_flight, "EVENTS_AT_ONCE", 4)
    pieces = measured(run_of(requests), window)
    assert whole is not None and pieces is not None
    assert (pieces.mean, pieces.max) == pytest.approx((whole.mean, whole.max)) and whole.max > 0


def test_an_event_of_several_tokens_and_a_request_that_was_not_sent() -> None:
    """Usage says 6 tokens for events of 1 and 2: they count as 2 and 4."""
    run = run_of([(T0, T0 + 100, 10, [T0 + 20, T0 + 60]), (0, 0, 50, [])])
    run.events["tokens"][:] = [1, 2]
    run.rows["completion_tokens"][0] = 6
    found = measured(run, Window(T0, T0 + 100, closed=False))
    assert found is not None and found.max == 16
    assert found.mean == pytest.approx((20 * 10 + 40 * 12 + 40 * 16) / 100)


def test_no_duration_no_figure() -> None:
    assert measured(run_of([(T0, T0 + 1, 1, [])]), Window(T0, T0, closed=True)) is None
    nothing = measured(run_of([]), Window(T0, T0 + 10, closed=True))
    assert nothing is not None and (nothing.mean, nothing.max) == (0.0, 0.0)


@settings(deadline=None)
@given(st.lists(request_of(), max_size=8), st.sampled_from([1, 2, 5, 16]))
def test_however_coarse_the_first_grid(requests: list[tuple[int, int, int, list[int]]], cells: int) -> None:
    """The highest level is found whichever cells of time are left out before it is looked for."""
    window = Window(T0, T0 + 60, closed=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(in_flight, "CELLS", cells)
        found = measured(run_of(requests), window)
    assert found is not None and (found.mean, found.max) == pytest.approx(by_hand(requests, window))
