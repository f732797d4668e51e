"""The plan of one phase: what is sent and when, with a digest. A folder of arrays and one file of encoded bodies.

Folder: `t_sched.npy` (int64 ns from the phase's time zero, ascending; FOLLOWS for a turn that follows a reply;
absent in a closed loop), `input_tokens.npy`, `output_tokens.npy` (int32), `request_class.npy` (uint16),
`body_offset.npy` (uint64, one more than requests), `bodies.bin`, `plan.json`; with conversations `turns.npy`
(TURN), with user behavior `client.npy` (CLIENT_ROW), and with shared prompt parts `prefix_tokens.npy` (int32),
with several models `request_model.npy` (uint16).
The turns of a conversation are consecutive. Requests of classes that are closed loops come after all others, ordered by
class: where other classes have instants these have FOLLOWS, and each such class repeats its own requests. Nothing in a plan
depends on the number of workers, the target's address or the API key.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tokenize
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload._ext.plan.toolturn import ToolTurns
from fastllmload.arrivals.curve import SlotChanges, changing_slots
from fastllmload.documents.fields import known
from fastllmload.documents.plan import (
    ClassDescription,
    CountingFacts,
    PlanDescription,
    PlanDocument,
    TokenizerFacts,
    WorkloadDescription,
)
from fastllmload.documents.read import convert, read_file
from fastllmload.documents.write import plain
from fastllmload.endpoint import ENDPOINTS
from fastllmload.errors import RunFolderError
from fastllmload.files import check_npy_head, regular


def plan_error(text: str) -> RunFolderError:
    return RunFolderError("plan-file-invalid", text)


def canonical(document: Mapping[str, Any]) -> bytes:
    """One line of JSON with sorted keys and no spaces. ValueError for NaN and infinity."""
    return (
        json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False) + "\n"
    ).encode("ascii")


def digest_of(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical({k: v for k, v in document.items() if k != "digest"})).hexdigest()


def array_hash(array: npt.NDArray[Any]) -> str:
    """SHA-256 of an array's bytes (little-endian, C order), without any file header."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return hashlib.sha256(flat.data).hexdigest()


SCHEMA_VERSION = 1
DOCUMENT = "plan.json"
BODIES = "bodies.bin"
SEEN = "seen"  # folder of another plan: prompts that the warm-up sends, as the rest of their sessions is in this one
SCHEDULE = "t_sched.npy"
TURNS, CLIENT, PREFIX, MODELS = "turns.npy", "client.npy", "prefix_tokens.npy", "request_model.npy"
EDGES, PIECES, CALLS, BLOCKS, NODES = "edges.npy", "pieces.npy", "calls.npy", "blocks.npy", "nodes.npy"
# t_sched of a later request of a session, which is due some time after the replies that it waits for; and of every request
# of a class that is a closed loop next to open ones, which is due when a slot is free.
FOLLOWS = -1
LAST_TURN, STITCHED, REAL_REPLY, STORED = 1, 2, 4, 8  # flags of a turn
EDGE_START, EDGE_CONTEXT = 1, 2  # flags of an edge
# Layouts: `Turn`, `Edge`, `Piece` of ext/fastllmload/_ext/plan/talk.pxd, which documents the fields; `Leaving` of
# leaving.pxd.
TURN = np.dtype(
    [("think_ns", "<i8"), ("skip", "<u4"), ("reply_at", "<u4"), ("tail", "<u4"), ("session", "<u4"),
     ("turn", "<u2"), ("flags", "<u2"), ("waits_for", "<u4")]
)  # fmt: skip
EDGE = np.dtype([("wait_ns", "<i8"), ("source", "<u4"), ("target", "<u4"), ("flags", "<u4"), ("spare", "<u4")])
PIECE = np.dtype([("at", "<u8"), ("size", "<u8")])
# What reports say of a call: its session; agent (chain) in it and the parent of that, index in it, levels above it; kind of
# its wait (WaitKind); 1 if nothing joins its chain; recorded seconds of service (NaN: unknown); tokens of its prompt in full
# blocks that an endless cache finds (-1: unknown); its number of blocks in BLOCKS, uint32 ids of equal text. BLOCKS ends
# with those that the warm-up has sent. Where prompts are messages, a block is a part of their text as NODE says: its tokens,
# and 1 if a message begins with it.
CALL = np.dtype(
    [("session", "<u4"), ("chain", "<u4"), ("parent", "<i4"), ("turn", "<u4"), ("depth", "<u2"), ("kind", "u1"),
     ("background", "u1"), ("service_s", "<f8"), ("ideal_tokens", "<i8"), ("blocks", "<u4")]
)  # fmt: skip
NODE = np.dtype([("tokens", "<u4"), ("opens", "u1")])
CLIENT_ROW = np.dtype(
    [("cancel_ns", "<i8"), ("abandon_ns", "<i8"), ("cancel_tokens", "<u4"), ("read_rate", "<f4"),
     ("abandon_e2e", "<u4"), ("read_bytes", "<u4")]
)  # fmt: skip
ARRAYS: dict[str, np.dtype[Any]] = {
    SCHEDULE: np.dtype(np.int64),
    "input_tokens.npy": np.dtype(np.int32),
    "output_tokens.npy": np.dtype(np.int32),
    "request_class.npy": np.dtype(np.uint16),
    "body_offset.npy": np.dtype(np.uint64),
    TURNS: TURN,
    CLIENT: CLIENT_ROW,
    PREFIX: np.dtype(np.int32),
    MODELS: np.dtype(np.uint16),
    EDGES: EDGE,
    PIECES: PIECE,
    CALLS: CALL,
    BLOCKS: np.dtype(np.uint32),
    NODES: NODE,
}
OF_GRAPH = (EDGES, PIECES, CALLS, BLOCKS, NODES)
OTHERWISE = {EDGES, PIECES, BLOCKS, NODES}  # these do not have one item per request
OPTIONAL = {SCHEDULE, TURNS, CLIENT, PREFIX, MODELS, *OF_GRAPH}  # a closed loop has no schedule
REQUIRED = {BODIES, *ARRAYS} - OPTIONAL
KEPT = (EDGES, CALLS, BLOCKS, NODES, MODELS)  # that a run folder keeps
RECORD_FILE = "schedule.npy"
RECORD = np.dtype(
    [("t_sched_ns", "<i8"), ("input_tokens", "<i4"), ("output_tokens", "<i4"), ("request_class", "<u2"),
     ("prefix_tokens", "<i4")]
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Plan:
    """One phase, opened from its folder; arrays and bodies are mapped read-only."""

    directory: Path
    document: PlanDocument  # plan.json
    t_sched: npt.NDArray[np.int64] | None  # None: closed loop
    input_tokens: npt.NDArray[np.int32]
    output_tokens: npt.NDArray[np.int32]
    request_class: npt.NDArray[np.uint16]
    body_offset: npt.NDArray[np.uint64]
    bodies: npt.NDArray[np.uint8]
    turns: npt.NDArray[np.void] | None = None  # TURN; None: no conversations
    client: npt.NDArray[np.void] | None = None  # CLIENT_ROW; None: every user waits for the end
    prefix_tokens: npt.NDArray[np.int32] | None = None  # of a part that other prompts have too; None: unknown, or none
    request_model: npt.NDArray[np.uint16] | None = None  # index into the description's models; None: one model
    edges: npt.NDArray[np.void] | None = None  # EDGE, by source; None: in each session the turns follow each other
    pieces: npt.NDArray[np.void] | None = (
        None  # PIECE, which body_offset then counts; None: each body lies in one piece
    )
    calls: npt.NDArray[np.void] | None = None  # CALL; None: requests that stand alone
    blocks: npt.NDArray[np.uint32] | None = None  # of the prompts of *calls*; None: unknown
    nodes: npt.NDArray[np.void] | None = None  # NODE of each of *blocks* where prompts are messages
    description: PlanDescription = field(init=False)  # that of the document

    def __post_init__(self) -> None:
        object.__setattr__(self, "description", self.document.description)

    @classmethod
    def open(cls, directory: Path, bodies: bool = True) -> Plan:
        """Map the plan in *directory*. RunFolderError when it is not one, is truncated or inconsistent. *bodies*: not
        without them, which an agent removes when its workers have ended.
        """
        document = read_document(directory)
        named = {
            name: _mapped(directory, name) for name in ARRAYS if name not in OPTIONAL or document.members.get(name)
        }
        plan = cls(
            directory=directory,
            document=document,
            t_sched=named.get(SCHEDULE),
            input_tokens=named["input_tokens.npy"],
            output_tokens=named["output_tokens.npy"],
            request_class=named["request_class.npy"],
            body_offset=named["body_offset.npy"],
            bodies=_mapped_bytes(directory / BODIES) if bodies else np.empty(0, np.uint8),
            turns=named.get(TURNS),
            client=named.get(CLIENT),
            prefix_tokens=named.get(PREFIX),
            request_model=named.get(MODELS),
            edges=named.get(EDGES),
            pieces=named.get(PIECES),
            calls=named.get(CALLS),
            blocks=named.get(BLOCKS),
            nodes=named.get(NODES),
        )
        if bodies:
            plan._check_fit()
        return plan

    @classmethod
    def read_record(cls, directory: Path) -> Plan:
        """What `write_record` wrote in *directory*: the plan without bodies; of conversations it has the sessions alone.
        RunFolderError.
        """
        document = read_document(directory)
        rows = _array(directory, RECORD_FILE, RECORD)
        open_loop, turns = SCHEDULE in document.members, None
        kept = [_mapped(directory, name) if (directory / name).exists() else None for name in KEPT]
        if open_loop and TURNS in document.members:
            turns = np.zeros(len(rows), TURN)
            calls = kept[KEPT.index(CALLS)]
            turns["session"] = np.cumsum(rows["t_sched_ns"] >= 0) - 1 if calls is None else calls["session"]
        return cls(
            directory=directory,
            document=document,
            t_sched=rows["t_sched_ns"] if open_loop else None,
            input_tokens=rows["input_tokens"],
            output_tokens=rows["output_tokens"],
            request_class=rows["request_class"],
            body_offset=np.zeros(len(rows) + 1, np.uint64),
            bodies=np.empty(0, np.uint8),
            turns=turns,
            edges=kept[0],
            calls=kept[1],
            blocks=kept[2],
            nodes=kept[3],
            request_model=kept[4],
        )

    @property
    def digest(self) -> str:
        """SHA-256 over the canonical description and every member."""
        return str(self.document.digest)

    @property
    def schedule_hash(self) -> str | None:
        """SHA-256 of the int64 instants; None in a closed loop."""
        return None if self.t_sched is None else self.document.members[SCHEDULE]

    @property
    def requests(self) -> int:
        return len(self.input_tokens)

    @property
    def starts(self) -> npt.NDArray[np.int64]:
        """Requests that wait for no other: all, or the first of every session."""
        if self.turns is None:
            return np.arange(self.requests, dtype=np.int64)
        return np.flatnonzero(self.turns["turn"] == 0)

    @property
    def t_start(self) -> npt.NDArray[np.int64] | None:
        """Planned instants, of `open_starts`; None in a closed loop."""
        if self.t_sched is None or (self.turns is None and not self.closed_classes):
            return self.t_sched
        return np.ascontiguousarray(self.t_sched[self.open_starts])

    @property
    def open_starts(self) -> npt.NDArray[np.int64]:
        """Those of `starts` that are not of a class that is a closed loop: they come first."""
        if not self.closed_classes:
            return self.starts
        found: npt.NDArray[np.int64] = self.starts[~np.isin(self.request_class[self.starts], list(self.closed_classes))]
        return found

    @property
    def open_requests(self) -> int:
        """Requests, later turns too, that are not of a class that is a closed loop: the first ones of the plan."""
        if not self.closed_classes:
            return self.requests
        return int(np.count_nonzero(~np.isin(self.request_class, list(self.closed_classes))))

    @property
    def arrivals(self) -> npt.NDArray[np.int64]:
        """Those of `open_starts` that an arrival process has: without sessions that began before time zero."""
        return np.setdiff1d(self.open_starts, self.under_way)

    @property
    def under_way(self) -> npt.NDArray[np.int64]:
        """The first calls of what is left of sessions that began before time zero."""
        if not self.description.begun_classes or self.calls is None:
            return np.empty(0, np.int64)
        first = np.flatnonzero(np.diff(self.calls["session"].astype(np.int64), prepend=-1))
        found: npt.NDArray[np.int64] = first[(self.calls["turn"][first] > 0) | (self.calls["chain"][first] > 0)]
        return found

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes that `request_class` numbers; empty when none is named."""
        if self.description.classes:
            return tuple(str(one.name) for one in self.description.classes)
        named = classes_within(self.description.workload)
        return named if any(named) else ()

    @property
    def deviations(self) -> tuple[str, ...]:
        """Deviations from the standard workload of that name, one sentence each; those of a class begin with its name."""
        by_class = [(one.name, one.workload) for one in self.description.classes if one.workload is not None]
        named = [f"{name}: {text}" for name, content in by_class for text in content.deviations]
        return tuple(dict.fromkeys(named if by_class else self.description.workload.deviations))

    @property
    def counting(self) -> CountingFacts:
        """How tokens are counted (IETF 4.4), in the first class that has requests."""
        of_classes = (one.workload for one in self.description.classes if one.workload is not None)
        content = next(of_classes, self.description.workload)
        return CountingFacts(
            option=content.counting,
            tokenizer=content.tokenizer_facts or TokenizerFacts(name=content.tokenizer),
            special_tokens=content.special_tokens,
        )

    @property
    def joints(self) -> list[tuple[bytes, bytes, bytes]]:
        """Per class: JSON before a reply, after it, and between messages without one; empty without conversations."""
        return [joint_of(one, self.description) for one in self.description.classes or (self.description,)]

    @property
    def tools(self) -> list[ToolTurns | None]:
        """Per class: how its protocol repeats the tool calls of replies; None where it does not."""
        described = self.description
        named = [one.endpoint or described.endpoint for one in described.classes or (described,)]
        templates = [ENDPOINTS[name].joint.tools if name in ENDPOINTS else None for name in named]
        return [None if tools is None else ToolTurns(*tools) for tools in templates]

    @property
    def concurrency(self) -> int | None:
        """Slots of a closed loop, as a warm-up without a target rate is one; None in an open loop."""
        slots = self.description.load.concurrency
        return int(slots) if isinstance(slots, (int, float)) else None

    @property
    def closed_classes(self) -> dict[int, int]:
        """Slots of each class that is a closed loop, by its number; empty where no class has slots of its own.

        Where all classes are, `concurrency` is the sum of these, and there are no instants.
        """
        return self.description.closed_classes

    @property
    def slot_changes(self) -> SlotChanges | None:
        """When the slots of a closed loop change; None where they do not."""
        return changing_slots(self.description.load)

    @property
    def class_slot_changes(self) -> dict[int, SlotChanges]:
        """When the slots of each of `closed_classes` change whose slots do, by its number."""
        loads = {number: self.description.classes[number].load for number in self.closed_classes}
        found = {number: changing_slots(load) for number, load in loads.items() if load is not None}
        return {number: changes for number, changes in found.items() if changes is not None}

    @property
    def duration_s(self) -> float | None:
        """Seconds that bound the phase; None when only the number of requests does."""
        return known(self.description.load.duration_s)

    @property
    def cycles(self) -> bool:
        """Whether all requests are a pool that workers repeat: a closed loop that only time ends."""
        return bool(self.description.load.cycles)

    @property
    def closed_cycles(self) -> bool:
        """Whether `closed_classes` repeat their requests, each its own, until time ends them."""
        loads = (one.load for one in self.description.classes if one.concurrency is not None)
        return any(load is not None and load.cycles for load in loads)

    def body(self, request: int) -> bytes:
        """The encoded body of one request."""
        begin, end = int(self.body_offset[request]), int(self.body_offset[request + 1])
        if self.pieces is None:
            return self.bodies[begin:end].tobytes()
        return b"".join(self.bodies[int(at) : int(at + size)].tobytes() for at, size in self.pieces[begin:end])

    @property
    def arrays(self) -> list[npt.NDArray[Any]]:
        """All arrays of the plan except the bodies."""
        named = [self._member(name) for name in ARRAYS]
        return [array for array in named if array is not None]

    def verify(self) -> None:
        """Hash every member again. RunFolderError names the first that differs."""
        for name, stated in self.document.members.items():
            if array_hash(self._member(name)) != stated:
                raise RunFolderError(
                    "plan-changed",
                    f"the plan in {self.directory} was changed: the SHA-256 of {name} differs from that in {DOCUMENT}",
                )

    def write_record(self, directory: Path) -> None:
        """Write a run folder's `plan.json` and `schedule.npy`: instants (-1: closed loop), lengths, shared parts."""
        directory.mkdir(parents=True, exist_ok=True)
        rows = np.empty(self.requests, dtype=RECORD)
        rows["t_sched_ns"] = -1 if self.t_sched is None else self.t_sched
        rows["input_tokens"] = self.input_tokens
        rows["output_tokens"] = self.output_tokens
        rows["request_class"] = self.request_class
        rows["prefix_tokens"] = 0 if self.prefix_tokens is None else self.prefix_tokens
        np.save(directory / RECORD_FILE, rows)
        for name in KEPT:
            array = self._member(name)
            if array is not None:
                np.save(directory / name, array)
        shutil.copyfile(self.directory / DOCUMENT, directory / DOCUMENT)

    def _member(self, name: str) -> npt.NDArray[Any]:
        array: npt.NDArray[Any] = getattr(self, name.rsplit(".", 1)[0])
        return array

    def _check_fit(self) -> None:
        n = self.requests
        named = [self._member(name) for name in ARRAYS if name not in OTHERWISE]
        arrays = [array for array in named if array is not None and array is not self.body_offset]
        ends = self.body_offset
        last = len(self.bodies) if self.pieces is None else len(self.pieces)
        fits = (
            len(ends) == n + 1 and ends[0] == 0 and int(ends[-1]) == last and self._pieces_fit() and self._edges_fit()
        )
        if not (fits and all(len(a) == n for a in arrays) and bool(np.all(ends[1:] >= ends[:-1]))):
            raise plan_error(f"the plan in {self.directory} is inconsistent: its files have different lengths")

    def _pieces_fit(self) -> bool:
        if self.pieces is None:
            return True
        at, size, total = self.pieces["at"], self.pieces["size"], np.uint64(len(self.bodies))
        return bool(np.all(size <= total) and np.all(at <= total - size))

    def _edges_fit(self) -> bool:
        """Whether every edge leads to a later request of the same session, and each request counts those that lead to it."""
        if self.edges is None:
            return True
        if self.turns is None:
            return False
        source, target = self.edges["source"].astype(np.int64), self.edges["target"].astype(np.int64)
        n = self.requests
        if not (np.all(source < target) and np.all(target < n) and np.all(source[1:] >= source[:-1])):
            return False
        session, waits_for = self.turns["session"], self.turns["waits_for"]
        return bool(
            np.array_equal(session[source], session[target])
            and np.array_equal(np.bincount(target, minlength=n), waits_for)
            and np.array_equal(waits_for == 0, self.turns["turn"] == 0)
            and np.array_equal(np.bincount(source, minlength=n) == 0, self.turns["flags"] & LAST_TURN > 0)
        )


def classes_within(content: WorkloadDescription) -> tuple[str, ...]:
    """Names of the classes that a workload or its data set has of its own."""
    return content.classes or (() if content.dataset is None else content.dataset.classes)


def joint_of(one: ClassDescription | PlanDescription, plan: PlanDescription) -> tuple[bytes, bytes, bytes]:
    """The turn template of class *one*; an earlier version wrote one for the *plan*."""
    before, after, between = (text.encode() for text in one.joint or plan.joint or ("", "", ""))
    return before, after, between


def read_document(directory: Path) -> PlanDocument:
    """`plan.json`, the digest of what is in the file checked. RunFolderError otherwise."""
    try:
        stored, found = read_file(directory / DOCUMENT, SCHEMA_VERSION, lambda values: convert(values, PlanDocument))
    except OSError as problem:
        raise plan_error(f"{directory} contains no readable plan: {problem.strerror}: {DOCUMENT}") from None
    except RunFolderError as problem:
        if problem.code == "schema-version":
            raise
        raise plan_error(f"{directory} contains no readable plan: {problem.message}") from None
    if found.digest != digest_of(stored):
        raise RunFolderError(
            "plan-changed", f"the plan in {directory} was changed: {DOCUMENT} does not have the digest that it states"
        )
    if not REQUIRED <= set(found.members) <= REQUIRED | OPTIONAL:
        raise plan_error(f"the plan in {directory} lists members that a plan does not have: {DOCUMENT}")
    return found


def write_document(directory: Path, document: PlanDocument) -> None:
    """Write *document* with its digest as `plan.json`."""
    values = plain(document)
    values["digest"] = digest_of(values)
    (directory / DOCUMENT).write_text(json.dumps(values, indent=1, sort_keys=True, allow_nan=False) + "\n")


def _mapped(directory: Path, name: str) -> Any:
    return _array(directory, name, ARRAYS[name])


def _array(directory: Path, name: str, dtype: np.dtype[Any]) -> Any:
    path = directory / name
    try:
        regular(path)
        array = np.load(path, mmap_mode="r") if _has_rows(path) else np.load(path)
    except (OSError, ValueError, EOFError, SyntaxError, tokenize.TokenError, RecursionError, MemoryError) as error:
        raise plan_error(f"the plan in {directory} cannot be read: {name}: {error}") from error
    if array.dtype != dtype or array.ndim != 1:
        raise plan_error(f"the plan in {directory} cannot be read: {name} is not an array of {dtype}")
    return array


def _has_rows(path: Path) -> bool:
    """Whether the array is not empty: an empty one cannot be mapped."""
    with open(path, "rb") as file:
        check_npy_head(file)
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, _ = read(file)
    return 0 not in shape


def _mapped_bytes(path: Path) -> npt.NDArray[np.uint8]:
    try:
        if regular(path) == 0:
            return np.empty(0, dtype=np.uint8)
        return np.memmap(path, dtype=np.uint8, mode="r")
    except OSError as error:
        raise plan_error(f"the plan in {path.parent} cannot be read: {path.name}: {error}") from error
