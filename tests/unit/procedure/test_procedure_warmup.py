"""The probes of a warm-up are stable when three pairs in a row vary by less than 10 %, in TTFT and in e2e."""

from __future__ import annotations

import pytest

from fastllmload.procedure.warmup import stable


def series(ttft: list[float], e2e: list[float] | None = None) -> list[dict[str, float]]:
    ends = [100.0] * len(ttft) if e2e is None else e2e
    return [{"ttft_ms": a, "e2e_ms": b} for a, b in zip(ttft, ends, strict=True)]


@pytest.mark.parametrize(
    ("ttft", "found"),
    [
        ([10, 10, 10, 10], True),
        ([10, 10, 10], False),  # two pairs
        ([10, 10.9, 11.8, 12.8], True),
        ([10, 11, 11, 11], False),  # 10 % is not less than 10 %
        ([30, 10, 10, 10, 10], True),
        ([10, 10, 10, 20, 10, 10, 10], False),  # never three pairs in a row
    ],
)
def test_pairs_in_a_row(ttft: list[float], found: bool) -> None:
    assert stable(series(ttft)) is found


def test_both_figures_must_be_stable() -> None:
    assert not stable(series([10] * 4, [100, 120, 100, 120]))
