"""What hosts keep when their driver dies or loses them is copied later, and each request is in the result once."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kept_events import differences
from msgspec.structs import replace
from refusals import codes, raises_code
from support.local_hosts import Watching, agents_folder, asked, ours, wait

from fastllmload.cli.main import main
from fastllmload.engine import collect as module
from fastllmload.engine.collect import collect
from fastllmload.engine.hosts.placement.local import LocalPlacement
from fastllmload.engine.run import execute
from fastllmload.records import layout
from fastllmload.records.run import Run, load
from fastllmload.settings import Hosts
from fastllmload.simulator import truth
from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions

pytestmark = pytest.mark.slow

DRIVER = Path(__file__).parents[1] / "support" / "driver_of_local_hosts.py"
ELSEWHERE = "192.0.2.7"
scratch = agents_folder()


@contextmanager
def serving(log: Path) -> Iterator[SimulatorProcess]:
    with SimulatorProcess(SimulatorOptions(ttft_ms=50.0, itl_ms=10.0, any_model=True, truth=str(log))) as started:
        yield started


def run_and_kill(folder: Path, url: str, agents: Path) -> None:
    """Kill the driver of a run while it sends; its agents, which make their folders in *agents*, end by themselves then."""
    words = [sys.executable, str(DRIVER), str(folder), url, "60", "60"]
    driver = subprocess.Popen(words, env={**os.environ, "TMPDIR": str(agents)})
    rows = [folder / "workers" / str(worker) / "requests.npy" for worker in (0, 1)]
    wait(lambda: all(each.exists() and each.stat().st_size > 20_000 for each in rows))
    driver.kill()
    driver.wait(60)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `run`, whose driver was killed, `agents`, what its hosts have kept, and `truth.log` of the server."""
    place = tmp_path_factory.mktemp("recorded")
    (place / "agents").mkdir()
    with serving(place / "truth.log") as server:
        run_and_kill(place / "run", server.url, place / "agents")
        wait(lambda: not ours(place / "agents"))
    return place


@pytest.fixture
def killed(recorded: Path, tmp_path: Path, scratch: Path) -> Path:
    """A copy of the run folder; what its hosts have kept is in *scratch*."""
    shutil.copytree(recorded / "run", tmp_path / "run")
    for host, each in enumerate(document(recorded / "run")["hosts"]):
        name = Path(each["folder"]).name
        shutil.copytree(recorded / "agents" / name, scratch / name)
        change(tmp_path / "run", host, folder=str(scratch / name))
    return tmp_path / "run"


def document(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "run.json").read_text())
    return found


def change(folder: Path, host: int, /, **fields: object) -> None:
    found = document(folder)
    found["hosts"][host].update(fields)
    (folder / "run.json").write_text(json.dumps(found))


def check_rows(folder: Path, log: Path) -> Run:
    """Each planned request has one row, and those that reached the server are those that were sent."""
    run = load(folder)
    assert not run.damaged
    measured = run.rows[run.rows["phase"] == layout.MEASURE]
    planned = np.load(folder / "plan" / "schedule.npy")["t_sched_ns"]
    phase = run.phase("measure")
    assert phase is not None and measured["request"].tolist() == list(range(len(planned)))
    assert (measured["t_sched"] - phase.start_ns == planned).all()
    received = truth.load(str(log)).requests
    keys = received["key"][received["phase"] == phase.number]
    assert len(set(keys.tolist())) == len(keys)
    sent = measured["request"][measured["t_submit"] > 0]
    assert sorted(keys.tolist()) == sent.tolist()
    events = np.bincount(run.events["row"], minlength=len(run.rows))
    assert (events == run.rows["events"]).all()
    ok = measured[measured["status"] == layout.OK]
    assert len(ok) > 20 and (ok["events"] >= 8).all()
    return run


@pytest.mark.parametrize("reported", [False, True])
def test_a_run_whose_driver_was_killed_is_concluded_with_what_its_hosts_kept(
    killed: Path, recorded: Path, scratch: Path, tmp_path: Path, reported: bool
) -> None:
    if reported:
        assert main(["report", str(killed), "-o", str(tmp_path / "report")]) == 0
        assert document(killed)["status"] == "killed" and not (killed / ".work").exists()
    before = load(killed).rows
    assert main(["collect", str(killed)]) == 0
    run = check_rows(killed, recorded / "truth.log")
    found = run.manifest
    assert (found["status"], found["certificate"]["verdict"]) == ("partial", "invalid")
    assert [(each["status"], each["folder"]) for each in found["hosts"]] == [("alone", None)] * 2
    assert codes(found["incidents"]) == ["driver-lost", "host-collected", "host-collected"]
    assert {reason["code"] for reason in found["certificate"]["reasons"]} >= {"host_alone"}
    assert not {reason["code"] for reason in found["certificate"]["reasons"]} & {"host_lost", "worker_died"}
    sent = run.rows[run.rows["t_dispatch"] > 0]
    assert set(before["request"]) <= set(run.rows["request"]) and len(sent) >= len(before)
    assert not np.isin(run.rows["status"], (layout.IN_FLIGHT, layout.HOST_LOST)).any()
    last = run.phase("measure").end_ns  # type: ignore[union-attr]
    assert last is not None and last == sent["t_dispatch"].max() + 1
    assert all(each["watch"].get("steal_samples") for each in found["hosts"])
    assert (killed / "report.html").exists() and not (killed / "workers").exists() and not (killed / ".work").exists()
    assert not list(scratch.iterdir())
    content = (killed / "run.json").read_bytes()
    assert main(["collect", str(killed)]) == 0
    assert (killed / "run.json").read_bytes() == content


def test_agents_that_still_end_are_waited_for(tmp_path: Path, scratch: Path) -> None:
    with serving(tmp_path / "truth.log") as server:
        run_and_kill(tmp_path / "run", server.url, scratch)
        assert main(["collect", str(tmp_path / "run")]) == 0
    run = check_rows(tmp_path / "run", tmp_path / "truth.log")
    assert [each["status"] for each in run.manifest["hosts"]] == ["alone", "alone"]
    assert not list(scratch.iterdir())


def test_a_host_that_is_away_is_named_and_collected_later(killed: Path, recorded: Path, scratch: Path) -> None:
    address = document(killed)["hosts"][1]["address"]
    change(killed, 1, address=ELSEWHERE)
    view = Watching()
    assert collect(killed, None, False, view) == 2
    assert codes(view.lines).count("host-away") == 1
    found = document(killed)
    assert [each["status"] for each in found["hosts"]] == ["alone", "lost"]
    assert found["hosts"][1]["folder"] == str(*scratch.iterdir())
    rows = load(killed).rows
    there = rows[(rows["worker"] == 1) & (rows["phase"] == layout.MEASURE)]
    assert (there["status"] == layout.HOST_LOST).any() and (rows["worker"] == 1).any()
    change(killed, 1, address=address)
    assert main(["collect", str(killed)]) == 0
    run = check_rows(killed, recorded / "truth.log")
    assert [each["status"] for each in run.manifest["hosts"]] == ["alone", "alone"]
    assert not np.isin(run.rows["status"], (layout.IN_FLIGHT, layout.HOST_LOST)).any()
    assert run.verdict == "invalid" and not list(scratch.iterdir())


def test_a_host_that_was_lost_is_added_to_a_run_that_had_ended(tmp_path: Path, scratch: Path) -> None:
    """Its agent was killed, so its record may have no end; its writer of rows has completed them."""
    placement = LocalPlacement(2)

    def kill(snapshot: Any) -> None:
        if snapshot.phase == "measure" and snapshot.t > 3.0 and placement.handles[1].poll() is None:
            os.kill(placement.handles[1].process.pid, signal.SIGKILL)

    folder, view = tmp_path / "run", Watching(kill)
    with serving(tmp_path / "truth.log") as server:
        settings = asked(folder, server.url, rate=60.0, duration=5.0)
        assert execute(settings, None, view, placement=placement) == 2
    before = load(folder)
    texts = before.manifest["error_texts"]
    assert main(["collect", str(folder)]) == 0
    run = check_rows(folder, tmp_path / "truth.log")
    assert [each["status"] for each in run.manifest["hosts"]] == ["ended", "lost"]
    assert codes(run.manifest["incidents"]).count("host-lost") == 1 and run.verdict == "invalid"
    assert run.manifest["status"] == "partial" and run.manifest["error_texts"] == texts
    here = np.isin(run.rows["worker"], (0, 1)) & (run.rows["t_dispatch"] > 0)
    of_before = np.isin(before.rows["worker"], (0, 1)) & (before.rows["t_dispatch"] > 0)
    assert (run.rows[here] == before.rows[of_before]).all()
    sent = [np.count_nonzero((each.rows["worker"] > 1) & (each.rows["t_submit"] > 0)) for each in (before, run)]
    assert sent[0] <= sent[1]
    lost = run.rows[run.rows["status"] == layout.HOST_LOST]
    assert (lost["worker"] > 1).all() and (lost["t_dispatch"] == 0).any()
    assert not list(scratch.iterdir())


def test_events_that_stayed_on_hosts_are_collected_from_all_of_them(tmp_path: Path, scratch: Path) -> None:
    """The run is then one whose events were copied; before that it stays as it is."""
    folder = tmp_path / "run"
    with serving(tmp_path / "truth.log") as server:
        settings = replace(asked(folder, server.url, rate=40.0, duration=2.0), hosts=Hosts(collect="summary"))
        assert execute(settings, None, Watching(), placement=LocalPlacement(2)) == 0
    before = load(folder)
    kept, address = before.rows.copy(), document(folder)["hosts"][1]["address"]
    change(folder, 1, address=ELSEWHERE)
    view = Watching()
    assert collect(folder, None, False, view) == 2
    assert {"host-away", "events-elsewhere"} <= set(codes(view.lines))
    assert load(folder).elsewhere is not None and len(list(scratch.iterdir())) == 2
    change(folder, 1, address=address)
    assert main(["collect", str(folder)]) == 0
    run = check_rows(folder, tmp_path / "truth.log")
    assert run.elsewhere is None and len(run.events) == before.event_count > 0
    measured = kept["phase"] == layout.MEASURE
    assert (run.rows[measured] == kept[measured]).all()
    names = ("window", "metrics", "counts", "steadiness", "certificate")
    assert not differences(*({name: each.manifest[name] for name in names} for each in (run, before)))
    assert not (folder / "event_totals.npy").exists() and not list(folder.glob("hosts/*/summary"))
    assert not list(scratch.iterdir())


def test_hosts_that_keep_their_events_are_collected_without_one_that_never_returns(
    killed: Path, recorded: Path, scratch: Path
) -> None:
    """The driver was killed, so the run has no figures that could be lost. The rows of the host that is away had been
    copied, and no event: all its requests are lost. When it returns after all, the run is complete.
    """
    found = document(killed)
    found["config"]["hosts"]["collect"] = "summary"
    (killed / "run.json").write_text(json.dumps(found))
    for events in killed.glob("workers/*/tokens.npy"):
        events.unlink()
    address, before = found["hosts"][1]["address"], load(killed).rows
    change(killed, 1, address=ELSEWHERE)
    view = Watching()
    assert collect(killed, None, False, view) == 2
    assert codes(view.lines).count("host-away") == 1 and "events-elsewhere" not in codes(view.lines)
    run = load(killed)
    assert [each["status"] for each in run.manifest["hosts"]] == ["alone", "lost"]
    assert run.manifest["hosts"][1]["folder"] == str(*scratch.iterdir())
    assert (run.manifest["status"], run.verdict) == ("partial", "invalid") and not run.damaged
    there = run.rows["worker"] == 1
    assert set(before["request"][before["worker"] == 1]) <= set(
        run.rows["request"][there & (run.rows["t_dispatch"] > 0)]
    )
    assert (run.rows["status"][there] == layout.HOST_LOST).all() and not there[run.events["row"]].any()
    here = run.rows[~there & (run.rows["status"] == layout.OK)]
    assert len(here) > 20 and (here["events"] >= 8).all()
    assert run.document.counts.ok == np.count_nonzero(here["phase"] == layout.MEASURE)
    assert run.document.metric("itl").n
    change(killed, 1, address=address)
    assert main(["collect", str(killed)]) == 0
    run = check_rows(killed, recorded / "truth.log")
    assert [each["status"] for each in run.manifest["hosts"]] == ["alone", "alone"]
    assert not np.isin(run.rows["status"], (layout.IN_FLIGHT, layout.HOST_LOST)).any()
    assert run.verdict == "invalid" and not list(scratch.iterdir())


def test_folders_that_are_kept_on_hosts_can_be_collected_again(killed: Path, recorded: Path, scratch: Path) -> None:
    assert main(["collect", str(killed), "--keep"]) == 0
    once = check_rows(killed, recorded / "truth.log")
    rows, events, first = once.rows.copy(), once.events.copy(), document(killed)
    assert len(list(scratch.iterdir())) == 2 and all(each["folder"] for each in first["hosts"])
    assert main(["collect", str(killed)]) == 0
    again = check_rows(killed, recorded / "truth.log")
    assert (again.rows == rows).all() and (again.events == events).all()
    second = document(killed)
    for found in (first, second):
        for each in found["hosts"]:
            del each["folder"]
    assert second == first and not list(scratch.iterdir())


class Died(BaseException):
    """The collecting process is killed."""


STEPS = [
    (module.Collection, "_receive", 1), (module.Collection, "_reopen", 1), (module.Collection, "_replace", 1),
    (module, "finalize", 1), (module.Collection, "_release", 1), (shutil, "rmtree", 2),
    *((os, "rename", call) for call in (1, 2)), *((Path, "replace", call) for call in (1, 2, 3, 4, 5)),
]  # fmt: skip


@pytest.mark.parametrize(("owner", "name", "call"), STEPS, ids=[f"{name}-{call}" for _, name, call in STEPS])
def test_a_collection_that_dies_can_be_repeated(
    killed: Path, recorded: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, call: int
) -> None:
    """After each step, of a run that was not merged and of one that was. Nothing tidies up, as after SIGKILL."""
    before = load(killed).rows
    for number in (0, 1):  # the second time a part is merged
        change(killed, 1 - number, address=ELSEWHERE)
        change(killed, number, address="127.0.0.1")
        with monkeypatch.context() as patched:
            patched.setattr(module.Folder, "clean", lambda folder: os.close(folder.owner))
            patched.setattr(owner, name, dying(getattr(owner, name), call))
            with suppress(Died):
                collect(killed, None, False, Watching())
        there = load(killed).rows
        assert set(before["request"]) <= set(there["request"])
        if document(killed)["hosts"][number]["folder"] is not None:
            assert collect(killed, None, False, Watching()) in (0, 2)
    assert document(killed)["hosts"][0]["folder"] is document(killed)["hosts"][1]["folder"] is None
    run = check_rows(killed, recorded / "truth.log")
    assert [each["status"] for each in run.manifest["hosts"]] == ["alone", "alone"]


def dying(work: Callable[..., Any], call: int) -> Callable[..., Any]:
    """*work*, after whose call of that number the process is killed."""
    calls = 0

    def done(*words: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        found = work(*words, **options)
        if calls == call:
            raise Died
        return found

    return done


def test_what_cannot_be_collected_is_refused(killed: Path, scratch: Path, tmp_path: Path) -> None:
    """Nothing is changed then, on the hosts either."""
    kept = sorted(scratch.iterdir())
    change(killed, 0, folder=str(tmp_path / "other"))
    change(killed, 1, folder=str(kept[0]))
    view = Watching()
    assert collect(killed, None, False, view) == 2
    assert sorted(codes(view.lines)) == ["host-folder-gone", "host-folder-other"]
    assert document(killed)["status"] == "killed" and sorted(scratch.iterdir()) == kept
    for host in (0, 1):
        change(killed, host, address=ELSEWHERE)
    with raises_code("option-missing", "--ray"):
        collect(killed, None, False, Watching())
    assert (killed / "workers").is_dir() and not (killed / ".work").exists()
