"""What one run of a level brings to a decision: severities of its requests, growth of its queue, tokens, benefit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fastllmload.metrics.benefit import PRESETS, benefits_by, received
from fastllmload.metrics.between import committed
from fastllmload.metrics.fluidity import fluidity_of
from fastllmload.metrics.window import Window, populations, window_of
from fastllmload.procedure import verdict
from fastllmload.procedure.sequential import PARTS, Growth, Severities
from fastllmload.records import layout
from fastllmload.records.run import Run
from fastllmload.records.token_counts import count_tokens
from fastllmload.records.token_times import token_times
from fastllmload.slo.classes import subject
from fastllmload.slo.evaluators import Judged, Outcome, outcome
from fastllmload.slo.objective import Objective
from fastllmload.slo.report import judged_of

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

FAILED = "failed"  # key of the severities that are inf for a failed request and 0 for any other
ALL = "all"  # key of the worst severity over all objectives


@dataclass(frozen=True)
class Evidence:
    """One run. *severities*: by name of the objective, and FAILED, ALL. *tokens*, *benefit*: sums of equal parts of the
    window, whose *part_s* is the same for all looks at a level. *limited*: why the client was the limit. *cascading*:
    more than half of 100 requests in a row failed.
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
    figures: Mapping[str, float | None] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        return self.growth.seconds


def parts_of(seconds: float, first_look_s: float) -> int:
    """Parts of a window of *seconds*, as long as those of a first look whose window has *first_look_s*."""
    return max(1, round(PARTS * seconds / first_look_s))


def evidence_of(
    run: Run, wanted: Sequence[Objective], first_look_s: float, preset: str = "sg-default"
) -> Evidence | None:
    """Of a finished run; None where it has no window. *first_look_s*: window of the level's shortest look."""
    window = window_of(run)
    if window is None or window.seconds <= 0:
        return None
    chosen = populations(run, window)
    tokens = count_tokens(run)
    times = token_times(run, chosen.submitted, tokens)
    judged = judged_of(run, tokens, times, fluidity_of(run, tokens, times))
    parts = parts_of(window.seconds, first_look_s)
    at_s = np.maximum(committed(judged.rows) - window.w0_ns, 0) / 1e9
    whom = {asked.name: subject(asked, wanted, judged.rows["request_class"], run.manifest) for asked in wanted}
    found = {asked.name: severity(judged, asked, outcome(judged, asked)) for asked in wanted}
    failed = np.where(judged.ok, 0.0, np.inf)
    worst = np.max([failed, *(np.where(whom[name], value, 0.0) for name, value in found.items())], axis=0)
    told = {
        name: Severities(at_s[whom[name]], value[whom[name]], window.seconds, parts) for name, value in found.items()
    }
    told |= {key: Severities(at_s, value, window.seconds, parts) for key, value in ((FAILED, failed), (ALL, worst))}
    benefits = np.nan_to_num(benefits_by(run, times, received(tokens, times, False), PRESETS[preset]))
    benefit, _ = np.histogram(at_s, bins=parts, range=(0.0, window.seconds), weights=benefits)
    return Evidence(
        severities=told,
        growth=growth_of(run, window, parts),
        tokens=verdict.token_rates(run, window, parts) * (window.seconds / parts),
        benefit=benefit,
        part_s=window.seconds / parts,
        limited=verdict.client_limits(run, window),
        offered_in_full=verdict.offered_in_full(run),
        cascading=verdict.was_cascading(run),
        service_s=service_s(judged),
        figures=figures_of(run),
    )


def severity(judged: Judged, asked: Objective, result: Outcome) -> Floats:
    """value / limit of each request, above 1 exactly where it misses the objective; inf for one that failed."""
    scale = 1e9 if asked.metric == "reading" else asked.limit * (1.0 if asked.unit == "share" else 1e6)
    value = np.maximum(0.0, 1 + np.nan_to_num(result.excess / scale, nan=-1.0))
    value = np.where(result.met, np.minimum(value, 1.0), np.maximum(value, np.nextafter(1.0, 2.0)))
    unknown = ~judged.ok | (~result.met & np.isnan(result.excess))
    return np.where(unknown, np.inf, value)


def growth_of(run: Run, window: Window, parts: int) -> Growth:
    """Of the requests of the measure phase."""
    rows = run.rows[run.rows["phase"] == layout.MEASURE]
    begin = committed(rows)
    end = rows["t_end"][(begin > 0) & (rows["t_end"] > 0)]
    begin = begin[begin > 0]
    return growth(begin - window.w0_ns, end - window.w0_ns, window.w1_ns - window.w0_ns, parts)


def growth(begin_ns: npt.NDArray[np.int64], end_ns: npt.NDArray[np.int64], length_ns: int, parts: int) -> Growth:
    """From instants since the start of the window; requests that have not ended are only in *begin_ns*."""
    looks = np.linspace(0, length_ns, parts + 1)
    instants = np.concatenate([begin_ns, end_ns])
    order = np.lexsort((np.repeat([1, 0], [len(begin_ns), len(end_ns)]), instants))
    level = np.cumsum(np.repeat([1, -1], [len(begin_ns), len(end_ns)])[order])
    inside = level[(instants[order] >= 0) & (instants[order] < length_ns)]
    before = np.searchsorted(instants[order], looks, side="right") - 1
    at_borders = np.where(before >= 0, level[before], 0).astype(np.float64) if len(level) else np.zeros(parts + 1)
    highest, lowest = max(inside.max(initial=0), at_borders[0]), inside.min(initial=int(at_borders[0]))
    arrived, _ = np.histogram(begin_ns, bins=looks)
    seconds = length_ns / 1e9
    rate = float(arrived.sum()) / seconds
    variance = float(arrived.var(ddof=1)) * parts / seconds if parts > 1 else 0.0
    return Growth(at_borders, seconds, float(highest - lowest), min(rate, variance))


def service_s(judged: Judged) -> float | None:
    """Median time from the first token to the end: about what a request takes once it no longer waits."""
    rows = judged.rows[judged.ok & (judged.rows["t_first"] > 0)]
    return float(np.median(rows["t_end"] - rows["t_first"])) / 1e9 if len(rows) else None


def figures_of(run: Run) -> dict[str, float | None]:
    """Figures of run.json that a table of levels shows."""
    metrics = run.metrics

    def of(name: str, statistic: str = "value") -> float | None:
        value = (metrics.get(name) or {}).get(statistic)
        return None if value is None else float(value)

    return {
        "req_s": of("req_s"),
        "output_tok_s": of("output_tok_s"),
        "ttft_p50_ms": of("ttft", "p50"),
        "ttft_p99_ms": of("ttft", "p99"),
        "tpot_p50_ms": of("tpot", "p50"),
        "tpot_p99_ms": of("tpot", "p99"),
        "e2e_p99_ms": of("e2e", "p99"),
        "success_rate": of("success_rate"),
        "smooth_goodput": of("smooth_goodput_sg_default"),
        "fluid_share": of("fluid_share"),
    }
