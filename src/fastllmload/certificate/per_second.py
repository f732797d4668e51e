"""Judges the client second by second, because figures of the complete run may hide a bad second."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastllmload.arrays import Numbers
from fastllmload.certificate.evidence import MeasuredWindow, Sends, Times, WorkerRecord
from fastllmload.documents.certificate import Second, SecondsJudged
from fastllmload.documents.fields import known
from fastllmload.records import layout
from fastllmload.records.event_totals import EventsElsewhere
from fastllmload.records.run import Run

LAG_US, BRACKET_US, CPU_SHARE = 1_000.0, 1_000.0, 0.8  # a second that exceeds one of them is bad
WORST = 10
SECOND_NS = 1_000_000_000
PER_OCTAVE = 8  # classes of brackets: the error of a percentile is at most a twelfth
CLASSES = 33 * PER_OCTAVE
EVENTS_AT_ONCE = 1 << 17
TIMED = (layout.EVENT_CONTENT, layout.EVENT_WHITESPACE, layout.EVENT_REASONING, layout.EVENT_TOOL)


def badness(second: Second) -> float:
    """The largest ratio of a figure to its limit; above 1 the second is bad."""
    pairs = ((second.lag_p99_us, LAG_US), (second.bracket_p99_us, BRACKET_US), (second.cpu_share, CPU_SHARE))
    return max((value / limit for each, limit in pairs if (value := known(each)) is not None), default=0.0)


def seconds_of(run: Run, window: MeasuredWindow, sends: Sends, workers: Sequence[WorkerRecord]) -> tuple[Second, ...]:
    """Every full second of *window*."""
    n = int(window.seconds)
    if n < 1:
        return ()
    lag = lags_us(sends, window, n)
    brackets, coalesced = events_of(run, window, n) if run.elsewhere is None else events_elsewhere(run.elsewhere, n)
    cpu = cpu_shares(workers, window, n)
    return tuple(
        Second(
            at_s=k,
            lag_p99_us=lag[k],
            bracket_p99_us=percentile_us(brackets[k]),
            coalesced_share=share(int(coalesced[k]), int(brackets[k].sum())),
            cpu_share=cpu[k],
        )
        for k in range(n)
    )


def summarize(seconds: Sequence[Second]) -> SecondsJudged:
    """`certificate.seconds`: the number of seconds, of bad ones, and the worst of these."""
    bad = sorted((one for one in seconds if badness(one) > 1), key=lambda one: -badness(one))
    return SecondsJudged(n=len(seconds), bad=len(bad), worst=tuple(bad[:WORST]))


def lags_us(sends: Sends, window: MeasuredWindow, n: int) -> list[float | None]:
    """P99 of t_dispatch - t_sched of the releases due in each second; None where no instant was planned."""
    timed = sends.arrivals.process not in ("inf", "closed") and not sends.capped
    due = (sends.t_sched - window.start_ns) // SECOND_NS
    found: list[float | None] = [None] * n
    borders = np.searchsorted(due, np.arange(n + 1))
    for k in range(n if timed else 0):
        selected = slice(borders[k], borders[k + 1])
        if selected.start < selected.stop:
            found[k] = float(np.percentile(sends.t_dispatch[selected] - sends.t_sched[selected], 99)) / 1e3
    return found


def events_of(run: Run, window: MeasuredWindow, n: int) -> tuple[Numbers, Numbers]:
    """Per second: events that carry text, by bracket class (int64[n, CLASSES]), and the number of coalesced ones."""
    brackets, coalesced = np.zeros(n * CLASSES, np.int64), np.zeros(n, np.int64)
    for begin in range(0, len(run.events), EVENTS_AT_ONCE):
        events = run.events[begin : begin + EVENTS_AT_ONCE]
        second = (events["t_ns"] - window.start_ns) // SECOND_NS
        selected = (second >= 0) & (second < n) & np.isin(events["kind"], TIMED)
        second, chosen = second[selected], events[selected]
        classes = np.log2(chosen["bracket_ns"].astype(np.float64) + 1) * PER_OCTAVE
        brackets += np.bincount(second * CLASSES + classes.astype(np.int64), minlength=n * CLASSES)
        stamps = chosen["stamp"] & layout.STAMP_CLASS_MASK
        coalesced += np.bincount(second[stamps == layout.STAMP_COALESCED], minlength=n)
    return brackets.reshape(n, CLASSES), coalesced


def events_elsewhere(elsewhere: EventsElsewhere, n: int) -> tuple[Numbers, Numbers]:
    """The same of events that stayed on their hosts."""
    found = elsewhere.together.seconds
    brackets, coalesced = np.zeros(n * CLASSES, np.int64), np.zeros(n, np.int64)
    if found.n == n:
        brackets[np.array(found.places, np.int64)] = found.counts
        coalesced += np.array(found.coalesced, np.int64)
    return brackets.reshape(n, CLASSES), coalesced


def percentile_us(classes: Numbers) -> float | None:
    """P99 of the brackets of a second: the upper end of its class."""
    total = int(classes.sum())
    if not total:
        return None
    index = int(np.searchsorted(np.cumsum(classes), 0.99 * total))
    return 0.0 if index == 0 else float(2 ** ((index + 1) / PER_OCTAVE)) / 1e3


def share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def cpu_shares(workers: Sequence[WorkerRecord], window: MeasuredWindow, n: int) -> list[float | None]:
    """Share of a core that the busiest worker used in each second, interpolated linearly between samples."""
    edges: Times = window.start_ns + np.arange(n + 1) * SECOND_NS
    found: list[float | None] = [None] * n
    for record in workers:
        if len(record.t_ns) < 2:
            continue
        used = np.diff(np.interp(edges, record.t_ns, record.cpu_ns)) / SECOND_NS
        known = (edges[:-1] >= record.t_ns[0]) & (edges[1:] <= record.t_ns[-1])
        for k in np.flatnonzero(known).tolist():
            found[k] = max(found[k] or 0.0, float(used[k]))
    return found
