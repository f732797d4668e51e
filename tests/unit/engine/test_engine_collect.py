"""What cannot be collected is refused before any agent starts; rows that had been copied are never replaced by fewer."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from made_hosts import MadeHost, MadeRun
from msgspec.structs import replace
from refusals import codes, raises_code

from fastllmload import __version__
from fastllmload.documents.run_parts.hosts import HostEntry, Tap
from fastllmload.engine.collect import Collection, collect, node_of, rows_by_worker
from fastllmload.engine.hosts.kept.folder import read_finished, write_finished
from fastllmload.engine.hosts.link.messages import Finished
from fastllmload.engine.recording.folder import Folder
from fastllmload.records.run import load

pytestmark = pytest.mark.slow

HOSTS = (MadeHost((0, 1)), MadeHost((2,), ahead_ns=5_000_000_000, status="lost"))


class Lines:
    """A view that keeps its messages."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def message(self, text: str) -> None:
        self.lines.append(text)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run over two hosts, of which the second was lost and keeps files."""
    run = MadeRun(tmp_path / "run", HOSTS, seconds=1.0)
    run.write(run_id="0123abcd", tool={"name": "fastllmload", "version": __version__}, incidents=[])
    shutil.copytree(run.folder / "workers", tmp_path / "kept")
    run.conclude()
    change(run.folder, status="partial")
    change_host(run.folder, 1, folder="/tmp/fastllmload-host1-x")
    return run.folder


def change(folder: Path, /, **fields: object) -> None:
    document = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**document, **fields}))


def change_host(folder: Path, host: int, /, **fields: object) -> None:
    document = json.loads((folder / "run.json").read_text())
    document["hosts"][host].update(fields)
    (folder / "run.json").write_text(json.dumps(document))


def refused(folder: Path, code: str, *values: object) -> None:
    content = (folder / "run.json").read_bytes()
    with raises_code(code, *values):
        collect(folder, None, False, Lines())  # type: ignore[arg-type]
    assert (folder / "run.json").read_bytes() == content and (folder / "requests.npy").exists()


def test_a_run_of_one_host_is_refused(folder: Path) -> None:
    change(folder, hosts=[])
    refused(folder, "hosts-none", folder)


def test_a_run_of_another_version_is_refused(folder: Path) -> None:
    change(folder, tool={"name": "fastllmload", "version": "0.0.9"})
    refused(folder, "hosts-differ", "0.0.9", __version__)


def test_a_host_that_is_another_machine_needs_a_cluster(folder: Path) -> None:
    change_host(folder, 1, address="192.0.2.9")
    refused(folder, "option-missing", "node-1", "--ray")


def test_a_folder_in_which_another_process_works_is_refused(folder: Path) -> None:
    first = Folder.open(folder)
    refused(folder, "folder-in-use", folder)
    first.clean()
    assert not (folder / ".work").exists()


def test_a_run_whose_hosts_keep_nothing_stays_as_it_is(folder: Path) -> None:
    change_host(folder, 1, folder=None)
    content = (folder / "run.json").read_bytes()
    assert collect(folder, None, False, Lines()) == 0  # type: ignore[arg-type]
    assert (folder / "run.json").read_bytes() == content and not (folder / ".work").exists()


def test_a_node_is_found_by_its_address_or_else_by_its_name() -> None:
    def node(name: str, address: str) -> Any:
        return SimpleNamespace(name=name, address=address)

    host = HostEntry(host=0, name="b", address="10.0.0.2")
    nodes = [node("b", "10.0.0.1"), node("c", "10.0.0.2")]
    assert node_of(host, nodes) is nodes[1] and node_of(host, nodes[:1]) is nodes[0]
    assert node_of(host, [node("b", "10.0.0.1"), node("b", "10.0.0.3")]) is None and node_of(host, []) is None


def collection(folder: Path) -> Collection:
    opened = Folder.open(folder)
    return Collection(opened, opened.document, SimpleNamespace(hosts=[]), {}, False, Lines())  # type: ignore[arg-type]


def test_files_with_fewer_rows_than_were_copied_do_not_replace_them(folder: Path, tmp_path: Path) -> None:
    """As after a power failure of the host."""
    found = collection(folder)
    before = load(folder).rows
    shutil.copytree(tmp_path / "kept" / "2", found.staged / "workers" / "2")
    rows = np.load(found.staged / "workers" / "2" / "requests.npy")
    np.save(found.staged / "workers" / "2" / "requests.npy", rows[:-3])
    found._reopen()
    found._replace(found.entries[1])
    assert codes(found.ui.lines) == ["host-rows-missing", "host-collected"]  # type: ignore[attr-defined]
    assert rows_by_worker(folder / "workers")[2] == len(rows)
    found.folder.clean()
    assert (load(folder).rows == before[before["t_dispatch"] > 0]).all()


def test_merged_rows_that_were_changed_are_not_built_upon(folder: Path) -> None:
    size = (folder / "tokens.npy").stat().st_size
    change(folder, files={"tokens.npy": {"bytes": size, "crc32": 1}})
    found = collection(folder)
    with raises_code("run-file-damaged", "tokens.npy"):
        found._reopen()
    assert (folder / "requests.npy").exists()
    found.folder.clean()


def test_a_merge_that_was_cut_is_done_again(folder: Path, tmp_path: Path) -> None:
    """New events were in place and new rows were not; and rows were in place and the workers' files were not removed."""
    expected = load(folder)
    found = collection(folder)
    found._reopen()
    (folder / "tokens.npy").write_bytes(b"of a merge that was cut")
    found.folder.clean()
    found = collection(folder)
    found._reopen()
    assert (load(folder).rows == expected.rows).all() and (load(folder).events == expected.events).all()
    for name in ("requests.npy", "tokens.npy"):
        shutil.copy(folder / "workers" / "merged" / name, folder / name)
    (folder / "workers" / "2").mkdir()
    shutil.copy(tmp_path / "kept" / "2" / "requests.npy", folder / "workers" / "2" / "requests.npy")
    found.folder.clean()
    found = collection(folder)
    found._reopen()
    assert (load(folder).rows == expected.rows).all() and (load(folder).events == expected.events).all()
    found.folder.clean()


@pytest.mark.parametrize("known", [Tap(ring_bytes=5, segments=41), None])
def test_what_an_agent_said_of_its_packet_ring_is_in_the_run(folder: Path, known: Tap | None) -> None:
    """It is copied in the last report of the agent; without one what is known stays."""
    found = collection(folder)
    entry = replace(found.entries[1], tap=Tap(ring_bytes=5))
    own = folder / "hosts" / "1"
    own.mkdir(parents=True, exist_ok=True)
    write_finished(own, Finished(missing={"events": 3}, write_failed=False, tap=known))
    finished = read_finished(own)
    assert finished is not None and finished.missing == {"events": 3}
    assert found._described(entry, finished, driver_lost=False).tap == (known or Tap(ring_bytes=5))
    found.folder.clean()


@pytest.mark.parametrize(
    ("missing", "failed", "full"),
    [({}, False, False), ({"rows": 0}, True, True), ({"rows": 0, "events": 7}, False, True)],
)
def test_a_host_that_could_not_write_has_a_full_disk_in_the_run(
    folder: Path, missing: dict[str, int], failed: bool, full: bool
) -> None:
    """Its driver died before it could know that."""
    found = collection(folder)
    own = folder / "hosts" / "1"
    own.mkdir(parents=True, exist_ok=True)
    write_finished(own, Finished(missing=missing, write_failed=failed))
    assert found._described(found.entries[1], read_finished(own), driver_lost=True).disk_full is full
    found.folder.clean()


@pytest.mark.parametrize(
    ("status", "totals", "of_host", "kept"),
    [("done", True, "ended", True), ("done", True, "lost", False), ("done", False, "ended", False),
     ("running", True, "ended", False), ("killed", False, "ended", False)],
)  # fmt: skip
def test_a_host_that_has_reported_on_its_events_is_not_left_out(
    folder: Path, status: str, totals: bool, of_host: str, kept: bool
) -> None:
    """Figures of a concluded run would be lost; of one whose driver died, or a host that was lost, there are none."""
    change(folder, status=status)
    change_host(folder, 1, status=of_host)
    if totals:
        (folder / "event_totals.npy").touch()
    found = collection(folder)
    assert not found._figures_would_be_lost()
    found.away[1] = "it is away"
    assert found._figures_would_be_lost() == kept
    found.folder.clean()
