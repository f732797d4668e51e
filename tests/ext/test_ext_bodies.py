"""The bodies of a plan are read from their file, whatever is asked for, and their mapping is not touched."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastllmload._ext.plan.bodies import Bodies

SIZE = 1_000_000
BYTES = np.random.default_rng(7).integers(0, 256, SIZE, np.uint8)
PIECES = st.lists(st.tuples(st.integers(0, SIZE), st.one_of(st.integers(0, 2_000), st.integers(0, SIZE))), max_size=30)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("bodies") / "bodies.bin"
    path.write_bytes(BYTES.tobytes())
    return path


@given(PIECES, st.booleans())
def test_every_piece_is_what_the_plan_has(path, pieces, in_file):
    """Small and large ones, forward and back, up to the last byte; with the file and without."""
    bodies = Bodies(BYTES, path if in_file else None)
    for at, size in pieces:
        assert bodies.read(at, min(size, SIZE - at)) == BYTES[at : at + size].tobytes()


def test_the_file_is_read_and_not_its_mapping(path):
    """A mapping that is touched grows: none of it does, also not for a body larger than the window."""
    mapped = np.memmap(path, np.uint8, "r")
    bodies = Bodies(mapped, path)
    assert b"".join(bodies.read(at, 1_000) for at in range(0, SIZE, 1_000)) == BYTES.tobytes()
    assert bodies.read(0, SIZE) == BYTES.tobytes()
    assert resident_bytes(path) == 0
    assert mapped.max() == 255 and resident_bytes(path) >= SIZE, "else nothing was seen above either"


def test_what_the_file_has_not_comes_from_the_mapping(tmp_path):
    short = tmp_path / "short.bin"
    short.write_bytes(BYTES[:5_000].tobytes())
    bodies = Bodies(BYTES, short)
    assert bodies.read(4_000, 3_000) == BYTES[4_000:7_000].tobytes()
    assert bodies.read(6_000, 3_000) == BYTES[6_000:9_000].tobytes()


def resident_bytes(path: Path) -> int:
    """Of the mappings of *path* in this process, from the kernel's own count."""
    inside, found = False, 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.partition(" ")[0]:
            inside = line.endswith(str(path))
        elif inside and line.startswith("Rss:"):
            found += int(line.split()[1]) * 1024
    return found
