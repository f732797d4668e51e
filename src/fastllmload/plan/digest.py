"""Digests of a plan: SHA-256 of each member, and of a canonical line of JSON with those and the description.

Members are hashed while they are written, so hashing a plan needs no second pass over its bodies.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt


def canonical(document: Mapping[str, Any]) -> bytes:
    """One line of JSON with sorted keys and no spaces. ValueError for NaN and infinity."""
    return (
        json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False) + "\n"
    ).encode("ascii")


def digest_of(document: Mapping[str, Any]) -> str:
    """SHA-256 of a plan document without its `digest`."""
    return hashlib.sha256(canonical({k: v for k, v in document.items() if k != "digest"})).hexdigest()


def array_hash(array: npt.NDArray[Any]) -> str:
    """SHA-256 of an array's bytes (little-endian, C order), without any file header."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return hashlib.sha256(flat.data).hexdigest()
