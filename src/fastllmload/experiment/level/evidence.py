"""The evidence of one run of a level for a decision: severities of its requests, queue growth, tokens, benefit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from fastllmload.documents.search import TrialFigures
from fastllmload.experiment.level import client_lateness, verdict
from fastllmload.metrics.objectives.benefit import PRESETS, benefits_by, received
from fastllmload.metrics.objectives.evaluators import JudgedRequests, ObjectiveOutcome, outcome
from fastllmload.metrics.objectives.objective import Objective, subject
from fastllmload.metrics.objectives.report import judged_of
from fastllmload.metrics.request.durations import committed
from fastllmload.metrics.run.bounds import earliest
from fastllmload.metrics.run.success import failed_here
from fastllmload.metrics.run.window import Window, populations, window_of
from fastllmload.metrics.tokens.counts import count_tokens
from fastllmload.metrics.tokens.fluidity import fluidity_of
from fastllmload.metrics.tokens.times import token_times
from fastllmload.records import layout
from fastllmload.records.run import Run
from fastllmload.statistics.sequential_tests import PARTS, Growth, Severities

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]

FAILED = "failed"  # key of the severities that are inf for a failed request and 0 for every other
ALL = "all"  # key of the worst severity over all objectives


@dataclass(frozen=True)
class LevelEvidence:
    """One run. *severities*: by name of the objective, and FAILED, ALL. *tokens*, *benefit*: sums over equal parts of the
    window; *part_s* is the same for all trials of a level. *limited*: why the client was the limit. If it was, *favourable*
    and *unfavourable* are the evidence with each time at its better, or worse, bound. *cascading*: more than half of 100
    requests in a row failed.
    """

    severities: Mapping[str, Severities]
    growth: Growth
    tokens: Floats
    benefit: Floats
    part_s: float
    limited: tuple[str, ...] = ()
    offered_in_full: bool = True
    cascading: bool = False
    service_s: float | None = None
    figures: TrialFigures = field(default_factory=TrialFigures)
    favourable: LevelEvidence | None = None
    unfavourable: LevelEvidence | None = None

    @property
    def seconds(self) -> float:
        return self.growth.seconds


def parts_of(seconds: float, initial_s: float) -> int:
    """Number of parts of a window of *seconds*, each as long as in an initial trial with a window of *initial_s*."""
    return max(1, round(PARTS * seconds / initial_s))


def evidence_of(
    run: Run, wanted: Sequence[Objective], initial_s: float, preset: str = "sg-default"
) -> LevelEvidence | None:
    """The evidence of a finished run; None if it has no window. *initial_s*: window of the level's shortest trial."""
    window = window_of(run)
    if window is None or window.seconds <= 0:
        return None
    chosen = populations(run, window)
    tokens = count_tokens(run)
    times = token_times(run, chosen.submitted, tokens)
    judged = judged_of(run, tokens, times, fluidity_of(run, tokens, times))
    parts = parts_of(window.seconds, initial_s)
    at_s = np.maximum(committed(judged.rows) - window.w0_ns, 0) / 1e9
    whom = {asked.name: subject(asked, wanted, judged.rows["request_class"], run.document) for asked in wanted}
    found = {asked.name: severity(judged, asked, outcome(judged, asked.metric, asked.limit)) for asked in wanted}
    failed = np.where(judged.ok, 0.0, np.inf)

    def severities(found: Mapping[str, Floats], failed: Floats) -> dict[str, Severities]:
        worst = np.max([failed, *(np.where(whom[name], value, 0.0) for name, value in found.items())], axis=0)
        by_name = {name: Severities(at_s[who], found[name][who], window.seconds, parts) for name, who in whom.items()}
        both = ((FAILED, failed), (ALL, worst))
        return by_name | {key: Severities(at_s, value, window.seconds, parts) for key, value in both}

    benefits = np.nan_to_num(benefits_by(run, times, received(tokens, times, False), PRESETS[preset]))
    benefit, _ = np.histogram(at_s, bins=parts, range=(0.0, window.seconds), weights=benefits)
    measured = LevelEvidence(
        severities=severities(found, failed),
        growth=growth_of(run, window, parts),
        tokens=verdict.token_rates(run, window, parts) * (window.seconds / parts),
        benefit=benefit,
        part_s=window.seconds / parts,
        limited=client_lateness.client_limits(run, window),
        offered_in_full=client_lateness.offered_in_full(run),
        cascading=verdict.was_cascading(run),
        service_s=service_s(judged),
        figures=figures_of(run),
    )
    if not measured.limited:
        return measured
    late = lateness_of(run, judged, window)
    own = failed_here(judged.rows)

    def at_bound(side: int) -> LevelEvidence:
        """*side* -1: with all lateness of the client removed; 1: each time at its worse bound."""
        moved = {asked.name: late.moved(found[asked.name], asked, side) for asked in wanted}
        if side < 0:
            moved = {name: np.where(own, 0.0, value) for name, value in moved.items()}
        bounded = severities(moved, np.where(own, 0.0, failed) if side < 0 else failed)
        return replace(measured, severities=bounded, growth=late.of_queue(measured.growth, len(at_s), side))

    return replace(measured, favourable=at_bound(-1), unfavourable=at_bound(1))


@dataclass(frozen=True)
class Lateness:
    """How far the client may have moved the times of requests, in ns. *sent*: the latest dispatch of all requests. Per
    request, *earliest*, *first*, *last*, *any*: the uncertainty of its first event of any kind, of the first and last event
    of the answer, and of any event; *written*: how long its write took; *gaps*: number of gaps between its tokens.
    """

    sent: int
    earliest: Numbers
    first: Numbers
    last: Numbers
    any: Numbers
    written: Numbers
    gaps: Numbers

    def moved(self, severity: Floats, asked: Objective, side: int) -> Floats:
        """*severity* with each value at its better (*side* -1) or worse (1) bound. A request that was sent late may have
        delayed others by as much; its own lag is part of that.
        """
        better, worse = (ends.astype(np.float64) for ends in self._ends(asked.metric))
        moved = severity + (worse if side > 0 else -better) / (asked.limit * 1e6)
        return np.where(np.isinf(severity), severity, np.maximum(moved, 0.0))

    def _ends(self, metric: str) -> tuple[Floats | Numbers, Floats | Numbers]:
        """By how much a value may be lower, and higher. For other metrics (sums of lateness) a late read only adds."""
        if metric in ("ttft", "ttft_sched"):
            return self.first + self.sent, self.written
        if metric == "ttft_any":
            return self.earliest + self.sent, self.written
        if metric in ("e2el", "e2el_sched"):
            return self.last + self.sent, self.written
        if metric == "tpot":
            return self.last / self.gaps, self.first / self.gaps
        if metric == "tpot_any":  # its gaps may be more than those of the answer, so each is bounded from above
            return self.last / self.gaps, self.earliest / self.gaps
        if metric in ("itl", "tbt", "tbc"):
            return self.any, self.any
        return np.full(len(self.any), np.inf), np.zeros(len(self.any))

    def of_queue(self, growth: Growth, requests: int, side: int) -> Growth:
        """*growth* if arrivals and completions within the client's lateness had fallen on the other side of the border."""
        seconds = (self.sent + int(self.last.max(initial=0))) / 1e9
        moved = 2 * requests / growth.seconds * seconds
        ramp = np.linspace(0.0, side * moved, len(growth.at_borders))
        return replace(growth, at_borders=growth.at_borders + ramp, spread=growth.spread + moved)


def lateness_of(run: Run, judged: JudgedRequests, window: Window) -> Lateness:
    """The lateness of the requests of *judged*, from the brackets of their events."""
    mine, rows = judged.times.rows, judged.rows
    early = earliest(run)
    brackets = np.zeros(len(run.rows), np.int64)
    np.maximum.at(brackets, run.events["row"], run.events["bracket_ns"].astype(np.int64))
    lags = client_lateness.dispatch_lags(run, run.rows[run.rows["phase"] == layout.MEASURE], window)
    written = np.where(rows["t_submit_start"] > 0, rows["t_submit"] - rows["t_submit_start"], 0)
    return Lateness(
        sent=max(0, int(lags.max(initial=0))),
        earliest=np.where(rows["t_any"] > 0, rows["t_any"] - early.any[mine], 0),
        first=np.where(rows["t_first"] > 0, rows["t_first"] - early.first[mine], 0),
        last=np.where(rows["t_last"] > 0, rows["t_last"] - early.last[mine], 0),
        any=brackets[mine],
        written=np.maximum(written, 0),
        gaps=np.maximum(judged.timed - 1, 1),
    )


def severity(judged: JudgedRequests, asked: Objective, result: ObjectiveOutcome) -> Floats:
    """value / limit of each request, above 1 exactly where it misses the objective; inf for one that failed."""
    scale = 1e9 if asked.metric == "reading" else asked.limit * 1e6 if asked.unit == "ms" else asked.limit
    if asked.unit == "count":
        scale = max(scale, 1.0)  # none at all may be allowed
    value = np.maximum(0.0, 1 + np.nan_to_num(result.excess / scale, nan=-1.0))
    value = np.where(result.met, np.minimum(value, 1.0), np.maximum(value, np.nextafter(1.0, 2.0)))
    unknown = ~judged.ok | (~result.met & np.isnan(result.excess))
    return np.where(unknown, np.inf, value)


def growth_of(run: Run, window: Window, parts: int) -> Growth:
    """Queue growth from the requests of the measure phase."""
    rows = run.rows[run.rows["phase"] == layout.MEASURE]
    begin = committed(rows)
    end = rows["t_end"][(begin > 0) & (rows["t_end"] > 0)]
    return growth(begin[begin > 0] - window.w0_ns, end - window.w0_ns, window.w1_ns - window.w0_ns, parts)


def growth(begin_ns: npt.NDArray[np.int64], end_ns: npt.NDArray[np.int64], length_ns: int, parts: int) -> Growth:
    """Queue growth from instants since the start of the window; requests that have not ended are only in *begin_ns*."""
    borders = np.linspace(0, length_ns, parts + 1)
    instants = np.concatenate([begin_ns, end_ns])
    order = np.lexsort((np.repeat([1, 0], [len(begin_ns), len(end_ns)]), instants))
    level = np.cumsum(np.repeat([1, -1], [len(begin_ns), len(end_ns)])[order])
    inside = level[(instants[order] >= 0) & (instants[order] < length_ns)]
    before = np.searchsorted(instants[order], borders, side="right") - 1
    at_borders = np.where(before >= 0, level[before], 0).astype(np.float64) if len(level) else np.zeros(parts + 1)
    highest, lowest = max(inside.max(initial=0), at_borders[0]), inside.min(initial=int(at_borders[0]))
    arrived, _ = np.histogram(begin_ns, bins=borders)
    seconds = length_ns / 1e9
    rate = float(arrived.sum()) / seconds
    variance = float(arrived.var(ddof=1)) * parts / seconds if parts > 1 else 0.0
    return Growth(at_borders, seconds, float(highest - lowest), min(rate, variance))


def service_s(judged: JudgedRequests) -> float | None:
    """Median time from the first token to the end: roughly how long a request takes when it does not wait."""
    rows = judged.rows[judged.ok & (judged.rows["t_first"] > 0)]
    return float(np.median(rows["t_end"] - rows["t_first"])) / 1e9 if len(rows) else None


def figures_of(run: Run) -> TrialFigures:
    """Figures of run.json for a table of levels."""

    def of(name: str, statistic: str = "value") -> float | None:
        return run.document.metric(name).least(statistic)

    return TrialFigures(
        req_s=of("req_s"),
        output_tok_s=of("output_tok_s"),
        ttft_p50_ms=of("ttft", "p50"),
        ttft_p99_ms=of("ttft", "p99"),
        tpot_p50_ms=of("tpot", "p50"),
        tpot_p99_ms=of("tpot", "p99"),
        e2e_p99_ms=of("e2e", "p99"),
        success_rate=of("success_rate"),
        smooth_goodput=of("smooth_goodput_sg_default"),
        fluid_share=of("fluid_share"),
    )
