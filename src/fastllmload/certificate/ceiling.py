"""Stores and reads the ceiling of this host, the capacity of one worker that `fastllmload calibrate` measured."""

from __future__ import annotations

import contextlib
import os
import platform
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from fastllmload import __version__
from fastllmload.errors import HostLimitError
from fastllmload.files import refuse_irregular

Rate = Annotated[float, msgspec.Meta(gt=0)]


class Ceiling(msgspec.Struct, frozen=True):
    """Of one worker on a core of its own: stamped events per second, and new streamed requests per second."""

    events_per_s: Rate
    requests_per_s: Rate


def calibration_path(environment: Mapping[str, str] | None = None) -> Path:
    """The calibration file in the user's cache folder (XDG_CACHE_HOME)."""
    environment = os.environ if environment is None else environment
    cache = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "fastllmload" / "calibration.json"


def host_key() -> str:
    """The key of a ceiling, which applies to one host, CPU model and version of this program."""
    return f"{platform.node()}|{cpu_model()}|{__version__}"


def cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:  # no /proc here: use the architecture instead
        return platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def read_all(path: Path) -> dict[str, Ceiling]:
    """Ceilings by host, as far as this version can read them; {} without a file, because the file is a cache."""
    try:
        entries = msgspec.json.decode(path.read_bytes(), type=dict[str, msgspec.Raw])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return {}
    known = {host: read_one(entry) for host, entry in entries.items()}
    return {host: ceiling for host, ceiling in known.items() if ceiling is not None}


def read_one(entry: msgspec.Raw) -> Ceiling | None:
    """None for an entry that is not a valid ceiling, such as one of 0."""
    try:
        return msgspec.json.decode(entry, type=Ceiling)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def stored_ceiling(path: Path | None = None) -> Ceiling | None:
    """This host's ceiling; None when it was never calibrated with this version."""
    return read_all(calibration_path() if path is None else path).get(host_key())


def store_ceiling(ceiling: Ceiling, path: Path | None = None) -> Path:
    """Store this host's ceiling next to other hosts'. HostLimitError when the cache folder cannot be written."""
    path = calibration_path() if path is None else path
    known = {**read_all(path), host_key(): ceiling}
    temporary = path.with_suffix(f".{os.getpid()}.new")
    with storing(path):
        temporary.write_bytes(msgspec.json.format(msgspec.json.encode(known), indent=1) + b"\n")
        temporary.replace(path)
    return path


def refuse_unwritable(path: Path | None = None) -> None:
    """HostLimitError when the result cannot be stored; call it before the calibration, which takes half a minute."""
    path = calibration_path() if path is None else path
    with storing(path):
        refuse_irregular(path)
        tempfile.TemporaryFile(dir=path.parent).close()


@contextlib.contextmanager
def storing(path: Path) -> Iterator[None]:
    """Create *path*'s folder; an OSError in the block becomes a HostLimitError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as problem:
        raise HostLimitError(
            "calibration-not-stored",
            f"the calibration cannot be stored at {path}: {problem.strerror}; set XDG_CACHE_HOME to a folder you may write",
        ) from problem
