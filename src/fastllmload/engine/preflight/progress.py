"""Waits before the clock: what is waited for is told while it lasts, not only when it was in vain."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

Say = Callable[[str], None]

SHOWN_AFTER_S = 3.0
LIST_S = 10.0  # a list of models needs no model
ANSWER_S = 30.0  # the first answer may load one


def silent(_: str) -> None:
    """Nobody looks."""


@contextlib.contextmanager
def shown(say: Say, what: str, limit_s: float) -> Iterator[None]:
    """One line to *say*, from another thread, where the body takes longer than 3 s of the *limit_s* that it has."""
    line = f"waiting for {what}, at most {limit_s:g} s (--preflight-timeout)"
    timer = threading.Timer(SHOWN_AFTER_S, say, [line])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
