"""A statement of a source document: who must do what, when it applies, and what decides whether it is met."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from fastllmload.compliance.evidence import ComplianceEvidence
from fastllmload.compliance.outcome import RequirementOutcome
from fastllmload.declarations import MUST_CLASS, SHOULD_CLASS

Check = Callable[[ComplianceEvidence], RequirementOutcome]
DRAFT = "IETF-"


class AllOf(msgspec.Struct, frozen=True):
    """The other statements by which one is judged."""

    ids: tuple[str, ...]


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """*level*: a key word, or DEFINITION for a statement without one. *basis*: keyword, governed (an item under a sentence
    with a key word), imperative, definition, example, informal; only the first two enter a verdict.

    *applies*: conditions of `applies.py`. *design*: how the tool meets it where the evidence does not exercise it.
    """

    id: str
    level: str
    basis: str
    text: str
    judged_by: Check | AllOf
    applies: tuple[str, ...] = ()
    design: str = ""

    @property
    def must(self) -> bool:
        return self.level in MUST_CLASS

    @property
    def should(self) -> bool:
        return self.level in SHOULD_CLASS

    @property
    def in_verdict(self) -> bool:
        """Whether it counts; MAY and statements without a key word of the draft never do (spec/procedures 5)."""
        return self.basis in ("keyword", "governed") and (self.must or self.should)

    @property
    def of_draft(self) -> bool:
        """Whether it is a statement of the draft, not of another source."""
        return self.id.startswith(DRAFT)

    @property
    def place(self) -> tuple[tuple[int, ...], str]:
        """Sorts statements in the order of the draft; the other sources follow in their own order."""
        if not self.of_draft:
            return (1000,), ""
        section, _, letter = self.id.removeprefix(DRAFT).rpartition("-")
        if section == "Abstract":
            return (0,), letter
        return tuple(int(part) if part.isdigit() else ord(part) + 100 for part in section.split(".")), letter


def key_word(level: str, basis: str = "keyword") -> Callable[..., Statement]:
    """A function that makes statements of *level*. Its parameter *applies*: conditions, separated by commas."""

    def statement(id: str, text: str, judged_by: Check | AllOf, applies: str = "", design: str = "") -> Statement:
        return Statement(
            id=id, level=level, basis=basis, text=text, judged_by=judged_by, applies=conditions(applies), design=design
        )

    return statement


must = key_word("MUST")
must_not = key_word("MUST NOT")
required = key_word("REQUIRED")
should = key_word("SHOULD")
recommended = key_word("RECOMMENDED")
item = key_word("MUST", "governed")  # one of a list that a sentence with MUST introduces
step = key_word("DEFINITION", "imperative")  # without a key word, like the next: reported, and decides nothing
definition = key_word("DEFINITION", "definition")


def conditions(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def under(applies: str, *statements: Statement) -> tuple[Statement, ...]:
    """*statements*, which apply under the conditions *applies* only."""
    return tuple(
        msgspec.structs.replace(one, applies=(*conditions(applies), *one.applies)) for one in statements
    )  # fmt: skip


def all_of(ids: str) -> AllOf:
    """Holds if the statements *ids*, separated by blanks, hold."""
    return AllOf(tuple(ids.split()))
