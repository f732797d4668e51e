"""What is judged in tests: plain runs and procedures that comply, one for each kind of requirement."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
from case_builder import BEGAN, DECLARED, Case, Cases, events_of, made

from fastllmload.arrivals.choice import choose_arrivals
from fastllmload.arrivals.process import draw_schedule
from fastllmload.plan.plan import array_hash
from fastllmload.records import layout


def plain(count: int = 400, workload: str = "synthetic-uniform") -> Cases:
    """An open loop."""
    return Cases([made(count, 50.0, None, 3, workload, None).copy()])


def closed() -> Cases:
    """A closed loop of 4."""
    return Cases([made(200, None, 4, 3, "synthetic-uniform", None).copy()])


def procedure(name: str, levels: list[Case], **more: Any) -> Cases:
    """A test that came to its end."""
    document: dict[str, Any] = {
        "schema_version": 1, "procedure": name, "status": "done", "quick": False,
        "manifest": {"declarations": dict(DECLARED)},
        "parameters": {"test": {}, "quick": False},
        "warmup": {"requests": 120, "tokens": 10_800, "rounds": 1, "verified": True,
                   "probe_before": {"ttft_ms": 30.0, "e2e_ms": 300.0},
                   "probes": [{"ttft_ms": 20.0, "e2e_ms": 200.0}] * 5},
        "steps": [], "levels": [], "findings": {}, "tables": [], "plots": [], "sentences": [], "deviations": [],
        "warnings": [],
    }  # fmt: skip
    document |= more
    for number, level in enumerate(levels):
        level.rows = level.rows.copy()
        level.entry = {"number": number, "name": level.name, "state": [], "criteria": {}, **(level.entry or {})}
    return Cases(levels, document)


def level(name: str, base: Case, **entry: Any) -> Case:
    found = base.copy()
    found.name, found.entry = name, dict(entry)
    return found


def ttft(count: int = 10_000) -> Cases:
    """IETF 5.1 in an open loop."""
    rows = [["Requests", count], *([f"TTFT {name} (ms)", 1.0] for name in
            ("P50", "P90", "P95", "P99", "P99.9", "Mean", "Min", "Max"))]  # fmt: skip
    tables = [
        {"id": "ttft-results", "title": "TTFT Results", "columns": ["Metric", "Value"], "rows": rows},
        {"id": "ttft-by-length", "title": "TTFT by Input Length",
         "columns": ["Input Tokens", "P50 (ms)", "P95 (ms)", "P99 (ms)", "n"],
         "rows": [["0-255", 1, 1, 1, 9], ["256-511", 1, 1, 1, 9]]},
    ]  # fmt: skip
    plots = [{"id": "ttft-cdf", "title": "TTFT", "kind": "cdf", "series": [{}]}]
    return procedure(
        "ttft", [level("ttft", made(count, 500.0, None, 3, "synthetic-uniform", None), load=500.0)],
        parameters={"test": {"request_count": count}}, tables=tables, plots=plots, findings={"requests": count},
    )  # fmt: skip


def ttft_closed() -> Cases:
    found = ttft()
    found.levels = [level("ttft", made(10_000, None, 8, 3, "synthetic-uniform", None), load=8.0)]
    return found


def throughput(loop: str = "open") -> Cases:
    """IETF 5.2 with two levels of 300 s."""
    rate, slots = (2.0, None) if loop == "open" else (None, 2)
    base = made(600, rate, slots, 3, "synthetic-uniform", 300.0)
    return procedure(
        "throughput", [level("2 per second", base, load=2.0, steady=True), level("1 per second", base, load=1.0)],
        parameters={"test": {"loop": loop, "minimum": 1.0, "maximum": 8.0, "step": 1.0, "duration_s": 300.0}},
        findings={"bracket": [2.0, 3.0], "limits": {}, "sustainable_load": 2.0},
    )  # fmt: skip


def tradeoff() -> Cases:
    """IETF 5.3 with one level of what would be twelve; its other statements have no key word."""
    base = made(600, 2.0, None, 3, "synthetic-uniform", 300.0)
    return procedure("tradeoff", [level("2 per second", base, load=2.0, saturated=True)])


def itl() -> Cases:
    """IETF 5.4: answers of 60 tokens, at the four shares of the capacity."""
    base = made(100, 2.0, None, 60, "synthetic-uniform", None)
    shares = (0.25, 0.5, 0.75, 0.9)
    return procedure(
        "itl", [level(f"{share:g} per second", base, load=share) for share in shares],
        findings={"capacity": {"req_s": 1.0}, "levels": [{"short": 0}]},
    )  # fmt: skip


def fairness() -> Cases:
    base = made(200, 2.0, None, 3, "fairness", 300.0)
    return procedure(
        "fairness", [level("mixed, 0.8 per second", base, load=0.8)], findings={"capacity": {"req_s": 1.0}}
    )


def prefix_cache() -> Cases:
    base = made(200, 2.0, None, 3, "code-completion", None)
    states = (("cache off", "cache=cache-off"), ("cache cold", "cache=cache-on"), ("cache warm", "cache=cache-on"))
    return procedure("prefix-cache", [level(name, base, load=2.0, state=[state]) for name, state in states])


def long_context() -> Cases:
    base = made(30, None, 1, 3, "long-context", None)
    return procedure("long-context", [level("1024 tokens", base, load=1.0)])


def capacity() -> Cases:
    base = made(400, None, 4, 3, "synthetic-uniform", None)
    return procedure("capacity", [level("4 slots", base, load=4.0, passes=True)])


def memory_pressure() -> Cases:
    base = made(200, None, 4, 3, "long-context", None)
    return procedure("memory-pressure", [level("100% of the capacity", base, load=4.0, share_of_capacity=1.0)])


def guardrail() -> Cases:
    base = made(200, 2.0, None, 3, "conversation", None)
    return procedure(
        "guardrail", [level("baseline, 2 per second", base, load=2.0, state=["guardrail=guardrail-baseline"])]
    )


def spaced() -> Cases:
    """An open loop of equal distances."""
    return other_arrivals("constant", None)


def bursts() -> Cases:
    """An open loop of gamma gaps."""
    return other_arrivals("gamma", 0.25)


def other_arrivals(name: str, shape: float | None) -> Cases:
    found = plain()
    run = found.run
    instants = draw_schedule(choose_arrivals(name, 50.0, shape or 1.0), 50.0, random.Random("42/arrivals"), count=400)
    moved = BEGAN + instants - run.rows["t_sched"][run.rows["phase"] == layout.MEASURE]
    chosen = run.rows["phase"] == layout.MEASURE
    for column in ("t_sched", "t_dispatch", "t_submit_start", "t_submit", "t_headers", "t_any", "t_first", "t_last",
                   "t_end", "t_end_user"):  # fmt: skip
        run.rows[column][chosen] += moved
    run.events = events_of(run.rows, 3)
    run.planned["t_sched_ns"] = instants
    run.plan["members"]["t_sched.npy"] = array_hash(np.ascontiguousarray(run.planned["t_sched_ns"]))
    arrivals = {"name": name, "rate": 50.0, "stream": "42/arrivals"} | ({} if shape is None else {"burstiness": shape})
    run.manifest["plan"]["description"]["load"]["arrivals"] = arrivals
    return found


def precise() -> Cases:
    """Two clocks that must agree to less than a millisecond, kept together by PTP."""
    found = distributed()
    return found.declare(clock__method="ptp", clock__required_accuracy_ms="0.1", clock__offset_ms="0.0001")


def compared() -> Cases:
    """Two systems, measured alike."""
    found = plain()
    found.others = [plain()]
    return found


def gateway() -> Cases:
    """An API with its filters off; the client is far away."""
    return plain(workload="conversation").declare(
        sut__boundary="application_gateway", guardrails__input_filter="disabled",
        guardrails__output_filter="disabled", guardrails__configuration="default", guardrails__overhead_result="runs/g",
    )  # fmt: skip


def engine() -> Cases:
    """An inference engine by itself."""
    return plain().declare(sut__boundary="model_engine")


def distributed() -> Cases:
    """Server time stamps are part of the figures, and the clocks are kept together."""
    found = plain().declare(
        topology="distributed", clock__server_stamps="yes", clock__method="chrony, time.example.org",
        clock__accuracy_ms="0.4", clock__offset_ms="0.2",
    )  # fmt: skip
    found.run.manifest["target"]["addresses"] = ["192.0.2.7"]
    return found


def adjusted() -> Cases:
    """TTFT less a round trip, in addition to TTFT."""
    found = plain()
    found.run.manifest["metrics"]["ttft_net_adjusted"] = {"n": 400, "rtt_p50_ms": 0.1}
    return found


def warm_cache() -> Cases:
    """A filled prefix cache is what is measured."""
    found = plain().declare(prefix_cache__enabled="yes", prefix_cache__state="warm")
    described = found.run.manifest["plan"]["description"]["workload"]
    described |= {"prefix_len": 200, "num_prefixes": 4, "prefix_share": 1.0}
    measured = found.run.rows["phase"] == layout.MEASURE
    found.run.rows["cached_tokens"][measured] = 192  # whole blocks
    found.run.planned["prefix_tokens"] = 200
    return found


def cold() -> Cases:
    """The first requests after a start: no warm-up, and marked so."""
    found = plain().declare(cold_start="yes")
    run = found.run
    run.events["row"] -= np.count_nonzero(run.rows["phase"] == layout.WARMUP).astype(np.uint32)
    run.rows = run.rows[run.rows["phase"] == layout.MEASURE]
    return found


def of_dataset(name: str) -> Cases:
    """A workload from a file."""
    found = plain(workload=name).declare(
        workload__domain="conversation", workload__language="English", workload__system_prompt="none",
        workload__prefix_share="0", workload__prefix_length="none", workload__dataset__version="2023-04-12",
        workload__dataset__subset="all", workload__dataset__preprocessing="none",
    )  # fmt: skip
    described = found.run.manifest["plan"]["description"]["workload"]
    described["dataset"] = {"sha256": "0"}
    return found


def dataset() -> Cases:
    return of_dataset("sharegpt")


def custom() -> Cases:
    return of_dataset("custom")


def reasoning() -> Cases:
    """IETF 5.1 with a model that thinks before it answers."""
    found = ttft()
    found.run.rows["reasoning_events"][found.run.rows["phase"] == layout.MEASURE] = 1
    return found


SCENES: dict[str, Callable[[], Cases]] = {
    scene.__name__: scene
    for scene in (
        plain, closed, ttft, ttft_closed, throughput, tradeoff, itl, fairness, prefix_cache, long_context, compared,
        gateway, engine, distributed, adjusted, warm_cache, cold, dataset, custom, reasoning, capacity,
        memory_pressure, guardrail, spaced, bursts, precise,
    )
}  # fmt: skip


def compared_by_reference() -> Cases:
    """Both counted by one tokenizer, as is recommended for comparisons."""
    found = compared()
    for each in (found, *found.others):
        each.run.manifest["counts"]["output_tokens_source"] = {"usage": 0, "tokenizer": 400, "estimate": 0, "none": 0}
    return found


def stamped() -> Cases:
    """The server's own time stamps of tokens are there, and used."""
    found = distributed()
    found.run.manifest["metrics"]["share_single"] |= {"itl_option": "C", "value": 0.5}
    return found


SCENES |= {"compared_by_reference": compared_by_reference, "stamped": stamped}
SCENES["throughput_closed"] = lambda: throughput("closed")
