"""How servers were controlled between warm-up and measurement (`--between`), as sentences."""

from __future__ import annotations

from collections.abc import Sequence

from fastllmload.documents.fields import known
from fastllmload.documents.run import RunDocument
from fastllmload.documents.run_parts.control import CacheProof, ControlCall, ControlFacts
from fastllmload.report.text.numbers import count, duration

PROOF_MISSING = "that the cache was empty is not proved"


def control_texts(document: RunDocument) -> list[str]:
    """One sentence for each verb, and one for each page that changed during the run."""
    return [*([] if document.control is None else _texts(document.control)), *changed_texts(document)]


def changed_texts(document: RunDocument) -> list[str]:
    """One sentence for each page of a server that was another one after the run."""
    changed = [page for page in document.server_pages if page.changed]
    return [f"{page.page} of {page.url} changed during the run: {'; '.join(page.changed)}" for page in changed]


def _texts(control: ControlFacts) -> list[str]:
    verbs = dict.fromkeys(str(call.verb) for call in control.calls)
    return [_verb(verb, [call for call in control.calls if call.verb == verb], control.proofs) for verb in verbs]


def _verb(verb: str, calls: Sequence[ControlCall], proofs: Sequence[CacheProof]) -> str:
    servers = len({call.url for call in calls})
    what = ", ".join(dict.fromkeys(str(call.request) for call in calls)) if verb == "hook" else verb
    failed = [call for call in calls if call.needed and not call.done]
    slowest = max((known(call.seconds) or 0.0 for call in calls), default=0.0)
    text = f"{what} on {count(servers)} server{'' if servers == 1 else 's'}, {duration(1e3 * slowest)} at most"
    if failed:
        return f"{text}; {failed[0].url} failed: {failed[0].said or failed[0].http_status}"
    if verb == "profile":
        return f"{text}; the profiler ran during the measurement"
    if verb in ("reset-cache", "flush"):
        return f"{text}; {_proved(proofs)}"
    return text


def _proved(proofs: Sequence[CacheProof]) -> str:
    wrong = [proof for proof in proofs if proof.proved is not True]
    if wrong:
        return f"{PROOF_MISSING} of {wrong[0].url}: {wrong[0].why or 'tokens were still cached'}"
    if not proofs:
        return PROOF_MISSING
    first = proofs[0]
    return (
        f"proved empty: of a prompt that was cached, {count(first.first)} tokens were cached after it, "
        f"{count(first.second)} when it was sent again"
    )
