"""For how much of the slot time of a closed loop that changes (`--concurrency ramp:1,64`) the client left slots empty."""

from __future__ import annotations

import numpy as np

from fastllmload.arrays import Rows
from fastllmload.arrivals.curve import described_curve, slot_changes
from fastllmload.certificate.evidence import MeasuredWindow, Times
from fastllmload.documents.fields import known
from fastllmload.documents.plan import LoadDescription


def asked_ns(load: LoadDescription, zero_ns: int, window: MeasuredWindow) -> int:
    """The slots that the curve asks for, over the time of *window*: slots times ns; 0 where slots do not change."""
    seconds = known(load.duration_s)
    if load.concurrency_curve is None or seconds is None:
        return 0
    changes = slot_changes(described_curve(load.concurrency_curve), seconds)
    begin, end = max(0, window.start_ns - zero_ns), min(round(seconds * 1e9), window.end_ns - zero_ns)
    if end <= begin:
        return 0
    t = np.unique(np.concatenate([[begin], changes.t_ns[(changes.t_ns > begin) & (changes.t_ns < end)], [end]]))
    return int((changes.at(t[:-1]) * np.diff(t)).sum())


def empty_ns(rows: Rows, t_sched: Times, window: MeasuredWindow) -> int:
    """For how long slots stood empty through the client: from when a slot opened or was free again (*t_sched*, after a cap)
    to the dispatch, and from the end of what it held (of a session its last request) until the client had read it.
    """
    sent = window.contains(t_sched)
    empty = int(np.maximum(rows["t_dispatch"] - t_sched, 0)[sent].sum())
    order = np.lexsort((rows["t_end"], rows["session"], rows["worker"]))
    of, ended = rows["session"][order], rows["worker"][order]
    last = rows[order[np.concatenate([(np.diff(of) != 0) | (np.diff(ended) != 0), [True]])]] if len(rows) else rows
    last = last[(last["t_end"] > 0) & window.contains(last["t_end"])]
    return empty + int(np.maximum(last["t_end_user"] - last["t_end"], 0).sum())
