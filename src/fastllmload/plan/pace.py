"""Pace of one phase: arrivals (drawn from a seed or not) or concurrency, and how many requests the plan needs."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from dataclasses import replace as replace_pace

from msgspec.structs import replace

from fastllmload.arrivals.choice import choose_arrivals, choose_varying
from fastllmload.arrivals.curve import mean_rate, read_curve
from fastllmload.arrivals.process import ArrivalProcess, GrowingSchedule, Recorded, Schedule
from fastllmload.documents.plan import LoadDescription
from fastllmload.errors import InputError
from fastllmload.settings import Load
from fastllmload.workload.synthetic import Quota

WARMUP_REQUESTS, WARMUP_TOKENS = 100, 10_000  # IETF 4.5.1: both are required
WARMUP_LEAST_S = 60.0  # the default warm-up may be longer than the measured phase up to this (docs/running.md)
WARMUP_CONCURRENCY = 8  # if the load has no rate
# A closed loop that only time ends takes its requests from a pool, and starts again when the pool is used up. With 20
# requests per slot a prompt does not recur soon; the tokens bound the pool to about 250 MiB of bodies.
POOL_REQUESTS, POOL_ROUNDS, POOL_INPUT_TOKENS = 2_000, 20, 32_000_000
LONGEST_S = 1e8
SHORTEST_S = 1e-3  # of a trace that does not send everything at once
MOST_REQUESTS = 1_000_000_000  # about a terabyte of bodies; rows number them with 32 bits


@dataclass(frozen=True)
class Pace:
    """Open loop (*arrivals* at *rate*) or closed loop (*concurrency*); *seconds* is None for a count-bounded phase."""

    quota: Quota
    arrivals: ArrivalProcess | None = None
    rate: float | None = None
    concurrency: int | None = None
    changes: str | None = None  # of the slots of a closed loop, as written
    seconds: float | None = None
    cycles: bool = False
    seed: str = ""
    drawn: GrowingSchedule | None = None  # what has been drawn of the schedule; None in a closed loop

    def schedule(self, requests: int) -> Schedule | None:
        """The first *requests* instants; None in a closed loop."""
        return None if self.drawn is None else self.drawn.part(count=requests)

    def describe(self) -> LoadDescription:
        rate = "inf" if self.rate is not None and math.isinf(self.rate) else self.rate
        arrivals = None
        if self.arrivals is not None:
            arrivals = replace(self.arrivals.parameters(), name=self.arrivals.name, rate=rate, stream=self.seed)
        return LoadDescription(
            loop="closed" if self.arrivals is None else "open",
            arrivals=arrivals,
            concurrency=self.concurrency,
            concurrency_changes=self.changes,
            concurrency_curve=None if self.changes is None else read_curve(self.changes, self.seconds).describe(),
            duration_s=self.seconds,
            cycles=self.cycles,
        )


def recorded_pace(load: Load, recorded: Recorded, requests: int, loop: bool, seed: str) -> Pace:
    """The instants of a trace of *requests*; `--num-requests` and `--duration` cut it, or repeat it up to them if *loop*."""
    seconds, count = load.duration, load.num_requests
    _check_sizes(load)
    if not loop:
        count = requests if count is None else min(count, requests)
    drawn = GrowingSchedule(recorded, 1.0, random.Random(seed))
    schedule = drawn.part(count=count, seconds=seconds)
    if not len(schedule):
        raise InputError("schedule-empty", f"--duration {seconds:g} s ends before the first request of the trace")
    span = seconds if seconds is not None else float(schedule[-1]) / 1e9
    rate = len(schedule) / span if span > SHORTEST_S else math.inf
    return Pace(Quota(len(schedule)), recorded, rate, seconds=seconds, seed=seed, drawn=drawn)


def measured_pace(load: Load, seed: str, drawn: GrowingSchedule | None = None) -> Pace:
    """The pace of the measured phase. *drawn*: its schedule. InputError for a load without requests, or with too many."""
    _check_sizes(load)
    if load.concurrency is not None:
        return replace_pace(_closed(load.concurrency, load.num_requests, load.duration), changes=load.concurrency_curve)
    assert load.rate is not None
    arrivals = measured_arrivals(load)
    count = load.num_requests
    drawn = GrowingSchedule(arrivals, load.rate, random.Random(seed)) if drawn is None else drawn
    if load.duration is not None:
        count = len(drawn.part(count=count, seconds=load.duration))
    if not count:
        raise InputError(
            "schedule-empty",
            f"--rate {load.rate:g} for --duration {load.duration:g} s contains no request;"
            " run longer or use --num-requests",
        )
    return Pace(Quota(count), arrivals, load.rate, seconds=load.duration, seed=seed, drawn=drawn)


def measured_arrivals(load: Load) -> ArrivalProcess:
    """The process of the measured phase, which follows a rate curve; a warm-up has its mean rate."""
    assert load.rate is not None
    if load.rate_curve is None:
        return choose_arrivals(load.arrival, load.rate, load.burstiness)
    return choose_varying(load.arrival, read_curve(load.rate_curve, load.duration), load.rate_curve, load.burstiness)


def warmup_pace(load: Load, seed: str, share: float = 1.0, token_share: float | None = None) -> Pace:
    """The pace of the warm-up: at the target load, until enough requests and output tokens are planned.

    `--rate inf` and a trace with its own instants warm up in a closed loop, one whose slots change with their mean
    number. *share* scales requests, *token_share* tokens (None: as requests; 0: answers are not tokens, so that
    WARMUP_REQUESTS replace their number). The default warm-up lasts no longer than the measured phase (or WARMUP_LEAST_S).
    """
    requests, tokens = load.warmup_requests or 0, load.warmup_tokens or 0
    seconds = load.warmup_seconds or 0.0
    most_requests: int | None = None
    if load.default_warmup:
        requests, tokens, most_requests = WARMUP_REQUESTS, WARMUP_TOKENS, _most_of_default(load)
    token_share = share if token_share is None else token_share
    if tokens and not token_share:
        requests = requests or WARMUP_REQUESTS
    requests, tokens = math.ceil(requests * share), math.ceil(tokens * token_share)
    if min(requests, tokens, seconds) < 0 or not seconds <= LONGEST_S:
        raise InputError("value-out-of-range", "--warmup must be 0 (none) or more requests, tokens or seconds")
    if load.rate is None or math.isinf(load.rate):
        slots = load.concurrency if load.concurrency is not None else WARMUP_CONCURRENCY
        if load.concurrency_curve is not None and load.duration is not None:
            slots = max(1, round(mean_rate(read_curve(load.concurrency_curve, load.duration), load.duration)))
        return _closed_warmup(slots, requests, tokens, seconds)
    arrivals = choose_arrivals(load.arrival, load.rate, load.burstiness)
    drawn = GrowingSchedule(arrivals, load.rate, random.Random(seed))
    if seconds:
        requests = max(requests, len(drawn.part(seconds=seconds)))
    return Pace(Quota(requests, tokens, at_most=most_requests), arrivals, load.rate, seed=seed, drawn=drawn)


def _most_of_default(load: Load) -> int | None:
    """Requests that the default warm-up may have at a slow rate; None where no rate is known."""
    if load.rate is None or math.isinf(load.rate):
        return None
    length = load.duration if load.duration is not None else (load.num_requests or 0) / load.rate
    return max(1, int(load.rate * max(WARMUP_LEAST_S, length)))


def _closed_warmup(slots: int, requests: int, tokens: int, seconds: float) -> Pace:
    """Bounded by time only if just seconds were set: the number of requests in a time is unknown in a closed loop."""
    if seconds and not (requests or tokens):
        return _closed(slots, None, seconds)
    return Pace(Quota(requests, tokens), concurrency=slots)


def _closed(slots: int, requests: int | None, seconds: float | None) -> Pace:
    if requests is not None:
        return Pace(Quota(requests), concurrency=slots, seconds=seconds)
    pool = Quota(max(POOL_REQUESTS, POOL_ROUNDS * slots), input_tokens=POOL_INPUT_TOKENS, at_least=slots)
    return Pace(pool, concurrency=slots, seconds=seconds, cycles=True)


def _check_sizes(load: Load) -> None:
    if load.concurrency is not None and load.concurrency < 1:
        raise InputError("value-out-of-range", f"--concurrency {load.concurrency} must be 1 or more")
    if load.num_requests is not None and load.num_requests < 1:
        raise InputError("value-out-of-range", f"--num-requests {load.num_requests} must be 1 or more")
    if load.duration is not None and not 0 < load.duration <= LONGEST_S:
        raise InputError(
            "value-out-of-range", f"--duration {load.duration:g} must be above 0 and at most {LONGEST_S:g} seconds"
        )
    if load.num_requests is not None and load.num_requests > MOST_REQUESTS and load.duration is None:
        raise InputError(
            "plan-too-large", f"--num-requests {load.num_requests:,} is more than one plan holds ({MOST_REQUESTS:,})"
        )
    if load.duration is not None and load.rate is not None and math.isfinite(load.rate):
        expected = min(load.rate * load.duration, load.num_requests or math.inf)
        if expected > MOST_REQUESTS:
            raise InputError(
                "plan-too-large",
                f"--rate {load.rate:g} for --duration {load.duration:g} s is {expected:.3g} requests, more than one plan "
                f"holds ({MOST_REQUESTS:,}); run shorter",
            )


FIXED = ("constant", "trace")  # arrivals that do not depend on a seed
