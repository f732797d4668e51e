"""How everything that is made of levels ends when it is cut short: what was found is written, and why it ended is said."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fastllmload.errors import FastLLMLoadError, Interrupted
from fastllmload.procedure.journal import FAILED, INTERRUPTED, Journal


@contextmanager
def kept(book: Journal, what: str, conclude: Callable[[str], object]) -> Iterator[None]:
    """Around the work of *what* ("search"). When it is stopped or fails, *conclude* gets the status, and the error goes on
    its way; an end in good order is the caller's.
    """
    try:
        yield
    except (Interrupted, KeyboardInterrupt):
        conclude(INTERRUPTED)
        raise
    except FastLLMLoadError as problem:
        book.note("warnings", f"the {what} was cut short: {problem}")
        conclude(FAILED)
        raise
