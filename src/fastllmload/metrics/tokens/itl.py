"""Computes gaps between tokens (ITL), or chunks where tokens are not known (TBC) (spec/metrics 3.4, 5.3, 5.7, 5.8)."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import replace as replace_fields
from pathlib import Path
from typing import ClassVar

import numpy as np
from msgspec.structs import replace

from fastllmload._ext.measure import tokenline
from fastllmload.arrays import Floats, Mask, Numbers
from fastllmload.documents.metric import Metric, Value
from fastllmload.errors import RunFolderError
from fastllmload.metrics.distribution.summary import distribution, number
from fastllmload.metrics.request.tpot import came_whole
from fastllmload.metrics.tokens.counts import ESTIMATE, TokenCounts
from fastllmload.metrics.tokens.times import CHUNK, TIMES_SOURCES, TokenTimes
from fastllmload.records.event_totals import gaps_of_classes
from fastllmload.records.run import Run
from fastllmload.records.scratch import room
from fastllmload.records.worker_files import as_bytes
from fastllmload.statistics.hdr_sample import HdrSample

DIRECT_ABOVE = 0.90  # IETF B.2.1
NAMES = {"direct": "itl", "A": "tbc", "B": "itl_b"}  # name in reports, by option


@dataclass(frozen=True)
class KnownGaps:
    """What hosts reported of gaps that stayed there. Per request: *sums*, *jitter* and *pause*, the longest gap; of all
    gaps the *least* and the *most* that each may be.
    """

    sums: Numbers
    jitter: Floats
    pause: Floats
    least: HdrSample
    most: HdrSample


@dataclass(frozen=True)
class TokenGaps:
    """Gaps of chosen requests in ns: request k has `ns[first[k]:first[k + 1]]`. Where events stayed on their hosts, *ns* is
    a histogram of all of them, and *known* has what is known of each request.
    """

    first: Numbers
    ns: Numbers | HdrSample
    known: KnownGaps | None = None

    @property
    def each(self) -> Numbers:
        """All gaps, one by one. RunFolderError where events stayed on their hosts."""
        if isinstance(self.ns, HdrSample):
            raise RunFolderError("events-elsewhere", "single gaps are in the events, which stayed on their hosts")
        return self.ns

    def of(self, requests: Numbers) -> TokenGaps:
        """The gaps of *requests*, indices into *first*. RunFolderError as `each`."""
        sizes = np.diff(self.first)[requests]
        first = np.concatenate([[0], np.cumsum(sizes)])
        at = np.arange(first[-1]) + np.repeat(self.first[requests] - first[:-1], sizes)
        return TokenGaps(first, self.each[at])

    @property
    def total_ns(self) -> int:
        return self.ns.total if isinstance(self.ns, HdrSample) else int(self.ns.sum())


@dataclass(frozen=True)
class PooledGaps:
    """Gaps of the latency population by the chosen option; *rows* are its row numbers in the run, without those of the
    *unstreamed* requests.

    *option*: direct, A or B; *requested*: the configured one; *share_single*: share of chunks with exactly one token, None
    where it is unknown; *unknown*: number of requests whose tokens per chunk are not known; *bearing*: which of the chunks
    of *rows* the gaps lie between, None for all.
    """

    option: str
    share_single: float | None
    rows: Numbers
    gaps: TokenGaps
    unstreamed: int = 0
    requested: str = "auto"
    unknown: int = 0
    bearing: Mask | None = None

    @property
    def name(self) -> str:
        """`itl`, `tbc` or `itl_b`."""
        return NAMES[self.option]

    def among(self, members: Mask) -> PooledGaps:
        """The gaps of those of *rows* that are *members*, a mask over the run. RunFolderError where events stayed on their
        hosts.
        """
        kept = members[self.rows]
        return replace_fields(self, rows=self.rows[kept], gaps=self.gaps.of(np.flatnonzero(kept)), bearing=None)


def pooled(run: Run, population: Mask, tokens: TokenCounts, times: TokenTimes) -> PooledGaps:
    """Gaps of the rows in *population*, all of which have *times*; by the configured option, or by the delivery pattern."""
    unspaced = came_whole(run)[times.rows]
    kept: Mask = population[times.rows] & ~unspaced
    single = share_single(times, tokens, kept)
    requested = run.document.config.output.itl_option
    option = choose(requested, single, bool((times.known() & kept).any()))
    # Option A has a gap per pair of chunks; else all tokens of a chunk arrive at its time, and gaps inside it are 0.
    between = times.chunks if option == "A" else times
    if run.elsewhere is not None:
        found = gaps_elsewhere(run, times, kept, option == "A")
    else:
        found = gaps_of(between.t_ns, between.first, kept, run.directory)
    bearing = None
    if option != "A" and times.sizes is not None:
        bearing = times.sizes[np.repeat(kept, times.chunks.events)] > 0
    unstreamed, unknown = int((population[times.rows] & unspaced).sum()), int((kept & ~times.known()).sum())
    return PooledGaps(option, single, times.rows[kept], found, unstreamed, requested, unknown, bearing)


def gaps_elsewhere(run: Run, times: TokenTimes, kept: Mask, chunks: bool) -> TokenGaps:
    """Gaps of the *kept* requests, which are all those of some classes, as their hosts reported them. RunFolderError for
    other requests: histograms are of complete classes.
    """
    assert run.elsewhere is not None and times.totals is not None
    totals, summary = times.totals[kept], run.elsewhere.together
    by_class = summary.chunk_gaps if chunks or summary.token_gaps is None else summary.token_gaps
    classes = np.unique(run.rows["request_class"][times.rows[kept]]).tolist()
    every = gaps_of_classes(by_class[number] for number in classes if number in by_class)
    which = "chunk" if chunks else "token"
    borders = np.concatenate([[0], np.cumsum(np.maximum(totals[f"{which}s"].astype(np.int64) - 1, 0))])
    if int(borders[-1]) != every.ns.n:
        raise RunFolderError(
            "events-elsewhere",
            f"the gaps of {len(totals):,} requests of {run.directory} need events, which stayed on their hosts",
        )
    known = KnownGaps(
        sums=totals[f"{which}_gaps"],
        jitter=np.ascontiguousarray(totals[f"{which}_jitter"]),
        pause=np.ascontiguousarray(totals[f"{which}_pause"]),
        least=HdrSample(every.least, lowest=True),
        most=HdrSample(every.most),
    )
    return TokenGaps(borders, HdrSample(every.ns), known)


def choose(requested: str, single: float | None, known: bool) -> str:
    """direct above 90% single-token chunks, else A. B needs chunks with known tokens, else A is used."""
    if requested == "auto":
        return "direct" if single is not None and single > DIRECT_ABOVE else "A"
    return "B" if requested == "B" and known else "A"


def share_single(times: TokenTimes, tokens: TokenCounts, kept: Mask) -> float | None:
    """Share of chunks with exactly one token, of those with any; None where no token count is reliable.

    Exact where the tokens of each chunk are known. Else a lower bound from the totals: of N chunks with T tokens, at most
    |T - N| are not single. Chunks of requests with unknown tokens count as not single; an estimated count is not used.
    """
    exact, unknown = kept & (times.source != CHUNK), kept & (times.source == CHUNK)
    timed, source = tokens.timed[times.rows], tokens.source[times.rows]
    totals = unknown & (timed >= 0) & (source != ESTIMATE)
    chunks = int(times.bearing[exact].sum()) + int(times.chunks.events[unknown].sum())
    if chunks == 0 or not (exact | totals).any():
        return None
    some, several = int(times.chunks.events[totals].sum()), int(timed[totals].sum())
    return (int(times.single[exact].sum()) + max(0, some - abs(several - some))) / chunks


def gaps_of(t_ns: Numbers, first: Numbers, kept: Mask, folder: Path | None = None) -> TokenGaps:
    """ns between consecutive items of each kept request."""
    count = np.maximum(np.diff(first)[kept] - 1, 0)
    borders = np.concatenate([[0], np.cumsum(count)])
    ns = room(int(borders[-1]), np.int64, folder)
    tokenline.take_gaps(t_ns, first, kept.view(np.uint8), ns)
    return TokenGaps(borders, ns)


class EmptyChunks(Value, frozen=True, kw_only=True):
    WRITTEN: ClassVar[tuple[str, ...]] = (*Value.WRITTEN, "itl_mean_least")


def empty_chunks(run: Run, found: PooledGaps, times: TokenTimes, tokens: TokenCounts) -> dict[str, Metric]:
    """`empty_chunks`: the share of chunks without text, between the first and the last token, that may or may not carry a
    token. `n_carrying`: how many of them the token counts of their answers leave tokens for, all without such a count;
    `itl_mean_least`: the mean gap in ms if that many do. `n_said`: chunks without text that carry a token by the server.
    """
    chosen, undecided = np.zeros(len(run.rows), np.uint8), np.zeros(len(found.rows), np.int64)
    chosen[found.rows] = 1
    if run.elsewhere is not None:
        undecided = run.elsewhere.totals["empty"][found.rows].astype(np.int64)
        reported = run.elsewhere.together.empty_stated
    else:
        reported = tokenline.count_empty(as_bytes(run.events), run.first_event, chosen, undecided)
    rows, timed = run.rows[found.rows], tokens.timed[found.rows]
    separable = (rows["reasoning_events"] == 0) | (rows["reasoning_tokens"] >= 0)
    counted = separable & (tokens.source[found.rows] != ESTIMATE) & (timed >= 0)
    remaining = np.where(counted, timed - times.count[np.isin(times.rows, found.rows)], undecided)
    n, carrying = int(undecided.sum()), int(np.clip(remaining, 0, undecided).sum())
    gaps = len(found.gaps.ns)
    chunks = n + gaps + int(np.count_nonzero(np.diff(found.gaps.first) > 0))
    least = float(found.gaps.total_ns) / 1e6 / (gaps + carrying) if gaps else None
    share = n / chunks if chunks else None
    return {
        "empty_chunks": EmptyChunks(
            unit="share", value=number(share), n=n, n_carrying=carrying, n_said=reported, itl_mean_least=least
        )
    }


def jitter(gaps: TokenGaps) -> Floats:
    """Population standard deviation of each request's gaps in ns; NaN for fewer than 2."""
    return figures(gaps)[0]


def max_pause(gaps: TokenGaps) -> Floats:
    """Longest gap of each request in ns; NaN without a gap."""
    return figures(gaps)[1]


def figures(gaps: TokenGaps) -> tuple[Floats, Floats]:
    """(jitter, max_pause)."""
    if gaps.known is not None:
        return gaps.known.jitter, gaps.known.pause
    deviation, longest = np.empty(len(gaps.first) - 1), np.empty(len(gaps.first) - 1)
    tokenline.gap_figures(gaps.each, gaps.first, deviation, longest)
    return deviation, longest


def gap_metrics(times: TokenTimes, found: PooledGaps) -> dict[str, Metric]:
    """Pooled gaps under the name of their option; the other names are null. Jitter and pauses are one value per request."""
    deviation, longest = figures(found.gaps)
    taken = np.bincount(times.source, minlength=len(TIMES_SOURCES))
    caveat = "gaps inside a chunk are 0: variance is understated" if found.name == "itl_b" else None
    chosen = replace(distribution(found.gaps.ns, "ms", first=found.gaps.first), caveat=caveat)
    nothing = distribution(np.empty(0, np.int64), "ms")
    return {
        **{name: chosen if name == found.name else nothing for name in NAMES.values()},
        "jitter": distribution(deviation, "ms", found.unstreamed + int(np.isnan(deviation).sum())),
        "max_pause": distribution(longest, "ms", found.unstreamed + int(np.isnan(longest).sum())),
        "share_single": Value(
            unit="share",
            value=number(found.share_single),
            itl_option=found.option,
            pooled_as=found.name,
            itl_option_asked=found.requested,
            n_unknown=found.unknown,
            token_times_source={name: int(taken[n]) for n, name in enumerate(TIMES_SOURCES)},
        ),
    }
