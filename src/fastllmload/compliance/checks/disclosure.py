"""Checks required disclosures: safety systems, refusals, deviations, declarations before the first request."""

from __future__ import annotations

from fastllmload.compliance import facts
from fastllmload.compliance.checks.registry import check, each
from fastllmload.compliance.evidence import ComplianceEvidence, MeasuredRun
from fastllmload.compliance.outcome import DECLARED, RequirementOutcome, false, inapplicable, judged, undeclared
from fastllmload.declarations import by_key

FILTERS = ("guardrails.input_filter", "guardrails.output_filter")


@check
def declared_as(evidence: ComplianceEvidence, /, key: str, values: list[str], remedy: str = "") -> RequirementOutcome:
    """A declaration has one of *values*."""
    value = evidence.declared.get(key)
    if value is None:
        return undeclared(f"{key} is not declared", by_key()[key].remedy)
    if value not in values:
        return false(f"{key} is declared as {value}", remedy or f"it is to be {' or '.join(values)}")
    return RequirementOutcome(DECLARED, value)


@check
def guardrails_stated(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """Safety systems are declared, even if only that there are none."""
    values = [f"{key}={evidence.declared[key]}" for key in FILTERS if key in evidence.declared]
    if not values:
        return undeclared("nothing is declared about safety systems", by_key()[FILTERS[0]].remedy)
    return RequirementOutcome(DECLARED, ", ".join(values))


@check
def refusals_counted(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """The number of refused requests is in run.json, and it is the number of rows with that status."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        counted, rows = run.get("metrics.refusals.value"), run.get("counts.refused")
        return judged(counted is not None and rows is not None, f"{counted} requests were refused", "measure again")

    return each(evidence, judge)


@check
def disabled_noted(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """Disabled safety systems are named; the configuration "disabled" alone does not name them."""
    off = [key for key in FILTERS if evidence.declared.get(key) == "disabled"]
    configuration = evidence.declared.get("guardrails.configuration")
    if not off and configuration != "disabled":
        return inapplicable("no safety system is declared to be disabled")
    filters = ", ".join(f"{key}={evidence.declared.get(key, 'not declared')}" for key in FILTERS)
    if not off:
        return false(f"the configuration is disabled, but {filters}", by_key()[FILTERS[0]].remedy)
    return RequirementOutcome(DECLARED, filters)


@check
def before_sending(evidence: ComplianceEvidence, /, key: str) -> RequirementOutcome:
    """A declaration was in the document before the first request; later additions do not count."""
    value = evidence.declared.get(key)
    if value is None:
        return undeclared(f"{key} is not declared", by_key()[key].remedy)
    allowed = by_key()[key].values
    if allowed and value not in allowed:
        return false(f"{key} is declared as {value}", f"declare one of {', '.join(allowed)}")
    return RequirementOutcome(DECLARED, value)


@check
def in_scope(evidence: ComplianceEvidence, /, key: str, value: str) -> RequirementOutcome:
    """The declaration *key* has *value*; any other value is outside the draft's scope and must be labelled."""
    declared = evidence.declared.get(key)
    if declared is None:
        return undeclared(f"{key} is not declared", by_key()[key].remedy)
    if declared != value:
        return false(f"{key} is {declared}: outside the methodology's scope", "label the report so")
    return RequirementOutcome(DECLARED, declared)


@check
def engine_alone(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """No sign of a gateway: no TLS, and no refused or rate-limited request."""
    if facts.boundary(evidence) != "model_engine":
        return inapplicable("the boundary is not model_engine")

    def judge(run: MeasuredRun) -> RequirementOutcome:
        limited = sum(int(run.get(f"counts.{name}") or 0) for name in ("refused", "rate_limited"))
        secure = any(str(url).startswith("https") for url in run.get("target.urls") or ())
        seen = f"{limited} requests were refused or limited, TLS was {'' if secure else 'not '}used"
        return judged(not limited and not secure, seen, "declare sut.boundary=application_gateway")

    return each(evidence, judge)


@check
def thresholds_given(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """The document has objectives exactly when the user gave some."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        asked, judged_by = run.get("config.output.goodput") or [], run.get("slo")
        return judged(bool(asked) == (judged_by is not None), f"{len(asked)} objectives were given", "measure again")

    return each(evidence, judge)


@check
def cached_without_sharing(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """A workload that shares nothing must not be served from a cache."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        described = facts.workload(run)
        sharing = any(described.get(part) for part in ("prefix_len", "system_prompt", "contexts"))
        if sharing or run.get("plan.description.conversations") or facts.kinds(evidence) != {"standard"}:
            return inapplicable("the workload has shared prefixes, or its text is not generated by the tool")
        cached = int(run.ok["cached_tokens"].clip(min=0).sum())
        return judged(
            not cached, f"{cached:,} prompt tokens came from a cache", "use another --seed or restart the server"
        )

    return each(evidence, judge)
