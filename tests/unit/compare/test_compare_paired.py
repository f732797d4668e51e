"""Requests of two single runs of one plan, compared with themselves: small changes are found, chance is not."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from made_runs import plan, write_run

from fastllmload.compare import paired
from fastllmload.compare.comparison import compare
from fastllmload.compare.figure import ComparedFigure
from fastllmload.compare.paired import (
    BETWEEN_RUNS,
    LEAST_DF,
    Pairs,
    _backlog_errors,
    _merged_blocks,
    change_of_pairs,
    drifted_apart,
    effective_blocks,
    pairs_of_requests,
)
from fastllmload.compare.report.blocks import for_terminal
from fastllmload.compare.report.json import document
from fastllmload.compare.side import read_side
from fastllmload.report.render import text
from fastllmload.statistics.interval import Sample

sys.path.insert(0, str(Path(__file__).parents[3] / "bench" / "statistical"))
from alarms import Alarms, figure_value, pair, within
from compare_virtual import SETTINGS
from compare_virtual import pair as virtual_pair

pytestmark = pytest.mark.slow

N = 756  # of 840 requests the first tenth is the ramp
Floats = npt.NDArray[np.float64]


def sample(values: Floats, first: npt.NDArray[np.int64] | None = None) -> Sample:
    return Sample(values, np.sort(values), first)


def level_walk(rng: np.random.Generator, lasting: int) -> Floats:
    """What all requests of a while share: standard normal, forgotten after about *lasting* requests."""
    kept, found = np.exp(-1 / lasting), np.empty(N)
    found[0] = rng.standard_normal()
    for k, new in enumerate(rng.standard_normal(N - 1) * np.sqrt(1 - kept**2)):
        found[k + 1] = kept * found[k] + new
    return found


def engine_pair(rng: np.random.Generator, slower: float) -> Pairs:
    """Lengths of the plan spread both sides alike by 30 %; batches, shared for some 10 requests, by 3 % a side."""
    lengths = 0.3 * rng.standard_normal(N)
    a, b = (np.exp(lengths + 0.03 * level_walk(rng, 10) + 0.02 * rng.standard_normal(N)) for _ in range(2))
    return Pairs(sample(a), sample((1 + slower) * b))


def judged(pairs: Pairs, statistic: str) -> bool | None:
    """Whether a change was found; None where it is not estimable."""
    values = figure_value(pairs.a, statistic), figure_value(pairs.b, statistic)
    p = change_of_pairs(ComparedFigure(statistic, "ttft", statistic, "ms"), pairs, values, 0.5).p
    return None if p is None else p < 0.05


def test_five_percent_is_found_and_chance_is_not() -> None:
    """Each run alone carries an interval of 2 % at best: the lengths of its requests spread by 30 %."""
    rng, claims = np.random.default_rng(1), {0.0: Counter[str](), 0.05: Counter[str]()}
    for slower, tally in claims.items():
        for _ in range(100):
            pairs = engine_pair(rng, slower)
            tally.update(name for name in ("mean", "p50", "p90") if judged(pairs, name))
    assert min(claims[0.05][name] for name in ("mean", "p50")) >= 90
    assert max(claims[0.0].values(), default=0) <= 10  # 5 % and two standard errors


def test_neighbours_that_depend_on_each_other_raise_no_more_alarms() -> None:
    """What 50 requests share lasts for more than a block of 38."""
    rng, alarms = np.random.default_rng(2), 0
    for _ in range(200):
        a, b = (np.exp(0.05 * level_walk(rng, 50)) for _ in range(2))
        alarms += bool(judged(Pairs(sample(a), sample(b)), "mean"))
    assert alarms <= 20  # as independent requests they would raise 140


@pytest.mark.parametrize("load", [0.3, 0.5])
def test_queues_of_equal_speed_raise_no_more_alarms_than_stated(load: float) -> None:
    rng, tally = np.random.default_rng(3), Alarms()
    for _ in range(200):
        tally.count(within(pair(rng, N, load, 0.0, True), "mean", True))
    assert tally.judged >= 195 and tally.alarmed <= 20  # runs that drift apart by chance are not judged


def test_what_lasts_longer_than_a_block_widens_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue near its limit remembers for hundreds of requests: blocks of 38 alone make too much of the difference."""
    rng = np.random.default_rng(12)
    made = [[np.exp(0.2 * level_walk(rng, 150)) for _ in range(2)] for _ in range(30)]
    together = [mean_interval(a, b) for a, b in made]
    monkeypatch.setattr(paired, "CORRELATED", 1.0)
    alone = [mean_interval(a, b) for a, b in made]
    ratios = [one / other for one, other in zip(together, alone, strict=True) if one and other]
    assert len(ratios) > 15 and min(ratios) >= 1 and max(ratios) > 1.2


def mean_interval(a: Floats, b: Floats) -> float | None:
    """Its width; None where the runs drift apart."""
    values = float(a.mean()), float(b.mean())
    found = change_of_pairs(ComparedFigure("mean", "ttft", "mean", "ms"), Pairs(sample(a), sample(b)), values, 0.5)
    return None if found.interval is None else found.interval[1] - found.interval[0]


def test_runs_that_drift_apart_have_no_difference_to_claim() -> None:
    """A stall of seconds in one of two equal runs: the backlog that it leaves is worked off within the run."""
    rng = np.random.default_rng(8)
    a, b = (0.3 * np.exp(0.1 * rng.standard_normal(N)) for _ in range(2))
    late = Pairs(sample(a), sample(b + np.linspace(4, 1, N)))
    found = change_of_pairs(
        ComparedFigure("mean", "ttft", "mean", "ms"), late, (float(a.mean()), float(b.mean()) + 2.5), 0.5
    )
    assert found.p is None and found.why_not is not None and "drift apart" in found.why_not
    slower = Pairs(sample(a), sample(1.25 * b))
    assert drifted_apart(slower) is None and judged(slower, "mean")


def test_blocks_that_share_nothing_are_not_taken_together() -> None:
    assert _merged_blocks(np.tile([1.0, -1.0], 10)) == []
    (twos, _), (fours, n) = _merged_blocks(np.repeat([1.0, 2.0, 5.0, 4.0, 3.0], 4))
    assert n == 5 and min(twos, fours) > 1


def test_a_tail_without_requests_is_not_estimable() -> None:
    pairs = engine_pair(np.random.default_rng(4), 0.0)
    values = pairs.a.at(0.999), pairs.b.at(0.999)
    found = change_of_pairs(ComparedFigure("p999", "ttft", "p999", "ms"), pairs, values, 0.5)
    assert found.p is None and found.lacking is not None and found.lacking[1] > N and found.pairs == N


def test_a_run_against_itself_differs_by_nothing_but_what_runs_may() -> None:
    pairs = engine_pair(np.random.default_rng(5), 0.0)
    found = change_of_pairs(ComparedFigure("mean", "ttft", "mean", "ms"), Pairs(pairs.a, pairs.a), (1.0, 1.0), 0.5)
    assert found.p == 1.0 and found.relative_interval is not None
    assert found.relative_interval[1] > BETWEEN_RUNS


def test_values_of_zero_have_no_logarithm_but_a_difference() -> None:
    rng = np.random.default_rng(6)
    a = rng.exponential(1.0, N) * (rng.random(N) > 0.6)
    found = change_of_pairs(ComparedFigure("p50", "x", "p50", "ms"), Pairs(sample(a), sample(a + 5.0)), (0.0, 5.0), 0.5)
    assert found.interval is not None and found.interval[0] < 5.0 < found.interval[1] and found.shown


def test_requests_find_their_partners() -> None:
    """By number, in the base's order; what only one side has is left out."""
    a, b = sample(np.arange(100.0)), sample(np.arange(1000.0, 1100.0))
    found = pairs_of_requests(a, b, np.arange(100), np.arange(104, 4, -1))
    assert found is not None and found.n == 95
    assert found.a.values.tolist() == [float(k) for k in range(5, 100)]
    assert found.b.values.tolist() == [1000.0 + 104 - k for k in range(5, 100)]


def test_requests_with_several_values_find_their_partners() -> None:
    first = np.concatenate([[0], np.cumsum(np.arange(1, 101) % 3)])
    values = np.arange(float(first[-1]))
    found = pairs_of_requests(sample(values, first), sample(values, first), np.arange(100), np.arange(100)[::-1])
    assert found is not None and found.a.first is not None and found.b.first is not None
    for k in (0, 1, 57, 99):
        mine, theirs = (
            each.values[each.first[k] : each.first[k + 1]].tolist()
            for each in (found.a, found.b)
            if each.first is not None
        )
        assert mine == values[first[k] : first[k + 1]].tolist()
        assert theirs == values[first[99 - k] : first[100 - k]].tolist()


def test_few_partners_or_repeated_numbers_give_no_pairs() -> None:
    a = sample(np.arange(100.0))
    assert pairs_of_requests(a, a, np.arange(100), np.arange(20, 120)) is None
    assert pairs_of_requests(a, a, np.arange(100), np.arange(100) % 99) is None


def test_a_spread_that_rests_on_one_block_has_few_degrees_of_freedom() -> None:
    even = np.random.default_rng(7).standard_normal(20)
    one = np.where(np.arange(20) == 3, 10.0, 0.01 * even)
    assert effective_blocks(even) > 8 and effective_blocks(one) < 4


def test_the_comparison_says_that_requests_were_paired_and_by_what(tmp_path: Path) -> None:
    sides = [read_side([str(write_run(tmp_path / name, 1, 800, factor))]) for name, factor in (("a", 1.0), ("b", 1.03))]
    found = compare(sides[0], sides[1], ["mean_e2e_ms", "p50_itl_ms", "req_s"])
    rows = {row.figure.name: row for row in found.rows}
    assert rows["mean_e2e_ms"].result == rows["p50_itl_ms"].result == "worse"
    assert rows["req_s"].change.pairs is None
    written = document(found, [])
    pairs = rows["mean_e2e_ms"].change.pairs
    assert f"plan {'d' * 12}" in written["paired"]["by"]
    assert written["paired"]["pairs"]["mean_e2e_ms"] == written["figures"]["mean_e2e_ms"]["pairs"] == pairs
    printed = " ".join(" ".join(text.lines(for_terminal(found, [], 80), 80)).split())
    assert f"{'d' * 12}: {pairs:,} pairs in 20 blocks" in printed
    assert "0.5 % standard error" in printed


def test_runs_of_two_plans_are_not_paired(tmp_path: Path) -> None:
    a = write_run(tmp_path / "a", 1, 800)
    b = write_run(tmp_path / "b", 2, 800, plan=plan("e" * 64, schedule="t" * 64))
    found = compare(read_side([str(a)]), read_side([str(b)]), ["mean_e2e_ms"], different_workload=True)
    assert found.paired_by is None and found.rows[0].change.pairs is None
    assert document(found, [])["paired"] is None


def test_equal_engines_near_their_limit_raise_no_more_alarms_than_stated() -> None:
    """The backlog of the bundled engine grows, in virtual time; one ratio of its means alone raises 18 of these 80."""
    alarms = Counter[bool | None]()
    for seed in range(80):
        base, new = virtual_pair(SETTINGS["h100-8b, near its limit"], seed, 0.0)
        alarms[judged(Pairs(base["ttft"], new["ttft"]), "mean")] += 1
    assert alarms[None] <= 4 and alarms[True] <= 8  # 5 % and two standard errors


def test_plain_differences_are_judged_where_both_levels_wander() -> None:
    """Both levels grow tenfold, and the difference with them: about one ratio nothing is left of how far it may go."""
    rng, grown = np.random.default_rng(22), np.linspace(0.1, 1.0, N)
    a, b = (grown * share + 0.001 * rng.standard_normal(N) for share in (1.0, 1.05))
    (factor, df), *others = _backlog_errors(Pairs(sample(a), sample(b)))
    assert not others and factor > 20 and df == LEAST_DF
    steady = a - grown + 1.0
    assert _backlog_errors(Pairs(sample(steady), sample(b))) == []


def test_the_effect_of_a_batch_on_token_times_is_not_a_backlog() -> None:
    """The number of requests in flight wanders with the plan, alike on both sides; 6 % are found all the same."""
    found = Counter[bool | None]()
    for seed in range(20):
        base, new = virtual_pair(SETTINGS["h100-8b"], seed, 0.06)
        found.update(judged(Pairs(base[name], new[name]), "mean") for name in ("tpot", "e2e"))
    assert found[True] >= 36
