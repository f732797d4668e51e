"""Servers of a router in run.json: which of them answered, and whether sessions stayed."""

from __future__ import annotations

from typing import Annotated

from fastllmload.documents.fields import (
    Count,
    Document,
    Name,
    Names,
    Number,
    Ratio,
    RequestShare,
    Reveals,
    Sentence,
    Sessions,
    Tokens,
    field,
)
from fastllmload.documents.metric import NO_METRIC, Metric
from fastllmload.documents.run_parts.classes import PartResult
from fastllmload.documents.run_parts.sessions import Calls


class BackendNames(Document, frozen=True, kw_only=True):
    """Names that answers to one worker had in the header of `--backend-header`: what `backend` of its rows means, from 1."""

    worker: int  # its number
    names: Names = ()  # in the order in which they came


class BackendResult(PartResult, frozen=True, kw_only=True):
    """Figures of one server of a router: of the requests that it answered, in whatever way."""

    name: Name = None  # as its answers say; None: all that came when their worker had 4,095 names
    share: RequestShare = None  # of all requests whose answers name a server
    cached_tokens: Tokens = None  # that it found in its cache, as it reports them; None: it does not
    cached_share: RequestShare = None  # of their prompts' tokens, as it reports these


class SessionsOn(Document, frozen=True, kw_only=True):
    backends: int | None = None  # servers that answered the session's requests
    sessions: Sessions = None  # with as many


class BackendMoves(Document, frozen=True, kw_only=True):
    """Whether the turns of sessions went where the turn before had gone. Of an agent in a session: its own turn before."""

    compared: Calls = None  # turns whose answer, and that to the turn before, name a server
    stayed: Calls = None  # went where the turn before went
    moved: Calls = None  # went to another server
    stayed_share: RequestShare = None  # of the compared turns
    stayed_share_at_random: Ratio = (
        None  # of a router that draws a server for each request, by the shares of the servers
    )
    sessions: Sessions = None  # of which an answer names a server
    sessions_moved: Sessions = None  # with a turn that moved
    by_backends: tuple[SessionsOn, ...] = ()  # sessions by the number of their servers
    cached_share_stayed: RequestShare = None  # of the prompt tokens of turns that stayed, found in the server's cache
    cached_share_moved: RequestShare = None  # and of those that moved
    ttft_stayed: Metric = NO_METRIC
    ttft_moved: Metric = NO_METRIC


class BackendFigures(Document, frozen=True, kw_only=True):
    """Which server of a router answered, by a header of its answers."""

    header: Name = None  # that names it
    named: Count = None  # requests whose answers have it, in the measurement
    unnamed: Count = None  # that got a head without it
    servers: Annotated[Number, field("servers", Reveals.LOAD)] = None  # different names
    max_over_mean: Annotated[Number, field("x", Reveals.SHARE)] = (
        None  # requests of the busiest server, over the mean of all
    )
    max_over_mean_at_random: Annotated[Number, field("x", Reveals.SHARE)] = None  # of a server drawn for each request
    max_over_mean_by_session: Annotated[Number, field("x", Reveals.SHARE)] = None  # of a server drawn for each session
    each: tuple[BackendResult, ...] = ()  # those with the most requests first, up to 256
    moves: BackendMoves | None = None  # of turns; None: requests stand alone
    caveat: Sentence = None  # why the header may not name servers
