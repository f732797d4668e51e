"""Quantities: the value of each unit, and texts that are not quantities."""

from __future__ import annotations

import pytest

from fastllmload import quantities


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30), ("30s", 30), ("1.5 s", 1.5), ("200ms", 0.2), ("5ms", 0.005), ("7us", 7e-6), ("3ns", 3e-9),
        ("5m", 300), ("5min", 300), ("24h", 86_400), ("1d", 86_400), ("1e3", 1_000),
        (".5h", 1_800), ("-1s", -1), (" 2s ", 2), ("0", 0),
    ],
)  # fmt: skip
def test_durations(text: str, seconds: float) -> None:
    assert quantities.duration(text) == seconds


def test_a_plain_number_is_in_the_given_unit_or_not_a_duration() -> None:
    assert (
        quantities.duration("70", "ms") == quantities.duration("70ms", "ms") == quantities.duration("0.07s", "ms") == 70
    )
    assert quantities.duration("2s", "ns", plain=False) == 2e9
    assert quantities.duration("2", "ns", plain=False) is None


@pytest.mark.parametrize(
    "text", ["", "s", "5M", "5 k", "1h30m", "1,5s", "0x10", "1__0", "nan", "inf", "1e999", "5 weeks", "٣s"]
)
def test_texts_that_are_not_durations(text: str) -> None:
    assert quantities.duration(text) is None


def test_numbers_sizes_shares_and_tokens() -> None:
    assert [quantities.number(text) for text in ("1k", "2.5K", "3M", "-4", "1e2")] == [1e3, 2.5e3, 3e6, -4, 100]
    assert [quantities.size(text) for text in ("5B", "2kB", "2KB", "1KiB", "1.5MiB", "2GB", "7")] == [
        5, 2_000, 2_000, 1_024, 1_572_864, 2e9, None,
    ]  # fmt: skip
    assert [quantities.share(text) for text in ("0.35", "35%", "7%", "100%", "5 %", "%")] == [
        0.35,
        0.35,
        0.07,
        1,
        0.05,
        None,
    ]
    assert [quantities.tokens(text) for text in ("20tok", "1token", "3 tokens", "10ktok", "20")] == [
        20,
        1,
        3,
        10_000,
        None,
    ]
    assert [quantities.token_rate(text) for text in ("20", "1k", "20tok/s", "1 ktok/s", "20ms")] == [
        20,
        1e3,
        20,
        1e3,
        None,
    ]
    assert quantities.number("10s") is quantities.number("inf") is quantities.share("5s") is None
