"""Bodies of a plan on their way to disk: stitched, hashed and written batch by batch, while they are in the
cache.

Written with write(2), not through a mapping: a full disk is then an error that can be told, not a SIGBUS.
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fastllmload._ext.stitch import Stitcher
from fastllmload.errors import HostLimitError
from fastllmload.workload.synthetic import Batch
from fastllmload.workload.words import WordTable


@dataclass(frozen=True)
class Bodies:
    """What was written: int32 lengths per request, uint64 offsets (one more), SHA-256 of the file."""

    input_tokens: npt.NDArray[np.int32]
    output_tokens: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.uint64]
    sha256: str


def stitcher(table: WordTable, before: bytes, pieces: Sequence[bytes]) -> Stitcher:
    """before + prompt as JSON + pieces[0] + N + pieces[1] + N … with *table*'s words as the prompt."""
    opened = [table.closing + pieces[0], *pieces[1:]]
    return Stitcher(table.blob, table.words, table.first, before + table.opening, opened)


def write_bodies(path: Path, batches: Iterable[Batch], stitch: Stitcher) -> Bodies:
    """All bodies of *batches* into the file *path*, one behind the other."""
    hasher = hashlib.sha256()
    inputs, outputs = [np.empty(0, dtype=np.int32)], [np.empty(0, dtype=np.int32)]
    ends = [np.zeros(1, dtype=np.uint64)]
    buffer = np.empty(0, dtype=np.uint8)
    with disk_errors(path), open(path, "wb") as file:
        for batch in batches:
            room = stitch.room(len(batch.drawn), len(batch.prompt))
            if room > len(buffer):
                buffer = np.empty(room, dtype=np.uint8)
            behind = np.empty(len(batch.prompt), dtype=np.uint64)
            size = stitch.stitch(batch.drawn, batch.prompt, batch.output, buffer, behind)
            written = buffer[:size].data
            hasher.update(written)
            file.write(written)
            inputs.append(batch.prompt)
            outputs.append(batch.output)
            ends.append(behind + ends[-1][-1])
    return Bodies(np.concatenate(inputs), np.concatenate(outputs), np.concatenate(ends), hasher.hexdigest())


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """A full disk or a folder that cannot be written becomes one sentence."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        what = "free some space or plan fewer requests" if full else "choose another folder with --output"
        raise HostLimitError(
            f"the plan cannot be written to {path.parent}: {error.strerror}; {what}"
        ) from error
