"""Each host decides about its own packet ring: where it is not permitted, `tap` is refused and `auto` does without it."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace
from refusals import raises_code

from fastllmload.documents.fields import known
from fastllmload.engine.hosts.link.messages import AgentConfig
from fastllmload.engine.hosts.placement.local import AGENT, LocalHandle, LocalPlacement
from fastllmload.engine.recording.tap import permitted
from fastllmload.engine.run import execute
from fastllmload.records import layout
from fastllmload.records.run import load
from fastllmload.report.terminal.view import make_ui
from fastllmload.settings import Client, Hosts, Load, Output, RunSettings, Target, Workload
from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions

pytestmark = pytest.mark.skipif(not permitted(), reason="CAP_NET_RAW is missing")

DROP = (
    "import ctypes, os, sys\n"
    "ctypes.CDLL(None).prctl(24, 13, 0, 0, 0)\n"  # PR_CAPBSET_DROP CAP_NET_RAW: gone with the next exec
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])\n"
)
WITHOUT_RING = (sys.executable, "-c", DROP, *AGENT[1:])


class LastWithoutRing(LocalPlacement):
    """Of its agents the last one lacks the privilege."""

    def start(self, configs: Sequence[AgentConfig]) -> list[LocalHandle]:
        last = len(configs) - 1
        self.handles += [LocalHandle(one, WITHOUT_RING if one.host == last else AGENT) for one in configs]
        return self.handles


@pytest.fixture
def server() -> Iterator[SimulatorProcess]:
    with SimulatorProcess(SimulatorOptions(ttft_ms=5.0, itl_ms=2.0)) as started:
        yield started


def asked(folder: Path, url: str, timestamps: str) -> RunSettings:
    """As many workers on each host as it has cores: `auto` takes the ring then."""
    return RunSettings(
        target=Target(urls=(url,)),
        load=Load(rate=40.0, duration=1.0, warmup_requests=2),
        workload=Workload(isl="16", osl="8"),
        client=Client(workers=len(os.sched_getaffinity(0)), timestamps=timestamps),
        output=Output(directory=str(folder), ui="none"),
    )


def test_where_a_host_may_not_open_it_the_run_is_refused_with_its_name(
    tmp_path: Path, server: SimulatorProcess
) -> None:
    with raises_code("tap-unavailable", "host 1 (", "CAP_NET_RAW is missing", "setcap") as refused:
        execute(asked(tmp_path / "run", server.url, "tap"), None, quiet(), placement=LastWithoutRing(2))
    assert "host 0" not in str(refused.value)
    assert not (tmp_path / "run" / "run.json").exists()


def test_auto_takes_the_ring_where_it_can(tmp_path: Path, server: SimulatorProcess) -> None:
    folder = tmp_path / "run"
    assert execute(asked(folder, server.url, "auto"), None, quiet(), placement=LastWithoutRing(2)) == 0
    run = load(folder)
    with_ring, without = run.document.hosts
    assert (with_ring.timestamps, without.timestamps) == ("tap", "kernel")
    assert with_ring.tap is not None and without.tap is None and run.document.tap is not None
    assert run.document.tap.joined == with_ring.tap.joined and run.document.config.client.timestamps == "auto"
    joined = (run.event_stamp & layout.STAMP_CLASS_MASK) == layout.STAMP_TAP
    assert set(run.rows["worker"][run.events["row"][joined]]) <= set(with_ring.workers) and joined.any()
    sources = [host.certificate.timestamp_source for host in run.document.hosts if host.certificate is not None]
    assert sources == ["tap", "kernel"]


def test_segments_stay_with_events_that_stay_on_their_host(
    tmp_path: Path, server: SimulatorProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # where agents keep their folders
    folder = tmp_path / "run"
    settings = replace(asked(folder, server.url, "tap"), hosts=Hosts(collect="summary"))
    assert execute(settings, None, quiet(), placement=LocalPlacement(2)) == 0
    document = load(folder).document
    taps = [host.tap for host in document.hosts]
    assert all(tap is not None and tap.joined == tap.events and (known(tap.events) or 0) > 50 for tap in taps)
    assert [host.timestamps for host in document.hosts] == ["tap", "tap"]
    assert document.certificate.timestamp_source == "tap" and not list(folder.rglob("tap.bin"))
    total = document.tap
    assert total is not None and total.joined == sum(known(tap.joined) or 0 for tap in taps if tap is not None)
    assert total.matched_share == 1.0
    for host in document.hosts:
        kept = Path(str(host.folder))
        assert (kept / "hosts" / str(host.host) / "tap.bin").exists()
        own = load(kept)
        assert set(own.event_stamp & layout.STAMP_CLASS_MASK) == {layout.STAMP_TAP}
        assert own.document.tap is not None and own.document.tap.joined == len(own.events)


def quiet() -> object:
    return make_ui("none", io.StringIO())
