"""Format classes, conversations and user behavior of a plan as lines for a terminal."""

from __future__ import annotations

from typing import Any


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
