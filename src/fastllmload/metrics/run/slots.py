"""Compares requests in flight with the slots of a closed loop that change, and with those of a closed loop of a mix."""

from __future__ import annotations

import numpy as np

from fastllmload.arrays import Numbers, Rows
from fastllmload.arrivals.curve import SlotChanges, changing_slots
from fastllmload.documents.fields import known
from fastllmload.documents.run_parts.classes import SlotsFollowed
from fastllmload.metrics.run.window import Populations
from fastllmload.records.run import Run

NEVER = np.iinfo(np.int64).max


def slots_block(run: Run, chosen: Populations) -> SlotsFollowed | None:
    """`slots` of run.json; None where slots do not change, or nothing was sent."""
    load, phase = run.document.plan.description.load, run.phase("measure")
    asked, seconds = changing_slots(load), known(load.duration_s)
    sent = run.rows[chosen.measured & (run.rows["t_dispatch"] > 0)]
    if asked is None or seconds is None or phase is None or phase.start_ns is None or not len(sent):
        return None
    end = int(seconds * 1e9)
    ended = np.where(sent["t_end"] > 0, sent["t_end"] - phase.start_ns, end)
    return followed(sent["t_dispatch"] - phase.start_ns, ended, asked, end)


def class_slots(run: Run, chosen: Populations, number: int) -> SlotsFollowed | None:
    """`slots` of a class of a mix; None for one that is an open loop, without an end of sending, or when nothing was sent. A
    session holds its slot from its first request to the end of its last.
    """
    described, phase = run.document.plan.description, run.phase("measure")
    slots = described.closed_classes.get(number)
    mine = chosen.measured & (run.rows["request_class"] == number) & (run.rows["t_dispatch"] > 0)
    if slots is None or phase is None or phase.end_ns is None or not mine.any():
        return None
    load, end = described.classes[number].load, phase.end_ns - phase.start_ns
    asked = None if load is None else changing_slots(load)
    if asked is None:
        asked = SlotChanges(np.zeros(1, np.int64), np.array([slots], np.int64))
    begun, ended = held(run.rows[mine])
    return followed(begun - phase.start_ns, np.where(ended < NEVER, ended - phase.start_ns, end), asked, end)


def held(sent: Rows) -> tuple[Numbers, Numbers]:
    """First dispatch and last end of what held a slot: a request, or a session; NEVER where it has not ended."""
    rows = sent[np.lexsort((sent["t_dispatch"], sent["session"], sent["worker"]))]
    new = (np.diff(rows["session"].astype(np.int64)) != 0) | (np.diff(rows["worker"].astype(np.int64)) != 0)
    first = np.flatnonzero(np.concatenate([[True], new]))
    ended = np.where(rows["t_end"] > 0, rows["t_end"], NEVER).astype(np.int64)
    return rows["t_dispatch"][first].astype(np.int64), np.maximum.reduceat(ended, first)


def followed(begun: Numbers, ended: Numbers, asked: SlotChanges, end: int) -> SlotsFollowed:
    """How what was in flight from *begun* to *ended* followed the slots *asked* for, in [0, *end*); all in ns."""
    instants = np.unique(np.clip(np.concatenate([asked.t_ns, begun, ended, [0, end]]), 0, end))
    wide = np.diff(instants)
    wanted = asked.at(instants[:-1])
    counts = [np.searchsorted(np.sort(each), instants[:-1], side="right") for each in (begun, ended)]
    achieved = counts[0] - counts[1]
    total = float(wide.sum())
    return SlotsFollowed(
        asked_mean=float((wanted * wide).sum()) / total,
        achieved_mean=float((achieved * wide).sum()) / total,
        within_one_share=float(wide[np.abs(achieved - wanted) <= 1].sum()) / total,
        above_share=float(wide[achieved > wanted].sum()) / total,
    )
