"""Checks declarations, which only the tester can give and which nothing verifies."""

from __future__ import annotations

from fastllmload.compliance.checks.runs import with_arguments
from fastllmload.compliance.evidence import ComplianceEvidence
from fastllmload.compliance.outcome import DECLARED, RequirementOutcome, false, inapplicable, undeclared
from fastllmload.declarations import by_key

FILTERS = ("guardrails.input_filter", "guardrails.output_filter")


def lacking(key: str, reason: str | None = None) -> RequirementOutcome:
    """The outcome without a declaration of *key*."""
    return undeclared(reason or f"{key} is not declared", by_key()[key].remedy)


@with_arguments
def declared(evidence: ComplianceEvidence, *keys: str) -> RequirementOutcome:
    values = evidence.declared
    missing = [key for key in keys if key not in values]
    if missing:
        remedy = "; ".join(by_key()[key].remedy for key in missing)
        return undeclared(f"{', '.join(missing)} {'are' if len(missing) > 1 else 'is'} not declared", remedy)
    return RequirementOutcome(DECLARED, ", ".join(f"{key}={values[key]}" for key in keys))


@with_arguments
def declared_as(evidence: ComplianceEvidence, key: str, *values: str, remedy: str = "") -> RequirementOutcome:
    value = evidence.declared.get(key)
    if value is None:
        return lacking(key)
    if value not in values:
        return false(f"{key} is declared as {value}", remedy or f"it is to be {' or '.join(values)}")
    return RequirementOutcome(DECLARED, value)


@with_arguments
def declared_before(evidence: ComplianceEvidence, key: str) -> RequirementOutcome:
    """*key* was declared before the first request, with a value that the key may have; later additions do not count."""
    value, allowed = evidence.declared.get(key), by_key()[key].values
    if value is None:
        return lacking(key)
    if allowed and value not in allowed:
        return false(f"{key} is declared as {value}", f"declare one of {', '.join(allowed)}")
    return RequirementOutcome(DECLARED, value)


def guardrails_stated(evidence: ComplianceEvidence) -> RequirementOutcome:
    """Safety systems are declared, even if only that there are none."""
    values = [f"{key}={evidence.declared[key]}" for key in FILTERS if key in evidence.declared]
    if not values:
        return lacking(FILTERS[0], "nothing is declared about safety systems")
    return RequirementOutcome(DECLARED, ", ".join(values))


def disabled_noted(evidence: ComplianceEvidence) -> RequirementOutcome:
    """Disabled safety systems are named; the configuration "disabled" alone does not name them."""
    off = [key for key in FILTERS if evidence.declared.get(key) == "disabled"]
    configuration = evidence.declared.get("guardrails.configuration")
    if not off and configuration != "disabled":
        return inapplicable("no safety system is declared to be disabled")
    filters = ", ".join(f"{key}={evidence.declared.get(key, 'not declared')}" for key in FILTERS)
    if not off:
        return false(f"the configuration is disabled, but {filters}", by_key()[FILTERS[0]].remedy)
    return RequirementOutcome(DECLARED, filters)
