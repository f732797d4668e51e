"""Copies of words are equal to their originals after each exchange, whatever changes in between."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastllmload.engine.hosts.link.beats import Reflected, apply
from fastllmload.engine.hosts.link.connection import LinkError
from fastllmload.engine.hosts.link.messages import Changes

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
