"""What a host reports of the events that stay on it (`--collect summary`). Summaries of several hosts can be added.

Counts and sums are exact. Of values in ns it is known how many lie in each bucket of an HDR histogram (three digits).
"""

from __future__ import annotations

import msgspec

from fastllmload.documents.certificate import Certificate
from fastllmload.documents.fields import Number


class ValueCounts(msgspec.Struct, frozen=True, kw_only=True):
    """*n* values in ns: their sum *total*, the sum of the *squares* of their distances from the mean, and *counts* of the
    HDR *buckets* that are not empty.
    """

    n: int = 0
    total: int = 0
    squares: float = 0.0
    least: int = 0
    most: int = 0
    buckets: tuple[int, ...] = ()
    counts: tuple[int, ...] = ()


class GapCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Gaps of one class of requests, and the *least* and the *most* that each may be by the brackets of its ends."""

    ns: ValueCounts = ValueCounts()
    least: ValueCounts = ValueCounts()
    most: ValueCounts = ValueCounts()


class StampCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Events of the window with text: by stamp class; *batched*; by bracket, two rows; errors of gaps (`Stamps`)."""

    classes: tuple[int, ...] = ()
    batched: int = 0
    brackets: tuple[tuple[int, ...], ...] = ()
    gap_errors: ValueCounts = ValueCounts()


class SecondCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Events with text in each of *n* seconds of the window: *counts* at those *places* of int64[n, classes of brackets]
    that are not 0, and *coalesced* ones.
    """

    n: int = 0
    places: tuple[int, ...] = ()
    counts: tuple[int, ...] = ()
    coalesced: tuple[int, ...] = ()


class EventSummary(msgspec.Struct, frozen=True, kw_only=True):
    """All events of a host. Gaps, by number of the request class, are those of the latency population.

    *token_gaps*: between tokens; None: those between chunks, since each chunk has one token. *token_seconds*: sum over
    tokens of the seconds of the window in which their request was in flight after them. *empty_stated*: chunks without
    text that carry a token by the server.
    """

    chunk_gaps: dict[int, GapCounts] = {}
    token_gaps: dict[int, GapCounts] | None = None
    token_seconds: float = 0.0
    empty_stated: int = 0
    stamps: StampCounts = StampCounts()
    seconds: SecondCounts = SecondCounts()


class HostSummary(msgspec.Struct, frozen=True, kw_only=True):
    """`hosts/<h>/event_summary.json`: the host's part of the run, and how it was judged as a run of its own.

    *readers*: (tokens/s, ns to the first token) of each column of lateness in `event_totals.npy`.
    """

    readers: tuple[tuple[float, int], ...] = ()
    events: EventSummary = EventSummary()
    certificate: Certificate = Certificate()
    ttft_p50_ms: Number = None
