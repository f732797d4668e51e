"""Compares requests in flight with the slots of a closed loop that change."""

from __future__ import annotations

import numpy as np

from fastllmload.arrivals.curve import described_curve, slot_changes
from fastllmload.documents.fields import known
from fastllmload.documents.run import SlotsFollowed
from fastllmload.metrics.run.window import Populations
from fastllmload.records.run import Run


def slots_block(run: Run, chosen: Populations) -> SlotsFollowed | None:
    """`slots` of run.json; None where slots do not change, or nothing was sent."""
    load, phase = run.document.plan.description.load, run.phase("measure")
    seconds = known(load.duration_s)
    sent = run.rows[chosen.measured & (run.rows["t_dispatch"] > 0)]
    if load.concurrency_curve is None or seconds is None or phase is None or phase.start_ns is None or not len(sent):
        return None
    asked = slot_changes(described_curve(load.concurrency_curve), seconds)
    end = int(seconds * 1e9)
    begun = sent["t_dispatch"] - phase.start_ns
    ended = np.where(sent["t_end"] > 0, sent["t_end"] - phase.start_ns, end)
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
