"""How everything that is made of levels ends when it is cut short: what was found is written, and why it ended is said."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from fastllmload.errors import FastLLMLoadError, Interrupted
from fastllmload.procedure.journal import FAILED, INTERRUPTED, Journal

ENDING = (signal.SIGTERM, signal.SIGHUP)  # SIGINT is Python's own KeyboardInterrupt


@contextmanager
def kept(book: Journal, what: str, conclude: Callable[[str], object]) -> Iterator[None]:
    """Around the work of *what* ("search"). When it is stopped or fails, *conclude* gets the status, and the error goes on
    its way; an end in good order is the caller's.
    """
    try:
        with heeded():
            yield
    except (Interrupted, KeyboardInterrupt) as problem:
        conclude(INTERRUPTED)
        if isinstance(problem, Interrupted) and str(problem):
            raise
        raise Interrupted(f"the {what} was interrupted; the same command with the same --output goes on") from None
    except FastLLMLoadError as problem:
        book.note("warnings", f"the {what} was cut short: {problem}")
        conclude(FAILED)
        raise


@contextmanager
def heeded() -> Iterator[None]:
    """SIGTERM and SIGHUP raise Interrupted between two levels, in a pause or a hook, as they end a run in order. What is
    ignored (`nohup`) stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Python delivers signals to the main thread only
        return
    before = {number: signal.signal(number, stop) for number in ENDING if signal.getsignal(number) != signal.SIG_IGN}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def stop(number: int, frame: FrameType | None) -> None:
    raise Interrupted
