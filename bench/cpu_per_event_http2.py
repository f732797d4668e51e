"""CPU per token over HTTP/2 in clear text, ours against a client on libnghttp2: 500 streams at 50 tokens/s, 100 on a
connection.

Target: at most 1.25 x. The engine has nginx in front, which speaks HTTP/2 and sends each event as it comes. It needs
nginx and libnghttp2 with its header files (Debian: nginx, libnghttp2-dev). `--grpc`: calls of vLLM's gRPC instead of
chats, from the simulated engine itself; at most 1.3 x.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
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
TARGET, TARGET_GRPC = 1.25, 1.3


def built(gateway: bool) -> None:
    """SystemExit with what is missing."""
    if gateway and shutil.which("nginx") is None:
        raise SystemExit("cpu_per_event_http2 needs nginx (Debian: apt install nginx)")
    done = subprocess.run(
        ["make", "-s", "-C", str(CLIENT.parent.parent), "bin/http2client"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"cpu_per_event_http2 needs libnghttp2 (Debian: apt install libnghttp2-dev):\n{done.stderr}")


@contextlib.contextmanager
def served(engine: int, gateway: bool) -> Iterator[int]:
    """The port of the engine, or of nginx before it."""
    if not gateway:
        yield engine
        return
    with tempfile.TemporaryDirectory(prefix="fastllmload-bench-") as folder:
        os.sched_setaffinity(0, {SERVER_CPU})  # nginx inherits it; the clients are pinned elsewhere
        with nginx(Path(folder) / "nginx", engine, http2=True) as port:
            os.sched_setaffinity(0, CPUS)
            yield port


def main() -> None:
    asked = arguments(__doc__, streams=500, tokens=400, itl_ms=20.0, per_connection=100, rounds=5, grpc=False)
    built(not asked.grpc)
    protocol = ("--endpoint-type", "vllm-grpc", "--prompt-form", "ids") if asked.grpc else ("--http-version", "2")
    words = ("-c", str(asked.streams), "-n", str(asked.streams), "--osl", str(asked.tokens), *protocol,
             "--streams-per-connection", str(asked.per_connection))  # fmt: skip
    options = {"itl_ms": asked.itl_ms, "ttft_ms": 2 * asked.itl_ms, "phase": "spread"}
    command = [str(CLIENT), "--streams", str(asked.streams), "--tokens", str(asked.tokens), "--grpc", str(int(asked.grpc)),
               "--connections", str(-(-asked.streams // asked.per_connection))]  # fmt: skip
    with server(**options) as engine, served(engine.port, not asked.grpc) as port:
        a, b = alternate(
            asked.rounds,
            lambda: ours(f"http://127.0.0.1:{port}" + "/v1" * (not asked.grpc), *words),
            lambda: pinned_json("http2client", [*command, "--port", str(port)], asked.tokens),
        )
    ratio = paired_ratio(a, b, "us_per_token")
    target = TARGET_GRPC if asked.grpc else TARGET
    failures = sum(cost.failures for cost in (*a, *b))
    figures = {"ours_us": median(a, "us_per_token"), "limit_us": median(b, "us_per_token"), "ratio": ratio}
    finish(
        "cpu_per_event_http2",
        {**vars(asked), **figures, "target": target, "failures": failures},
        ratio <= target and failures == 0,
    )


if __name__ == "__main__":
    main()
