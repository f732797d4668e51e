"""What was planned: the description of a plan, in plan.json and in run.json."""

from __future__ import annotations

from typing import Annotated, Any

from fastllmload.documents.fields import (
    WITHHELD,
    Count,
    Document,
    File,
    Load,
    Model,
    Ns,
    Plain,
    Ratio,
    Reveals,
    Seconds,
    Sentence,
    Tokens,
    field,
)
from fastllmload.settings import TrafficClass


class Curve(Document, frozen=True, kw_only=True):
    """A rate over time, between points."""

    kind: str | None = None
    t_s: tuple[float, ...] = ()
    rate: Annotated[tuple[Any, ...], field("requests/s", Reveals.LOAD)] = ()


class ArrivalFacts(Document, frozen=True, kw_only=True):
    """An arrival process with its parameters."""

    name: str | None = None
    rate: Annotated[float | str | None, field("requests/s", Reveals.LOAD)] = None  # "inf": all at once
    stream: Annotated[str | None, field("", Reveals.LOAD)] = None  # of random numbers; its name may contain the rate
    burstiness: Plain = None
    on_s: Seconds = None
    off_s: Seconds = None
    changes: Annotated[str | None, field("", Reveals.CURVE)] = None  # the curve as it was written
    curve: Curve | None = None


class LoadDescription(Document, frozen=True, kw_only=True):
    """The load model. A closed loop has *concurrency* and no arrivals."""

    loop: str | None = None  # open, closed
    concurrency: Load = None
    cycles: bool | None = None  # the plan starts again at its end
    duration_s: Seconds = None
    arrivals: ArrivalFacts | None = None

    @property
    def is_withheld(self) -> bool:
        """Whether redaction took the load away."""
        rate = None if self.arrivals is None else self.arrivals.rate
        return self.concurrency is WITHHELD or rate == WITHHELD.value


class ExactPrompts(Document, frozen=True, kw_only=True):
    """Prompts whose token count is exactly what was asked."""

    prompts: Count = None
    checked: Count = None
    exact: Count = None
    share: Ratio = None


class TokenizerFacts(Document, frozen=True, kw_only=True):
    """A tokenizer with its source."""

    name: File = None
    source: str | None = None
    version: str | None = None
    vocabulary: Plain = None


class DatasetFacts(Document, frozen=True, kw_only=True):
    """What of a data set or trace was used."""

    classes: tuple[str, ...] = ()
    left_out: Count = None
    order: str | None = None
    preprocessing: str | None = None
    requests: Count = None
    rounds: Plain = None
    sha256: str | None = None
    subset: str | None = None
    used: Count = None
    version: str | None = None


class SharedText(Document, frozen=True, kw_only=True):
    """A system prompt or contexts that requests of a standard workload share."""

    share: Ratio = None  # of the requests
    tokens: int | tuple[int, ...] | None = None


class WorkloadDescription(Document, frozen=True, kw_only=True):
    """What is sent. Sources of prompts add facts of their own."""

    name: str | None = None
    isl: str | None = None
    osl: str | None = None
    tokenizer: File = None
    prompt: str | None = None
    prompt_form: str | None = None
    counting: str | None = None
    num_prefixes: Plain = None
    prefix_len: Plain = None
    prefix_share: Ratio = None
    prefix_zipf: Plain = None
    prefix_hit_rate: Ratio = None
    shared_token_share: Ratio = None
    image: str | None = None
    special_tokens: str | None = None
    deviations: tuple[str, ...] = ()
    exact: ExactPrompts | None = None
    tokenizer_facts: TokenizerFacts | None = None
    dataset: DatasetFacts | None = None
    system_prompt: SharedText | None = None
    contexts: SharedText | None = None


class ConversationsDescription(Document, frozen=True, kw_only=True):
    """Conversations of a plan."""

    conversations: Count = None
    requests: Count = None
    turns: str | None = None
    turns_mean: Plain = None
    turns_max: Plain = None
    think_time: str | None = None
    think_time_mean_s: Seconds = None
    history: str | None = None
    tool_turns: Ratio = None


class UserBehaviorDescription(Document, frozen=True, kw_only=True):
    """Users who do not wait."""

    cancel_share: Ratio = None
    cancel_after: str | None = None
    slow_readers: str | None = None
    abandon: str | None = None
    cancelling: Count = None
    reading_slowly: Count = None


class PlanDescription(Document, frozen=True, kw_only=True):
    """What a plan contains; with several classes of traffic *classes* describes each."""

    endpoint: str | None = None
    model: Model = None
    phase: str | None = None
    requests: Count = None
    seed: int | None = None
    streaming: bool | None = None
    continuous_usage: bool | None = None  # every event is asked to report its usage
    token_ids: bool | None = None  # every event is asked for the ids of its tokens
    load: LoadDescription = LoadDescription()
    workload: WorkloadDescription = WorkloadDescription()
    classes: tuple[ClassDescription, ...] = ()
    conversations: ConversationsDescription | None = None
    behaviour: UserBehaviorDescription | None = None
    joint: tuple[str, ...] | None = None  # the pieces between the turns of a conversation


class ClassDescription(PlanDescription, frozen=True, kw_only=True):
    """One class of traffic of a plan."""

    name: str | None = None
    digest: str | None = None
    input_tokens: Tokens = None
    output_tokens: Tokens = None
    own_targets: bool | None = None
    starts: Count = None  # requests that follow no reply
    settings: TrafficClass | None = None


class CountingFacts(Document, frozen=True, kw_only=True):
    """How tokens are counted (IETF 4.4)."""

    option: str | None = None
    tokenizer: TokenizerFacts = TokenizerFacts()
    special_tokens: str | None = None


class WarmupPlan(Document, frozen=True, kw_only=True):
    """The plan of the warm-up."""

    digest: str | None = None
    requests: Count = None
    description: PlanDescription = PlanDescription()
    deviation: Sentence = None  # from IETF 4.5.1


class PlanSummary(Document, frozen=True, kw_only=True):
    """The plan of the measured phase."""

    digest: str | None = None  # SHA-256 of everything that was sent
    schedule_hash: str | None = None
    model: Model = None
    requests: Count = None
    whole_ns: Ns = None  # CLOCK_MONOTONIC when it was complete
    description: PlanDescription = PlanDescription()
    classes: tuple[str, ...] = ()  # names by number
    deviations: tuple[str, ...] = ()  # from the standard workload
    counting: CountingFacts = CountingFacts()
    warmup: WarmupPlan = WarmupPlan()


class PlanDocument(Document, frozen=True, kw_only=True):
    """plan.json of a saved plan."""

    digest: str | None = None
    members: dict[str, str] = {}  # digests of its arrays
    description: PlanDescription = PlanDescription()
