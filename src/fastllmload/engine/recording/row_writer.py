"""The process that writes the rows of all workers to the disk: `python -m fastllmload.engine.recording.row_writer`.

Workers write to memory and never wait for a disk. The supervisor and every worker keep an end of a pipe open; when all
have closed it or died, this process completes the files and ends: killing some of them loses nothing. The texts of a
worker's failures pass through a memfd. Imports little, because it starts at the same time as the workers.
"""

from __future__ import annotations

import json
import os
import select
import signal
import struct
import sys

from fastllmload._ext.record.rowwriter import RowWriter

PASS_S = 0.5
HEAD = struct.Struct("<QQ")  # version of the texts, 0 while they change; their size
TEXTS = "error_texts.json"  # records.error_texts.NAME, which takes too long to import


def new_texts_memory() -> int:
    """A descriptor of new memory for one worker, not inherited. OSError when the system gives none."""
    return os.memfd_create("texts", os.MFD_CLOEXEC)


def put_texts(memory: int, version: int, texts: bytes) -> None:
    """Replace the texts; *version* is above 0 and differs from the one before. OSError when the system gives no memory."""
    os.pwrite(memory, HEAD.pack(0, 0), 0)
    os.pwrite(memory, texts, HEAD.size)
    os.pwrite(memory, HEAD.pack(version, len(texts)), 0)


def take_texts(memory: int, known: int) -> tuple[int, bytes] | None:
    """(version, texts); None when there are none, when their version is *known*, and while they change."""
    head = os.pread(memory, HEAD.size, 0)
    version, size = HEAD.unpack(head) if head else (0, 0)
    if version in (0, known):
        return None
    texts = os.pread(memory, size, HEAD.size)
    return (version, texts) if os.pread(memory, HEAD.size, 0) == head else None


class TextWriter:
    """Keeps the file of one worker's texts of failures as the memory of *descriptor* has them."""

    def __init__(self, descriptor: int, directory: str) -> None:
        self.descriptor = descriptor
        self.path = f"{directory}/{TEXTS}"
        self.version = 0

    def write_out(self) -> None:
        """A full disk loses these texts, not the run; they are tried again at the next pass."""
        found = take_texts(self.descriptor, self.version)
        if found is None:
            return
        try:
            with open(f"{self.path}.part", "wb") as file:
                file.write(found[1])
            os.replace(f"{self.path}.part", self.path)
        except OSError:
            return
        self.version = found[0]


def write(life: int, writers: list[RowWriter], texts: list[TextWriter]) -> None:
    """Write what is new repeatedly until the pipe *life* is closed, then complete the files."""
    ended = select.poll()
    ended.register(life, select.POLLIN)
    while not ended.poll(PASS_S * 1e3):
        for writer in writers:
            writer.write_out()
        for each in texts:
            each.write_out()
    for writer in writers:
        writer.finish()
    for each in texts:
        each.write_out()


def main() -> int:
    """argv[1]: JSON of the pipe's descriptor, and per worker: descriptor of rows, folder, "with text", that of texts."""
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)  # these signals end the workers; this process ends after them
    life, workers = json.loads(sys.argv[1])
    rows = [RowWriter(memory, folder, text) for memory, folder, text, _ in workers]
    write(life, rows, [TextWriter(texts, folder) for _, folder, _, texts in workers])
    return 0


if __name__ == "__main__":
    sys.exit(main())
