"""Maps the names of metrics to ours, as exporters.toml lists them, and recognises exporters by their pages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import msgspec

SERVER, ROUTER, GPU, NODE = "server", "router", "gpu", "node"
DEVICE = f"{GPU}."  # begins names of quantities of which each GPU has a series
OF_NODES = ("node.", "cpu.", "dram.")  # begin names of quantities of a node


class WireName(msgspec.Struct, frozen=True):
    """What an exporter calls a quantity. *scale*: from its unit to ours; *labels*: only label sets that have these; *by*: as
    that of the quantity, of this name alone. *undivided*: only of GPUs that are not divided into partitions.
    """

    name: str
    scale: float = 1.0
    labels: dict[str, str] = msgspec.field(name="with", default={})
    by: str | None = None
    undivided: bool = False


class Quantity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An entry of exporters.toml, whose head describes the fields."""

    unit: str
    names: tuple[WireName | str, ...]
    kind: Literal["gauge", "counter", "histogram"] = "gauge"
    combine: Literal["sum", "mean", "max"] = "sum"
    by: str | None = None


class KnownMetric(msgspec.Struct, frozen=True):
    """One figure. Of *sources* the first that a page has is taken."""

    name: str
    unit: str
    kind: str  # gauge, or counter: since the server's start
    sources: tuple[WireName, ...]
    combine: str = "sum"
    by: str | None = None


class Exporter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An entry of exporters.toml, whose head describes the fields."""

    mark: str
    role: Literal["server", "router", "gpu", "node"] = "server"
    pages: tuple[str, ...] = ()
    version: str = "version"
    batch: str | None = None


class Exporters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    exporter: dict[str, Exporter]
    quantity: dict[str, Quantity]


def metrics_of(name: str, quantity: Quantity) -> tuple[KnownMetric, ...]:
    wires = tuple(WireName(wire) if isinstance(wire, str) else wire for wire in quantity.names)
    if quantity.kind != "histogram":
        return (KnownMetric(name, quantity.unit, quantity.kind, wires, quantity.combine, quantity.by),)
    return tuple(
        KnownMetric(
            f"{name}_{part}",
            unit,
            "counter",
            tuple(msgspec.structs.replace(wire, name=f"{wire.name}_{part}") for wire in wires),
        )
        for part, unit in (("sum", quantity.unit), ("count", "requests"))
    )


class Engine(msgspec.Struct, frozen=True):
    """An exporter that its page gives away. *pages*: where it tells its version; keys of version and batch limit."""

    name: str
    mark: re.Pattern[bytes]  # begins one of its series
    role: str = SERVER
    pages: tuple[str, ...] = ()
    version_key: str = "version"
    batch_key: str | None = None


FOUND = msgspec.toml.decode((Path(__file__).parent / "exporters.toml").read_bytes(), type=Exporters)
KNOWN: tuple[KnownMetric, ...] = tuple(
    metric for name, quantity in FOUND.quantity.items() for metric in metrics_of(name, quantity)
)
SOURCES: frozenset[str] = frozenset(source.name for known in KNOWN for source in known.sources)
ENGINES: tuple[Engine, ...] = tuple(
    Engine(name, re.compile(b"\n" + one.mark.encode()), one.role, one.pages, one.version, one.batch)
    for name, one in FOUND.exporter.items()
)


def engine_of(page: bytes) -> Engine | None:
    """Whose metrics *page* has; None when none of the known."""
    text = b"\n" + page
    return next((engine for engine in ENGINES if engine.mark.search(text)), None)
