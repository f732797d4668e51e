"""Signals of a run: one SIGINT drains, a second one (or SIGTERM, SIGHUP) stops. Waits end at once when a signal arrives."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

from fastllmload.errors import Interrupted

WATCHED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
NOTHING, DRAIN, STOP = 0, 1, 2


class Interrupts:
    """A context manager around a run. *level* is what the signals so far demand: NOTHING, DRAIN or STOP.

    Until `collect()` a signal raises Interrupted immediately: nothing has been measured yet. Outside the main thread,
    where Python delivers no signals, only `wait` has an effect.
    """

    def __init__(self) -> None:
        self.level = NOTHING
        self._raising = True
        self._before: dict[signal.Signals, Any] = {}
        self._wake_before = -1
        self._pipe = (-1, -1)
        self._open = threading.Lock()  # held while the pipe is written by other threads, or closed

    def __enter__(self) -> Self:
        self._pipe = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        if threading.current_thread() is threading.main_thread():
            self._before = {
                number: signal.signal(number, self._received) for number in WATCHED if not is_ignored(number)
            }
            self._wake_before = signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before:
            signal.set_wakeup_fd(self._wake_before)
            for number, before in self._before.items():
                signal.signal(number, before)
        with self._open:
            pipe, self._pipe = self._pipe, (-1, -1)
        for end in pipe:
            os.close(end)

    def collect(self) -> None:
        """From now on signals only raise *level*, which the running phase checks."""
        self._raising = False

    def _received(self, number: int, frame: FrameType | None) -> None:
        if self._raising:
            raise Interrupted("interrupted", "interrupted before the run began; nothing was measured")
        self.level = min(STOP, self.level + 1) if number == signal.SIGINT else STOP

    def wait(self, seconds: float) -> None:
        """Return after *seconds*, or as soon as a signal comes."""
        if select.select([self._pipe[0]], [], [], max(0.0, seconds))[0]:
            os.read(self._pipe[0], 4096)

    def wake(self) -> None:
        """End a `wait`, from any thread."""
        with self._open, contextlib.suppress(BlockingIOError):  # full, so that it ends anyway
            if self._pipe[1] >= 0:
                os.write(self._pipe[1], b"\0")


def is_ignored(number: signal.Signals) -> bool:
    """Whether the caller ignores SIGHUP on purpose (`nohup`). Not SIGINT: shells ignore it for background jobs."""
    return number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN
