"""For how much of the slot time of a closed loop the client left slots empty: where slots change (`--concurrency
ramp:1,64`), and in each class of a mix that is a closed loop.
"""

from __future__ import annotations

import numpy as np

from fastllmload.arrays import Mask, Rows
from fastllmload.arrivals.curve import changing_slots
from fastllmload.certificate.evidence import LATE_NS, ClosedClass, MeasuredWindow, Times
from fastllmload.documents.fields import known
from fastllmload.documents.plan import LoadDescription, PlanDescription


def asked_ns(load: LoadDescription, zero_ns: int, window: MeasuredWindow) -> int:
    """The slots that the curve asks for, over the time of *window*: slots times ns; 0 where slots do not change."""
    changes, seconds = changing_slots(load), known(load.duration_s)
    if changes is None or seconds is None:
        return 0
    begin, end = max(0, window.start_ns - zero_ns), min(round(seconds * 1e9), window.end_ns - zero_ns)
    if end <= begin:
        return 0
    t = np.unique(np.concatenate([[begin], changes.t_ns[(changes.t_ns > begin) & (changes.t_ns < end)], [end]]))
    return int((changes.at(t[:-1]) * np.diff(t)).sum())


def empty_ns(rows: Rows, t_sched: Times, window: MeasuredWindow, above_ns: int = 0) -> int:
    """For how long slots stood empty through the client: from when a slot opened or was free again (*t_sched*, after a cap)
    to the dispatch, and from the end of what it held (of a session its last request) until the client had read it. Only
    spans longer than *above_ns* count.
    """
    sent = window.contains(t_sched)
    empty = longer_than(above_ns, (rows["t_dispatch"] - t_sched)[sent])
    order = np.lexsort((rows["t_end"], rows["session"], rows["worker"]))
    of, ended = rows["session"][order], rows["worker"][order]
    last = rows[order[np.concatenate([(np.diff(of) != 0) | (np.diff(ended) != 0), [True]])]] if len(rows) else rows
    last = last[(last["t_end"] > 0) & window.contains(last["t_end"])]
    return empty + longer_than(above_ns, last["t_end_user"] - last["t_end"])


def longer_than(least_ns: int, spans_ns: Times) -> int:
    """The sum of the spans that are longer."""
    return int(spans_ns[spans_ns > least_ns].sum())


def closed_classes(
    described: PlanDescription, rows: Rows, t_sched: Times, filling: Mask, zero_ns: int, window: MeasuredWindow
) -> tuple[ClosedClass, ...]:
    """The closed loops of a mix, of its dispatched *rows*: *t_sched* is when each slot was free, after a cap, and *filling*
    which of them fill slots for the first time; time zero is at *zero_ns*. All slots of a class are asked for until the
    end of *window*, unless their number changes. As in a closed loop that is alone, up to LATE_NS from an end to the next
    request is not late.
    """
    found = []
    for number, slots in described.closed_classes.items():
        mine = rows["request_class"] == number
        judged = mine & window.contains(t_sched)
        load, length = described.classes[number].load, max(0, window.end_ns - window.start_ns)
        changing = 0 if load is None else asked_ns(load, zero_ns, window)
        asked = changing or slots * length
        free = t_sched[judged & ~filling]
        order = np.argsort(free, kind="stable")
        found.append(
            ClosedClass(
                name=str(described.classes[number].name),
                slots=slots,
                asked_mean=changing / length if changing else None,
                t_sched=free[order],
                t_dispatch=rows["t_dispatch"][judged & ~filling][order].astype(np.int64),
                first_fill=rows["t_dispatch"][mine & filling].astype(np.int64),
                empty=empty_ns(rows[mine], t_sched[mine], window, LATE_NS) / asked if asked else None,
            )
        )
    return tuple(found)
