"""Format the description of a plan as text for a terminal."""

from __future__ import annotations

from typing import Any

from fastllmload.plan.description.picture import spell

PARAMETERS = ("burstiness", "on_s", "off_s")


def describe_as_text(described: dict[str, Any]) -> str:
    rows = [
        ("phase", f"{described['phase']}, seed {described['seed']}"),
        ("load", _load(described["load"], described["conversations"] is not None)),
        ("requests", _requests(described)),
        ("duration", _duration(described)),
        ("workload", _workload(described["workload"])),
        ("sent to", f"{described['endpoint']}, model {described['model']}"),
        *(("", f"not standard: {text}") for text in described["deviations"]),
        *((f"class {one['name']}", class_line(one)) for one in described["classes"]),
        *(("conversations", text) for text in conversation_lines(described["conversations"])),
        *(("users", text) for text in user_lines(described["behaviour"])),
        *_trace(described["workload"]),
        *_sharing(described["workload"]),
        ("exact", _exact(described["workload"])),
        *_against_reference(described["workload"]),
        ("input length", _lengths(described["input_length"])),
        ("output length", _lengths(described["output_length"])),
        ("expected", _expected(described)),
        ("bodies", f"{described['bytes']:,} bytes"),
        ("samples", _samples(described["samples"])),
        ("schedule", described["schedule_sha256"] or "none: a freed slot sends at once"),
        ("digest", described["digest"]),
    ]
    return "".join(f"{name:<14} {value}\n" for name, value in rows)


def _load(load: dict[str, Any], conversations: bool = False) -> str:
    arrivals = load["arrivals"]
    if arrivals is None:
        return f"closed loop, {load['concurrency']} in flight"
    unit = " conversations/s" if conversations else "/s"
    rate = "all at once" if arrivals["rate"] == "inf" else f"{arrivals['rate']:g}{unit}"
    if "changes" in arrivals:
        rate = f"{arrivals['changes']} (mean {rate})"
    extra = "".join(f", {name} {value:g}" for name, value in arrivals.items() if name in PARAMETERS)
    return f"open loop, {arrivals['name']}, {rate}{extra}"


def _requests(described: dict[str, Any]) -> str:
    if described["requests"] is None:
        return f"as many as the target completes; a pool of {described['pool']:,} starts again when used up"
    return f"{described['requests']:,}"


def _duration(described: dict[str, Any]) -> str:
    seconds = described["duration_s"]
    if seconds is None:
        return "until the last request ends"
    return f"{seconds:,.3f} s" + ("" if described["load"]["duration_s"] is not None else " to the last send")


def _workload(workload: dict[str, Any]) -> str:
    shared = ""
    if workload["prefix_len"]:
        shared = f", {workload['num_prefixes']} shared prefixes of {workload['prefix_len']} tokens"
    return (
        f"{workload['name']}, input {workload['isl']}, output {workload['osl']},"
        f" {workload['prompt']} of {workload['tokenizer']}{shared}"
    )


def _trace(workload: dict[str, Any]) -> list[tuple[str, str]]:
    trace = workload.get("trace")
    if trace is None:
        return []
    left_out = f", {trace['left_out']:,} without prompt or answer left out" if trace["left_out"] else ""
    return [("trace", f"{trace['rows']:,} requests in {trace['seconds']:,.3f} s{left_out}")]


def _sharing(workload: dict[str, Any]) -> list[tuple[str, str]]:
    """What a prefix cache can find; empty if prompts share nothing."""
    if not workload.get("shared_token_share"):
        return []
    text = f"{workload['shared_token_share']:.2%} of input tokens are shared"
    if "prefix_hit_rate" in workload:
        text += f", {workload['prefix_hit_rate']:.2%} were sent before: the most that a prefix cache can find"
    return [("prefix cache", text)]


def _lengths(lengths: dict[str, float] | None) -> str:
    if lengths is None:
        return "none"
    shown = "  ".join(f"{name} {lengths[name]:,.0f}" for name in ("min", "p50", "p95", "p99", "max"))
    return f"mean {lengths['mean']:,.1f}  {shown} tokens"


def _expected(described: dict[str, Any]) -> str:
    if described["input_tokens"] is None:
        return "decided by the target"
    return f"{described['input_tokens']:,} input and {described['output_tokens']:,} output tokens"


def _against_reference(workload: dict[str, Any]) -> list[tuple[str, str]]:
    """Quantiles of a conversation's questions and answers next to those that the draft publishes."""
    reference, found = workload.get("reference"), workload.get("without_system_prompt")
    if reference is None or found is None:
        return []
    named = {"input": "questions", "output": "answers"}
    parts = [f"{named[side]} {_three(found[side])} (A.3.2: {_three(reference[side])})" for side in named]
    return [("P50/P95/P99", ", ".join(parts))]


def _three(values: list[int]) -> str:
    return "/".join(map(str, values)) or "none"


SPELLED = {"p50": "P50", "p90": "P90", "p95": "P95", "p99": "P99", "p999": "P99.9"}


def _samples(samples: dict[str, dict[str, Any]] | None) -> str:
    if samples is None:
        return "decided by the target"
    have = samples["p50"]["samples"]
    short = [_short(SPELLED.get(name, name), row) for name, row in samples.items() if not row["enough"]]
    return f"{have:,}: " + ("; ".join(short) if short else "enough for every percentile up to P99.9")


def _short(name: str, row: dict[str, Any]) -> str:
    """`P99.9 needs 10,000 requests: 20 s more at this rate`."""
    needs = f"{name} needs {row['needs']:,} requests"
    if row["more_s"] is None:
        return f"{needs}: {row['more_requests']:,} more"
    return f"{needs}: {spell(row['more_s'])} more at this rate"


def _exact(workload: dict[str, Any]) -> str:
    exact = workload.get("exact")
    if exact is None or exact["share"] is None:
        return "not counted" if exact is not None else "as written"
    of = "" if exact["checked"] == exact["prompts"] else f" of {exact['prompts']:,}"
    counted = f"{exact['checked']:,}{of} counted"
    return f"{exact['share']:.2%} of prompts have the length that was drawn, to the token ({counted})"


def class_line(one: dict[str, Any]) -> str:
    """`40/s poisson, 1,203 requests, 380,112 input and 190,021 output tokens, model adapter-a`."""
    if not one["requests"]:
        return "no requests in this phase"
    arrivals = one["load"]["arrivals"]
    what = "conversations in " if "conversations" in one else ""
    counted = f"{one['starts']:,} {what}{one['requests']:,} requests" if what else f"{one['requests']:,} requests"
    own = [f"model {one['model']}"] if one["settings"]["model"] is not None else []
    path = one["settings"]["endpoint_path"]
    own += [path] if path is not None else []
    own += [one["endpoint"]] if one["settings"].get("endpoint_type") is not None else []
    own += ["own URL"] if one.get("own_targets") else []
    own += [": ".join(header) for header in one["settings"]["headers"]]
    own += list(user_lines(one.get("behaviour")))
    own += own_classes(one["workload"])
    content = one["workload"]
    parts = [
        f"{arrivals['rate']:g}/s {arrivals['name']}",
        counted,
        f"{content['name']} {content['isl']} -> {content['osl']}",
        f"{one['input_tokens']:,} input and {one['output_tokens']:,} output tokens",
        *own,
    ]
    return ", ".join(parts)


def own_classes(content: dict[str, Any]) -> list[str]:
    """Note on the classes that a class's own workload or data set has: they are not distinguished."""
    named = content.get("classes") or [name for name in content.get("dataset", {}).get("classes", []) if name]
    return [f"its own classes ({', '.join(named)}) not distinguished"] if len(named) > 1 else []


def conversation_lines(found: dict[str, Any] | None) -> list[str]:
    if found is None:
        return []
    mean, think = found["turns_mean"], found["think_time_mean_s"]
    turns = "" if mean is None else f"{mean:.3g} turns on average, at most {found['turns_max']}"
    tools = f", tools in {found['tool_turns']:.0%} of later turns" if "tool_turns" in found else ""
    pause = "" if think is None else f"; {think:.3g} s to think on average ({found['think_time']})"
    return [f"{found['conversations']:,} of {turns}{pause}; history {found['history']}{tools}"]


def user_lines(found: dict[str, Any] | None) -> list[str]:
    if found is None:
        return []
    lines = []
    if found["cancel_after"] is not None:
        lines.append(f"{found['cancelling']:,} leave after {found['cancel_after']}")
    if found["slow_readers"] is not None:
        lines.append(f"{found['reading_slowly']:,} read slowly ({found['slow_readers']})")
    if found["abandon"] is not None:
        lines.append(f"all give up at {found['abandon']}")
    return lines
