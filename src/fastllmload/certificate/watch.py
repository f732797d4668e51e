"""What the supervisor watches while the measure phase runs, for the certificate: the host's stalls, stolen time, and the
workers' histograms over that phase alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from fastllmload._ext import counters
from fastllmload._ext.hiccup import HiccupMeter
from fastllmload.certificate.ceiling import stored_ceiling
from fastllmload.engine.hostlimits import file_limit, port_range, reserved_ports
from fastllmload.records.sharedmem import SharedWords

HICCUP, STALLS, HISTOGRAMS = "hiccup.npy", "stalls.npy", "histograms.npy"
# Order in histograms.npy: int64[workers, len(WATCHED), HDR words]
WATCHED = {"lag": counters.H_LAG, "socket_to_user": counters.H_SOCKET_TO_USER, "stall": counters.H_STALL}
STAT = Path("/proc/stat")


class CpuTicks(msgspec.Struct, frozen=True):
    """CPU time of the whole host since boot, in ticks."""

    total: int
    steal: int


def cpu_ticks(stat: Path = STAT) -> CpuTicks:
    """User and nice already hold guest time, so it is not added again."""
    fields = [int(word) for word in stat.read_text().partition("\n")[0].split()[1:]]
    return CpuTicks(total=sum(fields[:8]), steal=fields[7] if len(fields) > 7 else 0)


def steal_share(before: CpuTicks, after: CpuTicks) -> float | None:
    """Share of the host's CPU time that the hypervisor gave to others; None when no tick passed."""
    ticks = after.total - before.total
    return (after.steal - before.steal) / ticks if ticks > 0 else None


class Watch:
    """`start()` when all workers are READY for the measure phase, `stop(folder)` when it has ended; each once."""

    def __init__(self, workers: Sequence[SharedWords], interval_ns: int = 1_000_000) -> None:
        self._workers = workers
        self._meter = HiccupMeter(interval_ns)
        self._ticks: CpuTicks | None = None
        self._words = self._read()

    def _read(self) -> npt.NDArray[np.int64]:
        return np.array(
            [[worker.histogram(number) for number in WATCHED.values()] for worker in self._workers]
        )

    def start(self) -> None:
        self._words = self._read()
        self._ticks = cpu_ticks()
        self._meter.start()

    def stop(self, folder: Path) -> dict[str, Any]:
        """Write hiccup.npy, stalls.npy and histograms.npy; returns what belongs into run.json as `watch`.

        A watch that was never started writes nothing and returns {}: workers may die before the phase begins.
        """
        if self._ticks is None:
            return {}
        self._meter.stop()
        np.save(folder / HICCUP, self._meter.words)
        np.save(folder / STALLS, self._meter.stalls)
        np.save(folder / HISTOGRAMS, self._read() - self._words)
        low, high = port_range()
        ceiling = stored_ceiling()
        return {
            "steal_share": steal_share(self._ticks, cpu_ticks()),
            "ports": high - low + 1 - reserved_ports(),
            "fd_limit": file_limit().soft,
            "ceiling": None if ceiling is None else msgspec.to_builtins(ceiling),
        }
