"""Runs from several agents on this machine: settings, a view, processes and a host in a network of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from fastllmload.documents.run import RunDocument
from fastllmload.documents.write import plain
from fastllmload.engine.hosts.link.messages import AgentConfig
from fastllmload.engine.hosts.placement.local import AGENT, LocalHandle, LocalPlacement
from fastllmload.settings import Client, Load, Output, RunSettings, Target, Workload


class Watching:
    """A view that keeps everything and calls *hook* at each snapshot."""

    def __init__(self, hook: Callable[[Any], object] = lambda snapshot: None) -> None:
        self.lines: list[str] = []
        self.document: Any = None
        self.hook = hook

    def banner(self, lines: list[str]) -> None:
        self.lines += lines

    def phase(self, name: str, planned: object, seconds: object) -> None:
        self.lines.append(name)

    def due(self, t: float) -> bool:
        return True

    def update(self, snapshot: Any) -> None:
        self.hook(snapshot)

    def message(self, text: str) -> None:
        self.lines.append(text)

    def finish(self, document: RunDocument, folder: str | None = None) -> None:
        self.document = plain(document)

    def close(self) -> None:
        self.lines.append("closed")


def asked(folder: Path, url: str, **fields: Any) -> RunSettings:
    return RunSettings(
        target=Target(urls=(url,)),
        load=Load(**{"warmup_requests": 3, **fields}),
        workload=Workload(isl="16", osl="8"),
        client=Client(workers=2, timestamps="kernel"),
        output=Output(directory=str(folder), ui="none"),
    )


def of_process(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""


def ours(folder: Path) -> set[int]:
    """The processes that have the temporary folder of this test in their environment."""
    mark = f"TMPDIR={folder}\0"
    pids = (
        int(each.name) for each in Path("/proc").iterdir() if each.name.isdecimal() and int(each.name) != os.getpid()
    )
    return {pid for pid in pids if mark in of_process(pid, "environ") and " (" in of_process(pid, "stat")}


def wait(condition: Callable[[], Any], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def agents_folder(seconds: float = 60.0) -> Callable[..., Iterator[Path]]:
    """The fixture `scratch`: where agents make their folders. No process may stay that was started with it: the last one
    has ended *seconds* after the test.
    """

    @pytest.fixture(name="scratch")
    def folder_of_agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
        folder = tmp_path / "agents"
        folder.mkdir()
        monkeypatch.setenv("TMPDIR", str(folder))
        yield folder
        wait(lambda: not ours(folder), seconds)

    return folder_of_agents


class Apart(LocalPlacement):
    """The second host is in a network namespace of its own, which other processes of this test do not share."""

    space, near, far = (f"fll-{os.getpid()}-{name}" for name in ("apart", "n", "f"))
    network = f"10.97.{os.getpid() % 256}"

    @classmethod
    def commands(cls) -> tuple[str, ...]:
        return (
            f"ip netns add {cls.space}", f"ip link add {cls.near} type veth peer name {cls.far} netns {cls.space}",
            f"ip addr add {cls.network}.1/24 dev {cls.near}", f"ip link set {cls.near} up",
            f"ip -n {cls.space} addr add {cls.network}.2/24 dev {cls.far}", f"ip -n {cls.space} link set {cls.far} up",
            f"ip -n {cls.space} link set lo up",
        )  # fmt: skip

    def start(self, configs: Sequence[AgentConfig]) -> list[LocalHandle]:
        for config, prefix in zip(configs, ((), ("ip", "netns", "exec", self.space)), strict=True):
            self.handles.append(LocalHandle(config, (*prefix, *AGENT)))
        return self.handles

    def cut(self) -> None:
        """Let nothing pass between the second host and the others any more."""
        subprocess.run(["ip", "link", "set", self.near, "down"], check=True)


@contextlib.contextmanager
def made_apart() -> Iterator[Apart]:
    """Skips the test where no network namespace can be made."""
    if shutil.which("ip") is None:
        pytest.skip("a network namespace cannot be made here: there is no program ip")
    try:
        for command in Apart.commands():
            done = subprocess.run(command.split(), capture_output=True, text=True)
            if done.returncode:
                pytest.skip(f"a network namespace cannot be made here: {done.stderr.strip()}")
        yield Apart(2, driver_address=f"{Apart.network}.1")
    finally:
        for command in (f"ip netns del {Apart.space}", f"ip link del {Apart.near}"):
            subprocess.run(command.split(), capture_output=True)


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of 24 MiB at *folder*. Skips the test where it cannot be mounted."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"a file system of limited size cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        wait(lambda: not ours(folder))
        subprocess.run(["umount", folder], check=True)


def fill(folder: Path) -> None:
    """Use all room of the file system of *folder*."""
    with open(folder / "ballast", "wb", buffering=0) as ballast, contextlib.suppress(OSError):
        while ballast.write(bytes(1 << 16)):
            pass
