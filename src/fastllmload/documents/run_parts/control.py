"""What servers were asked to do between phases in run.json, and what came of it."""

from __future__ import annotations

from typing import Annotated

from fastllmload.documents.fields import Count, Document, InFlight, Length, Name, Ns, Reveals, Seconds, Sentence, field


class SessionEnds(Document, frozen=True, kw_only=True):
    """Requests of `--session-end`, which are in no other figure."""

    sent: Count = None  # for sessions that have ended, of warm-up and measurement
    failed: Count = None  # of these: not answered, or with a status from 400 on
    failure: Sentence = None  # of the first that failed


class ControlCall(Document, frozen=True, kw_only=True):
    """A request that controls a server (`--between`)."""

    verb: str | None = None  # reset-cache, flush, profile, sleep, wake; hook: a request of the user's own
    when: str | None = None  # before or after the measurement
    url: Name = None  # of the server, without credentials
    request: Name = None  # method and path
    at_ns: Ns = None  # CLOCK_MONOTONIC, when it was sent
    seconds: Seconds = None  # until the answer
    http_status: int | None = None  # of the answer; None: there was none
    done: bool = False  # the status is 200 to 299
    needed: bool = True  # without it the measurement does not begin; false: not every server has it
    said: Sentence = None  # the answer's text, up to 200 characters, or why there was none


class Drained(Document, frozen=True, kw_only=True):
    """What a server still had to do before it was controlled, when nothing of ours was in flight."""

    url: Name = None  # of the server, without credentials
    seconds: Seconds = None  # that were waited for that
    running: InFlight = None  # by its metrics page; None: it has none
    waiting: InFlight = None  # by its metrics page; None: it has none


class CacheProof(Document, frozen=True, kw_only=True):
    """Whether a cache was empty after its reset: a prompt that it had was sent twice, then it was reset once more."""

    url: Name = None  # of the server, without credentials
    first: Length = None  # tokens that were cached the first time; None: not reported
    second: Length = None  # tokens that were cached the second time; None: not reported
    source: str | None = None  # what says so: usage of the answer, or prefix_cache_hits of the metrics page
    proved: bool | None = None  # none the first time, some the second; None: it cannot be known
    why: Sentence = None  # it cannot be known


class ControlFacts(Document, frozen=True, kw_only=True):
    """How servers were controlled between warm-up and measurement (`--between`), and what came of it."""

    profiled: bool = False  # the profiler ran during the measurement: figures are those of a profiled server
    kinds: Annotated[dict[str, str], field("", Reveals.NAME)] = {}  # of each server, by URL
    calls: tuple[ControlCall, ...] = ()  # in the order in which they were sent
    drained: tuple[Drained, ...] = ()  # before the last of them
    proofs: tuple[CacheProof, ...] = ()  # of resets
