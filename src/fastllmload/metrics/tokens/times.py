"""Computes when each content token of a request arrived (spec/metrics 3.4): all tokens of a chunk at its time (option B).

The number of tokens of a chunk is known from the server, or from repeated counts of the recorded text so far, or because
there are as many chunks as tokens. Else a chunk counts as one token, and `source` states that. Option C is not available,
because no record has a server's own time of a token.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fastllmload._ext.measure import tokenline
from fastllmload.arrays import Mask, Numbers, Rows, Values
from fastllmload.metrics.tokens.counts import ESTIMATE, TokenCounts
from fastllmload.metrics.tokens.timeline import AT_ONCE, Timeline, stated_tokens, stretches, timeline
from fastllmload.records.event_totals import EventsElsewhere
from fastllmload.records.run import Run
from fastllmload.records.scratch import room

# Source of the number of tokens of each chunk: reported by the server; counted in the recorded text; as many chunks as
# tokens, so one each; unknown, so a chunk counts as one token.
TIMES_SOURCES = ("server", "text", "single", "chunk")
SERVER, TEXT, SINGLE, CHUNK = range(len(TIMES_SOURCES))
MOST_TOKENS, MOST_PER_CHUNK = 1 << 26, 256
Sizes = npt.NDArray[np.uint32]
Sources = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class TokenTimes:
    """Token times of chosen requests: request k has `t_ns[first[k]:first[k + 1]]`, CLOCK_MONOTONIC ns.

    *rows*: row numbers of the requests; *source*: position in TIMES_SOURCES, per request; *sizes*: tokens per chunk,
    None when every chunk carries one; *chunks*: the timeline that the times come from; *single*: chunks of exactly one
    token, and *bearing*: chunks of one token or more, per request. *totals*: of requests whose events stayed on their
    hosts, `records.event_totals.TOTAL`; then no times and sizes are known, only their numbers. *readers*: of its columns.
    """

    rows: Numbers
    first: Numbers
    t_ns: Numbers
    source: Sources
    sizes: Sizes | None
    chunks: Timeline
    single: Numbers
    bearing: Numbers
    totals: Rows | None = None
    readers: tuple[tuple[float, int], ...] = ()

    @property
    def count(self) -> Numbers:
        return np.diff(self.first)

    def after(self, origin: Numbers) -> Numbers:
        """ns of each token after *origin*, which has one instant per request."""
        return self.t_ns - np.repeat(origin, self.count)

    def known(self) -> Mask:
        found: Mask = self.source != CHUNK
        return found


def token_times(run: Run, chosen: Mask, tokens: TokenCounts) -> TokenTimes:
    """Token times of the rows where *chosen* is true."""
    if run.elsewhere is not None:
        return times_elsewhere(run.elsewhere, chosen)
    line = timeline(run, chosen)
    n = len(line.rows)
    reported, single, total = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.int64)
    tokenline.chunk_facts(line.tokens, line.first, reported, single, total)
    source = sources(line, tokens, reported, total)
    stated = source == SERVER
    sizes = sizes_of(line, stated & (single != line.events), run.directory)
    counted = recount(tokens, line, source, sizes)
    if counted is None:
        single = np.where(stated, single, line.events)
        bearing = line.events if sizes is None else per_request(sizes, line.first, lambda sizes: sizes > 0)
        spread_over = sizes
    else:
        spread_over, bearing = counted, per_request(counted, line.first, lambda sizes: sizes > 0)
        single = per_request(counted, line.first, lambda sizes: sizes == 1)
    first, t_ns = spread(line, spread_over, run.directory)
    return TokenTimes(line.rows, first, t_ns, source, spread_over, line, single, bearing)


def times_elsewhere(elsewhere: EventsElsewhere, chosen: Mask) -> TokenTimes:
    """What is known of the token times of the rows where *chosen* is true, whose events stayed on their hosts."""
    rows = np.flatnonzero(chosen)
    totals = elsewhere.totals[rows]
    chunks, tokens = (np.concatenate([[0], np.cumsum(totals[name], dtype=np.int64)]) for name in ("chunks", "tokens"))
    nothing = np.empty(0, np.int64)
    return TokenTimes(
        rows=rows,
        first=tokens,
        t_ns=nothing,
        source=totals["source"],
        sizes=None,
        chunks=Timeline(rows, chunks, nothing, np.empty(0, np.uint16)),
        single=totals["single"].astype(np.int64),
        bearing=totals["bearing"].astype(np.int64),
        totals=totals,
        readers=elsewhere.readers,
    )


def sources(line: Timeline, tokens: TokenCounts, reported: Numbers, total: Numbers) -> Sources:
    """SERVER where it stated every chunk, SINGLE where chunks and counted tokens are as many, else CHUNK.

    *total*: tokens that the server stated. Each token takes memory, so with more than MOST_TOKENS in a run, statements of
    more than MOST_PER_CHUNK per chunk on average are ignored.
    """
    timed, counted = tokens.timed[line.rows], tokens.source[line.rows] != ESTIMATE
    one_each = counted & (timed == line.events)
    stated = reported == line.events
    if int(total.sum()) > MOST_TOKENS:
        stated &= total <= MOST_PER_CHUNK * line.events
    return np.where(stated, SERVER, np.where(one_each, SINGLE, CHUNK)).astype(np.uint8)


def sizes_of(line: Timeline, several: Mask, folder: Path) -> Sizes | None:
    """Tokens per chunk: as stated for the requests in *several*, 1 for all others; None when it is empty."""
    if not several.any():
        return None
    sizes = room(len(line.tokens), np.uint32, folder)
    for part in stretches(line.first, AT_ONCE):
        items, stated = items_of(line.first, part), np.repeat(several[part], line.events[part])
        sizes[items] = np.where(stated, stated_tokens(line.tokens[items], 0), 1)
    return sizes


def recount(tokens: TokenCounts, line: Timeline, source: Sources, sizes: Sizes | None) -> Sizes | None:
    """Tokens per chunk with those of CHUNK requests counted in their text, which makes them TEXT; None without any.

    A request whose text records do not match its events one to one keeps its source.
    """
    unknown = np.flatnonzero(source == CHUNK)
    found = tokens.chunks.of(line.rows[unknown])
    if not found:
        return None
    counted = np.ones(len(line.t_ns), np.uint32) if sizes is None else sizes
    for k in unknown.tolist():
        new = found.get(int(line.rows[k]))
        if new is not None:
            counted[line.first[k] : line.first[k + 1]] = new
            source[k] = TEXT
    return counted


def count_chunks(run: Run, chosen: Mask, tokens: TokenCounts) -> None:
    """Count the chunks of all *chosen* rows that need their text for it, and store the counts in *tokens*."""
    if len(run.text):
        token_times(run, chosen, tokens)


def items_of(first: Numbers, part: slice) -> slice:
    return slice(int(first[part.start]), int(first[part.stop]))


def per_request(sizes: Values, first: Numbers, of: Callable[[Values], Values]) -> Numbers:
    """The sum of `of(sizes)` over the items of each request's list."""
    found = np.empty(len(first) - 1, np.int64)
    for part in stretches(first, AT_ONCE):
        items = items_of(first, part)
        running = np.concatenate([[0], np.cumsum(of(sizes[items]), dtype=np.int64)])
        found[part] = np.diff(running[first[part.start : part.stop + 1] - items.start])
    return found


def spread(line: Timeline, sizes: Sizes | None, folder: Path) -> tuple[Numbers, Numbers]:
    """Borders and times of the tokens; those of the chunks themselves when each carries one."""
    if sizes is None:
        return line.first, line.t_ns
    first = np.concatenate([[0], np.cumsum(per_request(sizes, line.first, lambda sizes: sizes))])
    t_ns = room(int(first[-1]), np.int64, folder)
    tokenline.spread(line.t_ns, sizes, t_ns)
    return first, t_ns
