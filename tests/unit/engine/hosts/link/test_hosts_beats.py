"""Copies of words are equal to their originals after each exchange, whatever changes in between."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastllmload._ext.record import histogram
from fastllmload.engine.hosts.link.beats import Reflected, ReportedClasses, SummedClasses, apply
from fastllmload.engine.hosts.link.connection import LinkError
from fastllmload.engine.hosts.link.messages import Changes, ClassReport, Increments
from fastllmload.engine.recording.class_rows import ClassCounts, ClassRows

VALUES = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(st.dictionaries(st.integers(0, 39), VALUES, max_size=40), max_size=8))
def test_a_copy_equals_its_original_after_every_exchange(steps: list[dict[int, int]]) -> None:
    original, copy, sender = np.zeros((4, 10), np.int64), np.zeros((4, 10), np.int64), Reflected(40)
    for step in steps:
        for at, value in step.items():
            original.reshape(-1)[at] = value
        apply(sender.changes(original), copy)
        assert (copy == original).all()


def test_only_what_changed_is_sent() -> None:
    original, sender = np.zeros(1000, np.int64), Reflected(1000)
    original[[3, 999]] = 7, -1
    changes = sender.changes(original)
    assert (len(changes.positions), len(changes.values)) == (2 * 4, 2 * 8)
    assert sender.changes(original) == Changes(b"", b"")


def test_what_changes_while_it_is_read_is_sent_as_it_was_read() -> None:
    """A worker writes meanwhile: the copy has the value that was read, and gets the newer one with the next exchange."""
    original, copy, sender = np.zeros(2, np.int64), np.zeros(2, np.int64), Reflected(2)
    original[0] = 1
    first = sender.changes(original)
    original[0] = 2
    apply(first, copy)
    assert copy[0] == 1
    apply(sender.changes(original), copy)
    assert copy[0] == 2


@pytest.mark.parametrize(
    "changes",
    [
        Changes(b"\5\0\0\0", bytes(8)),
        Changes(b"\0\0\0\0", bytes(16)),
        Changes(b"\0\0\0", bytes(8)),
        Changes(b"\0\0\0\0", bytes(7)),
        Changes(b"", bytes(8)),
    ],
)
def test_changes_that_do_not_fit_are_refused(changes: Changes) -> None:
    words = np.zeros(5, np.int64)
    with pytest.raises(LinkError):
        apply(changes, words)
    assert not words.any()


class MadeRows(ClassRows):
    """Classes with *counts* of their own instead of files."""

    def __init__(self, classes: int) -> None:
        self.made = [ClassCounts() for _ in range(classes)]

    def counts(self) -> list[ClassCounts]:
        return self.made


def test_classes_of_all_hosts_are_those_of_all_requests() -> None:
    """As if every latency had been recorded in one histogram, after any number of reports; a lost host has none in it."""
    rng, summed = np.random.default_rng(11), SummedClasses(3, 2)
    hosts = [MadeRows(3) for _ in range(2)]
    reported = [ReportedClasses(rows, 3) for rows in hosts]
    expected = [ClassCounts() for _ in range(3)]
    for _ in range(4):
        for number, rows in enumerate(hosts):
            for one, every in zip(rows.counts(), expected, strict=True):
                ok, failed = (int(n) for n in rng.integers(0, 9, 2))
                for each in (one, every):
                    each.ok, each.failed = each.ok + ok, each.failed + failed
                one.in_flight = int(rng.integers(0, 50))
                for name in ("first", "latencies"):
                    values = rng.integers(1000 * (number + 1), 10**9, ok)
                    for each in (one, every):
                        histogram.record_many(getattr(each, name), values)
            summed.add(number, reported[number].report())
        for at, (found, every) in enumerate(zip(summed.counts(), expected, strict=True)):
            assert found.in_flight == sum(rows.made[at].in_flight for rows in hosts)
            assert (found.ok, found.failed) == (every.ok, every.failed)
            assert (found.first == every.first).all() and (found.latencies == every.latencies).all()
    summed.lose(0)
    assert [one.in_flight for one in summed.counts()] == [one.in_flight for one in hosts[1].made]
    assert [one.ok for one in summed.counts()] == [one.ok for one in expected]


def test_classes_that_do_not_fit_are_refused() -> None:
    summed, fits = SummedClasses(2, 1), ReportedClasses(MadeRows(2), 2).report()
    for wrong in (
        ClassReport(fits.counts[:-8], fits.histograms),
        ClassReport(bytes(3 * 3 * 8), fits.histograms),
        ClassReport(fits.counts, Increments(b"", b"", fits.histograms.extremes[:-16])),
        ReportedClasses(MadeRows(3), 3).report(),
    ):
        with pytest.raises(LinkError):
            summed.add(0, wrong)
    assert not any(one.ok or one.in_flight for one in summed.counts())
