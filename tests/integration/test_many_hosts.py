"""Whole runs from several agents on this machine: one plan, one record, and nothing that stays when a process dies."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kept_events import differences
from msgspec.structs import replace
from refusals import codes, raises_code
from support.local_hosts import (
    Apart,
    Watching,
    agents_folder,
    asked,
    fill,
    made_apart,
    of_process,
    ours,
    small_disk,
    wait,
)

from fastllmload._ext.record import counters as k
from fastllmload._ext.record import histogram
from fastllmload.certificate.judge import judged
from fastllmload.certificate.monitor import join_watches
from fastllmload.documents.fields import without
from fastllmload.documents.write import encoded
from fastllmload.endpoint import template
from fastllmload.engine.hosts.fleet import HostFleet
from fastllmload.engine.hosts.link.messages import AgentConfig
from fastllmload.engine.hosts.placement.local import AGENT, LocalHandle, LocalPlacement
from fastllmload.engine.run import execute
from fastllmload.metrics.run.measure import measure
from fastllmload.metrics.run.per_backend import backends_of_rows
from fastllmload.records import layout
from fastllmload.records.hosts import read_clocks, with_clocks
from fastllmload.records.merge import PlannedPhase, merge_workers
from fastllmload.records.run import Run, load, read_document
from fastllmload.settings import Client, Hosts, Output, Secret, Workload
from fastllmload.simulator import truth
from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions

KEPT = ["host.json", "hosts", "workers"]  # of the folder of an agent that ended alone
KEY = "sk-canary-of-many-hosts"
DRIVER = Path(__file__).parents[1] / "support" / "driver_of_local_hosts.py"
scratch = agents_folder()


@pytest.fixture
def fleets(monkeypatch: pytest.MonkeyPatch) -> list[HostFleet]:
    """The fleets that have finished."""
    found: list[HostFleet] = []
    finish = HostFleet.finish

    def finishing(fleet: HostFleet, folder: Path) -> dict[str, Any]:
        found.append(fleet)
        return finish(fleet, folder)

    monkeypatch.setattr(HostFleet, "finish", finishing)
    return found


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SimulatorProcess]:
    options = SimulatorOptions(ttft_ms=5.0, itl_ms=2.0, any_model=True, truth=str(tmp_path / "truth.log"))
    with SimulatorProcess(options) as started:
        yield started


def test_two_hosts_send_a_plan_once_and_leave_the_folder_of_one_host(
    tmp_path: Path, server: SimulatorProcess, scratch: Path, fleets: list[HostFleet]
) -> None:
    snapshots: list[Any] = []
    views = Watching(snapshots.append), Watching()
    settings = asked(tmp_path / "many", server.url, rate=60.0, duration=2.0)
    assert execute(settings, None, views[0], placement=LocalPlacement(2)) == 0
    assert execute(replace(settings, output=Output(directory=str(tmp_path / "one"))), None, views[1]) == 0
    many, one = (load(tmp_path / name) for name in ("many", "one"))
    server.stop()
    phase = many.phase("measure")
    assert phase is not None and not many.incomplete and not many.damaged
    measured = many.rows[many.rows["phase"] == layout.MEASURE]
    planned = np.load(tmp_path / "many" / "plan" / "schedule.npy")["t_sched_ns"]
    assert measured["request"].tolist() == list(range(len(planned)))
    assert (measured["t_sched"] - phase.start_ns == planned).all() and (measured["status"] == layout.OK).all()
    assert (measured["worker"] == np.arange(len(planned)) % 4).all()
    assert views[0].document["plan"]["digest"] == views[1].document["plan"]["digest"]
    last = snapshots[-1]
    assert [(host.number, host.status) for host in last.hosts] == [(0, "running"), (1, "running")]
    for name, total in (("sent", last.released), ("ok", last.ok), ("failed", 0), ("in_flight", 0)):
        assert sum(getattr(host, name) for host in last.hosts) == total, name
    assert all(host.sent and host.lag_p99_us is not None and host.silent_s < 5 for host in last.hosts)
    for watch in (*(host.watch for host in many.document.hosts), one.document.watch):
        assert [(each.name, each.speed_bits_per_s) for each in watch.interfaces] == [("lo", None)]
        assert watch.interfaces[0].rx_packets > 0 and watch.interfaces[0].peak_tx_bytes_per_s > 0
    # The server received each request of each run once.
    received = truth.load(str(tmp_path / "truth.log")).requests
    keys = received[received["phase"] == 1]["key"]
    assert sorted(keys.tolist()) == sorted([*range(len(planned))] * 2)
    # What the driver has of the workers' memory is what the rows give.
    fleet = fleets[0]
    e2e = histogram.empty()
    histogram.record_many(e2e, np.ascontiguousarray(measured["t_last"] - measured["t_submit"]))
    assert (fleet.histogram(k.H_E2E) == e2e).all()
    answered = many.rows[many.rows["status"] == layout.OK]
    assert histogram.total(fleet.histogram(k.H_LAG)) == len(measured)
    counted = {k.W_RELEASED: len(many.rows), k.W_OK: len(answered), k.W_ENDED: len(many.rows), k.W_IN_FLIGHT: 0}
    assert {word: fleet.total(word) for word in counted} == counted
    assert fleet.total(k.W_CONTENT_EVENTS) == int((many.events["kind"] == layout.EVENT_CONTENT).sum())
    # The folder has the form of that of one host.
    assert views[0].document.keys() - {"hosts"} == views[1].document.keys()
    files = [{each.name for each in (tmp_path / name).iterdir()} for name in ("many", "one")]
    assert files[0] ^ files[1] == {"hosts"}
    used = many.samples[many.samples["rss_bytes"] > 0]  # 0: the process had ended
    assert sorted(set(used["worker"])) == [0, 1, 2, 3] and len(used) > len(many.samples) / 2
    assert [(each["workers"], each["status"]) for each in views[0].document["hosts"]] == [
        ([0, 1], "ended"),
        ([2, 3], "ended"),
    ]
    for number in ("0", "1"):
        of_host = {each.name for each in (tmp_path / "many" / "hosts" / number).iterdir()}
        assert of_host == {
            "hiccup.npy", "hiccup_intervals.npy", "stalls.npy", "histograms.npy", "worker_stalls.npy", "samples.npy",
            "clock.npy", "finished.json",
        }  # fmt: skip
        exchanges = np.load(tmp_path / "many" / "hosts" / number / "clock.npy")
        assert len(exchanges) > 32 and exchanges.shape[1] == 4
    # One machine has one clock: the bound contains the true difference, which is 0.
    clocks = [each["clock"] for each in views[0].document["hosts"]]
    assert all(clock["bound_ns"] < 5_000_000 for clock in clocks)
    moved = measured["t_dispatch"] - measured["t_sched"]
    assert (moved > -5_000_000).all()
    stalled = np.load(tmp_path / "many" / "hosts" / "1" / "worker_stalls.npy")
    assert set(stalled[:, 0]) <= {2, 3}
    assert views[0].document["certificate"]["verdict"] in ("valid", "suspect", "invalid")
    assert (tmp_path / "many" / "report.html").exists() and not list(scratch.iterdir())
    assert one.rows.dtype == many.rows.dtype


def test_hosts_need_no_file_of_a_protocol(tmp_path: Path, server: SimulatorProcess, scratch: Path) -> None:
    """What the file says travels in the settings: the file is gone before the agents start."""
    file = tmp_path / "server.toml"
    file.write_text(
        'path = "/generate_stream"\nbody = { inputs = "{prompt}", parameters = { max_new_tokens = "{max_tokens}", '
        'details = true } }\ntext = "token.text"\nfinish = "details.finish_reason"\n'
        'completion_tokens = "details.generated_tokens"\n'
    )
    settings = asked(tmp_path / "run", server.url, rate=40.0, num_requests=40)
    target = replace(settings.target, endpoint_type=template.read(str(file)), model="simulated")
    file.unlink()
    view = Watching()
    assert execute(replace(settings, target=target), None, view, placement=LocalPlacement(2)) == 0
    server.stop()
    rows = load(tmp_path / "run").rows
    measured = np.sort(rows[rows["phase"] == layout.MEASURE], order="request")
    assert (measured["status"] == layout.OK).all() and set(measured["worker"]) == {0, 1, 2, 3}
    received = truth.load(str(tmp_path / "truth.log")).requests
    received = np.sort(received[received["phase"] == 1], order="key")
    assert list(measured["request"]) == list(received["key"]) == list(range(40))
    assert list(measured["completion_tokens"]) == list(received["output_tokens"])
    assert view.document["target"]["endpoint_type"] == "server.toml"


@pytest.mark.parametrize("kept", ["rows", "summary"])
def test_backends_have_the_same_names_on_all_hosts(tmp_path: Path, scratch: Path, kept: str) -> None:
    """Each worker numbers them as they come; the report joins them by name, also where events stay on their hosts."""
    log = tmp_path / "truth.log"
    options = SimulatorOptions(ttft_ms=5.0, itl_ms=2.0, any_model=True, truth=str(log), backends=3)
    with SimulatorProcess(options) as server:
        settings = asked(tmp_path / "run", server.url, rate=60.0, num_requests=90)
        target = replace(settings.target, backend_header="X-Backend")
        view = Watching()
        hosts = Hosts(collect=kept)
        assert execute(replace(settings, target=target, hosts=hosts), None, view, placement=LocalPlacement(2)) == 0
    received = truth.load(str(log))
    mine = received.requests[received.requests["phase"] == 1]
    theirs = {int(one["key"]): received.notes[int(one["serial"])].removeprefix("backend: ") for one in mine}
    figures = view.document["backends"]
    assert {one["name"]: one["sent"] for one in figures["each"]} == dict(Counter(theirs.values()))
    assert all(one["ttft"]["n"] == one["tpot"]["n"] == one["ok"] == one["sent"] for one in figures["each"])
    assert {each["worker"] for each in view.document["backend_names"]} == {0, 1, 2, 3}
    run = load(tmp_path / "run")
    found = backends_of_rows(run)
    assert found is not None
    measured = run.rows["phase"] == layout.MEASURE
    named = zip(run.rows["request"][measured].tolist(), found.of_row[measured].tolist(), strict=True)
    assert {request: found.names[number] for request, number in named} == theirs


@pytest.mark.parametrize(("cap", "until"), [("max_concurrency", "t_end"), ("max_prefill", "t_first")])
def test_a_cap_below_the_number_of_hosts_holds_for_all_together(
    tmp_path: Path, server: SimulatorProcess, scratch: Path, cap: str, until: str
) -> None:
    """Hosts that would have no request are left out, and the record names them."""
    waited: list[int | None] = []
    view = Watching(lambda snapshot: waited.append(snapshot.waiting))
    settings = asked(tmp_path / "run", server.url, rate=300.0, num_requests=60, **{cap: 2})
    assert execute(settings, None, view, placement=LocalPlacement(3)) == 0
    server.stop()
    received = truth.load(str(tmp_path / "truth.log")).requests
    received = received[received["phase"] == 1]
    times = np.concatenate([received["t_recv_first"], received[until]])
    steps = np.repeat([1, -1], len(received))[np.argsort(times)]
    assert len(received) == 60 and steps.cumsum().max() == 2
    assert [host["host"] for host in view.document["hosts"]] == [0, 1]
    assert codes(view.document["target"]["notes"]) == ["hosts-unused"]
    assert all(0 <= each <= 2 for each in waited if each is not None) and (None in waited) is (cap == "max_concurrency")


@pytest.mark.parametrize("turns", [None, "3"])
def test_slots_of_a_closed_loop_are_those_of_all_hosts_together(
    tmp_path: Path, server: SimulatorProcess, scratch: Path, turns: str | None
) -> None:
    """Seven slots of four workers; a conversation stays with its worker."""
    settings = asked(tmp_path / "run", server.url, concurrency=7, num_requests=31, warmup_requests=0)
    settings = replace(settings, workload=Workload(isl="16", osl="8", turns=turns))
    most: list[int] = []
    view = Watching(lambda snapshot: most.append(snapshot.in_flight))
    assert execute(settings, None, view, placement=LocalPlacement(2)) == 0
    rows = load(tmp_path / "run").rows
    begun = rows[rows["turn"] == 0]
    assert sorted(begun["session"]) == list(range(31)) and max(most) <= 7
    assert (begun["worker"] == begun["session"].astype(int) % 7 % 4).all()
    assert all(len(set(rows["worker"][rows["session"] == each])) == 1 for each in range(31))


def test_a_host_that_dies_is_reported_and_what_was_copied_stays(
    tmp_path: Path, server: SimulatorProcess, scratch: Path
) -> None:
    placement = LocalPlacement(2)

    def kill(snapshot: Any) -> None:
        if snapshot.phase == "measure" and snapshot.t > 4.0 and placement.handles[1].poll() is None:
            placement.handles[1].kill()

    view = Watching(kill)
    settings = asked(tmp_path / "run", server.url, rate=40.0, duration=6.0)
    assert execute(settings, None, view, placement=placement) == 2
    document = view.document
    assert document["status"] == "partial" and document["certificate"]["verdict"] != "valid"
    assert codes(document["incidents"]).count("host-lost") == 1
    assert [each["status"] for each in document["hosts"]] == ["ended", "lost"]
    assert [each["died"] for each in document["workers"]] == [False, False, True, True]
    rows = load(tmp_path / "run").rows
    measured = rows[rows["phase"] == layout.MEASURE]
    planned = len(np.load(tmp_path / "run" / "plan" / "schedule.npy"))
    assert measured["request"].tolist() == list(range(planned))
    here = measured[np.isin(measured["worker"], (0, 1))]
    assert (here["status"] == layout.OK).all()  # the other host sent its part to the end
    there = measured[np.isin(measured["worker"], (2, 3)) & (measured["status"] != layout.NOT_SENT)]
    assert len(there) > 20


def test_hosts_that_keep_their_events_give_the_figures_of_all_events(
    tmp_path: Path, server: SimulatorProcess, scratch: Path
) -> None:
    """The driver has the requests; what it says of events is what a run says that has the files of all hosts."""
    view = Watching()
    asked_for = replace(
        asked(tmp_path / "run", server.url, rate=60.0, duration=3.0),
        hosts=Hosts(collect="summary"),
        output=Output(directory=str(tmp_path / "run"), ui="none", goodput=(("ttft", 50.0), ("itl", 20.0))),
    )
    assert execute(asked_for, None, view, placement=LocalPlacement(2)) == 0
    run = load(tmp_path / "run")
    folders = [Path(str(host.folder)) for host in run.document.hosts]
    assert sorted(folders) == sorted(scratch.iterdir())
    assert codes(line for line in view.lines if line.endswith("]")).count("events-on-host") == 2
    assert not run.damaged and not len(run.events) and run.event_count == sum(run.rows["events"])
    names = {each.name for each in (tmp_path / "run").iterdir()}
    assert {"requests.npy", "event_totals.npy", "report.html", "latency.hlog"} <= names and "workers" not in names
    assert "merged-histograms" in (tmp_path / "run" / "report.md").read_text()
    assert "merged-histograms" in (tmp_path / "run" / "report.html").read_text()
    assert not [each for each in run.manifest["incidents"] if "[run-file-damaged]" in each]
    gathered = tmp_path / "gathered"
    for number, folder in enumerate(folders):
        shutil.copytree(folder / "workers", gathered / "workers", dirs_exist_ok=True)
        shutil.copytree(folder / "hosts" / str(number), gathered / "hosts" / str(number))
    full = measured_from(gathered, tmp_path / "run")
    different = [name for name in layout.REQUEST.names or () if (full.rows[name] != run.rows[name]).any()]
    assert set(different) <= {"t_sched"} and len(full.events) == run.event_count
    measured = run.rows["phase"] == layout.MEASURE
    assert (full.rows[measured] == run.rows[measured]).all()  # the plan of the warm-up is not in a run folder
    assert not differences(full.manifest, run.manifest)
    # Each host's folder is a run that can be opened there.
    for number, folder in enumerate(folders):
        own = load(folder)
        mine = run.rows["worker"] // 2 == number
        assert len(own.rows) == mine.sum() and len(own.events) == run.rows["events"][mine].sum()
        assert own.verdict is not None and not own.damaged and not (folder / "tls").exists()
        assert not list(folder.rglob("bodies.bin"))


def measured_from(folder: Path, driver: Path) -> Run:
    """The run in *folder*, with the files of all hosts, measured and judged as one whose events were copied."""
    shutil.copytree(driver / "plan", folder / "plan")
    document = read_document(driver)
    known = document.metrics or {}  # some are of telemetry, which has no part in this
    document = without(document, ("files", "metrics", "certificate"))
    (folder / "run.json").write_bytes(encoded(document))
    hosts = with_clocks(folder, document.hosts)
    join_watches(folder, hosts, read_clocks(folder, hosts))
    schedule = np.load(folder / "plan" / "schedule.npy")
    start_ns = next(phase.start_ns for phase in document.phases if phase.name == "measure")
    planned = PlannedPhase(
        layout.MEASURE, schedule["t_sched_ns"] + start_ns, schedule["input_tokens"], schedule["output_tokens"],
        schedule["request_class"],
    )  # fmt: skip
    merge_workers(folder, [planned], hosts=hosts)
    run = load(folder).with_document(document)
    measured = measure(run)
    run = run.with_document(replace(measured, metrics={**known, **(measured.metrics or {})}))
    return run.with_document(judged(run))


def test_a_host_that_cannot_summarise_is_lost(tmp_path: Path, server: SimulatorProcess, scratch: Path) -> None:
    """Its agent dies when the driver asks: no request of it is in a figure, and what it wrote stays on its disk."""
    placement = LocalPlacement(2)
    view = Watching()
    settings = replace(asked(tmp_path / "run", server.url, rate=40.0, duration=2.0), hosts=Hosts(collect="summary"))
    with pytest.MonkeyPatch.context() as patch:
        ask = HostFleet.ask

        def asking(fleet: HostFleet, *given: Any) -> dict[int, str]:
            placement.handles[1].kill()
            placement.handles[1].process.wait()
            return ask(fleet, *given)

        patch.setattr(HostFleet, "ask", asking)
        assert execute(settings, None, view, placement=placement) == 2
    document = view.document
    assert document["certificate"]["verdict"] == "invalid" and "host-lost" in codes(document["incidents"])
    assert [each["status"] for each in document["hosts"]] == ["ended", "lost"]
    rows = load(tmp_path / "run").rows
    there = np.isin(rows["worker"], (2, 3))
    assert (rows["status"][there] == layout.HOST_LOST).all() and (rows["status"][~there] == layout.OK).all()
    kept = Path(document["hosts"][1]["folder"])
    assert list(kept.glob("workers/*/tokens.npy"))


def test_a_run_whose_tokens_are_counted_in_texts_is_refused(
    tmp_path: Path, server: SimulatorProcess, scratch: Path
) -> None:
    settings = asked(tmp_path / "run", server.url, rate=20.0, num_requests=5)
    client = Client(workers=2, timestamps="kernel", record_text="on")
    with raises_code("option-not-applicable", "--collect summary"):
        execute(
            replace(settings, client=client, hosts=Hosts(collect="summary")), None, Watching(),
            placement=LocalPlacement(1),
        )  # fmt: skip


def test_a_run_can_end_with_the_first_host_that_is_lost(
    tmp_path: Path, server: SimulatorProcess, scratch: Path
) -> None:
    placement = LocalPlacement(2)

    def kill(snapshot: Any) -> None:
        if snapshot.phase == "measure" and snapshot.ok:
            placement.handles[0].kill()

    settings = asked(tmp_path / "run", server.url, rate=40.0, duration=30.0)
    settings = replace(settings, hosts=Hosts(on_host_loss="stop"))
    began = time.monotonic()
    view = Watching(kill)
    assert execute(settings, None, view, placement=placement) == 2
    assert time.monotonic() - began < 30.0
    assert view.document["status"] == "partial"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_driver_that_ends_leaves_no_process(
    tmp_path: Path, server: SimulatorProcess, scratch: Path, number: signal.Signals
) -> None:
    """After SIGINT it ends as on one host; when it is killed, the agents end by themselves and keep their folders."""
    driver = subprocess.Popen([sys.executable, str(DRIVER), str(tmp_path / "run"), server.url, "40", "60"])
    rows = tmp_path / "run" / "workers"
    wait(lambda: sum(each.stat().st_size for each in rows.glob("*/requests.npy")) > 20_000 if rows.exists() else False)
    driver.send_signal(number)
    code = driver.wait(60)
    wait(lambda: not ours(scratch), 15.0)
    run = load(tmp_path / "run")
    assert (run.rows["status"] == layout.OK).sum() > 20
    if number == signal.SIGINT:
        assert code == 4 and run.document.status == "interrupted" and not list(scratch.iterdir())
        return
    kept = [Path(each["folder"]) for each in run.manifest["hosts"]]
    assert sorted(scratch.iterdir()) == sorted(kept)
    here = [sum(each.stat().st_size for each in folder.glob("workers/*/requests.npy")) for folder in kept]
    assert min(here) > 10_000 and not list(scratch.glob("*/plans"))


@pytest.fixture
def limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A small file system for the folders of agents."""
    with small_disk(tmp_path / "small") as folder:
        monkeypatch.setenv("TMPDIR", str(folder))
        yield folder


def test_a_host_whose_disk_is_full_stops_the_load_of_all(
    tmp_path: Path, server: SimulatorProcess, limited: Path
) -> None:
    def use_up(snapshot: Any) -> None:
        if snapshot.phase == "measure" and snapshot.ok > 20 and not (limited / "ballast").exists():
            fill(limited)

    view = Watching(use_up)
    settings = asked(tmp_path / "run", server.url, rate=400.0, duration=30.0)
    began = time.monotonic()
    assert execute(settings, None, view, placement=LocalPlacement(2)) == 2
    assert time.monotonic() - began < 30.0
    assert view.document["status"] == "partial" and view.document["disk_full"]
    assert "disk-full" in codes(view.document["incidents"])
    assert [each["status"] for each in view.document["hosts"]] == ["ended", "ended"]
    rows = load(tmp_path / "run").rows
    assert (rows["status"] == layout.OK).sum() > 20


@pytest.mark.parametrize("on_loss", ["continue", "stop"])
def test_the_disk_of_one_host_is_full(
    tmp_path: Path, server: SimulatorProcess, scratch: Path, limited: Path, on_loss: str
) -> None:
    """It is named at once and sends no more; the others go ahead, or end as well."""

    class OneLimited(LocalPlacement):
        def start(self, configs: Sequence[AgentConfig]) -> list[LocalHandle]:
            folders = (scratch, limited)
            self.handles += [
                LocalHandle(config, ("env", f"TMPDIR={folder}", *AGENT))
                for config, folder in zip(configs, folders, strict=True)
            ]
            return self.handles

    def use_up(snapshot: Any) -> None:
        if snapshot.phase == "measure" and snapshot.ok > 20 and not (limited / "ballast").exists():
            fill(limited)

    view = Watching(use_up)
    settings = asked(tmp_path / "run", server.url, rate=400.0, duration=10.0)
    settings = replace(settings, hosts=Hosts(on_host_loss=on_loss))
    assert execute(settings, None, view, placement=OneLimited(2)) == 2
    assert codes(view.document["incidents"]).count("host-disk-full") == 1
    assert [host["disk_full"] for host in view.document["hosts"]] == [False, True]
    assert view.document["status"] == "partial" and view.document["certificate"]["verdict"] == "invalid"
    (reason,) = [one for one in view.document["certificate"]["reasons"] if one["code"] == "disk_full"]
    assert reason["hosts"] == [1]
    rows = load(tmp_path / "run").rows
    measured = rows[rows["phase"] == layout.MEASURE]
    unsent = [(measured["status"][measured["worker"] // 2 == host] == layout.NOT_SENT).sum() for host in (0, 1)]
    assert unsent[1] > 100 and (unsent[0] == 0 if on_loss == "continue" else unsent[0] > 100)


def test_a_second_interrupt_cuts_what_the_first_one_lets_end(tmp_path: Path, scratch: Path) -> None:
    """Answers take long, and so does the check of the target before the run, for which agents wait. The first SIGINT stops
    sending on all hosts and waits, the second one cancels.
    """
    with SimulatorProcess(SimulatorOptions(ttft_ms=5.0, itl_ms=4000.0, any_model=True)) as slow:
        driver = subprocess.Popen([sys.executable, str(DRIVER), str(tmp_path / "run"), slow.url, "20", "60", "0"])
        workers = tmp_path / "run" / "workers"
        wait(lambda: all(written(workers / worker) > 10 for worker in "01"))
        driver.send_signal(signal.SIGINT)
        time.sleep(4.0)  # rows of what is sent after it would arrive meanwhile
        assert driver.poll() is None
        sent = [written(workers / worker) for worker in "01"]
        time.sleep(3.0)
        assert [written(workers / worker) for worker in "01"] == sent
        driver.send_signal(signal.SIGINT)
        assert driver.wait(60) == 4
    run = load(tmp_path / "run")
    assert run.document.status == "interrupted" and [host.status for host in run.document.hosts] == ["ended"] * 2
    dispatched = run.rows[run.rows["t_dispatch"] > 0]
    assert len(dispatched) == sum(sent) and set(dispatched["status"]) == {layout.CANCELLED}
    assert set(dispatched["worker"]) == {0, 1} and not list(scratch.iterdir())


def written(worker: Path) -> int:
    """Rows of *worker* that have been copied."""
    rows = worker / "requests.npy"
    return (rows.stat().st_size - 4096) // layout.REQUEST.itemsize if rows.exists() else 0


def test_a_driver_that_is_frozen_disturbs_nothing(tmp_path: Path, server: SimulatorProcess, scratch: Path) -> None:
    """For longer than a host may be silent. The agents send what is due; the driver gets all of it when it runs again."""
    driver = subprocess.Popen([sys.executable, str(DRIVER), str(tmp_path / "run"), server.url, "40", "16"])
    rows = tmp_path / "run" / "workers"
    wait(lambda: sum(each.stat().st_size for each in rows.glob("*/requests.npy")) > 20_000 if rows.exists() else False)
    driver.send_signal(signal.SIGSTOP)
    time.sleep(12.0)
    driver.send_signal(signal.SIGCONT)
    assert driver.wait(60) == 0
    run = load(tmp_path / "run")
    measured = run.rows[run.rows["phase"] == layout.MEASURE]
    assert not run.incomplete and (measured["status"] == layout.OK).all()
    assert len(measured) == len(np.load(tmp_path / "run" / "plan" / "schedule.npy"))
    assert [each["status"] for each in run.manifest["hosts"]] == ["ended", "ended"]


@pytest.fixture
def apart() -> Iterator[Apart]:
    with made_apart() as placement:
        yield placement


def test_a_host_that_is_cut_off_ends_by_itself_and_the_rest_continues(
    tmp_path: Path, scratch: Path, apart: Apart
) -> None:
    cut, ended = [], []

    def watch(snapshot: Any) -> None:
        if snapshot.phase != "measure" or snapshot.t < 2.0:
            return
        if not cut:
            apart.cut()
            cut.append(time.monotonic())
        if not ended and apart.handles[1].poll() is not None:
            ended.append(time.monotonic())

    options = SimulatorOptions(host=apart.driver_address, ttft_ms=5.0, itl_ms=2.0, any_model=True)
    with SimulatorProcess(options) as server:
        view = Watching(watch)
        settings = asked(tmp_path / "run", server.url, rate=40.0, duration=20.0, timeout=5.0)
        assert execute(settings, None, view, placement=apart) == 2
    assert codes(view.document["incidents"]).count("host-lost") == 1
    assert [each["status"] for each in view.document["hosts"]] == ["ended", "lost"]
    assert ended[0] - cut[0] < 12.0  # 10 s, and what the machine adds
    rows = load(tmp_path / "run").rows
    measured = rows[rows["phase"] == layout.MEASURE]
    assert (measured["status"][np.isin(measured["worker"], (0, 1))] == layout.OK).all()
    (kept,) = scratch.iterdir()
    assert sorted(each.name for each in kept.iterdir()) == ["host.json", "hosts", "workers"]


def test_the_key_is_in_no_file_command_line_or_environment(
    tmp_path: Path, server: SimulatorProcess, scratch: Path
) -> None:
    seen: dict[str, int] = {}

    def search(snapshot: Any) -> None:
        for pid in ours(scratch):
            for name in ("cmdline", "environ"):
                seen[name] = seen.get(name, 0) + (KEY in of_process(pid, name))
        for path in scratch.rglob("*"):
            if path.is_file():
                seen["files"] = seen.get("files", 0) + (KEY.encode() in path.read_bytes())

    os.environ["OPENAI_API_KEY"] = KEY
    try:
        settings = asked(tmp_path / "run", server.url, rate=20.0, num_requests=10)
        assert execute(settings, Secret(KEY), Watching(search), placement=LocalPlacement(2)) == 0
    finally:
        del os.environ["OPENAI_API_KEY"]
    assert seen == {"cmdline": 0, "environ": 0, "files": 0}
    assert [
        path for path in (tmp_path / "run").rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()
    ] == []
