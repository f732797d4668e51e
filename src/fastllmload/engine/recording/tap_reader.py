"""The process that reads a run's packet ring into a file: `python -m fastllmload.engine.recording.tap_reader`.

Settings: a line of JSON on stdin. It ends when stdin is closed, and prints its figures as JSON. It imports little.
"""

import json
import os
import sys
import time

from fastllmload._ext.tap.ring import RETIRE_S, Ring

NICE = 5  # the ring can wait for seconds; a worker on the same CPU cannot
STDIN = 0


def main() -> int:
    spec = json.loads(sys.stdin.buffer.readline())
    os.nice(NICE)
    ring = Ring(spec["fd"], spec["block_bytes"], spec["blocks"], spec["watched"], looped=spec["looped"])
    ring.attach(os.open(spec["path"], os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))
    while not ring.read(-1, STDIN):
        pass
    # The kernel hands over a partly filled block when its timer expires for the second time.
    time.sleep(2.2 * RETIRE_S)
    ring.read(0, STDIN)
    used = os.times()
    figures = {
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
    print(json.dumps(figures), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
