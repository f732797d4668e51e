"""samples.npy is a complete array after every append, also when its writer is killed."""

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from fastllmload._ext.record import counters as k
from fastllmload.host.cpu import process_figures
from fastllmload.records.samples import COUNTERS, SAMPLE, SIMULATOR, SampleLog, sample


def test_the_file_is_readable_before_and_after_every_row(tmp_path):
    log = SampleLog(tmp_path / "s.npy")
    assert len(np.load(tmp_path / "s.npy")) == 0
    for number in range(5):
        log.append(sample(number, SIMULATOR, 0, None, None))
        read = np.load(tmp_path / "s.npy")
        assert read.dtype == SAMPLE and list(read["t_ns"]) == list(range(number + 1))
    log.close()


def test_rows_beyond_the_header_count_are_ignored(tmp_path):
    """A kill between rows and header leaves more bytes than the header counts."""
    log = SampleLog(tmp_path / "s.npy")
    log.append(sample(1, 0, 0, None, None))
    log.close()
    with open(tmp_path / "s.npy", "ab") as file:
        file.write(sample(2, 0, 0, None, None).tobytes()[:100])
    assert list(np.load(tmp_path / "s.npy")["t_ns"]) == [1]


def test_a_row_has_the_workers_counters_and_the_finer_cpu_time():
    words = np.zeros(k.TOTAL_WORDS, np.int64)
    for number, word in enumerate(COUNTERS.values()):
        words[word] = number + 1
    words[k.W_CPU_NS] = 1 << 60
    row = sample(7, 3, 1, words, process_figures(os.getpid()))[0]
    assert [row[name] for name in COUNTERS] == list(range(1, len(COUNTERS) + 1))
    assert (row["worker"], row["phase"], row["cpu_ns"]) == (3, 1, 1 << 60)


def test_figures_of_this_process_are_plausible_and_a_missing_one_has_none():
    figures = process_figures(os.getpid())
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    assert figures.rss_bytes == pytest.approx(resident, rel=0.2)
    assert figures.cpu_ns > 0 and figures.run_delay_ns >= 0
    child = subprocess.Popen(["true"])
    child.wait()
    assert process_figures(child.pid) is None
