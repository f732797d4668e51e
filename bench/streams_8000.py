"""8,000 streams at 10 tokens/s in one client process. Target: all held at once, all complete, RSS at most 600 MB."""

from typing import Any

import numpy as np
from pair import arguments, finish, ours, server, show

from fastllmload.records.run import Run

TARGET_MB = 600


def held(run: Run) -> dict[str, Any]:
    """Most streams that were between first token and end at one instant."""
    rows = run.rows[run.rows["t_first"] > 0]
    edges = np.concatenate([rows["t_first"], rows["t_end"]])
    steps = np.concatenate([np.ones(len(rows), np.int64), -np.ones(len(rows), np.int64)])
    return {"held": int(np.cumsum(steps[np.argsort(edges, kind="stable")]).max())}


def main() -> None:
    asked = arguments(__doc__, streams=8_000, tokens=150, itl_ms=100.0)
    with server(itl_ms=asked.itl_ms, ttft_ms=asked.itl_ms, phase="spread") as engine:
        mine = ours(
            engine.url,
            "-c",
            str(asked.streams),
            "-n",
            str(asked.streams),
            "--osl",
            str(asked.tokens),
            keep=held,
        )
    show(mine)
    rss_mb = mine.more["rss_mib"] * 2**20 / 1e6
    figures = {
        "requests": mine.requests,
        "failures": mine.failures,
        "rss_mb": rss_mb,
        "cpu_share": mine.cpu_s / mine.wall_s,
    }
    met = mine.more["held"] == asked.streams and mine.failures == 0 and rss_mb <= TARGET_MB
    finish("streams_8000", {**vars(asked), **figures, **mine.more}, met)


if __name__ == "__main__":
    main()
