"""The process that reads a run's packet ring into a file: `python -m fastllmload.engine.recording.tap_reader`.

Its settings are one line of JSON on its stdin. It ends when that is closed, by the supervisor or with it, and then prints
what it read as JSON on its stdout. It imports little: it is started while the workers are.
"""

import json
import os
import sys
import time

from fastllmload._ext.tap import RETIRE_S, Ring

NICE = 5  # the ring waits for seconds; the worker next to this does not wait at all
STDIN = 0


def main() -> int:
    told = json.loads(sys.stdin.buffer.readline())
    os.nice(NICE)
    ring = Ring(told["fd"], told["block_bytes"], told["blocks"], told["watched"], looped=told["looped"])
    ring.attach(os.open(told["path"], os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))
    while not ring.read(-1, STDIN):
        pass
    # The block that is being filled is handed over when it is old enough, at the second look of the kernel's timer.
    time.sleep(2.2 * RETIRE_S)
    ring.read(0, STDIN)
    used = os.times()
    said = {
        "segments": ring.segments,
        "payload_bytes": ring.payload,
        "drops": ring.drops,
        "freezes": ring.freezes,
        "clock_steps": ring.steps,
        "unwritten": ring.unwritten,
        "foreign": ring.foreign,
        "other_frames": ring.frames(),
        "cpu_s": round(used.user + used.system, 6),
    }
    print(json.dumps(said), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
