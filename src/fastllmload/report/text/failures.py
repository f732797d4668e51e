"""Lists failures in one line: by class, and by URL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fastllmload.documents.fields import known
from fastllmload.documents.run import RunDocument
from fastllmload.documents.run_parts.counts import ErrorCount
from fastllmload.report.text.numbers import NOT_KNOWN, count

# Clearer names of error classes: what ended the request, rather than where that was detected
CLEARER_NAMES = {"deadline": "timeout", "drain": "cancelled at the end", "event": "stream_error"}
MOST = 20  # URLs in a line


def errors(classes: Mapping[str, float], most: int = 4) -> str:
    """`timeout 3, reset 1`, the most frequent first; empty without errors."""
    ranked = sorted(
        ((name, times) for name, times in classes.items() if times), key=lambda entry: (-entry[1], entry[0])
    )
    texts = [f"{CLEARER_NAMES.get(name, name)} {times:,.0f}" for name, times in ranked[:most]]
    return ", ".join(texts + ([f"and {len(ranked) - most} more classes"] if len(ranked) > most else []))


def error_classes(groups: Sequence[ErrorCount]) -> dict[str, float]:
    """Failed requests by error class, else status, and by HTTP status."""
    classes: dict[str, float] = {}
    for group in groups:
        name, code = group.error or group.status or NOT_KNOWN, group.http_status
        shown = f"{name} {code}:" if code is not None and code != 200 else name
        classes[shown] = classes.get(shown, 0) + (known(group.count) or 0)
    return classes


def failing_urls(document: RunDocument) -> list[str]:
    """`7/40 http://b:2/v1, 1/41 http://c:3/v1` (failed of sent), most failures first; then, ever shorter, without the
    numbers, and the first URLs with the number of the others. Empty with one URL, or when nothing failed.
    """
    failed = sorted((one for one in document.by_target if known(one.failed)), key=lambda one: -(known(one.failed) or 0))
    counted = [f"{count(one.failed)}/{count(one.dispatched)} {one.url}" for one in failed]
    shorter = [abridged(counted, most) for most in range(min(len(failed) - 1, MOST), 0, -1)]
    return [", ".join(counted), ", ".join(str(one.url) for one in failed), *shorter] if failed else []


def failed_counts(failed_at: Mapping[str, int] | None, most: int = 4) -> str:
    """`http://b:2/v1 7, http://c:3/v1 1` during a run, most failures first; empty where nothing failed."""
    counted = sorted((failed_at or {}).items(), key=lambda one: (-one[1], one[0]))
    return abridged([f"{url} {count(failed)}" for url, failed in counted], most)


def abridged(texts: list[str], most: int) -> str:
    """The first *most* of *texts*, and the number of the others."""
    rest = max(0, len(texts) - most)
    return ", ".join(texts[:most]) + (f" and {rest} more" if rest else "")
