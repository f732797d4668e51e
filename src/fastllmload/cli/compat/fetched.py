"""Files of other tools' data sets: where they keep what they fetch, and what of a file decides a translation."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from fastllmload.cli.compat.foreign_command import ForeignCommand
from fastllmload.workload.hugging_face import OF_HUB

# Files that tools fetch, and the data set of the hub that has each.
ON_HUB = {
    "ShareGPT_V3_unfiltered_cleaned_split.json": "anon8231489123/ShareGPT_Vicuna_unfiltered",
    "open_qa.jsonl": "Hello-SimpleAI/HC3-Chinese",
    "LongAlpaca-12k.json": "Yukang/LongAlpaca-12k",
}
GPT4 = "GPT-4"  # rows of BurstGPT that vLLM sends


def find_file(reading: ForeignCommand, environment: Mapping[str, str]) -> None:
    """Set the variable of the file of a data set that the tool would fetch to the copy of it on this host, else to its name
    on the hub, from which the run fetches it (extra `hf`); and `entries` or `other_models` by what is in a file.
    """
    variables = reading.variables
    for variable, file, paths in wanted(reading, environment):
        if variable in variables:
            continue
        copy = next((str(path) for path in paths if path.is_file()), None)
        if copy is None and file in ON_HUB and find_spec("huggingface_hub") is not None:
            copy = f"{OF_HUB}{ON_HUB[file]}/{file}"
        if copy is not None:
            variables[variable] = [copy]
    name = one(reading, "dataset")
    counted = "once" in variables or variables.get("prompts") == ["-1"]
    if name == "burstgpt" or (counted and name in ("custom", "spec_bench", "sharegpt")):
        read_file(reading, name, Path(one(reading, "path")))


def wanted(reading: ForeignCommand, environment: Mapping[str, str]) -> Iterator[tuple[str, str, Iterable[Path]]]:
    """Of each data set that is asked for, the variable of its file, the file's name, and where a copy may be: by the table's
    `fetched`, which has (data set, file, value of the variable `trace` or empty), and by the `files` of an option.
    `fetched` becomes the name of the first.
    """
    name, kind = one(reading, "dataset"), one(reading, "trace")
    for dataset, file, of_kind in reading.table.get("fetched", ()):
        if "path" not in reading.variables and dataset == name and of_kind in ("", kind):
            reading.variables["fetched"] = [file]
            yield "path", file, places(file, environment)
    for entry in reading.table["options"].values():
        if isinstance(entry, Mapping) and "files" in entry:
            names = [Path(each).expanduser() for each in entry["files"].get(one(reading, entry["as"]), ())]
            if names:
                yield entry["file_as"], names[0].name, names


def one(reading: ForeignCommand, name: str) -> str:
    """The first value of a variable, or its default; empty for none."""
    return (reading.variables.get(name) or [str(reading.table["defaults"].get(name, ""))])[0]


def places(file: str, environment: Mapping[str, str]) -> Iterator[Path]:
    """Paths of a copy of *file*: this folder, that of temporary files, and the hub's cache."""
    yield Path(file)
    yield Path(tempfile.gettempdir()) / file
    home = Path(environment.get("HF_HOME") or os.path.expanduser("~/.cache/huggingface"))
    hub = Path(environment.get("HF_HUB_CACHE") or environment.get("HUGGINGFACE_HUB_CACHE") or home / "hub")
    if file in ON_HUB:
        yield from sorted(hub.glob(f"datasets--{ON_HUB[file].replace('/', '--')}/snapshots/*/{file}"))


def gpt4_rows(reading: ForeignCommand) -> None:
    """The file of the rows of a BurstGPT file that vLLM sends: those of GPT-4 with an answer."""
    path = Path(one(reading, "path"))
    with path.open(encoding="utf-8-sig") as file:
        rows = csv.DictReader(file)
        text = io.StringIO()
        writer = csv.DictWriter(text, rows.fieldnames or (), lineterminator="\n")
        writer.writeheader()
        writer.writerows(row for row in rows if sent_by_vllm(row))
    kept = f"runs/compat-{path.stem}-{hashlib.sha256(text.getvalue().encode()).hexdigest()[:12]}.csv"
    reading.files[kept] = text.getvalue()
    reading.variables["made"] = [kept]


def sent_by_vllm(row: Mapping[str, str | None]) -> bool:
    return row.get("Model") == GPT4 and row.get("Response tokens") not in (None, "0")


def read_file(reading: ForeignCommand, name: str, path: Path) -> None:
    """Note the number of entries in *path*, or whether a BurstGPT file has rows that vLLM leaves out. What cannot be read is
    the run's to report.
    """
    try:
        with path.open(encoding="utf-8-sig") as file:
            if name == "burstgpt":
                rows = csv.DictReader(file)
                if not all(sent_by_vllm(row) for row in rows):
                    reading.variables["other_models"] = ["true"]
                return
            if name == "sharegpt":
                count = len(json.load(file))
            else:
                category = one(reading, "spec_category")
                lines = (line for line in file if line.strip())
                count = sum(1 for line in lines if not category or json.loads(line).get("category") == category)
    except (AttributeError, OSError, TypeError, ValueError, csv.Error):
        return
    reading.variables["entries"] = [str(count)]
