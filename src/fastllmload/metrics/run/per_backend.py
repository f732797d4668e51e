"""Computes the figures of each server of a router, by the name that its answers have in a header, and where turns went.

A request of which no answer came has no server, and is in the errors of none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload.arrays import Mask, Numbers, Rows
from fastllmload.documents.run_parts.backends import BackendFigures, BackendMoves, BackendResult, SessionsOn
from fastllmload.metrics.distribution.summary import distribution
from fastllmload.metrics.request import durations
from fastllmload.metrics.run.parts import PartFigures
from fastllmload.metrics.run.sent_calls import SentCalls
from fastllmload.metrics.run.sessions import measured_calls
from fastllmload.records import layout
from fastllmload.records.run import Run

MOST = 256  # servers that get figures of their own
SEED, DRAWS, DRAWN = 20, 1000, 4_000_000  # of the balance at random: how often, and items in all
UNNAMED = -1
OTHER = 0  # of the names: all that came when their worker had no room for more


@dataclass(frozen=True)
class Backends:
    """*names* of servers, `names[OTHER]` None; *of_row*: index into them of each row of the run, UNNAMED for none."""

    names: tuple[str | None, ...]
    of_row: Numbers


def backends_of_rows(run: Run) -> Backends | None:
    """Names joined over the workers; None where the run did not ask which server answers."""
    if run.document.config.target.backend_header is None:
        return None
    every = dict.fromkeys(name for each in run.document.backend_names for name in each.names)
    index = {name: number for number, name in enumerate(sorted(every), 1)}
    of_row = np.full(len(run.rows), UNNAMED, np.int64)
    said = run.rows["backend"]
    for each in run.document.backend_names:
        table = np.array([UNNAMED, *(index[name] for name in each.names)], np.int64)
        mine = np.flatnonzero((run.rows["worker"] == each.worker) & (said > 0) & (said < len(table)))
        of_row[mine] = table[said[mine]]
    of_row[said == layout.BACKEND_OTHER] = OTHER
    return Backends((None, *index), of_row)


def backends_block(parts: PartFigures) -> BackendFigures | None:
    """`backends` of run.json."""
    run, sent = parts.run, parts.sent
    found = backends_of_rows(run)
    if found is None:
        return None
    named = sent & (found.of_row >= 0)
    counts = np.bincount(found.of_row[named], minlength=len(found.names))
    answered = np.flatnonzero(counts)
    most = answered[np.argsort(-counts[answered], kind="stable")][:MOST]
    spread = counts[answered]
    calls = measured_calls(run, parts.chosen)
    moves = None if calls is None else moves_of(calls, found.of_row[calls.at])
    in_sessions = None if calls is None else sizes_of_sessions(calls, found.of_row[calls.at])
    return BackendFigures(
        header=run.document.config.target.backend_header,
        named=int(named.sum()),
        unnamed=int((sent & (found.of_row < 0) & (run.rows["http_status"] > 0)).sum()),
        servers=len(answered),
        max_over_mean=float(spread.max() / spread.mean()) if len(spread) else None,
        max_over_mean_at_random=at_random(int(spread.sum()), len(spread)),
        max_over_mean_by_session=None if in_sessions is None else by_session(in_sessions, len(spread)),
        each=tuple(
            of_backend(
                parts,
                named & (found.of_row == number),
                found.names[number],
                int(counts[number]) / int(counts.sum()),
            )
            for number in most.tolist()
        ),
        moves=moves,
        caveat=caveat(len(answered), int(named.sum()), int(counts[OTHER])),
    )


def of_backend(parts: PartFigures, mine: Mask, name: str | None, share: float) -> BackendResult:
    answers = parts.run.rows[mine & (parts.run.rows["status"] == layout.OK)]
    reported = answers["cached_tokens"] >= 0
    found = BackendResult(
        name=name,
        share=share,
        cached_tokens=int(answers["cached_tokens"][reported].sum()) if reported.any() else None,
        cached_share=cached_share(answers),
    )
    return parts.with_figures(found, mine)


def cached_share(rows: Rows) -> float | None:
    """Of the prompts' tokens, those that servers found in their caches; None where they do not report it."""
    reported = rows[(rows["cached_tokens"] >= 0) & (rows["prompt_tokens"] > 0)]
    return float(reported["cached_tokens"].sum() / reported["prompt_tokens"].sum()) if len(reported) else None


def moves_of(calls: SentCalls, backend: Numbers) -> BackendMoves:
    """*backend*: of each of *calls*. The turn before is the latest that the agent sent before; names beyond the room of a
    worker are not compared.
    """
    session, chain = calls.session, calls.call["chain"].astype(np.int64)
    order = np.lexsort((calls.rows["t_dispatch"], chain, session))
    follows = (np.diff(session[order]) == 0) & (np.diff(chain[order]) == 0)
    before, after = order[:-1][follows], order[1:][follows]
    both = (backend[before] > OTHER) & (backend[after] > OTHER)
    before, after = before[both], after[both]
    stays = backend[before] == backend[after]
    stayed, moved = calls.rows[after[stays]], calls.rows[after[~stays]]
    known = backend > OTHER
    pairs = np.unique(np.stack([session[known], backend[known]]), axis=1)
    in_sessions = np.bincount(pairs[0]) if pairs.shape[1] else np.zeros(0, np.int64)
    many, sessions = np.unique(in_sessions[in_sessions > 0], return_counts=True)
    shares = np.bincount(backend[known]) / max(1, int(known.sum()))
    return BackendMoves(
        compared=len(after),
        stayed=len(stayed),
        moved=len(moved),
        stayed_share=len(stayed) / len(after) if len(after) else None,
        stayed_share_at_random=float((shares**2).sum()) if known.any() else None,
        sessions=int(np.count_nonzero(in_sessions)),
        sessions_moved=len(np.unique(session[after[~stays]])),
        by_backends=tuple(
            SessionsOn(backends=each, sessions=count)
            for each, count in zip(many.tolist(), sessions.tolist(), strict=True)
        ),
        cached_share_stayed=cached_share(stayed),
        cached_share_moved=cached_share(moved),
        ttft_stayed=distribution(durations.ttft(stayed[stayed["status"] == layout.OK]), "ms"),
        ttft_moved=distribution(durations.ttft(moved[moved["status"] == layout.OK]), "ms"),
    )


def sizes_of_sessions(calls: SentCalls, backend: Numbers) -> Numbers:
    """Requests of each session whose answers name a server."""
    found: Numbers = np.bincount(calls.session[backend >= 0])
    return found[found > 0]


def at_random(requests: int, servers: int) -> float | None:
    """The busiest server's requests over the mean, where each request goes to any of *servers*: the mean of many draws."""
    if servers == 0:
        return None
    drawn = np.random.default_rng(SEED).multinomial(requests, np.full(servers, 1 / servers), DRAWS)
    return float(drawn.max(axis=1).mean() * servers / requests)


def by_session(sizes: npt.NDArray[Any], servers: int) -> float | None:
    """The same where each session, with *sizes* requests, stays with the server that it goes to."""
    if servers == 0 or not len(sizes):
        return None
    rng = np.random.default_rng(SEED)
    draws = max(20, min(DRAWS, DRAWN // len(sizes)))
    most = [np.bincount(rng.integers(servers, size=len(sizes)), sizes, servers).max() for _ in range(draws)]
    return float(np.mean(most) * servers / sizes.sum())


def caveat(servers: int, named: int, folded: int) -> str | None:
    if folded:
        return (
            f"{folded:,} requests have a name for which their worker had no room: the header has too many values to name "
            "servers"
        )
    if named > 2 * MOST and servers > named / 2:
        return "most answers have a name of their own: the header does not name servers"
    return None
