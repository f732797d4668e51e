"""The driver asks levels in one order for every strategy: down, up, between, and again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from fastllmload.experiment.level.limits import combined
from fastllmload.search.driver import LevelWalk, halves, measure_until, middle_of_gap
from fastllmload.statistics.sequential_tests import Decision

PASS, FAIL, UNDECIDED, CLIENT = Decision.PASS, Decision.FAIL, Decision.UNDECIDED, Decision.CLIENT


@dataclass
class Toy(LevelWalk[bool]):
    """Levels up to *limit* pass; the client is late in the first run of *late*; *checked* fail when run again at the end."""

    limit: float
    late: tuple[float, ...] = ()
    checked: tuple[float, ...] = ()
    asked: list[float] = field(default_factory=list)

    def judge(self, level: float, number: int) -> bool:
        self.asked.append(level)
        return level <= self.limit

    def repeats(self, level: float, taken: int) -> bool:
        return level in self.late and taken == 1

    def lower_levels(self) -> list[float]:
        return halves(self.lo, self.step)

    def goes_down(self) -> bool:
        return not self.outcomes[min(self.outcomes)]

    def goes_up(self, top: float) -> bool:
        return self.outcomes[top]

    def next_level(self) -> float | None:
        passing = [level for level, passed in self.outcomes.items() if passed]
        failing = [level for level, passed in self.outcomes.items() if not passed]
        return middle_of_gap(max(passing), min(failing), 1.0) if passing and failing else None

    def checks(self) -> Iterator[None]:
        for level in self.checked:
            self.limit = level - 1
            self.run_trial(level)
            yield


def asked(toy: Toy) -> list[float]:
    toy.walk()
    return toy.asked


def test_levels_are_doubled_and_then_the_gap_is_halved() -> None:
    assert asked(Toy(4, 64, lambda level: 1.0, limit=11)) == [4, 8, 16, 12, 10, 11]


def test_below_a_lowest_level_that_fails_its_halves_are_tried() -> None:
    """And nothing above it; without any that passes there is no gap to narrow."""
    assert asked(Toy(16, 64, lambda level: 1.0, limit=5)) == [16, 8, 4, 6, 5]
    assert asked(Toy(16, 64, lambda level: 1.0, limit=0)) == [16, 8, 4, 2, 1]


def test_the_highest_level_is_the_upper_bound_itself() -> None:
    assert asked(Toy(4, 12, lambda level: 1.0, limit=20)) == [4, 8, 12]


def test_a_level_is_repeated_at_once() -> None:
    toy = Toy(4, 16, lambda level: 1.0, limit=20, late=(8.0,))
    assert asked(toy) == [4, 8, 8, 16] and toy.trials == {4: 1, 8: 2, 16: 1}


def test_after_a_check_the_gap_is_narrowed_again() -> None:
    """8 passed and fails when checked: what lies below it is measured then."""
    toy = Toy(2, 8, lambda level: 1.0, limit=20, checked=(8.0,))
    assert asked(toy) == [2, 4, 8, 8, 6, 7]


@pytest.mark.parametrize(
    ("low", "high", "step", "middle"),
    [(8, 16, 1, 12), (8, 9, 1, None), (8, 9.5, 1, 9), (8, 11, 2, 10), (0.1, 0.2, 0.1, None)],
)
def test_a_gap_of_one_step_has_no_middle(low: float, high: float, step: float, middle: float | None) -> None:
    assert middle_of_gap(low, high, step) == middle


@pytest.mark.parametrize(
    ("decisions", "all_together"),
    [
        ((), PASS),
        ((PASS, PASS), PASS),
        ((PASS, UNDECIDED), UNDECIDED),
        ((UNDECIDED, CLIENT), CLIENT),
        ((CLIENT, FAIL, PASS), FAIL),
    ],
)
def test_one_criterion_that_fails_fails_the_level(decisions: tuple[Decision, ...], all_together: Decision) -> None:
    assert combined(decisions) is all_together


@pytest.mark.parametrize(("enough", "tries", "sizes"), [(1, 4, [1]), (3, 4, [1, 2, 4]), (100, 3, [1, 2, 4])])
def test_a_measurement_is_repeated_until_it_is_long_enough(enough: int, tries: int, sizes: list[int]) -> None:
    """Each time with the next size, and not more often than *tries*; the last one counts."""
    measured: list[tuple[int, int]] = []

    def measure(size: int, attempt: int) -> int:
        measured.append((size, attempt))
        return size

    last = measure_until(measure, lambda found, size: None if found >= enough else 2 * size, 1, tries)
    assert measured == list(zip(sizes, range(tries), strict=False)) and last == sizes[-1]
