"""How requests ended in run.json: counts, failures, what servers said."""

from __future__ import annotations

from typing import Annotated, ClassVar

from fastllmload.documents.fields import Count, Document, Events, Name, Reveals, Sentence, Tokens, field


class ErrorTextEntry(Document, frozen=True, kw_only=True):
    """A text of failed responses, without secrets and control characters."""

    http_status: int | None = None  # of the response; None: it failed before any head
    error: str | None = None
    text: Sentence = None  # of the body or event, up to 1,000 characters
    requests: Count = None  # that failed with it


class FinishWord(Document, frozen=True, kw_only=True):
    """A finish_reason that is on no list."""

    word: Name = None  # as the server sent it
    requests: Count = None  # that ended with it


class ErrorTextEntries(Document, frozen=True, kw_only=True):
    """What the server said: the 32 most frequent texts of failed responses."""

    texts: Annotated[tuple[ErrorTextEntry, ...], field("", Reveals.NAME)] = ()
    left_out: Count = None  # failed requests with other texts
    finish_reasons: tuple[FinishWord, ...] = ()


class Counts(Document, frozen=True, kw_only=True):
    """Requests by how they ended, and their tokens."""

    OPTIONAL: ClassVar[tuple[str, ...]] = ("host_lost",)

    planned: Count = None  # of the measurement, sent or not
    dispatched: Count = None  # on which work began
    not_sent: Count = None  # of a closed loop: no slot came to them, and they have no rows
    in_flight: Count = None  # when the run was killed
    ok: Count = None
    empty: Count = None  # ended normally, without a content token
    refused: Count = None  # refusals of the model, and content filters
    http_error: Count = None  # an HTTP status that is an error, except 429
    rate_limited: Count = None  # HTTP status 429
    truncated: Count = None  # the stream ended without finish_reason and [DONE]
    timeout: Count = None  # longer than `--timeout`
    connection_error: Count = None  # no connection, or it broke
    protocol_error: Count = None  # the response was not valid HTTP or not a valid stream
    cancelled: Count = None  # by the drain time-out, an interrupt, or simulated users
    stream_error: Count = None  # the server reported an error in the stream
    host_lost: Count = None  # of a host that was lost: not known how they ended; null: no host was lost
    cut_after_end: Count = None  # ok; the connection went after the finish_reason, before the end of the message
    unknown_finish: Count = None  # ok; the finish_reason is on no list
    failed: Count = None  # dispatched, ended, and neither *ok* nor *left*
    left: Count = None  # cancelled or given up by simulated users
    explicit_errors: Count = None  # http_error, rate_limited, connection_error, protocol_error, truncated, stream_error
    submitted_in_window: Count = None  # attainment population: submitted in the window and ended (spec/metrics 2)
    latency_population: Count = None  # those of *submitted_in_window* that are ok (spec/metrics 2)
    came_whole: Count = None  # of latency_population: answers in one body, not as streams
    input_tokens: Tokens = None  # of all that are ok
    output_tokens: Tokens = None  # of all that are ok, reasoning included
    output_tokens_source: dict[str, Count] = {}  # by where their count comes from: usage, tokenizer, estimate, none
    reasoned: Count = None  # answers of latency_population with streamed reasoning
    all_reasoning: Count = None  # of these, without an answer token
    reasoning_tokens: Tokens = None  # of all that are ok
    answer_tokens: Tokens = None  # of all that are ok and whose reasoning is known
    # usage; events: said one by one; output: of an answer that is all reasoning; chunks: output less the answer, where there
    # is nearly one event per token; unknown
    reasoning_tokens_source: dict[str, Count] = {}  # requests with reasoning by where its count comes from
    events: Events = None  # of all phases


class ErrorCount(Document, frozen=True, kw_only=True):
    """Requests that failed in the same way."""

    status: str | None = None
    error: str | None = None
    http_status: int | None = None
    errno: int | None = None  # of a connection error
    count: Count = None  # that failed so


class TargetCounts(Document, frozen=True, kw_only=True):
    """How the requests to one URL ended."""

    url: Name = None  # of the target
    dispatched: Count = None
    ok: Count = None  # that succeeded
    failed: Count = None  # neither ok nor left by their users
    errors: tuple[ErrorCount, ...] = ()
