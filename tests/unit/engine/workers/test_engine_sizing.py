"""Workers, connections and rejected runs by load; the expected figures are computed by hand."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from refusals import raises_code

from fastllmload.certificate.ceiling import Ceiling
from fastllmload.documents.plan import ArrivalFacts, LoadDescription, PlanDescription
from fastllmload.documents.read import convert
from fastllmload.engine.preflight.check import Preflight
from fastllmload.engine.workers import sizing
from fastllmload.engine.workers.routing import target_connections
from fastllmload.engine.workers.sizing import Demand, initial_connections, worker_count
from fastllmload.engine.workers.spec import TargetSpec
from fastllmload.host import limits
from fastllmload.settings import Client, Load, RunSettings, TrafficClass, Workload


def demand(plan, answer_s, timeout_s=600.0, streaming=True, cap=None):
    return sizing.demand(plan, answer_s, timeout_s=timeout_s, streaming=streaming, cap=cap)


def described(arrivals):
    return PlanDescription(load=LoadDescription(arrivals=arrivals))


def asked(client=None, **load):
    return RunSettings(load=Load(**load), client=client or Client())


def planned(rate=None, requests=1000, tokens=100, concurrency=None, seconds=None, talks=None, cycles=False):
    """*talks*: number of conversations that share the requests."""
    arrivals = None if rate is None else ArrivalFacts(name="poisson", rate="inf" if math.isinf(rate) else rate)
    return SimpleNamespace(
        requests=requests, output_tokens=np.full(requests, tokens, np.int32), concurrency=concurrency, duration_s=seconds,
        description=described(arrivals), t_sched=None if rate is None else np.arange(requests) * 1_000_000,
        cycles=cycles, turns=None if talks is None else object(), starts=np.arange(requests if talks is None else talks),
        open_requests=requests, open_starts=np.arange(requests if talks is None else talks), closed_classes={},
        closed_cycles=False,
    )  # fmt: skip


def mixed(rate=40.0, requests=1000, tokens=100, slots=(16, 48), pool=2000, closed_tokens=(400, 40)):
    """An open class 0 next to closed ones, whose pools come last in the plan."""
    plan = planned(rate=rate, requests=requests, tokens=tokens)
    every = requests + pool * len(slots)
    plan.output_tokens = np.concatenate([plan.output_tokens, *(np.full(pool, n, np.int32) for n in closed_tokens)])
    plan.request_class = np.repeat(np.arange(1 + len(slots)), [requests, *(pool for _ in slots)]).astype(np.uint16)
    plan.requests, plan.starts = every, np.arange(every)
    plan.closed_classes = dict(enumerate(slots, 1))
    return plan


def test_a_mix_needs_what_its_open_and_its_closed_loops_need():
    """At 25 ms a token: 40/s of 100 tokens are 100 in flight; 16 slots of 10 s send 1.6/s, 48 slots of 1 s send 48/s."""
    found = demand(mixed(), answer_s=0.1)
    assert found.in_flight == 100 + 16 + 48
    assert found.rate == pytest.approx(40 + 1.6 + 48)
    assert found.events_per_s == pytest.approx(40 * 103 + 1.6 * 403 + 48 * 43)
    assert sizing.most_at_work(mixed(requests=2), cap=None) == 2 + 16 + 48
    assert initial_connections(mixed(), found, 2, None) == 100 // 2 + sizing.SLACK + 64 // 2
    assert initial_connections(mixed(slots=(10_000, 48)), demand(mixed(slots=(10_000, 48)), 0.1), 1, None) >= 10_048


def test_slots_of_a_mix_have_their_connections_at_the_targets_of_their_class():
    """Class 0 goes to target 0, class 1 to target 1, class 2 to both."""
    plan, routes = mixed(), [(0, 1), (1, 1), (0, 2)]
    targets = [
        TargetSpec(url=f"http://t{n}", family="inet", address="10.0.0.1", port=n, head_prefix="") for n in (1, 2)
    ]
    found = target_connections(plan, targets, routes, np.ones(plan.requests), demand(plan, 0.1).in_flight, 0.0)
    assert [one.connections for one in found] == [100 + 24, 16 + 24]


def test_littles_law_with_the_probes_speed():
    """4 tokens took 0.1 s, so 100 take 2.5 s; at 40/s that is 100 in flight."""
    found = demand(planned(rate=40.0), answer_s=0.1)
    assert (found.rate, found.in_flight) == (40.0, 100)
    assert found.events_per_s == pytest.approx(40 * 103)


def test_conversations_are_sized_by_their_turns():
    """10 conversations/s of 4 turns are 40 requests/s."""
    found = demand(planned(rate=10.0, talks=250), answer_s=0.1)
    assert (found.rate, found.in_flight) == (40.0, 100)


def test_time_out_cap_and_plan_limit_requests_in_flight():
    assert demand(planned(rate=40.0), 0.1, timeout_s=1.0).in_flight == 40
    assert demand(planned(rate=40.0), 0.1, cap=7).in_flight == 7
    assert demand(planned(rate=40.0, requests=3), 0.1).in_flight == 3
    assert demand(planned(rate=40.0), None).in_flight == 1
    assert demand(planned(rate=math.inf), 0.1) == Demand(math.inf, math.inf, 1000)


def test_a_closed_loop_has_its_slots_in_flight():
    found = demand(planned(concurrency=50), answer_s=0.1)
    assert (found.in_flight, found.rate) == (50, pytest.approx(20.0))


def test_a_closed_loop_has_no_more_slots_than_requests():
    """Unless the plan repeats: then all slots are used."""
    for cycles, used in ((False, 10), (True, 10**6)):
        plan = planned(concurrency=10**6, requests=10, cycles=cycles)
        wanted = demand(plan, answer_s=0.1)
        assert (wanted.in_flight, initial_connections(plan, wanted, 2, None)) == (used, used // 2)


def test_answers_without_streaming_are_one_event_each():
    assert demand(planned(rate=40.0), 0.1, streaming=False).events_per_s == 40.0


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
    assert worker_count(Client(), planned(rate=rate), wanted, ceiling, cores, simulated) == workers


def test_workers_as_configured_and_never_more_than_requests():
    wanted = Demand(1e6, 1e9, 100)
    assert worker_count(Client(workers=3), planned(rate=1e6), wanted, None, 1, False) == 3
    assert worker_count(Client(pin=(0, 1)), planned(rate=1e6), wanted, None, 1, False) == 2
    assert worker_count(Client(), planned(rate=1e6, requests=2), wanted, None, 16, False) == 2
    assert worker_count(Client(), planned(concurrency=3), wanted, None, 16, False) == 3
    assert worker_count(Client(workers=2), planned(concurrency=1), wanted, None, 16, False) == 1
    assert worker_count(Client(), planned(concurrency=5, requests=2), wanted, None, 16, False) == 2
    assert worker_count(Client(pin=(0, 1)), planned(rate=9.0, requests=1), wanted, None, 16, False) == 1


def test_connections_before_time_zero():
    wanted = Demand(40.0, 4120.0, 100)
    assert initial_connections(planned(concurrency=50), wanted, 4, None) == 13
    assert initial_connections(planned(rate=40.0), wanted, 2, None) == 50 + sizing.SLACK
    assert initial_connections(planned(rate=40.0), Demand(40.0, 1.0, 8), 2, 8) == 4
    assert (
        initial_connections(planned(rate=40.0, requests=10**5), Demand(1e5, 1e6, 10**5), 1, None) == sizing.MOST_AHEAD
    )


def found_at(*urls, classes=()):
    """A preflight with one address for each of *urls* (`10.0.0.1:80/path`); *classes*: first target, number of targets."""
    targets = [
        TargetSpec(url=url, family="inet", address=url.partition(":")[0], port=80, head_prefix="") for url in urls
    ]
    return Preflight(targets=targets, class_targets=list(classes), own_urls=bool(classes), answer_s=0.1)


def check_fits(plan, wanted, found, fresh=False):
    sizing.check_run_fits_host(plan, wanted, 1, found, timeout_s=600.0, sources=0, fresh=fresh)


@pytest.fixture(autouse=True)
def known_host(monkeypatch):
    """28,232 ports to each target, and any number of files."""
    monkeypatch.setattr(limits, "port_capacity", lambda n_sources: 28_232 * n_sources)
    monkeypatch.setattr(limits, "file_limit", lambda: limits.FileLimit(1 << 20, None))
    monkeypatch.setattr(limits, "time_wait_s", lambda loopback: 60.0)


def test_a_million_slots_are_rejected_before_they_are_planned(monkeypatch):
    monkeypatch.setattr(limits, "file_limit", lambda: limits.FileLimit(1024, 1024))
    with raises_code("load-exceeds-host", "open files is 1,024", "worker needs 500,064"):
        sizing.check_slots_fit_files(asked(concurrency=1_000_000, duration=1.0), cores=2)
    with raises_code("load-exceeds-host", "worker needs 250,064"):
        sizing.check_slots_fit_files(asked(Client(workers=4), concurrency=1_000_000, duration=1.0), cores=2)
    sizing.check_slots_fit_files(asked(concurrency=1_920, duration=1.0), cores=2)
    sizing.check_slots_fit_files(asked(concurrency=1_000_000, num_requests=5), cores=2)
    sizing.check_slots_fit_files(asked(rate=5.0, duration=1.0), cores=2)
    closed = tuple(
        TrafficClass(name=name, load=Load(concurrency=500_000, duration=1.0), workload=Workload()) for name in "ab"
    )
    with raises_code("load-exceeds-host", "worker needs 500,064"):
        sizing.check_slots_fit_files(RunSettings(classes=closed), cores=2)


def test_a_run_that_needs_too_many_ports_is_rejected():
    here, wanted = found_at("10.0.0.1:80"), Demand(5000.0, 1.0, 10)
    with raises_code("load-exceeds-host", "300,010 local ports", "to 10.0.0.1:80, "):
        check_fits(planned(rate=5000.0, seconds=60.0, requests=400_000), wanted, here, fresh=True)
    check_fits(planned(rate=5000.0, seconds=1.0, requests=400_000), wanted, here, fresh=True)


def test_a_run_needs_no_more_ports_than_requests():
    """Slots that are refilled quickly use at most one port per request; a run without a count of requests may use more."""
    here, wanted = found_at("10.0.0.1:80"), Demand(150_000.0, 1.0, 150)
    check_fits(planned(concurrency=150, requests=200), wanted, here, fresh=True)
    with raises_code("load-exceeds-host", "local ports"):
        check_fits(planned(concurrency=150, requests=200, cycles=True, seconds=60.0), wanted, here, fresh=True)


def test_ports_are_counted_for_each_address_and_port():
    """Two paths of one server share its ports; two servers do not."""
    plan, wanted = planned(rate=9.0), Demand(9.0, 1.0, 40_000)
    check_fits(plan, wanted, found_at("10.0.0.1:80", "10.0.0.2:80"))
    with raises_code("load-exceeds-host", "40,000 local ports", "to 10.0.0.1:80/a, "):
        check_fits(plan, wanted, found_at("10.0.0.1:80/a", "10.0.0.1:80/b"))


def classed_plan(tokens):
    """Half of the requests are of class 0, half of class 1, with these output *tokens* each."""
    plan = planned(rate=9.0, seconds=60.0, requests=60_000)
    plan.request_class = np.arange(plan.requests) % 2
    plan.output_tokens = np.array(tokens, np.int32)[plan.request_class]
    plan.starts = np.arange(plan.requests)
    return plan


def test_ports_of_classes_are_counted_at_their_own_urls():
    """Of 40,000 in flight, a class with answers nine times as long has 36,000, all at its own target."""
    there = found_at("10.0.0.1:80", "10.0.0.2:80", classes=[(0, 1), (1, 1)])
    wanted = Demand(9.0, 1.0, 40_000)
    check_fits(classed_plan((100, 100)), wanted, there)
    with raises_code("load-exceeds-host", "36,000 local ports", "to 10.0.0.2:80, ") as refused:
        check_fits(classed_plan((100, 900)), wanted, there)
    assert "10.0.0.1" not in str(refused.value)


def test_fresh_connections_of_classes_are_counted_at_their_own_urls():
    """900/s for a minute are 27,000 closed connections at each of two targets, or all 54,000 at a common one."""
    there = found_at("10.0.0.1:80", "10.0.0.2:80", classes=[(0, 1), (1, 1)])
    check_fits(classed_plan((9, 9)), Demand(900.0, 1.0, 10), there, fresh=True)
    one = found_at("10.0.0.1:80", "10.0.0.2:80", classes=[(1, 1), (1, 1)])
    with raises_code("load-exceeds-host", "54,010 local ports", "to 10.0.0.2:80, 54,000 of"):
        check_fits(classed_plan((9, 9)), Demand(900.0, 1.0, 10), one, fresh=True)


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
    plan.description = described(convert(arrivals, ArrivalFacts))
    assert sizing.planned_rate(plan) == rate
    assert demand(plan, answer_s=0.1).events_per_s == pytest.approx(rate * 103)


@pytest.mark.parametrize(
    ("rate", "events", "client", "cores", "counts"),
    [
        (10.0, 1_000.0, Client(), (8, 8), [1, 1]),  # at least one on each host
        (500.0, 82_000.0, Client(), (8, 8), [3, 3]),  # 5 together
        (500.0, 82_000.0, Client(), (1, 8), [1, 3]),  # never more than the cores of a host
        (500.0, 82_000.0, Client(workers=2), (8, 8, 8), [2, 2, 2]),
        (500.0, 82_000.0, Client(pin=(1, 2, 3)), (8, 8), [3, 3]),
    ],
)
def test_many_hosts_have_the_same_number_of_workers_each(rate, events, client, cores, counts):
    plan = planned(rate=rate)
    assert sizing.workers_by_host(client, plan, Demand(rate, events, 100), None, cores) == counts


@pytest.mark.parametrize(
    ("fields", "client", "cap", "counts"),
    [
        ({"rate": 500.0}, Client(), 4, [1, 1, 1]),  # 6 are wanted
        ({"rate": 500.0}, Client(workers=2), 5, [1, 1, 1]),
        ({"rate": 500.0}, Client(workers=2), 6, [2, 2, 2]),
        ({"concurrency": 4}, Client(pin=(1, 2)), None, [1, 1, 1]),
    ],
)
def test_hosts_have_no_more_workers_than_requests_in_flight(fields, client, cap, counts):
    """Each worker has a part of the cap or of the slots, which is one at least."""
    plan = planned(**fields)
    assert sizing.workers_by_host(client, plan, Demand(500.0, 120_000.0, 100), None, (8, 8, 8), cap=cap) == counts


@pytest.mark.parametrize("fields", [{"rate": 500.0}, {"concurrency": 64}])
def test_each_worker_has_a_part_of_what_may_wait_for_a_first_token(fields):
    plan, wanted = planned(**fields), Demand(500.0, 120_000.0, 100)
    assert worker_count(Client(workers=8), plan, wanted, None, 8, False, waiting=3) == 3
    assert worker_count(Client(workers=8), plan, wanted, None, 8, False, cap=None, waiting=9) == 8
    assert sizing.workers_by_host(Client(workers=4), plan, wanted, None, (8, 8), waiting=5) == [2, 2]


def test_there_are_no_more_workers_than_requests_in_flight():
    wanted = Demand(1e6, 1e8, 1_000)
    assert worker_count(Client(workers=4), planned(rate=1e6), wanted, None, 16, False, cap=2) == 2
    assert worker_count(Client(), planned(rate=1e6), wanted, None, 16, False, cap=3) == 3


def test_each_host_is_checked_for_its_own_part_and_limits():
    """Half of 40,000 connections do not fit 10,000 ports of one host, but do those of this one."""
    plan, found = planned(rate=40_000.0, requests=40_000), found_at("10.0.0.1:80")
    wanted = sizing.part_of(Demand(40_000.0, 1e6, 40_000), 0.5)
    assert wanted == Demand(20_000.0, 5e5, 20_000)
    check_fits(plan, wanted, found)
    small = sizing.HostLimits("host 3 (c)", limits.FileLimit(1 << 20, None), 10_000)
    with raises_code("load-exceeds-host", "host 3 (c)", "10,000"):
        sizing.check_run_fits_host(plan, wanted, 1, found, timeout_s=600.0, sources=0, fresh=False, host=small)
