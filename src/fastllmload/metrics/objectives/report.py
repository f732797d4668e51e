"""Computes `slo` of run.json: who met or missed each objective, and by how much; goodput and attainment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from fastllmload.arrays import Mask, Numbers, Values
from fastllmload.documents.fields import known
from fastllmload.documents.metric import Metric
from fastllmload.documents.run_parts.objectives import ClassObjectives, ObjectiveResult, Objectives, WorstRequest
from fastllmload.errors import InputError
from fastllmload.metrics.distribution.summary import distribution, number
from fastllmload.metrics.objectives.evaluators import (
    METRICS,
    OF_SESSIONS,
    JudgedRequests,
    ObjectiveOutcome,
    evaluator,
    outcome,
)
from fastllmload.metrics.objectives.objective import Objective, class_name, class_number, of_requests, subject
from fastllmload.metrics.request.action import called, ttfa
from fastllmload.metrics.run.throughput import TimeBase, per_second
from fastllmload.metrics.tokens.counts import TokenCounts, count_tokens
from fastllmload.metrics.tokens.fluidity import Fluidity, fluidity_of, targets_of
from fastllmload.metrics.tokens.idle import reader_of
from fastllmload.metrics.tokens.times import TokenTimes, token_times
from fastllmload.records.run import RowNames, Run


def request_goodput(slo_ok: Mask, seconds: float | None) -> float | None:
    """Requests with slo_ok per second of the time base (SG 2.3)."""
    return per_second(float(np.count_nonzero(slo_ok)), seconds)


def token_goodput(slo_ok: Mask, n_r: Numbers, seconds: float | None) -> float | None:
    """Content tokens of the requests with slo_ok per second of the time base (SG eq. 5); unknown counts add nothing."""
    return per_second(float(np.maximum(n_r[slo_ok], 0).sum()), seconds)


def slo_attainment(slo_ok: Mask) -> float | None:
    """Share of all submitted requests with slo_ok; None when none was submitted."""
    return float(np.count_nonzero(slo_ok)) / len(slo_ok) if len(slo_ok) else None


WORST = 20  # requests that are named per objective


def slo_ok(run: Run, chosen: Mask, limits: Mapping[str, float]) -> Mask:
    """Which of the rows in *chosen* are ok and meet all *limits*: `[CLASS/]NAME` -> limit, in the unit of its metric.

    One item per chosen row. InputError for an unknown name.
    """
    wanted = of_requests(limits.items())
    tokens = count_tokens(run)
    times = token_times(run, chosen, tokens)
    judged = judged_of(run, tokens, times, fluidity_of(run, tokens, times))
    return meeting(run, wanted, judged, [outcome(judged, asked.metric, asked.limit) for asked in wanted])


def judged_of(run: Run, tokens: TokenCounts, times: TokenTimes, fluid: Fluidity) -> JudgedRequests:
    """The requests of *times*, with the reader of the run."""
    timed, output = tokens.timed[times.rows], tokens.output[times.rows]
    rows = run.rows[times.rows]
    acted = ttfa(run, times.rows) if called(rows) else None
    return JudgedRequests(rows, timed, output, times, fluid, reader_of(run.document.config.output), acted)


def titled_metrics(judged: JudgedRequests, chosen: Mask) -> dict[str, Metric]:
    """`metrics` of run.json: the METRICS with a title, over the judged requests whose rows are *chosen*."""
    return {
        name: replace(distribution(metric.value(judged)[chosen[judged.times.rows]], metric.unit), title=metric.title)
        for name, metric in METRICS.items()
        if metric.title
    }


def meeting(run: Run, wanted: Sequence[Objective], judged: JudgedRequests, found: Sequence[ObjectiveOutcome]) -> Mask:
    """Requests that are ok and meet every objective that applies to them."""
    ok = judged.ok
    for asked, result in zip(wanted, found, strict=True):
        ok = ok & (result.met | ~subject(asked, wanted, judged.rows["request_class"], run.document))
    return ok


def meeting_all(run: Run, tokens: TokenCounts, times: TokenTimes, fluid: Fluidity) -> Mask | None:
    """Rows of the run that are ok and meet every objective of --goodput; None without objectives, or with unknown ones."""
    asked = run.document.config.output.goodput
    try:
        wanted = of_requests(asked) if asked else ()
    except InputError:
        return None
    if not wanted:
        return None
    judged = judged_of(run, tokens, times, fluid)
    found = np.zeros(len(run.rows), np.bool_)
    found[times.rows] = meeting(run, wanted, judged, [outcome(judged, one.metric, one.limit) for one in wanted])
    return found


def objectives(
    run: Run,
    base: TimeBase,
    tokens: TokenCounts,
    times: TokenTimes,
    fluid: Fluidity,
    n_r: Numbers,
    smooth: Mapping[str, float | None],
) -> Objectives | None:
    """Judge the submitted requests, which all have *times*, by the objectives of --goodput; None without any of requests.

    *n_r*: content tokens that each received; *smooth*: smooth goodput by preset. An objective that this version does
    not know leaves all figures null.
    """
    asked = run.document.config.output.goodput
    if not asked:
        return None
    try:
        wanted = of_requests(asked)
    except InputError as problem:
        found = Objectives(problem=str(problem))
    else:
        if not wanted:
            return None
        found = judge(run, wanted, judged_of(run, tokens, times, fluid), n_r, base.seconds)
    return replace(
        found,
        objectives_ms={name: limit for name, limit in asked if name not in OF_SESSIONS},
        smooth_goodput=dict(smooth),
        time_base=base.name,
        seconds=base.seconds,
    )


def judge(
    run: Run, wanted: Sequence[Objective], judged: JudgedRequests, n_r: Numbers, seconds: float | None
) -> Objectives:
    """Who met the objectives. A request whose class has no objective meets all when it is ok."""
    results = [outcome(judged, asked.metric, asked.limit) for asked in wanted]
    ok = meeting(run, wanted, judged, results)
    classes = judged.rows["request_class"]
    found = tuple(
        one_objective(run, asked, judged, result, subject(asked, wanted, classes, run.document))
        for asked, result in zip(wanted, results, strict=True)
    )
    return Objectives(
        evaluator=evaluator({asked.metric for asked in wanted}),
        met=int(ok.sum()),
        submitted=len(ok),
        slo_attainment=slo_attainment(ok),
        request_goodput=request_goodput(ok, seconds),
        token_goodput=token_goodput(ok, n_r, seconds),
        each={asked.name: each.met for asked, each in zip(wanted, found, strict=True)},
        objectives=found,
        classes=by_class(run, classes, ok),
    )


def with_bounds(found: Objectives, among: int, beyond: int) -> Objectives:
    """*found* with `unfinished` and `slo_attainment_bounds`: as if none, or all, of the unfinished requests had met the
    objectives. *among*: those in `submitted`, counted as failed; *beyond*: in flight when the run was killed, not in it.
    """
    submitted, met = known(found.submitted), known(found.met)
    if submitted is None or met is None or not among + beyond:
        return found
    every = submitted + beyond
    ends = (met / every, (met + among + beyond) / every)
    return replace(found, unfinished=among + beyond, slo_attainment_bounds=ends)


def one_objective(
    run: Run, asked: Objective, judged: JudgedRequests, result: ObjectiveOutcome, whom: Mask
) -> ObjectiveResult:
    """How many met and missed it, or failed, and by how much; names the worst requests first."""
    late, failed = whom & judged.ok & ~result.met, whom & ~judged.ok
    met, unit = int((whom & result.met).sum()), asked.unit if asked.unit in ("share", "count") else "ms"
    scale = 1e6 if unit == "ms" else 1.0
    names = RowNames(run.document)
    beyond = np.nan_to_num(result.excess[late], nan=np.inf)  # a missing value is the worst
    by_excess = np.flatnonzero(late)[np.argsort(-beyond, kind="stable")][:WORST]
    unknown = asked.request_class is not None and class_number(asked.request_class, run.document) is None
    found = ObjectiveResult(
        objective=asked.name,
        metric=asked.metric,
        class_=asked.request_class,
        limit=asked.limit,
        unit=asked.unit,
        submitted=int(whom.sum()),
        met=met,
        attainment=slo_attainment(result.met[whom]),
        missed=int(late.sum()),
        failed=int(failed.sum()),
        excess=distribution(np.where(late, result.excess, np.nan)[late], unit),
        worst=tuple(
            WorstRequest(request_id=names.request_id(judged.rows[k]), excess=number(result.excess[k] / scale))
            for k in by_excess
        ),
        failed_requests=tuple(names.request_id(judged.rows[k]) for k in np.flatnonzero(failed)[:WORST]),
        problem=f"the plan has no class {asked.request_class!r}" if unknown else None,
    )
    # Other settings that the outcome depends on.
    if asked.metric == "fluidity":
        return replace(found, **targets_of(run.document.config.output).described())
    return replace(found, **reader_of(run.document.config.output).described()) if asked.metric == "idle" else found


def by_class(run: Run, classes: Values, ok: Mask) -> dict[str, ClassObjectives]:
    return {
        class_name(int(number), run.document): ClassObjectives(
            met=int(ok[classes == number].sum()),
            submitted=int((classes == number).sum()),
            slo_attainment=slo_attainment(ok[classes == number]),
        )
        for number in np.unique(classes)
    }
