"""Bad seconds are found and reported, whatever the figures of the complete run are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from evidence_maker import MS, START_NS, clean, with_worker

from fastllmload.certificate.evidence import CertificateEvidence, MeasuredWindow
from fastllmload.certificate.per_second import lags_us, seconds_of, summarize
from fastllmload.documents.certificate import Second
from fastllmload.documents.write import plain
from fastllmload.records import layout
from fastllmload.records.run import Run

SECOND = 1_000_000_000


def run_of(brackets_ns: list[tuple[int, int]]) -> Run:
    """One content event per (instant after START_NS, bracket)."""
    events = np.zeros(len(brackets_ns), layout.EVENT)
    events["t_ns"] = [START_NS + t for t, _ in brackets_ns]
    events["bracket_ns"] = [bracket for _, bracket in brackets_ns]
    events["stamp"] = [layout.STAMP_COALESCED if bracket else layout.STAMP_KERNEL for _, bracket in brackets_ns]
    events["kind"] = layout.EVENT_CONTENT
    return Run(Path("."), {}, np.zeros(1, layout.REQUEST), events, np.array([0, len(events)]))


def seconds(evidence: CertificateEvidence, run: Run | None = None) -> tuple[Second, ...]:
    return seconds_of(run or run_of([]), evidence.window, evidence.sends, evidence.workers)


def test_a_clean_run_has_no_bad_second() -> None:
    evidence = clean()
    found = summarize(seconds(evidence))
    assert plain(found) == {"n": 20, "bad": 0, "worst": []}


def test_the_second_with_late_sends_is_found() -> None:
    """Ten late sends of 10,000 do not change P99 of the run; the second that contains them is reported with its lag."""
    evidence = clean()
    late = evidence.sends.t_dispatch.copy()
    delayed = np.flatnonzero((evidence.sends.t_sched - START_NS) // SECOND == 7)[:10]
    late[delayed] = evidence.sends.t_sched[delayed] + 30 * MS
    found = summarize(seconds(replace(evidence, sends=replace(evidence.sends, t_dispatch=late))))
    assert (found.bad, found.worst[0].at_s) == (1, 7)
    assert found.worst[0].lag_p99_us == pytest.approx(30_000, rel=0.01)


def test_brackets_and_coalesced_events_belong_to_their_second() -> None:
    """P99 of the brackets of each second, to a twelfth; events outside the window do not count."""
    run = run_of(
        [(5 * SECOND + k, 0) for k in range(50)]
        + [(6 * SECOND + k, 3 * MS) for k in range(50)]
        + [(99 * SECOND, 9 * MS)]
    )
    found = seconds(clean(), run)
    assert found[5].bracket_p99_us == 0.0 and found[5].coalesced_share == 0.0
    assert found[6].bracket_p99_us == pytest.approx(3_000, rel=0.1) and found[6].coalesced_share == 1.0
    assert found[4].bracket_p99_us is None
    assert [one.at_s for one in summarize(found).worst] == [6]


def test_a_busy_second_is_bad_and_the_worst_come_first() -> None:
    evidence = clean()
    cpu = evidence.workers[0].cpu_ns.copy()
    for second, share in ((3, 0.85), (9, 0.99)):  # four samples per second
        cpu[4 * second + 1 :] += int((share - 0.3) * SECOND)
    found = summarize(seconds(with_worker(evidence, cpu_ns=cpu)))
    assert [one.at_s for one in found.worst] == [9, 3]
    assert found.worst[0].cpu_share == pytest.approx(0.99)


def test_releases_without_planned_instants_have_no_lag() -> None:
    evidence = clean()
    assert lags_us(replace(evidence.sends, cap=4), evidence.window, 20) == [None] * 20
    assert seconds(replace(evidence, window=MeasuredWindow(START_NS, START_NS + SECOND // 2))) == ()
