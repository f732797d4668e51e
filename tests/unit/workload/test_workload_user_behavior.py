"""Think times, turns and user behavior: texts to values."""

from __future__ import annotations

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import raises_code

from fastllmload.workload.user_behavior import (
    Abandonment,
    Cancellation,
    Pause,
    SlowReading,
    read_abandon,
    read_cancel_after,
    read_pause,
    read_slow_readers,
    read_turns,
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("0", Pause("constant", 0.0)),
        ("250ms", Pause("constant", 0.25)),
        ("uniform:1s,5s", Pause("uniform", 1.0, 5.0)),
        ("uniform:0,2m", Pause("uniform", 0.0, 120.0)),
        ("exponential:3s", Pause("exponential", 3.0)),
        ("lognormal:2s,0.5", Pause("lognormal", 2.0, 0.5)),
    ],
)
def test_think_times(text, found):
    """A mean of 4,000 draws is within 10 % of `mean`."""
    pause = read_pause(text)
    assert pause == found
    stream = random.Random(1)
    drawn = [pause.draw(stream) for _ in range(4000)]
    assert min(drawn) >= 0
    assert statistics.fmean(drawn) == pytest.approx(pause.mean, rel=0.1, abs=1e-12)


@pytest.mark.parametrize(
    "text", ["", "soon", "-1", "uniform:5,1", "uniform:1", "exponential:0", "lognormal:1s", "2parsecs", "nan"]
)
def test_invalid_think_times_are_refused(text):
    with raises_code("time-invalid", "2s"):
        read_pause(text)


@given(st.text(max_size=12))
def test_any_text_is_read_or_refused(text):
    for reading in (read_pause, read_turns, read_cancel_after, read_slow_readers, read_abandon):
        try:
            reading(text)
        except ValueError as problem:
            assert "write" in str(problem)


def test_turns():
    assert [read_turns(text) for text in ("4", "3-8", "normal:6,2", "all")] == ["4", "uniform:3,8", "normal:6,2", None]
    for text in ("0", "8-3", "-", "many"):
        with raises_code("count-invalid"):
            read_turns(text)


def test_cancellation_slow_reading_and_abandonment():
    assert read_cancel_after("20tok") == Cancellation(tokens=20)
    assert read_cancel_after("1.5s") == Cancellation(ns=1_500_000_000)
    assert read_slow_readers("0.05:20tok/s") == SlowReading(0.05, 20.0, False)
    assert read_slow_readers("1:2kB/s") == SlowReading(1.0, 2000.0, True)
    assert read_abandon("ttft:5s") == Abandonment(5_000_000_000, False)
    assert read_abandon("e2e:500ms") == Abandonment(500_000_000, True)


@pytest.mark.parametrize(
    ("reading", "texts"),
    [
        (read_cancel_after, ["20", "0tok", "1.5tok"]),
        (read_slow_readers, ["20tok/s", "2:20tok/s", "0.1:0tok/s"]),
        (read_abandon, ["tpot:5s", "ttft:0"]),
    ],
)
def test_invalid_user_behavior_is_refused(reading, texts):
    for text in texts:
        with pytest.raises(ValueError, match="write for example"):
            reading(text)
