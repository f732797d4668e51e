"""Computes the headroom: the calibrated ceiling divided by what the busiest second used."""

from __future__ import annotations

import numpy as np

from fastllmload.certificate.ceiling import Ceiling
from fastllmload.certificate.evidence import Figures, Times, WorkerRecord

SECOND = 1_000_000_000


def headroom(workers: tuple[WorkerRecord, ...], ceiling: Ceiling | None) -> Figures:
    """headroom (None without a calibration) from the busiest second of the busiest worker, and its two rates.

    Events and new requests both cost CPU, so their shares of the ceiling add up: 1 / (events/ceiling + requests/ceiling).
    """
    busiest: tuple[float, float, float] | None = None
    for worker in workers:
        events, requests = peak_rate(worker.t_ns, worker.events), peak_rate(worker.t_ns, worker.released)
        if events is None or requests is None:
            continue
        used = 0.0 if ceiling is None else events / ceiling.events_per_s + requests / ceiling.requests_per_s
        busiest = max(busiest or (used, events, requests), (used, events, requests))
    if busiest is None:
        return {"headroom": None, "peak_events_per_s": None, "peak_requests_per_s": None}
    used, events, requests = busiest
    return {
        "headroom": 1 / used if ceiling is not None and used > 0 else None,
        "peak_events_per_s": events,
        "peak_requests_per_s": requests,
    }


def peak_rate(t_ns: Times, counts: Times) -> float | None:
    """The highest rate per second over any interval of at least a second (over the complete series when it is shorter)."""
    if len(t_ns) < 2 or len(counts) != len(t_ns) or t_ns[-1] <= t_ns[0]:
        return None
    later = np.searchsorted(t_ns, t_ns + SECOND)
    begins = np.flatnonzero(later < len(t_ns))
    if not len(begins):
        return float((counts[-1] - counts[0]) / (t_ns[-1] - t_ns[0]) * SECOND)
    ends = later[begins]
    return float(((counts[ends] - counts[begins]) / (t_ns[ends] - t_ns[begins])).max() * SECOND)
