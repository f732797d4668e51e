"""The process that sends the files of a host to the driver: `python -m fastllmload.engine.hosts.link.sender`.

Settings: a line of JSON on stdin. It sends what is new at a bounded rate, with the lowest priority, until stdin is closed;
then everything that is left, and ends with exit code 0 when the driver has confirmed all files.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from fastllmload.engine.hosts.link.connection import Link, LinkError, connect
from fastllmload.engine.hosts.link.files import Outgoing, below
from fastllmload.engine.hosts.link.messages import Chunk, FilesChecked, FilesEnd

NICE = 19  # which the agent gives it at once: while it starts, so do the workers
STDIN = 0
PASS_S = 1.0
RECENT = 5  # blocks at the end of a file that may still change at any time: those of the newest events
RECENT_ROWS = 256  # the same for rows, which change until they have ended
ROWS_EVERY = 8  # passes from one comparison of rows to the next
GIVE_UP_S = 10.0  # without a connection, once the end of the files is known
AGAIN_S = 1.0  # from a lost connection to the next try
PATIENCE_S = 120.0  # for the driver to take bytes
ATTEMPTS = 3  # to send files whose bytes differ on arrival
MOST_LOST = 5  # connections, once the end of the files is known: a driver that refuses a file closes each of them


class SenderSpec(msgspec.Struct, frozen=True, kw_only=True):
    """*parts*: folders below *folder* whose files are sent, without those with the names *kept*."""

    address: str
    port: int
    key: str
    host: int
    folder: str
    parts: tuple[str, ...]
    bytes_per_s: float
    kept: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"SenderSpec(host={self.host}, folder={self.folder!r}, key=***)"


class Sender:
    def __init__(self, spec: SenderSpec) -> None:
        self.spec = spec
        self.outgoing = Outgoing(Path(spec.folder))
        self.final = False
        self._due = time.monotonic()  # when the next block may be sent

    def run(self) -> str | None:
        """Send until all is confirmed; a clause when the driver does not take the files."""
        failing_since, lost = time.monotonic(), 0
        while True:
            try:
                link = connect(self.spec.address, self.spec.port, bytes.fromhex(self.spec.key), self.spec.host, "files")
            except (OSError, LinkError) as problem:  # the driver's process may be being started again
                if self.final and time.monotonic() - failing_since > GIVE_UP_S:
                    return f"the driver takes no files: {problem}"
                self._wait(AGAIN_S, always=True)
                continue
            try:
                return self._send(link)
            except LinkError as problem:
                lost += self.final
                if lost == MOST_LOST:
                    return f"the connection to the driver ended {lost} times: {problem}"
                self.outgoing.forget()
                failing_since = time.monotonic()
                self._wait(AGAIN_S, always=True)
            finally:
                link.close()

    def _send(self, link: Link) -> str | None:
        passes = 0
        while not self.final:
            self._wait(PASS_S)
            passes += 1
            self._pass(link, RECENT if passes % ROWS_EVERY else RECENT_ROWS)
        for _ in range(ATTEMPTS):
            self._pass(link)
            checked = self._check(link)
            if not checked.differing:
                return None
            self.outgoing.forget(checked.differing)
        return checked.problem or f"the bytes of {', '.join(checked.differing)} changed on their way"

    def _pass(self, link: Link, last: int | None = None) -> None:
        for chunk in self._chunks(last):
            link.send(chunk)
            link.drain(PATIENCE_S)
            if not self.final:
                self._due = max(self._due, time.monotonic() - PASS_S) + len(chunk.data) / self.spec.bytes_per_s
                self._wait(self._due - time.monotonic())

    def _paths(self) -> list[str]:
        found = below(self.outgoing.folder, *self.spec.parts)
        return [path for path in found if path.rpartition("/")[2] not in self.spec.kept]

    def _chunks(self, last: int | None) -> Iterator[Chunk]:
        for path in self._paths():
            with contextlib.suppress(FileNotFoundError):  # it has been replaced meanwhile
                yield from self.outgoing.changed(path, last)

    def _check(self, link: Link) -> FilesChecked:
        for path in self._paths():
            link.send(self.outgoing.end(path))
        link.send(FilesEnd())
        link.drain(PATIENCE_S)
        while True:
            select.select([link], [], [])
            for message in link.receive():
                if isinstance(message, FilesChecked):
                    return message

    def _wait(self, seconds: float, always: bool = False) -> None:
        """Wait, at most until stdin is closed unless *always*."""
        if self.final:
            time.sleep(seconds if always else 0.0)
        elif select.select([STDIN], [], [], max(0.0, seconds))[0]:
            self.final = not os.read(STDIN, 4096)


def main() -> int:
    spec = msgspec.json.decode(sys.stdin.buffer.readline(), type=SenderSpec)
    problem = Sender(spec).run()
    if problem is not None:
        print(problem, file=sys.stderr)
    return 0 if problem is None else 1


if __name__ == "__main__":
    sys.exit(main())
