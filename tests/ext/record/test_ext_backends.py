"""Names of backends are numbers in the order in which they came, as many as there is room for."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from fastllmload._ext.record.backends import LONGEST, MOST, OTHER, Backends


def numbers(names: Iterable[bytes]) -> list[int]:
    """The model: a dict."""
    known: dict[bytes, int] = {}
    return [known.setdefault(name[:LONGEST], len(known) + 1) for name in names]


@given(st.lists(st.one_of(st.binary(min_size=1, max_size=3), st.binary(min_size=1, max_size=300)), max_size=80))
def test_equal_names_have_one_number(names: list[bytes]) -> None:
    backends = Backends()
    assert [backends.number_of(name) for name in names] == numbers(names)
    taken = backends.taken()
    assert taken == list(dict.fromkeys(name[:LONGEST] for name in names)) and backends.count == len(taken)
    assert backends.taken(1) == taken[1:] and backends.taken(len(taken)) == []


def test_names_that_are_equal_as_far_as_they_count_are_one() -> None:
    backends = Backends()
    assert backends.number_of(b"x" * LONGEST + b"a") == backends.number_of(b"x" * LONGEST + b"b") == 1
    assert backends.number_of(b"x" * (LONGEST - 1)) == 2 and backends.number_of(b"") == 0


def test_a_full_table_still_knows_its_names() -> None:
    """Of names beyond it none is taken, and those in it keep their numbers."""
    backends = Backends()
    names = [b"%d" % number for number in range(MOST)]
    assert [backends.number_of(name) for name in names] == list(range(1, MOST + 1))
    assert {backends.number_of(b"more %d" % number) for number in range(100)} == {OTHER}
    assert [backends.number_of(name) for name in names] == list(range(1, MOST + 1))
    assert backends.taken() == names and backends.count == MOST < OTHER
