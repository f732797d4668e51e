"""When each content token of a request came (metrics.md 3.4): all tokens of a chunk at the chunk's time (option B).

How many tokens a chunk carries is known from the server, or from the recorded text by counting again and again what has
come so far; or there are exactly as many chunks as tokens. Else a chunk stands for one token, and `source` says so. No
record holds a server's own time of a token, so option C has nothing to choose from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload._ext import tokenline
from fastllmload.metrics.tokens.counts import ESTIMATE, TokenCounts
from fastllmload.metrics.tokens.timeline import AT_ONCE, Mask, Numbers, Timeline, stated_tokens, stretches, timeline
from fastllmload.records.run import Run
from fastllmload.records.scratch import room

# Where the number of tokens of each chunk comes from: said by the server; counted in the recorded text; as many chunks
# as tokens, so one each; unknown, so a chunk stands for one token.
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
    token, and *bearing*: chunks of one token or more, per request.
    """

    rows: Numbers
    first: Numbers
    t_ns: Numbers
    source: Sources
    sizes: Sizes | None
    chunks: Timeline
    single: Numbers
    bearing: Numbers

    @property
    def count(self) -> Numbers:
        """Token times of each request."""
        return np.diff(self.first)

    def after(self, origin: Numbers) -> Numbers:
        """ns of each token after *origin*, which has one instant per request."""
        return self.t_ns - np.repeat(origin, self.count)

    def known(self) -> Mask:
        """Per request: whether the tokens of its chunks are known."""
        found: Mask = self.source != CHUNK
        return found


def token_times(run: Run, chosen: Mask, tokens: TokenCounts) -> TokenTimes:
    """Token times of the rows where *chosen* is true."""
    line = timeline(run, chosen)
    n = len(line.rows)
    said, single, total = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.int64)
    tokenline.chunk_facts(line.tokens, line.first, said, single, total)
    source = sources(line, tokens, said, total)
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


def sources(line: Timeline, tokens: TokenCounts, said: Numbers, total: Numbers) -> Sources:
    """SERVER where it stated every chunk, SINGLE where chunks and counted tokens are as many, else CHUNK.

    *total*: tokens that the server stated. Each token takes memory, so a run with more than MOST_TOKENS is not believed
    where a chunk would have more than MOST_PER_CHUNK on average.
    """
    timed, counted = tokens.timed[line.rows], tokens.source[line.rows] != ESTIMATE
    one_each = counted & (timed == line.events)
    stated = said == line.events
    if int(total.sum()) > MOST_TOKENS:
        stated &= total <= MOST_PER_CHUNK * line.events
    return np.where(stated, SERVER, np.where(one_each, SINGLE, CHUNK)).astype(np.uint8)


def sizes_of(line: Timeline, several: Mask, beside: Path) -> Sizes | None:
    """Tokens per chunk: as stated for the requests in *several*, 1 for all others; None when nobody is in it."""
    if not several.any():
        return None
    sizes = room(len(line.tokens), np.uint32, beside)
    for part in stretches(line.first, AT_ONCE):
        mine, stated = items_of(line.first, part), np.repeat(several[part], line.events[part])
        sizes[mine] = np.where(stated, stated_tokens(line.tokens[mine], 0), 1)
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
    """Have *tokens* know the chunks of all *chosen* rows whose text alone tells; nothing to do without text."""
    if len(run.text):
        token_times(run, chosen, tokens)


def items_of(first: Numbers, part: slice) -> slice:
    """The items of the requests *part*."""
    return slice(int(first[part.start]), int(first[part.stop]))


def per_request(sizes: Sizes, first: Numbers, of: Callable[[Sizes], npt.NDArray[Any]]) -> Numbers:
    """The sum of `of(sizes)` over the items of each request's list."""
    found = np.empty(len(first) - 1, np.int64)
    for part in stretches(first, AT_ONCE):
        mine = items_of(first, part)
        running = np.concatenate([[0], np.cumsum(of(sizes[mine]), dtype=np.int64)])
        found[part] = np.diff(running[first[part.start : part.stop + 1] - mine.start])
    return found


def spread(line: Timeline, sizes: Sizes | None, beside: Path) -> tuple[Numbers, Numbers]:
    """Borders and times of the tokens; those of the chunks themselves when each carries one."""
    if sizes is None:
        return line.first, line.t_ns
    first = np.concatenate([[0], np.cumsum(per_request(sizes, line.first, lambda sizes: sizes))])
    t_ns = room(int(first[-1]), np.int64, beside)
    tokenline.spread(line.t_ns, sizes, t_ns)
    return first, t_ns
