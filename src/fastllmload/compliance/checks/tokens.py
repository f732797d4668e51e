"""Checks which tokenizer counted tokens, and what it counted (IETF 4.4)."""

from __future__ import annotations

from fastllmload.compliance import facts
from fastllmload.compliance.checks.declared import lacking
from fastllmload.compliance.checks.runs import with_arguments
from fastllmload.compliance.evidence import ComplianceEvidence
from fastllmload.compliance.outcome import DECLARED, RequirementOutcome, false, judged, true
from fastllmload.declarations import SYNTHETIC
from fastllmload.documents.plan import TokenizerFacts
from fastllmload.workload.tokenizers.tokenizer import NONE


@with_arguments
def tokenizer_known(evidence: ComplianceEvidence, fact: str) -> RequirementOutcome:
    """*fact*: name, vocabulary or source of the tokenizer that counted the output."""
    key = f"tokenizer.{fact}"
    reference = [one.tokenizer or NONE for run in evidence.runs for one in run.workloads]
    if not reference or NONE in reference:
        return false("prompts were made without a tokenizer", "leave out --tokenizer none")
    if facts.counting_option(evidence) == "B":
        return reference_known(evidence, reference[0], fact)
    said = evidence.declared.get(key)
    if said is None:
        return lacking(key, f"the server counted the answers, and the {fact} of its tokenizer is not known")
    return RequirementOutcome(DECLARED, f"{said}; prompts were made with {reference[0]}")


def reference_known(evidence: ComplianceEvidence, name: str, fact: str) -> RequirementOutcome:
    """*fact* of the reference tokenizer, from the plan's description."""
    recorded = evidence.runs[0].workloads[0].tokenizer_facts or TokenizerFacts()
    value = {"name": recorded.name, "vocabulary": recorded.vocabulary, "source": recorded.source}[fact]
    if value is None:
        return false(f"the {fact} of {name} is not recorded", "measure with this version")
    return true(f"{name}: {fact} {value}, counted by the tool")


def counting_stated(evidence: ComplianceEvidence) -> RequirementOutcome:
    """One counting option is used throughout, and it is the declared one if any is declared."""
    found, said = facts.counting_option(evidence), evidence.declared.get("token_counting.option")
    sources = ", ".join(f"{n:,} {name}" for name, n in facts.token_sources(evidence).items() if n) or "none"
    if found is None:
        reason = f"output counts are mixed or estimated ({sources})"
        return false(reason, "ask the server for usage, or --record-text on with --tokenizer")
    if said is not None and said != found:
        return false(f"option {said} is declared, option {found} was used ({sources})", "correct the declaration")
    return true(f"option {found}: {sources}")


def special_tokens(evidence: ComplianceEvidence) -> RequirementOutcome:
    """It is known whether counts include the tokens for beginning and end of text."""
    if facts.counting_option(evidence) == "B":
        return true("excluded: the tool counts plain text")
    said = evidence.declared.get("token_counting.bos_eos")
    if said is None:
        return lacking("token_counting.bos_eos", "only the server's documentation states it")
    return RequirementOutcome(DECLARED, said)


def system_prompt_counted(evidence: ComplianceEvidence) -> RequirementOutcome:
    """It is known how a system prompt is counted, where one is sent."""
    if (said := evidence.declared.get("token_counting.system_prompt")) is not None:
        return RequirementOutcome(DECLARED, said)
    rule = evidence.runs[0].workloads[0].special_tokens if evidence.runs else None
    if rule is not None:
        return true(rule)
    if facts.workload_names(evidence) <= set(SYNTHETIC):
        return true("no system prompt is sent")
    return lacking(
        "token_counting.system_prompt", "requests may carry a system prompt, and how it is counted is not known"
    )


def tools_counted(evidence: ComplianceEvidence) -> RequirementOutcome:
    """It is known how tokens that format tool calls are counted, where tools are used."""
    if (said := evidence.declared.get("token_counting.tool_formatting")) is not None:
        return RequirementOutcome(DECLARED, said)
    if not facts.sends_tools(evidence):
        return true("no tools are sent and none were called")
    return lacking("token_counting.tool_formatting", "tools are used")


def reference_tokenizer(evidence: ComplianceEvidence) -> RequirementOutcome:
    together = (evidence, *evidence.others)
    by_reference = all(facts.counting_option(side) == "B" for side in together)
    names = {str(one.tokenizer) for side in together for run in side.runs for one in run.workloads}
    options = sorted({str(facts.counting_option(side)) for side in together})
    reason, fits = f"option {', '.join(options)} with {', '.join(sorted(names))}", names == {"cl100k_base"}
    remedy = "measure all systems with --record-text on and --tokenizer cl100k_base"
    return judged(by_reference and fits, reason, remedy)
