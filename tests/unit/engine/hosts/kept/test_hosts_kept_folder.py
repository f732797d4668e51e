"""A folder that an agent keeps is found again by its run alone, when no process writes there any more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from refusals import raises_code

from fastllmload.documents.run_parts.hosts import WatchFacts
from fastllmload.engine.hosts.kept import folder as kept
from fastllmload.engine.hosts.kept.folder import (
    FINISHED,
    PREFIX,
    RECORD,
    HostRecord,
    KeptFolder,
    read_finished,
    users_of,
    write_finished,
    write_record,
)
from fastllmload.engine.hosts.link.messages import Finished

MINE = HostRecord("0123abcd", 3)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / f"{PREFIX}3-x"
    (made / "hosts" / "3").mkdir(parents=True)
    write_record(made, MINE).close()
    return made


def test_the_folder_of_a_run_is_accepted_and_removed(folder: Path) -> None:
    found = KeptFolder(str(folder))
    found.check(MINE)
    assert found.remove() is None and not folder.exists()
    assert "no such file" in str(found.remove())
    with raises_code("host-folder-gone", folder):
        found.check(MINE)


@pytest.mark.parametrize("record", [HostRecord("0123abce", 3), HostRecord("0123abcd", 2)])
def test_the_folder_of_another_run_or_host_is_refused(folder: Path, record: HostRecord) -> None:
    with raises_code("host-folder-other", folder):
        KeptFolder(str(folder)).check(record)


@pytest.mark.parametrize("what", ["link", "name", "relative", "without record", "damaged"])
def test_what_no_agent_made_is_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Run folders are read as untrusted data: they may name any folder of a host."""
    path = folder
    if what == "link":
        path = tmp_path / f"{PREFIX}3-link"
        path.symlink_to(folder)
    elif what == "name":
        path = folder.rename(tmp_path / "home")
    elif what == "relative":
        monkeypatch.chdir(tmp_path)
        path = Path(folder.name)
    elif what == "without record":
        (folder / RECORD).unlink()
    else:
        (folder / RECORD).write_bytes(b"{")
    with raises_code("host-folder-other", path):
        KeptFolder(str(path)).check(MINE)


@pytest.mark.slow
def test_a_process_that_writes_there_is_waited_for_and_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "WRITING_S", 0.1)
    code = "import sys; file = open(sys.argv[1], 'wb'); print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, str(folder / "hosts" / "3" / "a")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None and writer.stdin is not None
        writer.stdout.readline()
        assert users_of(folder) == [writer.pid]
        with raises_code("host-folder-in-use", writer.pid):
            KeptFolder(str(folder)).check(MINE)
        writer.stdin.close()
        writer.wait(60)
    KeptFolder(str(folder)).check(MINE)


def test_the_last_report_of_an_agent_is_written_once(folder: Path) -> None:
    own = folder / "hosts" / "3"
    assert read_finished(own) is None
    first = Finished(missing={"rows": 2}, write_failed=True, watch=WatchFacts(ports=5))
    write_finished(own, first)
    write_finished(own, Finished(missing={}, write_failed=False))
    assert read_finished(own) == first
    (own / FINISHED).write_bytes(b"[]")
    with raises_code("run-file-damaged", FINISHED):
        read_finished(own)
