"""The answer is an interval that holds the truth: 40 searches on slot servers of known capacity, 12 levels at most.

Truth is N / mean service time, or Erlang's closed form for a share of waits. Run lengths are those of each line below.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import code_of, says
from search_servers import ATTAINMENT, P99, SUSTAINED, Slowing, step
from simulated_bench import SlotBench
from slot_server import SlotServer

from fastllmload.experiment.level.evidence import LevelEvidence
from fastllmload.search.driver import Interval
from fastllmload.search.interval_search import IntervalSearch, Trials
from fastllmload.search.objectives import SearchObjective
from fastllmload.statistics.sequential_tests import Decision, SequentialPlan

pytestmark = pytest.mark.slow

slow = pytest.mark.skipif(os.environ.get("FASTLLMLOAD_SLOW") != "1", reason="minutes of simulation; FASTLLMLOAD_SLOW=1")
PASS, FAIL, UNDECIDED, CLIENT = Decision.PASS, Decision.FAIL, Decision.UNDECIDED, Decision.CLIENT


@dataclass(frozen=True)
class Case:
    objective: SearchObjective
    server: SlotServer
    limit_s: float
    hi: float
    seconds: float
    shuffle: int | None = None
    bad: float | None = None
    grid: float = 64.0

    @property
    def truth(self) -> float:
        if self.objective.sustain or self.bad is not None:
            return self.server.capacity
        return self.server.rate_where(self.limit_s, self.objective.shares[0].allowed)

    def search(self, seed: int) -> tuple[Interval, tuple[float, float]]:
        rng = np.random.default_rng(seed)
        runner = SlotBench(self.server, self.objective, SequentialPlan(), self.seconds, self.limit_s, rng, self.bad)
        search = IntervalSearch(self.hi / self.grid, self.hi, step, runner, SequentialPlan(), self.shuffle)
        found = search.run()
        return found, (runner.low(found), math.inf if found.above is None else found.above)

    def held(self, seeds: range) -> tuple[int, list[tuple[float, float]]]:
        """Searches whose interval holds the truth, and all intervals as shares of it. Never more than 12 levels."""
        held, widths = 0, []
        for seed in seeds:
            found, (low, high) = self.search(seed)
            assert len(found.decisions) <= 12
            assert all(count <= 4 for count in found.trials.values())
            held += low <= self.truth <= high
            widths.append((low / self.truth, high / self.truth))
        return held, widths


CASES = {
    "sustained, exponential, 60 s": Case(SUSTAINED, SlotServer(32, 1.0), 1.0, 256, 60),
    "sustained, fixed, 30 s": Case(SUSTAINED, SlotServer(64, 0.32, fixed=True), 1.0, 1_000, 30),
    "sustained, of spec/procedures 0.9, 300 s": Case(SUSTAINED, SlotServer(32, 4.0), 1.0, 64, 300),
    "90% within 0.5 s, 60 s": Case(ATTAINMENT, SlotServer(32, 1.0), 0.5, 256, 60),
    "P99 of 0.5 s, 60 s": Case(P99, SlotServer(32, 1.0), 0.5, 256, 60),
    "P99 of 2 s, 120 s": Case(P99, SlotServer(32, 1.0), 2.0, 256, 120),
    "2.5% slow tokens, 90% in time, 10 s": Case(
        ATTAINMENT, SlotServer(32, 0.64, fixed=True), 1.0, 240, 10, bad=0.025, grid=32
    ),
    "slow tokens, exponential, 20 s": Case(ATTAINMENT, SlotServer(32, 1.0), 1.0, 280, 20, bad=0.025),
    "interleaved": Case(SUSTAINED, SlotServer(32, 1.0), 1.0, 256, 60, shuffle=1),
}


@slow
@pytest.mark.parametrize("name", CASES)
def test_the_interval_holds_the_truth_in_38_of_40_searches(name: str) -> None:
    """And it is worth something: the median one lies within 0.5 to 1.25 of the truth."""
    held, widths = CASES[name].held(range(40))
    assert held >= 38
    low, high = np.median(np.array(widths), axis=0)
    assert low > 0.5 and high < 1.25


@pytest.mark.parametrize(
    "name",
    [
        "sustained, exponential, 60 s",
        "sustained, fixed, 30 s",
        "P99 of 0.5 s, 60 s",
        "2.5% slow tokens, 90% in time, 10 s",
    ],
)
def test_a_few_searches_hold_the_truth(name: str) -> None:
    """5 seeds; all hold at the stated error rate, and none is empty."""
    held, widths = CASES[name].held(range(5))
    assert held == 5
    assert all(high < 1.6 for _, high in widths)


# -- the order of questions, without noise ----------------------------------------------------------------------------


LONG = SequentialPlan(short=0)  # each trial decides


@dataclass
class Oracle(Trials):
    """Passes below *low*, fails above *high*, undecided between; the client is the limit from *limited* on."""

    low: float
    high: float
    limited: float = math.inf
    retests: dict[float, Decision] = field(default_factory=dict)
    asked: list[tuple[str, float, int]] = field(default_factory=list)
    resolved_below: float = math.inf

    def is_resolved(self, level: float) -> bool:
        return level < self.resolved_below

    def pooled_decision(self, level: float) -> Decision:
        if level >= self.limited:
            return CLIENT
        return PASS if level <= self.low else FAIL if level > self.high else UNDECIDED

    def run_trial(self, level: float, number: int) -> Decision:
        self.asked.append(("trial", level, number))
        return self.pooled_decision(level)

    def retest(self, level: float, number: int) -> Decision:
        self.asked.append(("retest", level, number))
        return self.retests.get(level, self.pooled_decision(level))


def one(level: float) -> float:
    return 1.0


@given(low=st.floats(1, 60), width=st.floats(0, 10), shuffle=st.one_of(st.none(), st.integers(0, 9)))
def test_the_interval_closes_in_on_what_is_undecided(low: float, width: float, shuffle: int | None) -> None:
    """With levels to spare, both ends come within a step of where decisions become possible."""
    runner = Oracle(low, low + width)
    found = IntervalSearch(1, 100, one, runner, SequentialPlan(short=0, levels=60), shuffle).run()
    assert found.best is not None and found.above is not None
    assert found.best <= low and found.above > low + width
    if found.ended_by == "bracket":
        assert low - found.best <= 1.01 and found.above - (low + width) <= 1.01
    assert all(count <= 3 for count in found.trials.values())
    repeated = IntervalSearch(1, 100, one, Oracle(low, low + width), SequentialPlan(short=0, levels=60), shuffle).run()
    assert repeated == found


def test_undecided_levels_get_three_trials_of_growing_length() -> None:
    """Decided ones once."""
    runner = Oracle(8, 12)
    found = IntervalSearch(4, 16, lambda level: 4, runner, LONG).run()
    assert [entry[1:] for entry in runner.asked if entry[0] == "trial"] == [
        (4, 0),
        (8, 0),
        (16, 0),
        (12, 0),
        (12, 1),
        (12, 2),
    ]
    assert (found.best, found.above, found.confirmed) == (8, 16, True)


def test_interleaved_trials_measure_both_ends_of_the_bracket() -> None:
    """Before an undecided level is looked at again, both ends of its bracket are."""
    runner = Oracle(8, 12)
    IntervalSearch(4, 16, lambda level: 4, runner, LONG, shuffle=3).run()
    trials = [entry[1] for entry in runner.asked if entry[0] == "trial"]
    first, second = (k for k, level in enumerate(trials) if level == 12.0 and k < 7)
    assert sorted(trials[first + 1 : second]) == [8, 16]


def test_a_best_level_that_fails_its_retest_is_replaced() -> None:
    """10 passes and fails afresh: 9 is the answer, and the note says so."""
    runner = Oracle(10, 10, retests={10.0: FAIL})
    found = IntervalSearch(8, 16, one, runner, SequentialPlan(short=0, levels=30)).run()
    assert found.best == 9 and found.decisions[10] is UNDECIDED
    assert any(says(note, "level-not-confirmed", "level 10") for note in found.notes)


@pytest.mark.parametrize(
    ("runner", "ended_by", "best", "above"),
    [
        (Oracle(500, 500), "bound", 100, None),
        (Oracle(0.5, 0.6), "minimum", None, 1),
        (Oracle(0.5, 500), "undecided", None, None),
        (Oracle(500, 500, limited=20), "client", 19, None),
        (Oracle(0, 0, limited=0.5), "client", None, None),
    ],
)
def test_the_reason_for_the_end_is_reported(
    runner: Oracle, ended_by: str, best: float | None, above: float | None
) -> None:
    """A level where the client was the limit is never the upper end; lighter ones below it are tried."""
    found = IntervalSearch(1, 100, one, runner, LONG).run()
    assert (found.ended_by, found.best, found.above) == (ended_by, best, above)


def test_a_search_that_runs_out_of_levels_reports_it() -> None:
    """Seven levels on the way up and one in the middle: 32 holds, 48 fails, and the step is 1."""
    found = IntervalSearch(1, 64, one, Oracle(40, 40), SequentialPlan(short=0, levels=8)).run()
    assert (found.best, found.above, found.ended_by) == (32, 48, "levels")


def test_below_the_clients_limit_the_systems_own_is_still_found() -> None:
    """The client gives out at 64, the system at 40: the answer has both its ends."""
    found = IntervalSearch(1, 100, one, Oracle(40, 40, limited=60), SequentialPlan(short=0, levels=20)).run()
    assert found.best == 40 and found.above == 41


def test_where_the_client_limits_the_lowest_level_lower_ones_are_tried() -> None:
    """64 asks too much of the client, 32 and 16 too; 8 tells, and from there the answer is narrowed up to the client."""
    runner = Oracle(500, 500, limited=10)
    found = IntervalSearch(64, 256, one, runner, SequentialPlan(short=0, trials=1, levels=20)).run()
    assert [level for kind, level, _ in runner.asked if kind == "trial"][:4] == [64, 32, 16, 8]
    assert (found.best, found.above, found.ended_by) == (9, None, "client")
    assert sum("[level-below-range]" in note for note in found.notes) == 3


def test_a_lower_level_that_fails_bounds_the_answer() -> None:
    """32 fails while 64 says nothing: the system holds less than both."""
    found = IntervalSearch(64, 256, one, Oracle(20, 20, limited=40), LONG).run()
    assert (found.best, found.above, found.ended_by) == (None, 32, "minimum")


def test_the_lowest_level_is_halved_four_times_but_not_below_one_slot() -> None:
    """A client that is always the limit ends the search; half a slot cannot be a level."""
    runner = Oracle(500, 500, limited=0.1)
    found = IntervalSearch(64, 256, one, runner, LONG).run()
    assert sorted(found.decisions) == [4, 8, 16, 32, 64] and found.ended_by == "client"
    assert sorted(IntervalSearch(2, 256, one, Oracle(500, 500, limited=0.1), LONG).run().decisions) == [1, 2]


def test_the_best_level_is_measured_until_it_is_resolved() -> None:
    """As far as its trials go; a level that then fails gives way to the next."""
    runner = Oracle(10, 10, resolved_below=10)
    found = IntervalSearch(8, 16, one, runner, SequentialPlan(short=0, levels=30)).run()
    assert found.trials == {8: 1, 16: 1, 12: 1, 10: 3, 11: 1} and found.best == 10
    runner = Turning(10, 10, resolved_below=10)
    found = IntervalSearch(8, 16, one, runner, SequentialPlan(short=0, levels=30)).run()
    assert found.best == 9 and found.decisions[10] is FAIL
    assert any(note.startswith("level 10: ") and code_of(note) == "answers-contradict" for note in found.notes)


@dataclass
class Turning(Oracle):
    """What passes at 10 fails when it is looked at a second time."""

    def run_trial(self, level: float, number: int) -> Decision:
        found = super().run_trial(level, number)
        return FAIL if level == 10 and number > 0 else found

    def retest(self, level: float, number: int) -> Decision:
        return FAIL if level == 10 else super().retest(level, number)


# -- objectives that say nothing of the queue -------------------------------------------------------------------------


def judged(load: float, trials: int, seconds: float = 10.0) -> list[tuple[Decision, str, float]]:
    """Of 20 levels at *load* of a capacity of 50 requests/s: decision, reason, and what the level claims of the rate.

    2.5% of the requests miss their objective, whatever the queue does.
    """
    server, plan, found = SlotServer(32, 0.64, fixed=True), SequentialPlan(), []
    for seed in range(20):
        rate = load * server.capacity
        runner = SlotBench(server, ATTAINMENT, plan, seconds, 1.0, np.random.default_rng(seed), bad=0.025)
        for number in range(trials):
            runner.run_trial(rate, number + 1)
        judgement = ATTAINMENT.judge(rate, runner.runs[rate], plan, {})
        claimed = ATTAINMENT.lower_bound(rate, (rate,), runner.max_growth(rate)) / server.capacity
        found.append((judgement.decision, judgement.reason, claimed))
    return found


def test_a_level_whose_queue_seems_to_grow_does_not_pass() -> None:
    """20 % above the capacity for 10 s: growth is hardly ever proven, and no more than 2 of 20 levels pass."""
    found = judged(1.2, 1)
    assert sum(decision is PASS for decision, _, _ in found) <= 2
    assert any(
        decision is UNDECIDED and "queue growth" in reason and "seems to grow" in reason
        for decision, reason, _ in found
    )
    assert sum(decision is FAIL for decision, _, _ in judged(1.2, 3)) == 20


def test_an_undecided_level_does_not_wait_for_its_queue() -> None:
    """In 3 s nothing is proven; the reason is the requests that miss, and the queue only where it seems to grow."""
    undecided = [reason for decision, reason, _ in judged(0.7, 1, 3.0) if decision is UNDECIDED]
    assert len(undecided) >= 10
    assert all("seems to grow" in reason for reason in undecided if "queue growth" in reason)


def test_a_queue_that_fails_a_level_is_not_compared_with_what_it_may_grow_by() -> None:
    """Growth of less than a step fails a level once it is above 0."""
    failed = [reason for decision, reason, _ in judged(1.2, 3) if decision is FAIL]
    assert failed and all("proven above 0" in reason and "allowed" not in reason for reason in failed)


def test_below_the_capacity_the_queue_stops_nothing() -> None:
    """At 70 % most levels pass in their first trial, where noise only asks for a second, and all in the second."""
    assert sum(decision is PASS for decision, _, _ in judged(0.7, 1)) >= 15
    assert sum(decision is PASS for decision, _, _ in judged(0.7, 2)) == 20


@pytest.mark.parametrize("load", [0.9, 1.0, 1.1])
def test_a_pass_claims_no_more_than_its_queue_shows(load: float) -> None:
    """What is claimed of the answer is never above the capacity, though latencies say nothing against the load."""
    assert all(claimed <= 1.0 for trials in (1, 2, 3) for _, _, claimed in judged(load, trials))


def test_a_gap_to_a_client_limited_level_is_not_called_a_bracket() -> None:
    """Failing levels above the client's limit still bound the answer, but the client is named."""
    found = IntervalSearch(1, 4, one, Mixed({1: PASS, 2: PASS, 4: FAIL, 3: CLIENT}), LONG).run()
    assert found.ended_by == "client" and (found.best, found.above) == (2, 4)


@dataclass
class Mixed(Trials):
    answers: dict[float, Decision]

    def run_trial(self, level: float, number: int) -> Decision:
        return self.answers[level]

    def retest(self, level: float, number: int) -> Decision:
        return self.answers[level]

    def pooled_decision(self, level: float) -> Decision:
        return self.answers[level]


# -- a system that does not stay the same -----------------------------------------------------------------------------


def slowing_search(objective: SearchObjective, limit_s: float, at_s: float) -> Interval:
    """Of a server of 100 requests/s that falls to 18 after *at_s* seconds of load."""
    server = Slowing(SlotServer(50, 0.5), SlotServer(9, 0.5), at_s)
    runner = SlotBench(server, objective, SequentialPlan(), 60.0, limit_s, np.random.default_rng(1))
    return IntervalSearch(4, 256, step, runner, SequentialPlan()).run()


@pytest.mark.parametrize(("objective", "limit_s"), [(SUSTAINED, 1.0), (ATTAINMENT, 0.5)])
def test_a_server_that_slows_down_is_noticed(objective: SearchObjective, limit_s: float) -> None:
    """Whether it happens on the way up or later: the search ends there and says at which level, and what differs."""
    for at_s in (200.0, 500.0):
        found = slowing_search(objective, limit_s, at_s)
        assert found.ended_by == "changed" and found.system_changed
        assert any(says(note, "system-changed", "at level") for note in found.notes)
    assert slowing_search(objective, limit_s, math.inf).ended_by != "changed"


@dataclass
class LateBench(SlotBench):
    """The client was late in each run, by as much as *rise* requests of the queue."""

    rise: float = 0.0

    def measure(self, level: float, times: float, suffix: str) -> LevelEvidence:
        found = super().measure(level, times, suffix)

        def at_bound(side: int) -> LevelEvidence:
            ramp = np.linspace(0.0, side * self.rise, len(found.growth.at_borders))
            return replace(found, growth=replace(found.growth, at_borders=found.growth.at_borders + ramp))

        late = replace(found, limited=("late",), favourable=at_bound(-1), unfavourable=at_bound(1))
        self.runs[level][-1] = late
        return late


@pytest.mark.parametrize(("rise", "noticed"), [(5.0, True), (1e6, False)])
def test_a_late_client_hides_a_change_only_if_it_may_explain_it(rise: float, noticed: bool) -> None:
    server = Slowing(SlotServer(50, 0.5), SlotServer(9, 0.5), 500.0)
    runner = LateBench(server, SUSTAINED, SequentialPlan(), 60.0, 1.0, np.random.default_rng(1), rise=rise)
    found = IntervalSearch(4, 256, step, runner, SequentialPlan()).run()
    assert (found.ended_by == "changed") is noticed


def test_a_level_that_a_higher_pass_implies_is_not_proven() -> None:
    """Of a server that holds all levels only the highest is decided; the others have a short trial each."""
    runner = SlotBench(SlotServer(1000, 0.2), SUSTAINED, SequentialPlan(), 60.0, 0.5, np.random.default_rng(1))
    found = IntervalSearch(4, 256, step, runner, SequentialPlan()).run()
    assert found.best == 256 and found.passed == [256]
    assert all(found.trials[level] == 1 for level in found.decisions if level < 256)
    assert runner.measured_s == 7 * 15 + 60 + 60


def test_a_lower_level_that_seems_to_fail_is_measured_although_a_higher_one_passed() -> None:
    """The search leans on a system that is monotonic, and checks what speaks against that."""
    runner = Leaning(40, 40, doubted=8.0)
    IntervalSearch(1, 100, one, runner, SequentialPlan(levels=30)).run()
    assert ("trial", 8.0, 1) in runner.asked
    assert not any(level < 20 and level != 8 and number > 0 for kind, level, number in runner.asked if kind == "trial")


@dataclass
class Leaning(Oracle):
    """A first trial decides nothing, but shows what the second would; at *doubted* it seems to fail."""

    doubted: float = 0.0

    def run_trial(self, level: float, number: int) -> Decision:
        found = super().run_trial(level, number)
        return found if number else UNDECIDED

    def likely_to_hold(self, level: float) -> bool | None:
        return level <= self.low and level != self.doubted


def test_a_search_without_trials_left_ends() -> None:
    """8 seems to fail below a level that passed, and 14 lies in a gap, but they have no trials left: nothing is measured."""
    search = IntervalSearch(1, 100, one, Leaning(40, 40, doubted=8.0), SequentialPlan())
    search.outcomes, search.trials = {8.0: UNDECIDED, 12.0: PASS, 20.0: FAIL}, {8.0: 1, 12.0: 4, 20.0: 4}
    assert search.next_level() is not None
    search.retests = search.plan.tests
    assert search._doubtful_level() == 8.0
    assert search.next_level() not in search.outcomes  # a new level is looked at once, whatever is left


@dataclass
class Discouraged(Leaning):
    """By its short trial no number of trials decides a level."""

    def within_reach(self, level: float, optimistic: bool) -> bool:
        return False


def test_a_search_that_decided_nothing_makes_one_full_trial() -> None:
    """A stall of the host in a short trial may be all that speaks against the level; one likely to fail gets none."""
    runner = Discouraged(40, 40)
    found = IntervalSearch(10, 10, one, runner, SequentialPlan()).run()
    assert ("trial", 10, 1) in runner.asked and found.best == 10
    runner = Discouraged(40, 40)
    assert IntervalSearch(50, 50, one, runner, SequentialPlan()).run().best is None
    assert runner.asked == [("trial", 50, 0)]


def test_a_clear_failure_needs_no_longer_trial() -> None:
    """Half of the requests miss a P99: a short trial fails the lowest level, and the search ends."""
    for seed in range(20):
        runner = SlotBench(SlotServer(32, 1.0), P99, SequentialPlan(), 60.0, 1.0, np.random.default_rng(seed), 0.5)
        found = IntervalSearch(4, 256, step, runner, SequentialPlan()).run()
        assert (found.best, found.above, runner.measured_s) == (None, 4, 15.0)


def test_a_short_trial_passes_no_level_and_has_its_own_error_rate() -> None:
    """No request waits, but a quarter of a trial cannot prove it; it needs clearer evidence to fail than a longer trial."""
    runner = SlotBench(SlotServer(1000, 0.2), ATTAINMENT, SequentialPlan(), 60.0, 0.5, np.random.default_rng(1))
    assert runner.run_trial(64.0, 0) is UNDECIDED and runner.run_trial(64.0, 1) is PASS
    assert (
        SequentialPlan().for_short_trial.alpha_per_trial * 12
        + SequentialPlan().alpha_per_trial * SequentialPlan().tests
        == pytest.approx(0.05)
    )
    assert SequentialPlan().for_short_trial.alpha_per_trial < SequentialPlan().alpha_per_trial / 5


def test_a_trial_is_as_long_as_its_level_needs() -> None:
    """Where a level plainly fails a quarter or half of a trial is likely to be enough; where it may pass none is cut."""

    def lengths(rate: float) -> tuple[float, float]:
        runner = SlotBench(SlotServer(32, 1.0), ATTAINMENT, SequentialPlan(), 60.0, 0.5, np.random.default_rng(1))
        runner.run_trial(1.0, 0)  # the lowest level has lengths of its own
        runner.run_trial(rate, 0)
        return runner.length(rate, 1), runner.length(rate, 3)

    truth = SlotServer(32, 1.0).rate_where(0.5, 0.1)
    assert lengths(1.2 * truth)[0] < 1.0 and lengths(1.2 * truth)[1] >= 2.0  # the last one is not cut to a quarter
    assert lengths(truth / 2)[0] == 1.0


def test_where_no_level_holds_half_of_the_load_of_before_proves_it() -> None:
    """A fifth of the requests miss what a tenth may: 120 s each in ea1b49f. Only the lowest level is decided."""
    seconds, failed = [], 0
    for seed in range(40):
        runner = SlotBench(
            SlotServer(32, 1.0), ATTAINMENT, SequentialPlan(), 60.0, 1.0, np.random.default_rng(seed), 0.2
        )
        found = IntervalSearch(4, 256, step, runner, SequentialPlan()).run()
        assert found.best is None
        failed += found.above == 4
        seconds.append(runner.measured_s)
    assert failed == 40 and np.mean(seconds) <= 0.5 * 120


def test_the_lowest_level_fails_by_two_shares_of_the_error_rate_and_passes_by_one() -> None:
    """Requests miss at a share at which one share proves nothing and two prove a fail; where few miss, nothing differs."""
    plan, proven = SequentialPlan(), 0
    assert plan.for_lowest_level.alpha_per_trial == pytest.approx(2 * plan.alpha_per_trial)
    assert SequentialPlan(short=0).for_lowest_level.alpha_per_trial == SequentialPlan(short=0).alpha_per_trial
    for seed in range(30):
        runner = SlotBench(SlotServer(32, 1.0), ATTAINMENT, plan, 60.0, 1.0, np.random.default_rng(seed), 0.18)
        runner.run_trial(4.0, 0), runner.run_trial(4.0, 2)
        runs = runner.runs[4.0]
        lowest, other = ATTAINMENT.judge_lowest(4.0, runs, plan, {}), ATTAINMENT.judge(4.0, runs, plan, {})
        assert lowest.decision is other.decision or (lowest.decision, other.decision) == (FAIL, UNDECIDED)
        proven += lowest.decision is not other.decision
    assert proven > 0


def test_trials_of_the_lowest_level_count_twice() -> None:
    """What it takes of the error rate others have less: all together never more than `SequentialPlan.tests` shares."""
    runner = Doomed(0.5, 0.6)
    found = IntervalSearch(1, 64, one, runner, SequentialPlan()).run()
    assert found.trials == {1: 7} and found.ended_by == "undecided"  # a short trial and twice three
    search = IntervalSearch(1, 64, one, runner, SequentialPlan(levels=2))
    search.run()
    assert search.tests == 6 == SequentialPlan(levels=2).tests and search.trials == {1: 4}


@dataclass
class Doomed(Oracle):
    """The lowest level is likely to fail, but no trial proves it."""

    def run_trial(self, level: float, number: int) -> Decision:
        super().run_trial(level, number)
        return UNDECIDED

    def likely_to_hold(self, level: float) -> bool | None:
        return False


def test_a_lowest_level_that_seemed_to_hold_by_chance_is_measured_before_its_neighbours() -> None:
    """2 and 4 seem to fail: nothing between 1 and 2 is measured before 1 has had a trial that may decide it."""
    runner = Chance(0.5, 0.6)
    found = IntervalSearch(1, 64, lambda level: 0.05 * level, runner, SequentialPlan()).run()
    assert runner.asked == [("trial", 1, 0), ("trial", 2, 0), ("trial", 4, 0), ("trial", 1, 1)]
    assert (found.best, found.above, found.ended_by) == (None, 1, "minimum")


@dataclass
class Chance(Oracle):
    """Short trials decide nothing; that at 1 speaks for it."""

    def run_trial(self, level: float, number: int) -> Decision:
        found = super().run_trial(level, number)
        return found if number else UNDECIDED

    def likely_to_hold(self, level: float) -> bool | None:
        return level == 1

    def recheck(self, level: float) -> bool:
        return True


def test_a_level_that_failed_its_short_trial_and_holds_afterwards_gets_a_longer_one() -> None:
    """A pause of the system during one short trial must not be the answer's upper end."""
    runner = Paused(40, 40)
    found = IntervalSearch(1, 64, one, runner, SequentialPlan(levels=30)).run()
    assert ("recheck", 16.0, 0) in runner.asked and ("trial", 16.0, 1) in runner.asked
    assert found.best is not None and found.best > 16 and found.decisions[16] is PASS


@dataclass
class Paused(Leaning):
    """16 fails in its short trial, though it holds."""

    def run_trial(self, level: float, number: int) -> Decision:
        found = super().run_trial(level, number)
        return FAIL if level == 16 and number == 0 else found

    def recheck(self, level: float) -> bool:
        self.asked.append(("recheck", level, 0))
        return level > self.low
