"""Judges the load generator: verdict (`valid`, `suspect` or `invalid`), reasons, and all figures that they depend on."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from msgspec.structs import replace

from fastllmload.certificate import arrivals, attribution, criteria, hosts, usage
from fastllmload.certificate import figures as headlines
from fastllmload.certificate.ceiling import Ceiling
from fastllmload.certificate.error_bounds import latency_error_bar_us, stamp_figures
from fastllmload.certificate.evidence import CertificateEvidence, Figures, Sends, Times, WorkerRecord
from fastllmload.certificate.run_evidence import from_run
from fastllmload.documents.certificate import ArrivalTests, Certificate, GapTests, Reason, ScheduleLag
from fastllmload.documents.fields import Number, known
from fastllmload.documents.run import RunDocument
from fastllmload.documents.run_parts.hosts import HostEntry
from fastllmload.records.run import Run

SECOND = 1_000_000_000


def headroom(workers: tuple[WorkerRecord, ...], ceiling: Ceiling | None) -> dict[str, float | None]:
    """From the busiest second of the busiest worker; `headroom` is None without a calibration.

    Events and new requests both cost CPU, so their shares of the ceiling add up: 1 / (events/ceiling + requests/ceiling).
    """
    busiest: tuple[float, float, float] | None = None
    for worker in workers:
        events, requests = peak_rate(worker.t_ns, worker.events), peak_rate(worker.t_ns, worker.released)
        if events is None or requests is None:
            continue
        used = 0.0 if ceiling is None else events / ceiling.events_per_s + requests / ceiling.requests_per_s
        busiest = max(busiest or (used, events, requests), (used, events, requests))
    if busiest is None:
        return {"headroom": None, "peak_events_per_s": None, "peak_requests_per_s": None}
    used, events, requests = busiest
    return {
        "headroom": 1 / used if ceiling is not None and used > 0 else None,
        "peak_events_per_s": events,
        "peak_requests_per_s": requests,
    }


def peak_rate(t_ns: Times, counts: Times) -> float | None:
    """The highest rate per second over any interval of at least a second (over the complete series when it is shorter)."""
    if len(t_ns) < 2 or len(counts) != len(t_ns) or t_ns[-1] <= t_ns[0]:
        return None
    later = np.searchsorted(t_ns, t_ns + SECOND)
    begins = np.flatnonzero(later < len(t_ns))
    if not len(begins):
        return float((counts[-1] - counts[0]) / (t_ns[-1] - t_ns[0]) * SECOND)
    ends = later[begins]
    return float(((counts[ends] - counts[begins]) / (t_ns[ends] - t_ns[begins])).max() * SECOND)


SPREAD_US = 500.0  # with a smaller spread of lags no server notices quantised arrivals
BURST_SLACK = 1.25  # a stall up to this multiple of the burst's length is part of the burst
SMALLEST_P = 1e-300


def judge(run: Run) -> Certificate:
    """The `certificate` object of run.json."""
    return judge_hosts(run)[0]


def judged(run: Run) -> RunDocument:
    """The run's document with its certificate, and with those of the hosts of a run over many."""
    certificate, entries = judge_hosts(run)
    return replace(run.document, certificate=certificate, hosts=entries)


def judge_hosts(run: Run) -> tuple[Certificate, tuple[HostEntry, ...]]:
    """The certificate, and the hosts of a run over many, each with its own."""
    if not run.document.hosts:
        return judge_evidence(from_run(run)), ()
    each: dict[int, Certificate] = {}
    ttft: dict[int, Number] = {}
    distances = hosts.distances(run)
    for host in run.document.judged_hosts:
        summary = None if run.elsewhere is None else run.elsewhere.hosts.get(host.host)
        if summary is not None:  # it was judged where its events are
            ttft[host.host], each[host.host] = summary.ttft_p50_ms, summary.certificate
            continue
        own = hosts.run_of_host(run, host)
        ttft[host.host] = own.document.metric("ttft").p50
        each[host.host] = judge_evidence(hosts.evidence_of_host(from_run(own, host), host, distances[host.host]))
    whole = hosts.together(judge_evidence(hosts.evidence_of_run(from_run(run), run)), each)
    return replace(whole, verdict=criteria.verdict(list(whole.reasons))), hosts.results(run, each, ttft)


def judge_evidence(evidence: CertificateEvidence) -> Certificate:
    """The certificate of *evidence*: verdict, reasons, generator_limited, and the figures by subject."""
    sends, window = evidence.sends, evidence.window
    measured = Certificate(
        figures=headlines.describe_figures(evidence.figures),
        seconds=evidence.seconds,
        schedule_lag_us=arrivals.schedule_lag(sends, window),
        closed_classes=arrivals.closed_classes(sends),
        first_fill_us=arrivals.first_fill_us(sends),
        plan_lead_s=None if evidence.plan_lead_ns is None else evidence.plan_lead_ns / 1e9,
        arrival_tests=arrivals.arrival_tests(sends),
        workers=tuple(usage.worker(record) for record in evidence.workers),
        socket_to_user_us=usage.percentiles_us(usage.merged(evidence.workers, "socket_to_user")),
        host=usage.host(evidence.host, window, attribution.late(evidence), attribution.host_intervals(evidence)),
        ports=usage.ports(evidence),
        network=usage.network(evidence.host.interfaces),
        latency_error_bar_us=latency_error_bar_us(evidence),
    )
    own = headroom(evidence.workers, evidence.ceiling)
    measured = replace(measured, **arrivals.rates(sends, window), **stamp_figures(evidence.stamps), **own)
    found = [
        *figure_reasons(evidence),
        *criteria.reasons(
            figures(evidence, measured), attribution.host_caused_codes(evidence), evidence.host.throttled
        ),
    ]
    found = [with_class(reason, sends) for reason in found]
    found.sort(key=lambda reason: -criteria.SEVERITY.index(reason.severity))
    return replace(
        measured,
        verdict=criteria.verdict(found),
        reasons=tuple(found),
        generator_limited=any(reason.limits_generator for reason in found),
    )


def with_class(reason: Reason, sends: Sends) -> Reason:
    """*reason* with the name of the class that it is about, where it is about one closed loop of a mix."""
    if reason.code != "class_slots_empty":
        return reason
    worst = max(sends.closed, key=lambda one: one.empty or 0.0)
    return replace(reason, text=(reason.text or "").replace(criteria.SOME_CLASS, f"class {worst.name}"))


def figure_reasons(evidence: CertificateEvidence) -> list[Reason]:
    """One reason per metric with a headline figure that is not certain enough.

    Late sends also make figures from the scheduled instant uncertain; where the same figure from the submission is certain,
    they are the only cause.
    """
    worst = headlines.worst_by_metric(evidence.figures)
    found = []
    for name, figure in worst.items():
        if figure.severity == headlines.VALID:
            continue
        sibling = worst.get(name.removesuffix("_sched"))
        sending = name.endswith("_sched") and (sibling is None or sibling.severity == headlines.VALID)
        cause = (
            attribution.cause_of_lateness(evidence, True) if sending else attribution.cause_of_error(evidence, figure)
        )
        found.append(
            Reason(
                code="uncertain_figure",
                severity=figure.severity,
                figure=f"{name}_{figure.statistic}",
                value=figure.error,
                limit=figure.limit,
                unit="ms",
                text=f"{headlines.sentence(figure)}: {explanation(evidence, cause, sending)}",
                cause=cause,
                limits_generator=cause == attribution.GENERATOR and sending,
            )
        )
    return found


def explanation(evidence: CertificateEvidence, cause: str, sending: bool) -> str:
    """Why a figure is uncertain, in one clause."""
    if cause == attribution.TIMESTAMPS:
        stamped = "neither the kernel nor a packet ring stamped the segments, so their times are"
        if evidence.stamps.kernel:
            stamped = "segments came together, and the kernel stamps the last of a read, so the times of the others are"
        return f"the client read on time, but {stamped} only known to a fraction of a millisecond"
    what = "requests were sent late" if sending else "the client read late, and the times of the segments are not known"
    if cause == attribution.HOST:
        return f"{what}, as the host gave it no processor"
    if evidence.host.throttled:
        return f"{what}, as the CPU quota of its cgroup was used up"
    return what


def figures(evidence: CertificateEvidence, measured: Certificate) -> Figures:
    """The figures that the criteria name, by name."""
    sends, entries = evidence.sends, measured.workers
    sampled = bool(entries) and all(worker.cpu_share is not None for worker in entries)
    return {
        "releases": None if sends.partial else sends.released,
        # Without an answer the run has no window, so no samples of it.
        "sampled_workers": None if evidence.ok == 0 else int(sampled),
        **lag_figures(sends, measured.schedule_lag_us or ScheduleLag()),
        # a cap changes the rate by design
        "rate_error": None if sends.capped else known(measured.rate_error),
        "slots_empty": None if sends.partial else sends.slots_empty,
        "class_slots_empty": None if sends.partial else highest(one.empty for one in sends.closed),
        **arrival_figures(sends, measured.arrival_tests),
        "workers_died": sum(worker.died is True for worker in entries),
        "gc_runs": highest(worker.gc_runs for worker in entries),
        "cpu_share_max": highest(worker.cpu_share for worker in entries),
        "stall_max_us": stall_max_us(measured),
        "user_delay_p99_us": user_delay_p99_us(evidence, measured),
        "kernel_missing_share": kernel_missing_share(evidence, measured),
        "coalesced_read_share": known(measured.coalesced_read_share),
        "batched_share": known(measured.batched_share),
        "clamped_share": known(measured.clamped_share),
        "clock_steps": highest(worker.clock_steps for worker in entries),
        "hiccup_p99_us": known(measured.host.hiccup_p99_us),
        "steal_share": known(measured.host.steal_share),
        "run_delay_share_max": highest(worker.run_delay_share for worker in entries),
        "ok": evidence.ok,
        "no_fd": evidence.no_fd,
        "no_port": evidence.no_port,
        "no_memory": evidence.no_memory,
        "fd_headroom": known(measured.ports.fd_headroom),
        "port_headroom": known(measured.ports.port_headroom),
        "disk_full": int(evidence.disk_full),
        "nic_lost_share": known(measured.network.lost_share),
        "nic_peak_share": known(measured.network.peak_share),
        "headroom": known(measured.headroom),
        "host_lost": evidence.among_hosts.lost,
        "host_alone": evidence.among_hosts.alone,
        "host_late": evidence.among_hosts.late,
        "hosts_excluded": evidence.among_hosts.excluded,
        "clock_unknown": evidence.among_hosts.clock_unknown,
        "clock_bound_us": evidence.among_hosts.clock_bound_us,
        "clock_in_gaps": evidence.among_hosts.clock_in_gaps,
        "ttft_distance": evidence.among_hosts.ttft_distance,
        "tpot_distance": evidence.among_hosts.tpot_distance,
        "slots_distance": evidence.among_hosts.slots_distance,
    }


def lag_figures(sends: Sends, found: ScheduleLag) -> Figures:
    """Figures of the lag; None at rate inf, where all are due at once, and in an open loop with a cap: see capped_share."""
    timed = sends.arrivals.process != "inf" and not sends.capped
    return {
        "lag_p99_us": known(found.p99) if timed else None,
        "lag_max_us": known(found.max) if timed else None,
        "early_share": known(found.early_share),
        "drift_us": known(found.drift_us) if timed else None,
        "capped_share": capped_share(sends, sends.held),
        "capped_prefill_share": capped_share(sends, sends.prefill_held),
    }


def capped_share(sends: Sends, held: Times | None) -> float | None:
    """Share of the releases of an open loop for which a cap was full for more than 1 ms while they were due: *held*, ns."""
    return float(np.mean(held > 1_000_000)) if sends.capped and held is not None and len(held) else None


def arrival_figures(sends: Sends, tests: ArrivalTests) -> Figures:
    """Figures of the schedule, and of the sends where the lags spread enough for a server to notice."""
    spread = False
    if tests.tested is not None and not sends.capped:
        low, high = np.percentile(sends.t_dispatch - sends.t_sched, [1, 99])
        spread = float(high - low) / 1e3 >= SPREAD_US
    return {
        "schedule_surprise": None if tests.schedule is None else schedule_surprise(tests.schedule),
        "quantised": known(tests.gap_distance) if spread else None,
        "clumped": known(tests.clumped) if spread else None,
        "dispersion_ratio": known(tests.dispersion_ratio) if spread else None,
    }


def schedule_surprise(found: GapTests) -> float | None:
    """-log10 of the smallest p among KS, AD, autocorrelation and (Poisson) dispersion; None when none applies.

    Of several classes the largest, corrected for the number of classes (Bonferroni).
    """
    if found.gaps is None:
        each = [value for one in found.classes.values() if (value := schedule_surprise(one)) is not None]
        return max(0.0, max(each) - math.log10(len(each))) if each else None
    p = [value for each in (found.ks_p, found.ad_p) if (value := known(each)) is not None]
    p += [
        math.erfc(abs(z) / math.sqrt(2))
        for each in (found.autocorrelation_z, found.dispersion_z)
        if (z := known(each)) is not None
    ]
    return -math.log10(max(min(p), SMALLEST_P)) if p else None


def stall_max_us(measured: Certificate) -> float | None:
    """The longest stall of any worker, unless sending a burst of the load explains it."""
    longest, burst = highest(worker.stall_max_us for worker in measured.workers), known(measured.first_fill_us)
    return None if longest is None or (burst is not None and longest <= BURST_SLACK * burst) else longest


def user_delay_p99_us(evidence: CertificateEvidence, measured: Certificate) -> float | None:
    """How late the process read what it stamped itself; None when the kernel stamped (nearly) everything.

    Measured by the reads that have a kernel stamp; without any, by the lateness of the worker's heartbeats.
    """
    if measured.timestamp_source not in ("user", "mixed"):
        return None
    late = known(measured.socket_to_user_us.p99)
    return late if late is not None else known(usage.percentiles_us(usage.merged(evidence.workers, "beat")).p99)


def kernel_missing_share(evidence: CertificateEvidence, measured: Certificate) -> float | None:
    bounded = known(measured.bounded_share)
    return None if evidence.stamps.requested != "kernel" or bounded is None else 1 - bounded


def highest(values: Iterable[Number]) -> float | None:
    return max((number for value in values if (number := known(value)) is not None), default=None)
