"""Limits of the host are read correctly; a run that does not fit is rejected with one sentence per problem."""

from __future__ import annotations

import re
import resource
import subprocess
import sys

import pytest

from fastllmload.host import limits, probe
from fastllmload.host.limits import FileLimit, TargetConnections, check_capacity


@pytest.fixture
def proc(tmp_path, monkeypatch):
    """The kernel's settings, replaced by files of this test."""

    def write(ports="32768\t60999\n", reserved="\n", reuse="0\n"):
        for name, text in (("PORT_RANGE", ports), ("RESERVED_PORTS", reserved), ("TW_REUSE", reuse)):
            path = tmp_path / name
            if text is not None:
                path.write_text(text)
            monkeypatch.setattr(limits, name, path)

    return write


def test_ports_per_source(proc):
    proc()
    assert limits.port_capacity(1) == 28_232
    assert limits.port_capacity(3) == 3 * 28_232


def test_reserved_ports_do_not_count(proc):
    proc(ports="1000 1999", reserved="1000,1500-1509,1990-2500,9000")
    assert limits.reserved_ports() == 1 + 10 + 10
    assert limits.port_capacity(1) == 1000 - 21


def test_without_proc_the_kernels_defaults_hold(proc):
    proc(ports=None, reserved=None, reuse=None)
    assert limits.port_capacity(1) == 28_232
    assert limits.time_wait_s() == 60.0


@pytest.mark.parametrize(
    ("reuse", "loopback", "seconds"),
    [("0", True, 60.0), ("1", False, 1.0), ("2", False, 60.0), ("2", True, 1.0)],
)
def test_how_long_a_closed_port_is_held(proc, reuse, loopback, seconds):
    proc(reuse=reuse)
    assert limits.time_wait_s(loopback) == seconds


PLENTY = FileLimit(1 << 20, 1 << 20)


def to(name="http://a:8000", connections=100, **others):
    return TargetConnections(name, connections, **others)


def test_a_run_that_fits_has_no_problems(proc):
    proc()
    assert check_capacity([to(connections=1000)], 1, limit=FileLimit(1024, 4096)) == []


def test_too_few_files_is_one_sentence(proc):
    """Files are counted over all targets together."""
    proc()
    both = [to("http://a", 4_000), to("http://b", 6_000)]
    (problem,) = check_capacity(both, 1, limit=FileLimit(1024, 4096))
    assert "open files is 4,096" in problem and "needs 10,064" in problem and "raise it" in problem
    assert check_capacity(both, 1, workers=3, limit=FileLimit(1024, 4096)) == []
    assert check_capacity(both, 1, limit=FileLimit(1024, None)) == []


def test_too_few_ports_is_one_sentence(proc):
    proc()
    (problem,) = check_capacity([to(connections=30_000)], 1, limit=PLENTY)
    assert re.findall(r"\d+,\d+", problem) == ["30,000", "28,232"]
    assert "http://a:8000" in problem and "--source-address" in problem
    assert check_capacity([to(connections=30_000)], 2, limit=PLENTY) == []


def test_ports_are_counted_separately_for_each_target(proc):
    """Two targets with 25,000 connections each fit; with 45,000 and 5,000 the first does not."""
    proc()
    assert check_capacity([to("http://a", 25_000), to("http://b", 25_000)], 1, limit=PLENTY) == []
    (problem,) = check_capacity([to("http://a", 5_000), to("http://b", 45_000)], 1, limit=PLENTY)
    assert re.findall(r"\d+,\d+", problem) == ["45,000", "28,232"] and "http://b" in problem


def test_a_unix_socket_needs_files_but_no_ports(proc):
    proc()
    assert check_capacity([to("/run/engine.sock", 30_000, ports=False)], 1, limit=PLENTY) == []
    (problem,) = check_capacity([to("/run/engine.sock", 30_000, ports=False)], 1, limit=FileLimit(1024, 4096))
    assert "open files" in problem


def test_closed_connections_hold_ports_for_a_minute_or_the_runs_length(proc):
    proc()
    churning = [to(churn_per_s=1000.0)]
    (problem,) = check_capacity(churning, 1, limit=PLENTY)
    assert "60,100 local ports" in problem and "http://a:8000, 60,000 of them" in problem
    assert check_capacity(churning, 1, seconds=20.0, limit=PLENTY) == []
    assert check_capacity(churning, 3, limit=PLENTY) == []


def test_closed_connections_hold_no_ports_where_loopback_reuses_them(proc):
    """This applies to the target on this host; at the other one ports stay in use for a minute."""
    proc(reuse="2")
    assert check_capacity([to(churn_per_s=1000.0, loopback=True)], 1, limit=PLENTY) == []
    (problem,) = check_capacity(
        [to(churn_per_s=1000.0, loopback=True), to("http://far", churn_per_s=1000.0)], 1, limit=PLENTY
    )
    assert "to http://far" in problem


RAISES = """
import resource
from fastllmload.host.limits import file_limit, raise_nofile
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 1024))
print(raise_nofile(512), raise_nofile(100), raise_nofile(), raise_nofile(99999), file_limit())
"""


def test_the_soft_limit_rises_as_far_as_the_hard_one_and_never_falls():
    ended = subprocess.run([sys.executable, "-c", RAISES], capture_output=True, text=True, timeout=20, check=True)
    expected = [FileLimit(512, 1024), FileLimit(512, 1024), *[FileLimit(1024, 1024)] * 3]
    assert ended.stdout.strip() == " ".join(map(str, expected))


def test_file_limit_of_this_host():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = limits.file_limit()
    if resource.RLIM_INFINITY not in (soft, hard):
        assert found == FileLimit(soft, hard)


# -- probes --------------------------------------------------------------------------------------------------


def test_steal_is_the_eighth_field(monkeypatch):
    monkeypatch.setattr(probe, "setting", lambda path: "cpu  10 0 20 60 0 0 0 10 5 5\ncpu0 1")
    assert probe.steal_share() == pytest.approx(0.1)
    monkeypatch.setattr(probe, "setting", lambda path: None)
    assert probe.steal_share() is None


def test_available_memory(monkeypatch):
    monkeypatch.setattr(probe, "setting", lambda path: "MemTotal: 9 kB\nMemAvailable:   2048 kB\n")
    assert probe.available_memory() == 2048 * 1024


@pytest.mark.parametrize(
    ("quota", "cores"), [("max 100000", 4.0), ("150000 100000", 1.5), (None, 4.0), ("900000 100000", 4.0)]
)
def test_cores_are_bounded_by_the_cgroup(monkeypatch, quota, cores):
    monkeypatch.setattr(probe, "setting", lambda path: quota)
    monkeypatch.setattr(probe.os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    assert probe.cores() == cores


def test_kernel_stamps_gives_a_boolean():
    assert probe.kernel_stamps() in (True, False)


def test_disk_speed_leaves_nothing_behind(tmp_path):
    assert probe.disk_speed(tmp_path / "not" / "there", size=1 << 20) > 0
    assert list(tmp_path.iterdir()) == []


def test_timer_lateness_is_ascending_and_never_early():
    late = probe.timer_lateness_us(5)
    assert late == sorted(late)
    assert late[0] >= 0
