"""What was planned: the description of a plan, in plan.json and in run.json."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from fastllmload.documents.fields import (
    WITHHELD,
    Count,
    Document,
    File,
    InFlight,
    Length,
    Model,
    Ns,
    Number,
    Plain,
    Rate,
    Ratio,
    Reveals,
    Seconds,
    Sentence,
    Tokens,
    field,
)
from fastllmload.settings import TrafficClass


class Curve(Document, frozen=True, kw_only=True):
    """A rate over time: lines between points, an exponential, or a cosine."""

    OPTIONAL: ClassVar[tuple[str, ...]] = ("t_s", "rate", "start", "end", "length_s", "low", "high", "period_s")

    kind: str | None = None  # linear, exponential, day
    t_s: Annotated[tuple[float, ...], field("s")] = ()  # of the points, from time zero
    rate: Annotated[tuple[Any, ...], field("requests/s", Reveals.LOAD)] = ()  # at the points
    start: Rate = None  # of an exponential, at time zero
    end: Rate = None  # of an exponential
    length_s: Seconds = None  # from start to end of an exponential
    low: Rate = None  # of a day, at time zero
    high: Rate = None  # of a day, half a period later
    period_s: Seconds = None  # of a day


class ArrivalFacts(Document, frozen=True, kw_only=True):
    """An arrival process with its parameters."""

    OPTIONAL: ClassVar[tuple[str, ...]] = ("burstiness", "on_s", "off_s", "changes", "curve", "speed", "loop")

    name: str | None = None  # poisson, constant, uniform, gamma, bursty, trace, inf ...
    rate: Annotated[int | float | str | None, field("requests/s", Reveals.LOAD)] = None  # "inf": all at once
    stream: Annotated[str | None, field("", Reveals.LOAD)] = None  # of random numbers; its name may contain the rate
    burstiness: Plain = None  # shape of the gamma distribution of the gaps; 1: Poisson
    on_s: Seconds = None  # of each period with arrivals
    off_s: Seconds = None  # of each period without
    changes: Annotated[str | None, field("", Reveals.CURVE)] = None  # the curve as it was written
    curve: Curve | None = None  # the same as points; None: the rate is constant
    speed: Plain = None  # factor by which a trace is sent faster than it was recorded
    loop: bool | None = None  # a trace starts again at its end


class LoadDescription(Document, frozen=True, kw_only=True):
    """The load model. A closed loop has *concurrency* and no arrivals."""

    OPTIONAL: ClassVar[tuple[str, ...]] = ("concurrency_changes", "concurrency_curve")

    loop: str | None = None  # open, closed
    concurrency: InFlight = None  # of a closed loop, the most where it changes
    concurrency_changes: Annotated[str | None, field("", Reveals.CURVE)] = None  # the curve of slots as it was written
    concurrency_curve: Curve | None = None  # the same as points: slots over time; None: it does not change
    cycles: bool | None = None  # the plan starts again at its end
    duration_s: Seconds = None  # of sending; None: bounded by count
    arrivals: ArrivalFacts | None = None  # the arrival process; None: a closed loop

    @property
    def is_withheld(self) -> bool:
        """Whether redaction took the load away."""
        rate = None if self.arrivals is None else self.arrivals.rate
        return self.concurrency is WITHHELD or rate == WITHHELD.value


class ExactPrompts(Document, frozen=True, kw_only=True):
    """Prompts whose token count is exactly what was asked."""

    prompts: Count = None  # in the plan
    checked: Count = None  # whose tokens were counted
    exact: Count = None  # that have exactly the drawn length
    share: Ratio = None  # exact of checked; None: no tokenizer


class TokenizerFacts(Document, frozen=True, kw_only=True):
    """A tokenizer with its source."""

    OPTIONAL: ClassVar[tuple[str, ...]] = ("source", "version", "vocabulary", "sha256")

    name: File = None  # as given by `--tokenizer`
    source: str | None = None  # quicktok, tiktoken, tokenizer.json
    version: str | None = None  # of the library that counts
    vocabulary: Annotated[Number, field("tokens")] = None  # size, special tokens included
    sha256: str | None = None  # of the file; None: a tokenizer of a library


class DatasetFacts(Document, frozen=True, kw_only=True):
    """What of a data set or trace was used."""

    OPTIONAL: ClassVar[tuple[str, ...]] = ("classes", "conversations", "preprocessing", "subset", "used", "version")

    classes: tuple[str, ...] = ()  # names of the classes of its entries
    conversations: Annotated[Number, field("conversations", Reveals.LOAD)] = None  # in the file
    left_out: Count = None  # entries without a usable request
    order: str | None = None  # in which entries are sent
    preprocessing: str | None = None  # of the data set; this version writes none
    requests: Count = None  # in the file
    rounds: Annotated[Number, field("rounds")] = None  # how often the file was used
    sha256: str | None = None  # of the file
    subset: str | None = None  # entries that were used
    used: Count = None  # entries of which requests were made
    version: str | None = None  # of the data set; this version writes none


class SharedText(Document, frozen=True, kw_only=True):
    """A system prompt or contexts that requests of a standard workload share."""

    OPTIONAL: ClassVar[tuple[str, ...]] = ("exponent", "chosen")

    share: Ratio = None  # of the requests
    tokens: Annotated[int | tuple[int, ...] | None, field("tokens")] = None  # length of the text, or of each of them
    exponent: Plain = None  # of the Zipf choice among contexts
    chosen: Annotated[tuple[int | str, ...], field("requests", Reveals.LOAD)] = ()  # requests with each context


class TraceFacts(Document, frozen=True, kw_only=True):
    """What of a trace was used."""

    sha256: str | None = None  # of the file
    rows: Count = None  # that were read
    left_out: Count = None  # rows without a usable request
    seconds: Seconds = None  # from the first request to the last
    prefix_hit_rate: Ratio = None  # of the trace's tokens, that an unlimited prefix cache would find


class IdealHitRates(Document, frozen=True, kw_only=True):
    """Shares of the prompt tokens that a prefix cache can find in the order of the trace, stated before sending."""

    token_share: Ratio = None  # of a cache without end
    whole_block_share: Ratio = None  # the same, only blocks that a prompt fills completely
    block_share: Ratio = None  # of the blocks, not of the tokens
    scope: str | None = None  # within which calls equal blocks are equal text: file, session, chain
    block_tokens: Length = None  # of a block
    cache_blocks: Count = None  # of the cache of *cache_token_share*, as given by `--cache-blocks`
    cache_token_share: Ratio = None  # of the prompt tokens, for a cache of that size

    OPTIONAL: ClassVar[tuple[str, ...]] = ("cache_blocks", "cache_token_share", "block_share", "block_tokens")


class WaitFacts(Document, frozen=True, kw_only=True):
    """Waits of one kind between calls."""

    count: Count = None  # calls that wait so
    mean_s: Seconds = None  # of the wait


class SessionFacts(Document, frozen=True, kw_only=True):
    """Sessions that are graphs of calls, as planned."""

    timing: str | None = None  # as given by `--trace-timing`: dependent, recorded
    sessions: Annotated[Number, field("sessions", Reveals.LOAD)] = None  # of the trace, or of its part
    calls: Annotated[Number, field("calls", Reveals.LOAD)] = None  # of these sessions
    edges: Annotated[Number, field("edges", Reveals.LOAD)] = None  # between calls that wait for each other
    joins: Count = None  # calls that wait for more than one other
    agents_max: Annotated[Number, field("agents")] = None  # of a session
    fan_out_max: Annotated[Number, field("agents")] = None  # started by one agent
    depth_max: Annotated[Number, field("levels")] = None  # of agents in a session
    makespan_mean_s: Seconds = None  # recorded, from the first call to the last that something waits for
    waits: dict[str, WaitFacts] = {}  # after the replies that calls wait for, by kind: tool, user, agent, unknown
    ideal: IdealHitRates | None = None  # None: the trace does not say what prompts share
    notes: Annotated[tuple[str, ...], field("sentences")] = ()  # what was assumed of the trace
    inexact: Annotated[tuple[str, ...], field("sentences")] = ()  # why a server can find other hits than *ideal*
    start: str | None = None  # as given by `--session-start`: stationary, share:LOW,HIGH; None: fresh
    under_way: Annotated[Number, field("sessions", Reveals.LOAD)] = None  # that began before time zero, with calls left
    ending: Annotated[Number, field("sessions", Reveals.LOAD)] = (
        None  # in their last call at time zero, of an open loop
    )
    calls_before: Annotated[Number, field("calls", Reveals.LOAD)] = None  # of these, which are not sent

    OPTIONAL: ClassVar[tuple[str, ...]] = ("ideal", "start", "under_way", "ending", "calls_before")


class SkippedLengths(Document, frozen=True, kw_only=True):
    """Prompt lengths that the model's context does not allow."""

    most_input: Length = None  # longest prompt that leaves room for the answer
    lengths: Annotated[tuple[int, ...], field("tokens")] = ()  # that are left out of a mix
    redrawn: Count = None  # lengths that were drawn again


class LengthQuantiles(Document, frozen=True, kw_only=True):
    """P50, P95 and P99 of lengths, as IETF A.3.2 publishes them."""

    input: Annotated[tuple[int, ...], field("tokens")] = ()  # of questions
    output: Annotated[tuple[int, ...], field("tokens")] = ()  # of answers


class WorkloadDescription(Document, frozen=True, kw_only=True):
    """What is sent. Sources of prompts add facts of their own."""

    OPTIONAL: ClassVar[tuple[str, ...]] = (
        "prefix_share", "prefix_zipf", "prefix_hit_rate", "shared_token_share", "image", "exact", "dataset",
        "system_prompt", "contexts", "trace", "classes", "mix", "skipped", "stand_in", "independent", "reference",
        "without_system_prompt", "function_tokens", "sessions",
    )  # fmt: skip
    OF_PROMPTS: ClassVar[tuple[str, ...]] = (
        "prompt_form",
        "counting",
        "special_tokens",
        "deviations",
        "tokenizer_facts",
    )

    name: str | None = None  # of the workload
    isl: str | None = None  # lengths of prompts
    osl: str | None = None  # lengths of answers; null where these are not tokens
    tokenizer: File = None  # that counts prompts
    prompt: str | None = None  # what prompts are made of
    prompt_form: str | None = None  # as given by `--prompt-form`
    counting: str | None = None  # option of IETF 4.4.2: A, B
    num_prefixes: Plain = None  # different shared prefixes
    prefix_len: Length = None  # of a shared prefix
    prefix_share: Ratio = None  # of the requests, that have one
    prefix_zipf: Plain = None  # exponent of the choice among prefixes
    prefix_hit_rate: Ratio = None  # of the prompt tokens, that an unlimited prefix cache would find
    shared_token_share: Ratio = None  # of the prompt tokens, that are in other prompts too
    image: str | None = None  # WIDTHxHEIGHT:COUNT of images in each prompt
    special_tokens: str | None = None  # how these are counted
    deviations: tuple[str, ...] = ()  # from the standard workload
    exact: ExactPrompts | None = None
    tokenizer_facts: TokenizerFacts | None = None
    dataset: DatasetFacts | None = None
    system_prompt: SharedText | None = None  # that requests share
    contexts: SharedText | None = None  # that requests share
    trace: TraceFacts | None = None  # whose requests are sent
    sessions: SessionFacts | None = None  # of a trace of sessions
    classes: tuple[str, ...] = ()  # names of the parts of a mix
    mix: dict[str, Ratio] = {}  # of the requests, by input and output length
    skipped: SkippedLengths | None = None  # None: the model's context is not known
    stand_in: bool | None = None  # generated texts replace the data set of the standard workload
    independent: str | None = None  # what of a stand-in is drawn independently, unlike in the data set
    reference: LengthQuantiles | None = None  # of IETF A.3.2
    without_system_prompt: LengthQuantiles | None = None  # of the plan, to compare with *reference*
    function_tokens: str | None = None  # lengths of the function in a code completion's prompt

    def optional(self) -> tuple[str, ...]:
        """Of classes together there are no facts of prompts: each class has its own."""
        return self.OPTIONAL if self.special_tokens is not None else self.OPTIONAL + self.OF_PROMPTS


class ConversationsDescription(Document, frozen=True, kw_only=True):
    """Conversations of a plan."""

    OPTIONAL: ClassVar[tuple[str, ...]] = ("tool_turns", "start", "under_way", "turns_before", "ideal", "inexact")

    conversations: Annotated[Number, field("conversations", Reveals.LOAD)] = None  # in the plan
    requests: Annotated[Number, field("turns", Reveals.LOAD)] = None  # turns in the plan
    turns: str | None = None  # of a conversation, as given by `--turns`
    turns_mean: Annotated[Number, field("turns")] = None  # of a conversation
    turns_max: Annotated[Number, field("turns")] = None  # of a conversation
    think_time: str | None = None  # from a reply to the next turn, as given by `--think-time`
    think_time_mean_s: Seconds = None  # of the turns that follow a reply
    history: str | None = None  # earlier answers that turns contain: real, planned; stored: the server has them
    tool_turns: Ratio = None  # of the later turns, that bring a tool's result
    start: str | None = None  # as given by `--session-start`: stationary, share:LOW,HIGH; None: fresh
    under_way: Annotated[Number, field("conversations", Reveals.LOAD)] = None  # that began before time zero
    turns_before: Annotated[Number, field("turns", Reveals.LOAD)] = None  # of these, which are history and not sent
    ideal: IdealHitRates | None = None  # of a plan that begins with conversations under way; None: not known
    inexact: Annotated[tuple[str, ...], field("sentences")] = ()  # why a server can find other hits than *ideal*


class UserBehaviorDescription(Document, frozen=True, kw_only=True):
    """Users who do not wait."""

    cancel_share: Ratio = None  # of users, who cancel by plan
    cancel_after: str | None = None  # when they do
    slow_readers: str | None = None  # share and speed of slow readers
    abandon: str | None = None  # deadline at which users give up
    cancelling: Count = None  # that users will cancel by plan
    reading_slowly: Count = None  # of slow readers


class ModelPlan(Document, frozen=True, kw_only=True):
    """One of several models or adapters of a plan."""

    name: Model = None  # that requests name
    share: Ratio = None  # of the sessions, or of requests that stand alone, as asked
    starts: Count = None  # sessions, or requests that stand alone, that drew it
    requests: Count = None  # that name it
    input_tokens: Tokens = None  # of its requests
    output_tokens: Tokens = None  # that its requests ask for


class PlanDescription(Document, frozen=True, kw_only=True):
    """What a plan contains; with several classes of traffic *classes* describes each."""

    OPTIONAL: ClassVar[tuple[str, ...]] = (
        "continuous_usage", "token_ids", "classes", "conversations", "behaviour", "joint", "models",
    )  # fmt: skip

    endpoint: str | None = None  # wire protocol; that of a file as name and digest
    model: Model = None
    phase: str | None = None  # warmup, measure
    requests: Count = None  # in the plan
    seed: int | None = None
    streaming: bool | None = None  # answers are asked for as streams
    continuous_usage: bool | None = None  # every event is asked to report its usage
    token_ids: bool | None = None  # every event is asked for the ids of its tokens
    load: LoadDescription = LoadDescription()
    workload: WorkloadDescription = WorkloadDescription()
    classes: tuple[ClassDescription, ...] = ()  # of traffic, in the order of their numbers
    conversations: ConversationsDescription | None = None
    behaviour: UserBehaviorDescription | None = None
    joint: tuple[str, ...] | None = None  # the pieces between the turns of a conversation
    models: tuple[ModelPlan, ...] = ()  # in the order of their numbers; empty: one model

    @property
    def closed_classes(self) -> dict[int, int]:
        """Slots of each class that is a closed loop, by its number; empty where no class has slots of its own."""
        found = enumerate(self.classes)
        return {number: one.concurrency for number, one in found if one.concurrency is not None}

    @property
    def calls_before(self) -> Number:
        """Calls or turns of sessions under way that are not sent; None where none begins so."""
        return calls_before(self.workload.sessions, self.conversations)

    @property
    def begun_classes(self) -> frozenset[int]:
        """Numbers of the classes that begin with sessions under way; {0} of a plan without classes, empty of a warm-up."""
        if self.phase != "measure":
            return frozenset()
        every: tuple[PlanDescription | ClassDescription, ...] = self.classes or (self,)
        return frozenset(number for number, one in enumerate(every) if one.calls_before is not None)

    @property
    def slots_change(self) -> bool:
        """Whether the slots of any of `closed_classes` change: their numbers are then the most there are."""
        loads = (one.load for one in self.classes)
        return any(load is not None and load.concurrency_curve is not None for load in loads)


class ClassDescription(Document, frozen=True, kw_only=True):
    """One class of traffic of a plan; without a plan of its own it has no request and only its settings."""

    OPTIONAL: ClassVar[tuple[str, ...]] = (
        "endpoint", "model", "load", "workload", "conversations", "behaviour", "joint", "digest", "input_tokens",
        "output_tokens",
    )  # fmt: skip

    name: str | None = None  # of the class
    endpoint: str | None = None  # wire protocol; that of a file as name and digest
    model: Model = None
    requests: Count = None  # in the plan
    load: LoadDescription | None = None
    workload: WorkloadDescription | None = None
    conversations: ConversationsDescription | None = None
    behaviour: UserBehaviorDescription | None = None
    joint: tuple[str, ...] | None = None  # the pieces between the turns of a conversation
    digest: str | None = None  # of its own plan
    input_tokens: Tokens = None  # of its requests
    output_tokens: Tokens = None  # that its requests ask for
    own_targets: bool | None = None  # it has URLs of its own
    starts: Count = None  # requests that follow no reply
    settings: TrafficClass | None = None  # of the class

    @property
    def calls_before(self) -> Number:
        """As that of a plan without classes."""
        return calls_before(None if self.workload is None else self.workload.sessions, self.conversations)

    @property
    def has_sessions(self) -> bool:
        """Whether its requests are turns of conversations, or calls of a trace of sessions."""
        return self.conversations is not None or (self.workload is not None and self.workload.sessions is not None)

    @property
    def concurrency(self) -> int | None:
        """Slots of a class that is a closed loop; None in an open one, or where redaction took them away."""
        slots = None if self.load is None else self.load.concurrency
        return slots if isinstance(slots, int) else None


def calls_before(of_trace: SessionFacts | None, of_turns: ConversationsDescription | None) -> Number:
    if of_trace is not None and of_trace.start is not None:
        return of_trace.calls_before
    return None if of_turns is None or of_turns.start is None else of_turns.turns_before


class CountingFacts(Document, frozen=True, kw_only=True):
    """How tokens are counted (IETF 4.4)."""

    option: str | None = None  # of IETF 4.4.2: A the server's counts, B the tokenizer's
    tokenizer: TokenizerFacts = TokenizerFacts()
    special_tokens: str | None = None  # how these are counted


class WarmupPlan(Document, frozen=True, kw_only=True):
    """The plan of the warm-up."""

    digest: str | None = None  # SHA-256 of everything that was sent
    requests: Count = None
    description: PlanDescription = PlanDescription()
    deviation: Sentence = None  # from IETF 4.5.1


class PlanSummary(Document, frozen=True, kw_only=True):
    """The plan of the measured phase."""

    digest: str | None = None  # SHA-256 of everything that was sent
    schedule_hash: str | None = None  # SHA-256 of the planned instants; None: a closed loop
    model: Model = None
    requests: Count = None  # in the plan, of a mix those of its open loops; None: a closed loop that repeats it
    whole_ns: Ns = None  # CLOCK_MONOTONIC when the plan was complete
    description: PlanDescription = PlanDescription()
    classes: tuple[str, ...] = ()  # names by number
    deviations: tuple[str, ...] = ()  # from the standard workload
    counting: CountingFacts = CountingFacts()
    warmup: WarmupPlan = WarmupPlan()


class PlanDocument(Document, frozen=True, kw_only=True):
    """plan.json of a saved plan."""

    schema_version: int | None = None
    digest: str | None = None  # SHA-256 of everything else in it
    members: dict[str, str] = {}  # digests of its arrays
    description: PlanDescription = PlanDescription()
