"""Each check has a verdict and, where something must change, what; the last line counts them."""

from __future__ import annotations

import io

import msgspec
import pytest
from refusals import raises_code

from fastllmload.cli.commands import doctor
from fastllmload.cli.commands.doctor import BAD, GOOD, UNKNOWN, WARN, HostFinding
from fastllmload.engine.hosts.clock import exchange
from fastllmload.engine.hosts.link.messages import AgentConfig
from fastllmload.engine.hosts.placement.host_actor import HostFacts
from fastllmload.engine.recording import tap
from fastllmload.host import limits, probe
from fastllmload.host.limits import FileLimit


def test_this_host_is_examined_whole(tmp_path, monkeypatch):
    """Only shape and order: what a host is like is not ours to expect."""
    monkeypatch.setattr(probe, "timer_lateness_us", lambda: [1.0, 2.0])
    monkeypatch.setattr(probe, "not_importable", lambda names: {})
    findings = doctor.examine(tmp_path / "runs")
    assert len({finding.name for finding in findings}) == len(findings) == 16
    for finding in findings:
        assert finding.verdict in (GOOD, WARN, BAD, UNKNOWN)
        assert (finding.fix != "") == (finding.verdict in (WARN, BAD)), finding
    assert not (tmp_path / "runs").exists()


class OneHost:
    """In the place of a placement: one host, which is this one."""

    driver_address = "127.0.0.1"

    def everywhere(self, function, argument, kind):
        return [function(argument)]


def test_the_clock_of_a_host_is_compared_with_the_drivers(monkeypatch):
    monkeypatch.setattr(doctor, "CLOCK_S", 0.3)
    monkeypatch.setattr(doctor, "WIDE_US", 1e9)
    (found,) = doctor.examine_clocks(OneHost())
    assert (found.name, found.verdict) == ("driver's clock", GOOD), found
    monkeypatch.setattr(doctor, "WIDE_US", 0.0)
    (found,) = doctor.examine_clocks(OneHost())
    assert found.verdict == WARN and found.fix


def test_a_driver_that_answers_no_datagram_is_bad(monkeypatch):
    monkeypatch.setattr(doctor, "CLOCK_S", 0.0)
    monkeypatch.setattr(doctor, "ANSWERED_S", 0.1)
    with exchange.bound("127.0.0.1", 0) as silent:
        port = silent.getsockname()[1]
        asked = AgentConfig(address="127.0.0.1", tcp_port=0, udp_port=port, key="00" * 32, host=0)
        found = doctor.driver_clock(msgspec.json.encode(asked).decode())
    assert found.verdict == BAD and str(port) in found.text and found.fix


def test_print_says_what_to_change_and_the_code():
    stream = io.StringIO()
    findings = [
        HostFinding("a", GOOD, "fine"),
        HostFinding("b", BAD, "broken", "mend it"),
        HostFinding("c", WARN, "odd", "look"),
    ]
    assert doctor.print_findings(findings, stream) == 1
    assert stream.getvalue().splitlines()[2].split() == ["->", "mend", "it"]
    assert stream.getvalue().splitlines()[-1] == "1 to change, 1 to consider, of 3 checks"
    assert doctor.print_findings(findings[:1], io.StringIO()) == 0


def host(name, **changed):
    known = {"address": f"{name}.example", "node": name, "cpus": 2, "priority": 0, "fastllmload": "1", "python": "3"}
    return HostFacts(**{"name": name, **known, "machine": "m", "compiled": "c", **changed})


def test_hosts_are_one_table_with_what_to_change_where():
    stream = io.StringIO()
    findings = [
        [HostFinding("a", GOOD, "fine"), HostFinding("b", BAD, "broken", "repair it")],
        [HostFinding("a", UNKNOWN, "hidden"), HostFinding("b", BAD, "broken", "repair it")],
        [HostFinding("a", GOOD, "fine"), HostFinding("b", GOOD, "fine")],
    ]
    assert doctor.print_hosts([host("one"), host("two"), host("three")], findings, stream) == 1
    lines = [line.split() for line in stream.getvalue().splitlines()]
    assert [line[0] for line in lines[:3]] == ["one", "two", "three"]
    assert ["a", "2", "1"] in lines and ["b", "1", "2"] in lines
    assert ["bad", "b", "one,", "two:", "broken"] in lines and ["unknown", "a", "two:", "hidden"] in lines
    assert lines.count(["->", "repair", "it"]) == 1
    assert lines[-1] == ["2", "to", "change,", "0", "to", "consider,", "of", "6", "checks", "on", "3", "hosts"]
    assert doctor.print_hosts([host("three")], findings[2:], io.StringIO()) == 0


@pytest.mark.parametrize(
    ("changed", "verdict"), [({}, GOOD), ({"fastllmload": "2"}, BAD), ({"python": "4"}, BAD), ({"compiled": "d"}, BAD)]
)
def test_software_is_that_of_the_driver(changed, verdict):
    assert doctor.software(host("one"), host("two", **changed)).verdict == verdict


@pytest.mark.parametrize(("nice", "verdict"), [(0, GOOD), (15, WARN)])
def test_agents_have_the_normal_priority(nice, verdict):
    assert doctor.priority(host("one", priority=nice)).verdict == verdict


@pytest.mark.parametrize(("mode", "verdict"), [("token", GOOD), ("disabled", WARN)])
def test_ray_asks_for_a_token(monkeypatch, mode, verdict):
    monkeypatch.setenv("RAY_AUTH_MODE", mode)
    assert doctor.ray_access().verdict == verdict


def test_a_resource_of_ray_needs_ray():
    with raises_code("option-missing", "--ray"):
        doctor.doctor.main(["--ray-resource", "load"], standalone_mode=False)


def no_such_socket():
    raise OSError(97, "Address family not supported by protocol")


SETTINGS = [
    ("congestion_control", "cubic", GOOD),
    ("congestion_control", "bbr", WARN),
    ("congestion_control", None, UNKNOWN),
    ("clock_source", "tsc", GOOD),
    ("clock_source", "kvm-clock", GOOD),
    ("clock_source", "hpet", BAD),
    ("clock_source", None, UNKNOWN),
    ("governor", "performance", GOOD),
    ("governor", "powersave", WARN),
    ("governor", None, UNKNOWN),
    ("backlog", "4096", GOOD),
    ("backlog", "128", WARN),
    ("backlog", None, UNKNOWN),
]


@pytest.mark.parametrize(("check", "value", "verdict"), SETTINGS)
def test_settings_of_the_kernel(monkeypatch, check, value, verdict):
    monkeypatch.setattr(probe, "setting", lambda path: value)
    assert getattr(doctor, check)().verdict == verdict


@pytest.mark.parametrize(
    ("check", "name", "value", "verdict"),
    [
        ("ip_versions", "is_own", True, GOOD),
        ("ip_versions", "is_own", False, UNKNOWN),
        ("cores", "cores", 2.0, GOOD),
        ("cores", "cores", 1.5, WARN),
        ("steal", "steal_share", 0.0, GOOD),
        ("steal", "steal_share", 0.05, WARN),
        ("steal", "steal_share", None, UNKNOWN),
        ("memory", "available_memory", 4 << 30, GOOD),
        ("memory", "available_memory", 1 << 20, WARN),
        ("memory", "available_memory", None, UNKNOWN),
        ("kernel_stamps", "kernel_stamps", True, GOOD),
        ("kernel_stamps", "kernel_stamps", False, WARN),
        ("timers", "timer_lateness_us", [60.0] * 99 + [9e9], GOOD),
        ("timers", "timer_lateness_us", [900.0] * 100, WARN),
        ("timers", "timer_lateness_us", [9000.0] * 100, BAD),
    ],
)
def test_probes(monkeypatch, check, name, value, verdict):
    monkeypatch.setattr(probe, name, lambda *_: value)
    assert getattr(doctor, check)().verdict == verdict


@pytest.mark.parametrize(
    ("permitted", "verdict", "text"),
    [
        (lambda: True, GOOD, "permitted"),
        (lambda: False, WARN, "not permitted, CAP_NET_RAW is missing: --timestamps tap"),
        (no_such_socket, WARN, "no packet sockets"),
    ],
)
def test_packet_ring(monkeypatch, permitted, verdict, text):
    monkeypatch.setattr(tap, "permitted", permitted)
    finding = doctor.packet_ring()
    assert finding.verdict == verdict
    assert text in finding.text
    assert (finding.fix != "") == (verdict == WARN) and (finding.fix == tap.GRANT) == ("CAP_NET_RAW" in text)


@pytest.mark.parametrize(("hard", "verdict"), [(1024, BAD), (65_536, GOOD), (None, GOOD)])
def test_open_files(monkeypatch, hard, verdict):
    monkeypatch.setattr(limits, "file_limit", lambda: FileLimit(1024, hard))
    assert doctor.open_files().verdict == verdict


@pytest.mark.parametrize(("ports", "verdict"), [(28_232, GOOD), (1_000, WARN)])
def test_ports(monkeypatch, ports, verdict):
    monkeypatch.setattr(limits, "port_capacity", lambda n_sources: ports)
    assert doctor.ports().verdict == verdict


def test_modules_that_are_missing_are_named():
    finding = doctor._importable("libraries", ["json", "no_such_module_here"])
    assert finding.verdict == BAD
    assert "no_such_module_here" in finding.text
    assert "No module named" in finding.fix


@pytest.mark.parametrize(
    ("speed", "free", "verdict"), [(300e6, 9 << 30, GOOD), (1e6, 9 << 30, WARN), (300e6, 1 << 20, WARN)]
)
def test_disk(monkeypatch, tmp_path, speed, free, verdict):
    monkeypatch.setattr(probe, "disk_speed", lambda folder: speed)
    monkeypatch.setattr(probe, "free_disk", lambda folder: free)
    assert doctor.disk(tmp_path).verdict == verdict


def test_a_disk_that_cannot_be_written(monkeypatch, tmp_path):
    def refuse(folder):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(probe, "disk_speed", refuse)
    finding = doctor.disk(tmp_path)
    assert (finding.verdict, "Permission denied" in finding.text) == (BAD, True)


@pytest.mark.parametrize("below", ["", "deeper/runs"])
def test_a_file_in_place_of_the_folder_of_runs_is_a_finding(tmp_path, below):
    (tmp_path / "runs").touch()
    finding = doctor.disk(tmp_path / "runs" / below)
    assert (finding.verdict, "a file, not" in finding.text) == (BAD, True)
