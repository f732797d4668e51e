"""Computes how far a stated TTFT or ITL may lie from the truth, given how its two instants were stamped."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from fastllmload._ext.measure import tokenline
from fastllmload.certificate.evidence import CertificateEvidence, Stamps, Times
from fastllmload.documents.certificate import ErrorBar
from fastllmload.metrics.distribution.percentiles import percentile, ranks_of
from fastllmload.metrics.tokens.timeline import stretches
from fastllmload.records.run import Run
from fastllmload.records.worker_files import as_bytes
from fastllmload.statistics.order_statistics import AT_ONCE, Ranked, collected

# A kernel stamp is taken in the softirq that queues the segment, and mapped from CLOCK_REALTIME by an offset that is read
# once per batch. Compared with a sender's own clock on the same host the error was 2 us at p50 and 5 us at p99.
KERNEL_STAMP_NS = 5_000


def latency_error_bar_us(evidence: CertificateEvidence) -> dict[str, ErrorBar]:
    """By metric (ttft, itl): absolute error that the stamping allows.

    TTFT's also applies to ttft_sched, which includes the lateness of the release: that is not an error of it.
    """
    ttft, itl = evidence.stamps.ttft_error_ns, evidence.stamps.itl_error_ns
    return {"ttft": percentiles(ttft), "itl": percentiles(itl)}


def percentiles(errors: Times | Ranked) -> ErrorBar:
    if not len(errors):
        return ErrorBar()
    if isinstance(errors, Ranked):
        errors.prepare(ranks_of(len(errors), (0.5, 0.99)))
        low, high, most = percentile(errors, 0.5) or 0.0, percentile(errors, 0.99) or 0.0, errors.high
    else:
        (low, high), most = np.percentile(errors, [50, 99]), int(errors.max())
    return ErrorBar(p50=float(low) / 1e3, p99=float(high) / 1e3, max=most / 1e3)


def ttft_error_ns(rows: npt.NDArray[np.void], first_low: Times) -> Times:
    """One per row with a t_first: the larger of the receipt's bracket (down to *first_low*) and the time of the write."""
    timed = rows["t_first"] > 0
    rows, first_low = rows[timed], first_low[timed]
    received = rows["t_first"] - first_low + KERNEL_STAMP_NS
    written = np.where(rows["t_submit_start"] > 0, rows["t_submit"] - rows["t_submit_start"], 0)
    errors: Times = np.maximum(received, written)
    return errors


def itl_error_ns(run: Run, selected: npt.NDArray[np.intp]) -> Times | Ranked:
    """The larger error of the two ends of each gap between content events of one row, for the rows *selected*."""
    chosen = np.zeros(len(run.rows), np.uint8)
    chosen[selected] = 1
    return collected(lambda: gap_errors(run, chosen), len(run.events))


def gap_errors(run: Run, chosen: npt.NDArray[np.uint8]) -> Iterator[Times]:
    for part in stretches(run.first_event, AT_ONCE):
        first = run.first_event[part.start : part.stop + 1]
        brackets = np.empty(int(first[-1] - first[0]), np.int64)
        found = tokenline.take_gap_brackets(as_bytes(run.events), first, chosen[part], brackets)
        yield brackets[:found] + KERNEL_STAMP_NS


def stamp_figures(stamps: Stamps) -> dict[str, str | float | None]:
    """`timestamp_source` (tap, kernel, user, mixed, none) and shares of the stamp classes of the window's events with text.

    `kernel_share` is a share of the events that are not coalesced. `bounded_share` is a share of all events: those with an
    exact stamp of the kernel or the packet ring, or with an interval that contains the true time.
    """
    n, own = stamps.events, stamps.user + stamps.kernel
    return {
        "timestamp_source": source(stamps),
        "events": n,
        "kernel_share": stamps.kernel / own if own else None,
        "bounded_share": (stamps.tap + stamps.kernel + stamps.coalesced) / n if n else None,
        "coalesced_read_share": stamps.coalesced / n if n else None,
        "batched_share": stamps.batched / n if n else None,
        "clamped": stamps.clamped,
        "clamped_share": stamps.clamped / stamps.requests if stamps.requests else None,
    }


def source(stamps: Stamps) -> str:
    """The source of most stamps; coalesced events do not count, because they have the stamp of their read."""
    counts = {"tap": stamps.tap, "kernel": stamps.kernel, "user": stamps.user}
    most = max(counts.values())
    if most == 0:
        return "none" if not stamps.coalesced else stamps.requested
    better = counts["tap"] + (0 if stamps.tap else counts["kernel"])
    if stamps.user > better / 1000:
        return "mixed" if better else "user"
    if stamps.tap:
        return "mixed" if stamps.kernel > stamps.tap / 1000 else "tap"
    return "kernel"
