"""Judges the load generator: verdict (`valid`, `suspect` or `invalid`), reasons, and all figures that they depend on."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import numpy as np

from fastllmload.certificate import arrivals, attribution, criteria, host, lag, workers
from fastllmload.certificate import figures as headlines
from fastllmload.certificate.ceiling import Ceiling
from fastllmload.certificate.error_bounds import latency_error_bar_us, stamp_figures
from fastllmload.certificate.evidence import CertificateEvidence, Figures, Sends, Times, WorkerRecord
from fastllmload.certificate.port_usage import ports
from fastllmload.certificate.run_evidence import from_run
from fastllmload.records.run import Run

SECOND = 1_000_000_000


def headroom(workers: tuple[WorkerRecord, ...], ceiling: Ceiling | None) -> Figures:
    """headroom (None without a calibration) from the busiest second of the busiest worker, and its two rates.

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


def judge(run: Run) -> dict[str, Any]:
    """The `certificate` object of run.json."""
    return judge_evidence(from_run(run))


def judge_evidence(evidence: CertificateEvidence) -> dict[str, Any]:
    """The certificate of *evidence*: verdict, reasons, generator_limited, and the figures by subject."""
    sends, window = evidence.sends, evidence.window
    tests = arrivals.arrival_tests(sends)
    sections: dict[str, Any] = {
        "schedule_lag_us": lag.schedule_lag(sends, window),
        "first_fill_us": lag.first_fill_us(sends),
        "plan_lead_s": None if evidence.plan_lead_ns is None else evidence.plan_lead_ns / 1e9,
        **arrivals.rates(sends, window),
        "arrival_tests": tests,
        "workers": [workers.worker(record) for record in evidence.workers],
        "socket_to_user_us": workers.percentiles_us(workers.merged(evidence.workers, "socket_to_user")),
        **stamp_figures(evidence.stamps),
        "host": host.host(evidence.host, window),
        "ports": ports(evidence),
        **headroom(evidence.workers, evidence.ceiling),
        "latency_error_bar_us": latency_error_bar_us(evidence),
    }
    late = attribution.late(evidence)
    explained = int(host.covered(late, attribution.host_intervals(evidence)).sum())
    sections["host"]["late_intervals"], sections["host"]["late_explained"] = len(late), explained
    sections["host"]["competitors"] = list(evidence.host.competitors)
    found = [
        *figure_reasons(evidence),
        *criteria.reasons(
            figures(evidence, sections), attribution.host_caused_codes(evidence), evidence.host.throttled
        ),
    ]
    found.sort(key=lambda reason: -criteria.SEVERITY.index(reason.severity))
    return {
        "verdict": criteria.verdict(found),
        "reasons": [asdict(reason) for reason in found],
        "generator_limited": any(reason.limits_generator for reason in found),
        "figures": headlines.describe_figures(evidence.figures),
        "seconds": evidence.seconds,
        **sections,
    }


def figure_reasons(evidence: CertificateEvidence) -> list[criteria.Reason]:
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
            criteria.Reason(
                "uncertain_figure",
                figure.severity,
                f"{name}_{figure.statistic}",
                figure.error,
                figure.limit,
                "ms",
                f"{headlines.sentence(figure)}: {explanation(evidence, cause, sending)}",
                cause,
                cause == attribution.GENERATOR and sending,
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


def figures(evidence: CertificateEvidence, sections: dict[str, Any]) -> Figures:
    """The figures that the criteria name, by name."""
    sends, entries = evidence.sends, sections["workers"]
    sampled = bool(entries) and all(w["cpu_share"] is not None for w in entries)
    return {
        "releases": sections["schedule_lag_us"]["n"] + len(sends.first_fill),
        # Without an answer the run has no window, so no samples of it.
        "sampled_workers": None if evidence.ok == 0 else int(sampled),
        **lag_figures(sends, sections),
        "rate_error": sections["rate_error"] if sends.cap is None else None,  # a cap changes the rate by design
        **arrival_figures(sends, sections),
        "workers_died": sum(w["died"] for w in entries),
        "gc_runs": highest(w["gc_runs"] for w in entries),
        "cpu_share_max": highest(w["cpu_share"] for w in entries),
        "stall_max_us": stall_max_us(sections),
        "user_delay_p99_us": user_delay_p99_us(evidence, sections),
        "kernel_missing_share": kernel_missing_share(evidence, sections),
        "coalesced_read_share": sections["coalesced_read_share"],
        "batched_share": sections["batched_share"],
        "clamped_share": sections["clamped_share"],
        "clock_steps": highest(w["clock_steps"] for w in entries),
        "hiccup_p99_us": sections["host"]["hiccup_p99_us"],
        "steal_share": sections["host"]["steal_share"],
        "run_delay_share_max": highest(w["run_delay_share"] for w in entries),
        "ok": evidence.ok,
        "no_fd": evidence.no_fd,
        "no_port": evidence.no_port,
        "fd_headroom": sections["ports"]["fd_headroom"],
        "port_headroom": sections["ports"]["port_headroom"],
        "disk_full": int(evidence.disk_full),
        "headroom": sections["headroom"],
    }


def lag_figures(sends: Sends, sections: dict[str, Any]) -> Figures:
    """Figures of the lag; None at rate inf, where all are due at once, and with a cap, which is judged by capped_share."""
    found = sections["schedule_lag_us"]
    timed = sends.arrivals.process != "inf" and sends.cap is None and found["n"] > 0
    drift = found.get("drift_us")
    return {
        "lag_p99_us": found["p99"] if timed else None,
        "lag_max_us": found["max"] if timed else None,
        "early_share": found.get("early_share"),
        "drift_us": drift if timed else None,
        "capped_share": capped_share(sends),
    }


def capped_share(sends: Sends) -> float | None:
    """Share of releases that were delayed by more than 1 ms, where a cap was set."""
    if sends.cap is None or not len(sends.t_sched):
        return None
    return float(np.mean(sends.t_dispatch - sends.t_sched > 1_000_000))


def arrival_figures(sends: Sends, sections: dict[str, Any]) -> Figures:
    """Figures of the schedule, and of the sends where the lags spread enough for a server to notice."""
    tests, lags = sections["arrival_tests"], sends.t_dispatch - sends.t_sched
    names = ("schedule_surprise", "quantised", "clumped", "dispersion_ratio")
    if not tests:
        return dict.fromkeys(names)
    low, high = np.percentile(lags, [1, 99])
    spread = float(high - low) / 1e3 >= SPREAD_US and sends.cap is None
    return {
        "schedule_surprise": schedule_surprise(tests["schedule"]),
        "quantised": tests["gap_distance"] if spread else None,
        "clumped": tests["clumped"] if spread else None,
        "dispersion_ratio": tests["dispersion_ratio"] if spread else None,
    }


def schedule_surprise(found: dict[str, Any]) -> float | None:
    """-log10 of the smallest p among KS, AD, autocorrelation and (Poisson) dispersion; None when none applies.

    Of several classes the largest, corrected for the number of classes (Bonferroni).
    """
    if "classes" in found:
        each = [value for one in found["classes"].values() if (value := schedule_surprise(one)) is not None]
        return max(0.0, max(each) - math.log10(len(each))) if each else None
    p = [found[name] for name in ("ks_p", "ad_p") if found[name] is not None]
    p += [
        math.erfc(abs(found[z]) / math.sqrt(2)) for z in ("autocorrelation_z", "dispersion_z") if found[z] is not None
    ]
    return -math.log10(max(min(p), SMALLEST_P)) if p else None


def stall_max_us(sections: dict[str, Any]) -> float | None:
    """The longest stall of any worker, unless sending a burst of the load explains it."""
    longest = highest(w["stall_max_us"] for w in sections["workers"])
    burst = sections["first_fill_us"]
    return None if longest is None or (burst is not None and longest <= BURST_SLACK * burst) else longest


def user_delay_p99_us(evidence: CertificateEvidence, sections: dict[str, Any]) -> float | None:
    """How late the process read what it stamped itself; None when the kernel stamped (nearly) everything.

    Measured by the reads that have a kernel stamp; without any, by the lateness of the worker's heartbeats.
    """
    if sections["timestamp_source"] not in ("user", "mixed"):
        return None
    measured: float | None = sections["socket_to_user_us"]["p99"]
    return measured if measured is not None else workers.percentiles_us(workers.merged(evidence.workers, "beat"))["p99"]


def kernel_missing_share(evidence: CertificateEvidence, sections: dict[str, Any]) -> float | None:
    bounded = sections["bounded_share"]
    return None if evidence.stamps.requested != "kernel" or bounded is None else 1 - bounded


def highest(values: Any) -> float | None:
    known = [value for value in values if value is not None]
    return max(known) if known else None
