"""Several models or adapters in other tools' command lines, as `--models` has them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from fastllmload.cli.compat.fetched import one
from fastllmload.cli.compat.foreign_command import ForeignCommand
from fastllmload.cli.options.parsers import models as parsed_models
from fastllmload.errors import InputError

ALPHA = "1.5"  # SGLang's default of --lora-zipf-alpha
GENERATE = re.compile(r"/v2/models/([^/]+)(?:/versions/[^/]+)?/generate(?:_stream)?/?")  # of Triton


def named(reading: ForeignCommand, flag: str, entry: Mapping[str, Any], values: list[str]) -> None:
    """Names, after commas or as words of their own; the variable `model` for one where *entry* allows it, else `models`."""
    variables = reading.variables
    before = variables.pop("models", variables.pop("model", [""]) if entry["as"] == "model" else [""])[0]
    names = [name for text in (before, *values) for name in text.split(",") if name]
    variables[entry["as"] if len(names) == 1 else "models"] = [",".join(names)]


def adapters(reading: ForeignCommand, flag: str, entry: Mapping[str, Any], values: list[str]) -> None:
    """SGLang's adapters: the variable `lora` for one, which its own API has in a field of the body, else `models`."""
    named(reading, flag, entry, values)
    if "," not in reading.variables["models"][0]:
        reading.variables["one_adapter"] = list(reading.variables["models"])


def split(reading: ForeignCommand, flag: str, entry: Mapping[str, Any], values: list[str]) -> None:
    """inference-perf's list of adapters with their share of the requests."""
    try:
        found = [f"{one['name']}={float(one['split']):g}" for one in json.loads(values[0])]
        parsed_models(",".join(found))
    except (KeyError, TypeError, ValueError):
        raise InputError(
            "models-invalid",
            f"{flag} {values[0]!r} is not a list of adapters; write [{{name: NAME, split: SHARE}}, ...]",
        ) from None
    reading.variables["models"] = [",".join(found)]


def provider(reading: ForeignCommand, flag: str, entry: Mapping[str, Any], values: list[str]) -> None:
    """LiteLLM's PROVIDER/NAME: the variables `model`, `provider`, and where known `bare_model`, `provider_url`."""
    name, slash, bare = values[0].partition("/")
    reading.variables |= {"model": [values[0]], "provider": [name if slash else "a model without a provider's name"]}
    if slash and name in reading.table["providers"]:
        reading.variables |= {"bare_model": [bare], "provider_url": [reading.table["providers"][name]]}


def in_path(reading: ForeignCommand) -> None:
    """The variable `path_model`, the model that a path of Triton's generate names."""
    for name in ("endpoint", "base_url"):
        path = reading.variables.get(name, [""])[0]
        if found := GENERATE.search(path):
            reading.variables |= {"path_model": [found[1]], name: [path[: found.start()]]}


def weigh(reading: ForeignCommand) -> None:
    """Write adapters as the server takes them, and SGLang's skewed ones with weights: each 1/alpha of the one before."""
    variables = reading.variables
    if "one_adapter" in variables and one(reading, "backend") == "sglang-generate":
        variables["lora"] = variables.pop("models")
    if "models" not in variables:
        return
    names = variables["models"][0].split(",")
    if variables.get("backend", [""])[0] in reading.table.get("base_and_adapter", ()):
        names = [f"{variables.get('model', [''])[0]}:{name}" for name in names]
    if variables.get("model_order") == ["skewed"]:
        try:
            alpha = float(variables.get("lora_alpha", [ALPHA])[0])
        except ValueError:
            alpha = 0.0
        if not alpha > 0:
            raise InputError(
                "number-invalid", f"--lora-zipf-alpha {variables['lora_alpha'][0]!r} is not a number above 0"
            )
        names = [f"{name}={alpha**-place:.9g}" for place, name in enumerate(names)]
    variables["models"] = [",".join(names)]
