"""What several metrics pages say together: replicas and their balance, pools, speculative decoding, adapters, energy."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
from msgspec.structs import replace

from fastllmload.documents.cluster import Adapters, Balance, Cluster, Gpu, Pool, ReplicaFigures, Speculation
from fastllmload.documents.fields import Number, known
from fastllmload.errors import coded
from fastllmload.metrics.run.window import Window
from fastllmload.telemetry.energy import added_up, described, devices_of, energy_of, labels_of, nodes_of
from fastllmload.telemetry.files import SourceEntry
from fastllmload.telemetry.series import TelemetryRecord, TelemetrySeries
from fastllmload.telemetry.server_figures import Spans, hit_rate, without_hits
from fastllmload.telemetry.servers import GPU, NODE, ROUTER, SERVER

SHARED = ("requests", "generation_tokens", "running")  # what replicas should have equal parts of


def cluster_of(
    found: TelemetryRecord,
    spans: Spans,
    window: Window | None,
    sensor: TelemetrySeries | None,
    idle_until_ns: int | None = None,
) -> Cluster | None:
    """*sensor*: total power by a sensor. *idle_until_ns*: the first request, if the idle system was sampled before it."""
    if window is None:
        return None
    devices = devices_of(found)
    gpus = tuple(described(device, spans, window) for device in devices)
    replicas = [replica(source, found, spans) for source in found.sources if source.kind == SERVER]
    several = shares(replicas) if len(replicas) > 1 else ()
    cluster = Cluster(
        replicas=several,
        balance=balance(several),
        pools=tuple(pools(found, replicas, gpus, spans)),
        gpus=gpus,
        nodes=nodes_of(found, gpus, spans, window),
        energy=energy_of(found, devices, sensor, window, idle_until_ns),
        speculation=speculation(spans),
        adapters=adapters(found, spans),
    )
    return None if cluster == Cluster() else cluster


def of_asked_models(found: TelemetryRecord, models: Sequence[str], window: Window | None) -> TelemetryRecord:
    """*found* with finished requests of the *models* alone that the run asks, of a server that counts them by model: Triton
    counts a request of an ensemble once for it and once for each of its models. Of a page that has none of them, of the
    model that counts the most.
    """
    spans = Spans(found, window)

    def counted(series: TelemetrySeries) -> float:
        grown = spans.counter(series)
        return -1.0 if grown is None else grown[2]

    by_page: dict[str, list[TelemetrySeries]] = {}
    for one in found.named("requests_finished"):
        if "model" in labels_of(one):
            by_page.setdefault(one.origin, []).append(one)
    left: set[int] = set()
    for of_models in by_page.values():
        asked = [one for one in of_models if labels_of(one)["model"] in models] or [max(of_models, key=counted)]
        left.update({id(one) for one in of_models} - {id(one) for one in asked})
    return dataclasses.replace(found, series=tuple(one for one in found.series if id(one) not in left))


def of_page(found: TelemetryRecord, origin: str, name: str) -> list[TelemetrySeries]:
    return [series for series in found.named(name) if series.origin == origin]


def grown(found: TelemetryRecord, spans: Spans, origin: str, name: str) -> float | None:
    """None, as from `mean`, of a page that was not read up to both ends of the window: its share would be too small."""
    if not spans.covered(origin):
        return None
    counted = [spans.counter(series) for series in of_page(found, origin, name)]
    return added_up([None if each is None else each[2] for each in counted])


def mean(found: TelemetryRecord, spans: Spans, origin: str, name: str) -> float | None:
    values = [spans.gauge(series) for series in of_page(found, origin, name)] if spans.covered(origin) else []
    return None if not values or not len(values[0]) else float(values[0].mean())


def replica(source: SourceEntry, found: TelemetryRecord, spans: Spans) -> ReplicaFigures:
    own = Spans(TelemetryRecord(tuple(one for one in found.series if one.origin == source.origin)), spans.window)
    counters = {
        name: grown(found, spans, source.origin, name)
        for name in ("prompt_tokens", "generation_tokens", "preemptions", "requests_finished")
    }
    return ReplicaFigures(
        origin=source.origin,
        label=source.label,
        exporter=source.exporter,
        requests=counters.pop("requests_finished"),
        **counters,
        **{name: mean(found, spans, source.origin, name) for name in ("running", "waiting", "kv_usage")},
        prefix_cache_hit_rate=hit_rate(own).value,
    )


def shares(replicas: Sequence[ReplicaFigures]) -> tuple[ReplicaFigures, ...]:
    requests = added_up([known(one.requests) for one in replicas])
    tokens = added_up([known(one.generation_tokens) for one in replicas])
    return tuple(
        replace(one, request_share=part(one.requests, requests), token_share=part(one.generation_tokens, tokens))
        for one in replicas
    )


def part(value: Number, total: float | None) -> float | None:
    number = known(value)
    return None if number is None or not total else number / total


def balance(replicas: Sequence[ReplicaFigures]) -> dict[str, Balance]:
    """Of what every replica reports and any has."""
    found = {}
    for name in SHARED:
        values = [known(getattr(one, name)) for one in replicas]
        total = added_up(values)
        if total:
            each = np.array(values, np.float64)
            found[name] = Balance(max_over_mean=float(each.max() / each.mean()), cv=float(each.std() / each.mean()))
    return found


def pools(
    found: TelemetryRecord, replicas: Sequence[ReplicaFigures], gpus: Sequence[Gpu], spans: Spans
) -> Iterable[Pool]:
    for label in dict.fromkeys(source.label for source in found.sources if source.label is not None):
        servers = [one for one in replicas if one.label == label]
        own = [gpu for gpu in gpus if gpu.label == label]
        busy = [value for gpu in own if (value := known(gpu.utilisation)) is not None]
        usage = [value for one in servers if (value := known(one.kv_usage)) is not None]
        yield Pool(
            label=label,
            replicas=len(servers),
            gpus=len(own),
            running=added_up([known(one.running) for one in servers]),
            waiting=added_up([known(one.waiting) for one in servers]),
            kv_usage=sum(usage) / len(usage) if usage else None,
            prompt_tok_s=added_up([per_second(found, spans, one, "prompt_tokens") for one in servers]),
            generation_tok_s=added_up([per_second(found, spans, one, "generation_tokens") for one in servers]),
            utilisation=sum(busy) / len(busy) if busy else None,
            power_w=added_up([known(gpu.power_w) for gpu in own]),
            energy_j=added_up([known(gpu.energy_j) for gpu in own]),
        )


def per_second(found: TelemetryRecord, spans: Spans, server: ReplicaFigures, name: str) -> float | None:
    origin = str(server.origin)
    counted = [spans.counter(series) for series in of_page(found, origin, name)] if spans.covered(origin) else []
    return added_up([None if each is None or each[3] <= 0 else each[2] / each[3] for each in counted])


def speculation(spans: Spans) -> Speculation | None:
    """By counters where the servers have them, else by their gauges; None without any, or if nothing was drafted."""
    drafts, proposed, accepted = (spans.increment(name) for name in ("drafts", "draft_tokens", "accepted_tokens"))
    length, rate = (drafting(spans, name) for name in ("acceptance_length", "acceptance_rate"))
    gauges = [each for each in (length, rate) if each is not None]
    if proposed is not None and accepted is not None and proposed[0] > 0:
        counted = drafts is not None and drafts[0] > 0
        return Speculation(
            acceptance_length=1 + accepted_of_drafts(spans) / drafts[0] if drafts and counted else middle(length),
            acceptance_rate=accepted[0] / proposed[0],
            by_position=positions(spans, drafts[0]) if drafts is not None and counted else (),
            draft_tokens=proposed[0],
            accepted_tokens=accepted[0],
            method="counters" if counted or length is None else "counters, length by a gauge",
            source=f"{accepted[1]} / {proposed[1]}",
        )
    if not gauges:
        return None
    return Speculation(
        acceptance_length=middle(length),
        acceptance_rate=middle(rate),
        method="gauges",
        source=", ".join(source for _, source in gauges),
    )


def drafting(spans: Spans, name: str) -> tuple[list[float], str] | None:
    """Mean of a gauge of acceptance by server, over reads of which the length, if it has one, is not 0: servers that have
    drafted nothing so far, or never draft, say 0.
    """
    found, drafted = [], []
    lengths = {one.origin: one for one in spans.server("acceptance_length")}
    for one in spans.server(name):
        length = lengths.get(one.origin, one)
        never = length.t_before[~(length.value > 0)]
        values = spans.gauge(one, ~np.isin(one.t_before, never))
        if len(values):
            drafted.append(one)
            found.append(float(values.mean()))
    return (found, spans.source(drafted)) if found else None


def accepted_of_drafts(spans: Spans) -> float:
    """Accepted tokens of the servers that count their drafts: others have no part in tokens per draft."""
    counting = {series.origin for series in spans.server("drafts")}
    parts = [spans.counter(series) for series in spans.server("accepted_tokens") if series.origin in counting]
    return sum(part[2] for part in parts if part is not None)


def middle(found: tuple[list[float], str] | None) -> float | None:
    return None if found is None else sum(found[0]) / len(found[0])


def positions(spans: Spans, drafts: float) -> tuple[float, ...]:
    """Share of drafts whose token was accepted, by position; of all servers."""
    total: dict[int, float] = {}
    for series in spans.server("accepted_at"):
        counted, text = spans.counter(series), labels_of(series).get("position", "")
        if counted is not None and text.isdecimal():
            total[int(text)] = total.get(int(text), 0.0) + counted[2]
    return tuple(total[position] / drafts for position in sorted(total))


def adapters(found: TelemetryRecord, spans: Spans) -> Adapters | None:
    """Of the server whose pool was full for the largest part, then used the most."""
    pairs = []
    for used in spans.server("adapters_used"):
        total = next(iter(of_page(found, used.origin, "adapters_total")), None)
        if total is None:
            continue
        taken, places = spans.gauge(used), spans.gauge(total)
        if len(taken) and len(places) and places.max() > 0:
            most = float(places.max())
            pairs.append((float((taken >= most).mean()), float(taken.mean()), float(taken.max()), most, used.origin))
    if not pairs:
        return None
    full, average, highest, most, origin = max(pairs)
    return Adapters(origin=origin, used_mean=average, used_max=highest, total=most, full_share=full)


def ended_pages(found: TelemetryRecord, spans: Spans) -> Iterable[str]:
    """A sentence for each page that was not read up to both ends of the window."""
    for source in found.sources if spans.window is not None else ():
        if source.kind in (SERVER, ROUTER, GPU, NODE) and not spans.covered(source.origin):
            why = next(iter(source.problems), "its values ended")
            text = f"{source.origin} was not read in all of the window: {why}"
            yield coded(
                "metrics-page-ended", f"{text}; what it counted there is not known, nor are sums over all pages"
            )


def warnings(found: TelemetryRecord, spans: Spans, cluster: Cluster | None) -> list[str]:
    """Sentences about pages that ended, servers that a figure is not of, counters that went back, a full pool of adapters,
    and energy that is missing.
    """
    said = [*ended_pages(found, spans)]
    of, left = without_hits(spans)
    if left:
        others = ", ".join(f"{origin} ({why})" for origin, why in left.items())
        text = f"prefix_cache_hit_rate is that of {', '.join(of)}, without {others}"
        said.append(coded("servers-left-out", f"{text}; the table of replicas has each server's own"))
    for series in found.series:
        times = spans.restarts(series)
        if times:
            back = (
                f"{series.source_name} of {series.origin} went back {times} times: its server or exporter began again"
            )
            said.append(coded("counter-restarted", f"{back}; what it counted between two reads then is missing"))
    pool = None if cluster is None else cluster.adapters
    if pool is not None and known(pool.full_share):
        share = f"{known(pool.full_share):.0%}"
        text = f"all {pool.total:.0f} places for adapters of {pool.origin} were used in {share} of its samples"
        said.append(
            coded("adapters-full", f"{text}; further adapters are loaded first, which is part of the latencies")
        )
    energy = None if cluster is None else cluster.energy
    if energy is not None and energy.reason is not None and any(one.kind in (GPU, NODE) for one in found.sources):
        said.append(coded("energy-not-measured", f"no energy: {energy.reason}"))
    return said
