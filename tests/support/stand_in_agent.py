"""In the place of an agent: `stand_in_agent.py FOLDER [WAY]` reads its config and writes what it is to FOLDER/agent.json.

WAY is its exit code, or minus the signal that it sends to itself; without one it runs until it is killed, or for a minute.
FOLDER may contain `{address}`, the address of its host.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sys
import time
from pathlib import Path


def own_address() -> str:
    """The address from which this host would send to another one; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            asked.connect(("10.98.0.254", 9))
        except OSError:
            return "127.0.0.1"
        return str(asked.getsockname()[0])


def main() -> int:
    folder = Path(sys.argv[1].replace("{address}", own_address()))
    folder.mkdir(exist_ok=True)
    line = sys.stdin.buffer.readline()
    found = {
        "pid": os.getpid(),
        "parent": os.getppid(),
        "session": os.getsid(0),
        "network": os.readlink("/proc/self/ns/net"),
        "priority": os.getpriority(os.PRIO_PROCESS, 0),
        "config": hashlib.sha256(line).hexdigest(),
    }
    (folder / "writing").write_text(json.dumps(found))
    (folder / "writing").rename(folder / "agent.json")
    if len(sys.argv) > 2:
        print("the last words", file=sys.stderr, flush=True)
        if (way := int(sys.argv[2])) < 0:
            os.kill(os.getpid(), -way)
        return way
    time.sleep(60)
    return 0


if __name__ == "__main__":
    sys.exit(main())
