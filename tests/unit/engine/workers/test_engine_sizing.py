"""Workers, connections and rejected runs by load; the expected figures are computed by hand."""

import math
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from refusals import raises_code

from fastllmload.certificate.ceiling import Ceiling
from fastllmload.engine.preflight.check import Preflight
from fastllmload.engine.workers import sizing
from fastllmload.engine.workers.sizing import Demand, demand, initial_connections, worker_count
from fastllmload.engine.workers.spec import TargetSpec
from fastllmload.host import limits
from fastllmload.settings import Client, Load, RunSettings, TrafficClass, Workload


def asked(**fields):
    client = {name: fields.pop(name) for name in ("workers", "pin", "fresh_connections") if name in fields}
    streaming = fields.pop("streaming", True)
    return RunSettings(load=Load(**fields), client=Client(**client), workload=Workload(streaming=streaming))


def planned(rate=None, requests=1000, tokens=100, concurrency=None, seconds=None, talks=None, cycles=False):
    """*talks*: number of conversations that share the requests."""
    arrivals = None if rate is None else {"name": "poisson", "rate": "inf" if math.isinf(rate) else rate}
    return SimpleNamespace(
        requests=requests, output_tokens=np.full(requests, tokens, np.int32), concurrency=concurrency, duration_s=seconds,
        description={"load": {"arrivals": arrivals}}, t_sched=None if rate is None else np.arange(requests) * 1_000_000,
        cycles=cycles, turns=None if talks is None else object(), starts=np.arange(requests if talks is None else talks),
    )  # fmt: skip


def test_littles_law_with_the_probes_speed():
    """4 tokens took 0.1 s, so 100 take 2.5 s; at 40/s that is 100 in flight."""
    found = demand(asked(rate=40.0), planned(rate=40.0), answer_s=0.1)
    assert (found.rate, found.in_flight) == (40.0, 100)
    assert found.events_per_s == pytest.approx(40 * 103)


def test_conversations_are_sized_by_their_turns():
    """10 conversations/s of 4 turns are 40 requests/s."""
    found = demand(asked(rate=10.0), planned(rate=10.0, talks=250), answer_s=0.1)
    assert (found.rate, found.in_flight) == (40.0, 100)


def test_time_out_cap_and_plan_limit_requests_in_flight():
    assert demand(asked(rate=40.0, timeout=1.0), planned(rate=40.0), 0.1).in_flight == 40
    assert demand(asked(rate=40.0, max_concurrency=7), planned(rate=40.0), 0.1).in_flight == 7
    assert demand(asked(rate=40.0), planned(rate=40.0, requests=3), 0.1).in_flight == 3
    assert demand(asked(rate=40.0), planned(rate=40.0), None).in_flight == 1
    assert demand(asked(rate=math.inf), planned(rate=math.inf), 0.1) == Demand(math.inf, math.inf, 1000)


def test_a_closed_loop_has_its_slots_in_flight():
    found = demand(asked(concurrency=50), planned(concurrency=50), answer_s=0.1)
    assert (found.in_flight, found.rate) == (50, pytest.approx(20.0))


def test_a_closed_loop_has_no_more_slots_than_requests():
    """Unless the plan repeats: then all slots are used."""
    asked_for = asked(concurrency=10**6)
    for cycles, used in ((False, 10), (True, 10**6)):
        plan = planned(concurrency=10**6, requests=10, cycles=cycles)
        wanted = demand(asked_for, plan, answer_s=0.1)
        assert (wanted.in_flight, initial_connections(asked_for, plan, wanted, 2)) == (used, used // 2)


def test_answers_without_streaming_are_one_event_each():
    assert demand(asked(rate=40.0, streaming=False), planned(rate=40.0), 0.1).events_per_s == 40.0


@pytest.mark.parametrize(
    ("rate", "events", "ceiling", "cores", "simulated", "workers"),
    [
        (10.0, 1_000.0, None, 8, False, 1),  # 0.027 of a worker
        (500.0, 82_000.0, None, 8, False, 5),  # (2.05 + 0.1) / 0.5 = 4.3
        (500.0, 82_000.0, None, 2, True, 1),  # the simulator has the other core
        (500.0, 82_000.0, None, 1, True, 1),
        (500.0, 82_000.0, Ceiling(200_000.0, 10_000.0), 8, False, 1),  # (0.41 + 0.05) / 0.5
        (math.inf, math.inf, None, 8, False, 8),
    ],
)
def test_workers_follow_rate_events_ceiling_and_cores(rate, events, ceiling, cores, simulated, workers):
    wanted = Demand(rate, events, 100)
    assert worker_count(asked(rate=rate), planned(rate=rate), wanted, ceiling, cores, simulated) == workers


def test_workers_as_configured_and_never_more_than_requests():
    wanted = Demand(1e6, 1e9, 100)
    assert worker_count(asked(rate=1e6, workers=3), planned(rate=1e6), wanted, None, 1, False) == 3
    assert worker_count(asked(rate=1e6, pin=(0, 1)), planned(rate=1e6), wanted, None, 1, False) == 2
    assert worker_count(asked(rate=1e6), planned(rate=1e6, requests=2), wanted, None, 16, False) == 2
    assert worker_count(asked(concurrency=3), planned(concurrency=3), wanted, None, 16, False) == 3
    assert worker_count(asked(concurrency=1, workers=2), planned(concurrency=1), wanted, None, 16, False) == 1
    assert worker_count(asked(concurrency=5), planned(concurrency=5, requests=2), wanted, None, 16, False) == 2
    assert worker_count(asked(rate=9.0, pin=(0, 1)), planned(rate=9.0, requests=1), wanted, None, 16, False) == 1


def test_connections_before_time_zero():
    wanted = Demand(40.0, 4120.0, 100)
    assert initial_connections(asked(concurrency=50), planned(concurrency=50), wanted, 4) == 13
    assert initial_connections(asked(rate=40.0), planned(rate=40.0), wanted, 2) == 50 + sizing.SLACK
    assert initial_connections(asked(rate=40.0, max_concurrency=8), planned(rate=40.0), Demand(40.0, 1.0, 8), 2) == 4
    assert (
        initial_connections(asked(rate=40.0), planned(rate=40.0, requests=10**5), Demand(1e5, 1e6, 10**5), 1)
        == sizing.MOST_AHEAD
    )


def found_at(*urls, classes=()):
    """A preflight with one address for each of *urls* (`10.0.0.1:80/path`); *classes*: first target, number of targets."""
    targets = [
        TargetSpec(url=url, family="inet", address=url.partition(":")[0], port=80, head_prefix="") for url in urls
    ]
    return Preflight(targets=targets, class_targets=list(classes), answer_s=0.1)


@pytest.fixture(autouse=True)
def known_host(monkeypatch):
    """28,232 ports to each target, and any number of files."""
    monkeypatch.setattr(limits, "port_capacity", lambda n_sources: 28_232 * n_sources)
    monkeypatch.setattr(limits, "file_limit", lambda: limits.FileLimit(1 << 20, None))
    monkeypatch.setattr(limits, "time_wait_s", lambda loopback: 60.0)


def test_a_million_slots_are_rejected_before_they_are_planned(monkeypatch):
    monkeypatch.setattr(limits, "file_limit", lambda: limits.FileLimit(1024, 1024))
    with raises_code("load-exceeds-host", "1,024", "500,064"):
        sizing.check_slots_fit_files(asked(concurrency=1_000_000, duration=1.0), cores=2)
    with raises_code("load-exceeds-host", "250,064"):
        sizing.check_slots_fit_files(asked(concurrency=1_000_000, duration=1.0, workers=4), cores=2)
    sizing.check_slots_fit_files(asked(concurrency=1_920, duration=1.0), cores=2)
    sizing.check_slots_fit_files(asked(concurrency=1_000_000, num_requests=5), cores=2)
    sizing.check_slots_fit_files(asked(rate=5.0, duration=1.0), cores=2)


def test_a_run_that_needs_too_many_ports_is_rejected():
    settings, here = asked(rate=5000.0, fresh_connections=True), found_at("10.0.0.1:80")
    refuse, wanted = sizing.check_run_fits_host, Demand(5000.0, 1.0, 10)
    with raises_code("load-exceeds-host", "300,010", "10.0.0.1", "80"):
        refuse(settings, planned(rate=5000.0, seconds=60.0, requests=400_000), wanted, 1, here)
    refuse(settings, planned(rate=5000.0, seconds=1.0, requests=400_000), wanted, 1, here)


def test_a_run_needs_no_more_ports_than_requests():
    """Slots that are refilled quickly use at most one port per request; a run without a count of requests may use more."""
    settings, here = asked(concurrency=150, fresh_connections=True), found_at("10.0.0.1:80")
    wanted = Demand(150_000.0, 1.0, 150)
    sizing.check_run_fits_host(settings, planned(concurrency=150, requests=200), wanted, 1, here)
    with raises_code("load-exceeds-host"):
        sizing.check_run_fits_host(
            settings, planned(concurrency=150, requests=200, cycles=True, seconds=60.0), wanted, 1, here
        )


def test_ports_are_counted_for_each_address_and_port():
    """Two paths of one server share its ports; two servers do not."""
    settings, plan, wanted = asked(rate=9.0), planned(rate=9.0), Demand(9.0, 1.0, 40_000)
    sizing.check_run_fits_host(settings, plan, wanted, 1, found_at("10.0.0.1:80", "10.0.0.2:80"))
    with raises_code("load-exceeds-host", "40,000", "10.0.0.1", "80/a"):
        sizing.check_run_fits_host(settings, plan, wanted, 1, found_at("10.0.0.1:80/a", "10.0.0.1:80/b"))


def classed_plan(tokens):
    """Half of the requests are of class 0, half of class 1, with these output *tokens* each."""
    plan = planned(rate=9.0, seconds=60.0, requests=60_000)
    plan.request_class = np.arange(plan.requests) % 2
    plan.output_tokens = np.array(tokens, np.int32)[plan.request_class]
    plan.starts = np.arange(plan.requests)
    return plan


def class_asked(*urls, **fields):
    classes = tuple(
        TrafficClass(name=f"c{number}", load=Load(), workload=Workload(), urls=own) for number, own in enumerate(urls)
    )
    return msgspec.structs.replace(asked(rate=9.0, **fields), classes=classes)


def test_ports_of_classes_are_counted_at_their_own_urls():
    """Of 40,000 in flight, a class with answers nine times as long has 36,000, all at its own target."""
    apart = class_asked((), ("http://10.0.0.2",))
    there = found_at("10.0.0.1:80", "10.0.0.2:80", classes=[(0, 1), (1, 1)])
    wanted = Demand(9.0, 1.0, 40_000)
    sizing.check_run_fits_host(apart, classed_plan((100, 100)), wanted, 1, there)
    with raises_code("load-exceeds-host", "36,000", "10.0.0.2", "80") as refused:
        sizing.check_run_fits_host(apart, classed_plan((100, 900)), wanted, 1, there)
    assert "10.0.0.1" not in str(refused.value)


def test_fresh_connections_of_classes_are_counted_at_their_own_urls():
    """900/s for a minute are 27,000 closed connections at each of two targets, or all 54,000 at a common one."""
    settings = class_asked((), ("http://10.0.0.2",), fresh_connections=True)
    there = found_at("10.0.0.1:80", "10.0.0.2:80", classes=[(0, 1), (1, 1)])
    sizing.check_run_fits_host(settings, classed_plan((9, 9)), Demand(900.0, 1.0, 10), 1, there)
    one = found_at("10.0.0.1:80", "10.0.0.2:80", classes=[(1, 1), (1, 1)])
    with raises_code("load-exceeds-host", "54,010", "10.0.0.2", "80", "54,000"):
        sizing.check_run_fits_host(settings, classed_plan((9, 9)), Demand(900.0, 1.0, 10), 1, one)


@pytest.mark.parametrize(
    ("arrivals", "rate"),
    [
        ({"name": "poisson", "rate": 55.0, "curve": {"kind": "linear", "t_s": [0, 10], "rate": [10.0, 100.0]}}, 100.0),
        ({"name": "onoff", "rate": 20.0, "on_s": 2.0, "off_s": 8.0}, 100.0),
        ({"name": "gamma", "rate": 20.0}, 20.0),
    ],
)
def test_a_rate_that_changes_is_sized_at_its_highest(arrivals, rate):
    """Workers, connections and in-flight requests follow the peak of a curve and the busy periods of on-off."""
    plan = planned(rate=20.0)
    plan.description["load"]["arrivals"] = arrivals
    assert sizing.planned_rate(plan) == rate
    assert demand(asked(rate=20.0), plan, answer_s=0.1).events_per_s == pytest.approx(rate * 103)
