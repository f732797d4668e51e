"""Words written by one process are read by another, whatever the disk does."""

import errno
import os
import subprocess
import sys

import numpy as np
import pytest
from refusals import raises_code

from fastllmload._ext.record import counters, histogram
from fastllmload.records.shared_memory import SharedWords


def test_words_and_histograms_are_shared_between_processes() -> None:
    mine = SharedWords.create()
    assert mine.words.shape == (counters.TOTAL_WORDS,)
    assert not mine.words.any()
    code = (
        "import sys, numpy as np\n"
        "from fastllmload._ext.record import counters as k, histogram\n"
        "from fastllmload.records.shared_memory import SharedWords\n"
        "w = SharedWords(int(sys.argv[1]))\n"
        "w.words[k.W_RELEASED] = 7\n"
        "histogram.record_many(w.histogram(k.H_LAG), np.array([1500]))\n"
    )
    inherited = mine.descriptor
    subprocess.run([sys.executable, "-c", code, str(inherited)], check=True, timeout=60, pass_fds=(inherited,))
    assert mine.words[counters.W_RELEASED] == 7
    assert histogram.total(mine.histogram(counters.H_LAG)) == 1
    assert histogram.total(mine.histogram(counters.H_BEAT)) == 0
    assert np.count_nonzero(mine.words) == 5, "the counter, one count, and total, minimum and maximum"


def test_the_newest_stalls_and_the_longest_are_kept() -> None:
    """Of more stalls than the ring has slots the newest are kept, and the longest of the phase."""
    shared = SharedWords.create()
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


def test_the_memory_is_not_on_a_disk_and_goes_with_its_owner() -> None:
    """A mapped file would stop the process that writes to it as long as the disk does not take its pages."""
    shared = SharedWords.create()
    inherited, words = shared.descriptor, shared.words
    assert os.readlink(f"/proc/self/fd/{inherited}") == "/memfd:words (deleted)"
    del shared
    with pytest.raises(OSError):
        os.fstat(inherited)
    words[counters.W_OK] = 3
    assert words[counters.W_OK] == 3


def test_words_that_the_system_has_no_memory_for_are_a_host_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []

    def no_room(descriptor: int, begin: int, size: int) -> None:
        closed.append(descriptor)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", no_room)
    with raises_code("memory-unavailable", "No space left"):
        SharedWords.create()
    with pytest.raises(OSError):
        os.fstat(closed[0])
