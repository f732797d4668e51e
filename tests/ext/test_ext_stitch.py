"""Stitcher against the same concatenation in plain Python."""

import itertools
import random

import numpy as np
import pytest

from fastllmload._ext.plan.stitch import Stitcher

SPARE = 64


def table(words):
    """Blob and entries of *words*."""
    sizes = np.array([len(word) for word in words], dtype=np.uint32)
    offsets = np.cumsum(sizes, dtype=np.uint32) - sizes
    return np.frombuffer(b"".join(words) + bytes(SPARE), dtype=np.uint8), (offsets << np.uint32(8)) | sizes


def run(stitcher, drawn, prompt, output):
    drawn, prompt, output = (
        np.array(drawn, dtype=np.uint32),
        np.array(prompt, dtype=np.int32),
        np.array(output, dtype=np.int32),
    )
    out = np.full(stitcher.room(len(drawn), len(prompt)), 0xEE, dtype=np.uint8)
    ends = np.zeros(len(prompt), dtype=np.uint64)
    size = stitcher.stitch(drawn, prompt, output, out, ends)
    starts = [0, *ends.tolist()]
    assert size == starts[-1]
    return [out[a:b].tobytes() for a, b in itertools.pairwise(starts)]


@pytest.mark.parametrize("pieces", [[b"tail"], [b',"m":', b"}"], [b"", b"", b""], [b"a", b"b" * 300, b"c", b""]])
def test_equals_plain_concatenation(pieces):
    """Words of 1 to 64 bytes, one or many numbers per body, long and empty pieces."""
    rng = random.Random(7)
    words = [bytes(rng.choices(b"abcdefgh", k=size)) for size in (*range(1, 65), 1, 16, 17, 2)]
    blob, entries = table(words)
    first = np.roll(entries, 3)
    prompt = [rng.randint(1, 40) for _ in range(200)]
    output = [rng.choice([0, 1, 9, 10, 256, 2**31 - 1]) for _ in prompt]
    drawn = [rng.randrange(len(words)) for _ in range(sum(prompt))]
    expected, at = [], 0
    for size, number in zip(prompt, output, strict=True):
        mine = drawn[at : at + size]
        at += size
        text = words[mine[0] - 3] + b"".join(words[k] for k in mine[1:])
        expected.append(b"before" + text + b"%d".__mod__(number).join(pieces))
    assert run(Stitcher(blob, entries, first, b"before", pieces), drawn, prompt, output) == expected


def test_no_bodies():
    """Nothing drawn gives nothing."""
    blob, entries = table([b"a"])
    assert run(Stitcher(blob, entries, entries, b"", [b""]), [], [], []) == []


@pytest.mark.parametrize(
    ("drawn", "prompt", "output", "error"),
    [
        ([0, 1], [3], [1], ValueError),
        ([0, 1], [1], [1], ValueError),
        ([0, 1], [2, 0], [1, 1], ValueError),
        ([0, 1], [2], [1, 1], ValueError),
        ([0, 2], [2], [1], IndexError),
        ([0, 2**32 - 1], [2], [1], IndexError),
    ],
)
def test_sizes_that_do_not_fit(drawn, prompt, output, error):
    """Counts that disagree and numbers beyond the table are refused."""
    blob, entries = table([b"a", b"bc"])
    with pytest.raises(error):
        run(Stitcher(blob, entries, entries, b"", [b""]), drawn, prompt, output)


def test_small_buffer_is_refused():
    """A buffer below room() is never written to."""
    blob, entries = table([b"a"])
    stitcher = Stitcher(blob, entries, entries, b"x", [b"y"])
    out = np.full(stitcher.room(2, 1) - 1, 0xEE, dtype=np.uint8)
    with pytest.raises(ValueError, match="bytes"):
        stitcher.stitch(
            np.zeros(2, dtype=np.uint32),
            np.array([2], dtype=np.int32),
            np.array([1], dtype=np.int32),
            out,
            np.zeros(1, dtype=np.uint64),
        )
    assert set(out.tolist()) == {0xEE}


@pytest.mark.parametrize("entry", [0, 65, (2 << 8) | 1, (1 << 8) | 2, 0xFFFFFFFF])
def test_tables_that_leave_the_blob_are_refused(entry):
    """An empty or too long word, or one that needs bytes after the blob."""
    blob, entries = table([b"a", b"b"])
    bad = np.array([entries[0], entry], dtype=np.uint32)
    for words, first in ((bad, entries), (entries, bad)):
        with pytest.raises(ValueError, match="word"):
            Stitcher(blob, words, first, b"", [b""])


def test_tables_must_be_alike():
    """Different sizes, an empty table and no piece are refused."""
    blob, entries = table([b"a", b"b"])
    with pytest.raises(ValueError, match="same length"):
        Stitcher(blob, entries, entries[:1].copy(), b"", [b""])
    with pytest.raises(ValueError, match="empty"):
        Stitcher(blob, entries[:0].copy(), entries, b"", [b""])
    with pytest.raises(ValueError, match="pieces"):
        Stitcher(blob, entries, entries, b"", [])
