"""Graphs of calls: the requests of agentic sessions, what each of them waits for, and the blocks of text that they share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload.errors import InputError, InvalidValue
from fastllmload.quantities import nanoseconds

Numbers = npt.NDArray[np.int64]
Message = dict[str, Any]
LONGEST_NS = 10**17  # three years
UNKNOWN = -1  # of an instant, a context, a parent
SCOPES = ("file", "session", "chain")
PER_CALL = (
    "call_id", "agent", "wait_ns", "tool_ns", "wait_kind", "input", "output", "chain", "parent_chain", "turn", "depth",
    "background", "start_recorded_ns", "end_recorded_ns", "prefix_tokens", "messages", "context", "kept", "model", "tools",
    "extra",
)  # fmt: skip


class WaitKind(IntEnum):
    """What a call waits for after its predecessors: a tool (machine), a user, the agent's own work."""

    UNKNOWN = 0
    TOOL = 1
    USER = 2
    AGENT = 3


def read_longest_waits(text: str) -> dict[WaitKind, int]:
    """`user=30s,tool=2m`, or `30s` for all kinds: the longest wait of each kind in ns. InvalidValue with the reason."""
    found: dict[WaitKind, int] = {}
    for part in text.split(","):
        name, _, time = part.strip().rpartition("=")
        kinds = list(WaitKind) if not name else [kind for kind in WaitKind if kind.name.lower() == name]
        ns = nanoseconds(time)
        if (
            not kinds
            or ns is None
            or not 0 <= ns <= LONGEST_NS
            or (not name and "," in text)
            or found.keys() & set(kinds)
        ):
            raise InvalidValue(
                "longest-wait-invalid",
                f"is not a longest wait; write one time for all waits, such as 30s, or KIND=TIME for some of "
                f"{', '.join(kind.name.lower() for kind in WaitKind)}, each once, such as user=30s,tool=2m",
            )
        found |= dict.fromkeys(kinds, ns)
    return found


@dataclass(frozen=True, eq=False)
class CallGraph:
    """Requests of agentic sessions. A session is a connected set of calls; its calls are consecutive, in order of
    recorded (or derived) starts, every predecessor before its successors. S sessions, N calls, E edges.

    A call is due when the last of its predecessors has ended, plus its *wait_ns*. An edge has a wait of its own where the
    source states one; with *edge_from_start* that wait runs from the instant at which the predecessor was due.
    """

    name: str  # of the format
    sha256: str  # of the file
    session_id: list[str]
    start_ns: Numbers  # S: instant of each session's first call, from the first session's; ascending
    first_call: Numbers  # S + 1
    call_id: list[str]
    agent: list[str]  # N: name of the call's chain
    wait_ns: Numbers
    tool_ns: Numbers  # part of wait_ns in which tools ran
    wait_kind: npt.NDArray[np.uint8]
    input: Numbers  # tokens of the prompt; of what it adds where the call has a context; 0: not stated
    output: Numbers  # 0: not stated
    chain: npt.NDArray[np.int32]  # agent within its session; 0 is the main one
    parent_chain: npt.NDArray[np.int32]  # of that chain; -1: none
    turn: npt.NDArray[np.int32]  # index within its chain
    depth: npt.NDArray[np.int32]  # of its chain; 0 is the main one's
    background: npt.NDArray[np.bool_]  # no call of another agent waits for its chain
    start_recorded_ns: Numbers  # from the first session's first call; -1: unknown
    end_recorded_ns: Numbers
    edge_from: Numbers  # E: indices of calls, sorted by (from, to)
    edge_to: Numbers
    edge_wait_ns: Numbers
    edge_from_start: npt.NDArray[np.bool_]
    block: Numbers | None  # ids from 0 without gaps; equal ids are equal text
    first_block: Numbers  # N + 1
    block_tokens: int
    scope: str  # where equal ids of the file mean equal text, one of SCOPES
    prefix_tokens: Numbers | None  # N: leading tokens that are those of an earlier call, where ids do not say
    cached_tokens: Numbers | None  # N: leading tokens that the recorded server stated to have cached; -1: not stated
    messages: list[list[Message] | None] | None
    context: Numbers  # N: call whose conversation this one continues; -1: none
    kept: Numbers  # N: leading messages or blocks of that context that stay; -1: all
    model: list[str | None] | None
    tools: list[list[Any] | None] | None
    extra: list[dict[str, Any] | None] | None
    left_out: Mapping[str, int] = field(default_factory=dict)  # number of entries without a call, by reason
    notes: tuple[str, ...] = ()  # what was assumed, one sentence each

    def __len__(self) -> int:
        return len(self.call_id)

    @property
    def sessions(self) -> int:
        return len(self.session_id)

    def session_of(self) -> Numbers:
        """N: index of each call's session."""
        return np.repeat(np.arange(self.sessions), np.diff(self.first_call))

    def between(self, start_s: float, end_s: float | None) -> CallGraph:
        """The sessions that begin in [*start_s*, *end_s*). InputError when there are none."""
        low = int(np.searchsorted(self.start_ns, round(start_s * 1e9)))
        high = self.sessions if end_s is None else int(np.searchsorted(self.start_ns, round(end_s * 1e9)))
        if low >= high:
            last = self.start_ns[-1] / 1e9
            end = "its end" if end_s is None else f"--trace-to {end_s:g} s"
            raise InputError(
                "schedule-empty",
                f"the trace has no session that begins from --trace-from {start_s:g} s to {end}; they begin from 0 to "
                f"{last:g} s",
            )
        return self.part(low, high)

    def with_waits_at_most(self, most: Mapping[WaitKind, int]) -> CallGraph:
        """No call waits longer than the *most* ns of its kind after what it waits for; a note says what was cut."""
        limit = np.full(len(self), np.iinfo(np.int64).max)
        for kind, ns in most.items():
            limit[self.wait_kind == kind] = ns
        wait = np.minimum(self.wait_ns, limit)
        left = (limit - wait)[self.edge_to]
        edge_wait = np.where(self.edge_from_start, self.edge_wait_ns, np.minimum(self.edge_wait_ns, left))
        cut = self.wait_ns - wait
        np.add.at(cut, self.edge_to, self.edge_wait_ns - edge_wait)
        notes = [
            f"waits of kind {kind.name.lower()} are at most {ns / 1e9:g} s: {int(mine.sum()):,} cut, by "
            f"{cut[mine].sum() / 1e9:,.3f} s together"
            for kind, ns in most.items()
            if (mine := (self.wait_kind == kind) & (cut > 0)).any()
        ]
        return replace(
            self,
            wait_ns=wait,
            tool_ns=np.minimum(self.tool_ns, wait),
            edge_wait_ns=edge_wait,
            notes=(*self.notes, *notes),
        )

    def part(self, low: int, high: int) -> CallGraph:
        """The sessions *low* to *high* - 1, with time zero at the first."""
        first, last = int(self.first_call[low]), int(self.first_call[high])
        origin = int(self.start_ns[low])
        edges = slice(*np.searchsorted(self.edge_from, [first, last]).tolist())
        calls, blocks = slice(first, last), slice(int(self.first_block[first]), int(self.first_block[last]))
        of_calls: dict[str, Any] = {
            name: None if (value := getattr(self, name)) is None else value[calls] for name in PER_CALL
        }
        for name in ("start_recorded_ns", "end_recorded_ns"):
            of_calls[name] = np.where(of_calls[name] < 0, UNKNOWN, of_calls[name] - origin)
        of_calls["context"] = np.where(of_calls["context"] < 0, UNKNOWN, of_calls["context"] - first)
        return replace(
            self,
            session_id=self.session_id[low:high],
            start_ns=self.start_ns[low:high] - origin,
            first_call=self.first_call[low : high + 1] - first,
            edge_from=self.edge_from[edges] - first,
            edge_to=self.edge_to[edges] - first,
            edge_wait_ns=self.edge_wait_ns[edges],
            edge_from_start=self.edge_from_start[edges],
            block=None if self.block is None else renumbered(self.block[blocks]),
            first_block=self.first_block[first : last + 1] - self.first_block[first],
            **of_calls,
        )

    def copies(self, sessions: Numbers) -> CallGraph:
        """The *sessions* (numbers, each as often as it is there), in that order, all from time zero; the second and later
        copies of one have blocks of their own.
        """
        call, first = gathered(self.first_call, sessions)
        moved = np.repeat(first[:-1] - self.first_call[sessions], np.diff(first))
        edge, first_edge = gathered(np.searchsorted(self.edge_from, self.first_call), sessions)
        edge_moved = np.repeat(first[:-1] - self.first_call[sessions], np.diff(first_edge))
        place, first_block = gathered(self.first_block, call)
        block = self.block
        if block is not None:
            private = np.repeat(occurrences(sessions), np.diff(first)) * (int(block.max(initial=-1)) + 1)
            block = block[place] + np.repeat(private, np.diff(first_block))
        of_calls: dict[str, Any] = {name: taken(getattr(self, name), call) for name in PER_CALL}
        of_calls["context"] = np.where(of_calls["context"] < 0, UNKNOWN, of_calls["context"] + moved)
        return replace(
            self,
            session_id=[self.session_id[one] for one in sessions.tolist()],
            start_ns=np.zeros(len(sessions), np.int64),
            first_call=first,
            edge_from=self.edge_from[edge] + edge_moved,
            edge_to=self.edge_to[edge] + edge_moved,
            edge_wait_ns=self.edge_wait_ns[edge],
            edge_from_start=self.edge_from_start[edge],
            block=block,
            first_block=first_block,
            **of_calls,
        )

    def blocks_of(self, call: int) -> Numbers:
        """Block ids of a call; empty for a graph without blocks."""
        if self.block is None:
            return np.zeros(0, np.int64)
        return self.block[self.first_block[call] : self.first_block[call + 1]]


def renumbered(ids: Numbers) -> Numbers:
    """*ids* as numbers from 0 without gaps."""
    return np.unique(ids, return_inverse=True)[1].astype(np.int64)


def gathered(first: Numbers, chosen: Numbers) -> tuple[Numbers, Numbers]:
    """Positions of the items of the *chosen* groups, of which group g has those from first[g] to first[g + 1]; and where
    each of these groups begins among them (one more).
    """
    size = np.diff(first)[chosen]
    begins = np.concatenate([np.zeros(1, np.int64), np.cumsum(size)])
    return np.repeat(first[:-1][chosen] - begins[:-1], size) + np.arange(int(begins[-1])), begins


def taken(values: Any, at: Numbers) -> Any:
    if values is None or isinstance(values, np.ndarray):
        return None if values is None else values[at]
    return [values[one] for one in at.tolist()]


def occurrences(values: Numbers) -> Numbers:
    """How often each value is there before."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    begins = np.searchsorted(ordered, ordered)
    found = np.empty(len(values), np.int64)
    found[order] = np.arange(len(values)) - begins
    return found
