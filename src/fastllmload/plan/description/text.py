"""Format the description of a plan as text for a terminal."""

from __future__ import annotations

from fastllmload.documents.fields import known
from fastllmload.documents.plan import (
    ArrivalFacts,
    ClassDescription,
    ConversationsDescription,
    IdealHitRates,
    LoadDescription,
    ModelPlan,
    PlanDescription,
    SessionFacts,
    UserBehaviorDescription,
    WorkloadDescription,
)
from fastllmload.endpoint import shown
from fastllmload.errors import coded
from fastllmload.plan.description.facts import LengthFigures, PercentileSamples, PlanFigures, figures
from fastllmload.plan.description.picture import spell
from fastllmload.plan.plan import Plan, classes_within

MOST_NAMED = 4  # classes whose slots are named one by one


def describe_as_text(plan: Plan, *, ramp_share: float = 0.1) -> str:
    """All of *plan*, a line each; samples without *ramp_share* of the duration."""
    described, counted = plan.description, figures(plan, ramp_share=ramp_share)
    workload = described.workload
    rows = [
        ("phase", f"{described.phase}, seed {described.seed}"),
        ("load", _load(described.load, unit_of(described)) + _slots(plan)),
        ("requests", _requests(counted)),
        ("duration", _duration(counted.duration_s, described.load)),
        ("workload", _workload(workload)),
        (
            "sent to",
            f"{shown(str(described.endpoint))}, model {described.model}{' and others' * bool(described.models)}",
        ),
        *(("", f"not standard: {text}") for text in plan.deviations),
        *((f"class {one.name}", class_line(one)) for one in described.classes),
        *(("models" if not place else "", text) for place, text in enumerate(model_lines(described.models))),
        *(
            ()
            if workload.sessions
            else (("conversations", text) for text in conversation_lines(described.conversations))
        ),
        *(("users", text) for text in user_lines(described.behaviour)),
        *_trace(workload),
        *session_lines(workload.sessions),
        *_sharing(workload),
        ("exact", _exact(workload)),
        *_against_reference(workload),
        ("input length", _lengths(counted.input_length)),
        *([] if workload.osl is None else [("output length", _lengths(counted.output_length))]),
        ("expected", _expected(counted, workload.osl is None)),
        ("bodies", f"{len(plan.bodies):,} bytes"),
        ("samples", _samples(counted.samples)),
        ("schedule", plan.schedule_hash or "none: a freed slot sends at once"),
        ("digest", plan.digest),
    ]
    return "".join(f"{name:<14} {value}\n" for name, value in rows)


def model_lines(models: tuple[ModelPlan, ...]) -> list[str]:
    """The models that most requests name, with what was asked and what was drawn."""
    found = sorted(models, key=lambda one: -(known(one.requests) or 0))
    lines = [
        f"{one.name}: {one.requests:,} requests of {one.starts:,} starts, {one.share:.4g} asked" for one in found[:8]
    ]
    return lines + ([f"{len(found) - 8:,} more models"] if len(found) > 8 else [])


def unit_of(plan: PlanDescription) -> str:
    """What the rate of an open loop counts, as in " conversations/s"."""
    if plan.workload.sessions is not None and plan.workload.sessions.timing != "recorded":
        return " sessions/s"
    return "/s" if plan.conversations is None else " conversations/s"


def _load(load: LoadDescription, unit: str = "/s") -> str:
    arrivals = load.arrivals
    if arrivals is None:
        return f"closed loop, {load.concurrency_changes or load.concurrency} in flight"
    rate = "all at once" if arrivals.rate == "inf" else f"{arrivals.rate:g}{unit}"
    if arrivals.changes is not None:
        rate = f"{arrivals.changes} (mean {rate})"
    parameters = {"burstiness": arrivals.burstiness, "off_s": arrivals.off_s, "on_s": arrivals.on_s}
    extra = "".join(f", {name} {value:g}" for name, value in parameters.items() if value is not None)
    return f"open loop, {arrivals.name}, {rate}{extra}"


def _slots(plan: Plan) -> str:
    """The slots of classes that are closed loops: `; closed loops of 16 and 4 in flight`, `: 16 and 4` where all are."""
    slots = list(plan.closed_classes.values())
    if not slots or (plan.concurrency is not None and len(slots) == 1):
        return ""
    if len(slots) > MOST_NAMED:
        most = "up to " if plan.description.slots_change else ""
        return f"; {len(slots):,} closed loops, {most}{sum(slots):,} in flight"
    named = " and ".join(in_flight(plan.description.classes[number]) for number in plan.closed_classes)
    if plan.concurrency is not None:
        return f": {named}"
    return f"; closed loop{'s' * (len(slots) > 1)} of {named} in flight"


def _requests(counted: PlanFigures) -> str:
    if counted.requests is None:
        return f"as many as the target completes; a pool of {counted.pool:,} starts again when used up"
    if counted.pool is None:
        return f"{counted.requests:,}"
    return (
        f"{counted.requests:,}, and of closed loops as many as the target completes, out of {counted.pool:,} that start "
        "again when used up"
    )


def _duration(seconds: float | None, load: LoadDescription) -> str:
    if seconds is None:
        return "until the last request ends"
    return f"{seconds:,.3f} s" + ("" if load.duration_s is not None else " to the last send")


def _workload(workload: WorkloadDescription) -> str:
    shared = ""
    if workload.prefix_len:
        shared = f", {workload.num_prefixes} shared prefixes of {workload.prefix_len} tokens"
    return (
        f"{workload.name}, input {workload.isl}{'' if workload.osl is None else f', output {workload.osl}'},"
        f" {workload.prompt} of {workload.tokenizer}{shared}"
    )


def _trace(workload: WorkloadDescription) -> list[tuple[str, str]]:
    trace = workload.trace
    if trace is None:
        return []
    left_out = f", {trace.left_out:,} without prompt or answer left out" if trace.left_out else ""
    span = f" in {trace.seconds:,.3f} s" if trace.seconds else ""
    return [("trace", f"{trace.rows:,} requests{span}{left_out}")]


def session_lines(found: SessionFacts | None) -> list[tuple[str, str]]:
    """What a trace of sessions is: shape, waits, ideal hit rate, and what was assumed of it."""
    if found is None:
        return []
    shape = (
        f"{found.sessions:,} of {found.calls:,} calls, {found.edges:,} edges, {found.joins:,} joins; at most "
        f"{found.agents_max:,} agents, {found.fan_out_max:,} started by one, {found.depth_max:,} levels"
    )
    waits = "; ".join(f"{kind} {one.count:,}, mean {one.mean_s:.3g} s" for kind, one in found.waits.items())
    when = "at recorded instants" if found.timing == "recorded" else "after the replies that they wait for"
    lines = [("sessions", shape), ("calls due", f"{when}{f': waits {waits}' if waits else ''}")]
    if found.start is not None:
        ending = f", {found.ending:,} more in their last call" if known(found.ending) else ""
        before = f"{found.under_way:,} sessions are under way{ending}; {found.calls_before:,} calls before are not sent"
        lines.append(("starts", f"{found.start}: {before}"))
    if found.ideal is not None:
        lines.append(("ideal hits", ideal_text(found.ideal)))
    lines += [("inexact" if not place else "", coded("hits-inexact", text)) for place, text in enumerate(found.inexact)]
    return lines + [("assumed" if not place else "", text) for place, text in enumerate(found.notes)]


def ideal_text(found: IdealHitRates) -> str:
    parts = [f"{found.token_share:.2%} of the prompt tokens" if found.token_share is not None else "none"]
    if found.whole_block_share is not None and found.whole_block_share != found.token_share:
        blocks = "in full blocks" if known(found.block_tokens) else "without the last token of each prompt"
        parts.append(f"{found.whole_block_share:.2%} {blocks}")
    if found.block_share is not None:
        parts.append(f"{found.block_share:.2%} of the blocks")
    if found.cache_token_share is not None:
        parts.append(f"{found.cache_token_share:.2%} of the tokens with a cache of {found.cache_blocks:,} blocks")
    where = {"file": "", "session": "; blocks are shared within a session only", "chain": "; within an agent only"}
    return ", ".join(parts) + where.get(str(found.scope), "")


def _sharing(workload: WorkloadDescription) -> list[tuple[str, str]]:
    """What a prefix cache can find; empty if prompts share nothing."""
    if not workload.shared_token_share:
        return []
    text = f"{workload.shared_token_share:.2%} of input tokens are shared"
    if workload.prefix_hit_rate is not None:
        text += f", {workload.prefix_hit_rate:.2%} were sent before: the most that a prefix cache can find"
    return [("prefix cache", text)]


def _lengths(lengths: LengthFigures | None) -> str:
    if lengths is None:
        return "none"
    shown = "  ".join(f"{name} {getattr(lengths, name):,.0f}" for name in ("min", "p50", "p95", "p99", "max"))
    return f"mean {lengths.mean:,.1f}  {shown} tokens"


def _expected(counted: PlanFigures, no_tokens: bool) -> str:
    if counted.input_tokens is None:
        return "decided by the target"
    found = f"{counted.input_tokens:,} input" + (
        " tokens" if no_tokens else f" and {counted.output_tokens:,} output tokens"
    )
    return found if counted.pool is None else f"{found}, and those of closed loops"


def _against_reference(workload: WorkloadDescription) -> list[tuple[str, str]]:
    """Quantiles of a conversation's questions and answers next to those that the draft publishes."""
    reference, found = workload.reference, workload.without_system_prompt
    if reference is None or found is None:
        return []
    questions = f"questions {_three(found.input)} (A.3.2: {_three(reference.input)})"
    return [("P50/P95/P99", f"{questions}, answers {_three(found.output)} (A.3.2: {_three(reference.output)})")]


def _three(values: tuple[int, ...]) -> str:
    return "/".join(map(str, values)) or "none"


SPELLED = {"p50": "P50", "p90": "P90", "p95": "P95", "p99": "P99", "p999": "P99.9"}


def _samples(samples: dict[str, PercentileSamples] | None) -> str:
    if samples is None:
        return "decided by the target"
    short = [_short(SPELLED.get(name, name), row) for name, row in samples.items() if not row.enough]
    return f"{samples['p50'].samples:,}: " + ("; ".join(short) or "enough for every percentile up to P99.9")


def _short(name: str, row: PercentileSamples) -> str:
    """`P99.9 needs 10,000 requests: 20 s more at this rate`."""
    needs = f"{name} needs {row.needs:,} requests"
    if row.more_s is None:
        return f"{needs}: {row.more_requests:,} more"
    return f"{needs}: {spell(row.more_s)} more at this rate"


def _exact(workload: WorkloadDescription) -> str:
    exact = workload.exact
    if exact is None or exact.share is None:
        return "not counted" if exact is not None else "as written"
    of = "" if exact.checked == exact.prompts else f" of {exact.prompts:,}"
    counted = f"{exact.checked:,}{of} counted"
    return f"{exact.share:.2%} of prompts have the length that was drawn, to the token ({counted})"


def in_flight(one: ClassDescription) -> str:
    """The slots of a closed loop, or how they change."""
    changes = None if one.load is None else one.load.concurrency_changes
    return changes or f"{one.concurrency:,}"


def class_line(one: ClassDescription) -> str:
    """`40/s poisson, 1,203 requests, 380,112 input and 190,021 output tokens, model adapter-a`; of a closed loop
    `16 in flight, a pool of 2,000 requests`.
    """
    content, settings = one.workload, one.settings
    if not one.requests or content is None or one.load is None or settings is None:
        return "no requests in this phase"
    arrivals = one.load.arrivals or ArrivalFacts()
    closed = one.concurrency is not None
    what = f"{one.starts:,} conversations in " if one.conversations is not None else ""
    own = [f"model {one.model}"] if settings.model is not None else []
    own += [settings.endpoint_path] if settings.endpoint_path is not None else []
    own += [shown(str(one.endpoint))] if settings.endpoint_type is not None else []
    own += ["own URL"] if one.own_targets else []
    own += [": ".join(header) for header in settings.headers]
    own += user_lines(one.behaviour)
    own += own_classes(content)
    own += [f"{name} {text}" for name, text in session_lines(content.sessions) if name in ("starts", "ideal hits")]
    own += begun_lines(one.conversations) if content.sessions is None else []
    no_tokens = content.osl is None
    parts = [
        f"{in_flight(one)} in flight" if closed else f"{arrivals.rate:g}/s {arrivals.name}",
        f"{'a pool of ' * bool(one.load.cycles)}{what}{one.requests:,} requests",
        f"{content.name} {content.isl}" + ("" if no_tokens else f" -> {content.osl}"),
        f"{one.input_tokens:,} input tokens" if no_tokens
        else f"{one.input_tokens:,} input and {one.output_tokens:,} output tokens",
        *own,
    ]  # fmt: skip
    return ", ".join(parts)


def own_classes(content: WorkloadDescription) -> list[str]:
    """Note on the classes that a class's own workload or data set has: they are not distinguished."""
    named = [name for name in classes_within(content) if name]
    return [f"its own classes ({', '.join(named)}) not distinguished"] if len(named) > 1 else []


def conversation_lines(found: ConversationsDescription | None) -> list[str]:
    if found is None:
        return []
    mean, think = found.turns_mean, found.think_time_mean_s
    turns = "" if mean is None else f"{mean:.3g} turns on average, at most {found.turns_max}"
    tools = "" if found.tool_turns is None else f", tools in {found.tool_turns:.0%} of later turns"
    pause = "" if think is None else f"; {think:.3g} s to think on average ({found.think_time})"
    lines = [f"{found.conversations:,} of {turns}{pause}; history {found.history}{tools}"]
    return lines + begun_lines(found) + [coded("hits-inexact", text) for text in found.inexact]


def begun_lines(found: ConversationsDescription | None) -> list[str]:
    """How a plan begins with conversations under way, and what a cache can find of it."""
    if found is None or found.start is None:
        return []
    before = f"{found.under_way:,} are under way; {found.turns_before:,} turns before are history and not sent"
    return [f"{found.start}: {before}"] + ([] if found.ideal is None else [f"ideal hits {ideal_text(found.ideal)}"])


def user_lines(found: UserBehaviorDescription | None) -> list[str]:
    if found is None:
        return []
    lines = []
    if found.cancel_after is not None:
        lines.append(f"{found.cancelling:,} leave after {found.cancel_after}")
    if found.slow_readers is not None:
        lines.append(f"{found.reading_slowly:,} read slowly ({found.slow_readers})")
    if found.abandon is not None:
        lines.append(f"all give up at {found.abandon}")
    return lines
