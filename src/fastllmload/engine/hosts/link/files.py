"""Files that go from one host to another in blocks, also while they grow and change, and their check at the end.

`Outgoing` sends a block when its CRC-32 differs from that of the block sent before, so a file may be rewritten in place.
Blocks of a file go in order, with the first one, which holds the header of a .npy file, at the end: what has arrived of a
row file can be read at every moment. `Incoming` writes them below its folder.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from fastllmload.engine.hosts.link.messages import CHUNK_BYTES, Chunk, FileEnd, FilesChecked
from fastllmload.files import checksum

NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")
LONGEST = 1 << 44  # bytes of a file


class FileRefused(Exception):
    """A file may not be written, or cannot be; the message is a clause."""


class Outgoing:
    """The blocks of files below *folder* that the other side has."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._sent: dict[str, list[int]] = {}

    def forget(self, paths: Sequence[str] | None = None) -> None:
        """Send these files, or all, again from their beginning: the other side does not have them."""
        for path in list(self._sent) if paths is None else paths:
            self._sent.pop(path, None)

    def changed(self, path: str, last: int | None = None) -> Iterator[Chunk]:
        """Blocks to send of one file: of those that the other side has, the first one and the *last* ones are compared,
        or all; then those that it does not have.
        """
        known = self._sent.setdefault(path, [])
        with open(self.folder / path, "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            blocks = -(-size // CHUNK_BYTES)
            first = 1 if last is None else max(1, len(known) - last)
            for number in (*range(first, blocks), *((0,) if blocks else ())):
                data = os.pread(file.fileno(), CHUNK_BYTES, number * CHUNK_BYTES)
                crc = zlib.crc32(data)
                if number < len(known) and known[number] == crc:
                    continue
                yield Chunk(path, number * CHUNK_BYTES, data)
                known.extend([-1] * (number + 1 - len(known)))
                known[number] = crc

    def end(self, path: str) -> FileEnd:
        """Size and checksum of a file that does not change any more."""
        return FileEnd(path, (self.folder / path).stat().st_size, checksum(self.folder / path))


def below(folder: Path, *parts: str) -> list[str]:
    """Relative paths of the regular files below the folders *parts* of *folder*, without unfinished ones, by name."""
    found = []
    for part in parts:
        for path in sorted((folder / part).rglob("*")):
            if path.suffix != ".part" and stat.S_ISREG(path.lstat().st_mode):
                found.append(path.relative_to(folder).as_posix())
    return found


class Incoming:
    """Writes received files below *folder*. *allowed* says whether a relative path may be written."""

    def __init__(self, folder: Path, allowed: Callable[[str], bool]) -> None:
        self.folder = folder
        self._allowed = allowed
        self._open: dict[str, int] = {}
        self._differing: list[str] = []
        self.bytes = 0
        self.problem: str | None = None  # why files could not be written

    def write(self, chunk: Chunk) -> None:
        """Write a block. FileRefused when it may not be written; a disk that fails sets *problem*."""
        if not 0 <= chunk.offset <= LONGEST:
            raise FileRefused(f"a block at {chunk.offset:,} of {chunk.path!r} is beyond every file")
        try:
            done = os.pwrite(self._descriptor(chunk.path), chunk.data, chunk.offset)
            if done < len(chunk.data):
                self.problem = "the disk is full"
        except OSError as problem:
            self.problem = f"{chunk.path} cannot be written: {(problem.strerror or str(problem)).lower()}"
        self.bytes += len(chunk.data)

    def _descriptor(self, path: str) -> int:
        if path in self._open:
            return self._open[path]
        if not all(NAME.fullmatch(part) for part in path.split("/")) or not self._allowed(path):
            raise FileRefused(f"the file {path!r} may not be written")
        place = self.folder / path
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._open[path] = os.open(place, flags, 0o600)
        return self._open[path]

    def finish(self, end: FileEnd) -> None:
        """Cut a file to its size and compare its bytes with those that were sent. FileRefused."""
        same = False
        try:
            os.ftruncate(self._descriptor(end.path), end.size)
            same = checksum(self.folder / end.path) == end.crc32
            os.close(self._open.pop(end.path))
        except OSError as problem:
            self.problem = f"{end.path} cannot be written: {(problem.strerror or str(problem)).lower()}"
        if not same:
            self._differing.append(end.path)

    def checked(self) -> FilesChecked:
        """What became of the files that have ended since the last call."""
        found = FilesChecked(tuple(self._differing), self.problem)
        self._differing, self.problem = [], None
        return found

    def close(self) -> None:
        for descriptor in self._open.values():
            with contextlib.suppress(OSError):  # the disk has failed: what was written stays
                os.close(descriptor)
        self._open.clear()
