"""What must be said openly: safety systems, refusals, deviations, what was declared before the first request."""

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
    said = evidence.declared.get(key)
    if said is None:
        return undeclared(f"{key} is not declared", by_key()[key].remedy)
    if said not in values:
        return false(f"{key} is declared as {said}", remedy or f"it is to be {' or '.join(values)}")
    return RequirementOutcome(DECLARED, said)


@check
def guardrails_stated(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """Something is said about the safety systems, if only that there are none."""
    said = [f"{key}={evidence.declared[key]}" for key in FILTERS if key in evidence.declared]
    if not said:
        return undeclared("nothing is declared about safety systems", by_key()[FILTERS[0]].remedy)
    return RequirementOutcome(DECLARED, ", ".join(said))


@check
def refusals_counted(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """The number of refused requests is in run.json, and it is the number of rows with that status."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        counted, rows = run.get("metrics.refusals.value"), run.get("counts.refused")
        return judged(counted is not None and rows is not None, f"{counted} requests were refused", "measure again")

    return each(evidence, judge)


@check
def disabled_noted(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """Safety systems that are off are named: that the configuration is "disabled" does not say which."""
    off = [key for key in FILTERS if evidence.declared.get(key) == "disabled"]
    configuration = evidence.declared.get("guardrails.configuration")
    if not off and configuration != "disabled":
        return inapplicable("no safety system is declared to be disabled")
    told = ", ".join(f"{key}={evidence.declared.get(key, 'not declared')}" for key in FILTERS)
    if not off:
        return false(f"the configuration is disabled, but {told}", by_key()[FILTERS[0]].remedy)
    return RequirementOutcome(DECLARED, told)


@check
def before_sending(evidence: ComplianceEvidence, /, key: str) -> RequirementOutcome:
    """A declaration that stood in the document before the first request; what was added afterwards does not count."""
    said = evidence.declared.get(key)
    if said is None:
        return undeclared(f"{key} is not declared", by_key()[key].remedy)
    allowed = by_key()[key].values
    if allowed and said not in allowed:
        return false(f"{key} is declared as {said}", f"declare one of {', '.join(allowed)}")
    return RequirementOutcome(DECLARED, said)


@check
def in_scope(evidence: ComplianceEvidence, /, key: str, value: str) -> RequirementOutcome:
    """What lies outside the methodology's scope is labelled: a declaration that says so breaks the statement."""
    said = evidence.declared.get(key)
    if said is None:
        return undeclared(f"{key} is not declared", by_key()[key].remedy)
    if said != value:
        return false(f"{key} is {said}: outside the methodology's scope", "label the report so")
    return RequirementOutcome(DECLARED, said)


@check
def engine_alone(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """Nothing of a gateway shows: no TLS, no refused, limited or unauthorised request."""
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
    """Objectives in the document are those that the tester gave."""

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
            return inapplicable("the workload shares beginnings, or its text is not the tool's")
        cached = int(run.ok["cached_tokens"].clip(min=0).sum())
        return judged(
            not cached, f"{cached:,} prompt tokens came from a cache", "use another --seed or restart the server"
        )

    return each(evidence, judge)
