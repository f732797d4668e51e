"""Rows of several hosts move into the driver's clock: dispatches within the bound, latencies as they are, the plan exact."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from made_hosts import MadeHost, MadeRun, move, write_hosts, write_samples, write_watch
from synthetic_run import ORIGIN_NS, Request, Shape, draw_requests, write_manifest, write_workers

from fastllmload._ext.record import histogram
from fastllmload._ext.record.recorder import text_index
from fastllmload.certificate import monitor
from fastllmload.documents.run_parts.hosts import HostEntry
from fastllmload.metrics.public import measure
from fastllmload.records import layout
from fastllmload.records.hosts import incomplete, read_clocks, with_clocks
from fastllmload.records.merge import PlannedPhase, merge_workers
from fastllmload.records.run import Run, load, read_document
from fastllmload.records.worker_files import MERGED

pytestmark = pytest.mark.slow

HOSTS = (
    MadeHost((0,)),
    MadeHost((1, 2), ahead_ns=-7_000_000_000_000, drift=50e-6),
    MadeHost((3,), ahead_ns=3_000_000_000, drift=-20e-6),
)
TIMES = [name for name in layout.REQUEST.names or () if name.startswith("t_")]


def planned_of(requests: list[Request]) -> PlannedPhase:
    t_sched = np.array([request.fields["t_sched"] for request in requests])
    n = len(requests)
    return PlannedPhase(layout.MEASURE, t_sched, np.full(n, 8), np.full(n, 9), np.zeros(n))


def entries(folder: Path) -> tuple[HostEntry, ...]:
    return with_clocks(folder, read_document(folder).hosts)


def merged(folder: Path, requests: list[Request], planned: bool = True) -> Run:
    phases = [planned_of(requests)] if planned else []
    merge_workers(folder, phases, hosts=entries(folder))
    return load(folder)


def of_one_host(folder: Path, requests: list[Request]) -> Run:
    """The same requests of four workers of one host, whose clock is the driver's."""
    write_workers(folder, requests, 4, text=True)
    write_manifest(folder)
    merge_workers(folder)
    return load(folder)


def test_rows_are_placed_within_the_bound_and_keep_their_latencies(tmp_path: Path) -> None:
    """A drift of 50 ppm over a request of a second is 50 us: it stays in the latency, as the host measured it."""
    requests = draw_requests(3, Shape(requests=300, text=True))
    true = of_one_host(tmp_path / "one", requests)
    write_hosts(tmp_path / "hosts", requests, HOSTS, text=True)
    bounds = {host.host: host.clock.bound_ns for host in entries(tmp_path / "hosts") if host.clock is not None}
    run = merged(tmp_path / "hosts", requests)
    assert run.rows["worker"].tolist() == true.rows["worker"].tolist() == [k % 4 for k in range(300)]
    assert np.array_equal(run.text, true.text) and np.array_equal(run.first_event, true.first_event)
    for number, host in enumerate(HOSTS):
        rows, expected = (each.rows[np.isin(each.rows["worker"], host.workers)] for each in (run, true))
        error = rows["t_dispatch"] - expected["t_dispatch"]
        assert 0 < bounds[number] < 300_000 and np.abs(error).max() <= bounds[number]
        assert rows["t_sched"].tolist() == expected["t_sched"].tolist(), "the plan is the driver's"
        for name in TIMES[1:]:
            there = expected[name] > 0
            assert np.array_equal(rows[name] > 0, there)
            of_host = host.at(expected[name][there]) - host.at(expected["t_dispatch"][there])
            assert np.array_equal(rows[name][there] - rows["t_dispatch"][there], of_host), name
    moved = np.repeat(run.rows["t_dispatch"] - true.rows["t_dispatch"], np.diff(run.first_event))
    of_own = np.abs(run.events["t_ns"] - true.events["t_ns"] - moved)
    assert of_own.max() <= 50e-6 * 3e9, "events move with their request"
    for name in ("row", "kind", "stamp", "tokens", "bracket_ns"):
        assert np.array_equal(run.events[name], true.events[name])


def test_latencies_are_those_of_a_run_of_one_host(tmp_path: Path) -> None:
    """To the last bit, where no clock drifts: n, mean, intervals and all percentiles."""
    hosts = tuple(MadeHost(host.workers, host.ahead_ns) for host in HOSTS)
    many, one = (MadeRun(tmp_path / name, hosts) for name in ("many", "one"))
    many.write()
    run = many.conclude()
    write_workers(one.folder, one.requests, 4)
    write_manifest(one.folder, phases=run.manifest["phases"])
    merge_workers(one.folder, [planned_of(one.requests)])
    found, expected = run.metrics, measure(load(one.folder))["metrics"]
    for name in ("ttft", "ttft_any", "tpot", "itl", "e2e", "norm_latency", "jitter", "max_pause", "send_time"):
        assert found[name] == expected[name], name
    for name in ("req_s", "output_tok_s", "success_rate"):
        assert found[name]["value"] == pytest.approx(expected[name]["value"], rel=0.01)
    error = max(int(host.clock.bound_ns or 0) for host in run.document.hosts if host.clock is not None) / 1e6
    assert abs(found["ttft_sched"]["p50"] - expected["ttft_sched"]["p50"]) <= error
    low, high = found["ttft_sched"]["bounds"]["p50"]
    assert low < expected["ttft_sched"]["p50"] < high


def test_without_hosts_the_merged_files_are_those_of_before(tmp_path: Path) -> None:
    """A run of one host does not depend on the clock of any."""
    requests = draw_requests(3, Shape(requests=50))
    for name in ("a", "b"):
        write_workers(tmp_path / name, requests, 4)
        write_manifest(tmp_path / name)
    merge_workers(tmp_path / "a", [planned_of(requests)])
    merge_workers(tmp_path / "b", [planned_of(requests)], hosts=())
    for name in ("requests.npy", "tokens.npy", "run.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_an_unmerged_folder_reads_the_same(tmp_path: Path) -> None:
    requests = draw_requests(4, Shape(requests=60))
    write_hosts(tmp_path, requests, HOSTS, status="running")
    for number, host in enumerate(HOSTS):
        write_samples(tmp_path, number, host, 2, 10)
    killed = load(tmp_path)
    assert killed.document.hosts[1].clock is not None and killed.samples is not None
    assert set(killed.samples["worker"]) == {0, 1, 2, 3}
    assert abs(int(killed.samples["t_ns"][0]) - (ORIGIN_NS - 500_000_000)) < 300_000
    run = merged(tmp_path, requests, planned=False)
    assert np.array_equal(killed.rows, run.rows) and np.array_equal(killed.events, run.events)


def test_requests_of_a_lost_host_have_a_status_of_their_own(tmp_path: Path) -> None:
    """In flight, or without a row; those that ended before keep their status, and others that were not sent are not_sent."""
    requests = draw_requests(5, Shape(requests=40, failures=0.0))
    flying = requests[9]  # of worker 1
    flying.fields.update(status=layout.IN_FLIGHT, t_end=0, t_end_user=0)
    there = [request for request in requests if request.fields["request"] not in (21, 22, 23, 24)]
    hosts = (HOSTS[0], MadeHost((1, 2), ahead_ns=5_000_000_000, status="lost"), HOSTS[2])
    write_hosts(tmp_path, there, hosts)
    merge_workers(tmp_path, [planned_of(requests)], hosts=entries(tmp_path))
    run = load(tmp_path)
    status = {int(row["request"]): layout.STATUS_NAMES[row["status"]] for row in run.rows}
    assert [n for n, name in status.items() if name == "host_lost"] == [9, 21, 22]
    assert [n for n, name in status.items() if name == "not_sent"] == [23, 24]
    assert run.rows["worker"][[21, 22, 23, 24]].tolist() == [1, 2, 3, 0]
    assert run.rows["t_sched"][21] == requests[21].fields["t_sched"] and run.rows["t_dispatch"][21] == 0


def test_rows_of_a_host_whose_clock_is_not_known_stay_as_they_are(tmp_path: Path) -> None:
    """Without an exchange, or with none that was quick enough."""
    requests = draw_requests(5, Shape(requests=20))
    write_hosts(tmp_path, requests, HOSTS)
    path = tmp_path / "hosts" / "1" / "clock.npy"
    slow = np.load(path)
    slow[:, 3] += 2_000_000_000
    np.save(path, slow)
    assert [host.clock is None for host in entries(tmp_path)] == [False, True, False]
    path.unlink()
    assert entries(tmp_path)[1].clock is None
    merge_workers(tmp_path, hosts=entries(tmp_path))
    rows = load(tmp_path).rows
    assert rows["t_dispatch"][1] == HOSTS[1].at(requests[1].fields["t_dispatch"])
    assert abs(int(rows["t_dispatch"][3]) - requests[3].fields["t_dispatch"]) < 300_000


def test_the_watches_of_all_hosts_are_one(tmp_path: Path) -> None:
    """Histograms are sums; stalls and samples are in order and in the driver's clock."""
    requests = draw_requests(5, Shape(requests=20))
    write_hosts(tmp_path, requests, HOSTS)
    for number, host in enumerate(HOSTS):
        begin = ORIGIN_NS + (3 - number) * 100_000_000
        write_watch(tmp_path, number, host, [(begin, 6_000_000 + number)])
        write_samples(tmp_path, number, host, 2, 10)
    hosts = entries(tmp_path)
    for _ in range(2):  # what was joined may be joined again
        monitor.join_watches(tmp_path, hosts, read_clocks(tmp_path, hosts))
        stalls = np.load(tmp_path / monitor.STALLS)
        assert stalls[:, 1].tolist() == [6_000_002, 6_000_001, 6_000_000]
        assert np.abs(stalls[:, 0] - ORIGIN_NS - np.array([1, 2, 3]) * 100_000_000).max() < 300_000
        assert histogram.total(np.load(tmp_path / monitor.HICCUP)) == 3_000
        lags = np.load(tmp_path / monitor.HISTOGRAMS)[:, 0]
        assert [histogram.total(words) for words in lags] == [10, 11, 12, 13]
        own = np.load(tmp_path / monitor.WORKER_STALLS)
        assert sorted(own[:, 0]) == [0, 1, 2, 3] and np.abs(own[:, 1] - ORIGIN_NS - 10_000_000).max() < 300_000
        samples = np.load(tmp_path / "samples.npy")
        assert (np.diff(samples["t_ns"]) >= 0).all() and len(samples) == 4 * 16
        assert np.load(tmp_path / monitor.HICCUP_INTERVALS)["count"].sum() == 3_000


def test_a_file_that_was_not_copied_completely_counts_as_missing(tmp_path: Path) -> None:
    """A lost host's file may be cut, or lack its header; what the others recorded is kept."""
    requests = draw_requests(5, Shape(requests=20))
    write_hosts(tmp_path, requests, HOSTS)
    for number, host in enumerate(HOSTS):
        write_watch(tmp_path, number, host, [(ORIGIN_NS, 6_000_000)])
        write_samples(tmp_path, number, host, 2, 10)
    place = tmp_path / "hosts" / "1"
    for name in (monitor.HICCUP, "samples.npy"):
        os.truncate(place / name, (place / name).stat().st_size - 8)
    with open(place / "clock.npy", "r+b") as file:
        file.write(b"\0" * 64)
    hosts = entries(tmp_path)
    assert [host.clock is None for host in hosts] == [False, True, False]
    monitor.join_watches(tmp_path, hosts, read_clocks(tmp_path, hosts))
    assert histogram.total(np.load(tmp_path / monitor.HICCUP)) == 2_000 and len(np.load(tmp_path / monitor.STALLS)) == 2
    assert set(np.load(tmp_path / "samples.npy")["worker"]) == {0, 3}
    assert [text.split()[0] for text in incomplete(tmp_path, hosts)] == [
        f"hosts/1/{name}" for name in ("clock.npy", "hiccup.npy", "samples.npy")
    ]


def test_a_part_of_a_run_has_the_events_and_texts_of_its_rows(tmp_path: Path) -> None:
    run = of_one_host(tmp_path, draw_requests(7, Shape(requests=80, text=True)))
    mask = run.rows["worker"] % 2 == 1
    part = run.selected(mask)
    assert np.array_equal(part.rows, run.rows[mask])
    for row, before in enumerate(np.flatnonzero(mask).tolist()):
        mine, theirs = (slice(each.first_event[r], each.first_event[r + 1]) for each, r in ((part, row), (run, before)))
        assert (part.events["row"][mine] == row).all()
        assert np.array_equal(part.events["t_ns"][mine], run.events["t_ns"][theirs])
    texts = [dict(generated(each)) for each in (part, run)]
    assert texts[0] == {row: texts[1][r] for row, r in enumerate(np.flatnonzero(mask).tolist()) if r in texts[1]}
    assert run.selected(np.zeros(len(run.rows), np.bool_)).first_event.tolist() == [0]


def generated(run: Run) -> list[tuple[int, str]]:
    from fastllmload.records.generated_text import texts

    return list(texts(run))


@pytest.mark.parametrize("again", [(), (1,), (1, 2), (0, 1, 2, 3)])
def test_merged_rows_are_merged_once_more_with_files_of_workers(tmp_path: Path, again: tuple[int, ...]) -> None:
    """Of the workers *again* only a part had been copied before. The result is as if all had been there at once."""
    requests = draw_requests(5, Shape(requests=120, text=True))
    for name in ("once", "twice"):
        write_hosts(tmp_path / name, requests, HOSTS, text=True)
    expected = merged(tmp_path / "once", requests)
    folder, kept = tmp_path / "twice", tmp_path / "kept"
    shutil.copytree(folder / "workers", kept)
    for worker in again:
        shutil.rmtree(folder / "workers" / str(worker))
    few = [each for each in requests if each.fields["request"] % 4 not in again or each.fields["request"] < 40]
    write_workers(tmp_path / "part", few, 4, text=True)
    for worker in again:
        (tmp_path / "part" / "workers" / str(worker)).rename(folder / "workers" / str(worker))
        move(folder / "workers" / str(worker), next(host for host in HOSTS if worker in host.workers))
    part = merged(folder, requests)
    assert len(part.rows) == len(requests) and (len(part.events) < len(expected.events)) == bool(again)
    (folder / "workers" / MERGED).mkdir(parents=True)
    for name in ("requests.npy", "tokens.npy", "text.bin"):
        (folder / name).rename(folder / "workers" / MERGED / name)
    for worker in again:
        (kept / str(worker)).rename(folder / "workers" / str(worker))
    found = merged(folder, requests)
    assert np.array_equal(found.rows, expected.rows) and np.array_equal(found.events, expected.events)
    assert np.array_equal(found.first_event, expected.first_event)
    assert sorted(texts_of(found)) == sorted(texts_of(expected))


def texts_of(run: Run) -> list[tuple[int, bytes]]:
    """Row and text of each record."""
    rows, starts, sizes = text_index(run.text)
    parts = zip(rows.tolist(), starts.tolist(), sizes.tolist(), strict=True)
    return [(row, run.text[start : start + size].tobytes()) for row, start, size in parts]
