"""What speaks against taking the figures of a run for those of a steady target: levels that moved, a queue that grew,
requests that did not end, chunks of unknown size.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastllmload.report.text.numbers import NOT_KNOWN, WITHHELD, count, number, part, percent, quantity

LEVELS = {"ttft": "TTFT", "ttft_any": "TTFT (first token of any kind)", "itl": "ITL", "e2e": "End-to-End"}


def bound(metric: object, statistic: str) -> str | None:
    """`>=4,129`, or `4,129-6,277`: what is known of a figure that unfinished requests can move; None where they cannot.

    In the unit of the metric. A figure that is not public is withheld by the caller.
    """
    known = part(metric, "unfinished_bounds", statistic)
    if known == WITHHELD:
        return WITHHELD
    low, high = number(part(known, "low")), number(part(known, "high"))
    if low is None:
        return None
    return f">={quantity(low)}" if high is None else f"{quantity(low)}-{quantity(high)}"


def unfinished_text(document: Mapping[str, Any]) -> str | None:
    """Why figures are bounds; None where none is."""
    for name in ("ttft", "e2e"):
        metric = part(document, "metrics", name)
        if part(metric, "unfinished_bounds"):
            cut, n = (part(metric, "with_unfinished", key) for key in ("n_unfinished", "n"))
            return (
                f"{count(cut)} of {count(n)} requests did not end{' their wait' if name == 'ttft' else ''}: figures with >= "
                "are lower bounds, with each counted as long as it was seen to wait."
            )
    return None


def unsteady_texts(document: Mapping[str, Any]) -> list[str]:
    """One sentence for each level that moved, and for a queue that grew; none for a steady run."""
    found = []
    for name, label in LEVELS.items():
        drift = part(document, "steadiness", "drift", name)
        if part(drift, "steady") is False:
            found.append(f"Not steady: {label} {_moved(drift)}. One figure does not stand for the window.")
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
    """What is not known of the tokens of a chunk, and what that does to the gaps between tokens."""
    found = []
    single, empty = part(document, "metrics", "share_single"), part(document, "metrics", "empty_chunks")
    if part(single, "itl_option_asked") == "B":
        unknown = number(part(single, "n_unknown"))
        if part(single, "itl_option") != "B":
            found.append(
                "--itl-option B was asked for, but nobody said how many tokens a chunk carries: the gaps are those between "
                f"chunks (TBC). {_remedy(document)}--record-text on with --tokenizer would tell."
            )
        elif unknown:
            found.append(
                f"ITL (B): the chunks of {count(unknown)} answers are of unknown size, and count as one token each."
            )
    share, least = number(part(empty, "value")), part(empty, "itl_mean_least")
    carrying, several = number(part(empty, "n_carrying")), number(part(empty, "n"))
    if share and carrying != 0:
        all_of_them = carrying in (None, several)
        some = "all of them do" if all_of_them else f"{count(carrying)} of them do, as the answers' counts allow"
        found.append(
            f"{percent(share)} of the chunks had no text, and nobody said whether they carry a token: if {some}, "
            f"the mean gap is {quantity(least)} ms."
        )
    return found


def _remedy(document: Mapping[str, Any]) -> str:
    """What else would tell, unless the server was asked for it and does not do it."""
    return "" if part(document, "target", "continuous_usage") is False else "--continuous-usage on or "


def doubt_texts(document: Mapping[str, Any]) -> list[str]:
    """All of it, one sentence each."""
    return [*unsteady_texts(document), *token_texts(document)]


def all_texts(document: Mapping[str, Any]) -> list[str]:
    """The same, and why figures are bounds."""
    cut = unfinished_text(document)
    return [*doubt_texts(document), *([cut] if cut is not None else [])]


def _moved(drift: Mapping[str, Any]) -> str:
    """`40.10 ms in the first half of the window, 63.20 ms in the second`, or the step if that explains it better."""
    step = (number(drift.get("p_step")) or 0.0) < (number(drift.get("p")) or 0.0)
    keys = ("before_step", "after_step") if step else ("first_half", "second_half")
    before, after = (quantity(drift.get(key)) for key in keys)
    if not step:
        return f"{before} ms in the first half of the window, {after} ms in the second"
    at = drift.get("step_at")
    share = NOT_KNOWN if number(at) is None else percent(at)
    return f"{before} ms over the first {share} of the requests, {after} ms after them"
