"""All numbers of a run that run.json holds: metrics, counts, errors, objectives, and vLLM's flat keys.

A pure function of rows and stamps: the same on a run of this minute and on a folder of last month.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload.metrics import e2e as ends
from fastllmload.metrics import itl as pauses
from fastllmload.metrics import success, throughput, token_rate
from fastllmload.metrics import tpot as per_token
from fastllmload.metrics import ttft as starts
from fastllmload.metrics.distribution import distribution, scalar
from fastllmload.metrics.window import Populations, Window, populations, window_of
from fastllmload.records.layout import OK
from fastllmload.records.run import Run
from fastllmload.records.timeline import timeline
from fastllmload.records.token_counts import SOURCES, TokenCounts, count_tokens
from fastllmload.slo import goodput

VLLM = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2el": "e2e"}  # vLLM's name: ours
FLAT = {"mean": "mean", "median": "p50", "std": "std", "p90": "p90", "p95": "p95", "p99": "p99", "p999": "p999"}


def measure(run: Run) -> dict[str, Any]:
    """`metrics`, `counts`, `errors`, `slo`, `window` of run.json and the flat keys; null is None."""
    window = window_of(run)
    chosen = populations(run, window)
    tokens = count_tokens(run)
    metrics = {**latencies(run, chosen, tokens), **gaps(run, chosen, tokens), **rates(run, window, chosen, tokens)}
    counts = count(run, chosen, tokens)
    slo = objectives(run, window, chosen, tokens)
    return {
        "window": described(window),
        "metrics": metrics,
        "counts": counts,
        "errors": success.error_groups(run.rows[chosen.measured]),
        "slo": slo,
        **flat_keys(metrics, counts, slo, window),
    }


def described(window: Window | None) -> dict[str, Any] | None:
    """[w0, w1) in CLOCK_MONOTONIC ns, and its length."""
    return None if window is None else {"w0_ns": window.w0_ns, "w1_ns": window.w1_ns, "seconds": window.seconds}


def latencies(run: Run, chosen: Populations, tokens: TokenCounts) -> dict[str, Any]:
    """One value per request of the latency population."""
    mine = chosen.latency
    rows, output, timed = run.rows[mine], tokens.output[mine], tokens.timed[mine]
    in_ms: dict[str, npt.NDArray[Any]] = {
        "ttft": starts.ttft(rows),
        "ttft_sched": starts.ttft_sched(rows),
        "ttft_any": starts.ttft_any(rows),
        "ttft_dispatch": starts.ttft_dispatch(rows),
        "ttfb": starts.ttfb(rows),
        "tpot": per_token.tpot(rows, timed),
        "norm_latency": per_token.norm_latency(rows, output),
        "e2e": ends.e2e(rows),
        "e2e_sched": ends.e2e_sched(rows),
        "total_duration": ends.total_duration(rows),
        "final_silence": ends.final_silence(rows),
        "dispatch_lag": starts.dispatch_lag(rows),
        "send_time": starts.send_time(rows),
    }
    found = {name: distribution(values, "ms") for name, values in in_ms.items()}
    found["decode_tok_s"] = distribution(token_rate.decode_tok_s(rows, timed), "tokens/s")
    return found


def gaps(run: Run, chosen: Populations, tokens: TokenCounts) -> dict[str, Any]:
    """Pooled gaps: `itl` where chunks are tokens, `tbc` (option A) elsewhere; the other one is null (metrics.md 3.4)."""
    line = timeline(run, chosen.latency)
    single = pauses.share_single(line, tokens)
    between = pauses.chunk_gaps(line)
    direct = single is not None and single > pauses.DIRECT_ABOVE
    name = "itl" if direct else "tbc"
    nothing = np.empty(0, np.int64)
    return {
        "itl": distribution(between.ns if direct else nothing, "ms"),
        "tbc": distribution(nothing if direct else between.ns, "ms"),
        "jitter": distribution(pauses.jitter(between), "ms"),
        "max_pause": distribution(pauses.max_pause(between), "ms"),
        "share_single": scalar(single, "share", itl_option="direct" if direct else "A", pooled_as=name),
    }


def rates(run: Run, window: Window | None, chosen: Populations, tokens: TokenCounts) -> dict[str, Any]:
    """Throughput in window form (primary) and makespan form."""
    ok = chosen.measured & (run.rows["status"] == OK)
    failed = chosen.measured & ~ok
    span = throughput.makespan_s(run.rows["t_dispatch"][ok], run.rows["t_last"][ok])
    inside: dict[str, float | None] = dict.fromkeys(("req_s", "output_tok_s", "input_tok_s", "failed_output_tok_s"))
    if window is not None:
        inside = {
            "req_s": throughput.req_s(run, window, ok),
            "output_tok_s": throughput.output_tok_s(run, window, tokens, ok),
            "input_tok_s": throughput.input_tok_s(run, window, tokens, ok),
            "failed_output_tok_s": throughput.output_tok_s(run, window, tokens, failed),
        }
    return {
        **{name: scalar(value, "requests/s" if name == "req_s" else "tokens/s") for name, value in inside.items()},
        "req_s_makespan": scalar(throughput.per_second(float(np.count_nonzero(ok)), span), "requests/s"),
        "output_tok_s_makespan": scalar(
            throughput.per_second(float(np.maximum(tokens.output[ok], 0).sum()), span), "tokens/s"
        ),
        "success_rate": scalar(success.success_rate(run.rows[chosen.submitted]), "share"),
    }


def count(run: Run, chosen: Populations, tokens: TokenCounts) -> dict[str, Any]:
    """How many requests ended how, over the whole measure phase, and where the token counts come from."""
    rows = run.rows[chosen.measured]
    statuses = success.by_status(rows)
    ok = chosen.measured & (run.rows["status"] == OK)
    sources = np.bincount(tokens.source[ok], minlength=len(SOURCES))
    return {
        "planned": len(rows),
        "dispatched": len(rows) - statuses["not_sent"],
        **statuses,
        "failed": len(rows) - statuses["ok"] - statuses["not_sent"] - statuses["in_flight"],
        "explicit_errors": success.explicit_errors(rows),
        "submitted_in_window": int(chosen.submitted.sum()),
        "latency_population": int(chosen.latency.sum()),
        "input_tokens": int(np.maximum(tokens.input[ok], 0).sum()),
        "output_tokens": int(np.maximum(tokens.output[ok], 0).sum()),
        "output_tokens_source": {name or "none": int(sources[n]) for n, name in enumerate(SOURCES)},
        "events": int(len(run.events)),
    }


def objectives(run: Run, window: Window | None, chosen: Populations, tokens: TokenCounts) -> dict[str, Any] | None:
    """What --goodput asked for: requests in the window that met every objective; None when nothing was asked."""
    asked = {name: limit for name, limit in run.manifest.get("config", {}).get("output", {}).get("goodput", ())}
    if not asked:
        return None
    rows, timed = run.rows[chosen.submitted], tokens.timed[chosen.submitted]
    met = (rows["status"] == OK) & goodput.meets(rows, timed, asked)
    seconds = None if window is None else window.seconds
    return {
        "objectives_ms": asked,
        "met": int(met.sum()),
        "submitted": len(met),
        "slo_attainment": goodput.slo_attainment(met),
        "request_goodput": goodput.request_goodput(met, seconds),
        "token_goodput": goodput.token_goodput(met, timed, seconds),
        "each": {
            name: int(((rows["status"] == OK) & goodput.meets(rows, timed, {name: limit})).sum())
            for name, limit in asked.items()
        },
    }


def flat_keys(
    metrics: dict[str, Any], counts: dict[str, Any], slo: dict[str, Any] | None, window: Window | None
) -> dict[str, Any]:
    """vLLM's keys at the top level; its itl falls back to chunk gaps, as vLLM's own does."""
    output, taken = metrics["output_tok_s"]["value"], metrics["input_tok_s"]["value"]
    flat: dict[str, Any] = {
        "duration": None if window is None else window.seconds,
        "completed": counts["ok"],
        "failed": counts["failed"],
        "total_input_tokens": counts["input_tokens"],
        "total_output_tokens": counts["output_tokens"],
        "request_throughput": metrics["req_s"]["value"],
        "output_throughput": output,
        "total_token_throughput": None if output is None or taken is None else output + taken,
        "request_goodput": None if slo is None else slo["request_goodput"],
    }
    for name, ours in VLLM.items():
        chosen = metrics[ours] if ours != "itl" or metrics["itl"]["n"] else metrics["tbc"]
        flat.update({f"{key}_{name}_ms": chosen[field] for key, field in FLAT.items()})
    return flat

