"""Merging gives rows by (phase, request) and events by row and time, nothing lost, whatever the number of workers."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest
from refusals import raises_code
from synthetic_run import ORIGIN_NS, Request, Shape, draw_requests, duration_phase, write_manifest, write_workers

from fastllmload._ext.record.recorder import Recorder, text_index
from fastllmload.records import layout
from fastllmload.records.merge import PlannedPhase, merge_workers
from fastllmload.records.run import Run, load
from fastllmload.records.worker_files import read_workers

pytestmark = pytest.mark.slow


def draw_two_phases() -> list[Request]:
    warmup = draw_requests(1, Shape(requests=30, text=True), phase=layout.WARMUP)
    return warmup + draw_requests(2, Shape(text=True), ORIGIN_NS + 2_000_000_000)


def events_of(run: Run, row: int) -> list[tuple[int, int, int, int]]:
    part = slice(run.first_event[row], run.first_event[row + 1])
    assert (run.events["row"][part] == row).all()
    return [tuple(map(int, event)) for event in run.events[["t_ns", "kind", "stamp", "tokens"]][part]]


@pytest.mark.parametrize("workers", [1, 3])
def test_every_row_event_and_text_arrives_in_order(tmp_path: Path, workers: int) -> None:
    requests = draw_two_phases()
    write_workers(tmp_path, requests, workers, text=True)
    write_manifest(tmp_path)
    counts = merge_workers(tmp_path)
    assert counts == (len(requests), sum(len(request.events) for request in requests))
    assert sorted(os.listdir(tmp_path)) == ["requests.npy", "run.json", "text.bin", "tokens.npy"]
    run = load(tmp_path)
    assert not run.incomplete
    assert len(run.rows) == len(requests)
    for row, request in enumerate(requests):
        for name, value in request.fields.items():
            assert run.rows[row][name] == value, (row, name)
        assert run.rows[row]["worker"] == request.fields["request"] % workers
        assert events_of(run, row) == request.events


def test_a_run_that_was_not_merged_reads_the_same(tmp_path: Path) -> None:
    requests = draw_two_phases()
    write_workers(tmp_path, requests, 2, text=True)
    write_manifest(tmp_path, status="running")
    killed = load(tmp_path)
    assert killed.incomplete
    merge_workers(tmp_path)
    merged = load(tmp_path)
    assert merged.incomplete, "its status is still running"
    assert np.array_equal(killed.rows, merged.rows)
    assert np.array_equal(killed.events, merged.events)
    assert np.array_equal(killed.first_event, merged.first_event)
    assert np.array_equal(killed.text, merged.text)


def test_unfinished_files_are_cut_and_rows_in_flight_stay_marked(tmp_path: Path) -> None:
    folder = tmp_path / "workers" / "0"
    folder.mkdir(parents=True)
    recorder = Recorder(folder, text=True)
    recorder.finish_row(recorder.add_row(request=1, phase=1), status=layout.OK)
    flying = recorder.add_row(request=0, phase=1)
    recorder.add_event(10, flying, layout.EVENT_CONTENT)
    recorder.add_event(20, 0, layout.EVENT_CONTENT)
    recorder.add_text(flying, b"hi")
    recorder.flush()
    write_manifest(tmp_path, status="running")
    run = load(tmp_path)
    assert run.incomplete
    assert run.rows["request"].tolist() == [0, 1]
    assert run.rows["status"].tolist() == [layout.IN_FLIGHT, layout.OK]
    assert [events_of(run, 0), events_of(run, 1)] == [[(10, 3, 0, 0)], [(20, 3, 0, 0)]]
    assert run.text.tobytes()[8:] == b"hi"
    recorder.close()


def test_events_of_a_row_are_sorted_by_time_and_stay_stable(tmp_path: Path) -> None:
    folder = tmp_path / "workers" / "0"
    folder.mkdir(parents=True)
    recorder = Recorder(folder)
    rows = [recorder.add_row(request=number) for number in (7, 3)]
    times = [50, 40, 40, 90, 10, 60]
    for k, t in enumerate(times):
        for row in rows:
            recorder.add_event(t, row, k)
    for row in rows:
        recorder.finish_row(row, status=layout.OK)
    recorder.close()
    write_manifest(tmp_path)
    merge_workers(tmp_path)
    run = load(tmp_path)
    expected = [(t, k) for t, k in sorted((t, k) for k, t in enumerate(times))]
    for row in (0, 1):
        assert [(t, k) for t, k, _, _ in events_of(run, row)] == expected


def test_planned_requests_that_were_never_sent_get_rows(tmp_path: Path) -> None:
    requests = draw_requests(2, Shape(requests=20))
    sent = [request for request in requests if request.fields["request"] not in (4, 11, 19)]
    write_workers(tmp_path, sent, 2)
    write_manifest(tmp_path, phases=[duration_phase(ORIGIN_NS, 1)])
    t_sched = np.array([request.fields["t_sched"] for request in requests])
    planned = PlannedPhase(layout.MEASURE, t_sched, np.full(20, 8), np.full(20, 9), np.arange(20) % 3)
    assert merge_workers(tmp_path, [planned])[0] == 20
    run = load(tmp_path)
    assert run.rows["request"].tolist() == list(range(20))
    missing = run.rows[run.rows["status"] == layout.NOT_SENT]
    assert missing["request"].tolist() == [4, 11, 19]
    assert missing["t_sched"].tolist() == t_sched[[4, 11, 19]].tolist()
    assert missing["t_dispatch"].tolist() == [0, 0, 0]
    assert (missing["input_target"].tolist(), missing["output_target"].tolist()) == ([8] * 3, [9] * 3)
    assert missing["completion_tokens"].tolist() == [-1] * 3
    assert missing["request_class"].tolist() == [1, 2, 1]


def test_a_wrapped_plan_keeps_every_row_of_a_request_number(tmp_path: Path) -> None:
    """A sequence that begins again has numbers beyond the plan; these are not planned requests."""
    requests = draw_requests(2, Shape(requests=6))
    write_workers(tmp_path, requests, 1)
    write_manifest(tmp_path)
    planned = PlannedPhase(layout.MEASURE, np.zeros(4, np.int64), np.ones(4), np.ones(4), np.zeros(4))
    assert merge_workers(tmp_path, [planned])[0] == 6


def test_a_run_without_a_request_merges(tmp_path: Path) -> None:
    write_workers(tmp_path, [], 2)
    write_manifest(tmp_path)
    assert merge_workers(tmp_path) == (0, 0)
    run = load(tmp_path)
    assert (len(run.rows), len(run.events), run.first_event.tolist()) == (0, 0, [0])


def test_a_full_disk_leaves_the_worker_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = draw_requests(2, Shape(requests=20))
    write_workers(tmp_path, requests, 1)
    write_manifest(tmp_path, status="running")

    def no_room(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", no_room)
    with raises_code("disk-full", "No space left"):
        merge_workers(tmp_path)
    assert len(load(tmp_path).rows) == 20


def test_events_of_rows_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "workers" / "0"
    folder.mkdir(parents=True)
    recorder = Recorder(folder)
    recorder.add_event(10, 5, layout.EVENT_CONTENT)
    recorder.close()
    write_manifest(tmp_path)
    with raises_code("run-file-damaged", "row 5", "0 rows"):
        load(tmp_path)


def break_folder(folder: Path, how: str) -> None:
    if how == "manifest missing":
        (folder / "run.json").unlink()
    elif how == "manifest cut":
        (folder / "run.json").write_text('{"schema_version": 1')
    elif how == "old schema":
        (folder / "run.json").write_text('{"schema_version": 0}')
    elif how == "rows cut":
        path = folder / "requests.npy"
        os.truncate(path, path.stat().st_size - 300)
    elif how == "header cut":
        os.truncate(folder / "tokens.npy", 100)
    elif how == "events missing":
        (folder / "tokens.npy").unlink()
    elif how == "other layout":
        np.save(folder / "requests.npy", np.zeros(3))
    elif how == "nothing measured":
        (folder / "requests.npy").unlink()
    elif how == "events of other rows":
        rows = np.load(folder / "requests.npy")
        np.save(folder / "requests.npy", rows[:3])


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("manifest missing", ("not-a-run-folder", "run.json")),
        ("manifest cut", ("run-file-damaged", "run.json", "not JSON")),
        ("old schema", ("schema-version", "schema_version 0", "reads 1")),
        ("other layout", ("run-file-layout", "requests.npy")),
        ("nothing measured", ("run-file-missing", "requests.npy")),
    ],
)
def test_a_broken_folder_is_named_in_one_sentence(tmp_path: Path, how: str, sentence: tuple[str, ...]) -> None:
    write_workers(tmp_path, draw_requests(2, Shape(requests=20)), 1)
    write_manifest(tmp_path)
    merge_workers(tmp_path)
    break_folder(tmp_path, how)
    with raises_code(*sentence):
        load(tmp_path)


@pytest.mark.parametrize(
    ("how", "sentence", "rows", "whole"),
    [
        ("rows cut", "requests.npy is cut: 8,916 bytes where 9,216", 18, 18),
        ("header cut", "its 100 bytes", 20, 1),
        ("events missing", "tokens.npy is missing", 20, 1),
        ("events of other rows", "to requests.npy", 3, 0),
    ],
)
def test_the_intact_part_of_a_damaged_folder_is_read(
    tmp_path: Path, how: str, sentence: str, rows: int, whole: int
) -> None:
    """Complete records before the cut, events of existing rows only, and a sentence about the damage."""
    write_workers(tmp_path, draw_requests(2, Shape(requests=20)), 1)
    write_manifest(tmp_path)
    merge_workers(tmp_path)
    before = np.array(load(tmp_path).rows)
    break_folder(tmp_path, how)
    run = load(tmp_path)
    assert len(run.rows) == rows and sentence in " ".join(run.damage) and run.lost("tokens.npy") in run.damage
    assert np.array_equal(np.asarray(run.rows), before[:rows])
    assert len(run.events) == run.first_event[-1] and int(run.complete_rows.sum()) == whole
    assert len(run.intact.events) == 0


def test_what_was_copied_of_rows_that_had_not_come_is_left_out(tmp_path: Path) -> None:
    """Files of another host arrive one after the other, so events and text may be newer than rows."""
    write_workers(tmp_path, draw_requests(2, Shape(requests=20, text=True)), 1, text=True)
    (every,) = read_workers(tmp_path, copied=True)
    path = tmp_path / "workers" / "0" / "requests.npy"
    path.unlink()  # it is mapped
    np.save(path, every.rows[:12])
    (found,) = read_workers(tmp_path, copied=True)
    assert np.array_equal(found.rows, every.rows[:12]) and found.damage == {}
    assert np.array_equal(found.events, every.events[every.events["row"] < 12])
    assert 0 < len(found.events) < len(every.events)
    texts = [int(row) for row in text_index(every.text)[0] if row < 12]
    assert text_index(found.text)[0].tolist() == texts != []
    write_manifest(tmp_path)
    with raises_code("run-file-damaged"):
        merge_workers(tmp_path)


def test_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with raises_code("not-a-run-folder", tmp_path / "nothing", "not exist"):
        load(tmp_path / "nothing")


def test_the_folder_of_a_search_names_its_runs(tmp_path: Path) -> None:
    (tmp_path / "levels").mkdir()
    with raises_code("not-a-run-folder", f"give one of the runs in {tmp_path / 'levels'}"):
        load(tmp_path)
