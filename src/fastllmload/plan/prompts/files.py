"""Read the files of workloads once: for the check before a target is contacted, and for both phases."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from fastllmload.workload.dataset import Dataset, read_dataset
from fastllmload.workload.tokenizers.tokenizer import load_tokenizer
from fastllmload.workload.trace import Trace, read_trace


def dataset_of(name: str, path: Path, tokenizer: str) -> Dataset:
    """The data set in *path*, read once for a check and both phases; see `forget_files`."""
    return _read_dataset(name, path, tokenizer, *_version(path))


def trace_of(name: str, path: Path) -> Trace:
    return _read_trace(name, path, *_version(path))


def forget_files() -> None:
    """Free the memory of the files, once the plans are built."""
    _read_dataset.cache_clear()
    _read_trace.cache_clear()


def _version(path: Path) -> tuple[int, int]:
    """Cache key: a changed file is read again."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0  # reading the file reports the error
    return found.st_mtime_ns, found.st_size


@lru_cache(4)
def _read_dataset(name: str, path: Path, tokenizer: str, modified_ns: int, size: int) -> Dataset:
    return read_dataset(name, path, load_tokenizer(tokenizer))


@lru_cache(4)
def _read_trace(name: str, path: Path, modified_ns: int, size: int) -> Trace:
    return read_trace(name, path)
