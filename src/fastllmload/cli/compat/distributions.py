"""Distributions of lengths in inference-perf's files, its two modes as classes, as our options have them."""

from __future__ import annotations

import math
from collections.abc import Mapping

from fastllmload.cli.compat.converters import json_value
from fastllmload.cli.compat.fetched import one
from fastllmload.cli.compat.foreign_command import ForeignCommand, Lack
from fastllmload.errors import InputError

FIELDS = {"type": "type", "distribution": "type", "mean": "mean", "std_dev": "std", "std": "std", "variance": "variance",
          "min": "min", "max": "max", "skew": "skew", "total_count": "count"}  # fmt: skip
SIZES = {"360p": "640x360", "480p": "854x480", "720p": "1280x720", "1080p": "1920x1080", "4k": "3840x2160"}
USUAL = {"type": "normal", "mean": "512", "std": "200", "min": "10", "max": "1024"}  # of a distribution


def length(reading: ForeignCommand, flag: str, entry: Mapping[str, str], values: list[str]) -> None:
    """A length, or one field of a distribution, whose name is the last part of *flag*."""
    found = json_value(values[0])
    fields = found if isinstance(found, dict) else {flag.rpartition(".")[2]: values[0]}
    for name, value in fields.items():
        if name in FIELDS:
            reading.variables[f"{entry['as']}_{FIELDS[name]}"] = [str(value)]
        elif isinstance(found, dict):
            reading.lacks.append(Lack(f"{flag} {name}", "changes", "it is not a field of a distribution of lengths"))
        else:
            reading.variables[entry["as"]] = [str(value)]


def image(reading: ForeignCommand, flag: str, entry: Mapping[str, str], values: list[str]) -> None:
    """inference-perf's size of images, by a name or as an object; several have no counterpart."""
    found = json_value(values[0])
    if isinstance(found, list) and len(found) == 1:
        found = found[0]
    if isinstance(found, dict) and "resolution" in found:
        found = found["resolution"]
    size = SIZES.get(str(found).lower(), "")
    if isinstance(found, dict) and found.keys() == {"width", "height"}:
        size = f"{found['width']}x{found['height']}"
    if size:
        reading.variables["image_at"] = [size]
    else:
        sizes = ", ".join(SIZES)
        reading.lacks.append(
            Lack(f"{flag} {values[0]}", "changes", f"images have one size: {sizes}, or width and height")
        )


def arrange(reading: ForeignCommand) -> None:
    """Set `NAME_length` of each distribution in the table's `lengths`, and the classes of two modes."""
    for name, option in reading.table["lengths"].items():
        reading.variables[f"{name}_length"] = [length_text(reading, name, option)]
    if "image_at" in reading.variables:
        images = length_text(reading, "image_count", "--data.multimodal.image.count")
        if images.isdecimal():
            reading.variables["image_size"] = [f"{one(reading, 'image_at')}:{images}"]
        else:
            reading.lacks.append(
                Lack("--data.multimodal.image.count", "changes", "each request has as many images; give type fixed")
            )
    if one(reading, "dataset") == "bimodal":
        share = number("--data.bimodal.mode_a_ratio", one(reading, "a_ratio"))
        for mode, part in (("a", share), ("b", 1 - share)):
            if part > 0:
                reading.written.append(("--class", f"{mode} share={part:.9g}{mode_text(reading, mode)}"))


def mode_text(reading: ForeignCommand, mode: str) -> str:
    """Lengths and prefixes of one mode, as words of a class."""
    question, answer = (one(reading, f"{mode}_{part}_length") for part in ("question", "answer"))
    prefix, groups = one(reading, f"{mode}_system"), one(reading, f"{mode}_groups")
    shared = f" prefix-len={prefix} num-prefixes={groups}" if prefix != "0" else ""
    return f" isl={question} osl={answer}{shared}"


def length_text(reading: ForeignCommand, name: str, option: str) -> str:
    """The length or distribution *name*: lengths are cut to its bounds, except a fixed one."""
    variables = reading.variables
    if not any(f"{name}_{field}" in variables for field in FIELDS.values()) and one(reading, name):
        return one(reading, name)
    if f"{name}_count" in variables:
        why = (
            "each request has a prompt of its own, and a prefix cache finds none; there prompts repeat after that many"
        )
        reading.lacks.append(Lack(f"{option}.total_count", "differs", why))
    given = {field: variables.get(f"{name}_{field}", [usual])[0] for field, usual in USUAL.items()}
    mean, low, high = (number(f"{option}.{field}", given[field]) for field in ("mean", "min", "max"))
    spread = number(f"{option}.std_dev", given["std"])
    if f"{name}_variance" in variables:
        spread = math.sqrt(number(f"{option}.variance", variables[f"{name}_variance"][0]))
    kind = given["type"]
    if kind == "fixed":
        return str(int(mean))
    if kind == "uniform":
        return f"uniform:{low:g},{high:g}"
    if kind == "poisson":
        spread = math.sqrt(mean)
        reading.lacks.append(
            Lack(f"{option}.type poisson", "differs", "lengths are normal, of the same mean and spread")
        )
    if kind not in ("normal", "lognormal", "poisson"):
        reading.lacks.append(
            Lack(f"{option}.type {kind}", "changes", "lengths are fixed, uniform, normal, lognormal or poisson")
        )
    if spread == 0 or low == high:
        return f"{min(high, max(low, mean)):.0f}"
    if kind == "lognormal":
        sigma = math.sqrt(math.log1p((spread / mean) ** 2))
        return f"lognormal:{math.log(mean) - sigma**2 / 2:.9g},{sigma:.9g},{max(1, low):g},{high:g}"
    return f"normal:{mean:g},{spread:.9g},{max(1, low):g},{high:g}"


def number(option: str, text: str, finite: bool = True) -> float:
    """InputError for a text that is not a number of 0 or more."""
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not found >= 0 or (finite and math.isinf(found)):
        raise InputError("number-invalid", f"{option} {text!r} is not a number of 0 or more")
    return found
