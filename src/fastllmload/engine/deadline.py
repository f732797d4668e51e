"""The end of a blocking exchange, whatever the peer does."""

from __future__ import annotations

import contextlib
import socket
import threading


class Deadline:
    """Ends an exchange that goes on and on: a socket's own time-out begins again with every byte that drips in."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self.passed = False
        self._connection = connection
        self._timer = threading.Timer(seconds, self._pass)
        self._timer.daemon = True

    def start(self) -> None:
        self._timer.start()

    def cancel(self) -> None:
        self._timer.cancel()

    def _pass(self) -> None:
        self.passed = True
        with contextlib.suppress(OSError):  # it is over already
            self._connection.shutdown(socket.SHUT_RDWR)
