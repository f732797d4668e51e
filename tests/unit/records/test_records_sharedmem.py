"""Words written by one process are read by another; wrong files are refused."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from refusals import raises_code

from fastllmload._ext import counters, histogram
from fastllmload.records.shared_memory import SharedWords


def test_words_and_histograms_are_shared_between_processes(tmp_path: Path) -> None:
    mine = SharedWords.create(tmp_path / "shared")
    assert mine.words.shape == (counters.TOTAL_WORDS,)
    assert not mine.words.any()
    code = (
        "import sys, numpy as np\n"
        "from fastllmload._ext import counters as k, histogram\n"
        "from fastllmload.records.shared_memory import SharedWords\n"
        "w = SharedWords.open(sys.argv[1])\n"
        "w.words[k.W_RELEASED] = 7\n"
        "histogram.record_many(w.histogram(k.H_LAG), np.array([1500]))\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "shared")], check=True, timeout=60)
    assert mine.words[counters.W_RELEASED] == 7
    assert histogram.total(mine.histogram(counters.H_LAG)) == 1
    assert histogram.total(mine.histogram(counters.H_BEAT)) == 0
    assert np.count_nonzero(mine.words) == 5, "the counter, one count, and total, minimum and maximum"


def test_the_newest_stalls_and_the_longest_are_kept(tmp_path: Path) -> None:
    """Of more stalls than the ring has slots the newest are kept, and the longest of the phase."""
    shared = SharedWords.create(tmp_path / "shared")
    assert shared.stalls().shape == (0, 4)
    ring = shared.words[counters.STALLS_START : counters.TOTAL_WORDS].reshape(-1, counters.STALL_WORDS)
    assert len(ring) == counters.STALL_RING
    shared.words[counters.W_STALL_MAX_AT], shared.words[counters.W_STALL_MAX_NS] = 50, 700
    assert shared.stalls().tolist() == [[50, 700, -1, -1]]
    for number in range(counters.STALL_RING + 10):
        ring[number % counters.STALL_RING] = 1_000 + number, 6, 4, 2
        shared.words[counters.W_STALLS] += 1
    found = shared.stalls().tolist()
    assert found[0] == [50, 700, -1, -1] and found[1] == [1_010, 6, 4, 2]
    assert found[-1] == [1_000 + counters.STALL_RING + 9, 6, 4, 2]
    assert len(found) == counters.STALL_RING + 1


def test_a_file_of_another_size_is_refused(tmp_path: Path) -> None:
    (tmp_path / "shared").write_bytes(b"\0" * 64)
    with raises_code("run-file-layout", "64"):
        SharedWords.open(tmp_path / "shared")


def test_creating_twice_is_refused(tmp_path: Path) -> None:
    SharedWords.create(tmp_path / "shared")
    with pytest.raises(FileExistsError):
        SharedWords.create(tmp_path / "shared")
