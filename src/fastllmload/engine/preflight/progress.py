"""Reports long waits before the clock starts while they last, not only when they time out."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

ReportProgress = Callable[[str], None]

REPORT_AFTER_S = 3.0
LIST_S = 10.0  # a list of models needs no model
ANSWER_S = 30.0  # the first answer may load one


def no_report(_: str) -> None:
    """Report nothing."""


@contextlib.contextmanager
def reporting_wait(report_progress: ReportProgress, what: str, limit_s: float) -> Iterator[None]:
    """Call *report_progress* with one line, in another thread, when the block takes longer than 3 s of its *limit_s*."""
    line = f"waiting for {what}, at most {limit_s:g} s (--preflight-timeout)"
    timer = threading.Timer(REPORT_AFTER_S, report_progress, [line])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
