"""Cascading failure is detected over the last 100 requests, not over the complete run."""

from __future__ import annotations

import pytest

from fastllmload.engine.phases import LAST, FailureMonitor


def detected(share: float | None, totals: list[tuple[int, int]]) -> list[bool]:
    failures = FailureMonitor(share)
    return [failures.update(ended, failed) for ended, failed in totals]


def test_earlier_successes_do_not_hide_it() -> None:
    assert detected(0.5, [(10_000, 0), (10_050, 50), (10_100, 100)]) == [False, False, True]


def test_fewer_than_the_least_are_not_judged() -> None:
    assert detected(0.5, [(LAST - 1, LAST - 1)]) == [False]


@pytest.mark.parametrize(("failed", "found"), [(50, False), (51, True)])
def test_exactly_the_share_is_allowed(failed: int, found: bool) -> None:
    assert detected(0.5, [(LAST, failed)])[-1] is found


def test_a_detected_failure_stays_detected() -> None:
    assert detected(0.5, [(100, 100), (10_000, 100)]) == [True, True]


def test_without_a_share_nothing_is_detected() -> None:
    assert detected(None, [(1_000, 1_000)]) == [False]
