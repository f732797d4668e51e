"""Checks which tokenizer counted tokens, and what it counted (IETF 4.4)."""

from __future__ import annotations

from fastllmload.compliance import facts
from fastllmload.compliance.checks.registry import check, each
from fastllmload.compliance.evidence import ComplianceEvidence, MeasuredRun, dig
from fastllmload.compliance.outcome import DECLARED, RequirementOutcome, false, judged, true, undeclared
from fastllmload.declarations import SYNTHETIC, by_key
from fastllmload.workload.tokenizers.tokenizer import NONE


@check
def tokenizer_known(evidence: ComplianceEvidence, /, fact: str) -> RequirementOutcome:
    """*fact*: name, vocabulary or source of the tokenizer that counted the output."""
    reference = [str(one.get("tokenizer") or NONE) for run in evidence.runs for one in facts.workloads(run)]
    if not reference or NONE in reference:
        return false("prompts were made without a tokenizer", "leave out --tokenizer none")
    key = f"tokenizer.{fact}"
    if facts.counting_option(evidence) == "B":
        return reference_known(evidence, reference[0], fact)
    said = evidence.declared.get(key)
    if said is None:
        return undeclared(
            f"the server counted the answers, and the {fact} of its tokenizer is not known", by_key()[key].remedy
        )
    return RequirementOutcome(DECLARED, f"{said}; prompts were made with {reference[0]}")


def reference_known(evidence: ComplianceEvidence, name: str, fact: str) -> RequirementOutcome:
    """*fact* of the reference tokenizer, from the plan's description."""
    known = next((dig(facts.workload(run), f"tokenizer_facts.{fact}") for run in evidence.runs), None)
    if known is None:
        return false(f"the {fact} of {name} is not recorded", "measure with this version")
    return true(f"{name}: {fact} {known}, counted by the tool")


@check
def counting_stated(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """One counting option is used throughout, and it is the declared one if any is declared."""
    found, said = facts.counting_option(evidence), evidence.declared.get("token_counting.option")
    sources = ", ".join(f"{n:,} {name}" for name, n in facts.token_sources(evidence).items() if n) or "none"
    if found is None:
        return false(
            f"output counts are mixed or estimated ({sources})",
            "ask the server for usage, or --record-text on with --tokenizer",
        )
    if said is not None and said != found:
        return false(f"option {said} is declared, option {found} was used ({sources})", "correct the declaration")
    return true(f"option {found}: {sources}")


@check
def special_tokens(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """It is known whether counts include the tokens for beginning and end of text."""
    if facts.counting_option(evidence) == "B":
        return true("excluded: the tool counts plain text")
    said = evidence.declared.get("token_counting.bos_eos")
    if said is None:
        return undeclared("only the server's documentation states it", by_key()["token_counting.bos_eos"].remedy)
    return RequirementOutcome(DECLARED, said)


@check
def system_prompt_counted(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """It is known how a system prompt is counted, where one is sent."""
    said = evidence.declared.get("token_counting.system_prompt")
    if said is not None:
        return RequirementOutcome(DECLARED, said)
    rule = next((facts.workload(run).get("special_tokens") for run in evidence.runs), None)
    if rule is not None:
        return true(str(rule))
    if facts.workload_names(evidence) <= set(SYNTHETIC):
        return true("no system prompt is sent")
    return undeclared(
        "requests may carry a system prompt, and how it is counted is not known",
        by_key()["token_counting.system_prompt"].remedy,
    )


@check
def tools_counted(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """It is known how tokens that format tool calls are counted, where tools are used."""
    said = evidence.declared.get("token_counting.tool_formatting")
    if said is not None:
        return RequirementOutcome(DECLARED, said)
    if not facts.sends_tools(evidence):
        return true("no tools are sent and none were called")
    return undeclared("tools are used", by_key()["token_counting.tool_formatting"].remedy)


@check
def reference_tokenizer(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """Compared systems are counted by option B with cl100k_base."""
    together = (evidence, *evidence.others)
    by_reference = all(facts.counting_option(each_) == "B" for each_ in together)
    names = {str(facts.workload(run).get("tokenizer")) for each_ in together for run in each_.runs}
    options = sorted({str(facts.counting_option(each_)) for each_ in together})
    return judged(
        by_reference and names == {"cl100k_base"},
        f"option {', '.join(options)} with {', '.join(sorted(names))}",
        "measure all systems with --record-text on and --tokenizer cl100k_base",
    )


@check
def one_tokenizer_each(evidence: ComplianceEvidence, /) -> RequirementOutcome:
    """Token counts of one run come from one source."""

    def judge(run: MeasuredRun) -> RequirementOutcome:
        sources = {name for name, n in (run.get("counts.output_tokens_source") or {}).items() if n}
        return judged(len(sources) == 1, f"output counts come from {', '.join(sorted(sources))}", "record the text")

    return each(evidence, judge)
