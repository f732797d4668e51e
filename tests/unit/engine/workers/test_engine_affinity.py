"""Unusable CPUs and source addresses are rejected by name before the run."""

import os

import pytest
from refusals import raises_code

from fastllmload.engine.workers.affinity import check_pinned_cpus, check_source_addresses, reachable_from

INET, INET6, SOCKET = ("inet", "10.0.0.1", 80), ("inet6", "2001:db8::1", 80), ("unix", "/run/s", 0)


def test_a_cpu_that_does_not_exist():
    before = os.sched_getaffinity(0)
    check_pinned_cpus(None)
    check_pinned_cpus(sorted(before))
    for beyond in (4_095, 10**30):
        with raises_code("cpu-unavailable", f"--pin names CPU {beyond},", f"can run on {min(before)}"):
            check_pinned_cpus((beyond,))
    assert os.sched_getaffinity(0) == before


@pytest.mark.parametrize(
    ("sources", "why"),
    [
        (("somewhere",), ("source-address-invalid", "'somewhere'")),
        (("192.0.2.1",), ("source-address-unusable", "192.0.2.1 ")),
        (("127.0.0.1", "::1"), ("source-address-family", "IPv4 and IPv6")),
    ],
)
def test_sources_that_cannot_be_used(sources, why):
    with raises_code(*why):
        check_source_addresses(sources)


def test_sources_of_this_host():
    check_source_addresses(())
    check_source_addresses(("127.0.0.1", "127.0.0.2"))


def test_targets_are_reached_from_addresses_of_their_family():
    assert reachable_from([INET6, INET, SOCKET], (), "t") == [INET6, INET, SOCKET]
    assert reachable_from([INET6, INET], ("127.0.0.2",), "t") == [INET]
    assert reachable_from([INET6, INET], ("::1",), "t") == [INET6]
    assert reachable_from([SOCKET], ("::1",), "t") == [SOCKET]
    with raises_code("source-address-family", "http://h has IPv4", "--source-address ::1"):
        reachable_from([INET], ("::1",), "http://h")
