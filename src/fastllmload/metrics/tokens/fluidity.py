"""Computes fluidity, the share of token deadlines that a stream kept (spec/metrics 5.9, etalon, arXiv 2507.09019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec.structs import replace

from fastllmload._ext.measure import deadlines
from fastllmload.arrays import Floats, Mask, Numbers
from fastllmload.documents.fields import known
from fastllmload.documents.metric import Metric, Value
from fastllmload.metrics.distribution.summary import distribution, number
from fastllmload.metrics.request.durations import committed
from fastllmload.metrics.tokens.counts import TokenCounts
from fastllmload.metrics.tokens.times import TokenTimes
from fastllmload.records.run import Run
from fastllmload.settings import Output

STEP_NS = 100_000  # bisection ends at 0.1 ms


def min_tbt_deadline(times: TokenTimes) -> Numbers:
    """Smallest D_d in ns whose deadline miss rate over the decode gaps is at most 0.1; NULL below two tokens."""
    if times.totals is not None:
        return np.ascontiguousarray(times.totals["least_deadline"])
    found = np.empty(len(times.rows), np.int64)
    deadlines.least_deadline(times.t_ns, times.first, STEP_NS, found)
    return found


def stream_rate(p99_ms: float | None) -> float | None:
    """1 / P99 over requests of min_tbt_deadline, tokens/s; None without a deadline or for one of 0."""
    return None if p99_ms is None or p99_ms <= 0 else 1000.0 / p99_ms


def deadline_metrics(population: Mask, times: TokenTimes) -> dict[str, Metric]:
    """`min_tbt_deadline` over the latency *population* and `fluid_token_rate_stream` (etalon's
    deadline_based_throughput)."""
    found = distribution(min_tbt_deadline(times)[population[times.rows]], "ms")
    rate, most, to_ms = stream_rate(known(found.p99)), 1 / deadlines.MISS_SHARE, STEP_NS / 1e6
    return {
        "min_tbt_deadline": replace(found, miss_rate_at_most=most, to_ms=to_ms),
        "fluid_token_rate_stream": Value(unit="tokens/s", value=number(rate), miss_rate_at_most=most, to_ms=to_ms),
    }


MS = 1_000_000
FLUID_ABOVE = 0.9  # a request is fluid from this index on (spec/metrics 6.6)


@dataclass(frozen=True)
class TokenDeadlines:
    """Deadlines in ms: *d_p* to the first token, as (input tokens, ms) pairs, linear between and constant beyond them;
    *d_d* from token to token. One pair is a constant. The defaults are etalon's.
    """

    d_p: tuple[tuple[float, float], ...] = ((0, 100.0),)
    d_d: float = 50.0

    def d_p_ns(self, input_tokens: Numbers) -> Numbers:
        """The first deadline of requests of these lengths, in integer ns."""
        table = np.array(sorted(self.d_p), np.float64)
        return np.rint(np.interp(input_tokens, table[:, 0], table[:, 1]) * MS).astype(np.int64)

    def described(self) -> dict[str, Any]:
        """Deadlines, which are printed with every value."""
        constant = self.d_p[0][1] if len(self.d_p) == 1 else [list(pair) for pair in sorted(self.d_p)]
        return {"d_p_ms": constant, "d_d_ms": self.d_d}


def targets_of(output: Output) -> TokenDeadlines:
    """The deadlines in the run's configuration; etalon's where it has none."""
    default, d_p, d_d = TokenDeadlines(), output.prefill_deadline, output.decode_deadline
    return TokenDeadlines(default.d_p if d_p is None else d_p, default.d_d if d_d is None else d_d)


@dataclass(frozen=True)
class Fluidity:
    """One item per request of the token times: *tokens* n; *met* of them, *met_decode* without the first; *missed*
    deadlines."""

    tokens: Numbers
    met: Numbers
    met_decode: Numbers
    missed: Numbers

    @property
    def index(self) -> Floats:
        """met / n, the first token included; NaN without a token."""
        return share(self.met, self.tokens)

    @property
    def index_decode(self) -> Floats:
        """The same without the first token, over n - 1; NaN below two tokens."""
        return share(self.met_decode, self.tokens - 1)

    @property
    def index_deadline(self) -> Floats:
        """1 - missed / all deadlines; a long stall weighs more than one token. NaN without a token."""
        return 1 - self.miss_rate

    @property
    def miss_rate(self) -> Floats:
        """missed / all deadlines; NaN without a token."""
        return share(self.missed, self.met + self.missed)


def share(part: Numbers, total: Numbers) -> Floats:
    """part / total, NaN where the total is not above 0."""
    return np.where(total > 0, part / np.maximum(total, 1), np.nan)


def fluidity(times: TokenTimes, origin: Numbers, d_p_ns: Numbers, d_d_ns: int) -> Fluidity:
    """Judge every request from its *origin* (ns): *d_p_ns* each to the first token, *d_d_ns* from token to token."""
    tallies = np.empty((len(times.rows), 3), np.int64)
    deadlines.fluidity(times.t_ns, times.first, origin, d_p_ns, d_d_ns, tallies)
    return Fluidity(times.count, tallies[:, 0], tallies[:, 2], tallies[:, 1])


def fluidity_of(run: Run, tokens: TokenCounts, times: TokenTimes) -> Fluidity:
    """The fluidity of every request of *times* by the run's deadlines, from t_submit."""
    if times.totals is not None:
        met, met_decode, missed = (times.totals[name].astype(np.int64) for name in ("met", "met_decode", "missed"))
        return Fluidity(times.count, met, met_decode, missed)
    targets = targets_of(run.document.config.output)
    d_p_ns = targets.d_p_ns(tokens.input[times.rows])
    return fluidity(times, committed(run.rows[times.rows]), d_p_ns, round(targets.d_d * MS))


def fluid_share(found: Fluidity, ok: Mask) -> float | None:
    """Share of all requests that are *ok* with an index of at least 0.9: a failed one counts as 0. None without any."""
    return float(np.count_nonzero(ok & (found.index >= FLUID_ABOVE))) / len(ok) if len(ok) else None


def fluidity_metrics(run: Run, population: Mask, times: TokenTimes, found: Fluidity) -> dict[str, Metric]:
    """The three indices and the miss rate over the latency *population*, and the share of fluid requests of all."""
    kept = population[times.rows]
    by = targets_of(run.document.config.output).described()
    values = {
        "fluidity_index": found.index,
        "fluidity_index_decode": found.index_decode,
        "fluidity_index_deadline": found.index_deadline,
        "deadline_miss_rate": found.miss_rate,
    }
    return {
        **{name: replace(distribution(value[kept], "share"), **by) for name, value in values.items()},
        "fluid_share": Value(
            unit="share", value=number(fluid_share(found, kept)), fluidity_index_at_least=FLUID_ABOVE, **by
        ),
    }
