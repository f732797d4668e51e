"""Computes all numbers of a run in run.json: metrics, counts, errors, objectives, and vLLM's flat keys.

A pure function of rows and stamps, for new runs and old folders alike. Each block is a function of its inputs that returns
some of the names in `metrics`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from msgspec.structs import replace

from fastllmload.documents.fields import Number, known, without
from fastllmload.documents.metric import Metric
from fastllmload.documents.run import RunDocument, WindowTimes
from fastllmload.documents.run_parts.counts import Counts
from fastllmload.documents.run_parts.objectives import Objectives
from fastllmload.metrics.distribution.shape import shape_metrics
from fastllmload.metrics.levels.fairness import fairness_block
from fastllmload.metrics.levels.prefix_cache import cache_metrics
from fastllmload.metrics.objectives.benefit import benefit_metrics, received, smooth_by_preset
from fastllmload.metrics.objectives.report import judged_of, meeting_all, objectives, titled_metrics, with_bounds
from fastllmload.metrics.request.latencies import latency_metrics
from fastllmload.metrics.request.network import network_metrics
from fastllmload.metrics.request.server_side import server_side_metrics
from fastllmload.metrics.run import success
from fastllmload.metrics.run.bounds import bounded, bounds_of, unfinished_in_window, with_unfinished
from fastllmload.metrics.run.cold_start import cold_start_metrics
from fastllmload.metrics.run.conversations import conversations_block
from fastllmload.metrics.run.cost import cost_metrics
from fastllmload.metrics.run.in_flight import in_flight_metrics
from fastllmload.metrics.run.parts import PartFigures
from fastllmload.metrics.run.per_backend import backends_block
from fastllmload.metrics.run.per_class import classes_block
from fastllmload.metrics.run.per_model import models_block, with_models
from fastllmload.metrics.run.reasoning import reasoning_metrics
from fastllmload.metrics.run.sessions import sessions_block
from fastllmload.metrics.run.slots import slots_block
from fastllmload.metrics.run.steadiness import steadiness
from fastllmload.metrics.run.success import by_target, consistency_metrics, counts_of
from fastllmload.metrics.run.throughput import throughput_metrics, time_base
from fastllmload.metrics.run.window import Populations, Window, populations, users_block, window_of
from fastllmload.metrics.tokens.counts import TokenCounts, answers_tokens, classes_with_tokens, count_tokens, spoken
from fastllmload.metrics.tokens.fluidity import Fluidity, deadline_metrics, fluidity_metrics, fluidity_of
from fastllmload.metrics.tokens.idle import idle_metrics
from fastllmload.metrics.tokens.itl import empty_chunks, gap_metrics, pooled
from fastllmload.metrics.tokens.times import TokenTimes, count_chunks, token_times
from fastllmload.records.integrity import EVENTS, ROWS, TEXT
from fastllmload.records.run import Run

T = TypeVar("T")
VLLM = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2el": "e2e"}  # vLLM's name: name here
REASONING = {"ttft_any": "ttft_any", "tpot_any": "tpot_any"}  # for runs with reasoning
FLAT = {"mean": "mean", "median": "p50", "std": "std", "p90": "p90", "p95": "p95", "p99": "p99", "p999": "p999"}
# Computed from the stamps in rows only; all others need events or the text of answers.
OF_ROWS = frozenset(
    (
        *("ttft", "ttft_sched", "ttft_any", "ttft_any_sched", "ttft_dispatch", "ttfb", "ttfb_sched", "dispatch_lag"),
        *("send_time", "e2e", "e2e_sched", "e2e_dispatch", "total_duration", "total_duration_sched", "gen_duration"),
        *("final_silence", "req_s", "req_s_makespan", "success_rate", "completion_rate", "fail_rate", "errors"),
        *(
            "refusals",
            "rtt_ms",
            "handshake_ms",
            "streams_per_connection",
            "ttft_net_adjusted",
            "cold_start_latency",
            "server_total_duration",
        ),
        *("session_makespan", "session_stretch", "session_model_time", "session_tool_time", "sessions_s"),
        *("server_load_duration", "server_prompt_eval_duration", "server_eval_duration", "server_ttft"),
    )
)
# Of requests, whatever their answers are: metrics and flat keys. All others are of requests whose answers are tokens.
OF_REQUESTS = frozenset(
    (
        *("ttfb", "ttfb_sched", "dispatch_lag", "send_time", "e2e", "e2e_sched", "e2e_dispatch", "total_duration"),
        *("total_duration_sched", "req_s", "req_s_makespan", "success_rate", "completion_rate", "fail_rate", "errors"),
        *("refusals", "rtt_ms", "duration", "completed", "failed", "request_throughput", "request_goodput"),
        *(f"{field}_e2el_ms" for field in FLAT),
    )
)
BLOCKS = (
    "window",
    "errors",
    "by_target",
    "slo",
    "fairness",
    "classes",
    "classes_with_tokens",
    "slots",
    "models",
    "backends",
    "conversations",
    "sessions",
    "users",
    "steadiness",
)
OF_EVENTS = ("slo", "fairness", "classes", "models", "backends", "steadiness")
COUNTS_OF_EVENTS = (
    "events", "output_tokens", "output_tokens_source", "reasoning_tokens", "answer_tokens", "reasoning_tokens_source",
)  # fmt: skip
COUNTS_OF_TOKENS = (*COUNTS_OF_EVENTS[1:], "input_tokens", "came_whole", "reasoned", "all_reasoning")
FLAT_KEYS = RunDocument.__struct_fields__[RunDocument.__struct_fields__.index("duration") :]
KEPT = ("unit", "pooled_as", "insufficient", "note", "caveat")


def flat_keys(
    metrics: dict[str, Metric], counts: Counts, slo: Objectives | None, window: Window | None
) -> dict[str, Number]:
    """vLLM's keys, and those of REASONING where answers reason. `itl` are the gaps by the chosen option: vLLM's are gaps
    between chunks.
    """
    output, taken = known(metrics["output_tok_s"].value), known(metrics["input_tok_s"].value)
    flat: dict[str, Number] = {
        "duration": None if window is None else window.seconds,
        "completed": counts.ok,
        "failed": counts.failed,
        "total_input_tokens": counts.input_tokens,
        "total_output_tokens": counts.output_tokens,
        "request_throughput": metrics["req_s"].value,
        "output_throughput": output,
        "total_token_throughput": None if output is None or taken is None else output + taken,
        "request_goodput": None if slo is None else slo.request_goodput,
    }
    for name, metric in (VLLM | REASONING if counts.reasoned else VLLM).items():
        chosen = metrics[str(metrics["share_single"].pooled_as) if metric == "itl" else metric]
        flat.update({f"{key}_{name}_ms": chosen.statistic(field) for key, field in FLAT.items()})
    return flat


def measure(run: Run) -> RunDocument:
    """The run's document with its figures: `metrics`, `counts`, `errors`, `by_target`, `slo`, `fairness`, `classes`,
    `slots`, `models`, `backends`, `conversations`, `sessions`, `users`, `steadiness`, `window` and the flat keys;
    without those that need damaged files.
    """
    return without_lost(measure_intact(run.intact), run)


def measure_intact(run: Run) -> RunDocument:
    """The same for a run without damaged files."""
    return without_tokens(measure_all(run), run)


def measure_all(run: Run) -> RunDocument:
    """With figures of tokens, whether or not the protocol has tokens."""
    window = window_of(run)
    every = populations(run, window)
    chosen = of_tokens(run, every)
    tokens = count_tokens(run)
    count_chunks(run, chosen.measured, tokens)
    judged = times_and_fluidity(run, every, tokens)
    times, fluid = judged if chosen is every else times_and_fluidity(run, chosen, tokens)
    gaps = pooled(run, chosen.latency, tokens, times)
    one_each = gaps.option == "direct"
    base = time_base(run, window, every.submitted)
    metrics: dict[str, Metric] = {
        **of_both(every, chosen, lambda of: latency_metrics(run, of, tokens)),
        **reasoning_metrics(run, chosen.latency, tokens),
        **server_side_metrics(run, chosen),
        **gap_metrics(times, gaps),
        **empty_chunks(run, gaps, times, tokens),
        **of_both(every, chosen, lambda of: throughput_metrics(run, window, of, tokens)),
        **success.success_metrics(run.rows[every.submitted]),
        **fluidity_metrics(run, chosen.latency, times, fluid),
        **deadline_metrics(chosen.latency, times),
        **idle_metrics(run, times),
        **benefit_metrics(run, times, received(tokens, times, one_each), base),
        **of_both(every, chosen, lambda of: network_metrics(run, of.latency)),
        **cold_start_metrics(run),
        **consistency_metrics(run, chosen.latency),
        **titled_metrics(judged_of(run, tokens, times, fluid), chosen.latency),
    }
    metrics |= in_flight_metrics(run, window, tokens, chosen.measured)
    metrics |= shape_metrics(gaps.gaps.ns, gaps.name, metrics[gaps.name])
    metrics |= cost_metrics(run.document.config.output, known(metrics["output_tok_s"].value))
    metrics |= cache_metrics(run, run.rows[chosen.latency])
    metrics |= bounded(of_both(every, chosen, lambda of: with_unfinished(run, window, of.measured)), metrics)
    for name, bounds in of_both(every, chosen, lambda of: bounds_of(run, of.latency, tokens, gaps)).items():
        metrics[name] = replace(metrics[name], bounds=bounds)
    counts = counts_of(run, every, tokens)
    if chosen is not every:
        heard = counts_of(run, chosen, tokens)
        counts = replace(counts, **{name: getattr(heard, name) for name in COUNTS_OF_TOKENS})
    n_r = received(tokens, judged[0], one_each)
    slo = objectives(run, base, tokens, *judged, n_r, smooth_by_preset(metrics))
    good = meeting_all(run, tokens, *judged)
    sessions, of_sessions = sessions_block(run, window, every, good)
    metrics |= of_sessions
    parts = PartFigures(run, window, every, tokens, gaps, good)
    if slo is not None:
        slo = with_bounds(slo, *unfinished_in_window(run, window, every))
    return replace(
        run.document,
        window=WindowTimes()
        if window is None
        else WindowTimes(w0_ns=window.w0_ns, w1_ns=window.w1_ns, seconds=window.seconds),
        metrics=metrics,
        counts=counts,
        errors=success.error_groups(run.rows[every.measured]),
        by_target=by_target(run, run.rows[every.measured]),
        slo=slo,
        fairness=fairness_block(run, chosen, tokens),
        classes=with_models(classes_block(run, window, every, tokens, judged[0]), parts),
        classes_with_tokens=classes_with_tokens(run.document),
        slots=slots_block(run, every),
        models=models_block(parts),
        backends=backends_block(parts),
        conversations=conversations_block(run, every),
        sessions=sessions,
        users=users_block(run.rows[every.measured]),
        steadiness=steadiness(run, window, every, gaps),
        **flat_keys(metrics, counts, slo, window),
    )


def of_tokens(run: Run, every: Populations) -> Populations:
    """The requests that figures of tokens are of: *every* one where the answers of all classes, or of none, are tokens."""
    return every.among(answers_tokens(run)) if classes_with_tokens(run.document) else every


def times_and_fluidity(run: Run, chosen: Populations, tokens: TokenCounts) -> tuple[TokenTimes, Fluidity]:
    times = token_times(run, chosen.submitted, tokens)
    return times, fluidity_of(run, tokens, times)


def of_both(every: Populations, chosen: Populations, find: Callable[[Populations], Mapping[str, T]]) -> dict[str, T]:
    """What *find* finds by metric: figures of requests of *every* one, those of tokens of the *chosen*."""
    found = dict(find(chosen))
    if chosen is not every:
        found |= {name: each for name, each in find(every).items() if name in OF_REQUESTS}
    return found


def headline_metrics(run: Run) -> dict[str, Metric]:
    """Only the latencies that have bounds, of a run that need not be complete, such as one host's part."""
    run = run.intact
    every = populations(run, window_of(run))
    chosen = of_tokens(run, every)
    tokens = count_tokens(run)
    count_chunks(run, chosen.measured, tokens)
    times = token_times(run, chosen.submitted, tokens)
    gaps = pooled(run, chosen.latency, tokens, times)
    metrics = {**of_both(every, chosen, lambda of: latency_metrics(run, of, tokens)), **gap_metrics(times, gaps)}
    bounds = of_both(every, chosen, lambda of: bounds_of(run, of.latency, tokens, gaps))
    return {name: replace(metrics[name], bounds=each) for name, each in bounds.items()}


def without_lost(found: RunDocument, run: Run) -> RunDocument:
    """*found* (the result of `measure`) without every figure that needs a damaged file of *run*."""
    damage = run.damage_of(EVENTS, TEXT)
    if damage is None:
        return found
    no_rows = run.lost(ROWS) is not None
    lost = [name for name in FLAT_KEYS if no_rows or needs_events(name)]
    found = without(found, [*lost, *(BLOCKS if no_rows else OF_EVENTS)])
    metrics = {
        name: each if name in OF_ROWS and not no_rows else without_values(each, damage)
        for name, each in (found.metrics or {}).items()
        if each is not None
    }
    return replace(
        found,
        metrics=metrics,
        counts=Counts() if no_rows else without(found.counts, COUNTS_OF_EVENTS),
        incidents=(*found.incidents, f"{damage}; figures that need it are n/a"),
    )


def without_tokens(found: RunDocument, run: Run) -> RunDocument:
    """*found* without every figure of tokens, where answers of the protocol are not tokens."""
    if any(one is None or one.tokens for one in spoken(run.document)):
        return found
    slo = None if found.slo is None else without(found.slo, ("token_goodput", "smooth_goodput"))
    return replace(
        without(found, [name for name in FLAT_KEYS if name not in OF_REQUESTS]),
        metrics={name: each for name, each in (found.metrics or {}).items() if name in (*OF_REQUESTS, "input_tok_s")},
        counts=without(found.counts, COUNTS_OF_TOKENS),
        slo=slo,
        fairness=None,
    )


def needs_events(name: str) -> bool:
    """Whether one of vLLM's flat keys needs events; those of TTFT, E2E and of requests do not."""
    return name not in ("duration", "completed", "failed", "request_throughput", "total_input_tokens") and not (
        name.endswith(("_ttft_ms", "_ttft_any_ms", "_e2el_ms"))
    )


def without_values(metric: Metric, damage: str) -> Metric:
    """The metric without its values, and with the reason."""
    kept = {name: getattr(metric, name) for name in KEPT}
    n = None if metric.n is None else 0
    return type(metric)(**{**kept, "n": n, "note": f"not known: {damage}"})
