"""Checks how answers were delivered, and how inter-token times were derived from that (IETF 4.6, B.2)."""

from __future__ import annotations

from fastllmload.compliance import facts
from fastllmload.compliance.checks.runs import per_run, with_arguments
from fastllmload.compliance.evidence import ComplianceEvidence, MeasuredRun
from fastllmload.compliance.outcome import RequirementOutcome, false, inapplicable, judged, true
from fastllmload.documents.fields import known

DIRECT_ABOVE = 0.90  # IETF B.2.1
AGAIN = "measure with this version"


@with_arguments
def protocol_is(evidence: ComplianceEvidence, name: str) -> RequirementOutcome:
    found = facts.protocol(evidence)
    remedy = "choose an --endpoint-type over gRPC if the engine has one" if name == "grpc" else "stream the answers"
    return judged(found == name, f"the protocol is {found}, recommended is {name}", remedy)


def protocol_reported(evidence: ComplianceEvidence) -> RequirementOutcome:
    found = facts.protocol(evidence)
    return judged(found is not None, f"the protocol is {found}", "name a known --endpoint-type")


@per_run
def chunks_reported(run: MeasuredRun) -> RequirementOutcome:
    """The share of chunks that carry exactly one token is stated."""
    stated = run.metric("share_single")
    if stated is None:
        return false("the share of single-token chunks is not stated", AGAIN)
    share = known(stated.value)
    if share is None:
        return true("the number of tokens per chunk is not known, and that is stated")
    return true(f"{share:.1%} of the chunks carry one token")


@per_run
def option_declared(run: MeasuredRun) -> RequirementOutcome:
    option = run.document.metric("share_single").itl_option
    return judged(option in ("direct", "A", "B", "C"), f"the ITL option is {option}", AGAIN)


@per_run
def server_stamps_used(run: MeasuredRun) -> RequirementOutcome:
    """Option C, the server's own time stamps, where chunks of several tokens are common, unless the user chose another."""
    stated, asked = run.document.metric("share_single"), run.document.config.output.itl_option
    share = known(stated.value)
    if run.document.counts.all_reasoning and not run.samples("ttft"):
        return inapplicable("the answers were all reasoning: no gap between answer tokens")
    if share is not None and share > DIRECT_ABOVE:
        return inapplicable(f"the share of single-token chunks is {share}")
    reason = f"option {stated.itl_option} at a share of {share}"
    return judged(stated.itl_option == "C" or asked not in (None, "auto"), reason, AGAIN)
