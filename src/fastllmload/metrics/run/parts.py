"""Computes figures of parts of the traffic, such as the requests of one model or server, over the populations of the run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from msgspec.structs import replace

from fastllmload.arrays import Floats, Mask, Numbers
from fastllmload.documents.metric import Metric
from fastllmload.documents.run_parts.classes import PartResult
from fastllmload.metrics.distribution.summary import distribution
from fastllmload.metrics.objectives.report import slo_attainment
from fastllmload.metrics.request import durations
from fastllmload.metrics.request.latencies import in_time
from fastllmload.metrics.request.tpot import spaced, tpot
from fastllmload.metrics.run import success
from fastllmload.metrics.run.bounds import bounded, of_part
from fastllmload.metrics.run.per_class import failures
from fastllmload.metrics.run.throughput import per_second, req_s, share_in_window
from fastllmload.metrics.run.window import Populations, Window
from fastllmload.metrics.tokens.counts import TokenCounts, answers_tokens
from fastllmload.metrics.tokens.itl import NAMES, PooledGaps
from fastllmload.records import layout
from fastllmload.records.run import Run

P = TypeVar("P", bound=PartResult)


@dataclass(frozen=True)
class PartFigures:
    """What figures of parts are computed from: the *chosen* populations, counts and *gaps* of all requests; *good*: rows
    that meet all objectives, None without any.
    """

    run: Run
    window: Window | None
    chosen: Populations
    tokens: TokenCounts
    gaps: PooledGaps
    good: Mask | None

    @cached_property
    def sent(self) -> Mask:
        found: Mask = self.chosen.measured & (self.run.rows["t_dispatch"] > 0)
        return found

    @cached_property
    def _timed(self) -> Numbers:
        return spaced(self.run, self.tokens.timed)

    @cached_property
    def _tokens_in_window(self) -> Floats | None:
        """Output tokens of each successful request that came in the window; None without one."""
        if self.window is None:
            return None
        ok = self.chosen.measured & (self.run.rows["status"] == layout.OK) & answers_tokens(self.run)
        return share_in_window(self.run, self.window, self.tokens, ok) * self.tokens.output

    def with_figures(self, part: P, members: Mask) -> P:
        """*part* with the figures of the requests *members*. Counts over the complete phase; latencies of successful
        requests in the window, rates per second of the window.
        """
        rows, ok = self.run.rows[self.sent & members], self.sent & members & (self.run.rows["status"] == layout.OK)
        times = in_time(self.run.rows, self.chosen.latency & members)
        kept, submitted = self.run.rows[times], self.chosen.submitted & members
        inside = self._tokens_in_window
        latencies: dict[str, Metric] = {
            "ttft": distribution(durations.ttft(kept), "ms"),
            "e2e": distribution(durations.e2e(kept), "ms"),
        }
        cut_off = of_part(self.run, self.window, self.chosen.measured & members, answers_tokens(self.run))
        latencies |= bounded(cut_off, latencies)
        return replace(
            part,
            sent=len(rows),
            ok=int(ok.sum()),
            failed=failures(rows),
            success_rate=success.success_rate(self.run.rows[submitted]),
            slo_attainment=None if self.good is None else slo_attainment(self.good[submitted]),
            errors=success.error_groups(rows),
            input_tokens=int(self.tokens.input[ok].sum()),
            output_tokens=int(self.tokens.output[ok].sum()),
            req_s=None if self.window is None else req_s(self.run, self.window, ok),
            output_tok_s=None
            if self.window is None or inside is None
            else per_second(float(inside[ok].sum()), self.window.seconds),
            tpot=distribution(tpot(kept, self._timed[times]), "ms"),
            ttft=latencies["ttft"],
            e2e=latencies["e2e"],
            **self._gaps_of(members),
        )

    def _gaps_of(self, members: Mask) -> dict[str, Metric]:
        """Gaps by the option of the run; none where single ones stayed on their hosts."""
        nothing = np.empty(0, np.int64)
        found: dict[str, Metric] = {name: distribution(nothing, "ms") for name in NAMES.values()}
        if self.gaps.gaps.known is None:
            mine = self.gaps.among(members).gaps
            found[self.gaps.name] = distribution(mine.ns, "ms", first=mine.first)
        return found
