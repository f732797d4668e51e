"""Computes durations and rates with one value per request of the latency population (spec/metrics 5)."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from fastllmload.arrays import Mask, Numbers, Rows, Values
from fastllmload.documents.fields import known
from fastllmload.documents.metric import Metric
from fastllmload.metrics.distribution.summary import distribution
from fastllmload.metrics.request import durations as times
from fastllmload.metrics.request import tpot as per_token
from fastllmload.metrics.request.action import called, ttfa
from fastllmload.metrics.request.tpot import came_whole, spaced
from fastllmload.metrics.run.window import Populations, on_schedule
from fastllmload.metrics.tokens.counts import TokenCounts
from fastllmload.records.run import Run

OF_GAPS = ("tpot", "tpot_n", "tpot_any")
UNSPACED = "null: the answers were not streamed, so no gap between tokens was seen"
UNSTREAMED = "the answers were not streamed: what counts as the first token is the end of the answer"
OF_OPEN = "only open loops have a schedule"
LIMITED_ABOVE_MS = 1.0  # a higher P99 of dispatch_lag: the generator was measured, not the target (spec/metrics 5.1)


def latency_metrics(run: Run, chosen: Populations, tokens: TokenCounts) -> dict[str, Metric]:
    """Distributions over the latency population; `_sched` counts from the scheduled instant."""
    mine = in_time(run.rows, chosen.latency)
    rows, output, timed = run.rows[mine], tokens.output[mine], spaced(run, tokens.timed)[mine]
    found: dict[str, Metric] = {
        name: distribution(values, "ms") for name, values in by_request(run, tokens, mine).items()
    }
    limited = (known(found["dispatch_lag"].p99) or 0.0) > LIMITED_ABOVE_MS
    found["dispatch_lag"] = replace(found["dispatch_lag"], generator_limited=limited)
    if "ttfa" in found:
        found["ttfa"] = replace(found["ttfa"], title="Time to first action")
    found |= token_rates(rows, output, timed)
    notes = notes_of(int(came_whole(run)[mine].sum()), len(mine))
    due = int(on_schedule(run.document.plan.description, rows["request_class"]).sum())
    if due < len(mine):
        of_open = f"{OF_OPEN}: {due:,} of the {len(mine):,} requests"
        notes |= {name: "; ".join(filter(None, (notes.get(name), of_open))) for name in FROM_SCHEDULE}
    return found | {name: replace(found[name], note=note) for name, note in notes.items()}


def notes_of(unstreamed: int, answers: int) -> dict[str, str]:
    """Notes on metrics by name, when *unstreamed* of the *answers* were not streamed."""
    if not unstreamed:
        return {}
    some = f"{unstreamed:,} of the {answers:,} answers were not streamed: "
    of_starts = (
        UNSTREAMED if unstreamed == answers else some + "what counts as their first token is the end of the answer"
    )
    of_gaps = UNSPACED if unstreamed == answers else some + "they are left out, as no gap between their tokens was seen"
    return {
        **dict.fromkeys(("ttft", "ttft_sched", "ttft_any", "ttft_any_sched", "ttft_dispatch"), of_starts),
        **dict.fromkeys((*OF_GAPS, "decode_tok_s"), of_gaps),
    }


def in_time(rows: Rows, population: Mask) -> Numbers:
    """Row numbers of the *population* in order of t_sched, because confidence intervals depend on the order."""
    mine = np.flatnonzero(population)
    t_sched = rows["t_sched"][mine]
    return mine if (t_sched[1:] >= t_sched[:-1]).all() else mine[np.argsort(t_sched, kind="stable")]


DURATIONS = (
    times.ttft, times.ttft_sched, times.ttft_any, times.ttft_any_sched, times.ttft_dispatch, times.ttfb, times.ttfb_sched,
    times.dispatch_lag, times.send_time, times.e2e, times.e2e_sched, times.e2e_dispatch, times.total_duration,
    times.total_duration_sched, times.gen_duration, times.final_silence,
)  # fmt: skip
FROM_SCHEDULE = (
    "ttft_sched", "ttft_any_sched", "ttfb_sched", "dispatch_lag", "e2e_sched", "total_duration_sched", "norm_latency_sched",
)  # fmt: skip


def by_request(run: Run, tokens: TokenCounts, mine: Numbers) -> dict[str, Values]:
    """Metric → ns of each of the rows *mine*: first-token latencies, durations, times per token; `ttfa` where replies have
    tool calls. Those from the schedule are null for requests that have no instant in it: of closed loops next to open ones.
    """
    rows, output, timed = run.rows[mine], tokens.output[mine], spaced(run, tokens.timed)[mine]
    found: dict[str, Values] = {
        **{of.__name__: of(rows) for of in DURATIONS},
        "tpot": per_token.tpot(rows, timed),
        "tpot_n": per_token.tpot_n(rows, timed),
        "tpot_any": per_token.tpot_any(rows, spaced(run, tokens.output)[mine]),
        "norm_latency": per_token.norm_latency(rows, output),
        "norm_latency_sched": per_token.norm_latency_sched(rows, output),
        **({"ttfa": ttfa(run, mine)} if called(rows) else {}),
    }
    due = on_schedule(run.document.plan.description, rows["request_class"])
    if not due.all():
        for name in FROM_SCHEDULE:
            missing = times.NULL if found[name].dtype == np.int64 else np.nan
            found[name] = np.where(due, found[name], missing)
    return found


def token_rates(rows: Rows, output: Numbers, timed: Numbers) -> dict[str, Metric]:
    """The tok/s family. Degenerate rates (ASIAI-M1) are left out of the distribution, and counted."""
    degenerate = per_token.degenerate(rows)
    generated = np.where(degenerate, np.nan, per_token.gen_tok_s(rows, output))
    n_null = int((np.isnan(generated) & ~degenerate).sum())
    rates = {
        "decode_tok_s": per_token.decode_tok_s(rows, timed),
        "request_tok_s": per_token.request_tok_s(rows, output),
        "request_tok_s_dispatch": per_token.request_tok_s_dispatch(rows, output),
    }
    return {
        **{name: distribution(values, "tokens/s") for name, values in rates.items()},
        "gen_tok_s": replace(distribution(generated, "tokens/s", n_null), degenerate=int(degenerate.sum())),
    }
