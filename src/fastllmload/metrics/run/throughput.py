"""Computes requests and tokens per second: window form (primary) and makespan form (spec/metrics 6.2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from fastllmload.arrays import Floats, Mask, Numbers, Rows, Values
from fastllmload.documents.metric import Metric
from fastllmload.errors import coded
from fastllmload.metrics.distribution.summary import estimated, scalar
from fastllmload.metrics.run.window import Populations, Window, gave_up, left_by_plan
from fastllmload.metrics.tokens.counts import TokenCounts
from fastllmload.metrics.tokens.timeline import BEARING
from fastllmload.records import layout
from fastllmload.records.run import Run
from fastllmload.statistics.batches import BATCHES
from fastllmload.statistics.interval import Estimate, rate_interval

# Name -> unit of the rates that are counted by the time of tokens and completions.
WINDOWED = {
    "req_s": "requests/s",
    "output_tok_s": "tokens/s",
    "input_tok_s": "tokens/s",
    "input_tok_s_cache_misses": "tokens/s",  # null where the target does not report cached tokens
    "failed_output_tok_s": "tokens/s",
}
UNKNOWN = coded("events-elsewhere", "it needs events of unfinished answers, which stayed on a lost host")
COUNTING = {"input_tok_s": "all", "input_tok_s_cache_misses": "cache_misses_only"}


def share_in_window(run: Run, window: Window, tokens: TokenCounts, chosen: Mask) -> Floats:
    """For each row the share of its tokens that came in the window; 0 where *chosen* is false.

    A request's tokens are spread over its token-bearing events: as the server reports or as counted in its text, else
    evenly. Events are read only of requests that cross an edge of the window.
    """
    if run.elsewhere is not None:
        return np.where(chosen, run.elsewhere.totals["in_window"], 0.0)
    rows = run.rows
    begun = chosen & (rows["t_any"] > 0)
    last = np.where(rows["t_end"] > 0, rows["t_end"], window.w1_ns + 1)
    inside = begun & window.holds(rows["t_any"]) & window.holds(last)
    share = inside.astype(np.float64)
    after = rows["t_any"] > window.w1_ns
    for row in np.flatnonzero(begun & ~inside & ~after & (last >= window.w0_ns)):
        part = slice(int(run.first_event[row]), int(run.first_event[row + 1]))
        bearing = BEARING[run.event_kind[part]]
        weight = tokens.chunks.weights(int(row), int(row) + 1)[bearing]
        if weight.any():
            share[row] = weight[window.holds(run.event_t[part][bearing])].sum() / weight.sum()
    return share


def output_tok_s(run: Run, window: Window, tokens: TokenCounts, chosen: Mask) -> float | None:
    """Output tokens of the *chosen* requests that came in the window, per second; whatever their submission time."""
    return per_second(float(np.dot(share_in_window(run, window, tokens, chosen), tokens.output)), window.seconds)


def req_s(run: Run, window: Window, ok: Mask) -> float | None:
    """*ok* requests whose last token came in the window, per second."""
    return per_second(float(np.count_nonzero(ok & window.holds(run.rows["t_last"]))), window.seconds)


def input_tok_s(run: Run, window: Window, taken: Numbers, ok: Mask) -> float | None:
    """*taken* input tokens of *ok* requests whose first token came in the window, per second."""
    return per_second(float(taken[ok & window.holds(first_token(run.rows))].sum()), window.seconds)


def first_token(rows: Rows) -> Numbers:
    """t_first, or t_any of an answer that is all reasoning; t_last of one that is not tokens."""
    first = np.where(rows["t_first"] > 0, rows["t_first"], rows["t_any"])
    return np.where((first == 0) & (rows["status"] == layout.OK), rows["t_last"], first)


def stretch_edges(window: Window) -> Floats:
    """Borders of BATCHES equal stretches of the window, in ns."""
    return np.linspace(window.w0_ns, window.w1_ns, BATCHES + 1)


def amounts_by_stretch(t_ns: Numbers, amounts: Values, window: Window) -> Floats:
    """float64[BATCHES]: sum of the *amounts* whose times lie in each stretch."""
    inside = window.holds(t_ns)
    sums, _ = np.histogram(t_ns[inside], stretch_edges(window), weights=amounts[inside].astype(np.float64))
    return sums


def tokens_by_stretch(rows: Rows, amount: Numbers, window: Window) -> Floats:
    """float64[BATCHES]: tokens in each stretch, each request's spread evenly from its first to its last.

    Accurate enough for the variance of the rate; the rate itself counts every token at its time.
    """
    t_any = rows["t_any"]
    begun = t_any.astype(np.float64)
    ended = np.maximum(np.where(rows["t_last"] > 0, rows["t_last"], rows["t_end"]), t_any + 1).astype(np.float64)
    tokens = np.where(t_any > 0, np.maximum(amount, 0), 0).astype(np.float64)
    edges = stretch_edges(window)
    first, last = (np.searchsorted(edges, t_ns, "right") for t_ns in (begun, ended))
    inside = (first == last) & (first > 0) & (first <= BATCHES)
    uncut = np.bincount(first[inside] - 1, tokens[inside], BATCHES)
    crossing = first != last  # the few that cross an edge
    part, start, length = tokens[crossing], begun[crossing], (ended - begun)[crossing]
    reached = [float(np.dot(part, np.clip((edge - start) / length, 0, 1))) for edge in edges]
    return uncut + np.diff(reached)


def stretches(
    run: Run, window: Window, ok: Mask, failed: Mask, tokens: TokenCounts, missed: Numbers
) -> dict[str, Floats]:
    rows, done = run.rows, run.rows[ok]
    return {
        "req_s": amounts_by_stretch(done["t_last"], np.ones(len(done)), window),
        "output_tok_s": tokens_by_stretch(done, tokens.output[ok], window),
        "failed_output_tok_s": tokens_by_stretch(rows[failed], tokens.output[failed], window),
        "input_tok_s": amounts_by_stretch(first_token(done), tokens.input[ok], window),
        "input_tok_s_cache_misses": amounts_by_stretch(first_token(done), missed[ok], window),
    }


def rate_estimate(value: float | None, by_stretch: Floats, window: Window, lasting_s: float) -> Estimate | None:
    """Interval of a rate whose *value* is known and whose amounts vary as those of its stretches."""
    total = float(by_stretch.sum())
    if value is None or total <= 0:
        return None
    return rate_interval(by_stretch * (value * window.seconds / total), window.seconds, lasting_s)


def mean_time_s(rows: Rows) -> float:
    return float((rows["t_end"] - rows["t_dispatch"]).mean()) / 1e9 if len(rows) else 0.0


def makespan_s(t_dispatch: Numbers, t_last: Numbers) -> float | None:
    """max t_last - min t_dispatch in s over times in ns, 0 = did not happen (BLOG); None without both."""
    begun, ended = t_dispatch[t_dispatch > 0], t_last[t_last > 0]
    if len(begun) == 0 or len(ended) == 0:
        return None
    return float(ended.max() - begun.min()) / 1e9


@dataclass(frozen=True)
class TimeBase:
    """The denominator of goodput: *seconds* of the "window", or of the "makespan" when the run was bounded by count."""

    name: str
    seconds: float | None


def time_base(run: Run, window: Window | None, submitted: Mask) -> TimeBase:
    """The time base for these *submitted* requests (spec/metrics 6.4); the window where the makespan is not known."""
    if window is None:
        return TimeBase("window", None)
    span = makespan_s(run.rows["t_dispatch"][submitted], run.rows["t_last"][submitted]) if window.closed else None
    return TimeBase("window", window.seconds) if span is None else TimeBase("makespan", span)


def per_second(amount: float, seconds: float | None) -> float | None:
    """amount / seconds; None without a positive duration."""
    return None if seconds is None or seconds <= 0 else amount / seconds


def throughput_metrics(run: Run, window: Window | None, chosen: Populations, tokens: TokenCounts) -> dict[str, Metric]:
    """Window form (primary) and makespan form (BLOG), over the measure phase."""
    ok = chosen.measured & (run.rows["status"] == layout.OK)
    failed = chosen.measured & ~ok & ~left_by_plan(run.rows) & ~gave_up(run.rows)
    span = makespan_s(run.rows["t_dispatch"][ok], run.rows["t_last"][ok])
    generated = float(np.maximum(tokens.output[ok], 0).sum())
    cached = ok & (run.rows["cached_tokens"] >= 0)
    uncounted = run.elsewhere is not None and not run.elsewhere.counted[failed & (run.rows["t_any"] > 0)].all()
    inside: dict[str, float | None] = dict.fromkeys(WINDOWED)
    estimates: dict[str, Estimate | None] = dict.fromkeys(WINDOWED)
    if window is not None:
        inside["req_s"] = req_s(run, window, ok)
        inside["output_tok_s"] = output_tok_s(run, window, tokens, ok)
        if not uncounted:
            inside["failed_output_tok_s"] = output_tok_s(run, window, tokens, failed)
        inside["input_tok_s"] = input_tok_s(run, window, tokens.input, ok)
        missed = tokens.input - np.maximum(run.rows["cached_tokens"], 0)
        if cached.any():
            inside["input_tok_s_cache_misses"] = input_tok_s(run, window, missed, ok)
        varying = stretches(run, window, ok, failed, tokens, missed) if window.seconds > 0 else {}
        lasting = mean_time_s(run.rows[ok])
        estimates = {name: rate_estimate(inside[name], amounts, window, lasting) for name, amounts in varying.items()}
    found: dict[str, Metric] = {
        **{
            name: estimated(value, WINDOWED[name], estimates.get(name), COUNTING.get(name))
            for name, value in inside.items()
        },
        "req_s_makespan": scalar(per_second(float(np.count_nonzero(ok)), span), "requests/s"),
        "output_tok_s_makespan": scalar(per_second(generated, span), "tokens/s"),
    }
    if uncounted:
        found["failed_output_tok_s"] = replace(found["failed_output_tok_s"], note=UNKNOWN)
    return found
