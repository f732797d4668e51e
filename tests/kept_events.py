"""Compares run.json of a run whose events stayed on their hosts with one that was computed from all events."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

GAPS = ("itl", "tbc", "itl_b")
SHAPES = ("tail_ratio", "modality", "tail_index")
RANKS = ("p50", "p75", "p90", "p95", "p99", "p999", "median")
DIGITS = 2 / 1024  # relative error of a rank of a histogram with three digits, and of what is computed from two


def differences(full: Mapping[str, Any], kept: Mapping[str, Any]) -> dict[tuple[str, ...], tuple[Any, Any]]:
    """By place, what should be the same and is not. Shapes of gaps are left out."""
    found, expected = dict(leaves(without_gaps(kept))), dict(leaves(without_gaps(full)))
    return {
        at: (expected.get(at), found.get(at))
        for at in found.keys() | expected.keys()
        if not unknown(at) and not set(SHAPES) & set(at) and not equal(at, expected.get(at), found.get(at))
    }


def without_gaps(document: Mapping[str, Any]) -> dict[str, Any]:
    """*document* without reasons of the run that quote figures of gaps, and the verdict, which they may decide."""
    certificate = dict(document["certificate"])
    quoting = [one for one in certificate["reasons"] if str(one["figure"]).startswith(GAPS)]
    certificate["reasons"] = [one for one in certificate["reasons"] if one not in quoting]
    if quoting:
        del certificate["verdict"]
    return {**document, "certificate": certificate}


def equal(at: tuple[str, ...], one: Any, other: Any) -> bool:
    if not of_ranks(at):
        return same(one, other)
    return close(one, other, 2 * DIGITS) if at[-1] == "error_share" else close(one, other)


def leaves(document: Any, at: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(document, dict):
        for key, inner in document.items():
            yield from leaves(inner, (*at, key))
    elif isinstance(document, list) and document and isinstance(document[0], dict):
        for number, inner in enumerate(document):
            yield from leaves(inner, (*at, str(number)))
    else:
        yield at, document


def of_ranks(at: tuple[str, ...]) -> bool:
    """Whether a figure comes from ranks of gaps, which are known to three digits."""
    if at[0] == "certificate":
        return (at[1] == "figures" and at[2] in GAPS) or (
            at[1:3] == ("latency_error_bar_us", "itl") and at[-1] != "max"
        )
    if len(at) == 1:
        return at[0].endswith("_itl_ms") and not at[0].startswith(("mean", "std"))
    gaps = any(name in at for name in GAPS)
    return at[0] in ("metrics", "classes") and gaps and ("bounds" in at or any(rank in at for rank in RANKS))


def unknown(at: tuple[str, ...]) -> bool:
    """Whether a figure is null without events, or says so."""
    if at[0] == "files" or (at[0] == "hosts" and at[-1] in ("events", "last_event_ns")):
        return True
    if at[0] == "certificate" and at[-1] == "verdict" and set(GAPS) & set(at):  # of a figure that is close to a limit
        return True
    if at[:2] == ("metrics", "tokens_in_flight") and at[-1] in ("max", "note"):
        return True
    gaps = any(name in at for name in GAPS)
    return gaps and ("ci95" in at or "not_estimable" in at or "note" in at)


def same(one: Any, other: Any) -> bool:
    """Equal but for the rounding of sums in another order."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, float) and isinstance(other, float | int):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
    return bool(one == other)


def close(one: Any, other: Any, absolute: float = 1e-5) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return all(close(a, b, absolute) for a, b in zip(one, other, strict=True))
    if isinstance(one, float | int) and isinstance(other, float | int):
        return math.isclose(one, other, rel_tol=DIGITS, abs_tol=absolute)
    return bool(one == other)
