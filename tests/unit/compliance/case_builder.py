"""Evidence made of rows and documents that follow every rule, to be broken one rule at a time.

Everything is drawn from a fixed seed; times are CLOCK_MONOTONIC-like ns. A `Case` is a run (or several, as levels of a
procedure); its parts may be changed before `evidence` is asked for.
"""

from __future__ import annotations

import copy
import functools
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fastllmload.arrivals.choice import choose_arrivals
from fastllmload.arrivals.schedule import draw_schedule
from fastllmload.compliance import of_simulated_engine
from fastllmload.compliance.evidence import Evidence, Measured
from fastllmload.metrics.core import measure
from fastllmload.plan.digest import array_hash
from fastllmload.plan.plan import RECORD
from fastllmload.records import layout
from fastllmload.records.run import Run

BEGAN = 5_000_000_000_000
MS = 1_000_000
STEP_NS = 9_000_123  # between two tokens
FIRST_NS = 20_000_457  # from submission to the first token
KIND = {name: number for number, name in enumerate(layout.EVENT_NAMES)}
DECLARED = {
    **{key: value for key, value in of_simulated_engine().items() if key != "sut.boundary"},
    "sut.boundary": "compound_system",
    "terminology": "companion terminology draft",
    "publication.reviewed": "yes",
    "workload.varied": "a day of production traffic",
}


@dataclass
class Case:
    """One run. *rows*, *events*: as in a run folder; *manifest*: run.json; *plan*: plan.json; *planned*: its record."""

    rows: Any
    events: Any
    manifest: dict[str, Any]
    plan: dict[str, Any]
    planned: Any
    name: str = "run"
    entry: dict[str, Any] | None = None

    def copy(self) -> Case:
        return Case(
            self.rows.copy(), self.events.copy(), copy.deepcopy(self.manifest), copy.deepcopy(self.plan),
            None if self.planned is None else self.planned.copy(), self.name, copy.deepcopy(self.entry),
        )  # fmt: skip

    def run(self, folder: Path) -> Run:
        """With its plan written to *folder*."""
        (folder / "plan").mkdir(parents=True, exist_ok=True)
        (folder / "plan" / "plan.json").write_text(json.dumps(self.plan))
        if self.planned is not None:
            np.save(folder / "plan" / "schedule.npy", self.planned)
        first = np.zeros(len(self.rows) + 1, np.int64)
        np.cumsum(np.bincount(self.events["row"], minlength=len(self.rows)), out=first[1:])
        return Run(folder, self.manifest, self.rows, self.events, first)

    def remeasured(self) -> Case:
        """With the figures that its rows have now."""
        first = np.zeros(len(self.rows) + 1, np.int64)
        np.cumsum(np.bincount(self.events["row"], minlength=len(self.rows)), out=first[1:])
        self.manifest |= measure(Run(Path("."), self.manifest, self.rows, self.events, first))
        return self


@dataclass
class Cases:
    """The runs of a plain run or procedure, and what it is compared with."""

    levels: list[Case]
    procedure: dict[str, Any] | None = None
    others: list[Cases] = field(default_factory=list)

    @property
    def run(self) -> Case:
        return self.levels[0]

    def copy(self) -> Cases:
        return Cases(
            [level.copy() for level in self.levels], copy.deepcopy(self.procedure), [o.copy() for o in self.others]
        )

    def evidence(self, folder: Path) -> Evidence:
        measured = tuple(
            Measured(level.run(folder / str(k)), level.name, level.entry) for k, level in enumerate(self.levels)
        )
        others = tuple(other.evidence(folder / f"other{k}") for k, other in enumerate(self.others))
        return Evidence(folder, measured, self.procedure, others=others)

    def undeclare(self, key: str) -> None:
        """Forget a declaration everywhere."""
        for level in self.levels:
            level.manifest["declarations"].pop(key, None)
        if self.procedure is not None:
            self.procedure["manifest"]["declarations"].pop(key, None)

    def declare(self, **words: str) -> Cases:
        """Declare by keys with `__` for dots."""
        for key, value in words.items():
            for level in self.levels:
                level.manifest["declarations"][key.replace("__", ".")] = value
            if self.procedure is not None:
                self.procedure["manifest"]["declarations"][key.replace("__", ".")] = value
        return self


def seconds(count: int, rate: float) -> float:
    return count / rate


@functools.cache
def schedule(count: int, rate: float) -> Any:
    return draw_schedule(choose_arrivals("poisson", rate), rate, random.Random("42/arrivals"), count=count)


def lengths(count: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(42)
    return rng.integers(128, 513, count).astype(np.int32), rng.integers(64, 257, count).astype(np.int32)


def slots_in_turn(count: int, slots: int, took_ns: int) -> tuple[Any, Any]:
    """Intended and actual instants of a closed loop: each slot sends again 20 us after its last answer."""
    turn = np.arange(count) // slots
    free = BEGAN + turn * (took_ns + 20_000)
    return free, free + 10_000


@functools.cache
def made(count: int, rate: float | None, slots: int | None, tokens: int, workload: str, length_s: float | None) -> Case:
    """A run of *count* requests with *tokens* each: open loop at *rate*, or closed loop of *slots*."""
    took = FIRST_NS + (tokens - 1) * STEP_NS + MS + 20_011
    inputs, outputs = lengths(count)
    if rate is not None:
        instants = schedule(count, rate)
        t_sched = BEGAN + instants
        t_dispatch = t_sched + 7_001
    else:
        instants = np.full(count, -1, np.int64)
        t_sched, t_dispatch = slots_in_turn(count, slots or 1, took)
    rows = np.zeros(count, layout.REQUEST)
    fill(rows, t_sched, t_dispatch, tokens)
    rows["request"] = rows["session"] = np.arange(count)
    rows["input_target"], rows["output_target"] = inputs, outputs
    rows["prompt_tokens"] = inputs + 4
    rows["phase"] = layout.MEASURE
    warm = warm_rows(BEGAN - 60_000 * MS)
    whole = np.concatenate([warm, rows])
    planned = np.zeros(count, RECORD)
    planned["t_sched_ns"], planned["input_tokens"], planned["output_tokens"] = instants, inputs, outputs
    plan = plan_of(planned, rate, slots, workload)
    manifest = manifest_of(plan, count, rate, slots, workload, length_s, int(t_dispatch[-1]))
    return Case(whole, events_of(whole, tokens), manifest, plan, planned).remeasured()


def fill(rows: Any, t_sched: Any, t_dispatch: Any, tokens: int) -> None:
    """All times and counts of successful rows."""
    jitter = np.random.default_rng(7).integers(0, 997, len(rows))
    rows["t_sched"], rows["t_dispatch"] = t_sched, t_dispatch
    rows["t_submit_start"] = t_dispatch + 4_000
    rows["t_submit"] = t_dispatch + 9_000 + jitter
    rows["t_first"] = rows["t_any"] = rows["t_submit"] + FIRST_NS
    rows["t_headers"] = rows["t_first"] - 5_000
    rows["t_last"] = rows["t_first"] + (tokens - 1) * STEP_NS
    rows["t_end"] = rows["t_end_user"] = rows["t_last"] + MS
    rows["status"], rows["finish"] = layout.OK, layout.FINISH_NAMES.index("length")
    rows["http_status"] = 200
    rows["flags"] = layout.FLAG_STREAM | layout.FLAG_DONE | layout.FLAG_USAGE
    rows["completion_tokens"] = rows["content_events"] = rows["events"] = tokens
    rows["reasoning_tokens"] = rows["cached_tokens"] = -1


def warm_rows(began: int) -> Any:
    """120 requests of 90 tokens, one after the other, without their events."""
    rows = np.zeros(120, layout.REQUEST)
    t = began + np.arange(120, dtype=np.int64) * 100 * MS
    fill(rows, t, t + 1_000, 2)
    rows["content_events"] = rows["events"] = 0
    rows["completion_tokens"] = 90
    rows["phase"], rows["request"] = layout.WARMUP, np.arange(120)
    rows["input_target"] = rows["output_target"] = 90
    return rows


def events_of(rows: Any, tokens: int) -> Any:
    """One content event per token of every row that has content."""
    numbers = np.flatnonzero(rows["content_events"] > 0)
    events = np.zeros(len(numbers) * tokens, layout.EVENT)
    events["row"] = np.repeat(numbers, tokens)
    events["t_ns"] = np.repeat(rows["t_first"][numbers], tokens) + np.tile(np.arange(tokens) * STEP_NS, len(numbers))
    events["kind"], events["stamp"] = KIND["content"], 1
    return events


def plan_of(planned: Any, rate: float | None, slots: int | None, workload: str) -> dict[str, Any]:
    """plan.json."""
    arrivals = {"name": "poisson", "rate": rate, "stream": "42/arrivals"} if rate is not None else None
    members = {"input_tokens.npy": array_hash(np.ascontiguousarray(planned["input_tokens"])),
               "output_tokens.npy": array_hash(np.ascontiguousarray(planned["output_tokens"])),
               "t_sched.npy": array_hash(np.ascontiguousarray(planned["t_sched_ns"]))}  # fmt: skip
    described = {
        "phase": "measure", "seed": 42, "endpoint": "openai-chat", "model": "m", "streaming": True,
        "requests": len(planned),
        "load": {"loop": "open" if slots is None else "closed", "arrivals": arrivals, "concurrency": slots},
        "workload": {
            "name": workload, "isl": "uniform:128,512", "osl": "uniform:64,256", "tokenizer": "cl100k_base",
            "tokenizer_facts": {"name": "cl100k_base", "version": "1", "vocabulary": 100277, "source": "quicktok"},
            "special_tokens": "system prompts are counted with the prompt", "prompt": "text", "prefix_len": 0,
            "num_prefixes": 1,
        },
    }  # fmt: skip
    return {"description": described, "members": members, "digest": "d1"}


def manifest_of(
    plan: dict[str, Any], count: int, rate: float | None, slots: int | None, workload: str, length_s: float | None,
    last_ns: int,
) -> dict[str, Any]:  # fmt: skip
    """run.json before it is measured."""
    end = last_ns + 1 if length_s is None else BEGAN + round(length_s * 1e9)
    bound = "count" if length_s is None else "duration"
    phase = {"name": "measure", "number": 1, "start_ns": BEGAN, "end_ns": end, "bound": bound, "ramp_share": 0.1,
             "start_utc": "2026-01-02T03:04:05.678Z"}  # fmt: skip
    return {
        "schema_version": 1, "status": "done", "tool": {"name": "fastllmload", "version": "0"},
        "config": {
            "load": {"rate": rate, "concurrency": slots, "duration": length_s, "num_requests": count,
                     "max_concurrency": None, "stop_on_failures": 0.5, "timeout": 600.0},
            "output": {"goodput": [], "itl_option": "auto", "gpus": None},
            "workload": {"name": workload, "temperature": 0.0, "extra_body": None, "ignore_eos": True,
                         "streaming": True},
            "target": {"unix_socket": None, "endpoint_type": "openai-chat"},
        },
        "environment": {"time_utc": "2026-01-02T03:04:05Z"},
        "declarations": dict(DECLARED), "metadata": {}, "phases": [phase],
        "plan": {"digest": "d1", "model": "m", "requests": count, "description": copy.deepcopy(plan["description"]),
                 "warmup": {"description": {"workload": {"prefix_len": 0}}}},
        "target": {"urls": ["http://127.0.0.1:1"], "addresses": ["127.0.0.1"], "endpoint_type": "openai-chat",
                   "simulated": False, "probe_s": 0.1, "connect_ms": [0.05]},
        "certificate": {"verdict": "valid", "generator_limited": False, "coalesced_read_share": 0.0,
                        "first_fill_us": 20.0, "socket_to_user_us": {"p99": 100.0}},
        "server": {"preemptions": {"value": 0.0}},
    }  # fmt: skip


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
    """TTFT less a round trip beside TTFT."""
    found = plain()
    found.run.manifest["metrics"]["ttft_net_adjusted"] = {"n": 400, "rtt_p50_ms": 0.1}
    return found


def warm_cache() -> Cases:
    """A filled prefix cache is what is measured."""
    found = plain().declare(prefix_cache__enabled="yes", prefix_cache__state="warm")
    described = found.run.manifest["plan"]["description"]["workload"]
    described |= {"prefix_len": 200, "num_prefixes": 4, "prefix_share": 1.0}
    found.run.manifest["plan"]["warmup"]["description"]["workload"]["prefix_len"] = 200
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
