"""Energy in the window: of each GPU by its counter, else by mean power x time; of nodes, of the system.

An exporter may renew a counter less often than it is read, so only reads with a new value count. Between two of them power
is taken as constant, before the first and after the last as the mean between these.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from urllib.parse import urlsplit

import numpy as np

from fastllmload.documents.cluster import Energy, Gpu, Node
from fastllmload.documents.fields import known
from fastllmload.metrics.run.cost import power_w
from fastllmload.metrics.run.window import Window
from fastllmload.telemetry.sensors.sensor import COUNTER
from fastllmload.telemetry.series import TelemetryRecord, TelemetrySeries
from fastllmload.telemetry.server_figures import Spans
from fastllmload.telemetry.servers import DEVICE, NODE, OF_NODES

LEAST = 2  # different values in the window
NVML = re.compile(r"gpu(\d+)\.(\w+)")
ADDRESS = re.compile(r"[0-9.]+|.*:.*")  # not a name
LABEL = re.compile(r"""(\w+)=('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""")
HERE = "this host"
CPU_METERS = ("cpu.energy_j", "dram.energy_j")


@dataclass(frozen=True)
class Taken:
    """Power of one counter or gauge over the window; None with *reason*."""

    watts: float | None
    n: int
    source: str
    reason: str | None = None


def by_counter(series: TelemetrySeries, window: Window) -> Taken:
    seen = ~np.isnan(series.value)
    t, value = series.t_ns[seen], series.value[seen]
    steps = np.diff(value, prepend=value[:1])
    new = steps != 0
    if len(t) and new[1:].all():
        new[0] = True  # renewed more often than read; else the first value may be much older than its read
    grown = np.cumsum(np.where(steps >= 0, steps, value))  # a counter that goes back began again from 0
    t, grown = t[new], grown[new]
    inside = int(window.holds(t).sum())
    if inside < LEAST:
        times = "did not change" if inside == 0 else "changed once"
        reason = f"{series.source_name} {times} in the window of {window.seconds:.3g} s; two values are needed"
        return Taken(
            None, inside, series.source_name, f"{reason}: measure longer, or let its exporter renew it more often"
        )
    start, end = max(window.w0_ns, int(t[0])), min(window.w1_ns, int(t[-1]))
    zero = t[0]  # ns since boot do not fit a float exactly
    first, last = np.interp([start - zero, end - zero], t - zero, grown)
    return Taken(float(last - first) / (end - start) * 1e9, inside, series.source_name)


def by_power(series: TelemetrySeries, window: Window) -> Taken:
    n = int((window.holds(series.t_ns) & ~np.isnan(series.value)).sum())
    if n < LEAST:
        reason = (
            f"{series.source_name} was read {n} times in the window of {window.seconds:.3g} s; two reads are needed"
        )
        return Taken(None, n, series.source_name, f"{reason}: measure longer, or shorten --telemetry-interval")
    return Taken(power_w(series.t_ns, series.value, window.w0_ns, window.w1_ns), n, series.source_name)


def taken_by(meters: Sequence[TelemetrySeries], window: Window) -> tuple[Taken, str]:
    """(what a device took, method) by the first of its counters, then powers, that says; else why it has none."""
    found = [
        (by_counter(each, window), "counter") if each.kind == COUNTER else (by_power(each, window), "power")
        for each in meters
    ]
    nothing = Taken(None, 0, "", "no exporter reports its energy or power")
    return next((one for one in found if one[0].watts is not None), found[0] if found else (nothing, ""))


@dataclass
class Device:
    """A GPU with its series by quantity (`power_w`, `energy_j` ...); several where several sources report it."""

    node: str
    gpu: str | None
    uuid: str | None
    series: dict[str, list[TelemetrySeries]] = field(default_factory=dict)

    @property
    def label(self) -> str | None:
        return next((each.pool for each in chain(*self.series.values()) if each.pool is not None), None)

    @property
    def meters(self) -> list[TelemetrySeries]:
        return [*self.series.get("energy_j", ()), *self.series.get("power_w", ())]


def host_of(origin: str) -> str:
    return urlsplit(origin).hostname or HERE


def labels_of(series: TelemetrySeries) -> dict[str, str]:
    return {name: ast.literal_eval(text) for name, text in LABEL.findall(series.labels)}


def node_of(series: TelemetrySeries) -> str:
    return labels_of(series).get("node") or host_of(series.origin)


def node_names(found: TelemetryRecord) -> dict[str, str]:
    """One name of each node for all that exporters have: the full one (`n1.example.org`) in place of `n1`, if just one full
    name begins so; names that differ by case alone are one.
    """
    named = [node_of(one) for one in found.series if one.name.startswith((DEVICE, *OF_NODES))]
    spelled: dict[str, str] = {}
    for name in named:
        spelled.setdefault(name.lower(), name)
    full: dict[str, list[str]] = {}
    for name in spelled:
        if "." in name and not ADDRESS.fullmatch(name):
            full.setdefault(name.partition(".")[0], []).append(name)
    return {
        name: spelled[fulls[0] if len(fulls := full.get(name.lower(), [])) == 1 else name.lower()] for name in named
    }


def identity(series: TelemetrySeries, uuids: dict[str, str | None]) -> tuple[str, Device] | None:
    """(quantity, the device that it is of, still without series); None for a series of something else."""
    own = NVML.fullmatch(series.name)
    if own is not None:
        return own[2], Device(HERE, own[1], uuids.get(own[1]))
    if not series.name.startswith(DEVICE):
        return None
    labels = labels_of(series)
    return series.name.removeprefix(DEVICE), Device(node_of(series), labels.get("gpu"), labels.get("uuid"))


def devices_of(found: TelemetryRecord) -> list[Device]:
    """All GPUs. What several exporters say of one UUID is of one device; without a UUID, of a node's number, also where
    another exporter has the UUID of that.
    """
    facts = (fact for source in found.sources for fact in source.facts)
    uuids = {str(fact.get("index")): fact.get("uuid") for fact in facts}
    devices: dict[object, Device] = {}
    nodes = node_names(found)
    for series in found.series:
        whose = identity(series, uuids)
        if whose is None:
            continue
        quantity, one = whose
        one.node = nodes.get(one.node, one.node)
        device = devices.setdefault((one.node, one.gpu) if one.uuid is None else one.uuid.lower(), one)
        device.gpu = one.gpu if device.gpu is None else device.gpu
        device.node = one.node if "node" in labels_of(series) else device.node  # its own name, not that of its URL
        device.series.setdefault(quantity, []).append(series)
    return joined(list(devices.values()))


def joined(devices: Sequence[Device]) -> list[Device]:
    """Without those that have no UUID and are, by node and number, the one device that has: its series are that device's."""
    found = []
    for device in devices:
        same = [one for one in devices if one.uuid is not None and (one.node, one.gpu) == (device.node, device.gpu)]
        if device.uuid is not None or device.gpu is None or len(same) != 1:
            found.append(device)
            continue
        for quantity, series in device.series.items():
            same[0].series.setdefault(quantity, []).extend(series)
    return found


def described(device: Device, spans: Spans, window: Window) -> Gpu:
    taken, method = taken_by(device.meters, window)
    check = by_power(each, window).watts if (each := next(iter(device.series.get("power_w", ())), None)) else None
    busy = device.series.get("utilisation") or device.series.get("engine_active") or []
    return Gpu(
        node=device.node,
        gpu=device.gpu,
        uuid=device.uuid,
        label=device.label,
        sources=tuple(dict.fromkeys(each.origin for each in chain(*device.series.values()))),
        utilisation=first(spans, busy, "mean"),
        memory_used_bytes=first(spans, device.series.get("memory_used_bytes", ()), "max"),
        temperature_c=first(spans, device.series.get("temperature_c", ()), "max"),
        power_w=taken.watts,
        energy_j=joules(taken.watts, window),
        method=None if taken.watts is None else method,
        energy_by_power_j=joules(check, window) if method == "counter" else None,
        n=taken.n,
        reason=taken.reason,
    )


def first(spans: Spans, series: Sequence[TelemetrySeries], what: str) -> float | None:
    """Mean, min or max in the window of the first series that has values."""
    values = next((each for each in map(spans.gauge, series) if len(each)), None)
    return None if values is None else float(getattr(values, what)())


def joules(watts: float | None, window: Window) -> float | None:
    return None if watts is None else watts * window.seconds


def added_up(values: Sequence[float | None]) -> float | None:
    """The sum; None of nothing, or if one is not known."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def nodes_of(found: TelemetryRecord, gpus: Sequence[Gpu], spans: Spans, window: Window) -> tuple[Node, ...]:
    """Nodes by the host names that exporters of GPUs and of nodes give, else by those of their URLs."""
    nodes = node_names(found)
    pages: dict[str, dict[str, TelemetrySeries]] = {}
    for series in found.series:
        if series.source_kind == NODE and series.name.startswith(OF_NODES):  # not what --scrape-metric asked for
            pages.setdefault(nodes[node_of(series)], {})[series.name] = series
    names = dict.fromkeys([str(gpu.node) for gpu in gpus if gpu.node != HERE] + list(pages))
    return tuple(
        one_node(name, [gpu for gpu in gpus if gpu.node == name], pages.get(name, {}), spans, window) for name in names
    )


def one_node(name: str, gpus: Sequence[Gpu], series: dict[str, TelemetrySeries], spans: Spans, window: Window) -> Node:
    counted = [spans.counter(series[each]) if each in series else None for each in ("node.cpu_s", "node.cpu_idle_s")]
    cpu_s, idle_s = (None if each is None else each[2] for each in counted)
    meters = [by_counter(series[each], window).watts for each in CPU_METERS if each in series]
    memory = series.get("node.memory_available_bytes")
    return Node(
        node=name,
        gpus=len(gpus),
        gpu_energy_j=added_up([known(gpu.energy_j) for gpu in gpus]),
        cpu_energy_j=joules(added_up(meters), window),
        cpu_busy=1 - idle_s / cpu_s if cpu_s and idle_s is not None else None,
        memory_available_bytes=None if memory is None else first(spans, [memory], "min"),
    )


def until(series: TelemetrySeries, end_ns: int) -> TelemetrySeries:
    """Its reads until *end_ns*: between the last of these and the next one power is not that of before."""
    kept = series.t_ns <= end_ns
    return replace(series, t_before=series.t_before[kept], t_after=series.t_after[kept], value=series.value[kept])


def energy_of(
    found: TelemetryRecord,
    devices: Sequence[Device],
    sensor: TelemetrySeries | None,
    window: Window,
    idle_until_ns: int | None = None,
) -> Energy | None:
    """Of all GPUs, else of the CPUs of all nodes, else by *sensor*; None without any."""
    nodes = node_names(found)
    counters: dict[tuple[str, str], list[TelemetrySeries]] = {}  # several where two pages are of one node
    for series in (series for name in CPU_METERS for series in found.named(name)):
        counters.setdefault((series.name, nodes[node_of(series)]), []).append(series)
    of, meters = (
        ("gpus", [device.meters for device in devices])
        if devices
        else ("cpus", list(counters.values()))
        if counters
        else ("sensor", [] if sensor is None else [[sensor]])
    )
    if not any(meters):
        return None
    taken = [taken_by(each, window) for each in meters]
    watts = added_up([one.watts for one, _ in taken])
    methods = {method for _, method in taken}
    checks = [
        next((by_power(each, window).watts for each in series if each.kind != COUNTER), None) for series in meters
    ]
    idle_w = None
    if idle_until_ns is not None:
        idle = [[until(series, idle_until_ns) for series in each] for each in meters]
        before = Window(min(int(series.t_ns[0]) for series in chain(*meters)), idle_until_ns, closed=True)
        idle_w = added_up([taken_by(each, before)[0].watts for each in idle])
    return Energy(
        energy_j=joules(watts, window),
        power_w=watts,
        of=of,
        devices=len({node for _, node in counters}) if of == "cpus" else len(meters),
        method=None if watts is None else methods.pop() if len(methods) == 1 else "mixed",
        source=", ".join(sorted({one.source for one, _ in taken if one.source != ""})) or None,
        energy_by_power_j=None if methods == {"power"} else joules(added_up(checks), window),
        n=min(one.n for one, _ in taken),
        idle_w=idle_w,
        above_idle_j=None if watts is None or idle_w is None else (watts - idle_w) * window.seconds,
        reason=None if watts is not None else next(one.reason for one, _ in taken if one.watts is None),
    )
