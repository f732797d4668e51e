"""Cascading failure is seen over the last 100 requests, not over the whole run."""

from __future__ import annotations

import pytest

from fastllmload.engine.failures import LAST, Failures


def looked(share: float | None, looks: list[tuple[int, int]]) -> list[bool]:
    failures = Failures(share)
    return [failures.seen(ended, failed) for ended, failed in looks]


def test_a_healthy_past_does_not_hide_it() -> None:
    assert looked(0.5, [(10_000, 0), (10_050, 50), (10_100, 100)]) == [False, False, True]


def test_fewer_than_the_least_are_not_judged() -> None:
    assert looked(0.5, [(LAST - 1, LAST - 1)]) == [False]


@pytest.mark.parametrize(("failed", "found"), [(50, False), (51, True)])
def test_the_share_itself_is_still_allowed(failed: int, found: bool) -> None:
    assert looked(0.5, [(LAST, failed)])[-1] is found


def test_once_found_it_stays() -> None:
    assert looked(0.5, [(100, 100), (10_000, 100)]) == [True, True]


def test_without_a_share_nothing_is_ever_found() -> None:
    assert looked(None, [(1_000, 1_000)]) == [False]
