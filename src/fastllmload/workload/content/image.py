"""Synthetic PNG images: one pattern of cells, in a palette of 16 colours that differs in each image."""

from __future__ import annotations

import base64
import random
import re
import struct
import zlib
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np

from fastllmload.errors import InputError
from fastllmload.workload.content.image_sets import LARGEST_SIDE

COLOURS, CELLS = 16, 16
SCHEME = "synthetic:"  # of a URL in a data set: synthetic:512x512
_SIZE = re.compile(r"(\d{1,5})x(\d{1,5})")


class Images:
    """Images drawn from *seed*, without end; no two are equal."""

    def __init__(self, seed: str) -> None:
        self._stream = random.Random(seed)

    def png(self, width: int, height: int) -> bytes:
        palette = self._stream.randbytes(3 * COLOURS)
        return _head(width, height) + _chunk(b"PLTE", palette) + _pixels(width, height) + _chunk(b"IEND", b"")

    def url(self, width: int, height: int) -> str:
        return "data:image/png;base64," + base64.b64encode(self.png(width, height)).decode()

    def with_images(self, messages: Iterable[Any]) -> list[Any]:
        """*messages* with an image in place of each URL `synthetic:WIDTHxHEIGHT`."""
        return [self._message(message) for message in messages]

    def _message(self, message: dict[str, Any]) -> dict[str, Any]:
        parts = message.get("content")
        if not isinstance(parts, list):
            return message
        return {**message, "content": [self._part_with_image(part) for part in parts]}

    def _part_with_image(self, part: Any) -> Any:
        size = image_size(part)
        return part if size is None else {**part, "image_url": {**part["image_url"], "url": self.url(*size)}}


def image_size(part: Any) -> tuple[int, int] | None:
    """Width and height of the synthetic image that a part names; None without one. InputError for an invalid size."""
    image = part.get("image_url") if isinstance(part, dict) else None
    url = image.get("url") if isinstance(image, dict) else None
    if not isinstance(url, str) or not url.startswith(SCHEME):
        return None
    found = _SIZE.fullmatch(url.removeprefix(SCHEME))
    width, height = (int(found[1]), int(found[2])) if found is not None else (0, 0)
    if not (1 <= width <= LARGEST_SIDE and 1 <= height <= LARGEST_SIDE):
        raise InputError(
            "image-invalid",
            f"{url[:40]!r} is not a synthetic image; write {SCHEME}WIDTHxHEIGHT with sides up to {LARGEST_SIDE}",
        )
    return width, height


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _head(width: int, height: int) -> bytes:
    """Signature and IHDR: 4 bits a pixel, palette, no interlace."""
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 4, 3, 0, 0, 0))


@lru_cache(8)
def _pixels(width: int, height: int) -> bytes:
    """IDAT: a grid of cells, the same for every image of this size. Repeated rows are filtered to zeros."""
    grid = np.frombuffer(random.Random(f"{width}x{height}").randbytes(CELLS * CELLS), np.uint8).reshape(CELLS, CELLS)
    columns = np.minimum(np.arange(width) * CELLS // width, CELLS - 1)
    lines = np.pad(grid[:, columns] % np.uint8(COLOURS), ((0, 0), (0, width % 2)))
    packed = (lines[:, 0::2] << np.uint8(4)) | lines[:, 1::2]
    pack = zlib.compressobj(9)
    parts, before = [], -1
    for y in range(height):
        cell = min(y * CELLS // height, CELLS - 1)
        row = b"\x00" + packed[cell].tobytes() if cell != before else b"\x02" + bytes(packed.shape[1])
        parts.append(pack.compress(row))
        before = cell
    return _chunk(b"IDAT", b"".join(parts) + pack.flush())
