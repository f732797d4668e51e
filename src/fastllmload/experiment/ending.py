"""How everything that is made of levels ends when it is cut short: what was found is written, and why it ended is said."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

from fastllmload.errors import FastLLMLoadError, Interrupted
from fastllmload.experiment.journal import FAILED, INTERRUPTED, Journal

ENDING = (signal.SIGTERM, signal.SIGHUP)  # SIGINT is Python's own KeyboardInterrupt
ALL = (signal.SIGINT, *ENDING)


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
    with handled(ENDING, stop):
        yield


@contextmanager
def unbroken() -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP have no effect while the report is written, which is how each of them would end: a second
    Ctrl-C behind the first must not leave a document without its pages.
    """
    with handled(ALL, pass_over):
        yield


@contextmanager
def handled(numbers: Iterable[signal.Signals], handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """*handler* for those of *numbers* that are not ignored, and what was before it again."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python delivers signals to the main thread only
        return
    before = {
        number: signal.signal(number, handler) for number in numbers if signal.getsignal(number) != signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def pass_over(number: int, frame: FrameType | None) -> None:
    """Not SIG_IGN, which what is started meanwhile would inherit."""


def stop(number: int, frame: FrameType | None) -> None:
    raise Interrupted
