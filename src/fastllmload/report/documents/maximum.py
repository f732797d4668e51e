"""The highest throughput of a test that tries loads, and the highest below a limit of P99 TTFT: which levels count, by one
rule for both (IETF C.1).

Ours: as in IETF 5.2.3 a maximum is of a load that the system sustains. A level counts that was not saturated, whose
throughput was steady, that a late client offered in full all the same, and that met the test's own objectives; of a search
for the concurrency (IETF 5.5) one that passed. No load above the answer of a search counts. Of several runs at a load the
one with the median throughput stands for it, the lower of two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastllmload.report.text.numbers import number

SWEEPS = ("throughput", "tradeoff", "capacity")  # tests whose levels differ in nothing but their load
ANSWERS = {"throughput": ("sustainable_load", "max_output_tok_s"), "capacity": ("max_concurrency", "output_tok_s")}
Document = Mapping[str, Any]
Entry = Mapping[str, Any]


def maximum(document: Document) -> Entry | None:
    """The entry of "levels" with the highest throughput that counts; None where none does, and of other tests.

    Of a search that has an answer it is the run that stands for that load.
    """
    found = standing(document)
    load = answer(document)
    if load is not None:
        return found.get(load)
    return max(found.values(), key=tokens, default=None)


def below(document: Document, limit_ms: float) -> float | None:
    """Output tokens/s of the best load that counts and whose P99 TTFT is below *limit_ms*; None where none is.

    Never above the maximum: of a search that is the throughput at the highest load that holds, and a lower load which by
    chance gave more is no better answer under a limit than without one.
    """
    top = maximum(document)
    if top is None:
        return None
    met = [one for one in standing(document).values() if 0 <= milliseconds(one, "ttft") < limit_ms]
    return max((tokens(one) for one in met if tokens(one) <= tokens(top)), default=None)


def standing(document: Document) -> dict[float, Entry]:
    """By load the run that stands for it, of all loads that count."""
    name = document.get("procedure")
    if name not in SWEEPS or not known(document):
        return {}
    highest, limits = answer(document), objectives(document)
    runs: dict[float, list[Entry]] = {}
    failing: set[float] = set()
    for one in document.get("levels") or ():
        load = number(one.get("load"))
        if load is None or (name == "tradeoff" and one.get("loop") == "closed"):  # by which its capacity was measured
            continue
        if number(one.get("output_tok_s")) is not None and sustained(one) and meets(one, limits):
            runs.setdefault(load, []).append(one)
        elif one.get("saturated") is True or one.get("passes") is False:
            failing.add(load)
    counting = {
        load: each for load, each in runs.items() if (load not in failing if highest is None else load <= highest)
    }
    return {load: representative(each, document, load == highest) for load, each in counting.items()}


def sustained(one: Entry) -> bool:
    """Whether the system sustained the load of a level, by what the test itself recorded of it."""
    if "passes" in one:
        return one["passes"] is True
    criteria = one.get("criteria") or {}
    offered = criteria.get("generator_limited") is not True or criteria.get("offered_in_full") is True
    return one.get("saturated") is False and one.get("steady") is True and offered


def meets(one: Entry, limits: Mapping[str, float]) -> bool:
    return all(0 <= milliseconds(one, name) <= limit for name, limit in limits.items())


def representative(runs: list[Entry], document: Document, is_answer: bool) -> Entry:
    """The run whose throughput the test gives as its answer, else the median."""
    ordered = sorted(runs, key=tokens)
    named = number(finding(document, 1)) if is_answer else None
    return next((one for one in ordered if tokens(one) == named), ordered[(len(ordered) - 1) // 2])


def known(document: Document) -> bool:
    """False where a search ended without any load that holds."""
    key = ANSWERS.get(str(document.get("procedure")), ("",))[0]
    findings = document.get("findings") or {}
    return key not in findings or findings[key] is not None


def answer(document: Document) -> float | None:
    """The load at which a search ended; None of a sweep, and of a search that did not come to its end."""
    return number(finding(document, 0))


def finding(document: Document, which: int) -> object:
    names = ANSWERS.get(str(document.get("procedure")))
    return None if names is None else (document.get("findings") or {}).get(names[which])


def objectives(document: Document) -> dict[str, float]:
    """Metric to the limit of its P99 in ms that the test was given; of one that was cut off from what was asked."""
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
