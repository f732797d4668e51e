"""The file of a trace: JSON objects with the place of each, one a line or one in all, gzip or not, and how to read it."""

from __future__ import annotations

import gzip
import hashlib
import io
import math
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from fastllmload.errors import InputError
from fastllmload.files import LARGEST_DATASET, read_bounded, read_open
from fastllmload.workload.dataset import MOST_TOKENS, check_uncompressed, column, format_value, why
from fastllmload.workload.instants import LATEST_S, moment
from fastllmload.workload.request import field_error

SECOND, MILLISECOND = 1_000_000_000, 1_000_000  # ns
GZIP = b"\x1f\x8b"
Row = TypeVar("Row")


@dataclass(frozen=True)
class TraceFile:
    """Content of *path*, decompressed. *prompts*, *scope*, *block_tokens*: what the user states, else as the format says."""

    path: Path
    raw: bytes
    sha256: str  # of the file as it is
    prompts: str = "auto"
    scope: str | None = None
    block_tokens: int | None = None

    def lines(self) -> Iterator[tuple[str, bytes]]:
        """Each line that is not blank, with its place."""
        start = 3 if self.raw.startswith(b"\xef\xbb\xbf") else 0
        file = io.BytesIO(self.raw)
        file.seek(start)
        for number, line in enumerate(file, 1):
            if not line.isspace():
                yield f"{self.path} line {number}", line

    def rows(self, type_: type[Row], skip: int = 0) -> Iterator[tuple[str, Row]]:
        """The JSON object of each line after the first *skip*. InputError names line, column, field and value."""
        decoder = msgspec.json.Decoder(type_)
        for _ in self._decoded(decoder, skip):
            pass  # a broken line is found before what the lines before it say takes time and memory
        yield from self._decoded(decoder, skip)

    def _decoded(self, decoder: msgspec.json.Decoder[Row], skip: int) -> Iterator[tuple[str, Row]]:
        for where, line in islice(self.lines(), skip, None):
            try:
                yield where, decoder.decode(line)
            except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
                raise _refused(where, line, problem) from None

    def objects(self, type_: type[Row]) -> Iterator[tuple[str, Row]]:
        """As `rows`; a file of one JSON object or array over many lines gives that object, or the array's entries."""
        if self._by_line():
            yield from self.rows(type_)
            return
        try:
            found = msgspec.json.decode(self.raw.removeprefix(b"\xef\xbb\xbf"), type=list[type_] | type_)  # type: ignore[valid-type]
        except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
            raise _refused(str(self.path), self.raw, problem) from None
        if isinstance(found, list):
            yield from ((f"{self.path} entry {number}", one) for number, one in enumerate(found, 1))
        else:
            yield str(self.path), found

    def _by_line(self) -> bool:
        """Whether the first or the second line is a JSON object of its own."""
        return any(_is_object(line) for _, line in islice(self.lines(), 2))

    def first(self, type_: type[Row]) -> tuple[str, Row] | None:
        """The JSON object of the first line alone; None for an empty file."""
        return next(self._decoded(msgspec.json.Decoder(type_), 0), None)

    def first_object(self) -> dict[str, Any]:
        """The first JSON object of the file, to tell its format; empty when it has none."""
        try:
            if not self._by_line():
                return next(self.objects(dict[str, Any]), ("", {}))[1]
            decoder = msgspec.json.Decoder(dict[str, Any])
            line = next(line for _, line in islice(self.lines(), 2) if _is_object(line))
            return decoder.decode(line)
        except (InputError, msgspec.DecodeError, UnicodeError):
            return {}


def _is_object(line: bytes) -> bool:
    try:
        msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True


def open_trace(
    path: Path, prompts: str = "auto", scope: str | None = None, block_tokens: int | None = None
) -> TraceFile:
    """InputError when *path* cannot be read, or is compressed in another way than by gzip."""
    try:
        raw = read_bounded(path, LARGEST_DATASET)
        sha256 = hashlib.sha256(raw).hexdigest()
        if raw.startswith(GZIP):
            with gzip.open(io.BytesIO(raw)) as packed:
                raw = read_open(io.BufferedReader(packed), LARGEST_DATASET)
    except (zlib.error, EOFError, gzip.BadGzipFile) as problem:
        raise InputError("dataset-invalid", f"--dataset-path {path} is not a valid gzip file: {problem}") from None
    except OSError as problem:
        raise InputError("file-unreadable", f"--dataset-path {path} cannot be read: {problem.strerror}") from None
    check_uncompressed(path, raw)
    return TraceFile(path, raw, sha256, prompts, scope, block_tokens)


# -- values ------------------------------------------------------------------------------------------------------------


def time_ns(value: float, unit: int, where: str, name: str) -> int:
    """*value*, a count of *unit* ns, exact where it is whole. InputError below 0 and after the year 2096."""
    if not 0 <= value * unit <= LATEST_S * SECOND:
        raise field_error(f"{where}: {name} is {value:g}; write 0 or more, up to {LATEST_S * SECOND // unit:.0e}")
    whole = math.floor(value)
    return whole * unit + round((value - whole) * unit)


def tokens(value: int, where: str, name: str) -> int:
    if not 0 <= value <= MOST_TOKENS:
        raise field_error(f"{where}: {name} is {value}, not a number of tokens from 0 to {MOST_TOKENS}")
    return value


def moment_ns(text: str, where: str, name: str) -> int:
    """An instant of ISO 8601, such as 2026-05-01T10:00:00.000Z. InputError when it is not one."""
    try:
        return moment(text)
    except ValueError as problem:
        raise field_error(f"{where}: {name}: {problem}") from None


# -- errors ------------------------------------------------------------------------------------------------------------

_AT = re.compile(r" - at `(\$[^`]*)`")
_GOT = re.compile(r"Expected `[^`]*`, got `([a-z]+)`")
REMEDIES = {
    "Object contains unknown field": "; remove it or correct its name",
    "Object missing required field": "; add it",
}
_KINDS = {"int": int, "float": float, "str": str, "bool": bool}  # whose values are short


def _refused(where: str, text: bytes, problem: Exception) -> InputError:
    if not isinstance(problem, msgspec.ValidationError):
        return InputError(
            "dataset-invalid", f"{where}{_place(text, problem)} is not JSON: {why(problem)}; correct or remove it"
        )
    said, at = str(problem), _AT.search(str(problem))
    remedy = next((text for begin, text in REMEDIES.items() if said.startswith(begin)), "")
    if at is None:
        return InputError("dataset-invalid", f"{where}: {said}{remedy or '; correct or remove it'}")
    got = _GOT.match(said)
    values = [one for one in _values(text, at[1]) if got and type(one) is _KINDS.get(got[1])]
    shown = f" (its value is {format_value(values[0])})" if values else ""
    return InputError(
        "dataset-invalid", f"{where}: {at[1].removeprefix('$.')}: {said[: at.start()]}{shown}{remedy or '; correct it'}"
    )


def _place(text: bytes, problem: Exception) -> str:
    """` column N` of a line, ` line N` of a document."""
    found = re.search(r"\(byte (\d+)\)", str(problem))
    before = text[: int(found[1])] if found else text.rstrip()
    return f" line {before.count(10) + 1}" if before.count(10) else column(text, problem)


def _values(text: bytes, path: str) -> list[Any]:
    """The values at *path* of msgspec, such as `$.requests[...].t`, in which `[...]` is each entry; none where too deep."""
    try:
        found = [msgspec.json.decode(text)]
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return []
    for name, index in re.findall(r"\.(\w+)|\[(\d+|\.\.\.)\]", path):
        if name:
            found = [one[name] for one in found if isinstance(one, dict) and name in one]
        elif index == "...":
            found = [entry for one in found if isinstance(one, list) for entry in one]
        else:
            found = [one[int(index)] for one in found if isinstance(one, list) and int(index) < len(one)]
    return found
