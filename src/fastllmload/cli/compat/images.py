"""Images that vLLM's `random-mm` and SGLang's `image` draw: sizes with their shares, and how many a request has."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from fastllmload.cli.compat.converters import json_value
from fastllmload.cli.compat.fetched import one
from fastllmload.cli.compat.foreign_command import ForeignCommand, Lack
from fastllmload.errors import InputError

BUCKET = re.compile(
    r"[\"']?\(\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\)[\"']?\s*:\s*([\d.]+)"
)  # (height, width, frames): share
USUAL = "{(256, 256, 1): 0.5, (720, 1280, 1): 0.5}"
SET_NAME = "random-mm"
MOST_SETS = 1000  # of sizes and their numbers


def arrange(reading: ForeignCommand) -> None:
    """Set the variable `image` to what requests have. InputError for shares and numbers that cannot be read."""
    variables = reading.variables
    if "images_drawn" in variables:
        most = counted("--image-count", one(reading, "images"))
        size = f"{one(reading, 'image_width')}x{one(reading, 'image_height')}"
        equally = [f"{size}:{number}" for number in range(1, most + 1)]
        variables["image"] = [joined(dict.fromkeys(equally, 1 / most))]
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
    if any(frames != 1 for _, _, frames, _ in found):
        lack(reading, f"--random-mm-bucket-config {text}", "videos are not sent")
        return
    total = sum(share for *_, share in found)
    sizes = [(f"{width}x{height}", share / total) for height, width, _, share in found]
    numbers = range_of(reading)
    if sum(math.comb(number + len(sizes) - 1, number) for number in numbers) > MOST_SETS:
        lack(reading, f"--random-mm-bucket-config {text}", f"more than {MOST_SETS} sets of images are too many")
        return
    sets = defaultdict[str, float](float)
    for number in numbers:
        for chosen, share in combinations(sizes, number):
            sets[chosen] += share / len(numbers)
    if sets.keys() != {"none"}:
        variables["image"] = [joined(sets)]


def joined(sets: dict[str, float]) -> str:
    """What --image says of *sets* with the share of each."""
    return ",".join(f"{text}@{share:.9g}" for text, share in sets.items()) if len(sets) > 1 else next(iter(sets))


def combinations(sizes: Sequence[tuple[str, float]], number: int) -> Iterator[tuple[str, float]]:
    """Each set of *number* images, each of which has its size by the shares of *sizes*, and the set's probability."""

    def split(left: int, places: int) -> Iterator[tuple[int, ...]]:
        if places == 1:
            yield (left,)
            return
        for first in range(left + 1):
            yield from ((first, *rest) for rest in split(left - first, places - 1))

    for counts in split(number, len(sizes)):
        ways, chosen = math.factorial(number), 1.0
        for count, (_, share) in zip(counts, sizes, strict=True):
            ways //= math.factorial(count)
            chosen *= share**count
        parts = [f"{size}:{count}" for count, (size, _) in zip(counts, sizes, strict=True) if count]
        yield "+".join(parts) or "none", ways * chosen


def range_of(reading: ForeignCommand) -> range:
    """Numbers of images of a request, equally likely: around the base by the ratio, within the limit of images."""
    base = items(reading)
    ratio = json_value(one(reading, "mm_ratio") or "0")
    if not isinstance(ratio, (int, float)) or not 0 <= ratio <= 1:
        raise InputError(
            "number-invalid", f"--random-mm-num-mm-items-range-ratio {ratio!r} must be a number from 0 to 1"
        )
    limits = json_value(one(reading, "mm_limit") or "{}")
    most = limits.get("image") if isinstance(limits, dict) else None
    low, high = math.floor(base * (1 - ratio)), math.ceil(base * (1 + ratio))
    return range(low, high + 1) if not isinstance(most, int) else range(min(low, most), min(high, most) + 1)


def items(reading: ForeignCommand) -> int:
    text = one(reading, "mm_items") or "1"
    return 0 if text == "0" else counted("--random-mm-base-items-per-request", text)


def counted(option: str, text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise InputError("count-invalid", f"{option} {text!r} is not a number of images")
    return int(text)


def lack(reading: ForeignCommand, option: str, why: str) -> None:
    reading.lacks.append(Lack(option, "changes", why))
