"""Selects the maximum throughput of a test with several load levels, without and with a limit of P99 TTFT (IETF C.1).

The rule is ours; as in IETF 5.2.3, a maximum is of a load that the system sustains. A level is eligible when it was not
saturated, its throughput was steady, its load was offered in full, and it met the objectives of the test; a level of a
capacity search (IETF 5.5) when it passed. Loads above the answer of a search are not eligible. Of several runs at a load,
the one with the median throughput represents it, of two the lower.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastllmload.documents.experiment import Criteria, LevelEntry
from fastllmload.documents.fields import known
from fastllmload.documents.procedure import ProcedureDocument, TestParameters
from fastllmload.records.run import DONE

SWEEPS = ("throughput", "tradeoff", "capacity")  # tests whose levels differ only in their load
ANSWERS = {"throughput": ("sustainable_load", "max_output_tok_s"), "capacity": ("max_concurrency", "output_tok_s")}


def maximum(document: ProcedureDocument) -> LevelEntry | None:
    """The eligible entry of "levels" with the highest throughput; None without one, and for other tests.

    For a search with an answer, the representative run at that load.
    """
    found = eligible(document)
    load = answer(document)
    if load is not None:
        return found.get(load)
    return max(found.values(), key=tokens, default=None)


def below(document: ProcedureDocument, limit_ms: float) -> float | None:
    """Highest output tokens/s of the eligible loads with a P99 TTFT below *limit_ms*; None without one.

    Never above the maximum: for a search that is the throughput at the highest sustained load, and a lower load that gave
    more by chance does not count under a limit either.
    """
    top = maximum(document)
    if top is None:
        return None
    met = [one for one in eligible(document).values() if 0 <= p99_ms(one, "ttft") < limit_ms]
    return max((tokens(one) for one in met if tokens(one) <= tokens(top)), default=None)


def eligible(document: ProcedureDocument) -> dict[float, LevelEntry]:
    """The representative run of each eligible load."""
    name = document.procedure
    if name not in SWEEPS or not has_answer(document):
        return {}
    highest, limits = answer(document), objectives(document)
    runs: dict[float, list[LevelEntry]] = {}
    failing: set[float] = set()
    for one in document.levels:
        load = known(one.load)
        if load is None or (name == "tradeoff" and one.loop == "closed"):  # its capacity measurement
            continue
        held = one.passes is True if name == "capacity" else sustained(one)
        if known(one.output_tok_s) is not None and held and meets(one, limits):
            runs.setdefault(load, []).append(one)
        elif one.saturated or one.passes is False:
            failing.add(load)
    chosen = {
        load: each for load, each in runs.items() if (load not in failing if highest is None else load <= highest)
    }
    return {load: representative(each, document, load == highest) for load, each in chosen.items()}


def sustained(one: LevelEntry) -> bool:
    """Whether the system sustained the load of a level, as recorded by the test."""
    criteria = one.criteria or Criteria()
    offered = criteria.generator_limited is not True or criteria.offered_in_full is True
    return one.passes is not False and one.saturated is False and one.steady is True and offered


def meets(one: LevelEntry, limits: Mapping[str, float]) -> bool:
    return all(0 <= p99_ms(one, name) <= limit for name, limit in limits.items())


def representative(runs: list[LevelEntry], document: ProcedureDocument, is_answer: bool) -> LevelEntry:
    """The run whose throughput is the answer of the test, else the one with the median."""
    ordered = sorted(runs, key=tokens)
    named = known(finding(document, ANSWERS.get(document.procedure, ("", ""))[1])) if is_answer else None
    return next((one for one in ordered if tokens(one) == named), ordered[(len(ordered) - 1) // 2])


def has_answer(document: ProcedureDocument) -> bool:
    """False where a search ended without a sustained load."""
    return document.procedure not in ANSWERS or document.status != DONE or answer(document) is not None


def answer(document: ProcedureDocument) -> float | None:
    """The load that a search found; None for a sweep and for a search that was stopped early."""
    return known(finding(document, ANSWERS.get(document.procedure, ("", ""))[0]))


def finding(document: ProcedureDocument, name: str) -> Any:
    """`findings.NAME`, None when the test has no such figure."""
    return getattr(document.findings, name, None)


def objectives(document: ProcedureDocument) -> dict[str, float]:
    """Limit of P99 in ms by metric: from the findings, or from the parameters of a test that was stopped early."""
    test = document.parameters.test or TestParameters()
    asked = {"ttft": test.slo_ttft_p99_ms, "tpot": test.slo_tpot_p99_ms}
    found = finding(document, "limits")
    limits = asked if document.status != DONE or found is None else found
    return {name: limit for name, value in limits.items() if (limit := known(value)) is not None}


def p99_ms(one: LevelEntry, metric: str) -> float:
    """P99 of `ttft` or `tpot`; -1 where there is none."""
    found = known(one.ttft_p99_ms if metric == "ttft" else one.tpot_p99_ms)
    return -1.0 if found is None else found


def tokens(one: LevelEntry) -> float:
    return known(one.output_tok_s) or 0.0
