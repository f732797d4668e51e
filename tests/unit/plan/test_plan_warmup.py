"""Plans of the warm-up: the methodology's amounts, the user's, none, and prompts that are not the measured
ones.
"""

import json
import math

import pytest
from support.plan_builder import asked, build

from fastllmload.errors import InputError

pytestmark = pytest.mark.slow


def warm(directory, **changes):
    return build(directory, asked(**changes), phase="warmup")


@pytest.mark.parametrize("osl", ["uniform:64,256", "7", "300"])
def test_methodology(tmp_path, osl):
    """At least 100 requests and at least 10,000 output tokens, both, and not one request more."""
    plan = warm(tmp_path, rate=200.0, workload__osl=osl)
    tokens = plan.output_tokens.sum()
    assert plan.requests >= 100
    assert tokens >= 10_000
    assert plan.requests == 100 or tokens - plan.output_tokens[-1] < 10_000


@pytest.mark.parametrize(
    ("change", "requests"),
    [
        ({"load__warmup_requests": 12}, 12),
        ({"load__warmup_requests": 12, "load__warmup_tokens": 0}, 12),
        ({"load__warmup_tokens": 500}, 50),
        ({"load__warmup_requests": 70, "load__warmup_tokens": 500}, 70),
        ({"load__warmup_requests": 20, "load__warmup_tokens": 500}, 50),
        ({"load__warmup_seconds": 3.0}, 60),
        ({"load__warmup_seconds": 3.0, "load__warmup_requests": 61}, 61),
        ({"load__warmup_requests": 0}, 0),
        ({"load__warmup_tokens": 0}, 0),
        ({"load__warmup_seconds": 0.0}, 0),
    ],
)
def test_amounts_of_the_user(tmp_path, change, requests):
    """Any option replaces the methodology's amounts completely; only zeros mean none. 20/s, 10 tokens each."""
    plan = warm(tmp_path, load__arrival="constant", workload__osl="10", **change)
    assert plan.requests == requests
    assert len(plan.t_sched) == requests
    assert len(plan.bodies) == plan.body_offset[-1]
    plan.verify()


def test_same_rate_other_stream(tmp_path):
    """The warm-up goes at the target rate, by a schedule of its own, and is bounded by its count."""
    plan, measured = warm(tmp_path / "w", load__warmup_requests=4000), build(tmp_path / "m")
    assert plan.t_sched[-1] / 1e9 == pytest.approx(4000 / 20.0, rel=0.06)
    assert plan.t_sched[0] != measured.t_sched[0]
    assert plan.description.load.arrivals.stream == "42/warmup/arrivals"
    assert plan.duration_s is None


def test_no_prompt_is_measured_later(tmp_path):
    """No prompt of the warm-up starts like a measured one, shared prefixes included."""
    change = {"rate": 100.0, "workload__prefix_len": 6, "workload__num_prefixes": 4}
    starts = []
    for name, phase in (("w", "warmup"), ("m", "measure")):
        plan = build(tmp_path / name, asked(**change), phase=phase)
        prompts = [json.loads(plan.body(i))["prompt"] for i in range(plan.requests)]
        starts.append({tuple(prompt.split()[:3]) for prompt in prompts})
    assert starts[0]
    assert not starts[0] & starts[1]


def test_closed_loop(tmp_path):
    """A closed loop warms up at its own concurrency; seconds alone make it a pool; `inf` warms up with 8 in
    flight.
    """
    closed = {"rate": None, "load__concurrency": 5}
    plan = warm(tmp_path, **closed)
    assert (plan.t_sched, plan.concurrency, plan.cycles, plan.requests) == (None, 5, False, 100)
    plan = warm(tmp_path, **closed, load__warmup_seconds=2.0)
    assert (plan.concurrency, plan.cycles, plan.duration_s) == (5, True, 2.0)
    plan = warm(tmp_path, rate=math.inf, duration=None, load__num_requests=9)
    assert (plan.t_sched, plan.concurrency, plan.requests) == (None, 8, 100)


@pytest.mark.parametrize(
    "change",
    [
        {"load__warmup_requests": -1},
        {"load__warmup_tokens": -1},
        {"load__warmup_seconds": math.inf},
    ],
)
def test_refusals(tmp_path, change):
    """Negative or endless warm-ups are refused."""
    with pytest.raises(InputError):
        warm(tmp_path, **change)


@pytest.mark.parametrize(
    ("rate", "bound", "requests"),
    [
        (0.05, {"duration": 600.0}, 30),
        (0.05, {"duration": None, "load__num_requests": 2}, 3),
        (0.5, {"duration": 5.0}, 30),
        (0.01, {"duration": 30.0, "load__num_requests": 1}, 1),
        (1.0, {"duration": 300.0}, 100),
        (50.0, {"duration": 1.0}, 100),
    ],
)
def test_the_default_warmup_lasts_no_longer_than_the_run(tmp_path, rate, bound, requests):
    """Nor for longer than a minute where the run is shorter; what the user asks for is never cut."""
    assert warm(tmp_path / "cut", rate=rate, workload__osl="200", **bound).requests == requests
    assert warm(tmp_path / "whole", rate=rate, workload__osl="200", load__warmup_requests=40, **bound).requests == 40
