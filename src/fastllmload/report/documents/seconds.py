"""Builds one HDR histogram per metric and second of a run, for an interval log.

The populations are those of run.json: ttft, e2e and gaps of ok requests submitted in the window, lag of all requests
sent in it. A value belongs to the second of its event: first token, last token, the later token of a gap, release. The
sum of the histograms of all seconds is the histogram of the run. Stalls of the host have their own intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastllmload._ext.measure import intervals
from fastllmload._ext.record import histogram
from fastllmload.certificate.monitor import HICCUP_INTERVAL, HICCUP_INTERVALS
from fastllmload.errors import RunFolderError
from fastllmload.metrics.request.durations import NULL, dispatch_lag, e2e, ttft, ttft_any
from fastllmload.metrics.request.tpot import came_whole
from fastllmload.metrics.run.window import Populations, on_schedule, populations, window_of
from fastllmload.metrics.tokens.counts import count_tokens
from fastllmload.metrics.tokens.itl import pooled
from fastllmload.metrics.tokens.times import token_times
from fastllmload.records.integrity import EVENTS
from fastllmload.records.run import Run
from fastllmload.statistics.order_statistics import pieces

SECOND_NS = 1_000_000_000
LONGEST_NS = 365 * 86_400 * SECOND_NS  # longest run
AT_ONCE = 32  # seconds whose histograms are in memory together: 8.7 MB per metric
Times = npt.NDArray[np.int64]
Words = npt.NDArray[np.int64]


@dataclass(frozen=True)
class HistogramInterval:
    """Values of *tag* in [begin_ns, end_ns) of CLOCK_MONOTONIC; *words* as in `_ext.record.histogram`."""

    tag: str
    begin_ns: int
    end_ns: int
    words: Words


@dataclass(frozen=True)
class ValueSource:
    """The values of a tag: *record(begin_ns, words)* counts those of the AT_ONCE seconds from *begin_ns*. *t_ns*: the
    instants of the values, and possibly others.
    """

    tag: str
    first_ns: int
    last_ns: int
    t_ns: Times
    record: Callable[[int, Words], None]

    def seconds(self, base_ns: int) -> Times:
        """Numbers, counted from *base_ns*, of the seconds that may have a value; may contain duplicates."""
        found = [np.empty(0, np.int64)]
        for piece in pieces(self.t_ns):
            number = (piece - base_ns) // SECOND_NS
            found.append(number[np.append(True, number[1:] != number[:-1])])
        numbers = np.concatenate(found)
        return numbers[(numbers >= 0) & (numbers <= (self.last_ns - base_ns) // SECOND_NS)]


def seconds(run: Run) -> Iterator[HistogramInterval]:
    """All intervals that are not empty, ordered by their start."""
    chosen = populations(run, window_of(run))
    sources = [*values_of(run, chosen), *gaps_of(run, chosen)]
    hiccups = list(hiccup_intervals(run))
    phase = run.phase("measure")
    earliest = min((source.first_ns for source in sources), default=0)
    base = earliest if phase is None else min(phase.start_ns, earliest)
    for begin in block_starts(sources, base):
        until = begin + AT_ONCE * SECOND_NS
        due = [each for each in hiccups if each.begin_ns < until]
        hiccups = hiccups[len(due) :]
        yield from sorted([*block(sources, begin), *due], key=lambda each: each.begin_ns)
    yield from hiccups


def block_starts(sources: list[ValueSource], base_ns: int) -> Iterator[int]:
    """Start of each block of AT_ONCE seconds that has a value, a multiple of a second from *base_ns*."""
    last = max((source.last_ns for source in sources), default=base_ns)
    if last - base_ns > LONGEST_NS:
        raise RunFolderError(
            "run-file-damaged",
            f"the times of its events span {(last - base_ns) / LONGEST_NS:.0f} years: they were modified",
        )
    numbers = np.unique(np.concatenate([np.empty(0, np.int64), *(source.seconds(base_ns) for source in sources)]))
    at = 0
    while at < len(numbers):
        yield base_ns + int(numbers[at]) * SECOND_NS
        at = int(np.searchsorted(numbers, numbers[at] + AT_ONCE))


def block(sources: list[ValueSource], begin_ns: int) -> Iterator[HistogramInterval]:
    """The intervals of AT_ONCE seconds from *begin_ns* of all sources, second by second."""
    end_ns = begin_ns + AT_ONCE * SECOND_NS
    active = [source for source in sources if source.first_ns < end_ns and source.last_ns >= begin_ns]
    counted = [np.zeros((AT_ONCE, histogram.WORDS), np.int64) for _ in active]
    for source, words in zip(active, counted, strict=True):
        source.record(begin_ns, words)
    for second in range(AT_ONCE):
        at = begin_ns + second * SECOND_NS
        for source, words in zip(active, counted, strict=True):
            if words[second, histogram.TOTAL]:
                yield HistogramInterval(source.tag, at, at + SECOND_NS, words[second])


def values_of(run: Run, chosen: Populations) -> Iterator[ValueSource]:
    """ttft at t_first, e2e at t_last, lag at t_dispatch; ttft_any at t_any where answers reason."""
    ok, sent = run.rows[chosen.latency], run.rows[chosen.submitted]
    due = sent[on_schedule(run.document.plan.description, sent["request_class"])]
    of_any = [("ttft_any", ok["t_any"], ttft_any(ok))] if (ok["reasoning_events"] > 0).any() else []
    for tag, t_ns, values in (
        ("ttft", ok["t_first"], ttft(ok)),
        *of_any,
        ("e2e", ok["t_last"], e2e(ok)),
        ("lag", due["t_dispatch"], dispatch_lag(due)),
    ):
        present = values != NULL
        if present.any():
            yield value_source(tag, np.ascontiguousarray(t_ns[present]), values[present])


def value_source(tag: str, t_ns: Times, values: Times) -> ValueSource:
    order = np.argsort(t_ns, kind="stable")
    t_ns, values = t_ns[order], values[order]

    def record(begin_ns: int, words: Words) -> None:
        low, high = np.searchsorted(t_ns, (begin_ns, begin_ns + AT_ONCE * SECOND_NS))
        intervals.record_values(t_ns[low:high], values[low:high], begin_ns, SECOND_NS, words)

    return ValueSource(tag, int(t_ns[0]), int(t_ns[-1]), t_ns, record)


def gaps_of(run: Run, chosen: Populations) -> Iterator[ValueSource]:
    """Gaps between tokens or chunks under the name of the run's option (`itl`, `tbc`, `itl_b`); none where events are
    lost.
    """
    if run.lost(EVENTS):
        return
    tokens = count_tokens(run)
    times = token_times(run, chosen.submitted, tokens)
    option = pooled(run, chosen.latency, tokens, times)
    t_ns, first = (times.chunks.t_ns, times.chunks.first) if option.option == "A" else (times.t_ns, times.first)
    kept = (chosen.latency & ~came_whole(run))[times.rows] & (np.diff(first) > 1)
    if kept.any():
        yield gap_source(option.name, t_ns, first, kept)


def gap_source(tag: str, t_ns: Times, first: Times, kept: npt.NDArray[np.bool_]) -> ValueSource:
    """Counts gaps; a block of seconds reads only the requests that were active in it."""
    begins, ends = np.zeros(len(kept), np.int64), np.zeros(len(kept), np.int64)
    begins[kept], ends[kept] = t_ns[first[:-1][kept]], t_ns[first[1:][kept] - 1]

    def record(begin_ns: int, words: Words) -> None:
        alive = kept & (begins < begin_ns + AT_ONCE * SECOND_NS) & (ends >= begin_ns)
        intervals.record_gaps(t_ns, first, alive.view(np.uint8), begin_ns, SECOND_NS, words)

    return ValueSource(tag, int(begins[kept].min()), int(ends[kept].max()), t_ns, record)


def hiccup_intervals(run: Run) -> Iterator[HistogramInterval]:
    """Wake-up delay of the host, recorded by the supervisor about once a second; nothing where it was not recorded."""
    records = run.array(HICCUP_INTERVALS, HICCUP_INTERVAL)
    if records is None or not len(records):
        return
    if int(records["index"].max()) >= histogram.COUNTS:
        raise RunFolderError(
            "run-file-damaged",
            f"{run.directory / HICCUP_INTERVALS} counts values outside of the histogram: it was modified",
        )
    borders = np.flatnonzero(np.diff(records["begin_ns"])) + 1
    for part in np.split(records, borders):
        yield HistogramInterval("hiccup", int(part["begin_ns"][0]), int(part["end_ns"][0]), from_counts(part))


def from_counts(part: npt.NDArray[np.void]) -> Words:
    """A histogram from counts alone; its minimum and maximum are those of their HDR buckets."""
    words = histogram.empty()
    np.add.at(words, part["index"], part["count"])  # intervals of two hosts may begin at one instant
    there = np.flatnonzero(words[: histogram.COUNTS])
    words[histogram.TOTAL] = words[: histogram.COUNTS].sum()
    words[histogram.MINIMUM] = histogram.percentile(words, 0.0) or 0
    words[histogram.MAXIMUM] = (histogram.percentile(words, 1.0) or 0) if len(there) else 0
    return words
