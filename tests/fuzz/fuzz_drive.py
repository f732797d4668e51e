"""Fuzz the compiled parsers in this process; meant to run on a sanitizer build, see test_fuzz_parsers.py.

    python tests/fuzz/fuzz_drive.py FOLDER_OF_MODULES --runs 20000 --seed 7 [--target sse]

Each run feeds one damaged input whole and in pieces; both must say the same and nothing may raise. Inputs
lie in allocations of exactly their size, so that the address sanitizer sees one byte too many. Prints runs
per target.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import random
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from mutate import SEEDS, cut, mutated

from fastllmload.endpoint import ENDPOINTS


def exact(data: bytes) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """*data* in an allocation of exactly its size: the NUL at the end of a bytes object hides an over-read."""
    return np.frombuffer(data, np.uint8).copy()


def load(folder: Path, name: str) -> ModuleType:
    """The module built in *folder*, and no other; it must be an instrumented one."""
    module = importlib.import_module(f"fastllmload._ext.{name}")
    path = Path(module.__file__ or "")
    if folder.resolve() not in path.resolve().parents:
        raise SystemExit(f"{name} was loaded from {path}, not from {folder}")
    if b"__asan_report" not in path.read_bytes():
        raise SystemExit(f"{path} is not built with the address sanitizer")
    return module


def fuzz_sse(sse: ModuleType, rng: random.Random, data: bytes) -> None:
    limit = rng.choice([8, 40, 1 << 16])
    whole, split = sse.SseParser(limit=limit), sse.SseParser(limit=limit)
    events = whole.feed(exact(data))
    pieces = [event for read in cut(rng, data) for event in split.feed(exact(read))]
    assert pieces == events and whole.too_long == split.too_long, (data, limit)
    whole.reset()
    assert whole.feed(exact(data)) == events, data


def fuzz_ndjson(ndjson: ModuleType, rng: random.Random, data: bytes) -> None:
    limit = rng.choice([3, 40, 1 << 16])
    whole, split = ndjson.NdjsonParser(limit=limit), ndjson.NdjsonParser(limit=limit)
    lines = whole.feed(exact(data)) + whole.eof()
    pieces = [line for read in cut(rng, data) for line in split.feed(exact(read))] + split.eof()
    assert pieces == lines and whole.too_long == split.too_long, (data, limit)


READERS: list[Any] = []  # one that has read every head before: it knows some again


def fuzz_head(http1: ModuleType, rng: random.Random, data: bytes) -> None:
    if not READERS:
        READERS.append(http1.HeadReader())
    size = http1.find_head_end(exact(data))
    seen = rng.randrange(size) if size else len(data)
    assert http1.find_head_end(exact(data), seen) == size or not size, data
    said = http1.parse_head(exact(data[:size] if size else data))
    assert said["error"] in http1.HEAD_ERRORS and (said["message"] is None) == (said["error"] == "ok"), data
    again = READERS[0].read_bytes(exact(data[:size] if size else data))
    assert http1.HEAD_ERRORS[again] == said["error"] and READERS[0].length == said["length"], data
    assert READERS[0].status == said["status"] and READERS[0].keep_alive == said["keep_alive"], data


def fuzz_body(http1: ModuleType, rng: random.Random, data: bytes) -> None:
    framing = rng.choice(["chunked", "chunked", "chunked", "length", "close"])
    whole, split = http1.BodyFramer(framing, 20), http1.BodyFramer(framing, 20)
    spans, state, unused = whole.feed(exact(data))
    payload, last, rest = b"", "end" if framing == "length" and not data else "need", b""
    reads = cut(rng, data)
    for at, read in enumerate(reads):
        parts, last, rest = split.feed(exact(read))
        payload += b"".join(parts)
        if last != "need":
            rest += b"".join(reads[at + 1 :])
            break
    assert (payload, rest) == (b"".join(spans), unused) and (last == state or not data), data
    assert whole.eof() == split.eof(), data


def fuzz_delta(delta: ModuleType, rng: random.Random, data: bytes) -> None:
    dialect = rng.choice([*ENDPOINTS.values()]).dialect
    quick, strict, stream = (delta.Classifier(dialect, strict) for strict in (False, True, False))
    stream.classify_bytes(exact(rng.choice(SEEDS["delta"])))
    for read in ("classify_bytes", "classify_body_bytes"):
        expected = getattr(strict, read)(exact(data)) | {"decoder": None}
        for classifier in (quick, stream, quick):
            assert getattr(classifier, read)(exact(data)) | {"decoder": None} == expected, data


TARGETS: dict[str, tuple[str, Callable[[ModuleType, random.Random, bytes], None]]] = {
    "sse": ("events.sse", fuzz_sse),
    "ndjson": ("events.ndjson", fuzz_ndjson),
    "head": ("http.response", fuzz_head),
    "body": ("http.response", fuzz_body),
    "delta": ("events.delta", fuzz_delta),
}


def overread() -> None:
    """A real defect, to see that the sanitizer is awake: one byte behind an allocation."""
    data = np.zeros(100, np.uint8)
    ctypes.string_at(data.ctypes.data, 101)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--runs", type=int, default=2000)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--target", action="append", choices=sorted(TARGETS))
    arguments.add_argument("--overread", action="store_true", help="commit one defect on purpose and do nothing else")
    asked = arguments.parse_args()
    if asked.overread:
        overread()
        return
    for room in (asked.folder / "fastllmload" / "_ext").iterdir():
        importlib.import_module(f"fastllmload._ext.{room.name}").__path__.insert(0, str(room))
    for name in asked.target or sorted(TARGETS):
        module_name, target = TARGETS[name]
        module = load(asked.folder, module_name)
        rng = random.Random(f"{asked.seed} {name}")
        for _ in range(asked.runs):
            target(module, rng, mutated(rng, SEEDS[name]))
        print(f"{name}: {asked.runs} runs, seed {asked.seed}", flush=True)


if __name__ == "__main__":
    main()
