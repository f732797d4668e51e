"""Reasons to doubt that the figures of a run describe a steady target: latencies that drifted, a queue that grew,
requests that did not end, chunks with an unknown number of tokens.
"""

from __future__ import annotations

from fastllmload.documents.fields import WITHHELD, known
from fastllmload.documents.metric import Metric, WithUnfinished
from fastllmload.documents.run import RunDocument
from fastllmload.documents.run_parts.steadiness import DriftFacts
from fastllmload.report.text.numbers import NOT_KNOWN, count, percent, quantity

LEVELS = {"ttft": "TTFT", "ttft_any": "TTFT (first token of any kind)", "itl": "ITL", "e2e": "End-to-End"}


def bound(metric: Metric, statistic: str) -> str | None:
    """`>=4,129` or `4,129-6,277`: bounds of a figure that unfinished requests can change, one number where both are alike;
    None where they cannot.

    In the unit of the metric; `withheld` for a figure that is not public.
    """
    bounds = metric.unfinished_bounds.get(statistic)
    if bounds is None:
        return None
    if bounds.low is WITHHELD:
        return WITHHELD.value
    if known(bounds.low) is None:
        return None
    low, high = quantity(bounds.low), None if known(bounds.high) is None else quantity(bounds.high)
    return f">={low}" if high is None else low if low == high else f"{low}-{high}"


def unfinished_text(document: RunDocument) -> str | None:
    """Why some figures are bounds; None where none is."""
    for name in ("ttft", "e2e"):
        metric = document.metric(name)
        if metric.unfinished_bounds:
            cut = metric.with_unfinished or WithUnfinished()
            return (
                f"{count(cut.n_unfinished)} of {count(cut.n)} requests "
                f"{'had no first token' if name == 'ttft' else 'did not end'}: figures "
                "with >= are lower bounds, which count each of them with the time it had waited."
            )
    return None


def unsteady_texts(document: RunDocument) -> list[str]:
    """One sentence for each latency that drifted, and for a queue that grew; none for a steady run."""
    found, steadiness = [], document.steadiness
    for name, label in LEVELS.items():
        drift = steadiness.drift.get(name)
        if drift is not None and drift.steady is False:
            found.append(f"Not steady: {label} {_drift_text(drift)}. One figure does not describe the window.")
    flight, law = steadiness.in_flight, steadiness.littles_law
    if flight is not None and flight.growing:
        found.append(
            f"The queue was growing: {quantity(flight.first_half)} requests in flight in the first half of the window, "
            f"{quantity(flight.second_half)} in the second."
        )
    if law is not None and law.holds is False:
        found.append(f"Little's law does not hold: {percent(law.residual)} are missing.")
    return found


def token_texts(document: RunDocument) -> list[str]:
    """What is not known about the tokens of chunks, and how that affects the gaps between tokens."""
    found = []
    single, empty = document.metric("share_single"), document.metric("empty_chunks")
    if single.itl_option_asked == "B":
        if single.itl_option != "B":
            found.append(
                "--itl-option B was set, but the number of tokens in each chunk is not known: the gaps are those between "
                f"chunks (TBC). {_remedy(document)}--record-text on with --tokenizer would provide it."
            )
        elif known(single.n_unknown):
            found.append(
                f"ITL (B): the chunks of {count(single.n_unknown)} answers have an unknown number of tokens and count as "
                "one each."
            )
    carrying = known(empty.n_carrying)
    if known(empty.value) and carrying != 0:
        carriers = (
            "all of them do"
            if carrying in (None, known(empty.n))
            else f"{count(carrying)} of them do, which the answers' token counts allow"
        )
        found.append(
            f"{percent(empty.value)} of the chunks had no text, and it is not known whether they carry a token: if "
            f"{carriers}, the mean gap is {quantity(empty.itl_mean_least)} ms."
        )
    return found


def _remedy(document: RunDocument) -> str:
    """A further option that would help, unless the server was asked for it and did not do it."""
    return "" if document.target.continuous_usage is False else "--continuous-usage on or "


def doubt_texts(document: RunDocument) -> list[str]:
    """Sentences on steadiness and on tokens."""
    return [*unsteady_texts(document), *token_texts(document)]


def all_texts(document: RunDocument) -> list[str]:
    """The same, and why some figures are bounds."""
    cut = unfinished_text(document)
    return [*doubt_texts(document), *([cut] if cut is not None else [])]


def _drift_text(drift: DriftFacts) -> str:
    """`40.10 ms in the first half of the window, 63.20 ms in the second`, or around a step where that fits better."""
    if not (known(drift.p_step) or 0.0) < (known(drift.p) or 0.0):
        before, after = quantity(drift.first_half), quantity(drift.second_half)
        return f"{before} ms in the first half of the window, {after} ms in the second"
    share = NOT_KNOWN if known(drift.step_at) is None else percent(drift.step_at)
    before, after = quantity(drift.before_step), quantity(drift.after_step)
    return f"{before} ms over the first {share} of the requests, {after} ms after them"
