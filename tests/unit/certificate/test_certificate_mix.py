"""A mix of open and closed loops, from rows made by hand: what is said of the schedule, and of the slots of each class."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from evidence_maker import MS, START_NS

from fastllmload._ext.record.recorder import Recorder
from fastllmload.certificate.attribution import late
from fastllmload.certificate.judge import judge
from fastllmload.certificate.run_evidence import from_run
from fastllmload.documents.plan import (
    ArrivalFacts,
    ClassDescription,
    LoadDescription,
    PlanDescription,
    PlanDocument,
    PlanSummary,
)
from fastllmload.documents.write import plain
from fastllmload.metrics.run.measure import measure
from fastllmload.plan.plan import REQUIRED, write_document
from fastllmload.records import layout
from fastllmload.records.run import Run, load

SECONDS, LAG_NS, TOOK_NS = 4, 30_000, 50 * MS
OPEN, BATCH, SMALL = 0, 1, 2


def described(open_rate: float | None, slots: dict[str, int]) -> PlanDescription:
    open_class = ClassDescription(
        name="chat",
        requests=int((open_rate or 0) * SECONDS),
        load=LoadDescription(loop="open", arrivals=ArrivalFacts(name="constant", rate=open_rate)),
    )
    closed = [
        ClassDescription(name=name, requests=100, load=LoadDescription(loop="closed", concurrency=many, cycles=True))
        for name, many in slots.items()
    ]
    alone = LoadDescription(loop="closed", concurrency=sum(slots.values()), cycles=True, duration_s=SECONDS)
    mixed = LoadDescription(loop="open", arrivals=ArrivalFacts(name="classes", rate=open_rate), duration_s=SECONDS)
    first = ClassDescription(name="chat", requests=0) if open_rate is None else open_class
    return PlanDescription(load=alone if open_rate is None else mixed, classes=(first, *closed))


def slot(t_first: int, turn_around_ns: int, read_ns: int = 0) -> list[tuple[int, int, int]]:
    """(t_sched, t_dispatch, t_end) of the requests of one slot: each end is read *read_ns* late, and the next is dispatched
    *turn_around_ns* after that.
    """
    found, free = [], t_first
    while free < START_NS + SECONDS * 1_000_000_000:
        begun = free + turn_around_ns
        found.append((free, begun, begun + TOOK_NS))
        free = begun + TOOK_NS + read_ns
    return found


def write_mix(
    folder: Path, plan: PlanDescription, slots: dict[int, list[list[tuple[int, int, int]]]], read_ns: int = 0
) -> Run:
    """Class OPEN every 20 ms, LAG_NS late, where the plan has it; *slots*: by class, the requests of each slot."""
    rate = 0.0 if plan.load.arrivals is None else 50.0
    due = [START_NS + round(k / rate * 1e9) for k in range(int(rate * SECONDS))] if rate else []
    calls = [(OPEN, t, t + LAG_NS, t + LAG_NS + TOOK_NS) for t in due]
    calls += [(number, *each) for number, held in slots.items() for one in held for each in one]
    rows = folder / "workers" / "0"
    rows.mkdir(parents=True)
    recorder = Recorder(rows, text=False)
    kind = layout.EVENT_NAMES.index("content")
    for number, (of_class, t_sched, t_dispatch, t_end) in enumerate(sorted(calls, key=lambda one: one[2])):
        row = recorder.add_row(
            request=number, session=number, phase=layout.MEASURE, request_class=of_class, t_sched=t_sched,
            t_dispatch=t_dispatch, t_submit_start=t_dispatch + 1_000, t_submit=t_dispatch + 2_000, t_headers=t_end - MS,
            t_any=t_end - MS, t_first=t_end - MS, t_last=t_end, t_end=t_end,
            t_end_user=t_end + read_ns * (of_class == BATCH),
            status=layout.OK, stamps=layout.STAMP_KERNEL, flags=layout.FLAG_STREAM,
        )  # fmt: skip
        for at in (t_end - MS, t_end):
            recorder.add_event(at, row, kind, layout.STAMP_KERNEL, 1, 0)
    recorder.close()
    (folder / "plan").mkdir()
    write_document(
        folder / "plan", PlanDocument(schema_version=1, members=dict.fromkeys(REQUIRED, ""), description=plan)
    )
    phase = {
        "number": 0, "name": "measure", "mode": "open", "start_ns": START_NS, "ramp_share": 0.1, "bound": "duration",
        "end_ns": START_NS + SECONDS * 1_000_000_000,
    }  # fmt: skip
    summary = PlanSummary(description=plan, classes=tuple(str(one.name) for one in plan.classes))
    manifest = {"schema_version": 1, "status": "done", "phases": [phase], "plan": plain(summary)}
    (folder / "run.json").write_text(json.dumps(manifest))
    return load(folder)


def test_the_schedule_is_that_of_the_open_loops(tmp_path: Path) -> None:
    """Late releases of slots change neither lag nor rate; in the window are 90 % of 200 requests of the open loop."""
    held = {BATCH: [slot(START_NS, 20 * MS)] * 4, SMALL: [slot(START_NS, 100_000)] * 2}
    run = write_mix(tmp_path, described(50.0, {"batch": 4, "small": 2}), held)
    found, evidence = judge(run), from_run(run)
    lag = found.schedule_lag_us
    assert lag is not None and (lag.n, lag.p50, lag.max) == (180, LAG_NS / 1e3, LAG_NS / 1e3)
    assert (found.offered, found.planned_rate, found.offered_rate) == (180, 50.0, 50.0) and found.rate_error == 0
    assert found.arrival_tests.tested == 180 and found.arrival_tests.schedule is not None
    assert list(found.arrival_tests.schedule.classes) == ["chat"]
    assert [one.lag_p99_us for one in found.seconds.worst] == []
    assert evidence.sends.released == 180 + sum(len(one.t_sched) for one in evidence.sends.closed)
    assert len(late(evidence)) == len(evidence.sends.closed[0].t_sched)  # those of batch, and only these
    codes = [one.code for one in found.reasons]
    assert "class_slots_empty" in codes and "schedule_lag" not in codes and "rate" not in codes


@pytest.mark.parametrize(("turn_around_ns", "read_ns"), [(20 * MS, 0), (0, 20 * MS), (10 * MS, 10 * MS)])
def test_the_slot_time_that_a_client_lost_is_counted_by_class(
    tmp_path: Path, turn_around_ns: int, read_ns: int
) -> None:
    """50 of each 70 ms a slot is in use, so 2 of 7 are lost, whether it sent or read late; the other class lost nothing."""
    held = {BATCH: [slot(START_NS, turn_around_ns, read_ns)] * 4, SMALL: [slot(START_NS, 0, 0)] * 2}
    run = write_mix(tmp_path, described(50.0, {"batch": 4, "small": 2}), held, read_ns)
    found = judge(run)
    assert {name: one.slots for name, one in found.closed_classes.items()} == {"batch": 4, "small": 2}
    assert found.closed_classes["batch"].empty_share == pytest.approx(2 / 7, abs=0.01)
    (reason,) = (one for one in found.reasons if one.code == "class_slots_empty")
    assert (reason.severity, reason.value) == ("invalid", found.closed_classes["batch"].empty_share)
    assert "class batch" in str(reason.text) and found.generator_limited
    slots = {name: one.slots for name, one in (measure(run).classes or {}).items()}
    assert slots["chat"] is None and slots["batch"] is not None and slots["small"] is not None
    assert slots["batch"].asked_mean == 4 and slots["batch"].achieved_mean == pytest.approx(4 * 5 / 7, abs=0.03)
    assert slots["small"].achieved_mean == pytest.approx(2, abs=0.001) and slots["small"].above_share == 0


def test_a_turn_around_of_less_than_a_millisecond_is_not_late(tmp_path: Path) -> None:
    """As in a closed loop that is alone; what was in flight is stated in any case."""
    held = {BATCH: [slot(START_NS, 900_000, 900_000)] * 4}
    run = write_mix(tmp_path, described(50.0, {"batch": 4}), held, 900_000)
    found = judge(run)
    assert found.closed_classes["batch"].empty_share == 0
    assert "class_slots_empty" not in [one.code for one in found.reasons]
    one = (measure(run).classes or {})["batch"].slots
    assert one is not None and one.achieved_mean == pytest.approx(4 * 50 / 51.8, abs=0.02)


def test_figures_from_the_schedule_are_of_the_open_loops_only(tmp_path: Path) -> None:
    """Totals are of all classes; a closed class has no figure from the schedule."""
    run = write_mix(tmp_path, described(50.0, {"batch": 4}), {BATCH: [slot(START_NS, 0)] * 4})
    document, rows = measure(run), run.rows
    metrics, classes = document.metrics or {}, document.classes or {}
    inside = rows[(rows["t_submit"] >= START_NS + 400 * MS) & (rows["t_submit"] < START_NS + 4_000 * MS)]
    timed = inside[inside["request_class"] == OPEN]
    for name in ("ttft_sched", "e2e_sched", "dispatch_lag", "total_duration_sched"):
        assert (metrics[name].n, metrics[name].n_null) == (len(timed), len(inside) - len(timed)), name
        assert f"{len(timed):,} of the {len(inside):,}" in str(metrics[name].note)
    assert metrics["ttft"].n == metrics["e2e"].n == len(inside)
    assert metrics["e2e_sched"].p50 == pytest.approx((LAG_NS + TOOK_NS) / 1e6)
    assert metrics["e2e_sched"].bounds["p50"][1] < 51 and metrics["idle_latency_sched"].n == len(timed)
    assert (classes["batch"].e2e_sched.n, classes["batch"].ttft_sched.n) == (0, 0)
    assert (classes["chat"].loop, classes["batch"].loop, classes["batch"].concurrency) == ("open", "closed", 4)
    assert document.steadiness is not None and document.steadiness.in_flight is not None
    assert document.steadiness.in_flight.n == 200


def test_classes_that_all_are_closed_have_no_schedule(tmp_path: Path) -> None:
    """As one closed loop: the lag is the turn-around of all, no rate is planned, and each class has its slots."""
    held = {BATCH: [slot(START_NS, 100_000)] * 4, SMALL: [slot(START_NS, 300_000)] * 2}
    run = write_mix(tmp_path, described(None, {"batch": 4, "small": 2}), held)
    found = judge(run)
    lag = found.schedule_lag_us
    assert lag is not None and (lag.min, lag.max) == (100.0, 300.0)
    assert found.planned_rate is found.rate_error is None and found.arrival_tests.tested is None
    assert lag.n == sum(int(one.n or 0) for one in found.closed_classes.values())
    assert [found.closed_classes[name].turn_around_us.max for name in ("batch", "small")] == [100.0, 300.0]
    document = measure(run)
    assert document.steadiness is not None and document.steadiness.in_flight is None
    assert {name: one.loop for name, one in (document.classes or {}).items()} == {"batch": "closed", "small": "closed"}


def test_the_first_fill_of_each_class_is_apart(tmp_path: Path) -> None:
    """The first N of a class are due at time zero; their spread is stated, and none of them is a turn-around."""
    held = {BATCH: [slot(START_NS, 50_000 * (1 + k)) for k in range(4)]}
    run = write_mix(tmp_path, described(50.0, {"batch": 4}), held)
    fill = np.sort(run.rows["t_dispatch"][(run.rows["request_class"] == BATCH) & (run.rows["t_sched"] == START_NS)])
    assert judge(run).closed_classes["batch"].first_fill_us == (fill[-1] - fill[0]) / 1e3 == 150.0
