"""Did all sides get the same requests, in the same order, at the same instants, under the same rules?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload.compare.side import RunRecord, Side
from fastllmload.errors import RunFolderError
from fastllmload.records.npy import read_array

# Of every body, so the plan's digest differs with them
NAMES_OF_THE_TARGET = ("model", "endpoint", "continuous_usage", "token_ids")
RULES = {  # settings outside the plan that change what is asked or what counts; the plan's digest covers the requests
    "load": ("max_concurrency", "warmup_requests", "warmup_tokens", "warmup_seconds", "ramp_share", "timeout", "grace"),
    "workload": ("counting", "turns", "think_time", "history", "tool_turns"),
    "behaviour": None,
    "client": ("fresh_connections", "timestamps"),
    "output": ("itl_option", "ttft_net_adjusted"),
}  # fmt: skip

INSTANT = "t_sched_ns"
Sequence = Mapping[str, npt.NDArray[Any]]
FINDINGS = ("deviations", "exact", "special_tokens", "tokenizer_facts")  # what followed from the settings, at length


def description(run: RunRecord) -> Mapping[str, Any]:
    """What the plan says of itself, less what names the target."""
    plan = run.document.get("plan") or {}
    found = dict(plan.get("description") or {})
    return {key: value for key, value in found.items() if key not in NAMES_OF_THE_TARGET}


def sequence(run: RunRecord) -> Sequence | None:
    """One record per request in the order of the plan, less its instant; None where the folder has no schedule."""
    try:
        found = read_array(run.folder / "plan" / "schedule.npy")
    except RunFolderError:
        return None
    if found is None:
        return None
    names = [name for name in found.dtype.names or () if name != INSTANT]
    return {name: found[name] for name in names} if "input_tokens" in names else None


def same_plan(a: RunRecord, b: RunRecord) -> bool:
    """Equal digests; or, of targets of different names, equal descriptions, instants and requests."""
    if a.digest is not None and a.digest == b.digest:
        return True
    named_alike = all(_named(a, key) == _named(b, key) for key in NAMES_OF_THE_TARGET)
    if named_alike or description(a) != description(b):
        return False
    hashes = [(run.document.get("plan") or {}).get("schedule_hash") for run in (a, b)]
    one, other = sequence(a), sequence(b)
    if one is None or other is None:
        return hashes[0] == hashes[1] and hashes[0] is not None
    return (
        hashes[0] == hashes[1]
        and len(one["input_tokens"]) == len(other["input_tokens"])
        and _parted(one, other) is None
    )


def _by_class(found: Sequence) -> Iterator[tuple[int, Sequence]]:
    """The requests of each class in their order: how classes mix follows the instants, which repetitions have of their
    own.
    """
    classes = found.get("request_class", np.zeros_like(found["input_tokens"]))
    for number in np.unique(classes):
        yield int(number), {name: column[classes == number] for name, column in found.items()}


def _first_unlike(a: Sequence | None, b: Sequence | None) -> int | None:
    """The same class by class; None also where one is not known."""
    if a is None or b is None:
        return None
    mine, theirs = dict(_by_class(a)), dict(_by_class(b))
    found = [_parted(mine[number], theirs[number]) for number in mine.keys() & theirs.keys()]
    return min((number for number in found if number is not None), default=None)


def _parted(a: Sequence, b: Sequence) -> int | None:
    """Number of the first request that is another; None where both are the same as far as both go."""
    common = min(len(each["input_tokens"]) for each in (a, b))
    unequal = [np.flatnonzero(a[name][:common] != b[name][:common]) for name in a.keys() & b.keys()]
    return min((int(found[0]) for found in unequal if len(found)), default=None)


def _named(run: RunRecord, key: str) -> Any:
    return ((run.document.get("plan") or {}).get("description") or {}).get(key)


def differences(sides: list[Side]) -> list[str]:
    """One sentence for everything in which the workloads differ, rules included; empty when they are the same."""
    found: list[str] = []
    for side in sides[1:]:
        found += [*_unequal(sides[0], side, _rules), *_requests_between(sides[0], side)]
    return list(dict.fromkeys(found))


def unequal_requests(sides: list[Side]) -> list[str]:
    """What breaks "same requests, same order, same seeds" (IETF 6.1); empty when systems were sent the same.

    Repetition k of one system was sent what repetition k of each other was, and the repetitions of one system had the
    same requests as far as both went: only their instants are their own (procedures 0.13).
    """
    found = [told for side in sides[1:] for told in _requests_between(sides[0], side)]
    return list(dict.fromkeys([*found, *(told for side in sides for told in unequal_repetitions(side.runs))]))


def unequal_repetitions(runs: tuple[RunRecord, ...]) -> list[str]:
    """Which of *runs* were not sent the requests of the first, as far as both went."""
    found = []
    for run in runs[1:]:
        pair = f"{runs[0].folder} and {run.folder}"
        seeds = [_named(each, "seed") for each in (runs[0], run)]
        parted = _first_unlike(sequence(runs[0]), sequence(run))
        if seeds[0] != seeds[1]:
            found.append(
                f"{pair} are of seeds {seeds[0]} and {seeds[1]}: repetitions have one --seed, and --repetition"
            )
        elif parted is not None:
            found.append(f"{pair} were sent other requests, from number {parted} on")
    return found


def _requests_between(a: Side, b: Side) -> Iterator[str]:
    """Every run has one on the other side that was sent the same; how often each plan was repeated does not matter."""
    alone = [[x for x in one.runs if not any(same_plan(x, y) for y in other.runs)] for one, other in ((a, b), (b, a))]
    if not any(alone):
        return
    if all(len(found) == len(side.runs) for found, side in zip(alone, (a, b), strict=True)):
        described = list(_unequal(a, b, _described))
        digests = [", ".join(sorted({(run.digest or "none")[:12] for run in side.runs})) for side in (a, b)]
        yield from described or [f"requests: plan {digests[0]} in {a.name}, {digests[1]} in {b.name}"]
        return
    pairs = [*zip(*alone, strict=False)]
    yield from (_pair(x, y) for x, y in pairs)
    for left, other in zip(alone, (b, a), strict=True):
        yield from (f"{run.folder} has no like in {other.name}: {_load(run)}" for run in left[len(pairs) :])


def _pair(x: RunRecord, y: RunRecord) -> str:
    """In what two runs that stand for each other were sent different things."""
    sides = Side(str(x.folder), (x,)), Side(str(y.folder), (y,))
    told = list(_unequal(*sides, _described)) or [f"plan {(x.digest or 'none')[:12]} and {(y.digest or 'none')[:12]}"]
    return f"{x.folder} and {y.folder} were not sent the same: {'; '.join(told)}"


def _load(run: RunRecord) -> str:
    """`arrivals 42/arrivals/2`, `plan 0123456789ab`: what tells a repetition from another."""
    arrivals = (description(run).get("load") or {}).get("arrivals") or {}
    stream = arrivals.get("stream")
    return f"arrivals {stream}" if stream else f"plan {(run.digest or 'none')[:12]}"


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
