"""Selects the maximum throughput of a test with several load levels, without and with a limit of P99 TTFT (IETF C.1).

The rule is ours; as in IETF 5.2.3, a maximum is of a load that the system sustains. A level is eligible when it was not
saturated, its throughput was steady, its load was offered in full, and it met the objectives of the test; a level of a
capacity search (IETF 5.5) when it passed. Loads above the answer of a search are not eligible. Of several runs at a load,
the one with the median throughput represents it, of two the lower.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastllmload.report.text.numbers import number

SWEEPS = ("throughput", "tradeoff", "capacity")  # tests whose levels differ only in their load
ANSWERS = {"throughput": ("sustainable_load", "max_output_tok_s"), "capacity": ("max_concurrency", "output_tok_s")}
Document = Mapping[str, Any]
Entry = Mapping[str, Any]


def maximum(document: Document) -> Entry | None:
    """The eligible entry of "levels" with the highest throughput; None without one, and for other tests.

    For a search with an answer, the representative run at that load.
    """
    found = eligible(document)
    load = answer(document)
    if load is not None:
        return found.get(load)
    return max(found.values(), key=tokens, default=None)


def below(document: Document, limit_ms: float) -> float | None:
    """Highest output tokens/s of the eligible loads with a P99 TTFT below *limit_ms*; None without one.

    Never above the maximum: for a search that is the throughput at the highest sustained load, and a lower load that gave
    more by chance does not count under a limit either.
    """
    top = maximum(document)
    if top is None:
        return None
    met = [one for one in eligible(document).values() if 0 <= milliseconds(one, "ttft") < limit_ms]
    return max((tokens(one) for one in met if tokens(one) <= tokens(top)), default=None)


def eligible(document: Document) -> dict[float, Entry]:
    """The representative run of each eligible load."""
    name = document.get("procedure")
    if name not in SWEEPS or not has_answer(document):
        return {}
    highest, limits = answer(document), objectives(document)
    runs: dict[float, list[Entry]] = {}
    failing: set[float] = set()
    for one in document.get("levels") or ():
        load = number(one.get("load"))
        if load is None or (name == "tradeoff" and one.get("loop") == "closed"):  # its capacity measurement
            continue
        if number(one.get("output_tok_s")) is not None and sustained(one) and meets(one, limits):
            runs.setdefault(load, []).append(one)
        elif one.get("saturated") is True or one.get("passes") is False:
            failing.add(load)
    chosen = {
        load: each for load, each in runs.items() if (load not in failing if highest is None else load <= highest)
    }
    return {load: representative(each, document, load == highest) for load, each in chosen.items()}


def sustained(one: Entry) -> bool:
    """Whether the system sustained the load of a level, as recorded by the test."""
    if "passes" in one:
        return one["passes"] is True
    criteria = one.get("criteria") or {}
    offered = criteria.get("generator_limited") is not True or criteria.get("offered_in_full") is True
    return one.get("saturated") is False and one.get("steady") is True and offered


def meets(one: Entry, limits: Mapping[str, float]) -> bool:
    return all(0 <= milliseconds(one, name) <= limit for name, limit in limits.items())


def representative(runs: list[Entry], document: Document, is_answer: bool) -> Entry:
    """The run whose throughput is the answer of the test, else the one with the median."""
    ordered = sorted(runs, key=tokens)
    named = number(finding(document, 1)) if is_answer else None
    return next((one for one in ordered if tokens(one) == named), ordered[(len(ordered) - 1) // 2])


def has_answer(document: Document) -> bool:
    """False where a search ended without a sustained load."""
    key = ANSWERS.get(str(document.get("procedure")), ("",))[0]
    findings = document.get("findings") or {}
    return key not in findings or findings[key] is not None


def answer(document: Document) -> float | None:
    """The load that a search found; None for a sweep and for a search that was stopped early."""
    return number(finding(document, 0))


def finding(document: Document, which: int) -> object:
    names = ANSWERS.get(str(document.get("procedure")))
    return None if names is None else (document.get("findings") or {}).get(names[which])


def objectives(document: Document) -> dict[str, float]:
    """Limit of P99 in ms by metric: from the findings, or from the parameters of a test that was stopped early."""
    limits = (document.get("findings") or {}).get("limits")
    if not isinstance(limits, Mapping):
        asked = (document.get("parameters") or {}).get("test") or {}
        limits = {name: asked.get(f"slo_{name}_p99_ms") for name in ("ttft", "tpot")}
    return {str(name): limit for name, value in limits.items() if (limit := number(value)) is not None}


def milliseconds(one: Entry, name: str) -> float:
    """P99 of a metric; -1 where there is none."""
    found = number(one.get(f"{name}_p99_ms"))
    return -1.0 if found is None else found


def tokens(one: Entry) -> float:
    return number(one.get("output_tok_s")) or 0.0
