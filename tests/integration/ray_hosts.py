"""Three "hosts" on one machine: network namespaces with an address each, joined by veth pairs to a bridge in another one,
and a Ray cluster over them. All processes in these namespaces belong to the test that made them, and end with it.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self

from fastllmload.host.probe import available_memory

NETWORK, BRIDGE, PORT = "10.98.0", 254, 6379
OWN_NAME = re.compile(r"fll-(\d+)-\w+")
NEEDED_BYTES = 2 << 30
STARTED_S, TRIES = 150.0, 3
SRC = Path(__file__).parents[2] / "src"


class NotPossible(Exception):
    """Why there can be no such hosts here."""


class HostNetwork:
    """*hosts* network namespaces; host k (from 0) has the address `NETWORK`.k+1. NotPossible where that is not permitted."""

    def __init__(self, hosts: int = 3) -> None:
        self.addresses = [f"{NETWORK}.{host + 1}" for host in range(hosts)]
        self.names = [f"fll-{os.getpid()}-h{host + 1}" for host in range(hosts)]
        self.bridge = f"fll-{os.getpid()}-bridge"

    def __enter__(self) -> Self:
        for tool in ("ip", "nsenter"):
            if shutil.which(tool) is None:
                raise NotPossible(f"{tool} is not installed")
        remove_abandoned()
        try:
            self._make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _make(self) -> None:
        ip(f"netns add {self.bridge}")
        ip(f"-n {self.bridge} link set lo up")
        ip(f"-n {self.bridge} link add name br0 type bridge")
        ip(f"-n {self.bridge} addr add {NETWORK}.{BRIDGE}/24 dev br0")
        ip(f"-n {self.bridge} link set dev br0 up")
        for name, address in zip(self.names, self.addresses, strict=True):
            port = name.rpartition("-")[2]
            ip(f"netns add {name}")
            ip(f"-n {name} link set lo up")
            ip(f"link add eth0 netns {name} type veth peer name {port} netns {self.bridge}")
            ip(f"-n {self.bridge} link set dev {port} master br0 up")
            ip(f"-n {name} addr add {address}/24 dev eth0")
            ip(f"-n {name} link set dev eth0 up")

    def command(self, host: int, words: Sequence[str]) -> list[str]:
        """The command line that runs *words* on *host*; -1 is the namespace of the bridge."""
        name = self.bridge if host < 0 else self.names[host]
        return ["nsenter", f"--net=/run/netns/{name}", "--", *words]

    def processes(self, host: int | None = None) -> list[int]:
        """All processes on *host*, or on all hosts and the bridge."""
        names = (*self.names, self.bridge) if host is None else (self.names[host],)
        return [pid for name in names for pid in members(name)]

    def close(self) -> None:
        for name in (*self.names, self.bridge):
            remove(name)


def ip(words: str) -> None:
    """NotPossible where the kernel refuses it, or knows no such interface."""
    done = subprocess.run(["ip", *words.split()], capture_output=True, text=True)
    if "not permitted" in done.stderr or "not supported" in done.stderr or "Unknown device type" in done.stderr:
        raise NotPossible(f"ip {words}: {done.stderr.strip()}")
    assert done.returncode == 0, (words, done.stderr)


def members(name: str) -> list[int]:
    listed = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout
    return [int(pid) for pid in listed.split()]


def remove(name: str) -> None:
    """Delete the namespace; nothing where it does not exist."""
    end(name)
    subprocess.run(["ip", "netns", "del", name], capture_output=True)


def end(name: str) -> None:
    """End all processes of the namespace."""
    until = time.monotonic() + 30
    while (found := members(name)) and time.monotonic() < until:
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def remove_abandoned() -> None:
    """Namespaces of tests that were killed."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
    for line in listed.splitlines():
        found = OWN_NAME.match(line)
        if found is not None and not Path(f"/proc/{found[1]}").exists():
            remove(line.split()[0])


class RayHosts(HostNetwork):
    """A Ray cluster over these hosts, which asks for a token. The head is host 0."""

    def __enter__(self) -> Self:
        if find_spec("ray") is None:
            raise NotPossible("Ray is not installed (extra `ray`)")
        if (available_memory() or NEEDED_BYTES) < NEEDED_BYTES:
            raise NotPossible("less than 2 GB of memory are free")
        super().__enter__()
        self.folder = Path(tempfile.mkdtemp(prefix="fll", dir="/tmp"))  # short, as it holds sockets
        self.scratch = self.folder / "temporary"  # of all programs on these hosts, agents too
        self.scratch.mkdir()
        self.token = secrets.token_hex(32)
        try:
            self._start(0, "--head", f"--port={PORT}", f"--temp-dir={self.folder}", "--include-dashboard=false")
            for host in range(1, len(self.names)):
                self._start(host, f"--address={self.address}")
        except BaseException:
            self.close()
            raise
        return self

    @property
    def address(self) -> str:
        return f"{self.addresses[0]}:{PORT}"

    @property
    def environment(self) -> dict[str, str]:
        """Of programs that use the cluster."""
        kept = {
            name: text for name, text in os.environ.items() if not name.startswith("RAY_") and name != "OPENAI_API_KEY"
        }
        return kept | {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": self.token,
            "RAY_USAGE_STATS_ENABLED": "0",
            "PYTHONPATH": str(SRC),
            "TMPDIR": str(self.scratch),
        }

    def _start(self, host: int, *options: str) -> None:
        """Ray gives up where it does not get an answer of its own processes in time, on a busy machine."""
        command = [
            sys.executable, "-m", "ray.scripts.scripts", "start", f"--node-ip-address={self.addresses[host]}",
            "--num-cpus=2", f"--object-store-memory={80 << 20}", "--disable-usage-stats", *options,
        ]  # fmt: skip
        said = self.folder / "start.txt"  # not a pipe, which the processes of Ray would keep open
        for _ in range(TRIES):
            with open(said, "ab") as file:
                done = subprocess.run(
                    self.command(host, command), stdout=file, stderr=file, env=self.environment, timeout=STARTED_S
                )
            if done.returncode == 0:
                return
            end(self.names[host])
        raise AssertionError(said.read_text())

    def python(self, host: int, *words: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """A Python program on *host*, with pipes."""
        return subprocess.Popen(
            self.command(host, [sys.executable, *words]),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=self.environment if environment is None else environment,
        )  # fmt: skip

    def close(self) -> None:
        super().close()
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder, ignore_errors=True)


def places_of(secret: str, processes: Iterable[int], folders: Iterable[Path]) -> list[str]:
    """Where *secret* can be read: arguments and environments of *processes*, memory that they share through files, files."""
    wanted, found = secret.encode(), []
    for folder in folders:
        for path in (Path(place) / name for place, _, names in os.walk(folder) for name in names):
            with contextlib.suppress(FileNotFoundError):  # it was removed
                if path.is_file() and not path.is_symlink() and wanted in path.read_bytes():
                    found.append(str(path))
    for pid in processes:
        base = Path(f"/proc/{pid}")
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            found += [f"{base}/{name}" for name in ("cmdline", "environ") if wanted in (base / name).read_bytes()]
            for descriptor in (base / "fd").iterdir():
                target = os.readlink(descriptor)
                if target.startswith(("/dev/shm", "/memfd")) and wanted in descriptor.read_bytes():
                    found.append(f"{descriptor} ({target})")
    return found
