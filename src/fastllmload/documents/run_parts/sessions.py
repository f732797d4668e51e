"""Conversations, sessions and users in run.json."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from fastllmload.documents.fields import (
    Count,
    Document,
    Length,
    Ms,
    Number,
    Rate,
    Ratio,
    RequestShare,
    Reveals,
    Sentence,
    Sessions,
    field,
)
from fastllmload.documents.metric import NO_METRIC, Metric

Calls = Annotated[Number, field("calls", Reveals.LOAD)]


class TurnResult(Document, frozen=True, kw_only=True):
    """Figures of one turn of all conversations."""

    turn: int | None = None  # from 0
    requests: Count = None  # of the latency population
    ttft: Metric = NO_METRIC
    prompt_tokens_mean: Length = None  # as the server reports them
    cached_share: RequestShare  # prompt tokens that the server found in its cache, as it reports them


Dialogues = Annotated[Number, field("conversations", Reveals.LOAD)]


Turns = Annotated[Number, field("turns", Reveals.LOAD)]


class Conversations(Document, frozen=True, kw_only=True):
    """What became of the conversations."""

    planned: Dialogues = None  # in the plan
    begun: Dialogues  # of which a turn was sent
    turns_sent: Turns  # of all conversations
    turns_planned: Turns = None  # of all conversations
    ended_by_failure: Dialogues  # whose last turn failed
    ended_by_leaving: Dialogues  # whose last turn was cancelled
    tool_call_replies: Turns = None  # replies with tool calls that another turn followed
    turns: tuple[TurnResult, ...]  # by turn, up to 32


class PathShares(Document, frozen=True, kw_only=True):
    """Where the time of completed sessions went: shares of their longest chains of calls and waits, which sum to 1."""

    prefill: Ratio = None  # from sending a call to its first token
    decode: Ratio = None  # from the first token of a reply to its end
    tool: Ratio = None  # waits for tools
    user: Ratio = None  # waits for users
    agent: Ratio = None  # waits for the agent's own work
    unknown: Ratio = None  # waits whose kind the trace does not say
    client: Ratio = None  # from the instant at which a call was due to its sending


class BlockHits(Document, frozen=True, kw_only=True):
    """Prompt tokens that the server's prefix cache found, against what it could find; over calls that report them."""

    OPTIONAL: ClassVar[tuple[str, ...]] = ("template_tokens",)

    requests: Count = None  # of the latency population, whose replies say how many tokens were cached
    ideal: Ratio = (
        None  # of the prompt tokens, in full blocks, that a cache without end finds in the order of the trace
    )
    ideal_at_send: Ratio = (
        None  # the same in the order sent, of blocks that an earlier call had when its first token came; of messages in
        # tokens as the server counts them
    )
    template_tokens: Annotated[Number, field("tokens")] = None  # of the server's chat template around each message
    achieved: Ratio = None  # of the prompt tokens, both as the server counts
    reached: Ratio = None  # achieved over ideal_at_send
    shortfall: Metric = NO_METRIC  # tokens of a call that could have been cached and were not


class CallGroup(Document, frozen=True, kw_only=True):
    """Figures of the calls of one turn, or of one depth, of all sessions."""

    number: int | None = None  # of the turn in its agent's calls, or levels above the agent; from 0
    requests: Count = None  # of the latency population
    ttft: Metric = NO_METRIC
    prompt_tokens_mean: Length = None  # as the server reports them
    cached_share: RequestShare = None  # prompt tokens that the server found in its cache, as it reports them


class SessionObjective(Document, frozen=True, kw_only=True):
    """How many of the sessions that were completed meet a limit of `--goodput`."""

    objective: str | None = None  # as asked: session_makespan, session_first_action, session_stretch
    limit: Annotated[Number, field("ms, or a factor")] = None  # of its value
    unit: str | None = None  # of the limit: ms, factor
    met: Sessions = None  # within it


class SessionFigures(Document, frozen=True, kw_only=True):
    """Sessions whose first call was sent in the window. A session counts once, however many calls it has."""

    begun: Sessions = None  # of which a call was sent in the window
    under_way: Sessions = None  # in addition, that began before the run: they count in rates, turns and depths alone
    completed: Sessions = None  # all calls ok
    failed: Sessions = None  # with a call that failed or was cancelled
    unfinished: Sessions = None  # that the end of the run cut off
    calls_planned: Calls = None  # of the sessions that begun counts
    calls_sent: Calls = None  # of these
    calls_failed: Calls = None  # of the calls sent
    calls_cancelled: Calls = None  # never sent, since a call that they wait for failed
    completed_per_s: Rate = None  # sessions that ended in the window, per second
    met: Sessions = None  # completed, and it and every call met the objectives of `--goodput`
    goodput: Rate = None  # met, per second
    objectives: tuple[SessionObjective, ...] = ()  # of sessions
    makespan: Metric = NO_METRIC  # first send to the last byte of the last call that something waits for; completed
    makespan_with_unfinished: dict[str, Ms] = {}  # percentiles with cut-off sessions as censored (Kaplan and Meier)
    model_time: Metric = NO_METRIC  # of the longest chain of a session, in calls
    tool_time: Metric = NO_METRIC  # of the longest chain of a session, in waits for tools
    tool_time_all: Metric = NO_METRIC  # sum over all calls of a session, whether or not they ran at the same time
    stretch: Metric = NO_METRIC  # makespan over that with the recorded service times and the waits of this run
    first_action: Metric = NO_METRIC  # first send to the first tool call, or to the answer where no tool follows
    calls: Metric = NO_METRIC  # of a session
    agents: Metric = NO_METRIC  # of a session
    depth: Metric = NO_METRIC  # of a session's deepest agent
    in_flight: Metric = NO_METRIC  # most calls of a session at once
    critical_path: PathShares | None = None
    turns: tuple[CallGroup, ...] = ()  # by index of the call within its agent, up to 32
    depths: tuple[CallGroup, ...] = ()  # by levels above the agent
    cache: BlockHits | None = None  # None: prompts share no blocks, or no reply says what was cached
    caveat: Sentence = None  # where the run is too short for its sessions

    OPTIONAL: ClassVar[tuple[str, ...]] = ("under_way",)


class Users(Document, frozen=True, kw_only=True):
    """Users who did not wait."""

    chosen_to_leave: Count = None  # of users who were to cancel by plan
    left_by_plan: Count  # cancelled as planned
    ended_before_leaving: Count = None  # answered before their users would have cancelled
    events_until_they_left: Annotated[Number, field("events")] = None  # with content, mean over *left_by_plan*
    gave_up: Count  # cancelled when a deadline of `--abandon` passed
    slow_readers: Count  # read no faster than `--slow-readers` says
    denominators: Any = None  # which figures they count in, as a sentence
