"""The page of a run over many hosts has series of each host, whose sums are the totals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fastllmload._ext.record import counters as k
from fastllmload._ext.record import histogram
from fastllmload.engine.recording.prometheus import Collector
from fastllmload.engine.recording.totals import Totals
from fastllmload.engine.workers.fleet import WORDS, Fleet, HostState

parser = pytest.importorskip(
    "prometheus_client", reason="without the extra `prometheus` the page of --prometheus has no collector to test"
)
HOSTS = (
    HostState(0, "node-0", "running", 0.1),
    HostState(1, "node-1", "late", 3.5),
    HostState(2, "node-2", "lost", 10.0),
)
LABELS = "host", "status"


class ManyHosts(Fleet):
    """A worker on each of *hosts*, with counters and lags that the test sets."""

    def __init__(self, hosts: Sequence[HostState]) -> None:
        super().__init__()
        rows = len(hosts) or 1
        self.states = hosts
        self.lags = np.zeros((rows, histogram.WORDS), np.int64)
        self.members = [
            SimpleNamespace(words=np.zeros(k.WORDS, np.int64), died=n < len(hosts) and hosts[n].status == "lost")
            for n in range(rows)
        ]  # type: ignore[assignment]

    def hosts(self) -> Sequence[HostState]:
        return self.states

    def words_by_host(self, words: Sequence[int] = WORDS) -> Any:
        return self.living_levels(np.array([member.words[list(words)] for member in self.members]), words)

    def histogram(self, number: int) -> Any:
        return self.lags.sum(axis=0)

    def lags_by_host(self) -> Any:
        return self.lags

    def work(self, seed: int) -> None:
        """Let all counters and lags grow."""
        rng = np.random.default_rng(seed)
        for member, lags in zip(self.members, self.lags, strict=True):
            member.words[:] += rng.integers(0, 50, k.WORDS)
            histogram.record_many(lags, rng.integers(1_000, 10**7, 20))


def page(fleet: ManyHosts) -> dict[str, Any]:
    totals = Totals()
    totals.attach(fleet)
    fleet.work(1)
    totals.begin("warmup", None)
    fleet.work(2)
    totals.begin("measure", 50.0)
    fleet.work(3)
    return {family.name: family for family in Collector(totals).collect()}


def sums(family: Any) -> dict[tuple[Any, ...], float]:
    """The values by name of the sample without its prefix, and by all labels but the host's."""
    found: dict[tuple[Any, ...], float] = defaultdict(float)
    for sample in family.samples:
        labels = tuple(sorted((name, value) for name, value in sample.labels.items() if name != "host"))
        found[sample.name.replace("fastllmload_host_", "fastllmload_"), labels] += sample.value
    return dict(found)


def test_the_sums_over_hosts_are_the_totals() -> None:
    found = page(ManyHosts(HOSTS))
    of_hosts = [name for name in found if name.startswith("fastllmload_host_")]
    assert len(of_hosts) == 15
    for name in of_hosts:
        if name in ("fastllmload_host_status", "fastllmload_host_silence_seconds"):
            continue
        total = {key: value for key, value in sums(found[name.replace("_host_", "_")]).items() if value}
        assert total and {key: value for key, value in sums(found[name]).items() if value} == pytest.approx(total), name
        assert {sample.labels["host"] for sample in found[name].samples} == {"node-0", "node-1", "node-2"}, name


def test_levels_are_those_of_hosts_that_live() -> None:
    family = page(ManyHosts(HOSTS))["fastllmload_host_requests_in_flight"]
    levels = {sample.labels["host"]: sample.value for sample in family.samples}
    assert levels["node-2"] == 0 < levels["node-0"]


def test_each_host_has_one_status() -> None:
    found = page(ManyHosts(HOSTS))
    status = [tuple(s.labels[name] for name in LABELS) for s in found["fastllmload_host_status"].samples if s.value]
    assert status == [("node-0", "running"), ("node-1", "late"), ("node-2", "lost")]
    silence = {s.labels["host"]: s.value for s in found["fastllmload_host_silence_seconds"].samples}
    assert silence == {"node-0": 0.1, "node-1": 3.5, "node-2": 10.0}


def test_a_run_of_one_host_has_no_series_of_hosts() -> None:
    found = page(ManyHosts(()))
    assert len(found) > 10 and not [name for name in found if "_host_" in name]
