"""The interface that leads to an address is the kernel's own choice; what it carried is the difference of its counters."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from fastllmload.host import interfaces
from fastllmload.host.interfaces import InterfaceCounters, Traffic, carriers, interface_to, link_speed, read_counters

HEAD = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
"""
SECOND = 1_000_000_000


def dev(path: Path, **numbers: tuple[int, ...]) -> Path:
    """A file as /proc/net/dev: of each interface bytes, packets, errors and drops of both directions."""
    rows = [
        f"{name:>6}: {' '.join(map(str, row[:4]))} 1 2 3 4 {' '.join(map(str, row[4:]))} 5 6 7 8\n"
        for name, row in numbers.items()
    ]
    path.write_text(HEAD + "".join(rows))
    return path


def test_counters_of_both_directions(tmp_path: Path) -> None:
    found = read_counters(dev(tmp_path / "dev", lo=(1,) * 8, eth0=(10, 11, 12, 13, 20, 21, 22, 23)))
    assert found["eth0"] == InterfaceCounters(
        rx_bytes=10, rx_packets=11, rx_errors=12, rx_dropped=13, tx_bytes=20, tx_packets=21, tx_errors=22, tx_dropped=23
    )
    assert list(found) == ["lo", "eth0"]


def test_a_system_without_proc_has_no_counters(tmp_path: Path) -> None:
    assert read_counters(tmp_path / "dev") == {}


def test_this_system_counts_what_the_loopback_interface_carries() -> None:
    before = read_counters()["lo"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        one.sendto(bytes(1_000), one.getsockname())
    after = read_counters()["lo"]
    assert after.tx_packets > before.tx_packets and after.rx_bytes >= before.rx_bytes + 1_000


def test_the_kernel_names_the_interface() -> None:
    assert interface_to("127.0.0.1") == "lo" == interface_to("127.0.0.1", "127.0.0.2")
    assert interface_to("fe80::1%eth7") == "eth7"
    assert interface_to("127.0.0.1", "::1") == "lo"  # a source of another family is not its source


def test_an_address_without_a_route_has_no_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    error = interfaces.HEADER.pack(36, 2, 0, 1, 0) + bytes(20)
    assert interfaces.out_index(error) is None
    monkeypatch.setattr(socket, "socket", denied)
    assert interface_to("127.0.0.1") is None


def denied(*arguments: object) -> socket.socket:
    raise PermissionError("no netlink in this sandbox")


def test_interfaces_below_one_count_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A VLAN of a bond of two ports, which both targets are behind."""
    for name, below in (("bond0.7", ["bond0"]), ("bond0", ["eth1", "eth0"]), ("eth0", []), ("eth1", [])):
        (tmp_path / name).mkdir()
        for one in below:
            (tmp_path / name / f"lower_{one}").touch()
    monkeypatch.setattr(interfaces, "interface_to", lambda address, source: "bond0.7")
    assert carriers(["10.0.0.1", "10.0.0.2"], net=tmp_path) == ("bond0.7", "bond0", "eth0", "eth1")


def test_only_a_link_with_a_device_has_a_speed(tmp_path: Path) -> None:
    lo = tmp_path / "lo"
    lo.mkdir()
    (lo / "ifindex").write_text(f"{socket.if_nametoindex('lo')}\n")
    (lo / "speed").write_text("25000\n")
    assert link_speed("lo", tmp_path) is None
    (lo / "device").mkdir()
    assert link_speed("lo", tmp_path) == 25_000_000_000
    for text in ("-1\n", ""):
        (lo / "speed").write_text(text)
        assert link_speed("lo", tmp_path) is None
    (lo / "speed").write_text("25000\n")
    (lo / "ifindex").write_text("99999\n")  # /sys shows another network namespace
    assert link_speed("lo", tmp_path) is None
    assert link_speed("eth7", tmp_path) is None


def test_traffic_is_what_came_in_between_with_its_busiest_second(tmp_path: Path) -> None:
    path = tmp_path / "dev"
    traffic = Traffic(("eth0", "gone", "new"), dev(path, eth0=(100, 10, 0, 0, 200, 20, 0, 0), gone=(0,) * 8))
    traffic.start(0)
    for second, row in ((1, (1_100, 20, 0, 1, 200, 20, 0, 0)), (2, (6_100, 90, 2, 5, 900, 27, 0, 3))):
        dev(path, eth0=row, new=(0,) * 8)
        traffic.take(second * SECOND)
    traffic.take(2 * SECOND + 100)  # too short for a rate
    dev(path, eth0=(7_100, 95, 2, 5, 900, 27, 0, 3), new=(5,) * 8)
    grown = traffic.stop(4 * SECOND)
    assert grown == {
        "eth0": {
            "rx_bytes": 7_000, "rx_packets": 85, "rx_errors": 2, "rx_dropped": 5,
            "tx_bytes": 700, "tx_packets": 7, "tx_errors": 0, "tx_dropped": 3,
        }
    }  # fmt: skip
    assert traffic.peaks["eth0"] == {"rx_bytes": 5_000.0, "tx_bytes": 700.0}


def test_without_interfaces_nothing_is_read(tmp_path: Path) -> None:
    traffic = Traffic((), tmp_path / "missing")
    traffic.start(0)
    traffic.take(SECOND)
    assert traffic.stop(2 * SECOND) == {} == traffic.peaks
