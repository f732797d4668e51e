"""The search finds a threshold to within its step, whatever the threshold; noise and replay do not confuse it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import code_of, codes

from fastllmload.search.bisection import Bisection, PermanentFailure
from fastllmload.search.driver import halfway, monotonicity_notes
from fastllmload.statistics.sequential_tests import Decision

PASS, FAIL, CLIENT = Decision.PASS, Decision.FAIL, Decision.CLIENT
thresholds = st.floats(0.5, 2_000, allow_nan=False)
Answer = bool | None  # None: the client was the limit
Ok = Callable[[float, int], Answer | PermanentFailure]


@dataclass(frozen=True)
class Asked:
    level: float
    repetition: int
    answer: Answer


@dataclass(frozen=True)
class Searched:
    """The answer, and every run that it took."""

    level: float | None
    above: float | None
    ended_by: str
    notes: tuple[str, ...]
    asked: tuple[Asked, ...]


def search(
    lo: float, hi: float, step: float | Callable[[float], float], ok: Ok, least: float | None = None
) -> Searched:
    asked: list[Asked] = []

    def judge(level: float, repetition: int) -> Decision | PermanentFailure:
        answer = ok(level, repetition)
        asked.append(Asked(level, repetition, False if isinstance(answer, PermanentFailure) else answer))
        if isinstance(answer, PermanentFailure):
            return answer
        return CLIENT if answer is None else PASS if answer else FAIL

    found = Bisection(lo, hi, step if callable(step) else lambda level: step, judge, least).run()
    return Searched(found.best, found.above, found.ended_by, found.notes, tuple(asked))


def below(threshold: float) -> Callable[[float, int], Answer]:
    return lambda level, repetition: level <= threshold


@given(threshold=thresholds, lo=st.floats(1, 50), times=st.floats(1, 40), step=st.floats(0.05, 20))
def test_a_noiseless_threshold_is_bracketed_to_the_step(threshold: float, lo: float, times: float, step: float) -> None:
    """level <= threshold < above, at most a step apart; in O(log) levels, each end asked twice."""
    hi = lo * times
    found = search(lo, hi, step, below(threshold))
    levels = {each.level for each in found.asked}
    assert all(lo * (1 - 1e-8) <= level <= hi * (1 + 1e-8) for level in levels)
    assert len(levels) <= math.log2(times) + 2 + math.log2(max(2, hi / step)) + 2
    if found.level is None:
        assert lo > threshold and found.ended_by == "minimum" and found.above == lo
        return
    assert found.level <= threshold
    assert sum(each.level == found.level for each in found.asked) >= 2
    if found.above is None:
        assert found.level == hi and found.ended_by == "bound"
    else:
        assert threshold < found.above and found.ended_by == "bracket"
        assert found.above - found.level <= step * (1 + 1e-6) or halfway(found.level, found.above, step) == found.above
        assert sum(each.level == found.above for each in found.asked) == 2


def test_whole_steps_are_taken_from_the_lower_bound() -> None:
    """Concurrency 8 to 512 with a step that grows with the level, as the capacity test has it."""
    found = search(8, 512, lambda x: max(1, math.ceil(x / 16)), below(100))
    assert [each.level for each in found.asked][:5] == [8, 16, 32, 64, 128]
    assert all(each.level == int(each.level) for each in found.asked)
    assert found.level is not None and found.above is not None
    assert found.level <= 100 < found.above and found.above - found.level <= math.ceil(found.level / 16)


def test_a_failing_first_level_is_halved_down_when_asked() -> None:
    """8, 4, 2, 1; without *least* nothing below the minimum is tried."""
    found = search(8, 64, 1, below(2.5), least=1)
    assert [each.level for each in found.asked][:3] == [8, 4, 2]
    assert (found.level, found.above) == (2, 3)
    assert search(8, 64, 1, below(2.5)).level is None
    assert search(8, 64, 1, below(0), least=1).ended_by == "minimum"


@pytest.mark.parametrize(
    ("answers", "bracket", "ended", "runs"),
    [
        ([False, False], (None, 8), "minimum", 2),
        ([False, True, True], (8, 12), "bracket", 3),  # one unlucky run ends no search
        ([False, True, False], (None, 8), "minimum", 3),
        ([False, None, None, None], (None, 8), "minimum", 4),
        ([PermanentFailure("an out-of-memory error")], (None, 8), "minimum", 1),
    ],
)
@pytest.mark.parametrize("above", [8, 16])
def test_the_lowest_level_fails_only_if_it_fails_again(
    answers: list[Answer | PermanentFailure], bracket: tuple[float | None, float], ended: str, runs: int, above: int
) -> None:
    """As the failing end of a bracket does, from which no lower level is known either; also when it was halved down to."""

    def ok(level: float, repetition: int) -> Answer | PermanentFailure:
        return level < 12 and answers[repetition] if level == 8 else level < 12

    found = search(above, 64, 4, ok, least=8)
    assert (found.level, found.above, found.ended_by) == (*bracket, ended)
    assert sum(each.level == 8 for each in found.asked) == runs
    assert any("fail" in note for note in found.notes) == (ended == "minimum" or runs == 3)


@given(seed=st.integers(0, 2**32), threshold=st.floats(4, 90), width=st.floats(0.01, 20))
def test_noisy_answers_end_and_are_replayed_from_their_cache(seed: int, threshold: float, width: float) -> None:
    """A search over noise ends in few runs; played again from finished answers it asks nothing and finds the same."""
    rng = np.random.default_rng(seed)
    known: dict[tuple[float, int], Answer] = {}
    drawn = 0

    def ok(level: float, repetition: int) -> Answer:
        nonlocal drawn
        if (level, repetition) not in known:
            drawn += 1
            known[level, repetition] = bool(rng.random() < 1 / (1 + math.exp(min(700.0, (level - threshold) / width))))
        return known[level, repetition]

    found = search(2, 100, 1, ok)
    runs = drawn
    assert runs <= 40
    assert search(2, 100, 1, ok) == found
    assert drawn == runs
    assert consistent(found)


def consistent(found: Searched) -> bool:
    """Each repetition once and in order; the bracket is one; the passing level did not mostly fail."""
    seen: dict[float, int] = {}
    for each in found.asked:
        if each.repetition != seen.get(each.level, 0):
            return False
        seen[each.level] = each.repetition + 1
    if found.level is None or found.above is None:
        return True
    answers = [each.answer for each in found.asked if each.level == found.level]
    return found.level < found.above and 2 * answers.count(True) >= len(answers)


@given(cut=st.integers(0, 12))
def test_a_killed_search_continues_where_it_was(cut: int) -> None:
    """Killed after any number of levels and started again: no finished level is asked again, the answer is the same."""
    finished: dict[tuple[float, int], Answer] = {}
    measured: list[tuple[float, int]] = []

    class Killed(Exception):
        pass

    def ok(level: float, repetition: int) -> Answer:
        if (level, repetition) not in finished:
            if len(measured) == stop_at:
                raise Killed
            measured.append((level, repetition))
            finished[level, repetition] = level <= 37
        return finished[level, repetition]

    stop_at = -1
    whole = search(4, 200, 2, ok)
    finished.clear(), measured.clear()
    stop_at = cut
    try:
        search(4, 200, 2, ok)
    except Killed:
        stop_at = -1
    assert search(4, 200, 2, ok) == whole
    assert len(measured) == len(set(measured))


def conditions(notes: Iterable[str]) -> list[tuple[str, str]]:
    """(level, code) of each note."""
    return [(re.match(r"(at )?level [\d.]+|", note)[0], code_of(note)) for note in notes]  # type: ignore[index]


def script(answers: dict[float, list[Answer]]) -> Callable[[float, int], Answer]:
    return lambda level, repetition: answers[level][repetition]


def test_a_refuted_answer_gives_way_to_the_best_lower_level() -> None:
    """16 holds once and fails when confirmed: the search continues between 14 and 16."""
    found = search(8, 16, 2, script({8: [True, True], 16: [True, False], 12: [True], 14: [True, True]}))
    assert (found.level, found.above) == (14, 16)
    assert ("level 16", "answers-contradict") in conditions(found.notes)


def test_nothing_holds_when_the_only_passing_level_is_refuted() -> None:
    """The minimum fails its confirmation."""
    found = search(8, 8, 1, script({8: [True, False]}))
    assert found.level is None and found.above == 8 and found.ended_by == "minimum"


def test_a_failing_top_that_holds_twice_counts_as_passing() -> None:
    """12 fails, then holds twice: the search continues above it."""
    found = search(8, 16, 4, script({8: [True, True], 16: [False, False], 12: [False, True, True]}))
    assert (found.level, found.above) == (12, 16)
    assert ("level 12", "answers-contradict") in conditions(found.notes)


def test_a_level_where_the_client_was_the_limit_ends_the_search_without_a_verdict_on_the_system() -> None:
    """None above a passing level: the answer says client, not saturation."""
    found = search(8, 64, 4, lambda level, repetition: True if level < 20 else None)
    assert found.ended_by == "client" and found.level is not None and found.level <= 20
    assert code_of(found.notes[0]) == "client-limited"
    assert search(8, 64, 4, lambda level, repetition: None).ended_by == "client"


def test_a_best_level_that_a_late_client_ran_again_is_reported_as_not_confirmed() -> None:
    found = search(8, 16, 8, script({8: [True, None, None, None], 16: [False, False]}))
    assert found.level == 8 and ("level 8", "level-not-confirmed") in conditions(found.notes)


def test_a_level_on_which_the_client_was_late_once_is_run_again() -> None:
    """Wherever it happens, the answer is the same as without it, and the note says what was repeated."""
    found = search(8, 16, 8, script({8: [None, True, None, True], 16: [None, None, False, None, False]}))
    assert (found.level, found.above, found.ended_by) == (8, 16, "bracket")
    repeated = [note for note in found.notes if code_of(note) == "client-limited"]
    assert [note.partition(" runs")[0] for note in repeated] == ["level 8: 2 of 4", "level 16: 3 of 5"]


def test_a_level_is_run_three_times_before_the_client_ends_the_search() -> None:
    found = search(8, 16, 8, script({8: [True, True], 16: [None, None, None]}))
    assert (found.level, found.above, found.ended_by) == (8, 16, "client")
    assert conditions(found.notes) == [("at level 16", "client-limited")] and "each of 3 runs" in found.notes[0]


def test_a_tie_that_the_client_leaves_unbroken_counts_as_a_failure() -> None:
    found = search(8, 16, 8, script({8: [True, True], 16: [False, True, None, None, None]}))
    assert (found.level, found.above, found.ended_by) == (8, 16, "bracket")
    assert ("level 16", "answers-contradict") in conditions(found.notes)


def test_a_passing_level_above_a_failing_one_is_a_warning() -> None:
    """Monotonicity is assumed, and what contradicts it is said."""
    (note,) = monotonicity_notes({8: PASS, 16: FAIL, 20: FAIL, 24: PASS, 32: CLIENT})
    assert conditions([note]) == [("level 24", "answers-not-monotonic")] and "16" in note
    assert monotonicity_notes({8: PASS, 16: FAIL, 12: PASS}) == []


@pytest.mark.parametrize(("lo", "hi"), [(0, 5), (-1, 5), (6, 5)])
def test_an_empty_range_is_refused(lo: float, hi: float) -> None:
    """The caller's own mistake, with the numbers in its text."""
    with pytest.raises(ValueError, match="range"):
        search(lo, hi, 1, below(3))


def seen_once(threshold: float, at: float, run: int) -> Callable[[float, int], Answer | PermanentFailure]:
    """A noiseless threshold, and an event in one run of one level."""
    return lambda level, repetition: (
        PermanentFailure("an out-of-memory error") if (level, repetition) == (at, run) else level <= threshold
    )


def test_an_event_is_not_outvoted() -> None:
    """Level 8 would hold twice afterwards: it is not run again, and the answer lies below it."""
    found = search(8, 64, 1, seen_once(100, 8, 0), least=1)
    assert (found.level, found.above, found.ended_by) == (7, 8, "bracket")
    assert sum(each.level == 8 for each in found.asked) == 1
    (note,) = (note for note in found.notes if code_of(note) == "level-fails-permanently")
    assert note.startswith("level 8 ") and "run 1" in note
    assert "answers-contradict" not in codes(found.notes)


def test_an_event_in_the_confirming_run_fails_the_level() -> None:
    found = search(8, 64, 1, seen_once(20, 20, 1))
    assert found.level == 19 and found.above == 20
    (note,) = (note for note in found.notes if code_of(note) == "level-fails-permanently")
    assert note.startswith("level 20 ") and "run 2" in note
    assert "answers-contradict" not in codes(found.notes)


def test_where_every_level_has_an_event_none_holds() -> None:
    found = search(8, 64, 1, lambda level, repetition: PermanentFailure("a crash"), least=1)
    assert (found.level, found.ended_by) == (None, "minimum")
    assert [each.level for each in found.asked] == [8, 4, 2, 1]


@given(seed=st.integers(0, 2**32), threshold=st.floats(4, 90), width=st.floats(0.01, 20), share=st.floats(0, 0.3))
def test_no_level_at_or_above_an_event_is_the_answer(seed: int, threshold: float, width: float, share: float) -> None:
    """Whatever the noise, and wherever events are seen."""
    rng = np.random.default_rng(seed)
    events: list[float] = []

    def ok(level: float, repetition: int) -> Answer | PermanentFailure:
        if rng.random() < share:
            events.append(level)
            return PermanentFailure("a crash")
        return bool(rng.random() < 1 / (1 + math.exp(min(700.0, (level - threshold) / width))))

    found = search(2, 100, 1, ok, least=1)
    if events and found.level is not None:
        assert found.level < min(events) and found.above is not None and found.above <= min(events)
