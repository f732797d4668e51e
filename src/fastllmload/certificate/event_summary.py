"""Computes what a host reports of its events, so that they can stay there (`--collect summary`).

Figures of requests and the certificate need totals of each request (`records.event_totals`), counts, and distributions of
gaps. What `measure` and `judge` make of these is what they make of the events: exactly, but for ranks of gaps, which are
known to three digits.
"""

from __future__ import annotations

import numpy as np

from fastllmload._ext.measure import tokenline
from fastllmload.arrays import Mask, Rows
from fastllmload.certificate.error_bounds import gap_errors
from fastllmload.certificate.evidence import AmongHosts, MeasuredWindow, Times
from fastllmload.certificate.hosts import evidence_of_host, judged_alone
from fastllmload.certificate.judge import judge_evidence
from fastllmload.certificate.per_second import events_of
from fastllmload.certificate.run_evidence import from_run, measured_window, received_in, stamp_classes
from fastllmload.documents.event_summary import EventSummary, GapCounts, HostSummary, SecondCounts, StampCounts
from fastllmload.documents.run_parts.hosts import HostEntry
from fastllmload.errors import InputError
from fastllmload.metrics.objectives.benefit import PRESETS
from fastllmload.metrics.objectives.objective import objectives_of
from fastllmload.metrics.request.durations import committed
from fastllmload.metrics.request.tpot import came_whole
from fastllmload.metrics.run.bounds import STAMP_NS, bounds_of_gaps, earliest
from fastllmload.metrics.run.in_flight import token_seconds
from fastllmload.metrics.run.reasoning import reasons_again
from fastllmload.metrics.run.throughput import share_in_window
from fastllmload.metrics.run.window import Populations, Window, populations
from fastllmload.metrics.tokens.counts import TokenCounts, count_tokens, leading_tokens, reasoning_tokens
from fastllmload.metrics.tokens.fluidity import fluidity_of, min_tbt_deadline
from fastllmload.metrics.tokens.idle import Reader, max_lateness, reader_of
from fastllmload.metrics.tokens.itl import PooledGaps, figures, gaps_of
from fastllmload.metrics.tokens.times import TokenTimes, per_request, token_times
from fastllmload.records.event_totals import READERS, TOTAL
from fastllmload.records.run import Run
from fastllmload.records.worker_files import as_bytes
from fastllmload.settings import Output
from fastllmload.statistics.hdr_sample import Counting, counts_of
from fastllmload.statistics.order_statistics import pieces


def summarize(
    run: Run, host: HostEntry, window: Window | None, unread: Times, distances: AmongHosts
) -> tuple[Rows, HostSummary]:
    """`event_totals.npy` and the summary of *run*, which has the requests of *host* only.

    *window*, *unread* (intervals in which any worker did not read) and *distances* (of the host from the others) are those
    of the run of all hosts.
    """
    alone = judged_alone(run, host)
    evidence = evidence_of_host(from_run(alone, host), host, distances)
    chosen, tokens = populations(run, window), count_tokens(run)
    times = token_times(run, chosen.submitted, tokens)
    readers = readers_of(run.document.config.output)
    streamed = chosen.latency & ~came_whole(run)
    totals, stated = totals_of(run, window, chosen, streamed, tokens, times, readers)
    measured = measured_window(window)
    seconds = 0.0 if window is None or not measured.seconds else token_seconds(run, window, tokens, chosen.measured)
    summary = EventSummary(
        chunk_gaps=gaps_by_class(run, times, streamed, "A"),
        token_gaps=None if times.sizes is None else gaps_by_class(run, times, streamed, "B"),
        token_seconds=seconds,
        empty_stated=stated,
        stamps=stamp_counts(run, measured, unread),
        seconds=second_counts(run, measured),
    )
    return totals, HostSummary(
        readers=tuple((one.speed, one.first_ns) for one in readers),
        events=summary,
        certificate=judge_evidence(evidence),
        ttft_p50_ms=alone.document.metric("ttft").p50,
    )


def readers_of(output: Output) -> list[Reader]:
    """The readers whose waiting is in the figures of a run: its own, those of the presets, those of objectives."""
    try:
        limits = [Reader(one.limit) for one in objectives_of(output.goodput) if one.metric == "reading"]
    except InputError:  # of another version, whose objectives are not judged
        limits = []
    found = {
        (one.speed, one.first_ns): one for one in (reader_of(output), *(p.reader for p in PRESETS.values()), *limits)
    }
    return list(found.values())[:READERS]


def totals_of(
    run: Run,
    window: Window | None,
    chosen: Populations,
    streamed: Mask,
    tokens: TokenCounts,
    times: TokenTimes,
    readers: list[Reader],
) -> tuple[Rows, int]:
    """Totals of each row, and how many chunks without text carry a token by the server."""
    totals = np.zeros(len(run.rows), TOTAL)
    totals["counted"] = 1
    early = earliest(run)
    totals["t_any_least"], totals["t_first_least"], totals["t_last_least"] = early.any, early.first, early.last
    totals["leading"], totals["reasoning"] = leading_tokens(run), reasoning_tokens(run)
    totals["reasons_again"] = reasons_again(run, np.ones(len(run.rows), np.bool_))
    if window is not None:
        totals["in_window"] = share_in_window(run, window, tokens, chosen.measured)
    undecided = np.zeros(int(streamed.sum()), np.int64)
    stated = tokenline.count_empty(as_bytes(run.events), run.first_event, streamed.view(np.uint8), undecided)
    totals["empty"][streamed] = undecided
    set_token_totals(totals, run, tokens, times, readers)
    return totals, stated


def set_token_totals(totals: Rows, run: Run, tokens: TokenCounts, times: TokenTimes, readers: list[Reader]) -> None:
    """Set what comes from the times of tokens, of the requests of *times*."""
    rows, every = run.rows[times.rows], np.ones(len(times.rows), np.bool_)
    found = {
        "chunks": times.chunks.events,
        "tokens": times.count,
        "single": times.single,
        "bearing": times.bearing,
        "source": times.source,
        "least_deadline": min_tbt_deadline(times),
    }
    fluid = fluidity_of(run, tokens, times)
    found |= {"met": fluid.met, "met_decode": fluid.met_decode, "missed": fluid.missed}
    for name, of in (("chunk", times.chunks), ("token", times)):
        gaps = gaps_of(of.t_ns, of.first, every, run.directory)
        found[f"{name}_gaps"] = per_request(gaps.each, gaps.first, lambda ns: ns)
        found[f"{name}_jitter"], found[f"{name}_pause"] = figures(gaps)
    for name, values in found.items():
        totals[name][times.rows] = values
    for column, reader in enumerate(readers):
        totals["late"][times.rows, column] = max_lateness(rows, times, reader, committed(rows))


def gaps_by_class(run: Run, times: TokenTimes, streamed: Mask, option: str) -> dict[int, GapCounts]:
    """By number of the request class: gaps between chunks ("A") or tokens ("B") of the *streamed* requests."""
    kept, of_class = streamed[times.rows], run.rows["request_class"][times.rows]
    return {
        number: gap_counts(run, times, kept & (of_class == number), option)
        for number in np.unique(of_class[kept]).tolist()
    }


def gap_counts(run: Run, times: TokenTimes, kept: Mask, option: str) -> GapCounts:
    of = times.chunks if option == "A" else times
    gaps = gaps_of(of.t_ns, of.first, kept, run.directory)
    bearing = None
    if option != "A" and times.sizes is not None:
        bearing = times.sizes[np.repeat(kept, times.chunks.events)] > 0
    least, most = Counting(), Counting()
    for low, high in bounds_of_gaps(run, PooledGaps(option, None, times.rows[kept], gaps, bearing=bearing)):
        least.add(np.maximum(low - STAMP_NS, 0))
        most.add(high + STAMP_NS)
    return GapCounts(ns=counts_of(pieces(gaps.each)), least=least.counts(), most=most.counts())


def stamp_counts(run: Run, window: MeasuredWindow, unread: Times) -> StampCounts:
    selected = received_in(run, window)
    chosen = np.zeros(len(run.rows), np.uint8)
    chosen[selected] = 1
    classes, batched, brackets = stamp_classes(run, selected, unread)
    return StampCounts(
        classes=tuple(classes.tolist()),
        batched=batched,
        brackets=tuple(map(tuple, brackets.tolist())),
        gap_errors=counts_of(gap_errors(run, chosen)),
    )


def second_counts(run: Run, window: MeasuredWindow) -> SecondCounts:
    n = int(window.seconds)
    if n < 1:
        return SecondCounts()
    brackets, coalesced = events_of(run, window, n)
    counts = brackets.reshape(-1)
    places = np.flatnonzero(counts)
    return SecondCounts(
        n=n, places=tuple(places.tolist()), counts=tuple(counts[places].tolist()), coalesced=tuple(coalesced.tolist())
    )
