"""Checks the workload: fully specified, reproducible from a seed, with the stated lengths (IETF 4.3, appendix A)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload.compliance import facts
from fastllmload.compliance.checks.registry import check, each
from fastllmload.compliance.evidence import ComplianceEvidence, MeasuredRun, dig
from fastllmload.compliance.outcome import DECLARED, RequirementOutcome, false, inapplicable, judged, true, undeclared
from fastllmload.declarations import SKEWED, SYNTHETIC, by_key, workload_kind
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


@check
def sequence_kept(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """The rows have the lengths of the plan, and the plan has its recorded digest and seed."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        planned, members = run.planned, run.plan.get("members") or {}
        if planned is None or not members:
            return false("the folder contains no plan", "keep plan/ in the run's folder")
        for side in ("input_tokens", "output_tokens"):
            if array_hash(np.ascontiguousarray(planned[side])) != members.get(f"{side}.npy"):
                return false(f"{side} of plan/schedule.npy do not have the digest of plan.json", "keep plan/ as it was")
        if dig(run.plan, "description.seed") != run.get("plan.description.seed"):
            return false("plan.json and run.json name different seeds", "keep plan/ as it was")
        return kept(run, planned)

    return each(evidence, judge)


def kept(run: MeasuredRun, planned: npt.NDArray[Any]) -> RequirementOutcome:
    """Whether the rows have the planned lengths. A closed loop bounded by time repeats its plan; later turns of a
    conversation are excluded, as they are longer than planned.
    """
    rows = run.measure.where(run.measure["turn"] == 0)
    at = rows["request"] % max(1, len(planned))
    same = (rows["input_target"] == planned["input_tokens"][at]) & (
        rows["output_target"] == planned["output_tokens"][at]
    )
    return judged(
        bool(same.all()) and isinstance(run.get("plan.description.seed"), int),
        f"{int(same.sum()):,} of {len(rows):,} requests were those of seed {run.get('plan.description.seed')}",
        "measure again: the requests sent are not those of the seed",
    )


@check
def seed_reported(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """run.json has one seed, for the workload and for the arrivals."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        seed = run.get("plan.description.seed")
        stream = run.get("plan.description.load.arrivals.stream")
        asked = None if run.get("config.output.plan") is not None else run.get("config.client.seed")
        if isinstance(seed, int) and asked not in (None, seed):
            return false(f"run.json has the configured seed {asked} and the used seed {seed}", "measure again")
        if isinstance(seed, int) and isinstance(stream, str) and not f"{stream}/".startswith(f"{seed}/"):
            return false(f"the seed is {seed}, and the instants are those of {stream!r}", "measure again")
        return judged(isinstance(seed, int), f"the seed is {seed}", "measure with --seed")

    return each(evidence, judge)


@check
def sequence_published(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """Seed, digest and version of the generator are recorded, which reproduce every request."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        digest, version = run.get("plan.digest"), run.get("tool.version")
        stated = bool(digest) and bool(version) and isinstance(run.get("plan.description.seed"), int)
        return judged(stated, f"fastllmload {version}, plan {str(digest)[:12]}", "keep run.json, or --save-plan FILE")

    return each(evidence, judge)


@check
def workload_named(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """The workload is a standard one, or all of its common fields are known."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        for described in facts.workloads(run):
            name = str(described.get("name", ""))
            missing = [field for field in FIELDS if value_of(evidence, described, field) is None]
            if not name or (workload_kind(name) != "standard" and missing):
                return undeclared(
                    f"{', '.join(missing) or 'the name'} of the workload is not known", remedy_of(missing)
                )
        return true(f"the workload {', '.join(sorted(facts.workload_names(evidence)))} is specified in full")

    return each(evidence, judge)


@check
def workload_field(evidence: ComplianceEvidence, /, name: str) -> RequirementOutcome:
    """One of the common fields of IETF 4.3.1 is known, by the plan or by declaration."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        parts = facts.workloads(run)
        values = [value_of(evidence, described, name) for described in parts]
        if None in values:
            which = parts[values.index(None)].get("name")
            return undeclared(f"{name} of the workload {which} is not known", remedy_of([name]))
        text = ", ".join(dict.fromkeys(str(value) for value in values))
        declared = FIELDS[name] is not None and evidence.declared.get(str(FIELDS[name])) == text
        return RequirementOutcome(DECLARED, text) if declared else true(f"{name}: {text}")

    return each(evidence, judge)


# Common field → the declaration that gives it where the tool does not define the workload.
FIELDS: dict[str, str | None] = {
    "isl": None, "osl": None, "tokenizer": None, "domain": "workload.domain", "language": "workload.language",
    "system_prompt": "workload.system_prompt", "prefix_share": "workload.prefix_share",
    "prefix_length": "workload.prefix_length",
}  # fmt: skip


def value_of(evidence: ComplianceEvidence, described: dict[str, Any], name: str) -> str | None:
    """Value of one field as text; None where it is not known."""
    if name in ("isl", "osl", "tokenizer"):
        found = described.get(name)
        return str(found) if found else None
    if name.startswith("prefix_"):
        known = shared(described, name)
        if known is not None:
            return known
    own = STANDARD_FIELDS.get(str(described.get("name")), {}).get(name)
    return own if own is not None else evidence.declared.get(str(FIELDS[name]))


def shared(described: dict[str, Any], name: str) -> str | None:
    """Share of requests with a shared prefix, or its length; None where the tool did not generate the text."""
    length = int(described.get("prefix_len") or 0)
    system, contexts = described.get("system_prompt"), described.get("contexts")
    if length:
        share, size = described.get("prefix_share", 1), f"{length} tokens, {described.get('num_prefixes')} different"
    elif isinstance(system, dict):
        share, size = system.get("share"), f"{system.get('tokens')} tokens"
    elif isinstance(contexts, dict):
        share, size = contexts.get("share"), f"contexts of {contexts.get('tokens')} tokens"
    elif workload_kind(str(described.get("name", ""))) == "standard":
        share, size = 0, "none"
    else:
        return None
    return str(share if name == "prefix_share" else size)


def remedy_of(lacking: list[str]) -> str:
    keys = [key for field in lacking if (key := FIELDS[field]) is not None]
    return (
        "; ".join(by_key()[key].remedy for key in keys) or "choose a --workload that states its lengths and tokenizer"
    )


@check
def output_control(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """Output lengths are controlled by a token limit in every body."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        targets = run.measure["output_target"]
        limited = bool((targets > 0).all()) and len(targets) > 0
        more = " and ignore_eos" if run.get("config.workload.ignore_eos") else ""
        return judged(limited, f"a limit of tokens{more}", "give --osl, so that every request has a limit")

    return each(evidence, judge)


@check
def dataset_field(evidence: ComplianceEvidence, /, name: str) -> RequirementOutcome:
    """Version, subset or preprocessing of a data set is known, by the plan or by declaration."""
    key = f"workload.dataset.{name}"
    said = evidence.declared.get(key)
    if said is not None:
        return RequirementOutcome(DECLARED, said)
    known = [dig(facts.workload(run), f"dataset.{name}") for run in evidence.runs]
    if known and all(known):
        return true(f"{name}: {known[0]}")
    return undeclared(f"{name} of the data set is not known", by_key()[key].remedy)


@check
def uniform_used(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """A model engine is measured with synthetic-uniform, unless the test has its own workload."""
    if evidence.test in OWN_TEST:
        return inapplicable(f"the test {evidence.test} names a workload of its own")
    if "synthetic-uniform" in facts.workload_names(evidence):
        return true("the workload is synthetic-uniform")
    said = evidence.declared.get("workload.uniform_result")
    if said is not None:
        return RequirementOutcome(DECLARED, said)
    return false(
        f"the workload is {', '.join(sorted(facts.workload_names(evidence)))}",
        f"use --workload synthetic-uniform, or {by_key()['workload.uniform_result'].remedy}",
    )


@check
def workload_is(evidence: ComplianceEvidence, /, names: list[str], own_tests: bool = True) -> RequirementOutcome:
    """Every run has one of the workloads *names*; without *own_tests*, tests with their own workload are excluded."""
    if not own_tests and evidence.test in (*OWN_TEST, "itl", "capacity"):
        return inapplicable(f"the test {evidence.test} names a workload of its own")
    found = facts.workload_names(evidence)
    return judged(
        bool(found) and found <= set(names),
        f"the workload is {', '.join(sorted(found)) or 'not known'}",
        f"use --workload {names[0]}",
    )


@check
def random_content(evidence: ComplianceEvidence, /, asked: bool = True) -> RequirementOutcome:
    """Prompts are random words or ids of the tokenizer. Without *asked*, not applicable to other prompts."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        form = facts.workload(run).get("prompt")
        if not asked and form not in ("text", "words", "ids"):
            return inapplicable(f"prompts are {form}")
        return judged(form in ("text", "words", "ids"), f"prompts are random {form}", f"use --workload {SYNTHETIC[0]}")

    return each(evidence, judge)


@check
def setting(evidence: ComplianceEvidence, /, path: str, value: Any, remedy: str = "") -> RequirementOutcome:
    """A setting of every run has *value*."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        found = run.get(f"config.{path}")
        return judged(found == value, f"{path} is {found}", remedy)

    return each(evidence, judge)


@check
def no_stop(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """Bodies contain no stop sequence."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        extra = str(run.get("config.workload.extra_body") or "")
        return judged('"stop"' not in extra, "bodies have no stop sequence", "remove stop from --extra-body")

    return each(evidence, judge)


@check
def described(evidence: ComplianceEvidence, /, path: str, value: Any = None) -> RequirementOutcome:
    """The plan's description of the workload has *path*, with *value* where one is given."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        found = dig(facts.workload(run), path)
        fits = found is not None if value is None else found == value
        return judged(fits, f"{path} is {str(found)[:60]}", "use the standard workload without options that change it")

    return each(evidence, judge)


@check
def from_dataset(evidence: ComplianceEvidence, /, name: str) -> RequirementOutcome:
    """The workload has the data set that the draft names, not a stand-in."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        known = isinstance(facts.workload(run).get("dataset"), dict)
        return judged(
            known, f"{'a file of' if known else 'a stand-in for'} {name}", "give its file with --dataset-path"
        )

    return each(evidence, judge)


@check
def special_rule(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """The plan states that special tokens and chat templates are excluded from the tool's counts."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        rule = facts.workload(run).get("special_tokens")
        return judged(bool(rule), str(rule), "measure with this version")

    return each(evidence, judge)
