"""Figures of sessions: how long they take, where the time goes, and how many end well.

A session is the independent unit: each gives one value, whatever the number of its calls. Makespan: from the first send to
the last byte of the last call that something waits for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from fastllmload.arrays import Floats, Mask, Numbers, Rows, Values
from fastllmload.documents.fields import Number, known
from fastllmload.documents.metric import Distribution, Metric
from fastllmload.documents.run_parts.sessions import BlockHits, CallGroup, PathShares, SessionFigures, SessionObjective
from fastllmload.errors import InputError
from fastllmload.metrics.distribution.percentiles import NAMED
from fastllmload.metrics.distribution.summary import distribution, estimated
from fastllmload.metrics.distribution.summary import known as has_value
from fastllmload.metrics.objectives.objective import Objective, objectives_of
from fastllmload.metrics.request.action import UNKNOWN, first_call_ns
from fastllmload.metrics.request.durations import ttft
from fastllmload.metrics.run.block_hits import block_hits
from fastllmload.metrics.run.conversations import conversing
from fastllmload.metrics.run.sent_calls import PARTS, SentCalls, critical_path, recorded_ns, sent_calls, sent_ns
from fastllmload.metrics.run.throughput import amounts_by_stretch, per_second
from fastllmload.metrics.run.window import Populations, Window
from fastllmload.plan.plan import Plan
from fastllmload.records import layout
from fastllmload.records.run import Run
from fastllmload.statistics.interval import Estimate, rate_interval
from fastllmload.statistics.kaplan_meier import survival
from fastllmload.workload.graph import WaitKind

MOST_TURNS = 32


def sessions_block(
    run: Run, window: Window | None, chosen: Populations, good: Mask | None
) -> tuple[SessionFigures | None, dict[str, Metric]]:
    """`sessions` of run.json and its part of `metrics`; nothing without sessions. *good*: rows that meet all objectives."""
    calls = None if window is None else measured_calls(run, chosen)
    if calls is None or window is None:
        return None, {}
    limits = [one for one in asked_objectives(run) if one.of_sessions]
    finished = completed(run, calls, window, from_the_first_call(run, calls))
    judged = Judged.of(calls, finished, good, limits)
    found = figures(window, calls, chosen, from_the_first_call(run, calls), finished, judged)
    found = replace(found, cache=cache_of(run, chosen))
    return found, session_metrics(found, rate_estimates(window, calls, finished, judged))


def measured_calls(run: Run, chosen: Populations) -> SentCalls | None:
    return sent_calls(run, chosen.measured & conversing(run) & (run.rows["t_dispatch"] > 0))


def from_the_first_call(run: Run, calls: SentCalls) -> Mask:
    """Which sessions were not under way at time zero."""
    begun = run.document.plan.description.begun_classes
    return calls.entire if begun else np.ones(len(calls.planned), np.bool_)


def asked_objectives(run: Run) -> tuple[Objective, ...]:
    """Those of --goodput; none where this version does not know one of them."""
    try:
        return objectives_of(run.document.config.output.goodput)
    except InputError:
        return ()


def cache_of(run: Run, chosen: Populations) -> BlockHits | None:
    """`sessions.cache`: of plans that state an ideal hit rate."""
    described = run.document.plan.description
    facts = described.conversations if described.workload.sessions is None else described.workload.sessions
    if facts is None or facts.ideal is None:
        return None
    sent = chosen.measured & (run.rows["t_dispatch"] > 0)
    counted = np.flatnonzero(chosen.latency[sent])
    plan = Plan.read_record(run.directory / "plan")
    return block_hits(plan, run.rows[sent], counted, int(known(facts.ideal.block_tokens) or 0))


@dataclass(frozen=True)
class Completed:
    """Sessions that were sent from their first call on, in the window, and of which all calls were ok: by their begin.

    *number* among the sent ones; in ns *makespan*, *model_time* and *tool_time* of its longest chain, *first_action* (NaN:
    none, or not known); *stretch*: NaN where a service time is not recorded; *paths*: ns of PARTS. *ended*: the end of every
    session in the run whose calls were all ok.
    """

    number: Numbers
    makespan: Numbers
    stretch: Floats
    first_action: Floats
    paths: Floats
    ended: Numbers

    @property
    def lasting_s(self) -> float:
        """Mean makespan; 0 without any session."""
        return float(self.makespan.mean()) / 1e9 if len(self.makespan) else 0.0

    @property
    def model_time(self) -> Numbers:
        return whole_ns(self.paths[:, 0] + self.paths[:, 1])

    @property
    def tool_time(self) -> Numbers:
        return whole_ns(self.paths[:, PARTS.index("tool")])

    @property
    def values(self) -> dict[str, Values]:
        """The metrics of OF_SESSIONS, by session."""
        return {
            "session_makespan": self.makespan,
            "session_stretch": self.stretch,
            "session_first_action": self.first_action,
            "session_model_time": self.model_time,
            "session_tool_time": self.tool_time,
        }


def completed(run: Run, calls: SentCalls, window: Window, begun: Mask) -> Completed:
    end = calls.most(np.where(calls.call["background"] == 0, calls.rows["t_end"], 0))
    complete = calls.total(calls.rows["status"] == layout.OK) == calls.planned
    done = np.flatnonzero(window.holds(calls.begin) & begun & complete)
    done = done[np.argsort(calls.begin[done], kind="stable")]
    makespan = (end - calls.begin)[done]
    paths = np.array([critical_path(calls, int(one)) for one in done], np.float64).reshape(-1, len(PARTS))
    recorded = np.array([recorded_ns(calls, int(one)) for one in done], np.float64)
    acted = first_actions(calls, first_call_ns(run)[calls.at])[done]
    return Completed(done, makespan, makespan / recorded, acted, paths, end[complete])


def first_actions(calls: SentCalls, called_ns: Numbers) -> Floats:
    """ns from the first send of each session to its first action; NaN without one, or where it is not known. *called_ns*:
    the first event of a tool call in each reply (`action.first_call_ns`).

    A reply acts with the first event of a tool call. Without one it acts at its end if a tool or another agent follows it in
    the plan, else with its first answer token.
    """
    acts = np.isin(calls.call["kind"], (WaitKind.TOOL, WaitKind.AGENT)) & (calls.cause >= 0) & ~calls.from_start
    followed = np.zeros(len(calls.rows), np.bool_)
    followed[calls.cause[acts]] = True
    without = np.where(followed, calls.rows["t_end"], calls.rows["t_first"])
    at = np.where(called_ns == 0, without, called_ns).astype(np.float64)
    at[at == 0] = np.inf
    at[called_ns == UNKNOWN] = np.nan
    found: Floats = np.minimum.reduceat(at, calls.first[:-1]) - calls.begin
    return np.where(np.isfinite(found), found, np.nan)


@dataclass(frozen=True)
class Judged:
    """Which of the completed sessions meet each of the *limits* of sessions; *met*: all objectives, None without any."""

    limits: Sequence[Objective]
    within: list[Mask]
    met: Mask | None

    @classmethod
    def of(cls, calls: SentCalls, finished: Completed, good: Mask | None, limits: Sequence[Objective]) -> Judged:
        within = [
            finished.values[one.metric] <= (round(one.limit * 1e6) if one.unit == "ms" else one.limit) for one in limits
        ]
        if good is None and not limits:
            return cls(limits, within, None)
        every = np.ones(len(finished.number), np.bool_)
        if good is not None:
            every = (calls.total(good[calls.at]) == calls.planned)[finished.number]
        return cls(limits, within, np.logical_and.reduce([every, *within]))


def counted_sessions(window: Window, calls: SentCalls, finished: Completed, judged: Judged) -> dict[str, Floats]:
    """By rate, how many sessions count in each twentieth of the window: those that ended in it, or (met) began."""
    instants = {"sessions_s": finished.ended}
    if judged.met is not None:
        instants["session_goodput"] = calls.begin[finished.number[judged.met]]
    return {name: amounts_by_stretch(t_ns, np.ones(len(t_ns)), window) for name, t_ns in instants.items()}


def rate_estimates(window: Window, calls: SentCalls, finished: Completed, judged: Judged) -> dict[str, Estimate]:
    """Intervals of rates of sessions, from twentieths of the window."""
    if window.seconds <= 0 or not len(finished.makespan):
        return {}
    counted = counted_sessions(window, calls, finished, judged)
    return {name: rate_interval(each, window.seconds, finished.lasting_s) for name, each in counted.items()}


def session_metrics(found: SessionFigures, rates: Mapping[str, Estimate]) -> dict[str, Metric]:
    """`metrics` of run.json: of sessions."""
    return {
        "session_makespan": found.makespan,
        "session_stretch": found.stretch,
        "session_first_action": found.first_action,
        "session_model_time": found.model_time,
        "session_tool_time": found.tool_time,
        "sessions_s": estimated(known(found.completed_per_s), "sessions/s", rates.get("sessions_s")),
        "session_goodput": estimated(known(found.goodput), "sessions/s", rates.get("session_goodput")),
    }


def figures(
    window: Window, calls: SentCalls, chosen: Populations, begun: Mask, finished: Completed, judged: Judged
) -> SessionFigures:
    """*begun*: sessions that were not under way at time zero; those that were count in rates and groups alone."""
    rows, planned, sent, begin = calls.rows, calls.planned, np.diff(calls.first), calls.begin
    ok = rows["status"] == layout.OK
    cut = (rows["status"] == layout.IN_FLIGHT) | (rows["error"] == layout.ERROR_NAMES.index("drain"))
    bad = calls.total(~ok & ~cut)
    inside = window.holds(begin) & begun
    complete = calls.total(ok) == planned
    failed, unfinished = inside & ~complete & (bad > 0), inside & ~complete & (bad == 0)
    done, makespan = finished.number, finished.makespan
    tools = np.where(calls.call["kind"] == WaitKind.TOOL, calls.wait_ns, 0)
    met = None if judged.met is None else int(judged.met.sum())
    ended = float(window.holds(finished.ended).sum())
    return SessionFigures(
        begun=int(inside.sum()),
        under_way=None if begun.all() else int((~begun).sum()),
        completed=len(done),
        failed=int(failed.sum()),
        unfinished=int(unfinished.sum()),
        calls_planned=int(planned[inside].sum()),
        calls_sent=int(sent[inside].sum()),
        calls_failed=int(bad[inside].sum()),
        calls_cancelled=int((planned - sent)[failed].sum()),
        completed_per_s=per_second(ended, window.seconds),
        met=met,
        goodput=None if met is None else per_second(float(met), window.seconds),
        objectives=tuple(
            SessionObjective(objective=one.name, limit=one.limit, unit=one.unit, met=int(each.sum()))
            for one, each in zip(judged.limits, judged.within, strict=True)
        ),
        makespan=of_sessions(makespan, "ms"),
        makespan_with_unfinished=with_unfinished(calls, makespan, np.flatnonzero(unfinished)),
        model_time=of_sessions(finished.model_time, "ms"),
        tool_time=of_sessions(finished.tool_time, "ms"),
        tool_time_all=of_sessions(calls.total(tools)[done], "ms"),
        stretch=of_sessions(finished.stretch, ""),
        first_action=of_sessions(finished.first_action, "ms"),
        calls=of_sessions(planned[done].astype(np.float64), "calls"),
        agents=of_sessions(calls.most(calls.call["chain"])[done] + 1.0, "agents"),
        depth=of_sessions(calls.most(calls.call["depth"])[done].astype(np.float64), "levels"),
        in_flight=of_sessions(most_in_flight(calls)[done].astype(np.float64), "calls"),
        critical_path=shares(finished.paths),
        turns=groups(calls, chosen, "turn")[:MOST_TURNS],
        depths=groups(calls, chosen, "depth"),
        caveat=short(makespan, window, int(unfinished.sum())),
    )


def of_sessions(values: Values, unit: str) -> Distribution:
    return distribution(values, unit, of_sessions=True)


def whole_ns(values: Floats) -> Numbers:
    return np.rint(values).astype(np.int64)


def with_unfinished(calls: SentCalls, makespan: Numbers, unfinished: Numbers) -> dict[str, Number]:
    """Percentiles in ms; a session that was cut off lasted at least until its latest record."""
    if not len(unfinished):
        return {}
    seen = calls.most(np.maximum(calls.rows["t_end"], calls.rows["t_dispatch"]))
    times = np.concatenate([makespan, (seen - calls.begin)[unfinished]])
    curve = survival(times, np.arange(len(times)) < len(makespan))
    return {name: None if (ns := curve.percentile(q)) is None else ns / 1e6 for name, q in NAMED.items()}


def most_in_flight(calls: SentCalls) -> Numbers:
    """Most calls of each session at once."""
    session = calls.session
    t_ns = np.concatenate([sent_ns(calls.rows), np.maximum(calls.rows["t_end"], sent_ns(calls.rows))])
    change = np.repeat([1, -1], len(session))
    order = np.lexsort((change, t_ns, np.tile(session, 2)))
    total = np.cumsum(change[order])  # each session ends at 0
    found: Numbers = np.maximum.reduceat(total, 2 * calls.first[:-1])
    return found


def shares(parts: Floats) -> PathShares | None:
    total = float(parts.sum())
    if total <= 0:
        return None
    return PathShares(**{name: float(ns) / total for name, ns in zip(PARTS, parts.sum(axis=0), strict=True)})


def groups(calls: SentCalls, chosen: Populations, name: str) -> tuple[CallGroup, ...]:
    """Figures by turn or depth, of the latency population. Sessions come by their begin, and each is one observation."""
    counted = chosen.latency[calls.at]
    by_begin = np.lexsort((np.arange(len(counted)), np.repeat(calls.begin, np.diff(calls.first))))
    session, rows, numbers = calls.session[by_begin], calls.rows[by_begin], calls.call[name][by_begin]
    found = []
    for one in np.unique(numbers[counted[by_begin]]):
        mine = counted[by_begin] & (numbers == one)
        found.append(group(rows[mine], session[mine], int(one)))
    return tuple(found)


def group(rows: Rows, session: Numbers, number: int) -> CallGroup:
    reported = rows[rows["prompt_tokens"] > 0]
    cached = reported[reported["cached_tokens"] >= 0]
    share = float(cached["cached_tokens"].sum() / cached["prompt_tokens"].sum()) if len(cached) else None
    waits = ttft(rows)
    there = has_value(waits)
    first = np.append(np.flatnonzero(np.diff(session[there], prepend=-1)), int(there.sum()))
    return CallGroup(
        number=number,
        requests=len(rows),
        ttft=distribution(waits[there], "ms", int((~there).sum()), first, of_sessions=True),
        prompt_tokens_mean=float(reported["prompt_tokens"].mean()) if len(reported) else None,
        cached_share=share,
    )


def short(makespan: Numbers, window: Window, unfinished: int) -> str | None:
    """A sentence where long sessions could not end in the window, so that the completed ones are the shorter ones."""
    longest = float(makespan.max(initial=0)) / 1e9
    if not unfinished or longest * 2 < window.seconds:
        return None
    return (
        f"{unfinished} sessions were cut off and the longest that was completed took {longest:.3g} s of a window of "
        f"{window.seconds:.3g} s: completed sessions are the shorter ones"
    )
