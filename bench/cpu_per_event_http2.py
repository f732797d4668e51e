"""CPU per token over HTTP/2 in clear text, ours against a client on libnghttp2: 500 streams at 50 tokens/s, 100 on a
connection.

Target: at most 1.25 x. The simulated engine is behind nginx, which speaks HTTP/2 and sends each event as it comes. Needs
nginx and libnghttp2 with its header files (Debian: nginx, libnghttp2-dev).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from pair import (
    CPUS,
    HERE,
    SERVER_CPU,
    alternate,
    arguments,
    finish,
    median,
    ours,
    paired_ratio,
    pinned_json,
    server,
)

sys.path.insert(0, str(HERE.parent / "tests"))
from integration.servers.real_gateways import nginx

CLIENT = HERE / "limit" / "bin" / "http2client"
TARGET = 1.25


def built() -> None:
    """SystemExit with what is missing."""
    if shutil.which("nginx") is None:
        raise SystemExit("cpu_per_event_http2 needs nginx (Debian: apt install nginx)")
    done = subprocess.run(
        ["make", "-s", "-C", str(CLIENT.parent.parent), "bin/http2client"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"cpu_per_event_http2 needs libnghttp2 (Debian: apt install libnghttp2-dev):\n{done.stderr}")


def main() -> None:
    asked = arguments(__doc__, streams=500, tokens=400, itl_ms=20.0, per_connection=100, rounds=5)
    built()
    words = ("-c", str(asked.streams), "-n", str(asked.streams), "--osl", str(asked.tokens), "--http-version", "2",
             "--streams-per-connection", str(asked.per_connection))  # fmt: skip
    options = {"itl_ms": asked.itl_ms, "ttft_ms": 2 * asked.itl_ms, "phase": "spread"}
    with tempfile.TemporaryDirectory(prefix="fastllmload-bench-") as folder, server(**options) as engine:
        os.sched_setaffinity(0, {SERVER_CPU})  # nginx inherits it; the clients are pinned elsewhere
        with nginx(Path(folder) / "nginx", engine.port, http2=True) as port:
            os.sched_setaffinity(0, CPUS)
            a, b = alternate(
                asked.rounds,
                lambda: ours(f"http://127.0.0.1:{port}/v1", *words),
                lambda: pinned_json(
                    "http2client",
                    [str(CLIENT), "--port", str(port), "--streams", str(asked.streams), "--tokens", str(asked.tokens),
                     "--connections", str(-(-asked.streams // asked.per_connection))],
                    asked.tokens,
                ),
            )  # fmt: skip
    ratio = paired_ratio(a, b, "us_per_token")
    failures = sum(cost.failures for cost in (*a, *b))
    figures = {"ours_us": median(a, "us_per_token"), "limit_us": median(b, "us_per_token"), "ratio": ratio}
    finish(
        "cpu_per_event_http2",
        {**vars(asked), **figures, "target": TARGET, "failures": failures},
        ratio <= TARGET and failures == 0,
    )


if __name__ == "__main__":
    main()
