"""Data sets that GuideLLM's --data names: which workload sends a file or a set of the hub, and what its columns are."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fastllmload.cli.compat.converters import json_value, settings
from fastllmload.cli.compat.fetched import one
from fastllmload.cli.compat.foreign_command import ForeignCommand, Lack
from fastllmload.cli.compat.made_files import file_text, json_rows, keep
from fastllmload.errors import InputError

FORMS = {".txt": "text", ".text": "text", ".csv": "csv", ".json": "custom", ".jsonl": "custom"}
TRACES = ("trace_synthetic", "trace_minimal", "mooncake", "weka", "otel", "opentelemetry", "otel_trace")
TURN = re.compile(r"[-_](\d+)$")  # ends the name of a column of one turn
HUB = re.compile(r"[\w.-]+(/[\w.-]+)?")
PROMPT = ("prompt", "instruction", "question", "input", "context", "content", "conversation", "turn", "text")
LENGTH = ("output_tokens_count", "completion_tokens_count")
SYSTEM = ("system_prompt", "system", "prefix")


def choose(reading: ForeignCommand) -> None:
    """Note the workload of the data set, and its columns: those that are named, or the first with a usual name."""
    variables = reading.variables
    if variables.get("data_kind", [""])[0] in ("huggingface", "hf") and "data_source" in variables:
        variables["data"] = variables.pop("data_source")
    name = variables.get("data", [""])[0]
    form = FORMS.get(Path(name).suffix.lower()) or ("hf" if HUB.fullmatch(name) or Path(name).exists() else "")
    if not name or variables.get("data_kind", [""])[0] in TRACES:
        return
    if not form:
        why = "it is neither a file of this host nor the name of a data set; give its text, CSV or JSON as a file"
        reading.lacks.append(Lack(f"--data {name}", "changes", why))
        return
    entry = first_entry(Path(name), form)
    if entry is not None and "prompt_tokens" in entry:  # lengths of made-up prompts, as a file
        del variables["data"]
        settings(reading, "--data", {"as": "data"}, [json.dumps(entry)])
        return
    variables["data_form"] = [form]
    if form != "text":
        columns(reading, name, entry)


def columns(reading: ForeignCommand, name: str, entry: Mapping[str, Any] | None) -> None:
    """Note the columns of the data set *name*, whose first entry is *entry* where that is known."""
    variables, has = reading.variables, list(entry or ())
    chosen = {role: variables[f"{role}_column"][0].rpartition(".")[2] for role in ("prompt", "output_tokens")
              if f"{role}_column" in variables}  # fmt: skip
    numbered = [each for each in has if first_of(PROMPT, [each]) and TURN.search(each)]
    if len(numbered) > 1 and "prompt" not in chosen and variables["data_form"] == ["custom"]:
        variables["data_conversations"] = ["true"]
        return
    if entry is not None and (prefix := first_of(SYSTEM, has)):
        reading.lacks.append(
            Lack(f"--data {name}", "changes", f"its column {prefix} is a system prompt, not sent here")
        )
    if entry is not None and "prompt" not in chosen:
        found = first_of(PROMPT, has)
        if not found:
            why = f"no column is known to have prompts, of {', '.join(has) or 'none'}; add --data-column-mapper"
            reading.lacks.append(Lack(f"--data {name}", "changes", why))
            return
        if len(numbered) > 1:
            why = "each row is a conversation, which is read from JSON lines; write it as those"
            reading.lacks.append(Lack(f"--data {name}", "changes", why))
        chosen["prompt"] = found
    if entry is not None and "output_tokens" not in chosen and (length := first_of(LENGTH, has)):
        chosen["output_tokens"] = length
    if "output_tokens" in chosen:
        variables["data_lengths"] = ["true"]
    if chosen:
        variables["data_columns"] = [",".join(f"{role}={column}" for role, column in chosen.items())]


def conversations(reading: ForeignCommand) -> None:
    """Write rows with columns for each turn as conversations of `--workload custom`; the system prompt begins them."""
    path = one(reading, "data")
    rows = [row for row in json_rows(path, file_text(path)) if isinstance(row, dict)]
    turns = [sorted((int(number[1]), name) for name in row if first_of(PROMPT, [name]) and (number := TURN.search(name)))
             for row in rows]  # fmt: skip
    if not any(turns):
        raise InputError("dataset-field-invalid", f"{path} has no line with prompts of turns, such as prompt_0")
    lines = []
    for place, (row, found) in enumerate(zip(rows, turns, strict=True)):
        system = row.get(first_of(SYSTEM, row)) or row.get(first_of([f"{name}_0" for name in SYSTEM], row))
        for turn, name in found:
            length = row.get(first_of([f"{one}[-_]{turn}" for one in LENGTH], row))
            line = {"session": str(place), "prompt": row[name]}
            if system and name == found[0][1]:
                asked = {"role": "user", "content": line.pop("prompt")}
                line["messages"] = [{"role": "system", "content": system}, asked]
            lines.append(line if length is None else {**line, "output_tokens": length})
    reading.variables["data_turns"] = [f"{len(lines) / sum(map(bool, turns)):.9g}"]
    if any("output_tokens" in line for line in lines):
        reading.variables["data_lengths"] = ["true"]
    keep(reading, "conversations", lines)


def first_of(names: Iterable[str], has: Iterable[str]) -> str:
    """The first column of *has* with one of the *names*, in the plural too, and with the number of a turn after it."""
    known = re.compile(rf"({'|'.join(names)})(es|s)?([-_]\d+)?", re.IGNORECASE)
    return next((column for column in has if known.fullmatch(column)), "")


def first_entry(path: Path, form: str) -> dict[str, Any] | None:
    """The first entry of a file, by column; None where that cannot be read, which the run reports."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeError):
        return None
    if form == "csv":
        return dict.fromkeys(next(csv.reader(io.StringIO(text)), ()))
    whole = json_value(text) if form == "custom" else None
    if isinstance(whole, list):
        whole = whole[0] if whole else None
    found = whole if isinstance(whole, dict) else json_value(next(iter(text.splitlines()), ""))
    return found if isinstance(found, dict) else None
