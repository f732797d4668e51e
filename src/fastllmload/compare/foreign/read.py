"""Finds out which tool wrote a result file, and reads it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from fastllmload.compare.foreign import aiperf, guidellm, vllm
from fastllmload.compare.foreign.result import ForeignResult
from fastllmload.errors import RunFolderError
from fastllmload.files import TOO_DEEP, parse_json, read_regular

IN_FOLDERS = (aiperf.SUMMARY, guidellm.FILE)
EXPECTED = (
    "expected a run folder, or the result file of `vllm bench serve --save-result`, of AIPerf (profile_export_aiperf.json "
    "or profile_export.jsonl) or of GuideLLM (benchmarks.json)"
)


def split_number(path: Path) -> tuple[Path, int | None]:
    """`results.json#2`: the file, and which of its results."""
    name, mark, number = str(path).rpartition("#")
    if mark and number.isdigit() and not path.exists():
        return Path(name), int(number)
    return path, None


def result_file(path: Path) -> Path | None:
    """*path* if it is a file, or the result file of another tool in that folder; None where there is none."""
    if split_number(path)[0].is_file():
        return path
    return next((path / name for name in IN_FOLDERS if (path / name).is_file()), None)


def read_result(path: Path) -> ForeignResult:
    """RunFolderError for a file of no known tool, or of another version of its layout."""
    file, number = split_number(path)
    found = json_of(file)
    if len(found) == 1 and guidellm.is_guidellm(found[0]):
        return checked(lambda: guidellm.read_guidellm(found[0], number, str(path)), path)
    if all(map(vllm.is_vllm, found)):
        one = found[guidellm.chosen(len(found), number, str(path)) - 1]
        return checked(lambda: vllm.read_vllm(one, str(path)), path)
    if len(found) == 1 and aiperf.is_aiperf(found[0]):
        records_file = file.parent / aiperf.RECORDS
        records = json_of(records_file) if records_file.is_file() else None
        return checked(lambda: aiperf.read_aiperf(found[0], records, str(path)), path)
    if all(map(aiperf.is_record, found)):
        return checked(lambda: aiperf.read_records(found, str(path)), path)
    raise RunFolderError("result-file-unknown", f"{path} is the result of no known tool: {EXPECTED}")


def json_of(path: Path) -> list[dict[str, Any]]:
    """The JSON objects of a file: one, or one on each line. RunFolderError where it is something else."""
    try:
        data = read_regular(path)
    except OSError as problem:
        raise RunFolderError("run-file-unreadable", f"{path} cannot be read: {problem.strerror}") from None
    found: Sequence[Any]
    try:
        found = [value_of(data)]
    except ValueError:
        try:
            found = [value_of(line) for line in data.splitlines() if line.strip()]
        except ValueError:
            found = []
    if not found or not all(isinstance(each, Mapping) for each in found):
        raise RunFolderError("result-file-unknown", f"{path} is not a JSON object, nor one per line: {EXPECTED}")
    return list(found)


def value_of(data: bytes) -> Any:
    """None for NaN and Infinity, which tools in Python write where there is no value. ValueError for what is not JSON."""
    try:
        return parse_json(data)
    except msgspec.DecodeError:
        try:
            return json.loads(data, parse_constant=lambda _: None)
        except RecursionError:
            raise ValueError(TOO_DEEP) from None


def checked(read: Callable[[], ForeignResult], path: Path) -> ForeignResult:
    """RunFolderError where a part of the file has another type than the tool writes."""
    try:
        return read()
    except (TypeError, ValueError, KeyError, AttributeError) as problem:
        raise RunFolderError(
            "result-file-invalid", f"{path} has a part of another type than the tool writes: {problem}"
        ) from None
