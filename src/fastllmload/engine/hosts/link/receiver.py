"""The driver's process that receives the files of all hosts: `python -m fastllmload.engine.hosts.link.receiver`.

Settings: a line of JSON on stdin. It ends when stdin is closed. A file of a host goes to the same place in the run folder;
a host may write only the folders of its own workers and its own folder below `hosts`.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
from pathlib import Path

import msgspec

from fastllmload.engine.hosts.link.connection import Link, LinkError, Listener
from fastllmload.engine.hosts.link.files import FileRefused, Incoming
from fastllmload.engine.hosts.link.messages import Chunk, FileEnd, FilesEnd

NICE = 10
STDIN = 0


class ReceiverSpec(msgspec.Struct, frozen=True, kw_only=True):
    """*descriptor*: the listening socket, inherited. *workers*: by host, its first worker and their number."""

    descriptor: int
    key: str
    folder: str
    workers: dict[int, tuple[int, int]]

    def __repr__(self) -> str:
        return f"ReceiverSpec(folder={self.folder!r}, key=***)"


def may_write(path: str, host: int, first: int, count: int) -> bool:
    """Whether *host* may write *path* of the run folder."""
    top, _, rest = path.partition("/")
    number, _, name = rest.partition("/")
    if not name or not number.isdecimal():
        return False
    return (top == "hosts" and number == str(host)) or (
        top == "workers" and number == str(int(number)) and first <= int(number) < first + count
    )


class FileReceiver:
    def __init__(self, spec: ReceiverSpec) -> None:
        self.spec = spec
        self._listener = Listener(socket.socket(fileno=spec.descriptor), bytes.fromhex(spec.key), "files")
        self._links: dict[int, tuple[Link, Incoming]] = {}
        self._poll = select.epoll()
        self._poll.register(STDIN, select.EPOLLIN)
        self._poll.register(self._listener, select.EPOLLIN)

    def run(self) -> None:
        while True:
            for number, _ in self._poll.poll():
                if number == STDIN and not os.read(STDIN, 4096):
                    return
                if number == self._listener.fileno():
                    self._accept()
                elif number in self._links:
                    self._receive(number)

    def _accept(self) -> None:
        for hello, link in self._listener.accept():
            if hello.host not in self.spec.workers:
                link.close()
                continue
            host, (first, count) = hello.host, self.spec.workers[hello.host]
            incoming = Incoming(
                Path(self.spec.folder),
                lambda path, host=host, first=first, count=count: may_write(path, host, first, count),  # type: ignore[misc]
            )
            self._links[link.fileno()] = link, incoming
            self._poll.register(link, select.EPOLLIN)
            self._receive(link.fileno())

    def _receive(self, number: int) -> None:
        link, incoming = self._links[number]
        try:
            for message in link.receive():
                if isinstance(message, Chunk):
                    incoming.write(message)
                elif isinstance(message, FileEnd):
                    incoming.finish(message)
                elif isinstance(message, FilesEnd):
                    link.send(incoming.checked())
                else:
                    raise LinkError("a message was received that does not carry a file")
        except (LinkError, FileRefused):
            del self._links[number]
            self._poll.unregister(number)
            incoming.close()
            link.close()


def main() -> int:
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)  # these end the run; this process ends when its supervisor says so
    spec = msgspec.json.decode(sys.stdin.buffer.readline(), type=ReceiverSpec)
    os.nice(NICE)
    FileReceiver(spec).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
