"""Changes of figures of sessions, of runs that are made up with a known shift: intervals contain it, whatever fails."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from refusals import codes

from fastllmload.compare.paired import in_blocks, pairs_of_requests
from fastllmload.metrics.run.measure import measure
from fastllmload.records.run import load
from fastllmload.statistics.interval import Sample

sys.path.insert(0, str(Path(__file__).parents[3] / "bench" / "statistical"))
from sessions_coverage import FIGURES, SETTINGS, compared, truth

pytestmark = pytest.mark.slow
SLOWER = 0.15
PAIRS, LEAST = 12, 9  # of intervals of 95 %: fewer by chance in two of a thousand


@pytest.mark.parametrize("name", ["failures on both sides", "own plans, 1 : 3 sessions"])
def test_intervals_contain_the_shift(tmp_path: Path, name: str) -> None:
    """Sessions of one plan that failed on one side alone are part of the figures, and so of their interval."""
    wanted, inside, judged = truth(SETTINGS[name], SLOWER), Counter[str](), Counter[str]()
    for seed in range(PAIRS):
        (tmp_path / str(seed)).mkdir()
        found = compared(tmp_path / str(seed), SETTINGS[name], SLOWER, seed)
        for row in found.rows:
            if row.change.interval is not None:
                low, high = row.change.interval
                base, new = wanted[row.figure.name]
                judged[row.figure.name] += 1
                inside[row.figure.name] += low <= new - base <= high
    assert all(judged[each] >= 0.8 * PAIRS for each in FIGURES), judged
    assert all(inside[each] >= judged[each] - (PAIRS - LEAST) for each in FIGURES), (inside, judged)


def test_sessions_that_fail_on_one_side_are_said(tmp_path: Path) -> None:
    found = {}
    for name in ("one plan", "failures on both sides", "many failures on one side"):
        (tmp_path / name).mkdir()
        found[name] = compared(tmp_path / name, SETTINGS[name], SLOWER, 3)
    assert [("sessions-unlike" in codes(each.notes)) for each in found.values()] == [False, False, True]
    (note,) = [each for each in found["many failures on one side"].notes if "sessions-unlike" in each]
    figures = measure(load(tmp_path / "many failures on one side" / "run1")).sessions
    assert figures is not None and f"{int(figures.failed) / int(figures.begun):.1%}" in note  # type: ignore[arg-type]


def test_rates_of_sessions_are_those_of_run_json(tmp_path: Path) -> None:
    """The twentieths that a change is judged by add up to the sessions that run.json counts."""
    found = compared(tmp_path, SETTINGS["cancels"], SLOWER, 1)
    for name in ("sessions_s", "session_goodput"):
        (row,) = [each for each in found.rows if each.figure.name == name]
        for run, value in zip(("run0", "run1"), (row.base.value, row.new.value), strict=True):
            metric = (measure(load(tmp_path / run)).metrics or {})[name]
            assert value == metric.value
        assert row.change.interval is not None


def test_what_has_no_partner_is_in_the_block_of_its_neighbours() -> None:
    values = np.arange(100.0)
    a, b = (Sample(each, each) for each in (values, np.delete(values, [7, 50, 99])))
    pairs = pairs_of_requests(a, b, np.arange(100), np.delete(np.arange(100), [7, 50, 99]))
    assert pairs is not None and pairs.n == 97 and pairs.blocks is not None
    ours, theirs = pairs.sides
    assert sorted(ours.values.tolist()) == values.tolist() and (np.diff(ours.values) > 0).all()
    assert theirs.values.tolist() == b.values.tolist()
    block = np.searchsorted(ours.edges, np.searchsorted(ours.values, [6, 7, 49, 50, 98, 99]), "right")
    assert block[0] == block[1] and block[2] == block[3] and block[4] == block[5]
    alone = in_blocks(Sample(values, values), np.arange(10, 100))
    assert alone.edges[0] == 0 and alone.values[: alone.edges[1]].tolist()[:10] == values[:10].tolist()


def test_without_others_blocks_are_those_of_the_pairs() -> None:
    values = np.arange(100.0)
    a = Sample(values, values)
    pairs = pairs_of_requests(a, a, np.arange(100), np.arange(100))
    assert pairs is not None and pairs.blocks is None and (pairs.sides[0].edges == a.edges()).all()
