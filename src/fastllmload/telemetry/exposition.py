"""Prometheus text (0.0.4 and OpenMetrics) over bytes: one pattern with all wanted names scans each line once."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
# The possessive parts keep a hostile line linear: a label block either matches at once or not at all.
LABELS = rb'\{(?:[^"{}\n]++|"(?:[^"\\\n]++|\\[^\n])*+")*+\}'
VALUE = rb"[+-]?(?:(?:\d++\.?\d*+|\.\d++)(?:[eE][+-]?\d++)?|Inf|NaN)"
LABEL = re.compile(rb'([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\\n]++|\\[^\n])*+)"')
ESCAPE = re.compile(r'\\([\\"n])')
KINDS = ("counter", "gauge")


@dataclass
class Samples:
    """*values*: name -> (label block as written, value) of each series, NaN where it is not finite; *kinds*: TYPE lines."""

    values: dict[str, list[tuple[bytes, float]]] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, block: bytes, value: float) -> None:
        self.values.setdefault(name, []).append((block, value if math.isfinite(value) else math.nan))


class Exposition:
    """Reads the series called one of *names* out of pages; made once, used for every scrape."""

    def __init__(self, names: Iterable[str]) -> None:
        wanted = sorted({name for name in names if NAME.fullmatch(name)}, key=lambda name: (-len(name), name))
        choice = b"|".join(re.escape(name.encode()) for name in wanted) or rb"(?!)"
        # A line begins the page or follows a line feed. `^` with MULTILINE is tried at every byte; a literal
        # is searched for.
        self._series = re.compile(
            rb"\n(" + choice + rb")(?:[ \t]*+(" + LABELS + rb"))?+[ \t]++(" + VALUE + rb")(?=[ \t\r\n]|\Z)"
        )
        self._type = re.compile(rb"\n#[ \t]++TYPE[ \t]++(" + choice + rb")[ \t]++([a-z]+)")

    def read(self, page: bytes) -> Samples:
        """The samples of wanted names; never fails, because other lines are skipped."""
        found = Samples()
        text = b"\n" + page
        for match in self._series.finditer(text):
            found.add(match[1].decode(), match[2] or b"", float(match[3]))
        for match in self._type.finditer(text):
            found.kinds[match[1].decode()] = match[2].decode()
        return found


def labels(block: bytes) -> dict[str, str]:
    """`{a="x",b="y"}` as a dict; bytes that are not UTF-8 are replaced."""
    return {match[1].decode(): plain(match[2]) for match in LABEL.finditer(block)}


def plain(value: bytes) -> str:
    return ESCAPE.sub(lambda escape: "\n" if escape[1] == "n" else escape[1], value.decode(errors="replace"))


def looks_like_metrics(page: bytes) -> bool:
    """Whether *page* has at least one line that is a sample; a web page or JSON has none."""
    return SAMPLE.search(b"\n" + page) is not None


SAMPLE = re.compile(rb"\n[a-zA-Z_:][a-zA-Z0-9_:]*+(?:[ \t]*+" + LABELS + rb")?+[ \t]++" + VALUE + rb"(?=[ \t\r\n]|\Z)")
