"""Searches for the highest load: conditions of evalscope and AIPerf, and the names of AIPerf's data sets."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from fastllmload.cli.compat.converters import found as found_file
from fastllmload.cli.compat.converters import json_value
from fastllmload.cli.compat.foreign_command import ForeignCommand, Lack
from fastllmload.errors import InputError

LEVEL = re.compile(r"(p[\d.]+)_(\w+)")  # a percentile of a metric
AT_MOST = re.compile(r"<=?\s*([\d.]+)")


def service(reading: ForeignCommand, flag: str, entry: Mapping[str, Any], values: list[str]) -> None:
    """evalscope's lists of conditions of a search: each the variables `sla_objective` and `sla_goodput` of a search.

    Limits are of percentiles, in seconds; a throughput that is to be as high as possible is `sustained`.
    """
    found, names = json_value(values[0]), reading.table["objectives"]
    groups = found if isinstance(found, list) else [found]
    if not groups or not all(isinstance(group, dict) and group for group in groups):
        raise InputError("json-invalid", f'{flag} {values[0]!r} is not a list of objects such as {{"p99_ttft": "<=2"}}')
    searches = []
    for group in groups:
        if {(name, text) for name, text in group.items()} <= {("rps", "max"), ("tps", "max")}:
            searches.append(("sustained", "none"))
            continue
        parts = [(LEVEL.fullmatch(name), AT_MOST.fullmatch(str(text).strip())) for name, text in group.items()]
        limits = [(level[1], names.get(level[2]), limit[1]) for level, limit in parts if level and limit]
        if (
            len(limits) < len(group)
            or not all(name for _, name, _ in limits)
            or len({level for level, *_ in limits}) > 1
        ):
            why = "a search has limits of one percentile of latency, ttft or tpot, or a throughput's max, and none of a mean"
            reading.lacks.append(Lack(f"{flag} {json.dumps(group)}", "changes", why))
            continue
        text = ",".join(f"{name}:{float(limit) * 1000:.9g}" for _, name, limit in limits)
        searches.append((limits[0][0], text))
    reading.variables["sla_objective"] = [objective for objective, _ in searches] or ["sustained"]
    reading.variables["sla_goodput"] = [goodput for _, goodput in searches] or ["none"]


SPACE = re.compile(r"([\w.]+):([\d.]+),([\d.]+)(?::(?:int|real|float))?")
CONDITION = re.compile(r"(\w+):(p[\d.]+):(?:le|lt|<=?):([\d.]+)")
SEARCHED = {"concurrency": "concurrency", "request_rate": "rate", "rate": "rate"}


def space(reading: ForeignCommand, flag: str, entry: Mapping[str, Any], values: list[str]) -> None:
    """AIPerf's NAME:MIN,MAX:TYPE: what is searched, and between which levels."""
    found = SPACE.fullmatch(values[0])
    name = SEARCHED.get(found[1].rpartition(".")[2]) if found else None
    if found is None or name is None or "search_what" in reading.variables:
        why = "one of concurrency and request_rate is searched, as NAME:MIN,MAX"
        reading.lacks.append(Lack(f"{flag} {values[0]}", "changes", why))
        return
    reading.variables |= {"search_what": [name], "search_min": [found[2]], "search_max": [found[3]]}


def condition(reading: ForeignCommand, flag: str, entry: Mapping[str, Any], values: list[str]) -> None:
    """AIPerf's METRIC:STATISTIC:le:LIMIT, in ms; all of one percentile."""
    names, variables = {**reading.table["objectives"], "ttft": "ttft_any"}, reading.variables
    if re.fullmatch(r"error_rate:avg:(le|lt):[\d.]+", values[0]):
        reading.lacks.append(Lack(f"{flag} {values[0]}", "harmless", "a failed request misses every limit"))
        return
    found = CONDITION.fullmatch(values[0])
    before = variables.get("search_percentile", [found[2] if found else ""])[0]
    if found is None or found[1] not in names or found[2] != before:
        why = "a search has limits of one percentile of time to first token, inter token latency or request latency"
        reading.lacks.append(Lack(f"{flag} {values[0]}", "changes", why))
        return
    limit = f"{names[found[1]]}:{found[3]}"
    variables["search_percentile"] = [before]
    variables["search_limit"] = [",".join([*variables.get("search_limit", ()), limit])]


def public(reading: ForeignCommand, flag: str, entry: Mapping[str, Any], values: list[str]) -> None:
    """AIPerf's data sets: one of the hub by its name there, else the file that AIPerf keeps."""
    hub = reading.table["public"].get(values[0])
    if hub is None:
        found_file(reading, flag, entry, values)
        return
    named = zip(("hub", "hub_subset", "hub_split", "hub_column"), hub, strict=True)
    reading.variables |= {name: [text] for name, text in named if text}
