"""Reasons to doubt that the figures of a run describe a steady target: latencies that drifted, a queue that grew,
requests that did not end, chunks with an unknown number of tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastllmload.errors import coded
from fastllmload.report.text.numbers import NOT_KNOWN, WITHHELD, count, number, part, percent, quantity

LEVELS = {"ttft": "TTFT", "ttft_any": "TTFT (first token of any kind)", "itl": "ITL", "e2e": "End-to-End"}


def reason_text(reason: object) -> str:
    """The sentence of a reason of the certificate, with its code."""
    text, code = part(reason, "text"), part(reason, "code")
    return coded(str(code), str(text)) if text and code else str(text or reason)


def bound(metric: object, statistic: str) -> str | None:
    """`>=4,129` or `4,129-6,277`: bounds of a figure that unfinished requests can change; None where they cannot.

    In the unit of the metric; `withheld` for a figure that is not public.
    """
    known = part(metric, "unfinished_bounds", statistic)
    if known == WITHHELD:
        return WITHHELD
    low, high = number(part(known, "low")), number(part(known, "high"))
    if low is None:
        return None
    return f">={quantity(low)}" if high is None else f"{quantity(low)}-{quantity(high)}"


def unfinished_text(document: Mapping[str, Any]) -> str | None:
    """Why some figures are bounds; None where none is."""
    for name in ("ttft", "e2e"):
        metric = part(document, "metrics", name)
        if part(metric, "unfinished_bounds"):
            cut, n = (part(metric, "with_unfinished", key) for key in ("n_unfinished", "n"))
            return (
                f"{count(cut)} of {count(n)} requests {'had no first token' if name == 'ttft' else 'did not end'}: figures "
                "with >= are lower bounds, which count each of them with the time it had waited."
            )
    return None


def unsteady_texts(document: Mapping[str, Any]) -> list[str]:
    """One sentence for each latency that drifted, and for a queue that grew; none for a steady run."""
    found = []
    for name, label in LEVELS.items():
        drift = part(document, "steadiness", "drift", name)
        if part(drift, "steady") is False:
            found.append(f"Not steady: {label} {_drift_text(drift)}. One figure does not describe the window.")
    flight = part(document, "steadiness", "in_flight")
    if part(flight, "growing") is True:
        first, second = (quantity(part(flight, key)) for key in ("first_half", "second_half"))
        found.append(
            f"The queue was growing: {first} requests in flight in the first half of the window, {second} in the second."
        )
    if part(document, "steadiness", "littles_law", "holds") is False:
        residual = percent(part(document, "steadiness", "littles_law", "residual"))
        found.append(f"Little's law does not hold: {residual} are missing.")
    return found


def token_texts(document: Mapping[str, Any]) -> list[str]:
    """What is not known about the tokens of chunks, and how that affects the gaps between tokens."""
    found = []
    single, empty = part(document, "metrics", "share_single"), part(document, "metrics", "empty_chunks")
    if part(single, "itl_option_asked") == "B":
        unknown = number(part(single, "n_unknown"))
        if part(single, "itl_option") != "B":
            found.append(
                "--itl-option B was set, but the number of tokens in each chunk is not known: the gaps are those between "
                f"chunks (TBC). {_remedy(document)}--record-text on with --tokenizer would provide it."
            )
        elif unknown:
            found.append(
                f"ITL (B): the chunks of {count(unknown)} answers have an unknown number of tokens and count as one each."
            )
    share, least = number(part(empty, "value")), part(empty, "itl_mean_least")
    carrying, several = number(part(empty, "n_carrying")), number(part(empty, "n"))
    if share and carrying != 0:
        carriers = (
            "all of them do"
            if carrying in (None, several)
            else f"{count(carrying)} of them do, which the answers' token counts allow"
        )
        found.append(
            f"{percent(share)} of the chunks had no text, and it is not known whether they carry a token: if {carriers}, "
            f"the mean gap is {quantity(least)} ms."
        )
    return found


def _remedy(document: Mapping[str, Any]) -> str:
    """A further option that would help, unless the server was asked for it and did not do it."""
    return "" if part(document, "target", "continuous_usage") is False else "--continuous-usage on or "


def doubt_texts(document: Mapping[str, Any]) -> list[str]:
    """Sentences on steadiness and on tokens."""
    return [*unsteady_texts(document), *token_texts(document)]


def all_texts(document: Mapping[str, Any]) -> list[str]:
    """The same, and why some figures are bounds."""
    cut = unfinished_text(document)
    return [*doubt_texts(document), *([cut] if cut is not None else [])]


def _drift_text(drift: Mapping[str, Any]) -> str:
    """`40.10 ms in the first half of the window, 63.20 ms in the second`, or around a step where that fits better."""
    step = (number(drift.get("p_step")) or 0.0) < (number(drift.get("p")) or 0.0)
    keys = ("before_step", "after_step") if step else ("first_half", "second_half")
    before, after = (quantity(drift.get(key)) for key in keys)
    if not step:
        return f"{before} ms in the first half of the window, {after} ms in the second"
    at = drift.get("step_at")
    share = NOT_KNOWN if number(at) is None else percent(at)
    return f"{before} ms over the first {share} of the requests, {after} ms after them"
