"""A process that only takes CPU time, without times always: python hog.py [--cpu N] [--nice N] [--busy-ms 3 --idle-ms 10]"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import time


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cpu", type=int)
    parser.add_argument("--nice", type=int, default=0)
    parser.add_argument("--busy-ms", type=float, default=0.0)
    parser.add_argument("--idle-ms", type=float, default=0.0)
    asked = parser.parse_args()
    if asked.cpu is not None:
        os.sched_setaffinity(0, {asked.cpu})
    with contextlib.suppress(PermissionError):  # below 0 it takes a privilege
        os.nice(asked.nice)
    while True:
        until = time.perf_counter() + asked.busy_ms / 1e3
        while not asked.busy_ms or time.perf_counter() < until:
            pass
        time.sleep(random.expovariate(1e3 / asked.idle_ms))


if __name__ == "__main__":
    main()
