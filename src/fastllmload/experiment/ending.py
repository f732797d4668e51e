"""Orderly end of an experiment that is interrupted or fails: its results are written and the reason is reported."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

from fastllmload.documents.experiment import ExperimentDocument
from fastllmload.errors import FastLLMLoadError, Interrupted
from fastllmload.experiment.journal import FAILED, INTERRUPTED, Journal

TERMINATING = (signal.SIGTERM, signal.SIGHUP)  # SIGINT is Python's own KeyboardInterrupt
ALL = (signal.SIGINT, *TERMINATING)


@contextmanager
def conclude_when_stopped(
    book: Journal[ExperimentDocument], what: str, conclude: Callable[[str], object]
) -> Iterator[None]:
    """Call *conclude* with the status when *what* ("search") is interrupted or fails, then re-raise. After success the
    caller concludes. SIGTERM and SIGHUP interrupt it between two levels, in a pause or in a hook; during a level the run
    handles them.
    """
    try:
        with handle_signals(TERMINATING, stop):
            yield
    except (Interrupted, KeyboardInterrupt) as problem:
        conclude(INTERRUPTED)
        if isinstance(problem, Interrupted) and problem.message:
            raise
        raise Interrupted(
            "interrupted", f"the {what} was interrupted; the same command with the same --output continues it"
        ) from None
    except FastLLMLoadError as problem:
        book.warn(problem.code, f"the {what} was cut short: {problem.message}")
        conclude(FAILED)
        raise


@contextmanager
def ignore_signals() -> Iterator[None]:
    """Ignore SIGINT, SIGTERM and SIGHUP while the report is written: a second Ctrl-C must not leave a document without its
    report files.
    """
    with handle_signals(ALL, ignore):
        yield


@contextmanager
def handle_signals(
    numbers: Iterable[signal.Signals], handler: Callable[[int, FrameType | None], None]
) -> Iterator[None]:
    """Install *handler* for those of *numbers* that are not ignored, and restore the earlier handlers at the end."""
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


def ignore(number: int, frame: FrameType | None) -> None:
    """Used instead of SIG_IGN, which child processes would inherit."""


def stop(number: int, frame: FrameType | None) -> None:
    raise Interrupted("interrupted", "")
