"""For every MUST, MUST NOT and REQUIRED: the evidence that keeps it, and what breaks it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from case_builder import BEGAN, Cases

from fastllmload.records import layout

Break = Callable[[Cases], None]


def put(path: str, value: Any) -> Break:
    """run.json of every level: *value* at a dotted path; what lies before it is there."""

    def change(cases: Cases) -> None:
        for level in cases.levels:
            part = level.manifest
            *before, last = path.split(".")
            for step in before:
                part = part[step]
            part[last] = value

    return change


def drop(path: str) -> Break:
    """run.json of every level: nothing at a dotted path."""

    def change(cases: Cases) -> None:
        for level in cases.levels:
            part: Any = level.manifest
            *before, last = path.split(".")
            for step in before:
                part = part[step]
            del part[last]

    return change


def row(**fields: int) -> Break:
    """Fields of one measured request."""

    def change(cases: Cases) -> None:
        rows = cases.run.rows
        at = int(np.flatnonzero(rows["phase"] == layout.MEASURE)[5])
        for name, value in fields.items():
            rows[name][at] = value

    return change


def column(name: str, change: Callable[[Any], Any]) -> Break:
    """One column of all measured requests."""

    def do(cases: Cases) -> None:
        rows = cases.run.rows
        chosen = rows["phase"] == layout.MEASURE
        rows[name][chosen] = change(rows[name][chosen])

    return do


def undeclared(*keys: str) -> Break:
    def change(cases: Cases) -> None:
        for key in keys:
            cases.undeclare(key)

    return change


def asked(path: str, value: Any) -> Break:
    """procedure.json: *value* at a dotted path."""

    def change(cases: Cases) -> None:
        assert cases.procedure is not None
        part = cases.procedure
        *before, last = path.split(".")
        for step in before:
            part = part[step]
        part[last] = value

    return change


def all_of(*changes: Break) -> Break:
    def do(cases: Cases) -> None:
        for change in changes:
            change(cases)

    return do


def described(name: str, value: Any) -> Break:
    """The plan's description of the workload."""
    return put(f"plan.description.workload.{name}", value)


def coarse_clock(cases: Cases) -> None:
    """Stamps of 10 ms."""
    rows, events = cases.run.rows, cases.run.events
    for name in ("t_dispatch", "t_submit", "t_first", "t_last", "t_end"):
        rows[name] = rows[name] // 10_000_000 * 10_000_000
    events["t_ns"] = events["t_ns"] // 10_000_000 * 10_000_000


def one_event_less(cases: Cases) -> None:
    """An arrival was not recorded."""
    events = cases.run.events
    cases.run.events = np.delete(events, len(events) // 2)


def last_event_moved(cases: Cases) -> None:
    """The last event of the last request came later than its row says."""
    cases.run.events["t_ns"][-1] += 1_000


def first_event_moved(cases: Cases) -> None:
    """The first event of a request came later than its row says."""
    events = cases.run.events
    events["t_ns"][np.flatnonzero(np.diff(events["row"]))[0] + 1] += 1_000


def shifted(cases: Cases) -> None:
    """The schedule waited: each later request was due a little later than planned."""
    rows = cases.run.rows
    chosen = rows["phase"] == layout.MEASURE
    rows["t_sched"][chosen] += np.arange(int(chosen.sum())) * 1_000


def other_process(cases: Cases) -> None:
    """Instants are equally spaced, though the plan says Poisson; digest and rows agree with each other."""
    from fastllmload.plan.plan import array_hash

    run = cases.run
    spaced = np.arange(len(run.planned), dtype=np.int64) * 20_000_000
    rows = run.rows["phase"] == layout.MEASURE
    late = run.rows["t_dispatch"][rows] - run.rows["t_sched"][rows]
    run.rows["t_sched"][rows] = BEGAN + spaced
    run.rows["t_dispatch"][rows] = BEGAN + spaced + late
    run.planned["t_sched_ns"] = spaced
    run.plan["members"]["t_sched.npy"] = array_hash(np.ascontiguousarray(run.planned["t_sched_ns"]))


def shifted_plan(cases: Cases) -> None:
    """Instants that are not those of the process that is named; digest and plan agree with each other."""
    from fastllmload.plan.plan import array_hash

    run = cases.run
    run.planned["t_sched_ns"] += np.arange(len(run.planned)) * 1_000
    run.plan["members"]["t_sched.npy"] = array_hash(np.ascontiguousarray(run.planned["t_sched_ns"]))


def one_after_the_other(cases: Cases) -> None:
    """Nothing is sent before the last answer is over, though it is due."""
    rows = cases.run.rows
    at = np.flatnonzero(rows["phase"] == layout.MEASURE)
    end = 0
    for k in at:
        rows["t_dispatch"][k] = max(int(rows["t_dispatch"][k]), end)
        end = int(rows["t_dispatch"][k]) + 60_000_000
        rows["t_end"][k] = end


def too_many_in_flight(cases: Cases) -> None:
    """A fifth request in a closed loop of four."""
    rows = cases.run.rows
    at = int(np.flatnonzero(rows["phase"] == layout.MEASURE)[4])
    rows["t_sched"][at] = rows["t_dispatch"][at] = rows["t_dispatch"][at - 1]


def ttft_among_gaps(cases: Cases) -> None:
    """The pooled gaps have one that begins at the submission."""
    for level in cases.levels:
        level.manifest["metrics"]["itl"]["mean"] *= 1.05


def warm_up_in_flight(cases: Cases) -> None:
    """The last warm-up request ended after the first measured one."""
    rows = cases.run.rows
    rows["t_end"][int(np.flatnonzero(rows["phase"] == layout.WARMUP)[-1])] = BEGAN + 10**9


def warm_up_before_a_cold_start(cases: Cases) -> None:
    rows = cases.run.rows
    rows["phase"][0] = layout.WARMUP


def cold_start_not_marked(cases: Cases) -> None:
    """Only the procedure's manifest says so, not the run."""
    cases.procedure = {"procedure": "", "status": "done", "manifest": {"declarations": {"cold_start": "yes"}}}
    cases.undeclare("cold_start")
    cases.procedure["manifest"]["declarations"]["cold_start"] = "yes"


def other_seed(cases: Cases) -> None:
    """The second system got other requests."""
    plan = cases.others[0].run.manifest["plan"]
    plan["digest"], plan["description"]["seed"] = "of another seed", 43


def no_round_trip(cases: Cases) -> None:
    """Neither a request nor a check before the run made a connection whose time is known."""
    for level in cases.levels:
        level.manifest["target"]["connect_ms"] = []
        level.remeasured()


def other_boundary(cases: Cases) -> None:
    cases.others[0].declare(sut__boundary="application_gateway")


def other_hardware(cases: Cases) -> None:
    cases.others[0].declare(sut__hardware__count="16")


def other_load(cases: Cases) -> None:
    cases.others[0].run.manifest["plan"]["description"]["load"]["arrivals"]["rate"] = 60.0


def disabled_without_a_name(cases: Cases) -> None:
    """Safety is off, and it is not known what of it."""
    cases.declare(guardrails__configuration="disabled")
    cases.declare(guardrails__input_filter="unknown", guardrails__output_filter="unknown")


def short_answers(cases: Cases) -> None:
    """Requests that could not have 50 gaps were asked for."""
    for level in cases.levels:
        level.rows["output_target"][level.rows["phase"] == layout.MEASURE] = 50


NO_LOOP = put("plan.description.load.loop", None)


def brief(cases: Cases) -> None:
    """Levels of 30 s."""
    for level in cases.levels:
        level.manifest["phases"][0]["end_ns"] = BEGAN + 30 * 10**9


MODEL = undeclared("sut.model.version")
HARDWARE = undeclared("sut.hardware.memory_gib")
BOUNDARY = undeclared("sut.boundary")
OTHER_CONTENT = all_of(described("name", "custom"), put("config.workload.name", "custom"))

BREAKAGES: dict[str, tuple[str, Break]] = {
    "IETF-4.1-a": ("plain", BOUNDARY),
    "IETF-4.2-a": ("plain", row(status=layout.IN_FLIGHT)),
    "IETF-4.2.1-a": ("plain", coarse_clock),
    "IETF-4.2.2-a": ("plain", column("flags", lambda flags: flags & (0xFF ^ layout.FLAG_STREAM))),
    "IETF-4.2.2-b": ("plain", one_event_less),
    "IETF-4.2.3-a": ("plain", shifted),
    "IETF-4.2.3-b": ("plain", other_process),
    "IETF-4.2.4-a": ("closed", too_many_in_flight),
    "IETF-4.2.5-a": ("plain", column("t_dispatch", lambda t: t + 5_000_000)),
    "IETF-4.2.5-b": ("plain", one_after_the_other),
    "IETF-4.2.6-a": ("plain", row(t_submit=0)),
    "IETF-4.2.6-b": ("plain", first_event_moved),
    "IETF-4.2.6-c": ("plain", one_event_less),
    "IETF-4.2.6-d": ("plain", last_event_moved),
    "IETF-4.2.6-e": ("plain", row(prompt_tokens=-1, input_target=0)),
    "IETF-4.2.6-f": ("plain", put("counts.output_tokens_source", {"usage": 399, "none": 1})),
    "IETF-4.2.6-g": ("plain", row(status=layout.IN_FLIGHT)),
    "IETF-4.3-c": ("custom", undeclared("workload.domain")),
    "IETF-4.3.1-a": ("plain", described("isl", None)),
    "IETF-4.3.1-b": ("plain", described("isl", None)),
    "IETF-4.3.1-c": ("plain", described("tokenizer", None)),
    "IETF-4.3.1-d": ("plain", described("osl", None)),
    "IETF-4.3.1-e": ("plain", described("osl", None)),
    "IETF-4.3.1-f": ("plain", row(output_target=0)),
    "IETF-4.3.1-g": ("plain", described("tokenizer", None)),
    "IETF-4.3.1-h": ("custom", undeclared("workload.domain")),
    "IETF-4.3.1-i": ("custom", undeclared("workload.language")),
    "IETF-4.3.1-j": ("custom", undeclared("workload.system_prompt")),
    "IETF-4.3.1-k": ("custom", undeclared("workload.prefix_share")),
    "IETF-4.3.1-l": ("custom", undeclared("workload.prefix_length")),
    "IETF-4.3.2.1-f": ("engine", described("name", "synthetic-skewed")),
    "IETF-4.3.2.5-f": ("long_context", described("name", "synthetic-uniform")),
    "IETF-4.3.3-a": ("plain", row(input_target=7)),
    "IETF-4.3.3-b": ("plain", drop("plan.description.seed")),
    "IETF-4.3.3-d": ("dataset", undeclared("workload.dataset.version")),
    "IETF-4.3.3-e": ("dataset", undeclared("workload.dataset.subset")),
    "IETF-4.3.3-f": ("dataset", undeclared("workload.dataset.preprocessing")),
    "IETF-4.4.1-a": ("plain", undeclared("tokenizer.name")),
    "IETF-4.4.1-b": ("plain", undeclared("tokenizer.vocabulary")),
    "IETF-4.4.1-c": ("plain", undeclared("tokenizer.source")),
    "IETF-4.4.2-c": ("plain", put("counts.output_tokens_source", {"usage": 200, "estimate": 200})),
    "IETF-4.4.3-a": ("plain", undeclared("token_counting.bos_eos")),
    "IETF-4.4.3-b": ("custom", all_of(undeclared("token_counting.system_prompt"), described("special_tokens", None))),
    "IETF-4.4.3-c": ("plain", row(flags=layout.FLAG_STREAM | layout.FLAG_TOOL)),
    "IETF-4.5.1-a": ("ttft", all_of(put("target.probe_s", None), lambda cases: cases.run.rows["status"].__setitem__(
        cases.run.rows["phase"] == layout.WARMUP, layout.HTTP_ERROR))),
    "IETF-4.5.1-b": ("ttft", asked("warmup.tokens", 9_999)),
    "IETF-4.5.1-c": ("plain", warm_up_in_flight),
    "IETF-4.5.1-d": ("warm_cache", row(cached_tokens=0)),
    "IETF-4.5.3-a": ("cold", warm_up_before_a_cold_start),
    "IETF-4.5.3-b": ("cold", cold_start_not_marked),
    "IETF-4.6.2-a": ("plain", all_of(put("target.endpoint_type", "?"), put("plan.description.endpoint", "?"))),
    "IETF-4.6.2-b": ("plain", drop("metrics.share_single")),
    "IETF-4.6.2-c": ("plain", put("metrics.share_single.itl_option", None)),
    "IETF-4.6.3-f": ("plain", put("metrics.share_single.itl_option", None)),
    "IETF-4.7.2-a": ("distributed", lambda cases: cases.declare(clock__offset_ms="11") and None),
    "IETF-4.7.2-c": ("distributed", undeclared("clock.method")),
    "IETF-4.7.2-d": ("distributed", undeclared("clock.accuracy_ms")),
    "IETF-4.7.3-c": ("adjusted", put("metrics.ttft_net_adjusted.rtt_p50_ms", None)),
    "IETF-4.7.4-a": ("plain", coarse_clock),
    "IETF-4.8-a": ("plain", undeclared("guardrails.input_filter", "guardrails.output_filter")),
    "IETF-4.8.1-a": ("plain", undeclared("guardrails.input_filter")),
    "IETF-4.8.1-b": ("plain", undeclared("guardrails.output_filter")),
    "IETF-4.8.1-c": ("plain", undeclared("guardrails.names")),
    "IETF-4.8.1-d": ("plain", drop("metrics.refusals")),
    "IETF-4.8.2-b": ("gateway", disabled_without_a_name),
    "IETF-5.1.2-a": ("ttft", MODEL),
    "IETF-5.1.2.1-a": ("ttft", OTHER_CONTENT),
    "IETF-5.1.2.1-b": ("ttft", all_of(asked("parameters.test", {}), asked("findings", {}))),
    "IETF-5.1.2.1-c": ("ttft", put("metrics.ttft.n", 999)),
    "IETF-5.1.2.1-d": ("ttft", put("metrics.ttft.n", 9_999)),
    "IETF-5.1.2.2-a": ("ttft", NO_LOOP),
    "IETF-5.1.2.2-b": ("ttft", put("plan.description.load.arrivals.rate", None)),
    "IETF-5.1.2.2-c": ("ttft", put("plan.description.load.arrivals.name", "constant")),
    "IETF-5.1.2.2-e": ("ttft_closed", put("plan.description.load.concurrency", None)),
    "IETF-5.1.2.3-a": ("ttft", BOUNDARY),
    "IETF-5.1.2.3-b": ("ttft", MODEL),
    "IETF-5.1.2.3-c": ("ttft", HARDWARE),
    "IETF-5.1.2.3-d": ("ttft", undeclared("prefix_cache.enabled")),
    "IETF-5.1.3.1-e": ("reasoning", drop("metrics.ttft_any")),
    "IETF-5.1.3.1-f": ("reasoning", drop("metrics.ttft_any")),
    "IETF-5.1.4.1-a": ("ttft", put("metrics.ttft.p999", None)),
    "IETF-5.1.4.3-c": ("ttft", drop("metrics.ttft.n")),
    "IETF-5.1.5-a": ("ttft", drop("window")),
    "IETF-5.1.5.1-a": ("ttft", BOUNDARY),
    "IETF-5.1.5.1-b": ("ttft", HARDWARE),
    "IETF-5.1.5.1-c": ("ttft", OTHER_CONTENT),
    "IETF-5.1.5.1-d": ("ttft", NO_LOOP),
    "IETF-5.1.5.1-e": ("ttft", drop("window")),
    "IETF-5.1.5.1-f": ("ttft", asked("warmup", {"requests": 120, "tokens": 10_800})),
    "IETF-5.1.5.1-g": ("ttft", undeclared("prefix_cache.enabled")),
    "IETF-5.1.5.1-h": ("ttft", undeclared("guardrails.names")),
    "IETF-5.2.2-a": ("throughput", asked("parameters.test.step", None)),
    "IETF-5.2.2.1-a": ("throughput", OTHER_CONTENT),
    "IETF-5.2.2.1-b": ("throughput", brief),
    "IETF-5.2.2.2-a": ("throughput", NO_LOOP),
    "IETF-5.2.2.2-b": ("throughput", asked("parameters.test.maximum", 1.0)),
    "IETF-5.2.2.2-c": ("throughput", asked("parameters.test.step", 0)),
    "IETF-5.2.2.2-d": ("throughput_closed", asked("parameters.test.maximum", 1.0)),
    "IETF-5.2.2.2-e": ("throughput_closed", asked("parameters.test.step", 0)),
    "IETF-5.3.2-e": ("tradeoff", put("plan.description.load.loop", "closed")),
    "IETF-5.4.2-b": ("itl", short_answers),
    "IETF-5.4.3-h": ("itl", ttft_among_gaps),
    "IETF-5.6.2-a": ("fairness", described("name", "synthetic-uniform")),
    "IETF-5.7.2-e": ("prefix_cache", lambda cases: cases.levels.pop(0) and None),
    "IETF-5.9.2-a": ("long_context", described("name", "synthetic-uniform")),
    "IETF-6.1-a": ("compared", other_seed),
    "IETF-6.1-b": ("compared", other_boundary),
    "IETF-6.1-c": ("compared", other_hardware),
    "IETF-6.1-d": ("compared", other_load),
}  # fmt: skip


def uneven_probes(cases: Cases) -> None:
    assert cases.procedure is not None
    probes = [{"ttft_ms": 20.0 * (1 + k % 2), "e2e_ms": 200.0} for k in range(8)]
    cases.procedure["warmup"] = {**cases.procedure["warmup"], "probes": probes}


def table_gone(cases: Cases) -> None:
    assert cases.procedure is not None
    cases.procedure["tables"] = []


# For every SHOULD and RECOMMENDED: evidence that keeps it, what breaks it, and what makes the evidence keep it first.
SHOULDS: dict[str, tuple[str, Break]] = {
    "IETF-Abstract-a": ("ttft", undeclared("terminology")),
    "IETF-1-a": ("ttft", undeclared("terminology")),
    "IETF-4.2.1-b": ("plain", coarse_clock),
    "IETF-4.2.3-c": ("spaced", shifted_plan),
    "IETF-4.2.3-d": ("bursts", shifted_plan),
    "IETF-4.3.2.3-f": ("gateway", described("name", "synthetic-skewed")),
    "IETF-4.3.3-c": ("plain", drop("plan.digest")),
    "IETF-4.4.2-d": ("compared_by_reference", put("counts.output_tokens_source", {"usage": 400})),
    "IETF-4.5.2-a": ("ttft", asked("warmup.probe_before", None)),
    "IETF-4.5.2-b": ("ttft", uneven_probes),
    "IETF-4.6.1-b": ("gateway", put("target.endpoint_type", "ollama-chat")),
    "IETF-4.6.3-g": ("stamped", put("metrics.share_single.itl_option", "A")),
    "IETF-4.7.1-b": ("engine", all_of(undeclared("topology"), put("target.addresses", ["192.0.2.7"]))),
    "IETF-4.7.2-b": ("precise", lambda cases: cases.declare(clock__method="ntp") and None),
    "IETF-4.7.3-a": ("gateway", no_round_trip),
    "IETF-4.7.4-b": ("plain", lambda cases: cases.run.manifest["phases"][0].__setitem__("start_utc", "3 pm")),
    "IETF-4.8.2-a": ("gateway", lambda cases: cases.declare(guardrails__configuration="changed") and None),
    "IETF-4.8.2-c": ("gateway", undeclared("guardrails.overhead_result")),
    "IETF-5.1.4.2-b": ("ttft", table_gone),
    "IETF-5.1.5.2-a": ("ttft", table_gone),
    "IETF-5.1.5.4-a": ("ttft", asked("plots", [])),
    "IETF-5.2.2.1-c": ("throughput", brief),
    "IETF-5.4.2-a": ("itl", described("name", "synthetic-skewed")),
    "IETF-5.4.2-e": ("itl", lambda cases: cases.levels.pop() and None),
    "IETF-5.5.2-a": ("capacity", described("name", "synthetic-skewed")),
    "IETF-5.6.2-f": ("fairness", asked("findings", {"capacity": {"req_s": 2.0}})),
    "IETF-5.7.2-a": ("prefix_cache", described("name", "synthetic-uniform")),
    "IETF-5.8.2-a": ("memory_pressure", described("name", "synthetic-uniform")),
    "IETF-5.10.2-a": ("guardrail", described("name", "synthetic-uniform")),
    "IETF-7.1-d": ("ttft", lambda cases: cases.declare(publication__reviewed="no") and None),
    "IETF-7.2-d": ("ttft", undeclared("workload.varied")),
    "IETF-7.4-a": ("memory_pressure", undeclared("sut.isolated")),
    "IETF-7.4-b": ("memory_pressure", undeclared("sut.recovery")),
    "IETF-7.4-c": ("memory_pressure", put("config.load.stop_on_failures", None)),
}  # fmt: skip
NEVER = {"IETF-4.6.1-e"}  # gRPC, which this tool does not speak: always broken for an engine
