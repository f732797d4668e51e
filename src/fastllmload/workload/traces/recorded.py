"""What waits for what, from recorded times: for formats that have starts, ends and parents, and no predecessors.

A call follows the calls of its agent that had ended when it began. The first call of a child follows its parent's calls
that had ended by then, and the parent's first call that began at or after the child's end waits for it. A wait is the
recorded start minus the *latest* recorded end among all of these. A call that began while all earlier ones were running is
due that long after the start of the one before.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice, takewhile

from fastllmload.workload.calls import After, TracedCall
from fastllmload.workload.graph import WaitKind


@dataclass(eq=False)
class RecordedAgent:
    """A chain of *calls*, each with its start, maybe its end. *spawner*: the parent's call that is known to have spawned it.

    *joined* False: no call waits for it, whatever the times say.
    """

    name: str
    parent: RecordedAgent | None = None
    joined: bool = True
    spawner: TracedCall | None = None
    calls: list[TracedCall] = field(default_factory=list)

    def first_ns(self) -> int:
        """Start of its first call."""
        return min(_start(call) for call in self.calls)

    def last_ns(self) -> int:
        """End of its last call."""
        return max(_end(call) for call in self.calls)


class RecordedSpans:
    """Starts and ends of tools, which may overlap."""

    def __init__(self) -> None:
        self._found: list[tuple[int, int]] = []
        self._latest: list[int] = []  # the latest end up to each span, in order of starts

    def append(self, span: tuple[int, int]) -> None:
        self._found.append(span)
        self._latest = []

    def inside(self, low: int, high: int) -> int:
        """ns between *low* and *high* in which at least one of them ran."""
        self._sort()
        total, at = 0, low
        for start, end in islice(self._found, bisect_right(self._latest, low), None):
            if start >= high:
                break
            begins, ends = max(start, at), min(end, high)
            if ends > begins:
                total += ends - begins
                at = ends
        return total

    def within(self, low: int, high: int) -> bool:
        """Whether one of them began and ended between *low* and *high*."""
        self._sort()
        begun = islice(self._found, bisect_left(self._found, (low, low)), None)
        return any(end <= high for _, end in takewhile(lambda span: span[0] <= high, begun))

    def _sort(self) -> None:
        if not self._latest:
            self._found.sort()
            self._latest = list(accumulate((end for _, end in self._found), max))


def link(agents: Sequence[RecordedAgent], by_time: bool = False) -> Counter[str]:
    """Set `after`, `wait_ns` and `parent` of all calls; returns the number of edges by rule: chain, spawn, join, time,
    overlap, and unjoined
    agents. *by_time*: an agent without a parent follows the calls of all agents that had ended, else it is a root.
    """
    rules: Counter[str] = Counter()
    found: dict[int, list[After]] = {}
    for agent in agents:
        agent.calls.sort(key=_start)
        live: list[TracedCall] = []  # the earlier calls that a later one can follow
        before = None
        for call in agent.calls:
            ended = _ended(live, _start(call))
            found[id(call)] = _edges(call, ended, before, "chain", rules)
            live = [*(one for one in live if one in ended or _end(one) > _start(call)), call]
            before = call
    everything = sorted((call for agent in agents for call in agent.calls), key=_start) if by_time else []
    for agent in agents:
        if not agent.calls:
            continue
        first = agent.calls[0]
        if agent.parent is not None:
            _spawn(agent, agent.parent, found, rules)
        elif by_time and first is not everything[0]:
            earlier = everything[: everything.index(first)]
            found[id(first)] = _edges(first, _ended(earlier, _start(first)), earlier[-1], "time", rules)
    ends = {call.id: _end(call) for agent in agents for call in agent.calls}
    for agent in agents:
        for call in agent.calls:
            call.after = found[id(call)]
            last = max((ends[one.call] for one in call.after if not one.from_start), default=None)
            if last is not None:
                call.wait_ns = _start(call) - last
    return rules


def _spawn(agent: RecordedAgent, parent: RecordedAgent, found: dict[int, list[After]], rules: Counter[str]) -> None:
    """The edges into the first call of *agent*, and from its last calls to the call of *parent* that waits for it."""
    first = agent.calls[0]
    started = [call for call in parent.calls if _start(call) <= _start(first)]
    known = agent.spawner is not None and _end(agent.spawner) <= _start(first)
    ended = [agent.spawner] if known and agent.spawner is not None else _ended(started, _start(first))
    found[id(first)] = _edges(first, ended, started[-1] if started else None, "spawn", rules)
    first.wait_kind = first.wait_kind or WaitKind.AGENT
    for call in agent.calls:
        call.parent, call.background = parent.name, None if agent.joined else True
    if not (agent.joined and started):
        return
    over = max(_end(call) for call in agent.calls)
    joins = next((call for call in parent.calls if _start(call) >= over and call is not started[-1]), None)
    if joins is None:
        rules["unjoined"] += 1
        return
    followed = {one.call for call in agent.calls for one in found[id(call)]}
    last = [call for call in agent.calls if call.id not in followed]
    rules["join"] += len(last)
    joined = [one for one in found[id(joins)] if not one.from_start]  # an instant of the recording no longer matters
    found[id(joins)] = joined + [After(call.id) for call in last]
    joins.wait_kind = WaitKind.AGENT


def _edges(
    call: TracedCall, ended: Iterable[TracedCall], before: TracedCall | None, rule: str, rules: Counter[str]
) -> list[After]:
    """After all of *ended*, or (none) as long after the start of *before* as recorded."""
    edges = [After(one.id) for one in ended]
    if not edges and before is not None:
        edges, rule = [After(before.id, _start(call) - _start(before), from_start=True)], "overlap"
    rules[rule] += len(edges)
    return edges


def _ended(calls: Sequence[TracedCall], at: int) -> list[TracedCall]:
    """Those of *calls* that had ended at the instant *at* and were not over before another of them began."""
    over = [call for call in calls if _end(call) <= at]
    if not over:
        return []
    newest = max(over, key=_start)
    return [call for call in over if call is newest or _end(call) > _start(newest)]


def _start(call: TracedCall) -> int:
    assert call.start_ns is not None
    return call.start_ns


def _end(call: TracedCall) -> int:
    return _start(call) if call.end_ns is None else call.end_ns


def overlap_notes(rules: Counter[str], unended: int) -> list[str]:
    """Sentences on what the times of a recording leave open. *unended*: number of calls without an end."""
    said = (
        (rules["unjoined"], "agents that end after their parent's last call began: {}, which run in the background"),
        (
            rules["overlap"],
            "calls that began while all before them ran: {}, each due as long after the start of the one before",
        ),
        (
            unended,
            "calls without a recorded end: {}; the waits after them contain the time in which the server answered",
        ),
    )
    return [text.format(count) for count, text in said if count]
