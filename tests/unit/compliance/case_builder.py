"""Evidence made of rows and documents that follow every rule, to be broken one rule at a time.

Everything is drawn from a fixed seed; times are CLOCK_MONOTONIC-like ns. A `Case` is a run (or several, as levels of a
procedure); its parts may be changed before `evidence` is asked for.
"""

from __future__ import annotations

import copy
import functools
import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from typed_documents import typed

from fastllmload.arrivals.choice import choose_arrivals
from fastllmload.arrivals.process import draw_schedule
from fastllmload.compliance.evidence import ComplianceEvidence, MeasuredRun
from fastllmload.declarations import simulated_declarations
from fastllmload.documents.experiment import LevelEntry
from fastllmload.documents.procedure import ProcedureDocument, experiment_document
from fastllmload.documents.read import convert
from fastllmload.metrics.public import measure
from fastllmload.plan.plan import RECORD, array_hash
from fastllmload.records import layout
from fastllmload.records.run import Run

BEGAN = 5_000_000_000_000
MS = 1_000_000
STEP_NS = 9_000_123  # between two tokens
FIRST_NS = 20_000_457  # from submission to the first token
KIND = {name: number for number, name in enumerate(layout.EVENT_NAMES)}
DECLARED = {
    **{key: value for key, value in simulated_declarations().items() if key != "sut.boundary"},
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
        return Run(folder, typed(self.manifest), self.rows, self.events, first)

    def remeasured(self) -> Case:
        """With the figures that its rows have now."""
        first = np.zeros(len(self.rows) + 1, np.int64)
        np.cumsum(np.bincount(self.events["row"], minlength=len(self.rows)), out=first[1:])
        self.manifest = measure(Run(Path("."), typed(self.manifest), self.rows, self.events, first))
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

    def evidence(self, folder: Path) -> ComplianceEvidence:
        measured = tuple(
            MeasuredRun(
                level.run(folder / str(k)), level.name, convert(level.entry, LevelEntry) if level.entry else None
            )
            for k, level in enumerate(self.levels)
        )
        others = tuple(other.evidence(folder / f"other{k}") for k, other in enumerate(self.others))
        procedure = None if self.procedure is None else experiment_document(self.procedure, ProcedureDocument)
        return ComplianceEvidence(folder, measured, procedure, others=others)

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
                     "max_concurrency": None, "max_prefill": None, "stop_on_failures": 0.5, "timeout": 600.0},
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
