"""Axes contain their values; ticks are inside, with distinct labels; numbers are formatted with units."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastllmload.report.html.charts import scales
from fastllmload.report.html.charts.scales import Linear, LogScale, Names, Scale, TailScale
from fastllmload.report.html.markup import Markup, element, joined, visible
from fastllmload.report.text.numbers import duration

pytestmark = pytest.mark.slow

positive = st.floats(1e-6, 1e9, allow_nan=False)
durations = st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=30)


def assert_holds(scale: Scale, values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> None:
    """Check that all *values* and ticks are within the axis, and that ticks are ascending with distinct labels."""
    places = scale.place(values)
    assert (places >= -1e-9).all() and (places <= 1 + 1e-9).all()
    ticks = scale.ticks()
    assert len(ticks) >= 2
    at = scale.place(np.array([value for value, _ in ticks]))
    assert (at >= -1e-2).all() and (at <= 1 + 1e-2).all() and (np.diff(at) > 0).all()
    labels = [label for _, label in ticks]
    assert len(set(labels)) == len(labels)


@given(st.lists(positive, min_size=1, max_size=30))
def test_an_axis_from_zero_contains_its_values(values: list[float]) -> None:
    given_ = np.array(values)
    scale = scales.up_to([given_, np.array([np.nan])], least=1e-9)
    assert_holds(scale, given_)
    assert scale.low == 0
    assert given_.max() >= scale.high / 3, "no more room than the values need"


@given(durations)
def test_an_axis_of_durations_contains_its_values(values: list[float]) -> None:
    given_ = np.array(values)
    scale = scales.for_durations([given_])
    assert_holds(scale, given_)
    assert isinstance(scale, LogScale) is bool(given_.max() / given_.min() > scales.LOG_BEYOND)


@given(st.lists(st.floats(-1e6, 1e6).filter(lambda value: abs(value) > 1e-3), min_size=1, max_size=30))
def test_an_axis_of_values_of_both_signs_contains_them(values: list[float]) -> None:
    given_ = np.array(values)
    assert_holds(scales.spread(given_, from_zero=False), given_)


@given(st.floats(1e-6, 1e6), st.floats(1.5, 1e9))
def test_powers_of_ten_are_at_equal_distances(low: float, ratio: float) -> None:
    scale = LogScale(scales.round_below(low), scales.round_above(low * ratio) * (1 if ratio > 10 else 10))
    places = scale.place(scale.low * np.array([1.0, 10.0, 100.0]))
    assert places[1] - places[0] == pytest.approx(places[2] - places[1])


@pytest.mark.parametrize("values", [[], [np.array([])], [np.array([np.nan, np.nan])], [np.zeros(5)]])
def test_an_axis_without_values_is_an_axis(values: list[np.ndarray[tuple[int], np.dtype[np.float64]]]) -> None:
    assert scales.up_to(values, least=1e-9).high == pytest.approx(1.0, rel=0.5)
    assert scales.for_durations(values).ticks()


def test_shares_end_at_one_unless_one_is_above() -> None:
    assert scales.up_to([np.array([0.99])], scales.percent, 1e-6, most=1.0).high == 1.0
    assert scales.up_to([np.array([0.3])], scales.percent, 1e-6, most=1.0).high < 0.5
    assert scales.up_to([np.array([1.2])], scales.percent, 1e-6, most=1.0).high > 1.2


def test_the_tail_axis_gives_every_nine_the_same_width() -> None:
    ticks = {label: place for place, label in TailScale(4.0).ticks()}
    assert list(ticks) == ["min", "P50", "P90", "P99", "P99.9", "P99.99"]
    assert ticks["P99.9"] - ticks["P99"] == ticks["P99"] - ticks["P90"] == 1.0


def test_categories_are_centred() -> None:
    scale = Names(["small", "large", "a name that is far too long to stand below a group of bars"])
    assert [value for value, _ in scale.ticks()] == [0.5, 1.5, 2.5]
    assert scale.ticks()[2][1].endswith("…")
    assert scale.place(np.array([0.0, 3.0])).tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0"),
        (0.00025, "250 ns"),
        (0.031, "31 µs"),
        (48.54, "48.5 ms"),
        (99.96, "100 ms"),
        (999.7, "1 s"),
        (3162, "3.16 s"),
    ],
)
def test_durations_are_written_in_a_suitable_unit(ms: float, text: str) -> None:
    assert duration(ms) == text


def test_durations_can_have_trailing_zeros() -> None:
    assert [duration(ms, zeros=True) for ms in (18.0, 5.0, 250.0, 1000.0)] == [
        "18.0 ms",
        "5.00 ms",
        "250 ms",
        "1.00 s",
    ]


@given(positive)
def test_a_round_value_is_near_and_on_the_right_side(value: float) -> None:
    below, above = scales.round_below(value), scales.round_above(value)
    assert value / 2.6 <= below <= value * 1.001 and value * 0.999 <= above <= value * 2.6
    for found in (below, above):
        assert found / 10 ** math.floor(math.log10(found) + 1e-9) == pytest.approx(
            round(found / 10 ** math.floor(math.log10(found) + 1e-9))
        )


def test_linear_ticks_are_multiples_of_a_round_step() -> None:
    assert [label for _, label in Linear(0.0, 2.5).ticks()] == ["0", "0.5", "1", "1.5", "2", "2.5"]


@given(st.text(max_size=60))
def test_text_is_escaped_and_markup_is_kept(text: str) -> None:
    made = element("p", text, Markup("<b>x</b>"), title=text)
    assert made.count("<") == 4 and made.endswith("<b>x</b></p>")
    assert joined(None, made) == made


@given(st.text(max_size=600))
def test_external_text_becomes_one_printable_line(text: str) -> None:
    shown = visible(text)
    assert shown.isprintable() and len(shown) <= 400
