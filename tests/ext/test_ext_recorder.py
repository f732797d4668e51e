"""Files of a recorder can be loaded at every moment, hold exactly what was recorded, and survive a kill and a full
disk.
"""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from fastllmload._ext import counters, recorder

EVENTS_PER_WINDOW = (
    recorder.WINDOW_BYTES // 12_288 * 12_288 // recorder.event_dtype().itemsize
)  # whole pages of whole rows
ROWS_PER_WINDOW = recorder.WINDOW_BYTES // recorder.request_dtype().itemsize
IN_FLIGHT, OK = 1, 2
PXD = Path(__file__).parents[2] / "ext/fastllmload/_ext"


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
    r = recorder.Recorder(tmp_path)
    assert load(tmp_path / "tokens.npy").shape == (0,)
    row = r.add_row(request=41, t_sched=7)
    for i in range(EVENTS_PER_WINDOW + 5):
        r.add_event(1000 + i, row, i % 12, i % 3, i % 65536)
    running = load(tmp_path / "tokens.npy")
    assert running.shape == (2 * EVENTS_PER_WINDOW,)
    assert np.count_nonzero(running["t_ns"]) == EVENTS_PER_WINDOW + 5
    assert load(tmp_path / "requests.npy")[0]["status"] == IN_FLIGHT
    r.finish_row(row, status=OK, t_end=9)
    r.close()
    events = load(tmp_path / "tokens.npy")
    i = np.arange(EVENTS_PER_WINDOW + 5)
    assert np.array_equal(events["t_ns"], 1000 + i)
    assert np.array_equal(events["kind"], i % 12)
    assert np.array_equal(events["stamp"], i % 3)
    assert np.array_equal(events["tokens"], i % 65536)
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


def test_finished_windows_are_unmapped(tmp_path: Path) -> None:
    r = recorder.Recorder(tmp_path)
    first = r.add_row(request=0)
    for i in range(1, ROWS_PER_WINDOW + 1):
        r.finish_row(r.add_row(request=i))
    for i in range(3 * EVENTS_PER_WINDOW):
        r.add_event(1 + i, 0, 3)
    assert r.events.mapped == 1
    assert r.requests.mapped == 2, "a row of the first window is still open"
    r.finish_row(first, status=OK)
    assert r.requests.mapped == 1
    r.close()
    assert (r.requests.mapped, r.events.mapped) == (0, 0)
    rows = load(tmp_path / "requests.npy")
    assert np.array_equal(rows["request"], np.arange(ROWS_PER_WINDOW + 1))
    assert rows[0]["status"] == OK


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


def test_what_was_recorded_is_readable_after_sigkill(tmp_path: Path) -> None:
    done = run_python(
        """
        import os, signal, sys
        from fastllmload._ext.recorder import Recorder
        r = Recorder(sys.argv[1], True)
        row = r.add_row(request=3)
        for i in range(70_000):
            r.add_event(i + 1, row, 3)
        r.add_text(row, b"ab")
        r.finish_row(r.add_row(request=4), status=2)
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        str(tmp_path),
    )
    assert done.returncode == -signal.SIGKILL
    events = load(tmp_path / "tokens.npy")
    assert np.array_equal(events["t_ns"][:70_000], np.arange(1, 70_001))
    assert not events["t_ns"][70_000:].any()
    rows = load(tmp_path / "requests.npy")
    assert rows["status"][:3].tolist() == [IN_FLIGHT, OK, 0]
    assert [a.tolist() for a in recorder.text_index((tmp_path / "text.bin").read_bytes())] == [[0], [8], [2]]


def test_a_full_disk_is_counted_and_what_is_there_stays_readable(tmp_path: Path) -> None:
    """The file-size limit makes posix_fallocate fail as a full disk does, at the third event window."""
    done = run_python(
        """
        import errno, resource, sys
        from fastllmload._ext.recorder import Recorder
        r = Recorder(sys.argv[1], True)
        limit = 2 * 2**20 + 8192
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        row = r.add_row(request=3)
        recorded = sum(r.add_event(i + 1, row, 3) for i in range(200_000))
        assert recorded == r.events.count == 87_040, recorded
        assert r.events.lost == 200_000 - 87_040, r.events.lost
        assert r.full and r.events.full and r.events.error_number == errno.EFBIG
        assert r.add_text(row, b"fits") and not r.add_text(row, b"x" * 3_000_000) and r.text.lost == 1
        rows = sum(r.add_row(request=i) is not None for i in range(9000))
        assert rows == 2 * 4096 - 1, rows
        assert r.requests.lost == 9000 - rows
        r.close()
        """,
        str(tmp_path),
    )
    assert done.returncode == 0, done.stderr
    assert np.array_equal(load(tmp_path / "tokens.npy")["t_ns"], np.arange(1, 87_041))
    assert load(tmp_path / "requests.npy").shape == (8192,)
    assert (tmp_path / "text.bin").read_bytes()[8:] == b"fits"


def test_memory_stays_flat_while_the_file_grows(tmp_path: Path) -> None:
    done = run_python(
        """
        import sys
        from fastllmload._ext.recorder import Recorder
        def file_pages():
            return int(next(x for x in open("/proc/self/status") if x.startswith("RssFile")).split()[1])
        r = Recorder(sys.argv[1])
        row = r.add_row()
        for i in range(70_000):
            r.add_event(i + 1, row, 3)
        before = file_pages()
        for i in range(600_000):
            r.add_event(i + 1, row, 3)
        print(file_pages() - before)
        """,
        str(tmp_path),
    )
    assert int(done.stdout) < 2048, "KiB more after 9 MiB more of events"


def test_text_crosses_windows_and_torn_ends_are_left_out(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    written = [(i, rng.bytes(int(n))) for i, n in enumerate(rng.integers(1, 400_000, 20))]
    r = recorder.Recorder(tmp_path, True)
    for row, text in written:
        assert r.add_text(row, text)
    assert r.add_text(99, b""), "nothing to write is no failure"
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
    for line in (PXD / "counters.pxd").read_text().splitlines():
        name, equals, value = line.split("#")[0].partition("=")
        if equals and name.strip().isupper():
            declared[name.strip()] = int(value)
    assert declared == counters.NUMBERS
    assert declared["W_RELEASED"] == counters.W_RELEASED
    assert declared["WORDS"] + declared["HISTOGRAMS"] * 33800 == counters.STALLS_START
    assert counters.STALLS_START + declared["STALL_WORDS"] * declared["STALL_RING"] == counters.TOTAL_WORDS
    assert counters.histogram_start(counters.H_LAG) == 288 + 3 * 33800
    with pytest.raises(IndexError):
        counters.histogram_start(6)
