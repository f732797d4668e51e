"""Files arrive as they are, also those that grow and change meanwhile, after interruptions, and only where they may."""

from __future__ import annotations

import errno
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from fastllmload.engine.hosts.agent import SENDER
from fastllmload.engine.hosts.fleet import ReceiverProcess
from fastllmload.engine.hosts.link.files import FileRefused, Incoming, Outgoing, below
from fastllmload.engine.hosts.link.messages import CHUNK_BYTES, Chunk, FileEnd
from fastllmload.engine.hosts.link.receiver import may_write
from fastllmload.engine.hosts.link.sender import SenderSpec
from fastllmload.records import layout
from fastllmload.records.worker_files import open_remaining

KEY = bytes(range(32))


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[tuple[Path, Path, Outgoing, Incoming]]:
    """(folder that is sent, folder that is written, both ends)."""
    near, far = tmp_path / "near", tmp_path / "far"
    for folder in (near / "workers" / "0", far):
        folder.mkdir(parents=True)
    incoming = Incoming(far, lambda path: path.startswith("workers/"))
    yield near, far, Outgoing(near), incoming
    incoming.close()


def send(outgoing: Outgoing, incoming: Incoming, last: int | None = None) -> int:
    """Bytes that were sent."""
    before = incoming.bytes
    for path in below(outgoing.folder, "workers"):
        for chunk in outgoing.changed(path, last):
            incoming.write(chunk)
    return incoming.bytes - before


def finish(outgoing: Outgoing, incoming: Incoming) -> tuple[str, ...]:
    for path in below(outgoing.folder, "workers"):
        incoming.finish(outgoing.end(path))
    return incoming.checked().differing


def test_a_file_that_grows_is_sent_once(sides: Any) -> None:
    near, far, outgoing, incoming = sides
    content = os.urandom(5 * CHUNK_BYTES + 17)
    file = near / "workers" / "0" / "text.bin"
    sent = 0
    for size in (0, 100, CHUNK_BYTES, 3 * CHUNK_BYTES + 5, len(content)):
        file.write_bytes(content[:size])
        sent += send(outgoing, incoming, last=1)
    assert finish(outgoing, incoming) == ()
    assert (far / "workers" / "0" / "text.bin").read_bytes() == content
    assert sent < len(content) + 3 * CHUNK_BYTES  # blocks that were not full are sent again


def test_bytes_that_change_after_they_were_sent_are_sent_again(sides: Any) -> None:
    """As rows do that were open: only a complete comparison finds them."""
    near, far, outgoing, incoming = sides
    content = bytearray(os.urandom(8 * CHUNK_BYTES))
    file = near / "workers" / "0" / "requests.npy"
    file.write_bytes(content)
    send(outgoing, incoming)
    content[3 * CHUNK_BYTES + 9] ^= 255
    file.write_bytes(content)
    assert send(outgoing, incoming, last=1) == 0
    assert send(outgoing, incoming) == CHUNK_BYTES
    assert finish(outgoing, incoming) == ()
    assert (far / "workers" / "0" / "requests.npy").read_bytes() == content


def test_a_file_that_became_shorter_is_cut(sides: Any) -> None:
    near, far, outgoing, incoming = sides
    file = near / "workers" / "0" / "tokens.npy"
    file.write_bytes(b"x" * 100_000)
    send(outgoing, incoming)
    os.truncate(file, 70_000)
    send(outgoing, incoming)
    assert finish(outgoing, incoming) == ()
    assert (far / "workers" / "0" / "tokens.npy").stat().st_size == 70_000


def test_what_has_arrived_of_a_row_file_can_be_read_at_every_moment(sides: Any) -> None:
    """The header, which counts the rows, comes after them."""
    near, far, outgoing, incoming = sides
    rows = np.zeros(2000, layout.REQUEST)
    rows["request"], rows["status"] = np.arange(2000), layout.OK
    np.save(near / "workers" / "0" / "requests.npy", rows[:500])
    send(outgoing, incoming)
    np.save(near / "workers" / "0" / "requests.npy", rows)
    arrived = []
    for chunk in outgoing.changed("workers/0/requests.npy"):
        found, _ = open_remaining(far / "workers" / "0" / "requests.npy", layout.REQUEST)
        assert (found["request"] == np.arange(len(found))).all()
        arrived.append(len(found))
        incoming.write(chunk)
    assert arrived[0] == 500 and len(arrived) > 4
    assert len(open_remaining(far / "workers" / "0" / "requests.npy", layout.REQUEST)[0]) == 2000


def test_bytes_that_differ_on_arrival_are_reported_and_sent_again(sides: Any) -> None:
    near, far, outgoing, incoming = sides
    (near / "workers" / "0" / "a.npy").write_bytes(b"right")
    send(outgoing, incoming)
    (far / "workers" / "0" / "a.npy").write_bytes(b"wrong")
    assert finish(outgoing, incoming) == ("workers/0/a.npy",)
    outgoing.forget(["workers/0/a.npy"])
    send(outgoing, incoming)
    assert finish(outgoing, incoming) == ()
    assert (far / "workers" / "0" / "a.npy").read_bytes() == b"right"


def test_a_disk_that_is_full_is_reported_and_may_have_room_later(sides: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    near, _, outgoing, incoming = sides
    (near / "workers" / "0" / "a.npy").write_bytes(b"content")

    def full(*words: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        send(outgoing, incoming)
    incoming.finish(outgoing.end("workers/0/a.npy"))
    checked = incoming.checked()
    assert checked.differing == ("workers/0/a.npy",)
    assert checked.problem is not None and "no space" in checked.problem
    outgoing.forget()
    send(outgoing, incoming)
    incoming.finish(outgoing.end("workers/0/a.npy"))
    assert incoming.checked().problem is None


@pytest.mark.parametrize(
    "path",
    [
        "", ".", "..", "a", "../a", "/etc/passwd", "workers", "workers/", "workers/../a", "workers//a", "workers/.hidden",
        "workers/a/../../b", "hosts/0/a", "workers/a\0b", "workers/a b", "workers/a\n",
    ],
)  # fmt: skip
def test_a_path_outside_of_what_is_allowed_is_refused(sides: Any, path: str) -> None:
    _, far, _, incoming = sides
    with pytest.raises(FileRefused):
        incoming.write(Chunk(path, 0, b"x"))
    with pytest.raises(FileRefused):
        incoming.finish(FileEnd(path, 0, 0))
    assert list(far.rglob("*")) == []


@pytest.mark.parametrize("offset", [-1, 1 << 60])
def test_a_block_beyond_every_file_is_refused(sides: Any, offset: int) -> None:
    with pytest.raises(FileRefused):
        sides[3].write(Chunk("workers/0/a", offset, b"x"))


def test_a_link_is_not_followed(sides: Any, tmp_path: Path) -> None:
    _, far, _, incoming = sides
    (far / "workers").mkdir()
    (far / "workers" / "a").symlink_to(tmp_path / "victim")
    incoming.write(Chunk("workers/a", 0, b"x"))
    assert incoming.problem is not None and not (tmp_path / "victim").exists()


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("workers/2/requests.npy", True), ("workers/3/tokens.npy", True), ("hosts/1/samples.npy", True),
        ("workers/4/requests.npy", False), ("workers/1/requests.npy", False), ("workers/02/requests.npy", False),
        ("hosts/0/samples.npy", False), ("hosts/01/a", False), ("run.json", False), ("plan/plan.json", False),
        ("workers/2", False), ("workers/²/a", False),
    ],
)  # fmt: skip
def test_a_host_writes_only_the_folders_of_its_own_workers(path: str, allowed: bool) -> None:
    assert may_write(path, host=1, first=2, count=2) is allowed


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[ReceiverProcess]:
    (tmp_path / "run").mkdir()
    host = SimpleNamespace(number=0, first=0, count=1)
    group: Any = SimpleNamespace(key=KEY, hosts=[host], placement=SimpleNamespace(driver_address="127.0.0.1"))
    made = ReceiverProcess(group, tmp_path / "run")
    made.start()
    yield made
    made.close()


def start_sender(folder: Path, port: int, key: bytes = KEY, bytes_per_s: float = 1e9) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(SENDER, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    spec = SenderSpec(
        address="127.0.0.1", port=port, key=key.hex(), host=0, folder=str(folder), parts=("workers", "hosts"),
        bytes_per_s=bytes_per_s,
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(msgspec.json.encode(spec) + b"\n")
    process.stdin.flush()
    return process


def wait(condition: Any) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.slow
def test_files_arrive_although_the_process_that_receives_them_is_killed(
    tmp_path: Path, receiver: ReceiverProcess
) -> None:
    rows = tmp_path / "host" / "workers" / "0"
    rows.mkdir(parents=True)
    (tmp_path / "host" / "hosts" / "0").mkdir(parents=True)
    (rows / "requests.npy").write_bytes(os.urandom(1 << 20))
    sender = start_sender(tmp_path / "host", receiver.port, bytes_per_s=1 << 20)
    arriving = tmp_path / "run" / "workers" / "0" / "requests.npy"
    wait(lambda: arriving.exists() and arriving.stat().st_size > 2 * CHUNK_BYTES)
    first = receiver._process
    assert first is not None
    first.kill()
    wait(lambda: first.poll() is not None)
    assert "signal 9" in (receiver.restarted() or "")
    assert receiver.restarted() is None
    (rows / "tokens.npy").write_bytes(os.urandom(300_000))
    (tmp_path / "host" / "hosts" / "0" / "stalls.npy").write_bytes(b"late")
    _, errors = sender.communicate()
    assert (sender.returncode, errors) == (0, b"")
    for name in ("workers/0/requests.npy", "workers/0/tokens.npy", "hosts/0/stalls.npy"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "host" / name).read_bytes()


@pytest.mark.slow
def test_a_sender_without_the_key_writes_nothing(tmp_path: Path, receiver: ReceiverProcess) -> None:
    for name in ("own", "forged"):
        (tmp_path / name / "workers" / "0").mkdir(parents=True)
        (tmp_path / name / "workers" / "0" / "requests.npy").write_bytes(name.encode())
    stranger = start_sender(tmp_path / "forged", receiver.port, key=bytes(32))
    own = start_sender(tmp_path / "own", receiver.port)
    own.communicate()
    assert own.returncode == 0
    _, errors = stranger.communicate()
    assert stranger.returncode == 1 and b"key" in errors
    assert (tmp_path / "run" / "workers" / "0" / "requests.npy").read_bytes() == b"own"


@pytest.mark.slow
def test_the_process_that_receives_files_ends_with_the_driver(tmp_path: Path, receiver: ReceiverProcess) -> None:
    receiver.close_input()
    assert receiver._process is not None and receiver._process.wait(60) == 0
