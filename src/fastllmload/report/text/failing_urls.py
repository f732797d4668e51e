"""Which of several URLs failed, in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastllmload.report.text.numbers import count, number


def failing_urls(document: Mapping[str, Any], room: int) -> str:
    """`7/40 http://b:2/v1, 1/41 http://c:3/v1` (failed of sent), where most failed first. In fewer than *room* columns
    without the numbers, or else as many as fit and how many more there are. Empty with one URL, or when nothing failed.
    """
    found = document.get("by_target")
    each = [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []
    failed = sorted((one for one in each if number(one.get("failed"))), key=lambda one: -(number(one["failed"]) or 0))
    urls = [str(one.get("url")) for one in failed]
    counted = [
        f"{count(one['failed'])}/{count(one.get('dispatched'))} {url}" for one, url in zip(failed, urls, strict=True)
    ]
    for texts in (counted, urls):
        if len(", ".join(texts)) <= room:
            return ", ".join(texts)
    shown = next((n for n in range(len(urls) - 1, 0, -1) if len(cut_short(counted, n)) <= room), 1)
    return cut_short(counted, shown)


def places(failed_at: Mapping[str, int] | None, most: int = 4) -> str:
    """`http://b:2/v1 7, http://c:3/v1 1` while a run goes on, where most failed first; empty where none did."""
    counted = sorted((failed_at or {}).items(), key=lambda one: (-one[1], one[0]))
    return cut_short([f"{url} {count(failed)}" for url, failed in counted], most)


def cut_short(texts: list[str], shown: int) -> str:
    left = max(0, len(texts) - shown)
    return ", ".join(texts[:shown]) + (f" and {left} more" if left else "")
