"""Lists in one line which of several URLs failed."""

from __future__ import annotations

from collections.abc import Mapping

from fastllmload.documents.fields import known
from fastllmload.documents.run import RunDocument
from fastllmload.report.text.numbers import count


def failing_urls(document: RunDocument, room: int) -> str:
    """`7/40 http://b:2/v1, 1/41 http://c:3/v1` (failed of sent), most failures first. Where that takes more than *room*
    columns, without the numbers, or as many URLs as fit and the number of the others. Empty with one URL, or when
    nothing failed.
    """
    failed = sorted((one for one in document.by_target if known(one.failed)), key=lambda one: -(known(one.failed) or 0))
    urls = [str(one.url) for one in failed]
    counted = [f"{count(one.failed)}/{count(one.dispatched)} {url}" for one, url in zip(failed, urls, strict=True)]
    for texts in (counted, urls):
        if len(", ".join(texts)) <= room:
            return ", ".join(texts)
    fitting = next((n for n in range(len(urls) - 1, 0, -1) if len(abridged(counted, n)) <= room), 1)
    return abridged(counted, fitting)


def failed_counts(failed_at: Mapping[str, int] | None, most: int = 4) -> str:
    """`http://b:2/v1 7, http://c:3/v1 1` during a run, most failures first; empty where nothing failed."""
    counted = sorted((failed_at or {}).items(), key=lambda one: (-one[1], one[0]))
    return abridged([f"{url} {count(failed)}" for url, failed in counted], most)


def abridged(texts: list[str], most: int) -> str:
    """The first *most* of *texts*, and the number of the others."""
    rest = max(0, len(texts) - most)
    return ", ".join(texts[:most]) + (f" and {rest} more" if rest else "")
