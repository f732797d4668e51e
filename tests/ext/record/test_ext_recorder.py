"""What a recorder was given is in its files: at every pass of the row writer, after a kill, and as far as a full disk
takes it.
"""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from fastllmload._ext.record import counters, recorder, rowmemory
from fastllmload._ext.record.rowwriter import RowWriter

EVENTS_PER_BLOCK = (1 << 18) // recorder.event_dtype().itemsize
IN_FLIGHT, OK = 1, 2
PXD = Path(__file__).parents[3] / "ext/fastllmload/_ext"


def load(path: Path) -> np.ndarray:
    return np.load(path, mmap_mode="r")


def run_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments], capture_output=True, text=True, timeout=60
    )


def test_record_sizes_are_those_of_the_format() -> None:
    assert recorder.request_dtype().itemsize == 256
    assert recorder.event_dtype().itemsize == 24


def test_files_load_while_running_and_are_exact_after_close(tmp_path: Path) -> None:
    many = 2 * EVENTS_PER_BLOCK + 5
    r = recorder.Recorder(tmp_path)
    assert load(tmp_path / "tokens.npy").shape == (0,)
    row = r.add_row(request=41, t_sched=7)
    for i in range(many):
        r.add_event(1000 + i, row, i % 12, i % 3, i % 65536)
    r.flush()
    running = load(tmp_path / "tokens.npy")
    assert np.array_equal(running["t_ns"], 1000 + np.arange(many))
    assert load(tmp_path / "requests.npy")[0]["status"] == IN_FLIGHT
    r.finish_row(row, status=OK, t_end=9)
    r.add_event(5, row, 1)
    r.flush()
    assert load(tmp_path / "requests.npy")[0]["status"] == OK
    r.close()
    events = load(tmp_path / "tokens.npy")
    i = np.arange(many)
    assert np.array_equal(events["t_ns"][:-1], 1000 + i) and events["t_ns"][-1] == 5
    assert np.array_equal(events["kind"][:-1], i % 12)
    assert np.array_equal(events["stamp"][:-1], i % 3)
    assert np.array_equal(events["tokens"][:-1], i % 65536)
    rows = load(tmp_path / "requests.npy")
    assert [(x["request"], x["t_sched"], x["t_end"], x["status"]) for x in rows] == [(41, 7, 9, OK)]
    assert (tmp_path / "tokens.npy").stat().st_size == recorder.HEADER_BYTES + 24 * len(events)


def test_every_field_of_a_row_keeps_its_place(tmp_path: Path) -> None:
    r = recorder.Recorder(tmp_path)
    dtype = recorder.request_dtype()
    values = {name: 3 * k + 1 for k, name in enumerate(dtype.names)}
    r.finish_row(r.add_row(**values))
    r.close()
    row = load(tmp_path / "requests.npy")[0]
    assert {name: int(row[name]) for name in dtype.names} == values


def test_rows_that_end_in_any_order_stand_by_number(tmp_path: Path) -> None:
    """Passes fall between begin and end of rows, places are used again, and long-lived rows stay open throughout."""
    rng, r, open_rows = np.random.default_rng(1), recorder.Recorder(tmp_path), []
    for step in range(6_000):
        open_rows.append(r.add_row(request=step, t_sched=step + 1))
        if step % 700 == 0:
            r.flush()
        while len(open_rows) > 40:
            number = open_rows.pop(int(rng.integers(1, len(open_rows))))
            r.finish_row(number, status=OK, t_end=number + 7)
    r.flush()
    while_open = load(tmp_path / "requests.npy")
    assert np.array_equal(while_open["request"], np.arange(6_000))
    assert sorted(np.flatnonzero(while_open["status"] == IN_FLIGHT)) == sorted(open_rows)
    for number in open_rows:
        r.finish_row(number, status=OK, t_end=number + 7)
    r.close()
    rows = load(tmp_path / "requests.npy")
    assert np.array_equal(rows["t_end"], np.arange(6_000) + 7) and (rows["status"] == OK).all()


def test_a_row_that_is_open_for_long_is_written_as_it_changes(tmp_path: Path) -> None:
    r = recorder.Recorder(tmp_path)
    row = r.add_row(request=1)
    r.flush()
    r.set_row(row, t_first=77)
    r.flush()
    r.flush()
    assert load(tmp_path / "requests.npy")[0]["t_first"] == 77


def test_the_latest_events_may_change_until_their_block_is_full(tmp_path: Path) -> None:
    """Timeline.settle() puts the stamps of the latest read right; a pass may have fallen before that."""
    r = recorder.Recorder(tmp_path)
    row = r.add_row()
    r.add_event(1, row, 3, 2, 0, 50)
    r.flush()
    r.change_event(0, stamp=1, bracket_ns=0)
    r.close()
    event = load(tmp_path / "tokens.npy")[0]
    assert (event["stamp"], event["bracket_ns"]) == (1, 0)


def test_close_with_an_open_row_leaves_it_in_flight(tmp_path: Path) -> None:
    r = recorder.Recorder(tmp_path)
    r.add_row(request=0)
    r.close()
    r.close()
    assert load(tmp_path / "requests.npy")["status"].tolist() == [IN_FLIGHT]


def test_an_existing_recording_is_never_overwritten(tmp_path: Path) -> None:
    recorder.Recorder(tmp_path).close()
    with pytest.raises(FileExistsError):
        recorder.Recorder(tmp_path)


WORKER = """
    import os, signal, sys, time
    from fastllmload._ext.record.recorder import Recorder
    r = Recorder(memory=int(sys.argv[1]), text=True)
    row = r.add_row(request=3)
    for i in range(70_000):
        r.add_event(i + 1, row, 3)
    r.add_text(row, b"ab")
    r.finish_row(r.add_row(request=4), status=2)
    """


def test_what_was_recorded_outlives_a_sigkill_of_its_process(tmp_path: Path) -> None:
    memory = rowmemory.create()
    recorder.make_files(tmp_path, True)
    writer = RowWriter(memory, tmp_path, True)
    code = textwrap.dedent(WORKER) + "os.kill(os.getpid(), signal.SIGKILL)"
    done = subprocess.run([sys.executable, "-c", code, str(memory)], pass_fds=(memory,), timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert writer.finish()
    assert rowmemory.RowMemory(memory).missing == {"rows": 0, "events": 0, "texts": 0}
    os.close(memory)
    assert np.array_equal(load(tmp_path / "tokens.npy")["t_ns"], np.arange(1, 70_001))
    assert load(tmp_path / "requests.npy")["status"].tolist() == [IN_FLIGHT, OK]
    assert [a.tolist() for a in recorder.text_index((tmp_path / "text.bin").read_bytes())] == [[0], [8], [2]]


def test_a_second_writer_continues_after_a_killed_one(tmp_path: Path) -> None:
    memory = rowmemory.create()
    recorder.make_files(tmp_path, False)
    r = recorder.Recorder(memory=memory)
    kept = r.add_row(request=0)
    for i in range(3 * EVENTS_PER_BLOCK):
        r.add_event(i + 1, kept, 3)
    RowWriter(memory, tmp_path, False).write_out()  # and nothing more: as after a kill
    for i in range(EVENTS_PER_BLOCK):
        r.add_event(3 * EVENTS_PER_BLOCK + i + 1, kept, 3)
    r.finish_row(kept, status=OK)
    r.close()
    assert RowWriter(memory, tmp_path, False).finish()
    os.close(memory)
    assert np.array_equal(load(tmp_path / "tokens.npy")["t_ns"], np.arange(1, 4 * EVENTS_PER_BLOCK + 1))
    assert load(tmp_path / "requests.npy")["status"].tolist() == [OK]


def test_a_full_disk_is_noticed_and_what_waits_is_written_when_there_is_room(tmp_path: Path) -> None:
    """The file-size limit makes writes fail as a full disk does."""
    done = run_python(
        """
        import errno, resource, sys
        from fastllmload._ext.record.recorder import Recorder
        r = Recorder(sys.argv[1], True)
        limit = 2 * 2**20
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        rows = [r.add_row(request=i) for i in range(9000)]
        for i in range(200_000):
            assert r.add_event(i + 1, rows[0], 3)
        assert r.add_text(0, b"fits")
        r.flush()
        assert r.full and r.memory.error_number == errno.EFBIG
        missing = r.memory.missing
        assert missing["rows"] == 9000 - (limit - 4096) // 256, missing
        assert missing["events"] == 200_000 - (limit - 4096) // 24 and missing["texts"] == 0, missing
        if sys.argv[2] == "room":
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        r.close()
        """,
        str(tmp_path),
        "room",
    )
    assert done.returncode == 0, done.stderr
    assert np.array_equal(load(tmp_path / "tokens.npy")["t_ns"], np.arange(1, 200_001))
    assert np.array_equal(load(tmp_path / "requests.npy")["request"], np.arange(9000))
    assert (tmp_path / "text.bin").read_bytes()[8:] == b"fits"


def test_a_disk_that_stays_full_leaves_whole_records_and_no_event_without_its_row(tmp_path: Path) -> None:
    done = run_python(
        """
        import resource, sys
        from fastllmload._ext.record.recorder import Recorder
        r = Recorder(sys.argv[1])
        limit = 2**20 + 100
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        for i in range(9000):
            r.add_event(i + 1, r.add_row(request=i), 3)
        r.close()
        print(r.memory.missing)
        """,
        str(tmp_path),
    )
    assert done.returncode == 0, done.stderr
    rows, events = load(tmp_path / "requests.npy"), load(tmp_path / "tokens.npy")
    assert len(rows) == len(events) == (2**20 + 100 - 4096) // 256
    assert done.stdout.strip() == str({"rows": 9000 - len(rows), "events": 9000 - len(events), "texts": 0})


def test_memory_without_a_writer_is_bounded_and_losses_are_counted(tmp_path: Path) -> None:
    memory = rowmemory.create()
    r = recorder.Recorder(memory=memory, text=True)
    row = r.add_row()
    taken = 0
    while r.add_text(row, b"x" * (8 << 20)):
        taken += 1
    assert taken == rowmemory.MOST["text_bytes"] // (8 << 20) - 1 and r.full
    assert r.memory.missing == {"rows": 1, "events": 0, "texts": 2}, "one that was lost, and those that wait"
    os.close(memory)


def test_recording_takes_no_page_fault_and_no_more_memory_with_time(tmp_path: Path) -> None:
    """Another process writes; 700,000 events and 60,000 rows are 32 MiB, more than what is faulted in ahead."""
    memory = rowmemory.create()
    recorder.make_files(tmp_path, True)
    code = """
        import resource, sys, time
        from fastllmload._ext.record.recorder import Recorder
        def faults():
            used = resource.getrusage(resource.RUSAGE_SELF)
            return used.ru_minflt + used.ru_majflt
        def record(steps):
            for i in range(steps):
                row = r.add_row(request=i)
                for k in range(12):
                    r.add_event(i + 1, row, 3)
                r.add_text(row, b"some text of it")
                r.finish_row(row, status=2)
                if i % 500 == 0:
                    time.sleep(0.02)
        r = Recorder(memory=int(sys.argv[1]), text=True)
        record(2_000)
        before = faults()
        record(60_000)
        print(faults() - before)
    """
    worker = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), str(memory)],
        pass_fds=(memory,),
        stdout=subprocess.PIPE,
        text=True,
    )
    writer = RowWriter(memory, tmp_path, True)
    while worker.poll() is None:
        writer.write_out()
        time.sleep(0.05)
    assert writer.finish()
    os.close(memory)
    assert int(worker.communicate()[0]) < 10, "of Python's own, no more"
    assert len(load(tmp_path / "tokens.npy")) == 62_000 * 12 and (load(tmp_path / "requests.npy")["status"] == OK).all()


def test_text_crosses_windows_and_torn_ends_are_left_out(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    written = [(i, rng.bytes(int(n))) for i, n in enumerate(rng.integers(1, 400_000, 20))]
    r = recorder.Recorder(tmp_path, True)
    for row, text in written:
        assert r.add_text(row, text)
    assert r.add_text(99, b""), "nothing to write is not a failure"
    r.flush()
    running = (tmp_path / "text.bin").read_bytes()
    r.close()
    data = (tmp_path / "text.bin").read_bytes()
    for content in (data, running, data + b"\x05\0\0\0\x09\0\0\0cut"):
        rows, starts, sizes = recorder.text_index(content)
        got = [(int(k), content[s : s + n]) for k, s, n in zip(rows, starts.tolist(), sizes.tolist(), strict=True)]
        assert got == written


def test_without_text_there_is_no_text_file(tmp_path: Path) -> None:
    recorder.Recorder(tmp_path).close()
    assert sorted(os.listdir(tmp_path)) == ["requests.npy", "tokens.npy"]


def test_counter_names_are_those_of_the_layout() -> None:
    declared = {}
    for line in (PXD / "record/counters.pxd").read_text().splitlines():
        name, equals, value = line.split("#")[0].partition("=")
        if equals and name.strip().isupper():
            declared[name.strip()] = int(value)
    assert declared == counters.NUMBERS
    assert declared["W_RELEASED"] == counters.W_RELEASED
    assert declared["WORDS"] + declared["HISTOGRAMS"] * 33800 == counters.STALLS_START
    assert counters.STALLS_START + declared["STALL_WORDS"] * declared["STALL_RING"] == counters.TOTAL_WORDS
    assert counters.histogram_start(counters.H_LAG) == 288 + 3 * 33800
    with pytest.raises(IndexError):
        counters.histogram_start(counters.HISTOGRAMS)
