"""A run over two links that carry frames above the MTU (GRO, TSO): `python two_links.py FOLDER [OPTIONS of a run]`.

Two network namespaces, the load generator in one and the simulated engine in the other, joined by two veth pairs. The engine
writes many events at once. The loopback of the load generator is down. Exit code 77 where it may not.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

from integration.lossy_link import CLONE_NEWNET, libc, namespace

from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions

LINKS = (1, 2)
EVENTS_PER_WRITE = 32


def enter(space: int) -> None:
    if libc.setns(space, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def join(client: int, server: int) -> None:
    """The veth pairs of both namespaces; this thread is in the server's afterwards."""
    other = f"/proc/{os.getpid()}/fd/{server}"
    enter(client)
    for link in LINKS:
        ip(f"link add client{link} type veth peer name server{link} netns {other}")
        ip(f"addr add 10.98.{link}.1/24 dev client{link}")
        ip(f"link set client{link} up")
    enter(server)
    ip("link set lo up")
    for link in LINKS:
        ip(f"addr add 10.98.{link}.2/24 dev server{link}")
        ip(f"link set server{link} up")


def ip(words: str) -> None:
    subprocess.run(["ip", *words.split()], check=True)


def main() -> int:
    folder, options = Path(sys.argv[1]), sys.argv[2:]
    try:
        client, server = namespace(), namespace()
        join(client, server)
    except (OSError, subprocess.CalledProcessError) as problem:
        print(f"no network namespaces or veth devices here: {problem}")
        return 77
    served = SimulatorOptions(
        host="0.0.0.0", truth=str(folder / "truth.bin"), ttft_ms=20.0, itl_ms=10.0, coalesce=EVENTS_PER_WRITE
    )
    with SimulatorProcess(served) as engine:
        enter(client)
        urls = [word for link in LINKS for word in ("--url", f"http://10.98.{link}.2:{engine.port}")]
        command = [sys.executable, "-m", "fastllmload", *urls, "-o", str(folder / "run"), *options]
        return subprocess.run(command, timeout=120).returncode


if __name__ == "__main__":
    sys.exit(main())
