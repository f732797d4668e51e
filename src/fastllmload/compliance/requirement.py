"""Reads the requirements from `requirements/*.toml`, one table each, in the order of their documents.

level   MUST, MUST NOT, REQUIRED, SHOULD, RECOMMENDED, MAY, or DEFINITION for a statement without a key word
basis   keyword, governed (an item under a sentence with a key word), imperative, definition, example, informal;
        only keyword and governed enter a verdict
subject who must do it: tool, report, tester, sut
applies conditions that must all hold for it to count; `applies.py` defines them
check   a function of `checks/`, called with the table `with`; declare: keys of `declarations.toml`;
metric  a name of run.json "metrics" with its statistics; all_of: other ids; shown_by: a test of the project that proves
        a capability which this evidence does not exercise
"""

from __future__ import annotations

import functools
import tomllib
from importlib import resources
from typing import Any

import msgspec

from fastllmload.declarations import MUST_CLASS, SHOULD_CLASS

IN_VERDICT = ("keyword", "governed")


class Requirement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One statement of a source document, paraphrased, and what it is checked by."""

    id: str
    section: str
    level: str
    basis: str
    subject: str
    applies: tuple[str, ...]
    statement: str
    check: str | None = None
    params: dict[str, Any] = msgspec.field(name="with", default_factory=dict)
    declare: tuple[str, ...] = ()
    metric: str | None = None
    statistics: tuple[str, ...] = ()
    all_of: tuple[str, ...] = ()
    shown_by: str | None = None
    remedy: str = ""

    @property
    def must(self) -> bool:
        return self.level in MUST_CLASS

    @property
    def should(self) -> bool:
        return self.level in SHOULD_CLASS

    @property
    def in_verdict(self) -> bool:
        """Whether it counts; MAY and statements without a key word of the draft never do (spec/procedures 5)."""
        return self.basis in IN_VERDICT and (self.must or self.should)

    @property
    def bound(self) -> bool:
        """Whether any check, declaration, metric, other requirement or test covers it."""
        return any((self.check, self.declare, self.metric, self.all_of, self.shown_by))


@functools.cache
def requirements() -> tuple[Requirement, ...]:
    """All requirements, in the order of the sources."""
    found: list[Requirement] = []
    folder = resources.files(__package__).joinpath("requirements")
    for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if file.name.endswith(".toml"):
            tables = tomllib.loads(file.read_text(encoding="utf-8"))["requirement"]
            found += msgspec.convert(tables, list[Requirement])
    return tuple(found)
