"""A run over a link that loses, repeats and reorders packets: `python lossy_link.py FOLDER [OPTIONS of a run]`.

Two network namespaces, the load generator in one and the simulated engine in the other, with a TUN device each; this process
carries the packets between them. Exit code 77 where it may not.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions

CLONE_NEWNET = 0x40000000
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 1, 0x1000
CLIENT, SERVER = "10.97.0.1", "10.97.0.2"
LOST, LATE, TWICE = 0.02, 0.02, 0.01  # parts of the packets
DELAY_S, LATE_S = 0.002, 0.006
libc = ctypes.CDLL(None, use_errno=True)


def namespace() -> int:
    if libc.unshare(CLONE_NEWNET):
        raise PermissionError(ctypes.get_errno(), "unshare")
    return os.open(f"/proc/self/task/{threading.get_native_id()}/ns/net", os.O_RDONLY)


def device(own: str, other: str) -> int:
    """A TUN device of the namespace that this thread is in."""
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", b"flaky", IFF_TUN | IFF_NO_PI))
    for command in ("link set lo up", f"addr add {own} peer {other} dev flaky", "link set flaky mtu 1500 up"):
        subprocess.run(["ip", *command.split()], check=True)
    return tun


def carry(ends: tuple[int, int], over: threading.Event) -> None:
    """Packets from either end to the other, some of them never, later or twice."""
    draw = random.Random(7)
    waiting: list[tuple[float, int, int, bytes]] = []
    number = 0
    while not over.is_set():
        wait = 0.05 if not waiting else max(0.0, min(0.05, waiting[0][0] - time.monotonic()))
        for ready in select.select(ends, (), (), wait)[0]:
            packet = os.read(ready, 65_536)
            if draw.random() < LOST:
                continue
            for _ in range(2 if draw.random() < TWICE else 1):
                number += 1
                due = time.monotonic() + DELAY_S + (LATE_S if draw.random() < LATE else 0.0)
                heapq.heappush(waiting, (due, number, ends[1] if ready == ends[0] else ends[0], packet))
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, end, packet = heapq.heappop(waiting)
            os.write(end, packet)


def main() -> int:
    folder, options = Path(sys.argv[1]), sys.argv[2:]
    try:
        inside = namespace()
        ends = [device(CLIENT, SERVER)]
        namespace()
        ends.append(device(SERVER, CLIENT))
    except (OSError, subprocess.CalledProcessError) as problem:
        print(f"no network namespaces or TUN devices here: {problem}")
        return 77
    served = SimulatorOptions(host=SERVER, truth=str(folder / "truth.bin"), ttft_ms=20.0, itl_ms=10.0)
    over = threading.Event()
    carrier = threading.Thread(target=carry, args=((ends[0], ends[1]), over))
    with SimulatorProcess(served) as server:
        if libc.setns(inside, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
        carrier.start()
        try:
            command = [sys.executable, "-m", "fastllmload", "--url", server.url, "-o", str(folder / "run"), *options]
            return subprocess.run(command, timeout=120).returncode
        finally:
            over.set()
            carrier.join()


if __name__ == "__main__":
    sys.exit(main())
