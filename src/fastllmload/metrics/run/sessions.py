"""Figures of sessions: how long they take, where the time goes, and how many end well.

A session is the independent unit: each gives one value, whatever the number of its calls. Makespan: from the first send to
the last byte of the last call that something waits for. The critical path is walked back from that call: before each call
lies the wait, and before that the reply (or the start) that made it due.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from fastllmload.arrays import Floats, Mask, Numbers, Rows, Values
from fastllmload.documents.fields import Number, known
from fastllmload.documents.metric import Metric
from fastllmload.documents.run_parts.sessions import BlockHits, CallGroup, PathShares, SessionFigures, SessionObjective
from fastllmload.errors import InputError, RunFolderError
from fastllmload.metrics.distribution.percentiles import NAMED
from fastllmload.metrics.distribution.summary import distribution
from fastllmload.metrics.objectives.objective import Objective, objectives_of
from fastllmload.metrics.request.action import UNKNOWN, first_call_ns
from fastllmload.metrics.request.durations import ttft
from fastllmload.metrics.run.block_hits import block_hits
from fastllmload.metrics.run.conversations import conversing
from fastllmload.metrics.run.throughput import per_second
from fastllmload.metrics.run.window import Populations, Window
from fastllmload.plan.plan import EDGE_START, Plan
from fastllmload.records import layout
from fastllmload.records.run import Run
from fastllmload.statistics.kaplan_meier import survival
from fastllmload.workload.graph import WaitKind

MOST_TURNS = 32
WAITS = {WaitKind.TOOL: "tool", WaitKind.USER: "user", WaitKind.AGENT: "agent", WaitKind.UNKNOWN: "unknown"}
PARTS = ("prefill", "decode", *WAITS.values(), "client")


@dataclass(frozen=True)
class SentCalls:
    """Calls that were sent, by session and in the order of the plan. *rows* of the run; *call*: CALL items; *first*: of each
    session (S + 1); *planned*: calls of each session in the plan (S).

    *cause*: position of the call whose end (or instant, where *from_start*) made a call due, -1 for the first ones;
    *wait_ns* from then on.
    """

    rows: Rows
    at: Numbers  # in run.rows
    call: npt.NDArray[np.void]
    first: Numbers
    planned: Numbers
    cause: Numbers
    from_start: Mask
    wait_ns: Numbers

    @property
    def entire(self) -> Mask:
        """Whether a session was sent from its first call on."""
        first = self.call[self.first[:-1]]
        found: Mask = (first["turn"] == 0) & (first["chain"] == 0)
        return found

    @property
    def session(self) -> Numbers:
        return np.repeat(np.arange(len(self.planned)), np.diff(self.first))

    @property
    def begin(self) -> Numbers:
        """First send of each session."""
        return np.minimum.reduceat(sent_ns(self.rows), self.first[:-1])

    def total(self, values: npt.NDArray[Any]) -> Numbers:
        """Sum over the calls of each session."""
        return np.add.reduceat(values.astype(np.int64), self.first[:-1])

    def most(self, values: npt.NDArray[Any]) -> Numbers:
        return np.maximum.reduceat(values.astype(np.int64), self.first[:-1])


def sessions_block(run: Run, window: Window | None, chosen: Populations, good: Mask | None) -> SessionFigures | None:
    """`sessions` of run.json; None without sessions. *good*: rows that meet all objectives."""
    if window is None:
        return None
    calls = measured_calls(run, chosen)
    if calls is None:
        return None
    limits = [one for one in asked_objectives(run) if one.of_sessions]
    finished = completed(run, calls, window, from_the_first_call(run, calls))
    found = figures(window, calls, chosen, good, from_the_first_call(run, calls), finished, limits)
    return replace(found, cache=cache_of(run, chosen))


def measured_calls(run: Run, chosen: Populations) -> SentCalls | None:
    return sent_calls(run, chosen.measured & conversing(run) & (run.rows["t_dispatch"] > 0))


def from_the_first_call(run: Run, calls: SentCalls) -> Mask:
    """Which sessions were not under way at time zero."""
    facts = run.document.plan.description.workload.sessions
    return np.ones(len(calls.planned), np.bool_) if facts is None or facts.start is None else calls.entire


def asked_objectives(run: Run) -> tuple[Objective, ...]:
    """Those of --goodput; none where this version does not know one of them."""
    try:
        return objectives_of(run.document.config.output.goodput)
    except InputError:
        return ()


def cache_of(run: Run, chosen: Populations) -> BlockHits | None:
    """`sessions.cache`: of plans that state an ideal hit rate."""
    facts = run.document.plan.description.workload.sessions
    if facts is None or facts.ideal is None:
        return None
    sent = chosen.measured & (run.rows["t_dispatch"] > 0)
    counted = np.flatnonzero(chosen.latency[sent])
    plan = Plan.read_record(run.directory / "plan")
    return block_hits(plan, run.rows[sent], counted, int(known(facts.ideal.block_tokens) or 0))


def sent_calls(run: Run, sent: Mask) -> SentCalls | None:
    """The calls of the rows *sent*; None where the plan has no sessions, or its record is lost."""
    try:
        plan = Plan.read_record(run.directory / "plan")
    except RunFolderError:
        return None
    at = np.flatnonzero(sent)
    if plan.calls is None or not len(plan.calls) or not len(at):
        return None
    of_plan, size = np.asarray(plan.calls), len(plan.calls)
    request = run.rows["request"][at].astype(np.int64)
    number = of_plan["session"][request % size].astype(np.int64) + request // size * (int(of_plan["session"].max()) + 1)
    order = np.lexsort((request, number))
    at, request, number = at[order], request[order], number[order]
    rows = run.rows[at]
    first = np.append(np.flatnonzero(np.diff(number, prepend=-1)), len(number))
    planned = np.bincount(of_plan["session"])[of_plan["session"][request[first[:-1]] % size]]
    cause, from_start, wait_ns = causes(plan, of_plan, rows, request, size)
    return SentCalls(rows, at, of_plan[request % size], first, planned, cause, from_start, wait_ns)


def causes(
    plan: Plan, of_plan: npt.NDArray[np.void], rows: Rows, request: Numbers, size: int
) -> tuple[Numbers, Mask, Numbers]:
    """What made each call due: the latest of the instants that it waits for."""
    if plan.edges is None:
        source = np.flatnonzero(of_plan["session"][1:] == of_plan["session"][:-1])
        target, wait, start = source + 1, np.zeros(len(source), np.int64), np.zeros(len(source), np.bool_)
    else:
        source, target = plan.edges["source"].astype(np.int64), plan.edges["target"].astype(np.int64)
        wait, start = np.asarray(plan.edges["wait_ns"]), (plan.edges["flags"] & EDGE_START) > 0
    by_target = np.argsort(target, kind="stable")
    many = np.bincount(target, minlength=size)
    begins = np.cumsum(many) - many
    planned = request % size
    place = np.repeat(np.arange(len(request)), many[planned])
    inside = np.arange(len(place)) - np.repeat(np.cumsum(many[planned]) - many[planned], many[planned])
    edge = by_target[np.repeat(begins[planned], many[planned]) + inside]
    wanted = source[edge] + (request[place] - planned[place])
    sorter = np.argsort(request, kind="stable")
    found = np.minimum(np.searchsorted(request, wanted, sorter=sorter), len(request) - 1)
    there = request[sorter[found]] == wanted
    place, edge, row = place[there], edge[there], sorter[found[there]]
    event = np.where(start[edge], rows["t_sched"][row], rows["t_end"][row]) + wait[edge]
    last = np.lexsort((event, place))  # of several assignments to one item the last counts
    cause, from_start = np.full(len(request), -1, np.int64), np.zeros(len(request), np.bool_)
    cause[place[last]], from_start[place[last]] = row[last], start[edge[last]]
    caused = np.where(from_start, rows["t_sched"][cause], rows["t_end"][cause])
    return cause, from_start, np.where(cause >= 0, rows["t_sched"] - caused, 0)


def sent_ns(rows: Rows) -> Numbers:
    return np.where(rows["t_submit"] > 0, rows["t_submit"], rows["t_dispatch"])


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


def session_metrics(found: SessionFigures | None) -> dict[str, Metric]:
    """`metrics` of run.json: of sessions, where there are any."""
    if found is None:
        return {}
    return {
        "session_makespan": found.makespan,
        "session_stretch": found.stretch,
        "session_first_action": found.first_action,
        "session_model_time": found.model_time,
        "session_tool_time": found.tool_time,
        "sessions_s": Metric(value=found.completed_per_s, unit="sessions/s"),
        "session_goodput": Metric(value=found.goodput, unit="sessions/s"),
    }


def figures(
    window: Window, calls: SentCalls, chosen: Populations, good: Mask | None, begun: Mask, finished: Completed,
    limits: Sequence[Objective],
) -> SessionFigures:  # fmt: skip
    """*begun*: sessions that were not under way at time zero; those that were count in rates and groups alone. *limits* of
    sessions.
    """
    rows, planned, sent, begin = calls.rows, calls.planned, np.diff(calls.first), calls.begin
    ok = rows["status"] == layout.OK
    cut = (rows["status"] == layout.IN_FLIGHT) | (rows["error"] == layout.ERROR_NAMES.index("drain"))
    bad = calls.total(~ok & ~cut)
    inside = window.holds(begin) & begun
    complete = calls.total(ok) == planned
    failed, unfinished = inside & ~complete & (bad > 0), inside & ~complete & (bad == 0)
    done, makespan = finished.number, finished.makespan
    tools = np.where(calls.call["kind"] == WaitKind.TOOL, calls.wait_ns, 0)
    within = {
        one: finished.values[one.metric] <= (round(one.limit * 1e6) if one.unit == "ms" else one.limit)
        for one in limits
    }
    every = np.ones(len(done), np.bool_) if good is None else (calls.total(good[calls.at]) == planned)[done]
    met = None if good is None and not limits else int(np.logical_and.reduce([every, *within.values()]).sum())
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
            for one, each in within.items()
        ),
        makespan=distribution(makespan, "ms"),
        makespan_with_unfinished=with_unfinished(calls, makespan, np.flatnonzero(unfinished)),
        model_time=distribution(finished.model_time, "ms"),
        tool_time=distribution(finished.tool_time, "ms"),
        tool_time_all=distribution(calls.total(tools)[done], "ms"),
        stretch=distribution(finished.stretch, ""),
        first_action=distribution(finished.first_action, "ms"),
        calls=distribution(planned[done].astype(np.float64), "calls"),
        agents=distribution(calls.most(calls.call["chain"])[done] + 1.0, "agents"),
        depth=distribution(calls.most(calls.call["depth"])[done].astype(np.float64), "levels"),
        in_flight=distribution(most_in_flight(calls)[done].astype(np.float64), "calls"),
        critical_path=shares(finished.paths),
        turns=groups(calls, chosen, "turn")[:MOST_TURNS],
        depths=groups(calls, chosen, "depth"),
        caveat=short(makespan, window, int(unfinished.sum())),
    )


def whole_ns(values: Floats) -> Numbers:
    return np.rint(values).astype(np.int64)


def critical_path(calls: SentCalls, session: int) -> list[float]:
    """ns of PARTS on the chain that ends with the session's last call in the foreground."""
    low, high = int(calls.first[session]), int(calls.first[session + 1])
    rows, call = calls.rows, calls.call
    ends = np.where(call["background"][low:high] == 0, rows["t_end"][low:high], 0)
    found = dict.fromkeys(PARTS, 0.0)
    place, from_start = low + int(np.argmax(ends)), False
    while place >= 0:
        row = rows[place]
        begun, until = int(sent_ns(rows[place : place + 1])[0]), int(row["t_end"])
        if not from_start:
            token = int(row["t_any"]) if row["t_any"] else until
            found["prefill"] += token - begun
            found["decode"] += until - token
            found["client"] += begun - int(row["t_sched"])
        found[WAITS[WaitKind(call["kind"][place])]] += int(calls.wait_ns[place])
        from_start, place = bool(calls.from_start[place]), int(calls.cause[place])
    return list(found.values())


def recorded_ns(calls: SentCalls, session: int) -> float:
    """The makespan of a session with the recorded service times, and with the waits of this run, which --trace-speed has
    divided; NaN where a service time is unknown. A call that waits for nothing begins at its own instant.
    """
    low, high = int(calls.first[session]), int(calls.first[session + 1])
    service = calls.call["service_s"][low:high] * 1e9
    if np.isnan(service).any():
        return float("nan")
    due = calls.rows["t_sched"][low:high]
    begins = (due - due.min()).astype(np.float64).tolist()
    ends = [0.0] * (high - low)
    for number in range(high - low):
        cause = int(calls.cause[low + number]) - low
        if cause >= 0:
            base = begins[cause] if calls.from_start[low + number] else ends[cause]
            begins[number] = base + float(calls.wait_ns[low + number])
        ends[number] = begins[number] + float(service[number])
    foreground = calls.call["background"][low:high] == 0
    longest = max(end for end, waited in zip(ends, foreground, strict=True) if waited)
    return longest or float("nan")


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
    """Figures by turn or depth, of the latency population."""
    counted = chosen.latency[calls.at]
    numbers = calls.call[name]
    return tuple(group(calls.rows[counted & (numbers == one)], int(one)) for one in np.unique(numbers[counted]))


def group(rows: Rows, number: int) -> CallGroup:
    reported = rows[rows["prompt_tokens"] > 0]
    cached = reported[reported["cached_tokens"] >= 0]
    share = float(cached["cached_tokens"].sum() / cached["prompt_tokens"].sum()) if len(cached) else None
    return CallGroup(
        number=number,
        requests=len(rows),
        ttft=distribution(ttft(rows), "ms"),
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
