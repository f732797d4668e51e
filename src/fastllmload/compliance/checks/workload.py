"""Checks the workload: fully specified, reproducible from a seed, with the stated lengths (IETF 4.3, appendix A)."""

from __future__ import annotations

import numpy as np

from fastllmload.arrays import Values
from fastllmload.compliance import facts
from fastllmload.compliance.checks.declared import lacking
from fastllmload.compliance.checks.runs import each, per_run, with_arguments
from fastllmload.compliance.evidence import ComplianceEvidence, MeasuredRun
from fastllmload.compliance.outcome import DECLARED, RequirementOutcome, false, inapplicable, judged, true, undeclared
from fastllmload.compliance.statement import Check
from fastllmload.declarations import SKEWED, by_key, workload_kind
from fastllmload.documents.fields import known
from fastllmload.documents.plan import DatasetFacts, WorkloadDescription
from fastllmload.plan.plan import array_hash

# Common fields (IETF 4.3.1) of the workloads that the tool defines.
STANDARD_FIELDS: dict[str, dict[str, str]] = {
    "synthetic-uniform": {"domain": "general", "language": "random words of the tokenizer", "system_prompt": "none"},
    "synthetic-skewed": {"domain": "general", "language": "random words of the tokenizer", "system_prompt": "none"},
    "conversation": {"domain": "conversation", "language": "English", "system_prompt": "200 tokens for half"},
    "code-completion": {"domain": "code", "language": "Python, JavaScript, TypeScript", "system_prompt": "none"},
    "long-context": {"domain": "general", "language": "random words of the tokenizer", "system_prompt": "none"},
}
STANDARD_FIELDS |= dict.fromkeys(SKEWED, STANDARD_FIELDS["synthetic-skewed"])
OWN_TEST = ("fairness", "prefix-cache", "memory-pressure", "long-context", "guardrail")  # tests with their own workload


@per_run
def sequence_kept(run: MeasuredRun) -> RequirementOutcome:
    """The rows have the lengths of the plan, and the plan has its recorded digest and seed."""
    planned, members = run.planned, run.plan.members
    if planned is None or not members:
        return false("the folder contains no plan", "keep plan/ in the run's folder")
    for side in ("input_tokens", "output_tokens"):
        if array_hash(np.ascontiguousarray(planned[side])) != members.get(f"{side}.npy"):
            return false(f"{side} of plan/schedule.npy do not have the digest of plan.json", "keep plan/ as it was")
    if run.plan.description.seed != run.description.seed:
        return false("plan.json and run.json name different seeds", "keep plan/ as it was")
    return kept(run, planned)


def kept(run: MeasuredRun, planned: Values) -> RequirementOutcome:
    """Whether the rows have the planned lengths. A closed loop bounded by time repeats its plan; later turns of a
    conversation are excluded, as they are longer than planned.
    """
    rows = run.measure.where(run.measure["turn"] == 0)
    at = rows["request"] % max(1, len(planned))
    same = (rows["input_target"] == planned["input_tokens"][at]) & (
        rows["output_target"] == planned["output_tokens"][at]
    )
    seed = run.description.seed
    reason = f"{int(same.sum()):,} of {len(rows):,} requests were those of seed {seed}"
    held = bool(same.all()) and seed is not None
    return judged(held, reason, "measure again: the requests sent are not those of the seed")


@per_run
def seed_reported(run: MeasuredRun) -> RequirementOutcome:
    """run.json has one seed, for the workload and for the arrivals."""
    seed, stream, config = run.description.seed, run.arrivals.stream, run.document.config
    asked = config.client.seed if config.output.plan is None else None
    if seed is None:
        return false(f"the seed is {seed}", "measure with --seed")
    if asked not in (None, seed):
        return false(f"run.json has the configured seed {asked} and the used seed {seed}", "measure again")
    if stream is not None and not f"{stream}/".startswith(f"{seed}/"):
        return false(f"the seed is {seed}, and the instants are those of {stream!r}", "measure again")
    return true(f"the seed is {seed}")


@per_run
def sequence_published(run: MeasuredRun) -> RequirementOutcome:
    """Seed, digest and version of the generator are recorded, which reproduce every request."""
    digest, version = run.document.plan.digest, run.document.tool.version
    stated = bool(digest) and bool(version) and run.description.seed is not None
    return judged(stated, f"fastllmload {version}, plan {str(digest)[:12]}", "keep run.json, or --save-plan FILE")


def workload_named(evidence: ComplianceEvidence) -> RequirementOutcome:
    """The workload is a standard one, or all of its common fields are known."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        for described in run.workloads:
            name = described.name or ""
            missing = [field for field in FIELDS if value_of(evidence, described, field) is None]
            if not name or (workload_kind(name) != "standard" and missing):
                return undeclared(
                    f"{', '.join(missing) or 'the name'} of the workload is not known", remedy_of(missing)
                )
        return true(f"the workload {', '.join(sorted(facts.workload_names(evidence)))} is specified in full")

    return each(evidence, evidence.runs, judge)


@with_arguments
def workload_field(evidence: ComplianceEvidence, name: str) -> RequirementOutcome:
    """One of the common fields of IETF 4.3.1 is known, by the plan or by declaration."""
    return each(evidence, evidence.runs, lambda run: field_known(evidence, run, name))


def field_known(evidence: ComplianceEvidence, run: MeasuredRun, name: str) -> RequirementOutcome:
    values = [value_of(evidence, described, name) for described in run.workloads]
    if None in values:
        which = run.workloads[values.index(None)].name
        return undeclared(f"{name} of the workload {which} is not known", remedy_of([name]))
    text = ", ".join(dict.fromkeys(str(value) for value in values))
    declared = FIELDS[name] is not None and evidence.declared.get(str(FIELDS[name])) == text
    return RequirementOutcome(DECLARED, text) if declared else true(f"{name}: {text}")


# Common field → the declaration that gives it where the tool does not define the workload.
FIELDS: dict[str, str | None] = {
    "isl": None, "osl": None, "tokenizer": None, "domain": "workload.domain", "language": "workload.language",
    "system_prompt": "workload.system_prompt", "prefix_share": "workload.prefix_share",
    "prefix_length": "workload.prefix_length",
}  # fmt: skip


def value_of(evidence: ComplianceEvidence, described: WorkloadDescription, name: str) -> str | None:
    """Value of one field as text; None where it is not known."""
    if name in ("isl", "osl", "tokenizer"):
        stated = {"isl": described.isl, "osl": described.osl, "tokenizer": described.tokenizer}[name]
        return stated or None
    if name.startswith("prefix_"):
        share, length = shared(described)
        if share is not None:
            return share if name == "prefix_share" else length
    own = STANDARD_FIELDS.get(str(described.name), {}).get(name)
    return own if own is not None else evidence.declared.get(str(FIELDS[name]))


def shared(described: WorkloadDescription) -> tuple[str | None, str | None]:
    """Share of requests with a shared prefix, and its length; None where the tool did not generate the text."""
    length, system, contexts = int(known(described.prefix_len) or 0), described.system_prompt, described.contexts
    if length:
        share = 1 if described.prefix_share is None else described.prefix_share
        return str(share), f"{length} tokens, {described.num_prefixes} different"
    if system is not None:
        return str(system.share), f"{system.tokens} tokens"
    if contexts is not None:
        tokens = list(contexts.tokens) if isinstance(contexts.tokens, tuple) else contexts.tokens
        return str(contexts.share), f"contexts of {tokens} tokens"
    return ("0", "none") if workload_kind(described.name or "") == "standard" else (None, None)


def remedy_of(lacking: list[str]) -> str:
    keys = [key for field in lacking if (key := FIELDS[field]) is not None]
    return (
        "; ".join(by_key()[key].remedy for key in keys) or "choose a --workload that states its lengths and tokenizer"
    )


@per_run
def output_control(run: MeasuredRun) -> RequirementOutcome:
    targets = run.measure["output_target"]
    limited = bool((targets > 0).all()) and len(targets) > 0
    more = " and ignore_eos" if run.document.config.workload.ignore_eos else ""
    return judged(limited, f"a limit of tokens{more}", "give --osl, so that every request has a limit")


@with_arguments
def dataset_field(evidence: ComplianceEvidence, name: str) -> RequirementOutcome:
    """Version, subset or preprocessing of a data set is known, by the plan or by declaration."""
    key = f"workload.dataset.{name}"
    if (said := evidence.declared.get(key)) is not None:
        return RequirementOutcome(DECLARED, said)
    data = [one.dataset or DatasetFacts() for run in evidence.runs for one in run.workloads]
    stated = [{"version": one.version, "subset": one.subset}.get(name, one.preprocessing) for one in data]
    if stated and all(stated):
        return true(f"{name}: {stated[0]}")
    return lacking(key, f"{name} of the data set is not known")


def uniform_used(evidence: ComplianceEvidence) -> RequirementOutcome:
    """A model engine is measured with synthetic-uniform, unless the test has its own workload."""
    if evidence.test in OWN_TEST:
        return inapplicable(f"the test {evidence.test} names a workload of its own")
    if "synthetic-uniform" in facts.workload_names(evidence):
        return true("the workload is synthetic-uniform")
    if (said := evidence.declared.get("workload.uniform_result")) is not None:
        return RequirementOutcome(DECLARED, said)
    remedy = f"use --workload synthetic-uniform, or {by_key()['workload.uniform_result'].remedy}"
    return false(f"the workload is {', '.join(sorted(facts.workload_names(evidence)))}", remedy)


@with_arguments
def workload_is(evidence: ComplianceEvidence, *names: str) -> RequirementOutcome:
    found = facts.workload_names(evidence)
    reason = f"the workload is {', '.join(sorted(found)) or 'not known'}"
    return judged(bool(found) and found <= set(names), reason, f"use --workload {names[0]}")


def unless_own(check: Check) -> Check:
    """*check*, which does not apply to tests with a workload of their own."""

    def judge(evidence: ComplianceEvidence) -> RequirementOutcome:
        if evidence.test in (*OWN_TEST, "itl", "capacity"):
            return inapplicable(f"the test {evidence.test} names a workload of its own")
        return check(evidence)

    return judge
