"""Gaps between tokens (ITL), or between chunks where tokens cannot be told apart (TBC) (metrics.md 3.4, 5.3, 5.7, 5.8)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastllmload.records.timeline import Timeline
from fastllmload.records.token_counts import ESTIMATE, TokenCounts

Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

DIRECT_ABOVE = 0.90  # IETF B.2.1


@dataclass(frozen=True)
class Gaps:
    """Gaps of chosen requests in ns: request k has `ns[first[k]:first[k + 1]]`."""

    first: Numbers
    ns: Numbers


def share_single(line: Timeline, tokens: TokenCounts) -> float | None:
    """Share of chunks that carry exactly one token; None where no token count can be trusted.

    Exact where the server says how many tokens each event carries. Else a lower bound from the totals: N chunks with T
    tokens hold at most |T - N| chunks that are not single. Chunks of requests whose tokens are unknown count as not
    single; an estimated count tells nothing.
    """
    chunks = len(line.t_ns)
    if chunks == 0:
        return None
    if line.tokens.all():
        return float(np.count_nonzero(line.tokens == 1) / chunks)
    timed, source = tokens.timed[line.rows], tokens.source[line.rows]
    known = (timed >= 0) & (source != ESTIMATE)
    if not known.any():
        return None
    known_chunks, known_tokens = int(line.events[known].sum()), int(timed[known].sum())
    return max(0, known_chunks - abs(known_tokens - known_chunks)) / chunks


def chunk_gaps(line: Timeline) -> Gaps:
    """Option A: one gap per consecutive pair of chunks."""
    ns, inside = line.gaps()
    per_request = np.maximum(line.events - 1, 0)
    return Gaps(np.concatenate([[0], np.cumsum(per_request)]), ns[inside])


def token_gaps(line: Timeline) -> Gaps:
    """Option B: all tokens of a chunk come at its time, so gaps inside it are 0. Chunks of unknown size are one token."""
    sizes = np.maximum(line.tokens, 1)
    if not (sizes > 1).any():
        return chunk_gaps(line)
    ends = np.concatenate([[0], np.cumsum(sizes)])
    spread = Timeline(line.rows, ends[line.first], np.repeat(line.t_ns, sizes), np.ones(ends[-1], np.int64))
    return chunk_gaps(spread)


def jitter(gaps: Gaps) -> Floats:
    """Population standard deviation of each request's gaps in ns; NaN for fewer than 2."""
    count = np.diff(gaps.first)
    mean = per_request(np.add, gaps) / np.maximum(count, 1)
    squares = Gaps(gaps.first, (gaps.ns - np.repeat(mean, count)) ** 2)
    return np.where(count >= 2, np.sqrt(per_request(np.add, squares) / np.maximum(count, 1)), np.nan)


def max_pause(gaps: Gaps) -> Floats:
    """Longest gap of each request in ns; NaN without a gap."""
    return np.where(np.diff(gaps.first) >= 1, per_request(np.maximum, gaps), np.nan)


def per_request(reduce: np.ufunc, gaps: Gaps) -> Floats:
    """*reduce* over the gaps of each request; 0 for a request without one."""
    result = np.zeros(len(gaps.first) - 1)
    some = np.diff(gaps.first) > 0
    if some.any():
        result[some] = reduce.reduceat(gaps.ns, gaps.first[:-1][some])
    return result
