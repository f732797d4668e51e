"""Did all sides get the same requests, in the same order, at the same instants, under the same rules?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fastllmload.compare.side import RunRecord, Side

NAMES_OF_THE_TARGET = ("model", "endpoint")  # stand in every body, so the plan's digest differs with them
RULES = {  # settings outside the plan that change what is asked or what counts; the plan's digest covers the requests
    "load": ("max_concurrency", "warmup_requests", "warmup_tokens", "warmup_seconds", "ramp_share", "timeout", "grace"),
    "workload": ("counting", "turns", "think_time", "history", "tool_turns"),
    "behaviour": None,
    "client": ("fresh_connections", "timestamps"),
    "output": ("itl_option", "ttft_net_adjusted"),
}  # fmt: skip


FINDINGS = ("deviations", "exact", "special_tokens", "tokenizer_facts")  # what followed from the settings, at length


def description(run: RunRecord) -> Mapping[str, Any]:
    """What the plan says of itself, less what names the target."""
    plan = run.document.get("plan") or {}
    found = dict(plan.get("description") or {})
    return {key: value for key, value in found.items() if key not in NAMES_OF_THE_TARGET}


def identity(run: RunRecord) -> str:
    """What is equal for runs that send the same requests to targets of different names: the hash of the schedule."""
    plan = run.document.get("plan") or {}
    return str(plan.get("schedule_hash") or plan.get("digest"))


def same_plan(a: RunRecord, b: RunRecord) -> bool:
    """Equal digests; or equal schedules and descriptions to targets of different names."""
    if a.digest is not None and a.digest == b.digest:
        return True
    named_alike = all(_named(a, key) == _named(b, key) for key in NAMES_OF_THE_TARGET)
    return not named_alike and identity(a) == identity(b) and description(a) == description(b)


def _named(run: RunRecord, key: str) -> Any:
    return ((run.document.get("plan") or {}).get("description") or {}).get(key)


def differences(sides: list[Side]) -> list[str]:
    """One sentence for everything in which the workloads differ; empty when they are the same."""
    found: list[str] = []
    for side in sides[1:]:
        found += dict.fromkeys(_between(sides[0], side))
    return list(dict.fromkeys(found))


def _between(a: Side, b: Side) -> Iterator[str]:
    yield from _unequal(a, b, _rules)
    if not _plans_match(a, b):
        described = list(_unequal(a, b, _described))
        digests = [", ".join(sorted({(run.digest or "none")[:12] for run in side.runs})) for side in (a, b)]
        yield from described or [f"requests: plan {digests[0]} in {a.name}, {digests[1]} in {b.name}"]


def _plans_match(a: Side, b: Side) -> bool:
    """Every run has one on the other side that was sent the same; how often each plan was repeated does not matter."""
    return all(any(same_plan(x, y) for y in b.runs) for x in a.runs) and all(
        any(same_plan(x, y) for x in a.runs) for y in b.runs
    )


def _unequal(a: Side, b: Side, entries: Callable[[RunRecord], Mapping[str, Any]]) -> Iterator[str]:
    """Entries by name, where the values on one side are not those on the other."""
    known = {run.folder: entries(run) for run in (*a.runs, *b.runs)}
    for key in sorted({key for found in known.values() for key in found}):
        left, right = ({repr(known[run.folder].get(key)) for run in side.runs} for side in (a, b))
        if left != right:
            yield f"{key}: {_either(left)} in {a.name}, {_either(right)} in {b.name}"


def _rules(run: RunRecord) -> dict[str, Any]:
    config = run.document.get("config") or {}
    return {
        f"{section}.{key}": value
        for section, keys in RULES.items()
        for key, value in (config.get(section) or {}).items()
        if keys is None or key in keys
    }


def _described(run: RunRecord) -> dict[str, Any]:
    """What the plan says of itself, flat."""
    return dict(_flat(description(run), ""))


def _flat(found: Mapping[str, Any], before: str) -> Iterator[tuple[str, Any]]:
    for key, value in found.items():
        if before and key in FINDINGS:
            continue
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


def _either(values: set[str]) -> str:
    return " or ".join(sorted(values))
