"""Memory of the client at 50,000 events/s for ten minutes. Target: RSS of the worker flat after the first minute.

Flat: the line through it rises by at most 0.1 MiB a minute. (Its rows and stamps come and go in mapped windows of 1
MiB, so two single readings differ by a few MiB; what is written in ten minutes is 500 MiB.)
"""

from typing import Any

import numpy as np
from pair import arguments, finish, ours, server, show

from fastllmload.records.run import Run

TARGET = 0.1  # MiB per minute


def resident(run: Run) -> dict[str, Any]:
    """RSS in MiB after a minute (or a tenth of a shorter run) and at the end, and the steepest line through it."""
    phase = run.phase("measure")
    assert phase is not None and run.samples is not None
    mine = run.samples[(run.samples["worker"] == 0) & (run.samples["t_ns"] >= phase.start_ns)]
    mine = mine[mine["rss_bytes"] > 0]  # 0: the process was gone
    age = (mine["t_ns"] - phase.start_ns) / 1e9
    settled = age >= min(60.0, age[-1] / 10)
    rss = mine["rss_bytes"][settled] / 2**20
    slope = float(np.polyfit(age[settled], rss, 1)[0]) * 60
    return {
        "rss_begin_mib": float(rss[0]),
        "rss_end_mib": float(rss[-1]),
        "rss_max_mib": float(rss.max()),
        "mib_per_min": slope,
    }


def main() -> None:
    asked = arguments(__doc__, streams=1_000, seconds=600.0, tokens=200, itl_ms=20.0, isl=320)
    load = ("-c", str(asked.streams), "-d", f"{asked.seconds}s", "--osl", str(asked.tokens), "--isl", str(asked.isl))
    with server(itl_ms=asked.itl_ms, ttft_ms=asked.itl_ms, phase="spread") as engine:
        mine = ours(engine.url, *load, keep=resident)
    show(mine)
    growth = mine.more["rss_max_mib"] / mine.more["rss_begin_mib"] - 1
    figures = {"events_per_s": mine.tokens / mine.wall_s, "growth": growth, "failures": mine.failures}
    finish(
        "memory_flat",
        {**vars(asked), **figures, **mine.more, "target_mib_per_min": TARGET},
        abs(mine.more["mib_per_min"]) <= TARGET and mine.failures == 0,
    )


if __name__ == "__main__":
    main()
