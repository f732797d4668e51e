"""The outcome of one requirement: a state, its reason and a remedy."""

from __future__ import annotations

import msgspec

# The states, in the order in which reports count them.
TRUE = "true"  # the recorded evidence shows it
DECLARED = "declared"  # the user declares it; a declaration is not checked
SHOWN = "shown"  # the tool does it by design; this run was not checked for it
FALSE = "false"
UNDECLARED = "undeclared"  # only the user can know, and did not declare it
UNCHECKED = "unchecked"  # no check covers it
INAPPLICABLE = "not applicable"
STATES = (TRUE, DECLARED, SHOWN, FALSE, UNDECLARED, UNCHECKED, INAPPLICABLE)

HOLDS = frozenset({TRUE, DECLARED, SHOWN, INAPPLICABLE})


class RequirementOutcome(msgspec.Struct, frozen=True):
    """*reason*: what was found, with figures. *remedy*: what to do where the requirement does not hold."""

    state: str
    reason: str = ""
    remedy: str = ""

    @property
    def holds(self) -> bool:
        """Whether the state is neither false, nor undeclared, nor unchecked."""
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
    """True or false by *holds*, with the same reason for both."""
    return true(reason) if holds else false(reason, remedy)
