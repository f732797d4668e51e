"""A server's metrics page as a sensor: known names combined over their label sets, names asked for as they are.

A label set without a finite value leaves what it is combined with unknown: a sum over the others would be of less.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from fastllmload.telemetry.exposition import KINDS, Exposition, Samples, labels
from fastllmload.telemetry.http_page import HttpPage
from fastllmload.telemetry.sensors.sensor import COUNTER, GAUGE, Key, Reading, SensorError
from fastllmload.telemetry.servers import DEVICE, KNOWN, OF_NODES, SOURCES, KnownMetric, WireName

MOST_LABEL_SETS = 64  # of one name that was asked for; a page with more gives its first ones, in its order
OWN_UNIT = ""  # of a name that was asked for: whatever the server means
# Labels of a GPU, by whichever name an exporter has for them
DEVICE_LABELS = {
    "gpu": ("gpu", "gpu_id", "GPU_ID"),
    "node": ("Hostname", "hostname", "HOSTNAME"),
    "uuid": ("UUID", "gpu_uuid", "GPU_UUID", "uuid", "serial_number"),
}
NO_NAME = ("", "n/a", "none", "unknown")  # values of such labels that name nothing
NO_NODE = (
    "localhost",
    "localhost.localdomain",
    "127.0.0.1",
    "::1",
)  # of a host engine that the exporter asks by loopback
PARTITION = ("GPU_I_ID", "gpu_partition_id")
UNDIVIDED = ("", "spx", "none")  # gpu_compute_partition_type
# Processes of one engine: SGLang lets each of them count all of its requests (--enable-metrics-for-all-schedulers)
RANKS = ("pp_rank", "tp_rank", "cp_rank", "attn_cp_rank", "moe_ep_rank")
# Series that say something in their labels
ADAPTERS = "vllm:lora_requests_info"  # its value is when
UNAME = "node_uname_info"
Label = Mapping[str, str]
Series = list[tuple[Label, float]]
Parts = dict[str, float]  # values that make one series, by what tells them apart


class Scrape:
    """Sensor over one page. *extra*: names that --scrape-metric asked for; each label set is a series of its own."""

    def __init__(self, page: HttpPage, extra: Sequence[str] = (), redact: Callable[[str], str] = str) -> None:
        self.origin = page.spec.origin
        self._redact = redact
        self.page = page
        self.extra = tuple(extra)
        self._exposition = Exposition([*SOURCES, ADAPTERS, UNAME, *extra])
        self._chosen: dict[str, WireName] = {}  # our name -> the server's, from the first page that has one
        self._sums: dict[tuple[str, str], CounterSum] = {}

    def read(self) -> list[Reading]:
        answer = self.page.get()
        if answer.status != 200:
            moved = ", a redirect, which is not followed" if 300 <= answer.status < 400 else ""
            raise SensorError(f"HTTP status {answer.status}{moved}")
        if answer.headers.get("content-encoding", "identity") != "identity":
            raise SensorError("the page is compressed although identity was asked for")
        readings = self.readings(self._exposition.read(answer.body))
        if not readings:
            raise SensorError("the page has none of the wanted metrics")
        # Not the time of the read, which has the connecting in front and the search for names at its end
        page = self.page
        return [each._replace(t_ns=page.asked_ns, until_ns=page.answered_ns) for each in readings]

    def readings(self, found: Samples) -> list[Reading]:
        """What one page, or one scrape of it by another, says."""
        return [*self._known(found), *self._asked(found)]

    def close(self) -> None:
        self.page.close()

    def _known(self, found: Samples) -> list[Reading]:
        readings = list(adapters(found))
        host = next((labels(block).get("nodename", "") for block, _ in found.values.get(UNAME, ())), "")
        host = "" if host in NO_NODE else host
        for known in KNOWN:
            source = self._source(known, found)
            if source is None:
                continue
            for owner, group in owners(known, source, matching(found, source)).items():
                value, restarted = self._value(known, owner, group)
                if host != "" and known.name.startswith(OF_NODES):
                    owner = spelled({"node": host})
                key = Key(known.name, source.name, known.unit, known.kind, self._redact(owner))
                value = value if source.scale == 1.0 else value * source.scale
                readings.append(Reading(key, value, restarted=restarted))
        return readings

    def _value(self, known: KnownMetric, owner: str, parts: Parts) -> tuple[float, bool]:
        if known.kind == COUNTER and known.combine == "sum":
            return self._sums.setdefault((known.name, owner), CounterSum()).over(parts)
        values = list(parts.values())
        if (
            known.name.startswith(DEVICE) and known.combine == "max"
        ):  # of a board: what one partition lacks, others have
            values = [value for value in values if not math.isnan(value)] or values
        return combined(known.combine, values), False

    def _source(self, known: KnownMetric, found: Samples) -> WireName | None:
        """The server's name for it, from the first page that has one, so that a series never changes its meaning."""
        if known.name not in self._chosen:
            there = next((source for source in known.sources if matching(found, source)), None)
            if there is None:
                return None
            self._chosen[known.name] = there
        return self._chosen[known.name]

    def _asked(self, found: Samples) -> list[Reading]:
        readings = []
        for name in self.extra:
            kind = found.kinds.get(name, "")
            if kind not in KINDS:
                kind = COUNTER if name.endswith(("_total", "_sum", "_count", "_bucket")) else GAUGE
            for block, value in found.values.get(name, [])[:MOST_LABEL_SETS]:
                readings.append(Reading(Key(name, name, OWN_UNIT, kind, self._redact(shown(block))), value))
        return readings


def matching(found: Samples, source: WireName) -> Series:
    """Label sets and values of a name, without those that have other labels than wanted."""
    series = [(labels(block), value) for block, value in found.values.get(source.name, [])]
    return of_first_ranks([one for one in series if source.labels.items() <= one[0].items()])


def of_first_ranks(series: Series) -> Series:
    """Of label sets that differ by rank alone those of the lowest one, without its rank: each counts the same requests."""
    if not any(name in each for each, _ in series for name in RANKS):
        return series
    ranked = [
        ({name: text for name, text in each.items() if name not in RANKS}, tuple(map(rank_of, each_rank(each))), value)
        for each, value in series
    ]
    lowest: dict[str, tuple[int, ...]] = {}
    for each, rank, _ in ranked:
        lowest[spelled(each)] = min(lowest.get(spelled(each), rank), rank)
    return [(each, value) for each, rank, value in ranked if rank == lowest[spelled(each)]]


def each_rank(found: Label) -> Iterator[str]:
    return (found.get(name, "") for name in RANKS)


def rank_of(text: str) -> int:
    return int(text) if text.isdecimal() else 0


class CounterSum:
    """The sum of a counter's label sets, each of which may begin again alone: what it had counted stays in the sum then, and
    so does that of one that is left out. A step back of the sum would count again what the others had.
    """

    def __init__(self) -> None:
        self._last: Parts = {}
        self._before = 0.0  # what label sets had counted that began again

    def over(self, parts: Parts) -> tuple[float, bool]:
        """(the sum, whether a label set began again). Of one alone the sum itself goes back."""
        given = {name: value for name, value in parts.items() if not math.isnan(value)}
        began = [name for name, value in given.items() if value < self._last.get(name, value)]
        restarted = bool(began) and len(self._last | given) > 1
        if restarted:
            self._before += sum(self._last[name] for name in began)
        self._last.update(given)
        value = math.nan if len(given) < len(parts) else self._before + sum(self._last.values())
        return value, restarted


def owners(known: KnownMetric, source: WireName, series: Series) -> dict[str, Parts]:
    """The values that make one series, by its labels: of a GPU, of one value of the label *by*, else of the page."""
    if known.name.startswith(DEVICE):
        return devices(series, source.undivided)
    found: dict[str, Parts] = {}
    by = known.by or source.by
    for each, value in series:
        owner = "" if by is None else spelled({by: each.get(by, "")})
        parts, name = found.setdefault(owner, {}), spelled(each)
        parts[name] = parts.get(name, 0.0) + value
    return found


def devices(series: Series, undivided: bool = False) -> dict[str, Parts]:
    """By GPU its own value, else one for each of its partitions. One that is there for several pods counts once. AMD's
    partitions have numbers of their own and power and energy of their board, whose name here is that of its first one.
    *undivided*: without boards that are divided.
    """
    rows = [(names_of(each), each, value) for each, value in series]
    primary: dict[str, tuple[int, Label]] = {}
    divided = set()
    for named, each, _ in rows:
        board, number = board_of(named, each)
        if board not in primary or number < primary[board][0]:
            primary[board] = number, named
        if number > 0 or each.get("gpu_compute_partition_type", "").lower() not in UNDIVIDED:
            divided.add(board)
    found: dict[str, Parts] = {}
    for named, each, value in rows:
        board, _ = board_of(named, each)
        if undivided and board in divided:
            continue
        parts = found.setdefault(spelled(primary[board][1]), {})
        part = label(each, PARTITION)
        known = parts.get(part, math.nan)
        parts[part] = value if math.isnan(known) else known if math.isnan(value) else max(value, known)
    return {owner: {"": parts[""]} if "" in parts else parts for owner, parts in found.items()}


def names_of(found: Label) -> dict[str, str]:
    """Number, node and UUID of a GPU, as far as they name one."""
    named = {ours: label(found, theirs) for ours, theirs in DEVICE_LABELS.items()}
    named = {ours: text for ours, text in named.items() if text.lower() not in NO_NAME}
    return {ours: text for ours, text in named.items() if ours != "node" or text.lower() not in NO_NODE}


def board_of(named: Label, found: Label) -> tuple[str, int]:
    """What partitions of one board have in common, and the number of this one: the serial number, else the number of the
    GPU less that of the partition, as partitions are numbered in a row.
    """
    text, gpu, serial = found.get("gpu_partition_id", ""), named.get("gpu", ""), found.get("serial_number", "")
    if not text.isdecimal():
        return spelled(named), 0
    number, node = int(text), named.get("node", "")
    if serial.lower() not in NO_NAME:
        return spelled({"node": node, "serial": serial}), number
    first = str(int(gpu) - number) if gpu.isdecimal() else gpu
    return spelled({"node": node, "gpu": first}), number


def label(found: Label, names: Sequence[str]) -> str:
    return next((found[name] for name in names if found.get(name)), "")


def combined(how: str, values: Sequence[float]) -> float:
    if any(map(math.isnan, values)):
        return math.nan
    if how == "max":
        return max(values)
    return sum(values) / len(values) if how == "mean" else sum(values)


def adapters(found: Samples) -> Iterator[Reading]:
    """vLLM's adapters in the batch, and how many fit into it. Of stale label sets the newest counts."""
    series = [(value, labels(block)) for block, value in found.values.get(ADAPTERS, []) if not math.isnan(value)]
    if not series:
        return
    newest = max(series, key=lambda one: one[0])[1]
    running, most = newest.get("running_lora_adapters", ""), newest.get("max_lora", "")
    if most.isdecimal() and int(most) > 0:
        used = len({name for name in running.split(",") if name.strip() != ""})
        yield Reading(Key("adapters_used", ADAPTERS, "adapters"), float(used))
        yield Reading(Key("adapters_total", ADAPTERS, "adapters"), float(most))


def shown(block: bytes) -> str:
    """The label block in one order and spelling, so that a server that changes them does not make new series."""
    return spelled(labels(block))


def spelled(found: Label) -> str:
    return ",".join(f"{name}={value!r}" for name, value in sorted(found.items()))
