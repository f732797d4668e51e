"""What telemetry says of the system as a whole: energy, replicas, pools, GPUs, nodes, speculative decoding, adapters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fastllmload.documents.cluster import Balance, Cluster, Energy, Gpu, Pool, ReplicaFigures, Speculation
from fastllmload.documents.fields import known
from fastllmload.documents.run import RunDocument
from fastllmload.report.blocks import BELOW, Block, Cell, Fact, Paragraph, Table, ranked
from fastllmload.report.text.numbers import NOT_KNOWN, count, percent, quantity

MOST = 50  # rows of a table
MOST_POOLS = 6  # lines of the summary
PER = {
    "energy_per_output_token_j": ("Per output token (J)", "J/output token"),
    "energy_per_request_j": ("Per request (J)", "J/request"),
    "energy_per_session_j": ("Per session (J)", "J/session"),
    "good_requests_per_j": ("Good requests per joule (goodput per watt)", "good requests/J"),
}
OF = {"gpus": "GPUs", "cpus": "nodes (CPU packages and memory)", "sensor": "power sensor"}
METHODS = {
    "counter": "by counters of energy",
    "power": "mean power x time, without a counter",
    "mixed": "by counters, of some mean power x time",
}
SHARES = {"requests": "requests", "generation_tokens": "generated tokens", "running": "running requests"}


def blocks(document: RunDocument) -> Iterator[Block]:
    """None for a run whose telemetry says nothing of a system as a whole."""
    found = document.cluster or Cluster()
    if found.energy is not None:
        yield energy_table(document, found.energy)
    if found.pools:
        yield pool_table(found.pools)
    if found.replicas:
        yield replica_table(found.replicas, found.balance)
    if found.gpus:
        yield gpu_table(found.gpus)
    if found.nodes:
        yield node_table(found)
    if found.speculation is not None:
        yield speculation_table(found.speculation)
    text = adapters_text(found)
    if text is not None:
        yield Paragraph(f"Adapters: {text}.")


def energy_table(document: RunDocument, found: Energy) -> Table:
    rows: list[list[Cell]] = [
        ["In the window (J)", quantity(found.energy_j)],
        ["Mean power (W)", quantity(found.power_w)],
    ]
    metrics = document.metrics or {}
    rows += [[label, quantity(document.metric(name).value)] for name, (label, _) in PER.items() if name in metrics]
    optional = (
        ("Power x time, as a check (J)", found.energy_by_power_j),
        ("Power of the idle system (W)", found.idle_w),
        ("Above idle (J)", found.above_idle_j),
    )
    rows += [[label, quantity(value)] for label, value in optional if value is not None]
    reason = [f"{found.reason}."] if found.reason is not None else []
    return Table("Energy", ["Energy", "Value"], rows, [f"{basis(found)}.", *reason])


def basis(found: Energy) -> str:
    """`8 GPUs, by counters of energy (DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION), 30 samples`."""
    what = "power sensor" if found.of == "sensor" else f"{count(found.devices)} {OF.get(found.of or '', 'devices')}"
    how = f", {METHODS[found.method]}" if found.method in METHODS else ""
    source = f" ({found.source})" if found.source else ""
    return f"{what}{how}{source}, {count(found.n)} samples"


def pool_table(found: Sequence[Pool]) -> Table:
    rows: list[list[Cell]] = [
        [
            one.label, count(one.replicas), quantity(one.running), quantity(one.waiting), percent(one.kv_usage),
            quantity(one.prompt_tok_s), quantity(one.generation_tok_s), count(one.gpus), percent(one.utilisation),
            quantity(one.power_w), quantity(one.energy_j),
        ]
        for one in found[:MOST]
    ]  # fmt: skip
    columns = ["pool", "servers", "running", "waiting", "KV cache", "prompt tok/s", "generated tok/s", "GPUs", "GPU busy",
               "power (W)", "energy (J)"]  # fmt: skip
    return Table(
        "Pools", columns, rows, ["A pool is the pages of one label. Servers by their own counters and gauges."]
    )


def replica_table(found: Sequence[ReplicaFigures], balance: dict[str, Balance]) -> Table:
    rows: list[list[Cell]] = [
        [
            name_of(one.label, one.origin), count(one.requests), percent(one.request_share), count(one.generation_tokens),
            percent(one.token_share), quantity(one.running), quantity(one.waiting), percent(one.kv_usage),
            percent(one.prefix_cache_hit_rate), count(one.preemptions),
        ]
        for one in found[:MOST]
    ]  # fmt: skip
    columns = ["replica", "requests", "share", "generated tokens", "share", "running", "waiting", "KV cache", "cache hits",
               "preemptions"]  # fmt: skip
    rest = [f"{len(found) - MOST} more replicas are in run.json."] if len(found) > MOST else []
    return Table("Replicas", columns, rows, [*(f"{text}." for text in balance_texts(balance)), *rest])


def balance_texts(balance: dict[str, Balance]) -> list[str]:
    return [
        f"{SHARES.get(name, name)}: largest / mean {quantity(one.max_over_mean)}, "
        f"coefficient of variation {quantity(one.cv)}"
        for name, one in balance.items()
    ]


def name_of(label: str | None, origin: str | None) -> str:
    return " ".join(text for text in (label, origin) if text is not None) or NOT_KNOWN


def gpu_table(found: Sequence[Gpu]) -> Table:
    rows: list[list[Cell]] = [
        [
            name_of(one.node, one.gpu), one.label or "-", percent(one.utilisation), quantity(gib(one.memory_used_bytes)),
            quantity(one.temperature_c), quantity(one.power_w), quantity(one.energy_j), one.method or "-", count(one.n),
        ]
        for one in found[:MOST]
    ]  # fmt: skip
    columns = ["GPU", "label", "busy", "memory, most (GiB)", "hottest (C)", "power (W)", "energy (J)", "by", "samples"]
    reasons = dict.fromkeys(f"{one.reason}." for one in found if one.reason is not None)
    rest = [f"{len(found) - MOST} more GPUs are in run.json."] if len(found) > MOST else []
    return Table("GPUs", columns, rows, [*list(reasons)[:3], *rest])


def gib(value: object) -> float | None:
    number = known(value)
    return None if number is None else number / (1 << 30)


def node_table(found: Cluster) -> Table:
    rows: list[list[Cell]] = [
        [
            one.node or NOT_KNOWN, count(one.gpus), quantity(one.gpu_energy_j), quantity(one.cpu_energy_j),
            percent(one.cpu_busy), quantity(gib(one.memory_available_bytes)),
        ]
        for one in found.nodes[:MOST]
    ]  # fmt: skip
    columns = ["node", "GPUs", "energy of GPUs (J)", "of CPUs and memory (J)", "CPU busy", "memory free, least (GiB)"]
    return Table("Nodes", columns, rows)


def speculation_table(found: Speculation) -> Table:
    rows: list[list[Cell]] = [
        ["Tokens of a verification (1 + accepted / drafts)", quantity(found.acceptance_length)],
        ["Accepted share of draft tokens", percent(found.acceptance_rate)],
    ]
    rows += [
        [f"Accepted at position {place}", percent(share)] for place, share in enumerate(found.by_position[:MOST], 1)
    ]
    return Table("Speculative decoding", ["Figure", "Value"], rows, [f"By {found.method}: {found.source}."])


def adapters_text(found: Cluster) -> str | None:
    pool = found.adapters
    if pool is None:
        return None
    full = known(pool.full_share)
    often = f", all of them in {percent(full)} of samples" if full else ""
    return f"{quantity(pool.used_mean)} of {count(pool.total)} places used on average, {count(pool.used_max)} at most{often}"


def facts(document: RunDocument) -> Iterator[Fact]:
    """Lines of the closing summary."""
    found = document.cluster or Cluster()
    if found.energy is not None:
        yield Fact("energy", ranked(energy_parts(document, found.energy)), BELOW, overflow="wrap")
    for pool in found.pools[:MOST_POOLS]:
        parts = [(0, f"{pool.label}: {quantity(pool.running)} running, {quantity(pool.waiting)} waiting")]
        parts += [(1, f"KV cache {percent(pool.kv_usage)}")] if pool.kv_usage is not None else []
        parts += [(2, f"GPUs busy {percent(pool.utilisation)}")] if pool.utilisation is not None else []
        parts += [(3, f"{quantity(pool.energy_j)} J")] if pool.energy_j is not None else []
        yield Fact("pool", ranked(parts), BELOW)
    if found.replicas:
        texts = balance_texts(found.balance)[:1] or ["their shares are not known"]
        yield Fact("replicas", [f"{len(found.replicas)}; {texts[0]}"], BELOW, overflow="wrap")
    if found.speculation is not None:
        length, rate = quantity(found.speculation.acceptance_length), percent(found.speculation.acceptance_rate)
        yield Fact("drafts", [f"{length} tokens a verification, {rate} of draft tokens accepted"], BELOW)
    text = adapters_text(found)
    if text is not None:
        yield Fact("adapters", [text], BELOW, tone="bad" if known(found.adapters and found.adapters.full_share) else "")


def energy_parts(document: RunDocument, found: Energy) -> list[tuple[int, str]]:
    if found.energy_j is None:
        return [(0, f"not measured: {found.reason}")]
    parts = [(0, f"{quantity(found.energy_j)} J, {quantity(found.power_w)} W"), (1, f"{count(found.n)} samples")]
    for rank, (name, (_, unit)) in enumerate(PER.items(), 2):
        if name in (document.metrics or {}):
            parts.append((rank, f"{quantity(document.metric(name).value)} {unit}"))
    return [*parts, (len(PER) + 2, METHODS.get(found.method or "", ""))]
