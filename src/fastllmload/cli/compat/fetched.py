"""Files of other tools' data sets: where they keep what they fetch, and what of a file decides a translation."""

from __future__ import annotations

import csv
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from fastllmload.cli.compat.foreign_command import ForeignCommand

GPT4 = "GPT-4"  # rows of BurstGPT that vLLM sends


def find_file(reading: ForeignCommand, environment: Mapping[str, str]) -> None:
    """Set the variable `path` of a data set that would be fetched to the copy of it that is on this host, if there is one,
    and `entries` or `other_models` by what is in a file.

    The table's `fetched` has (data set, file, repository on the hub, value of the variable `trace` or empty).
    """
    variables = reading.variables
    name, kind = one(reading, "dataset"), one(reading, "trace")
    if "path" not in variables:
        for dataset, file, repository, of_kind in reading.table.get("fetched", ()):
            if dataset == name and of_kind in ("", kind):
                variables["fetched"] = [file]
                found = next((path for path in places(file, repository, environment) if path.is_file()), None)
                if found is not None:
                    variables["path"] = [str(found)]
                break
    path = Path(one(reading, "path"))
    counted = "once" in variables or variables.get("prompts") == ["-1"]
    if name == "burstgpt" or (counted and name in ("custom", "spec_bench", "sharegpt")):
        read_file(reading, name, path)


def one(reading: ForeignCommand, name: str) -> str:
    """The first value of a variable, or its default; empty for none."""
    return (reading.variables.get(name) or [str(reading.table["defaults"].get(name, ""))])[0]


def places(file: str, repository: str, environment: Mapping[str, str]) -> Iterator[Path]:
    """Paths of a copy of *file*: this folder, that of temporary files, and the cache of the hub's *repository*."""
    yield Path(file)
    yield Path(tempfile.gettempdir()) / file
    home = Path(environment.get("HF_HOME") or os.path.expanduser("~/.cache/huggingface"))
    hub = Path(environment.get("HF_HUB_CACHE") or environment.get("HUGGINGFACE_HUB_CACHE") or home / "hub")
    if repository:
        yield from sorted(hub.glob(f"datasets--{repository.replace('/', '--')}/snapshots/*/{file}"))


def read_file(reading: ForeignCommand, name: str, path: Path) -> None:
    """Note the number of entries in *path*, or whether a BurstGPT file has rows that vLLM leaves out. What cannot be read is
    the run's to report.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        if name == "burstgpt":
            rows = csv.DictReader(text.splitlines())
            if any(row.get("Model") != GPT4 or row.get("Response tokens") in (None, "0") for row in rows):
                reading.variables["other_models"] = ["true"]
            return
        lines = [line for line in text.splitlines() if line.strip()]
        if category := one(reading, "spec_category"):
            lines = [line for line in lines if json.loads(line).get("category") == category]
        count = len(json.loads(text)) if name == "sharegpt" else len(lines)
    except (AttributeError, OSError, TypeError, ValueError, csv.Error):
        return
    reading.variables["entries"] = [str(count)]
