"""Determines the measurement window of a run and the populations in it (spec/metrics 2).

Requests of users who left by plan (whatever the server did) or read slowly (which determines their times) are in neither the
latency nor the attainment population. A request that its user gave up after a deadline was not served: it stays in the
attainment population, misses every objective, and does not count in `fail_rate`; `abandon_rate` is their share.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fastllmload.arrays import Mask, Numbers, Rows, Values
from fastllmload.documents.plan import PlanDescription
from fastllmload.documents.run import Phase
from fastllmload.documents.run_parts.sessions import Users
from fastllmload.records import layout
from fastllmload.records.run import Run


@dataclass(frozen=True)
class Window:
    """[w0, w1) in CLOCK_MONOTONIC ns; a window that ends with the last event (*closed*) includes w1."""

    w0_ns: int
    w1_ns: int
    closed: bool

    @property
    def seconds(self) -> float:
        return (self.w1_ns - self.w0_ns) / 1e9

    def holds(self, t_ns: Numbers) -> Mask:
        """Which times lie inside; times of 0 never do."""
        before_end = t_ns <= self.w1_ns if self.closed else t_ns < self.w1_ns
        return (t_ns > 0) & (t_ns >= self.w0_ns) & before_end


def window_of(run: Run) -> Window | None:
    """Window of the measure phase; None when it has no request.

    Bounded by duration: from 10% (the phase's ramp_share, IETF 5.2.3.2) to the end of sending. Bounded by count, or
    when run.json does not have the phase: first t_submit to last t_end, less the configured ramp.
    """
    rows = run.rows[run.rows["phase"] == layout.MEASURE]
    phase = run.phase("measure")
    if not rows["t_dispatch"].any():
        return None
    if phase is not None and phase.bound == "duration":
        return by_duration(run, rows, phase)
    return by_count(rows, 0.0 if phase is None else phase.ramp_share)


def by_duration(run: Run, rows: Rows, phase: Phase) -> Window:
    """The window of a phase bounded by duration. In a killed run it ends with the last record, if that is earlier."""
    last = max(int(rows["t_dispatch"].max()), int(rows["t_end"].max()))
    end = last if phase.end_ns is None else phase.end_ns
    if run.incomplete:
        end = min(end, max(last, run.last_event_ns))
    return Window(phase.start_ns + round(phase.ramp_share * (end - phase.start_ns)), end, closed=False)


def by_count(rows: Rows, ramp_share: float) -> Window | None:
    """First t_submit to last t_end; None when nothing was submitted or nothing ended."""
    submitted, ended = rows["t_submit"][rows["t_submit"] > 0], rows["t_end"]
    if len(submitted) == 0 or not ended.any():
        return None
    first, last = int(submitted.min()), int(ended.max())
    return Window(first + round(ramp_share * (last - first)), last, closed=True)


@dataclass(frozen=True)
class Populations:
    """Masks over the rows of a run.

    *measured*: rows of the measure phase; *submitted*: those sent, or tried, in the window and ended since (attainment
    population); *latency*: those of *submitted* that are ok. A request whose last byte was never sent counts at its
    t_dispatch. Requests in flight when a run was killed or a host was lost are in neither, nor are those of users who left
    by plan or read slowly.
    """

    measured: Mask
    submitted: Mask
    latency: Mask

    def among(self, rows: Mask) -> Populations:
        """The requests of each that are among *rows*; itself where all are."""
        return self if rows.all() else Populations(self.measured & rows, self.submitted & rows, self.latency & rows)


def populations(run: Run, window: Window | None) -> Populations:
    """The populations of *window*; empty without a window."""
    rows = run.rows
    measured = rows["phase"] == layout.MEASURE
    if window is None:
        none = np.zeros(len(rows), np.bool_)
        return Populations(measured, none, none)
    instant = np.where(rows["t_submit"] > 0, rows["t_submit"], rows["t_dispatch"])
    ended = (rows["status"] != layout.NOT_SENT) & ~unended(rows)
    # Before the first t_submit of a count-bounded run there may be a request that failed to connect.
    inside = window.holds(np.maximum(instant, window.w0_ns) if window.closed else instant) & (instant > 0)
    submitted = measured & ended & inside & ~excluded(rows)
    return Populations(measured, submitted, submitted & (rows["status"] == layout.OK))


def on_schedule(described: PlanDescription, request_class: Values) -> Mask:
    """Which requests statements on the schedule are about, by their classes: in a mix with closed loops those of open ones,
    else all.
    """
    slots = described.closed_classes
    if described.load.loop == "closed" or not slots:
        return np.ones(len(request_class), np.bool_)
    return ~np.isin(request_class, list(slots))


def unended(rows: Rows) -> Mask:
    """Requests of which it is not known how they ended: in flight in a killed run, or of a host that was lost."""
    found: Mask = np.isin(rows["status"], (layout.IN_FLIGHT, layout.HOST_LOST))
    return found


def unsent(rows: Rows) -> Mask:
    """Requests that were not dispatched, as far as is known: those of a lost host may have been."""
    lost = (rows["status"] == layout.HOST_LOST) & (rows["t_dispatch"] == 0)
    found: Mask = (rows["status"] == layout.NOT_SENT) | lost
    return found


def left_by_plan(rows: Rows) -> Mask:
    found: Mask = rows["error"] == layout.CLIENT_CANCELLED
    return found


def gave_up(rows: Rows) -> Mask:
    found: Mask = rows["error"] == layout.CLIENT_ABANDONED
    return found


def read_slowly(rows: Rows) -> Mask:
    found: Mask = (rows["client"] & layout.CLIENT_SLOW) != 0
    return found


def excluded(rows: Rows) -> Mask:
    """Requests that are in no population, because they do not show how the server performs."""
    return left_by_plan(rows) | read_slowly(rows)


def users_block(rows: Rows) -> Users | None:
    """`users` of run.json, over the *rows* of the measure phase; None when all of them waited for the end."""
    if not rows["client"].any():
        return None
    left, gone, slow = left_by_plan(rows), gave_up(rows), read_slowly(rows)
    chosen = (rows["client"] & layout.CLIENT_CANCELS) != 0
    heard = left & (rows["content_events"] > 0)
    return Users(
        chosen_to_leave=int(chosen.sum()),
        left_by_plan=int(left.sum()),
        ended_before_leaving=int((chosen & (rows["status"] == layout.OK)).sum()),
        events_until_they_left=float(rows["content_events"][heard].mean()) if heard.any() else None,
        gave_up=int(gone.sum()),
        slow_readers=int(slow.sum()),
        denominators=(
            "requests that users left by plan or read slowly count in no latency, success rate or attainment; requests that "
            "users gave up count in success_rate, fail_rate and attainment as neither ok nor failed"
        ),
    )
