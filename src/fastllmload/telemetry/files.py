"""telemetry.npy and telemetry.json of a run folder: the layout, for writer and reader.

telemetry.npy has one row per value, in the order of arrival; a NaN says that the read gave nothing for the series.
"""

from __future__ import annotations

import struct
from typing import Any

import msgspec

ROWS, INDEX = "telemetry.npy", "telemetry.json"
VERSION = 1
# t_before, t_after: CLOCK_MONOTONIC ns around the read, or both the instant of the value; series: position in
# the index
DESCR = [("t_before", "<i8"), ("t_after", "<i8"), ("value", "<f8"), ("series", "<i4"), ("source", "<i4")]
ROW = struct.Struct("<qqdii")
HEADER_BYTES = 256


class SeriesEntry(msgspec.Struct, frozen=True):
    """One series. *name* is ours, *source_name* what the source calls it; *kind*: gauge, or counter since its start.
    *restarts_ns*: middles of the reads at which a part of the sum had begun again; the value itself does not go back then.
    """

    name: str
    source_name: str
    source: int  # position in `sources`
    unit: str
    kind: str
    labels: str = ""
    restarts_ns: list[int] = []


class SourceEntry(msgspec.Struct):
    """One source and how often it was asked. *problems*: sentence -> how often, the first few different ones."""

    origin: str
    kind: str  # server, router, gpu, node: role of a metrics page; power, host
    n: int = 0
    n_failed: int = 0
    n_skipped: int = 0  # ticks that passed during a read
    slowest_s: float = 0.0
    problems: dict[str, int] = {}
    facts: list[dict[str, Any]] = []
    exporter: str | None = None  # of exporters.toml
    label: str | None = None  # that the user gave to the page


class Index(msgspec.Struct):
    """telemetry.json. *absent*: sensors that this machine does not have, and why."""

    version: int = VERSION
    interval_s: float = 1.0
    ended: bool = False
    disk_full: bool = False
    series_refused: int = 0  # more than MOST_SERIES
    sources: list[SourceEntry] = []
    series: list[SeriesEntry] = []
    absent: dict[str, str] = {}


def header(rows: int) -> bytes:
    """The head of a .npy file (format 1.0) with *rows* rows, always HEADER_BYTES long."""
    text = f"{{'descr': {DESCR!r}, 'fortran_order': False, 'shape': ({rows},), }}"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", HEADER_BYTES - 10) + text.ljust(HEADER_BYTES - 11).encode() + b"\n"
