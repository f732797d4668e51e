"""Write the bodies of a plan: stitched, hashed and written batch by batch, while they are in the CPU cache.

Written with write(2), not through a mapping: a full disk is then an error that can be reported, not a SIGBUS.
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload._ext.plan.stitch import Stitcher
from fastllmload.documents.plan import ConversationsDescription
from fastllmload.endpoint.call import GrpcCall
from fastllmload.errors import HostLimitError
from fastllmload.workload.content.words import WordTable
from fastllmload.workload.synthetic import Batch

BUFFER = 1 << 20


@dataclass(frozen=True)
class Bodies:
    """int32 lengths per request, uint64 offsets (one more), SHA-256 of the file, uint16 classes; *shared*: int32 tokens that
    other prompts have too, or empty; *turns*: TURN items, and *conversations* as in plan.json, None without. *graph*: the
    arrays OF_GRAPH by name; with pieces, the offsets count these.
    """

    input_tokens: npt.NDArray[np.int32]
    output_tokens: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.uint64]
    sha256: str
    kinds: npt.NDArray[np.uint16] = field(default_factory=lambda: np.empty(0, np.uint16))
    shared: npt.NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    turns: npt.NDArray[np.void] | None = None
    conversations: ConversationsDescription | None = None
    graph: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)


def stitcher(table: WordTable, before: bytes, pieces: Sequence[bytes]) -> Stitcher:
    """before + prompt as JSON + pieces[0] + N + pieces[1] + N … with *table*'s words as the prompt."""
    opened = [table.closing + pieces[0], *pieces[1:]]
    return Stitcher(table.blob, table.words, table.first, before + table.opening, opened)


def write_bodies(path: Path, batches: Iterable[Batch], stitch: Stitcher, fixed: int = 0) -> Bodies:
    """Write all bodies of *batches* to *path*. *fixed*: tokens of each prompt that are part of the pieces, not drawn."""
    hasher = hashlib.sha256()
    inputs, outputs = [np.empty(0, dtype=np.int32)], [np.empty(0, dtype=np.int32)]
    kinds, shared = [np.empty(0, dtype=np.uint16)], [np.empty(0, dtype=np.int32)]
    ends = [np.zeros(1, dtype=np.uint64)]
    buffer = np.empty(0, dtype=np.uint8)
    with disk_errors(path), open(path, "wb") as file:
        for batch in batches:
            room = stitch.room(len(batch.drawn), len(batch.prompt))
            if room > len(buffer):
                buffer = np.empty(room, dtype=np.uint8)
            batch_ends = np.empty(len(batch.prompt), dtype=np.uint64)
            size = stitch.stitch(batch.drawn, batch.prompt, batch.output, buffer, batch_ends)
            written = buffer[:size].data
            hasher.update(written)
            file.write(written)
            inputs.append(batch.prompt + np.int32(fixed))
            kinds.append(np.zeros(len(batch.prompt), np.uint16) if batch.kind is None else batch.kind)
            shared.append(np.zeros(len(batch.prompt), np.int32) if batch.shared is None else batch.shared)
            outputs.append(batch.output)
            ends.append(batch_ends + ends[-1][-1])
    return Bodies(
        np.concatenate(inputs), np.concatenate(outputs), np.concatenate(ends), hasher.hexdigest(),
        np.concatenate(kinds), np.concatenate(shared),
    )  # fmt: skip


def as_messages(path: Path, bodies: Bodies, call: GrpcCall) -> Bodies:
    """The bodies in *path* as messages of gRPC instead of JSON."""
    hasher, ends = hashlib.sha256(), [np.zeros(1, np.uint64)]
    written = path.with_name(f"{path.name}.messages")
    with disk_errors(path), open(path, "rb") as json, open(written, "wb") as file:
        first = 0
        while first < len(bodies.input_tokens):
            begin = bodies.offsets[first]
            after = max(first + 1, int(np.searchsorted(bodies.offsets, begin + np.uint64(BUFFER))))
            after = min(after, len(bodies.input_tokens))
            own = bodies.offsets[first + 1 : after + 1] - begin
            messages, places = call.message.encode_all(json.read(int(own[-1])), own)
            hasher.update(messages)
            file.write(messages)
            ends.append(np.frombuffer(places, np.uint64) + ends[-1][-1])
            first = after
    with disk_errors(path):
        written.replace(path)
    return replace(bodies, offsets=np.concatenate(ends), sha256=hasher.hexdigest())


def with_heads(path: Path, bodies: Bodies, heads: Sequence[bytes], which: npt.NDArray[np.int64]) -> Bodies:
    """The bodies in *path*, which all begin with *heads[0]*, each with `heads[which]` in its place."""
    if "pieces.npy" in bodies.graph:
        return _with_head_pieces(path, bodies, heads, which)
    hasher, written = hashlib.sha256(), path.with_name(f"{path.name}.heads")
    sizes = np.array([len(head) for head in heads], np.int64)
    with disk_errors(path), open(path, "rb") as old, open(written, "wb", buffering=BUFFER) as file:
        for number, size in zip(which.tolist(), np.diff(bodies.offsets).tolist(), strict=True):
            body = old.read(size)
            assert body.startswith(heads[0])
            body = heads[number] + body[len(heads[0]) :]
            hasher.update(body)
            file.write(body)
    with disk_errors(path):
        written.replace(path)
    more = sizes[which] - sizes[0]
    ends = bodies.offsets.astype(np.int64)
    ends[1:] += np.cumsum(more)
    return replace(_moved(bodies, more), offsets=ends.astype(np.uint64), sha256=hasher.hexdigest())


def _with_head_pieces(path: Path, bodies: Bodies, heads: Sequence[bytes], which: npt.NDArray[np.int64]) -> Bodies:
    """The same for bodies of pieces: the heads are added to the file, and each body begins with one of them."""
    with disk_errors(path), open(path, "ab") as file:
        begin = file.tell()
        file.write(b"".join(heads))
    with disk_errors(path), open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    sizes = np.array([len(head) for head in heads], np.uint64)
    at = np.uint64(begin) + np.cumsum(sizes) - sizes
    old, first = bodies.graph["pieces.npy"], bodies.offsets[:-1].astype(np.int64)
    rest = old.copy()
    rest["at"][first] += sizes[0]
    rest["size"][first] -= sizes[0]
    front = np.empty(len(first), old.dtype)
    front["at"], front["size"] = at[which], sizes[which]
    pieces = np.insert(rest, first, front)
    offsets = (bodies.offsets + np.arange(len(bodies.offsets), dtype=np.uint64)).astype(np.uint64)
    found = _moved(bodies, sizes[which].astype(np.int64) - np.int64(sizes[0]))
    return replace(found, offsets=offsets, sha256=digest, graph={**found.graph, "pieces.npy": pieces})


def _moved(bodies: Bodies, more: npt.NDArray[np.int64]) -> Bodies:
    """*bodies* whose positions of the conversation's text are *more* bytes further on."""
    if bodies.turns is None:
        return bodies
    turns = bodies.turns.copy()
    inside = turns["reply_at"] > 0
    turns["skip"] = (turns["skip"].astype(np.int64) + more).astype(np.uint32)
    turns["reply_at"][inside] = (turns["reply_at"].astype(np.int64) + more)[inside]
    return replace(bodies, turns=turns)


class BodyFile:
    """A file of bodies that are encoded one by one: writes, hashes and counts them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._hasher = hashlib.sha256()
        self._inputs: list[int] = []
        self._outputs: list[int] = []
        self._kinds: list[int] = []
        self._shared: list[int] = []
        self._ends = [0]
        self.output_tokens = self.input_tokens = 0

    def __enter__(self) -> BodyFile:
        with disk_errors(self._path):
            self._file = open(self._path, "wb", buffering=BUFFER)
        return self

    def __exit__(self, *_: object) -> None:
        with disk_errors(self._path):
            self._file.close()

    @property
    def requests(self) -> int:
        return len(self._inputs)

    def add(self, body: bytes, input_tokens: int, output_tokens: int, kind: int = 0, shared: int = 0) -> None:
        self._hasher.update(body)
        with disk_errors(self._path):
            self._file.write(body)
        self._inputs.append(input_tokens)
        self._outputs.append(output_tokens)
        self._kinds.append(kind)
        self._shared.append(shared)
        self._ends.append(self._ends[-1] + len(body))
        self.input_tokens += input_tokens
        self.output_tokens += output_tokens

    def bodies(self) -> Bodies:
        return Bodies(
            np.array(self._inputs, np.int32), np.array(self._outputs, np.int32), np.array(self._ends, np.uint64),
            self._hasher.hexdigest(), np.array(self._kinds, np.uint16), np.array(self._shared, np.int32),
        )  # fmt: skip


@contextmanager
def disk_errors(path: Path, option: str = "--output") -> Iterator[None]:
    """Raise HostLimitError for an OSError: a full disk, an unwritable folder. *option* names the destination."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        unusable = error.errno == errno.EINVAL  # the path itself is not a file
        what = f"choose another {'file' if unusable else 'folder'} with {option}"
        where = path if unusable else path.parent
        raise HostLimitError(
            "output-not-writable",
            f"the plan cannot be written to {where}: {error.strerror}; "
            f"{'free some space or plan fewer requests' if full else what}",
        ) from error
