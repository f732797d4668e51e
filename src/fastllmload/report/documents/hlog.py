"""Writes latency.hlog: an HdrHistogram interval log (format 1.3, histograms V2), one tagged line per metric and second.

Values are nanoseconds with 3 significant digits up to 1 h; `Interval_Max` is in ms, as in other logs. The tools of
HdrHistogram read it, sum any range of it, and merge it with logs of other runs.
"""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import IO

import numpy as np
from hdrh.histogram import HdrHistogram  # type: ignore[import-untyped]

from fastllmload._ext.record import histogram
from fastllmload.errors import RunFolderError
from fastllmload.files import replacing
from fastllmload.records.integrity import EVENTS, ROWS
from fastllmload.records.run import Run
from fastllmload.report.documents.seconds import HistogramInterval, seconds

NAME = "latency.hlog"
FORMAT = "1.3"
LEGEND = '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"'
MS = 1e6


def write(run: Run) -> None:
    """Write latency.hlog into the run folder. RunFolderError for a run whose rows or events are incomplete."""
    damage = run.damage_of(ROWS, EVENTS)
    if damage is not None:
        raise RunFolderError("run-file-damaged", damage)
    with replacing(run.directory / NAME) as file:
        text = io.TextIOWrapper(file, encoding="ascii", newline="\n")
        write_log(run, text)
        text.flush()
        text.detach()


def write_log(run: Run, stream: IO[str]) -> None:
    """Times are seconds after the start of the measure phase, which BaseTime gives. Gaps are left out where events are
    lost. RunFolderError for incomplete rows, whose intervals would lack requests.
    """
    damage = run.lost(ROWS)
    if damage is not None:
        raise RunFolderError("run-file-damaged", f"{damage}; its intervals would not be those of the run")
    phase = run.phase("measure")
    offset_ns = run.document.environment.clock_offset_ns
    base_ns = 0 if phase is None else phase.start_ns
    stream.write("#[fastllmload: latencies in ns by metric (Tag) and second of the event]\n")
    stream.write(f"#[Histogram log format version {FORMAT}]\n")
    if offset_ns is not None and phase is not None:
        stream.write(_wall_clock((base_ns + offset_ns) / 1e9))
    stream.write(f"{LEGEND}\n")
    encoder = Encoder()
    for each in seconds(run):
        stream.write(_line(each, base_ns, encoder))


def _wall_clock(epoch_s: float) -> str:
    try:
        utc = datetime.fromtimestamp(epoch_s, UTC).strftime("%a %b %d %H:%M:%S UTC %Y")
    except (OSError, ValueError, OverflowError):
        raise RunFolderError(
            "run-file-damaged",
            f"the start of the run, {epoch_s:g} s since 1970, is not a valid date: run.json was modified",
        ) from None
    return (
        f"#[StartTime: {epoch_s:.3f} (seconds since epoch), {utc}]\n#[BaseTime: {epoch_s:.3f} (seconds since epoch)]\n"
    )


def _line(each: HistogramInterval, base_ns: int, encoder: Encoder) -> str:
    begin, length = (each.begin_ns - base_ns) / 1e9, (each.end_ns - each.begin_ns) / 1e9
    largest = each.words[histogram.MAXIMUM] / MS
    return f"Tag={each.tag},{max(0.0, begin):.3f},{length:.3f},{largest:.3f},{encoder(each)}\n"


class Encoder:
    """Encodes histograms as base64 of the compressed V2 format; reuses one HdrHistogram and replaces its counts."""

    def __init__(self) -> None:
        self._histogram = HdrHistogram(1, histogram.HIGHEST, histogram.DIGITS)
        self._counts = np.frombuffer(self._histogram.counts, np.int64)

    def __call__(self, each: HistogramInterval) -> str:
        self._counts[:] = each.words[: histogram.COUNTS]
        self._histogram.total_count = int(each.words[histogram.TOTAL])
        self._histogram.min_value = int(each.words[histogram.MINIMUM])
        self._histogram.max_value = int(each.words[histogram.MAXIMUM])
        encoded: bytes = self._histogram.encode()
        return encoded.decode("ascii")
