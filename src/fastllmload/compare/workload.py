"""Checks that all sides were sent the same requests, in the same order, at the same instants, under the same rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
import numpy as np

from fastllmload.arrays import Values
from fastllmload.compare.foreign.result import load_text
from fastllmload.compare.side import RunRecord, Side
from fastllmload.documents.fields import known
from fastllmload.documents.write import plain
from fastllmload.endpoint import told_apart
from fastllmload.errors import RunFolderError
from fastllmload.records.npy import read_array

# Part of every body, so that the plan's digest depends on them
TARGET_NAMES = ("model", "endpoint", "continuous_usage", "token_ids")
RULES = {  # settings that change what is sent or counted and are not covered by the plan's digest
    "load": (
        "max_concurrency", "max_prefill", "warmup_requests", "warmup_tokens", "warmup_seconds", "ramp_share", "timeout",
        "grace",
    ),
    "workload": ("counting", "turns", "think_time", "history", "tool_turns"),
    "behaviour": None,
    "client": ("fresh_connections", "timestamps"),
    "output": ("itl_option", "ttft_net_adjusted"),
}  # fmt: skip

MOST_APART = 0.05  # of mean lengths that count as equal: other tools count tokens in another way
INSTANT = "t_sched_ns"
Sequence = Mapping[str, Values]
FINDINGS = ("deviations", "exact", "special_tokens", "tokenizer_facts")  # details that follow from the settings


def description(run: RunRecord) -> Mapping[str, Any]:
    """The plan's description without the names of the target."""
    found = told_apart(plain(run.document.plan.description))  # an earlier version wrote texts of protocols
    return {key: value for key, value in found.items() if key not in TARGET_NAMES}


def sequence(run: RunRecord) -> Sequence | None:
    """One record per request in the order of the plan, without its instant; None if the folder has no schedule."""
    try:
        found = read_array(run.folder / "plan" / "schedule.npy")
    except RunFolderError:
        return None
    if found is None:
        return None
    names = [name for name in found.dtype.names or () if name != INSTANT]
    return {name: found[name] for name in names} if "input_tokens" in names else None


def same_plan(a: RunRecord, b: RunRecord) -> bool:
    """Whether digests are equal or, for targets with different names, descriptions, instants and requests are."""
    if a.digest is not None and a.digest == b.digest:
        return True
    named_alike = all(_described_as(a, key) == _described_as(b, key) for key in TARGET_NAMES)
    if named_alike or description(a) != description(b):
        return False
    hashes = [run.document.plan.schedule_hash for run in (a, b)]
    one, other = sequence(a), sequence(b)
    if one is None or other is None:
        return hashes[0] == hashes[1] and hashes[0] is not None
    return (
        hashes[0] == hashes[1]
        and len(one["input_tokens"]) == len(other["input_tokens"])
        and _first_difference(one, other) is None
    )


def _by_class(found: Sequence) -> Iterator[tuple[int, Sequence]]:
    """The requests of each class, in order. The order across classes depends on the instants of a repetition."""
    classes = found.get("request_class", np.zeros_like(found["input_tokens"]))
    for number in np.unique(classes):
        yield int(number), {name: column[classes == number] for name, column in found.items()}


def _first_difference_by_class(a: Sequence | None, b: Sequence | None) -> int | None:
    """Number of the first request of a class that differs; None where all are equal or a sequence is not known."""
    if a is None or b is None:
        return None
    mine, theirs = dict(_by_class(a)), dict(_by_class(b))
    found = [_first_difference(mine[number], theirs[number]) for number in mine.keys() & theirs.keys()]
    return min((number for number in found if number is not None), default=None)


def _first_difference(a: Sequence, b: Sequence) -> int | None:
    """Number of the first request that differs; None where both are equal up to the length of the shorter."""
    common = min(len(each["input_tokens"]) for each in (a, b))
    unequal = [np.flatnonzero(a[name][:common] != b[name][:common]) for name in a.keys() & b.keys()]
    return min((int(found[0]) for found in unequal if len(found)), default=None)


def _described_as(run: RunRecord, key: str) -> Any:
    return told_apart(getattr(run.document.plan.description, key))


def differences(sides: list[Side]) -> list[str]:
    """One sentence per difference between the workloads, including their rules; empty when they are the same."""
    found: list[str] = []
    for side in sides[1:]:
        if sides[0].foreign is not None or side.foreign is not None:
            found += _unequal_facts(sides[0], side)
        else:
            found += [*_unequal(sides[0], side, _rules), *_requests_between(sides[0], side)]
    return list(dict.fromkeys(found))


def _unequal_facts(a: Side, b: Side) -> Iterator[str]:
    """What is known to differ where a side is a result file of another tool: the load, the mean lengths."""
    loads = [{load_of(run) for run in side.runs} - {None} for side in (a, b)]
    if all(loads) and loads[0] != loads[1]:
        yield f"load: {' or '.join(map(str, loads[0]))} in {a.name}, {' or '.join(map(str, loads[1]))} in {b.name}"
    for name in ("input", "output"):
        means = [mean for side in (a, b) if (mean := _mean_tokens(side, name)) is not None]
        if len(means) == 2 and abs(means[1] - means[0]) > MOST_APART * max(means):
            yield f"{name} tokens: {means[0]:,.1f} a request in {a.name}, {means[1]:,.1f} in {b.name}"


def load_of(run: RunRecord) -> str | None:
    """`10 requests/s`, `8 in flight`; None where it is not known, or not constant."""
    if run.foreign is not None:
        return run.foreign.load
    load, capped = run.document.plan.description.load, run.document.config.load.max_concurrency
    if load.concurrency_curve is not None or run.document.plan.description.slots_change:
        return None
    if load.arrivals is None:
        return load_text(None, load.concurrency)
    rate, slots = load.arrivals.rate, sum(run.document.plan.description.closed_classes.values())
    if rate is None or load.arrivals.curve is not None:
        return None
    return load_text(rate, capped) + (f" + {load_text(None, slots)}" if slots else "")


def _mean_tokens(side: Side, name: str) -> float | None:
    totals = [known(getattr(run.document, f"total_{name}_tokens")) for run in side.runs]
    done = [known(run.document.completed) for run in side.runs]
    if None in totals or None in done or not sum(filter(None, done)):
        return None
    return sum(filter(None, totals)) / sum(filter(None, done))


def unequal_requests(sides: list[Side]) -> list[str]:
    """Violations of "same requests, same order, same seeds" (IETF 6.1); empty when systems were sent the same.

    Repetition k of each system must have been sent the same. Repetitions of one system must have the same requests, up to
    the length of the shorter, and may differ in their instants (spec/procedures 0.13).
    """
    found = [text for side in sides[1:] for text in _requests_between(sides[0], side)]
    return list(dict.fromkeys([*found, *(text for side in sides for text in unequal_repetitions(side.runs))]))


def unequal_repetitions(runs: tuple[RunRecord, ...]) -> list[str]:
    """A sentence for each of *runs* that was sent other requests than the first, up to the length of the shorter."""
    found = []
    for run in runs[1:]:
        pair = f"{runs[0].folder} and {run.folder}"
        seeds = [_described_as(each, "seed") for each in (runs[0], run)]
        differing = _first_difference_by_class(sequence(runs[0]), sequence(run))
        if seeds[0] != seeds[1]:
            found.append(
                f"{pair} have seeds {seeds[0]} and {seeds[1]}: give repetitions the same --seed, and --repetition"
            )
        elif differing is not None:
            found.append(f"{pair} were sent different requests, from number {differing} on")
    return found


def _requests_between(a: Side, b: Side) -> Iterator[str]:
    """Differences in requests: each run needs one with the same plan on the other side, however often it is repeated."""
    unmatched = [
        [x for x in one.runs if not any(same_plan(x, y) for y in other.runs)] for one, other in ((a, b), (b, a))
    ]
    if not any(unmatched):
        return
    if all(len(found) == len(side.runs) for found, side in zip(unmatched, (a, b), strict=True)):
        described = list(_unequal(a, b, _described))
        digests = [", ".join(sorted({(run.digest or "none")[:12] for run in side.runs})) for side in (a, b)]
        yield from described or [f"requests: plan {digests[0]} in {a.name}, {digests[1]} in {b.name}"]
        return
    pairs = [*zip(*unmatched, strict=False)]
    yield from (_pair(x, y) for x, y in pairs)
    for left, other in zip(unmatched, (b, a), strict=True):
        yield from (f"{run.folder} has no counterpart in {other.name}: {_load(run)}" for run in left[len(pairs) :])


def _pair(x: RunRecord, y: RunRecord) -> str:
    """Sentence on the differences between the requests of two corresponding runs."""
    sides = Side(str(x.folder), (x,)), Side(str(y.folder), (y,))
    unequal = list(_unequal(*sides, _described)) or [
        f"plan {(x.digest or 'none')[:12]} and {(y.digest or 'none')[:12]}"
    ]
    return f"{x.folder} and {y.folder} were not sent the same: {'; '.join(unequal)}"


def _load(run: RunRecord) -> str:
    """`arrivals 42/arrivals/2` or `plan 0123456789ab`: what identifies a repetition."""
    arrivals = run.document.plan.description.load.arrivals
    stream = None if arrivals is None else arrivals.stream
    return f"arrivals {stream}" if stream else f"plan {(run.digest or 'none')[:12]}"


def _unequal(a: Side, b: Side, entries: Callable[[RunRecord], Mapping[str, Any]]) -> Iterator[str]:
    """A sentence for each entry, by name, whose values differ between the sides."""
    known = {run.folder: entries(run) for run in (*a.runs, *b.runs)}
    for key in sorted({key for found in known.values() for key in found}):
        left, right = ({repr(known[run.folder].get(key)) for run in side.runs} for side in (a, b))
        if left != right:
            yield f"{key}: {_either(left)} in {a.name}, {_either(right)} in {b.name}"


def _rules(run: RunRecord) -> dict[str, Any]:
    config = run.document.config
    return {
        f"{section}.{key}": value
        for section, keys in RULES.items()
        for key, value in msgspec.structs.asdict(getattr(config, section)).items()
        if keys is None or key in keys
    }


def _described(run: RunRecord) -> dict[str, Any]:
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
