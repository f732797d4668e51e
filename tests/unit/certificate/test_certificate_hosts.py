"""Each host is judged by its own evidence, the worst decides, and the one at fault is named; equal hosts raise no reason."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_hosts import MS, MadeHost, MadeRun, later, slower, write_samples, write_watch
from synthetic_run import ORIGIN_NS, Request

from fastllmload.certificate.hosts import deviation, without_hosts
from fastllmload.certificate.judge import judged
from fastllmload.documents.certificate import Reason
from fastllmload.metrics.run.measure import measure
from fastllmload.records.run import Run

pytestmark = pytest.mark.slow

HOSTS = (
    MadeHost((0,)),
    MadeHost((1, 2), ahead_ns=-7_000_000_000_000, drift=50e-6),
    MadeHost((3,), ahead_ns=3_000_000_000, drift=-20e-6),
)


def made(folder: Path, hosts: tuple[MadeHost, ...] = HOSTS, **settings: float) -> MadeRun:
    return MadeRun(folder, hosts, **settings)  # type: ignore[arg-type]


def reasons(run: Run) -> dict[str, Reason]:
    assert run.document.certificate is not None
    return {f"{one.code}:{one.figure}" if one.code == "uncertain_figure" else one.code: one
            for one in run.document.certificate.reasons}  # fmt: skip


def verdicts(run: Run) -> list[str | None]:
    return [None if host.certificate is None else host.certificate.verdict for host in run.document.hosts]


def test_hosts_without_a_fault_are_valid(tmp_path: Path) -> None:
    """Clocks that differ by hours and drift by 50 ppm do not appear as lateness."""
    made_run = made(tmp_path)
    made_run.write()
    run = made_run.conclude()
    assert (run.verdict, verdicts(run), reasons(run)) == ("valid", ["valid"] * 3, {})
    certificate, hosts = run.document.certificate, run.document.hosts
    assert certificate is not None and certificate.planned_rate == pytest.approx(200, rel=0.1)
    assert len(certificate.workers) == 4 and certificate.host.stalls == 0
    assert sum(host.share for host in hosts) == pytest.approx(1)  # type: ignore[misc]
    for host in hosts:
        assert host.clock is not None and host.certificate is not None and host.certificate.schedule_lag_us is not None
        bound = int(host.clock.bound_ns or 0)
        assert 0 < bound < 300_000 and host.clock.exchanges > 40  # type: ignore[operator]
        assert abs(host.certificate.schedule_lag_us.p50 - 30) <= bound / 1e3  # type: ignore[operator]
        assert host.certificate.arrival_tests.tested is None, "a part of a Poisson process is none"
        assert host.certificate.workers == () and host.ttft_p50_ms == pytest.approx(5.2, rel=0.1)
    assert hosts[1].clock.drift_ppm == pytest.approx(50, abs=1)  # type: ignore[union-attr]


@pytest.mark.parametrize("late", [2, 3])
def test_a_host_that_sends_late_is_named(tmp_path: Path, late: int) -> None:
    """Worker 2 is of host 1, worker 3 of host 2. Its lag does not depend on the other hosts."""
    made_run = made(tmp_path)
    for request in made_run.of(late):
        later(request, 20 * MS, "t_dispatch")
    made_run.write()
    run = made_run.conclude()
    faulty = {2: 1, 3: 2}[late]
    assert run.verdict == "invalid" and reasons(run)["schedule_lag"].hosts == (faulty,)
    assert [k for k, verdict in enumerate(verdicts(run)) if verdict == "invalid"] == [faulty]
    uncertain = [one for one in run.document.certificate.reasons if one.code == "uncertain_figure"]  # type: ignore[union-attr]
    invalid = [one.figure for one in uncertain if one.severity == "invalid"]
    assert len(invalid) == len({str(figure).rpartition("_")[0] for figure in invalid}), "once for each metric"


@pytest.mark.parametrize(
    ("early_us", "delay_ns", "found"), [(100, 10_000, False), (100, 400_000, False), (2_000, 10_000, True)]
)
def test_what_an_agent_did_not_know_of_the_clock_is_not_an_early_release(
    tmp_path: Path, early_us: int, delay_ns: int, found: bool
) -> None:
    """All exchanges together limit the error of a clock to less than those did by which an agent followed it."""
    made_run = made(tmp_path, (*HOSTS[:2], replace(HOSTS[2], delay_ns=delay_ns)))
    for request in made_run.of(3):
        later(request, -30_000 - early_us * 1_000, "t_dispatch")
    made_run.write()
    run = made_run.conclude()
    bound_ns = run.document.hosts[2].clock.bound_ns  # type: ignore[union-attr]
    assert bound_ns < 95_000 or delay_ns > 10_000  # type: ignore[operator]
    assert ("early_release" in reasons(run)) == found


def test_stalls_explain_only_lateness_of_their_own_host(tmp_path: Path) -> None:
    """Host 2 was late, and a stall of host 0 at the same time explains nothing; one of its own does."""
    for number, cause in ((0, "generator"), (2, "host")):
        made_run = made(tmp_path / str(number))
        for request in made_run.of(3):
            if 0 <= request.fields["t_sched"] - ORIGIN_NS - 2_000 * MS < 200 * MS:
                later(request, 200 * MS - (request.fields["t_sched"] - ORIGIN_NS - 2_000 * MS), "t_dispatch")
        made_run.write()
        write_watch(made_run.folder, number, HOSTS[number], [(ORIGIN_NS + 2_000 * MS, 200 * MS)])
        found = reasons(made_run.conclude())["late_release"]
        assert (found.hosts, found.cause) == ((2,), cause)


def test_steal_and_cpu_are_those_of_each_host(tmp_path: Path) -> None:
    hosts = (HOSTS[0], MadeHost((1, 2), watch={"steal_share": 0.3}), HOSTS[2])
    made_run = made(tmp_path, hosts)
    made_run.write()
    write_samples(tmp_path, 0, hosts[0], made_run.seconds, 50, cpu_share=0.98)
    found = reasons(made_run.conclude())
    assert (found["host_steal"].hosts, found["cpu"].hosts) == ((1,), (0,))


def test_an_interface_that_loses_packets_is_of_its_host(tmp_path: Path) -> None:
    """Its link is full as well; the others' interfaces say nothing."""
    eth0 = {"name": "eth0", "speed_bits_per_s": 10**9, "rx_packets": 50_000, "tx_packets": 50_000, "rx_errors": 0,
            "rx_dropped": 2_000, "tx_errors": 0, "tx_dropped": 0, "peak_rx_bytes_per_s": 0.6 * 10**9 / 8}  # fmt: skip
    made_run = made(tmp_path, (HOSTS[0], MadeHost((1, 2), watch={"interfaces": [eth0]}), HOSTS[2]))
    made_run.write()
    run = made_run.conclude()
    found = reasons(run)
    assert [(found[code].severity, found[code].hosts) for code in ("nic_losses", "nic_load")] == [
        ("suspect", (1,)), ("note", (1,)),
    ]  # fmt: skip
    certificate = run.document.certificate
    assert certificate is not None and certificate.network.peak_share == pytest.approx(0.6)
    assert certificate.network.lost_share == pytest.approx(2_000 / 102_000)


def test_a_lost_host_makes_the_run_invalid(tmp_path: Path) -> None:
    """Its missing requests count neither as failed nor as answered; the others keep their verdicts."""
    hosts = (HOSTS[0], HOSTS[1], MadeHost((3,), ahead_ns=5_000_000_000, status="lost"))
    made_run = made(tmp_path, hosts)
    gone = [r.fields["request"] for r in made_run.of(3) if r.fields["t_sched"] > ORIGIN_NS + 2_000 * MS]
    made_run.requests = [request for request in made_run.requests if request.fields["request"] not in gone]
    made_run.write()
    run = made_run.conclude()
    assert run.verdict == "invalid" and reasons(run)["host_lost"].hosts == (2,)
    assert verdicts(run)[:2] == ["valid", "valid"]
    assert run.document.certificate.arrival_tests.tested is None  # type: ignore[union-attr]
    counts = run.document.counts
    assert (counts.host_lost, counts.failed, counts.not_sent) == (len(gone), 0, 0)
    assert counts.planned == counts.ok + counts.host_lost  # type: ignore[operator]
    assert run.document.metric("success_rate").value == 1


def test_a_host_of_which_nothing_was_copied_is_lost(tmp_path: Path) -> None:
    """Neither rows, nor a watch, nor an exchange of clocks."""
    made_run = made(tmp_path, (HOSTS[0], HOSTS[1], MadeHost((3,), status="lost")))
    gone = len(made_run.of(3))
    made_run.requests = [request for request in made_run.requests if request.fields["request"] % 4 != 3]
    made_run.write()
    shutil.rmtree(tmp_path / "workers" / "3")
    shutil.rmtree(tmp_path / "hosts" / "2")
    run = made_run.conclude()
    assert run.verdict == "invalid" and reasons(run)["host_lost"].hosts == (2,)
    lost = run.document.hosts[2]
    assert (lost.dispatched, lost.clock, lost.ttft_p50_ms) == (0, None, None)
    assert (run.document.counts.host_lost, run.document.counts.dispatched) == (gone, len(made_run.requests))


def test_a_host_that_began_late_is_suspect(tmp_path: Path) -> None:
    made_run = made(tmp_path, (HOSTS[0], HOSTS[1], MadeHost((3,), status="late")))
    made_run.write()
    run = made_run.conclude()
    assert run.verdict == "suspect" and reasons(run)["host_late"].hosts == (2,)


def test_a_clock_that_is_hardly_known_is_a_reason(tmp_path: Path) -> None:
    """Datagrams that take 3 ms leave a millisecond and more in doubt, and figures from the scheduled instant with it."""
    made_run = made(tmp_path, (HOSTS[0], HOSTS[1], MadeHost((3,), delay_ns=3 * MS)))
    made_run.write()
    run = made_run.conclude()
    found = reasons(run)
    assert found["clock_bound"].hosts == (2,) and found["clock_bound"].severity == "suspect"
    bounds = {name: run.document.metric(name).bounds["p50"] for name in ("ttft", "ttft_sched")}
    widths = {name: high - low for name, (low, high) in bounds.items()}  # type: ignore[operator]
    assert widths["ttft_sched"] > widths["ttft"] + 0.05
    assert run.document.hosts[2].certificate.figures["ttft_sched"].verdict in ("suspect", "invalid")  # type: ignore[union-attr]
    assert run.document.hosts[0].certificate.figures["ttft_sched"].verdict == "valid"  # type: ignore[union-attr]


def test_arrivals_closer_than_the_clocks_are_known_are_noted(tmp_path: Path) -> None:
    hosts = tuple(MadeHost(host.workers, delay_ns=400_000) for host in HOSTS)
    made_run = made(tmp_path, hosts, rate=4_000.0, seconds=1.0)
    made_run.write()
    run = made_run.conclude()
    found = reasons(run)["clock_in_gaps"]
    assert found.severity == "note" and 1 < float(found.value or 0) < 10  # type: ignore[arg-type]


def test_a_clock_that_is_not_known_makes_the_run_invalid(tmp_path: Path) -> None:
    """Also where it is that of the driver by chance."""
    made_run = made(tmp_path, (HOSTS[0], HOSTS[1], MadeHost((3,))))
    made_run.write()
    (tmp_path / "hosts" / "2" / "clock.npy").unlink()
    run = made_run.conclude()
    assert run.verdict == "invalid" and reasons(run)["clock_unknown"].hosts == (2,)
    assert verdicts(run) == ["valid", "valid", "invalid"]


@pytest.mark.parametrize(("extra_ms", "severity"), [(0.0, None), (1.5, "note"), (6.0, "suspect")])
def test_a_host_with_another_ttft_is_named(tmp_path: Path, extra_ms: float, severity: str | None) -> None:
    made_run = made(tmp_path)
    for request in made_run.of(3):
        later(request, round(extra_ms * MS), "t_headers")
    made_run.write()
    found = reasons(made_run.conclude()).get("uneven_ttft")
    assert (None if found is None else (found.severity, found.hosts)) == (severity and (severity, (2,)))


@pytest.mark.parametrize(("factor", "severity"), [(1.0, None), (1.3, "note"), (2.0, "suspect")])
@pytest.mark.parametrize("load", [{"rate": 200.0, "arrival": "poisson"}, {"concurrency": 8}])
def test_a_host_whose_tokens_come_slower_is_named(
    tmp_path: Path, load: dict[str, object], factor: float, severity: str | None
) -> None:
    """In open and in closed loops."""
    made_run = made(tmp_path)
    for request in made_run.of(3):
        slower(request, factor)
    made_run.write(config={"load": load})
    found = reasons(made_run.conclude()).get("uneven_tpot")
    assert (None if found is None else (found.severity, found.hosts)) == (severity and (severity, (2,)))


@pytest.mark.parametrize(("left_out", "severity"), [(0, None), (4, "note"), (7, "suspect")])
def test_a_host_that_leaves_its_slots_empty_is_named(tmp_path: Path, left_out: int, severity: str | None) -> None:
    """Eight slots, two for each worker; of ten requests of host 2 that many are missing."""
    made_run = made(tmp_path, rate=4_000.0, seconds=2.0)
    gone = {request.fields["request"] for n, request in enumerate(made_run.of(3)) if n % 10 < left_out}
    made_run.requests = [request for request in made_run.requests if request.fields["request"] not in gone]
    made_run.write(config={"load": {"concurrency": 8}})
    run = made_run.conclude()
    found = reasons(run).get("uneven_slots")
    assert (None if found is None else (found.severity, found.hosts)) == (severity and (severity, (2,)))
    if found is not None:
        assert found.value == pytest.approx(left_out / 10, abs=0.1)


def test_slots_of_an_open_loop_and_of_a_lost_host_are_not_compared(tmp_path: Path) -> None:
    for number, (status, load) in enumerate([("ended", {"rate": 4_000.0}), ("lost", {"concurrency": 8})]):
        made_run = made(
            tmp_path / str(number), (HOSTS[0], HOSTS[1], MadeHost((3,), status=status)), rate=4_000.0, seconds=2.0
        )
        gone = {request.fields["request"] for request in made_run.of(3)[100:]}
        made_run.requests = [request for request in made_run.requests if request.fields["request"] not in gone]
        made_run.write(config={"load": load})
        assert "uneven_slots" not in reasons(made_run.conclude())


def test_a_target_that_drifts_makes_no_host_uneven(tmp_path: Path) -> None:
    """TTFT grows tenfold, and host 2 is lost halfway: it saw only the fast half."""
    made_run = made(tmp_path, (HOSTS[0], HOSTS[1], MadeHost((3,), status="lost")))
    for request in made_run.requests:
        later(request, (request.fields["t_sched"] - ORIGIN_NS) // 100, "t_headers")
    half = ORIGIN_NS + 2_000 * MS
    made_run.requests = [r for r in made_run.requests if r.fields["t_sched"] < half or r.fields["request"] % 4 != 3]
    made_run.write()
    assert "uneven_ttft" not in reasons(made_run.conclude())


def test_equal_hosts_are_seldom_uneven() -> None:
    """Of 2,000 samples of 300 requests each, none deviates by 5; of conversations of 10 equal turns as little."""
    rng = np.random.default_rng(1)
    sessions = np.repeat(np.arange(300), 10)
    for _ in range(2_000):
        alone = rng.standard_exponential(300) - np.log(2)
        assert deviation(alone, np.arange(300)) < 5
        assert deviation(np.repeat(alone, 10), sessions) < 5
    assert deviation(np.repeat(alone, 10), np.arange(3_000)) == pytest.approx(
        deviation(alone, np.arange(300)) * np.sqrt(10)
    )


def test_without_the_faulty_host_the_rest_is_judged(tmp_path: Path) -> None:
    """Figures are those of a run of the other hosts alone; the verdict is at best suspect, and says why."""
    made_run = made(tmp_path / "faulty")
    for request in made_run.of(3):
        later(request, 20 * MS, "t_dispatch")
    made_run.write()
    run = made_run.conclude()
    rest = without_hosts(run, (2,))
    assert set(np.unique(rest.rows["worker"])) == {0, 1, 2} and rest.samples is not None
    assert set(rest.samples["worker"]) == {0, 1, 2} and rest.document.excluded_hosts == (2,)
    found = rest.with_document(measure(rest))
    found = found.with_document(judged(found))
    assert found.verdict == "suspect" and list(reasons(found)) == ["host_excluded"]
    assert verdicts(found) == ["valid", "valid", "invalid"]
    assert [host.share for host in found.document.hosts[:2]] == pytest.approx([1 / 3, 2 / 3], rel=0.02)


def test_many_hosts_with_one_fault_are_one_reason(tmp_path: Path) -> None:
    """With the worst of them first."""
    hosts = tuple(MadeHost((k,)) for k in range(6))
    made_run = made(tmp_path, hosts, rate=400.0)
    delays = {1: 2 * MS, 4: 5 * MS}
    for worker, delay in delays.items():
        for request in made_run.of(worker):
            later(request, delay, "t_dispatch")
    made_run.write()
    run = made_run.conclude()
    assert reasons(run)["schedule_lag"].hosts == (4, 1) and run.verdict == "invalid"
    assert [k for k, verdict in enumerate(verdicts(run)) if verdict != "valid"] == [1, 4]


def test_requests_are_made_as_described() -> None:
    request = Request({"t_dispatch": 5, "t_submit": 7}, [(9, 3, 1, 1)])
    request.fields |= dict.fromkeys(
        ("t_submit_start", "t_headers", "t_any", "t_first", "t_last", "t_end", "t_end_user"), 8
    )
    later(request, 10, "t_headers")
    assert (request.fields["t_submit"], request.fields["t_first"], request.events) == (7, 18, [(19, 3, 1, 1)])
