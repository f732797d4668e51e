"""The sizes in docs/many-hosts-sizes.md follow from the layouts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fastllmload import layout
from fastllmload._ext.record import counters, histogram
from fastllmload.records.samples import SAMPLE

PAGE = (Path(__file__).parents[3] / "docs" / "many-hosts-sizes.md").read_text()
UNITS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
HOSTS = (1, 100, 1_000)
EVENTS, REQUESTS, WORKERS = 250_000, 500, 13
ROWS = EVENTS * layout.EVENT.itemsize + REQUESTS * layout.REQUEST.itemsize


def cells(row: str) -> list[str]:
    """The cells after the first one of the only row that *row*, a regular expression, matches."""
    (line,) = (line for line in PAGE.splitlines() if re.match(row, line))
    return [cell.strip() for cell in line.split("|")[2:-1]]


def amount(cell: str) -> float:
    found = re.fullmatch(r"([\d,.]+) ?([kMGT]?)(?:B|bit)?(?:/s)?", cell)
    assert found is not None, cell
    return float(found[1].replace(",", "")) * UNITS[found[2]]


@pytest.mark.parametrize(
    ("file", "size"),
    [
        ("tokens.npy", layout.EVENT.itemsize),
        ("requests.npy", layout.REQUEST.itemsize),
        ("samples.npy", SAMPLE.itemsize),
        ("counters.pxd", 8 * counters.WORDS),
        ("histogram.pxd", 8 * histogram.WORDS),
    ],
)
def test_units_are_those_of_the_layouts(file: str, size: int) -> None:
    assert amount(cells(rf"\| .*`{re.escape(file)}`")[0]) == size


@pytest.mark.parametrize(
    ("name", "of_host"),
    [
        ("events", EVENTS),
        ("requests", REQUESTS),
        ("rows of events", EVENTS * layout.EVENT.itemsize),
        ("rows of requests", REQUESTS * layout.REQUEST.itemsize),
        ("both", 8 * ROWS),
        ("rows on disk", 3600 * ROWS),
        ("workers", WORKERS),
        ("counters that change", 4 * WORKERS * 8 * counters.WORDS),
        ("samples", 4 * WORKERS * SAMPLE.itemsize),
    ],
)
def test_totals_follow_from_them(name: str, of_host: float) -> None:
    for cell, hosts in zip(cells(rf"\| {name}(, (at most|in)[^|]*)? \|"), HOSTS, strict=True):
        assert amount(cell) == pytest.approx(of_host * hosts, rel=0.05), (name, cell)
