"""What became of one requirement on one piece of evidence: three truth values, and what each rests on."""

from __future__ import annotations

import msgspec

# What a check or a binding can say, in the order in which reports count them.
TRUE = "true"  # seen in what happened
DECLARED = "declared"  # the tester says so; a declaration is no proof
SHOWN = "shown"  # a capability of the tool that a test of the project proves; this run did not need it
FALSE = "false"
UNDECLARED = "undeclared"  # only the tester can say, and did not
UNCHECKED = "unchecked"  # nothing covers it
INAPPLICABLE = "not applicable"
STATES = (TRUE, DECLARED, SHOWN, FALSE, UNDECLARED, UNCHECKED, INAPPLICABLE)

HOLDS = frozenset({TRUE, DECLARED, SHOWN, INAPPLICABLE})


class RequirementOutcome(msgspec.Struct, frozen=True):
    """*reason*: what was seen, with its figures. *remedy*: what to do where it does not hold."""

    state: str
    reason: str = ""
    remedy: str = ""

    @property
    def holds(self) -> bool:
        """Neither false, nor undeclared, nor unchecked."""
        return self.state in HOLDS


def true(reason: str = "") -> RequirementOutcome:
    return RequirementOutcome(TRUE, reason)


def false(reason: str, remedy: str = "") -> RequirementOutcome:
    return RequirementOutcome(FALSE, reason, remedy)


def undeclared(reason: str, remedy: str) -> RequirementOutcome:
    return RequirementOutcome(UNDECLARED, reason, remedy)


def inapplicable(reason: str) -> RequirementOutcome:
    return RequirementOutcome(INAPPLICABLE, reason)


def judged(holds: bool, reason: str, remedy: str = "") -> RequirementOutcome:
    """True or false by *holds*, with the same reason: figures read the same either way."""
    return true(reason) if holds else false(reason, remedy)
