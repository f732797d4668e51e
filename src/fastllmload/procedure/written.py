"""Files that people read, each whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def write_whole(folder: Path, texts: Mapping[str, str]) -> tuple[str, ...]:
    """Put every text of name → text into *folder*, in place of one of that name; the names."""
    for name, text in texts.items():
        part = folder / f"{name}.part"
        part.write_text(text, encoding="utf-8")
        part.replace(folder / name)
    return tuple(texts)
