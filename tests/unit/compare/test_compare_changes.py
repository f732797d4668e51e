"""Differences, their intervals and tests: what is there is found, what is not alarms at the stated rate."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy
from made_runs import plan, side, write_run
from typed_documents import typed

from fastllmload.compare.between import change_between
from fastllmload.compare.comparison import Comparison, Row, compare
from fastllmload.compare.figure import ComparedFigure, figure_of, known_names
from fastllmload.compare.paired import PAIRED
from fastllmload.compare.side import Side, read_side
from fastllmload.compare.within import change_of_separated, correlation_factor, expanded, superiority
from fastllmload.documents.write import plain
from fastllmload.statistics.interval import Sample

sys.path.insert(0, str(Path(__file__).parents[3] / "bench" / "statistical"))
from alarms import Alarms, pair, within
from refusals import raises_code

pytestmark = pytest.mark.slow


def row(comparison: Comparison, name: str) -> Row:
    return next(each for each in comparison.rows if each.figure.name == name)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Side]:
    """Runs a and b of one speed, c slower by a tenth, and one with failures."""
    base = tmp_path_factory.mktemp("runs")
    made = {"a": (1, 1.0, 0.0), "b": (2, 1.0, 0.0), "c": (3, 1.1, 0.0), "broken": (4, 1.0, 0.3)}
    return {
        name: read_side([str(write_run(base / name, seed, 800, factor, failures))])
        for name, (seed, factor, failures) in made.items()
    }


def test_one_run_a_side_finds_a_slower_server(folders: dict[str, Side]) -> None:
    found = compare(folders["a"], folders["c"], ["p50_ttft_ms", "mean_e2e_ms", "p50_itl_ms"])
    for name in ("p50_ttft_ms", "mean_e2e_ms"):
        change = row(found, name).change
        assert change.relative_interval is not None
        assert change.relative_interval[0] < 0.1 < change.relative_interval[1]
    assert row(found, "p50_ttft_ms").result == "worse"
    assert found.test == PAIRED and f"plan {'d' * 12}" in found.paired_by
    assert 650 < (row(found, "p50_ttft_ms").change.pairs or 0) <= 720
    assert any("one run a" in note for note in found.notes)


def test_gaps_of_different_kinds_are_reported(folders: dict[str, Side]) -> None:
    """One side has gaps between chunks of several tokens, the other gaps between tokens."""
    first, other = folders["a"], folders["b"]
    assert not any("unlike kinds" in note for note in compare(first, other, ["p50_itl_ms"]).notes)
    metrics = dict(plain(other.first.document)["metrics"])
    metrics["share_single"] = {**(metrics.get("share_single") or {}), "pooled_as": "tbc"}
    metrics["tbc"], metrics["itl"] = metrics["itl"], {**metrics["itl"], "n": 0}
    record = replace(other.first, document=typed({**plain(other.first.document), "metrics": metrics}))
    found = compare(first, replace(other, runs=[record]), ["p50_itl_ms"])
    assert any(f"itl of {first.name} and tbc of {other.name}" in note for note in found.notes)


def test_nothing_is_found_between_runs_of_one_speed(folders: dict[str, Side]) -> None:
    found = compare(folders["a"], folders["b"])
    assert [each.figure.name for each in found.rows if each.change.shown] == []
    assert row(found, "p50_ttft_ms").result == "not shown"
    assert row(found, "p50_ttft_ms").change.effect == pytest.approx(0.5, abs=0.06)


def test_lost_requests_are_a_difference(folders: dict[str, Side]) -> None:
    found = row(compare(folders["a"], folders["broken"], ["success_rate"]), "success_rate")
    assert found.result == "worse"
    assert found.change.interval is not None and found.change.interval[1] < -0.2


def test_what_is_not_estimable_says_why(folders: dict[str, Side]) -> None:
    found = row(compare(folders["a"], folders["b"], ["p999_ttft_ms"]), "p999_ttft_ms")
    assert found.result == "not estimable" and found.change.p is None
    assert "requests like these" in (found.change.why_not or "")
    assert found.change.difference is not None


def test_three_runs_against_three_are_welch_on_run_values() -> None:
    a, b = [100.0, 103.0, 98.0], [120.0, 123.0, 119.0]
    found = row(compare(side("a", a), side("b", b)), "p99_ttft_ms")
    expected = scipy.stats.ttest_ind(b, a, equal_var=False)
    assert found.change.test == "welch" and found.change.p == pytest.approx(expected.pvalue)
    assert found.change.relative == pytest.approx(np.mean(b) / np.mean(a) - 1)
    assert found.base.ci95 == pytest.approx(scipy.stats.t.interval(0.95, 2, np.mean(a), scipy.stats.sem(a)))
    assert found.change.p_holm == pytest.approx(min(1.0, 4 * expected.pvalue), rel=0.8)
    assert found.result == "worse"


def test_runs_pair_up_by_arrival_seed() -> None:
    """b is always 5 above a, whatever the seed did to both."""
    plans = [plan(letter * 64, schedule=letter * 64) for letter in "pqr"]
    a = Side("a", tuple(side("a", [v], plan=p).first for v, p in zip([100.0, 150.0, 120.0], plans, strict=True)))
    b = Side(
        "b",
        tuple(side("b", [v], plan=p).first for v, p in zip([126.0, 104.9, 155.2], plans[2:] + plans[:2], strict=True)),
    )
    found = row(compare(a, b, ["p99_ttft_ms"]), "p99_ttft_ms")
    assert found.change.test == "paired t" and found.change.p is not None and found.change.p < 0.01
    unpaired = row(compare(a, b, ["p99_ttft_ms"], test="welch"), "p99_ttft_ms")
    assert unpaired.change.p is not None and unpaired.change.p > 0.5


def test_pairs_that_are_none_are_refused() -> None:
    with raises_code("pairs-missing", "--test paired"):
        compare(side("a", [1.0, 2.0, 3.0]), side("b", [1.0, 2.0, 3.0]), test="paired")


def test_mann_whitney_of_three_and_three_is_warned_of() -> None:
    found = compare(side("a", [1.0, 2.0, 3.0]), side("b", [11.0, 12.0, 13.0]), test="mann-whitney")
    assert not any(each.change.shown for each in found.rows)
    assert any("no difference can" in note for note in found.notes)


def test_one_run_against_several() -> None:
    """A candidate far outside the history is found, one inside is not; two of history are too few."""
    history = [100.0, 103.0, 98.0, 101.0, 99.0]
    assert row(compare(side("a", history), side("b", [130.0]), ["p99_ttft_ms"]), "p99_ttft_ms").result == "worse"
    near = row(compare(side("a", history), side("b", [102.0]), ["p99_ttft_ms"]), "p99_ttft_ms")
    assert near.result == "not shown"
    few = row(compare(side("a", history[:2]), side("b", [130.0]), ["p99_ttft_ms"]), "p99_ttft_ms")
    assert few.result == "not estimable"


def test_several_runs_raise_false_alarms_at_the_stated_rate() -> None:
    """800 comparisons of 3 runs with 3 like them, and of 5 with 1: 5 %, three standard errors are 2.3 %."""
    rng = np.random.default_rng(1)
    alarms = {"welch": 0, "one against several": 0}
    for _ in range(800):
        a, b = rng.normal(100, 3, 3).tolist(), rng.normal(100, 3, 3).tolist()
        alarms["welch"] += change_between(a, b, "welch", None).shown
        several, one = rng.normal(100, 3, 5).tolist(), rng.normal(100, 3, 1).tolist()
        alarms["one against several"] += change_between(several, one, "one against several", None).shown
    assert 0.015 <= alarms["welch"] / 800 <= 0.073
    assert 0.027 <= alarms["one against several"] / 800 <= 0.073


def test_holm_keeps_the_alarms_of_a_whole_table_at_5_percent() -> None:
    """200 tables of 4 figures of 5 runs a side that do not differ."""
    rng = np.random.default_rng(2)
    alarms = 0
    for _ in range(200):
        found = compare(side("a", rng.normal(100, 3, 5).tolist()), side("b", rng.normal(100, 3, 5).tolist()))
        alarms += any(each.change.shown for each in found.rows)
    assert alarms / 200 <= 0.05 + 0.047


@pytest.mark.parametrize("one_plan", [True, False])
def test_single_runs_raise_false_alarms_at_the_stated_rate(one_plan: bool) -> None:
    """80 pairs of runs of one half-loaded queue, the same arrivals or others: 5 %, three standard errors are 7.3 %."""
    rng, tally = np.random.default_rng(4), Alarms()
    for _ in range(80):
        tally.count(within(pair(rng, 2000, 0.5, 0.0, one_plan), "p50", one_plan))
    assert tally.judged > 66
    assert tally.alarmed / tally.judged <= 0.05 + 0.073


def test_single_runs_find_a_slower_server_sooner_when_both_got_the_same_arrivals() -> None:
    """Service 12 % longer at load 0.5: sojourn times 27 % longer."""
    rng, tallies = np.random.default_rng(5), {True: Alarms(), False: Alarms()}
    for one_plan, tally in tallies.items():
        for _ in range(25):
            tally.count(within(pair(rng, 4000, 0.5, 0.12, one_plan), "p50", one_plan))
    assert tallies[True].alarmed >= 22
    assert tallies[True].alarmed >= tallies[False].alarmed


@pytest.mark.skipif(not os.environ.get("FASTLLMLOAD_SLOW"), reason="a minute; set FASTLLMLOAD_SLOW=1")
def test_folders_of_one_speed_raise_false_alarms_at_the_stated_rate(tmp_path: Path) -> None:
    """100 pairs of made-up run folders, two figures each: three standard errors of 5 % are 4.7 %."""
    compared: list[float] = []
    for k in range(100):
        sides = [read_side([str(write_run(tmp_path / f"{k}{s}", 2 * k + n, 200))]) for n, s in enumerate("ab")]
        rows = compare(sides[0], sides[1], ["p50_ttft_ms", "mean_e2e_ms"]).rows
        compared += [row.change.p for row in rows if row.change.p is not None]
    assert len(compared) > 100
    assert sum(p < 0.05 for p in compared) / len(compared) <= 0.05 + 0.047


def test_the_interval_and_its_p_say_the_same() -> None:
    rng = np.random.default_rng(3)
    for observed in np.linspace(-0.5, 0.5, 41):
        low, high, p = expanded(rng.gumbel(0, 0.1, 4000), float(observed))
        if abs(p - 0.05) > 0.01:
            assert (p < 0.05) == (low > 0 or high < 0)


def test_superiority_is_the_share_of_pairs() -> None:
    a, b = np.array([1.0, 2.0, 2.0]), np.array([2.0, 3.0])
    assert superiority(Sample(a, a), Sample(b, b)) == pytest.approx(scipy.stats.mannwhitneyu(b, a).statistic / 6)


def test_every_known_name_is_a_figure(folders: dict[str, Side]) -> None:
    document = folders["a"].first.document
    manifest = plain(document)
    for name in known_names(document):
        figure = figure_of(name, document)
        figure.value(document)
    assert figure_of("p99_ttft_ms", document).value(document) == manifest["p99_ttft_ms"]
    assert figure_of("median_e2el_ms", document).value(document) == manifest["median_e2el_ms"]
    assert figure_of("output_throughput", document).value(document) == manifest["output_throughput"]
    assert figure_of("p50_decode_tok_s", document).value(document) == manifest["metrics"]["decode_tok_s"]["p50"]
    assert figure_of("p99_ttft_s", document).value(document) == pytest.approx(manifest["p99_ttft_ms"] / 1000)
    assert figure_of(
        "decode_tok_s" if "value" in manifest["metrics"]["decode_tok_s"] else "req_s", document
    ).higher_is_better


def test_an_unknown_figure_names_what_is_near(folders: dict[str, Side]) -> None:
    with raises_code("figure-unknown", "'p99_tfft_ms'", "mean p99_ttft_ms"):
        compare(folders["a"], folders["b"], ["p99_tfft_ms"])


def drifting(level: float, seed: int) -> Sample:
    """2,000 values around *level* that wander by a few percent, too alike for an interval of P99."""
    rng = np.random.default_rng(seed)
    wander = np.repeat(rng.normal(0, 0.02, 20), 100)
    values = level * (1 + wander + rng.normal(0, 0.01, 2000))
    return Sample(values, np.sort(values))


def test_what_lies_wholly_apart_needs_no_interval() -> None:
    """Twice as slow in every twentieth of the run: a difference, though neither run carries an interval."""
    figure, a, b = ComparedFigure("p99", "x", "p99", "ms"), drifting(10.0, 1), drifting(20.0, 2)
    found = change_of_separated(figure, a, b, (a.at(0.99), b.at(0.99)))
    assert found is not None and found.p is not None and found.p < 0.01
    assert found.relative_interval is not None and found.relative_interval[0] < 1.0 < found.relative_interval[1]
    assert change_of_separated(figure, a, drifting(10.1, 3), (a.at(0.99), a.at(0.99))) is None


def test_a_run_that_only_rises_is_never_apart() -> None:
    """Values that are worth one or two independent ones prove nothing, however far away."""
    rising = np.linspace(100.0, 1000.0, 2000)
    figure, a, b = ComparedFigure("p50", "x", "p50", "ms"), drifting(10.0, 1), Sample(rising, rising)
    assert change_of_separated(figure, a, b, (10.0, 550.0)) is None


def test_runs_of_one_queue_are_never_wholly_apart() -> None:
    rng = np.random.default_rng(6)
    for _ in range(100):
        a, b = pair(rng, 1000, 0.7, 0.0, False)
        assert change_of_separated(ComparedFigure("p50", "x", "p50", "ms"), a, b, (1.0, 1.0)) is None


@pytest.mark.parametrize("statistic", ["mean", "p50"])
@pytest.mark.parametrize("empty", [slice(0, 40), slice(360, 400)])
def test_a_block_whose_requests_have_no_values_says_nothing_of_its_neighbours(statistic: str, empty: slice) -> None:
    """Such as those after the instant at which the disk was full."""
    rng = np.random.default_rng(5)
    each = np.full(400, 5)
    each[empty] = 0
    first = np.concatenate([[0], np.cumsum(each)])
    samples = [Sample(values, np.sort(values), first) for values in rng.integers(1_000, 2_000, (2, int(first[-1])))]
    wider = correlation_factor(ComparedFigure(f"{statistic}_itl_ms", "itl", statistic, "ms"), samples[0], samples[1])
    assert 1.0 <= wider < 2.0


def test_pairs_that_differ_by_one_amount_prove_nothing() -> None:
    """One token more in each window of 2.7 s; by the paired t this was "better" with p = 0."""
    base = [139.25925926, 185.55555556, 184.07407407]
    new = [value + 1 / 2.7 for value in base]
    found = change_between(base, new, "paired", (0, 1, 2))
    assert found.test == "welch" and found.p is not None and found.p > 0.9 and not found.shown
    equal = change_between(base, base, "paired", (0, 1, 2))
    assert (equal.test, equal.p) == ("paired t", 1.0)
    broken = change_between([1.0, 1.0, 1.0], [0.0, 0.0, 0.0], "paired", (0, 1, 2))
    assert broken.p == 0.0 and broken.shown  # no run of either side differs from its own kind
    apart = change_between(
        base, [value + gap for value, gap in zip(base, (5, 5.1, 5.2), strict=True)], "paired", (0, 1, 2)
    )
    assert apart.test == "paired t" and apart.shown
