"""Images that vLLM's `random-mm` and SGLang's `image` draw: sizes with their shares, and how many a request has."""

from __future__ import annotations

import re

from fastllmload.cli.compat.converters import json_value
from fastllmload.cli.compat.fetched import one
from fastllmload.cli.compat.foreign_command import ForeignCommand, Lack
from fastllmload.errors import InputError

BUCKET = re.compile(
    r"[\"']?\(\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\)[\"']?\s*:\s*([\d.]+)"
)  # (height, width, frames): share
USUAL = "{(256, 256, 1): 0.5, (720, 1280, 1): 0.5}"
SET_NAME = "random-mm"


def arrange(reading: ForeignCommand) -> None:
    """Set the variable `image` where all images have one size; of several sizes each is a class, if a request has one image,
    and so is each of several numbers of images. InputError for shares that cannot be read.
    """
    variables = reading.variables
    if "images_drawn" in variables:
        drawn_numbers(reading)
    if variables.get("dataset") != [SET_NAME]:
        return
    text = variables.get("mm_buckets", [USUAL])[0]
    found = [
        (int(height), int(width), int(frames), float(share)) for height, width, frames, share in BUCKET.findall(text)
    ]
    found = [bucket for bucket in found if bucket[3] > 0]
    if not found:
        raise InputError(
            "value-invalid",
            f"--random-mm-bucket-config {text!r} has no size with a share above 0; write {{(HEIGHT, WIDTH, 1): SHARE}}",
        )
    count = items(reading)
    ratio = variables.get("mm_ratio", ["0"])[0]
    if json_value(ratio) not in (0, 0.0):
        lack(reading, f"--random-mm-num-mm-items-range-ratio {ratio}", "each request has as many images")
    if any(frames != 1 for _, _, frames, _ in found):
        lack(reading, f"--random-mm-bucket-config {text}", "videos are not sent")
    elif len(found) == 1 and count > 0:
        variables["image"] = [f"{found[0][1]}x{found[0][0]}:{count}"]
    elif count == 1 and at_a_rate(reading, f"--dataset-name {SET_NAME}", "sizes"):
        total = sum(share for *_, share in found)
        for height, width, _, share in found:
            text = f"size{width}x{height} share={share / total:.9g} image={width}x{height}:1"
            reading.written.append(("--class", text))
    elif count > 1:
        lack(reading, f"--random-mm-bucket-config {text}", "several images of a request have one size")


def drawn_numbers(reading: ForeignCommand) -> None:
    """SGLang's 1 to --image-count images a request, equally likely: a class of each number."""
    most = one(reading, "images")
    if not most.isdecimal() or int(most) < 1:
        raise InputError("count-invalid", f"--image-count {most!r} is not a number of images")
    if at_a_rate(reading, "--random-image-count", "numbers"):
        size = f"{one(reading, 'image_width')}x{one(reading, 'image_height')}"
        for number in range(1, int(most) + 1):
            reading.written.append(("--class", f"images{number} share={1 / int(most):.9g} image={size}:{number}"))


def at_a_rate(reading: ForeignCommand, option: str, what: str) -> bool:
    """Whether requests have a rate that classes can be parts of; else *option* is noted as without a counterpart."""
    found = "ramp" not in reading.variables and reading.variables.get("rate", ["inf"]) != ["inf"]
    if not found:
        lack(reading, option, f"images of several {what} need a --request-rate; ask for one, or add --request-rate")
    return found


def items(reading: ForeignCommand) -> int:
    """How many images a request has, within the limit of images."""
    text = reading.variables.get("mm_items", ["1"])[0]
    limits = json_value(reading.variables.get("mm_limit", ["{}"])[0])
    if not text.isdecimal():
        raise InputError("count-invalid", f"--random-mm-base-items-per-request {text!r} is not a number of images")
    most = limits.get("image") if isinstance(limits, dict) else None
    return min(int(text), most) if isinstance(most, int) else int(text)


def lack(reading: ForeignCommand, option: str, why: str) -> None:
    reading.lacks.append(Lack(option, "changes", why))
