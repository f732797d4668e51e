"""Which synthetic images prompts have: sets of sizes and numbers, and the share of the prompts that has each."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

LARGEST_SIDE = 16_384
_SET = re.compile(r"(\d{1,5})x(\d{1,5})(?::(\d{1,3}))?")


@dataclass(frozen=True)
class ImageSets:
    """What prompts have: sets of (width, height, count), and the share of the prompts that has each."""

    sets: tuple[tuple[tuple[int, int, int], ...], ...]
    shares: tuple[float, ...]

    def __str__(self) -> str:
        texts = ["+".join(f"{width}x{height}:{count}" for width, height, count in each) or "none" for each in self.sets]
        if len(texts) == 1:
            return texts[0]
        return ",".join(f"{text}@{share:.9g}" for text, share in zip(texts, self.shares, strict=True))

    def drawn(self, seed: str) -> Iterator[list[tuple[int, int]]]:
        """Sizes of the images of each prompt, without end."""
        stream = random.Random(seed)
        every = [[size[:2] for size in each for _ in range(size[2])] for each in self.sets]
        while True:
            yield every[0] if len(every) == 1 else stream.choices(every, self.shares)[0]


def read_images(text: str) -> ImageSets:
    """`512x512:2`, or `SET@SHARE,...` with `256x256:2+1280x720` as a set of several sizes and `none` as one without images.
    ValueError for others.
    """
    sets, shares = list[tuple[tuple[int, int, int], ...]](), list[float]()
    parts = text.replace(" ", "").split(",")
    for part in parts:
        named, at, share = part.partition("@")
        if bool(at) != (len(parts) > 1):
            raise ValueError("several sets need a share each")
        sets.append(() if named == "none" else tuple(_sizes(named)))
        shares.append(float(share) if at else 1.0)
    total = sum(shares)
    if not all(share > 0 for share in shares) or not math.isfinite(total) or not any(sets):
        raise ValueError("shares must be above 0, and some prompts need an image")
    return ImageSets(tuple(sets), tuple(share / total for share in shares))


def _sizes(text: str) -> Iterator[tuple[int, int, int]]:
    for size in text.split("+"):
        found = _SET.fullmatch(size)
        width, height, count = (int(one or 1) for one in found.groups()) if found is not None else (0, 0, 0)
        if not (1 <= width <= LARGEST_SIDE and 1 <= height <= LARGEST_SIDE and count >= 1):
            raise ValueError(f"{size!r} is not a size")
        yield width, height, count
