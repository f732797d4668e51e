"""Sizes a run: requests in flight, workers, connections. Rules: docs/running.md."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastllmload.arrivals.curve import described_curve
from fastllmload.certificate.ceiling import Ceiling
from fastllmload.documents.fields import known
from fastllmload.engine.preflight.check import Preflight
from fastllmload.engine.preflight.probe import PROBE_TOKENS
from fastllmload.engine.workers.routing import target_connections
from fastllmload.errors import HostLimitError
from fastllmload.host.limits import FileLimit, TargetConnections, check_capacity
from fastllmload.plan.plan import Plan
from fastllmload.settings import Client, RunSettings

UNCALIBRATED = Ceiling(events_per_s=40_000.0, requests_per_s=5_000.0)
COMFORT = 0.5  # fraction of the ceiling that one worker is planned for
OVERHEAD_EVENTS = 3.0  # role, finish, usage
MOST_AHEAD = 4_096  # connections opened before time zero; the rest follow ahead of the schedule
SLACK = 16
DOES_NOT_FIT = "this host cannot carry the run"


@dataclass(frozen=True)
class Demand:
    """*rate*: requests/s, inf for all at once. *in_flight*: Little's law at the probe's speed, so a lower bound."""

    rate: float
    events_per_s: float
    in_flight: int


@dataclass(frozen=True)
class HostLimits:
    """Limits of another host. *ports*: of one source address."""

    name: str
    files: FileLimit
    ports: int


def part_of(wanted: Demand, share: float) -> Demand:
    """What a host gets that runs *share* of the workers."""
    return Demand(wanted.rate * share, wanted.events_per_s * share, math.ceil(wanted.in_flight * share))


def demand(plan: Plan, answer_s: float | None, *, timeout_s: float, streaming: bool, cap: int | None) -> Demand:
    """*answer_s*: duration of the probe's PROBE_TOKENS tokens, None without an answer. *cap*: most in flight, open loop. Of
    a mix, the sum of its open loops and of each closed one.
    """

    def cost(output_tokens: npt.NDArray[np.int32]) -> tuple[float, float]:
        """Expected seconds and events of a request."""
        tokens = float(output_tokens.mean()) if len(output_tokens) else 0.0
        e2e_s = min(timeout_s, max(answer_s or 0.0, tokens * (answer_s or 0.0) / PROBE_TOKENS))
        return e2e_s, tokens + OVERHEAD_EVENTS if streaming else 1.0

    parts = []
    for closed, many in slots_by_class(plan):
        e2e_s, events = cost(plan.output_tokens[closed])
        rate = many / max(e2e_s, 1e-3)
        parts.append(Demand(rate, rate * events, many))
    if plan.t_sched is not None:
        e2e_s, events = cost(plan.output_tokens[: plan.open_requests])
        rate = planned_rate(plan) * requests_per_start(plan)
        if math.isinf(rate):
            return Demand(rate, math.inf, capped(cap, plan.requests))
        in_flight = min(plan.open_requests, max(1, math.ceil(rate * e2e_s)))
        parts.append(Demand(rate, rate * events, capped(cap, in_flight)))
    return Demand(
        rate=sum(one.rate for one in parts),
        events_per_s=sum(one.events_per_s for one in parts),
        in_flight=sum(one.in_flight for one in parts),
    )


def slots_by_class(plan: Plan) -> list[tuple[npt.NDArray[np.bool_] | slice, int]]:
    """Which requests are those of a closed loop, and its slots: one of all, or each one of a mix; [] in an open loop."""
    if plan.closed_classes:
        return [(plan.request_class == number, many) for number, many in plan.closed_classes.items()]
    return [] if plan.concurrency is None else [(slice(None), slots(plan))]


def slots(plan: Plan) -> int:
    """Slots of a closed loop: at most one per request to send, unless the plan repeats."""
    assert plan.concurrency is not None
    return plan.concurrency if plan.cycles else min(plan.concurrency, len(plan.starts))


def capped(cap: int | None, in_flight: int) -> int:
    return in_flight if cap is None else min(in_flight, cap)


def most_at_work(plan: Plan, cap: int | None, waiting: int | None = None) -> int:
    """Workers: more would have nothing to do, or exceed *cap* or *waiting* (--max-prefill), as each has a part of it."""
    most = slots(plan) if plan.concurrency is not None else capped(cap, len(plan.open_starts)) + slots_of_mix(plan)
    return capped(waiting, most)


def slots_of_mix(plan: Plan) -> int:
    """Slots of the classes that are closed loops next to open ones."""
    return 0 if plan.concurrency is not None else sum(plan.closed_classes.values())


def requests_per_start(plan: Plan) -> float:
    """Mean number of requests per arrival: the turns of a conversation."""
    return plan.open_requests / len(plan.open_starts) if plan.turns is not None and plan.open_requests else 1.0


def planned_rate(plan: Plan) -> float:
    """Requests per second of an open loop's plan, the highest where it changes; inf when all go at once."""
    arrivals = plan.description.load.arrivals
    assert arrivals is not None and plan.t_sched is not None
    if arrivals.rate == "inf":
        return math.inf
    if arrivals.name in ("trace", "classes"):
        return float(np.bincount(np.asarray(plan.t_start) // 1_000_000_000).max())  # requests of the busiest second
    if arrivals.curve is not None:
        return described_curve(arrivals.curve).peak
    rate, on_s, off_s = float(arrivals.rate or 0.0), known(arrivals.on_s), known(arrivals.off_s)
    return rate if on_s is None or off_s is None else rate * (on_s + off_s) / on_s


def worker_count(
    client: Client,
    plan: Plan,
    wanted: Demand,
    ceiling: Ceiling | None,
    cores: int,
    simulated: bool,
    *,
    cap: int | None = None,
    waiting: int | None = None,
) -> int:
    """As configured, or as many as the demand needs at COMFORT; at most as cores, slots, requests, *cap* or *waiting*."""
    in_flight = most_at_work(plan, cap, waiting)
    if client.workers is not None:
        return max(1, min(client.workers, in_flight))
    if client.pin:
        return max(1, min(len(client.pin), in_flight))
    most = max(1, cores - 1 if simulated else cores)
    if math.isinf(wanted.rate):
        return max(1, min(most, in_flight))
    one = UNCALIBRATED if ceiling is None else ceiling
    load = wanted.events_per_s / one.events_per_s + wanted.rate / one.requests_per_s
    return max(1, min(most, in_flight, math.ceil(load / COMFORT)))


def workers_by_host(
    client: Client,
    plan: Plan,
    wanted: Demand,
    ceiling: Ceiling | None,
    cores: Sequence[int],
    *,
    cap: int | None = None,
    waiting: int | None = None,
) -> list[int]:
    """Workers on each of several hosts, by their *cores*: as configured, which counts those of one host, or the same on
    each, together as many as the demand needs. There are at most as many hosts as requests in flight.
    """
    configured = client.workers is not None or bool(client.pin)
    together = worker_count(client, plan, wanted, ceiling, sum(cores), simulated=False, cap=cap, waiting=waiting)
    each = together if configured else math.ceil(together / len(cores))
    each = max(1, min(each, most_at_work(plan, cap, waiting) // len(cores)))
    return [each if configured else min(each, most) for most in cores]


def initial_connections(plan: Plan, wanted: Demand, workers: int, cap: int | None) -> int:
    """Connections that one worker opens before time zero: slots of closed loops, and what Little's law expects of others."""
    if plan.concurrency is not None:
        return math.ceil(slots(plan) / workers)
    own = slots_of_mix(plan)
    expected = math.ceil(min(wanted.in_flight - own, plan.open_requests) / workers)
    return min(MOST_AHEAD, expected + (0 if cap is not None else SLACK)) + math.ceil(own / workers)


def check_slots_fit_files(settings: RunSettings, cores: int) -> None:
    """HostLimitError, before a plan is built, for closed loops that no number of workers could keep open."""
    load, client = settings.load, settings.client
    slots = load.concurrency or sum(one.load.concurrency or 0 for one in settings.classes)
    if not slots or load.num_requests is not None:
        return
    workers = client.workers or max(cores, len(client.pin))
    problems = check_capacity([TargetConnections("", slots, ports=False)], 1, workers=workers)
    if problems:
        raise HostLimitError("load-exceeds-host", f"{DOES_NOT_FIT}: " + "; ".join(problems))


def check_run_fits_host(
    plan: Plan,
    wanted: Demand,
    workers: int,
    found: Preflight,
    *,
    timeout_s: float,
    sources: int,
    fresh: bool,
    host: HostLimits | None = None,
) -> None:
    """HostLimitError, instead of failed connections during the run. *sources*: number of --source-address; *fresh*: a
    connection for each request. *host*: another one than this; *wanted* and *workers* are then its own.
    """
    churn = wanted.rate if fresh and not math.isinf(wanted.rate) else 0.0
    seconds = answer_seconds(plan, found.answer_s, timeout_s)
    each = target_connections(plan, found.targets, found.routes, seconds, wanted.in_flight, churn)
    ports = None if host is None else host.ports * max(1, sources)
    limit = None if host is None else host.files
    problems = check_capacity(
        each, max(1, sources), workers=workers, seconds=phase_seconds(plan), limit=limit, ports=ports
    )
    if problems:
        name = DOES_NOT_FIT if host is None else f"{host.name} cannot carry its part of the run"
        raise HostLimitError("load-exceeds-host", f"{name}: " + "; ".join(problems))


def answer_seconds(plan: Plan, answer_s: float | None, most: float) -> npt.NDArray[np.float64]:
    """Expected duration of each request at the probe's speed, as in `demand`; 1 when the probe got no answer."""
    if not answer_s:
        return np.ones(plan.requests)
    found: npt.NDArray[np.float64] = np.asarray(plan.output_tokens).astype(np.float64)
    return np.clip(found * (answer_s / PROBE_TOKENS), min(answer_s, most), most)


def phase_seconds(plan: Plan) -> float | None:
    if plan.duration_s is not None:
        return plan.duration_s
    return None if plan.t_sched is None else float(np.max(plan.t_sched, initial=0)) / 1e9
