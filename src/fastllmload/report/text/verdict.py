"""What every report states of the client: warnings, the verdict with reasons and remedies, figures of the certificate."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from fastllmload.certificate.per_second import BRACKET_US, CPU_SHARE, LAG_US
from fastllmload.documents.certificate import Certificate, Reason, StatisticBounds
from fastllmload.documents.fields import known
from fastllmload.documents.procedure import ProcedureDocument
from fastllmload.documents.run import RunDocument
from fastllmload.errors import coded
from fastllmload.metrics.run.cold_start import declared_cold
from fastllmload.records.folder_lock import KILLED, RUNNING
from fastllmload.records.run import DONE
from fastllmload.report.blocks import Verdict, VerdictReason
from fastllmload.report.text.numbers import milliseconds, quantity

SEVERITIES = {"invalid": -2, "suspect": -1}
NOT_JUDGED = "not judged"
MEANINGS = {
    "valid": "The client kept up: the figures describe the target, within the given error bounds.",
    "suspect": "Something limited the client or was not measured: read the reasons before you quote a figure.",
    "invalid": "The client did not generate or measure the load as requested: these figures do not describe the target.",
}
NOTHING_MEASURED = "No request was answered: nothing was measured."
NO_MEANING = "The client was not judged: do not rely on these figures."
ERRORS = {
    "ttft": ("ttft",),
    "ttft_any": ("ttft_any",),
    "itl": ("itl", "tbc", "itl_b"),
    "e2e": ("e2e",),
}  # metrics of the error bound of P99, by label
REMEDIES = {
    "nothing_measured": "See the errors for what the target answered, and run again once it answers requests.",
    "no_releases": "Run longer, or raise the rate: the window must hold some requests.",
    "no_samples": "Run longer than a second, and see the files of the run folder for what ended the worker.",
    "schedule_lag": "Give the client its own cores (--workers, --pin), or spread the rate over more hosts.",
    "late_release": "Give the client its own cores (--pin) and stop other programs on this host.",
    "early_release": "Check this host's clock (fastllmload doctor) and report this as a bug.",
    "drift": "Lower the rate or add workers: the client cannot keep up for long.",
    "rate": "Lower the rate or add workers, and run again.",
    "slots_empty": "Give the client its own cores (--workers, --pin), or raise fewer slots at a time.",
    "class_slots_empty": "Give the client its own cores (--workers, --pin), or spread the slots over more hosts.",
    "capped": "Raise --max-concurrency, or run a closed loop (--concurrency).",
    "capped_prefill": "Raise --max-prefill, or run a closed loop (--concurrency).",
    "schedule_shape": "Draw another schedule with --seed; if this recurs, check the trace or the rate file.",
    "quantised_sends": "Leave --spin-budget at its default and give the client its own core.",
    "clumped_sends": "Give the client its own core (--pin) so that it wakes in time.",
    "dispersion": "Give the client its own core (--pin) and stop other programs on this host.",
    "worker_died": "See the incidents for what ended it, and run again.",
    "gc": "Report this as a bug: garbage collection is off during a run.",
    "cpu": "Add workers (--workers) or hosts: this one had no capacity left.",
    "worker_stall": "Give the client its own cores (--pin) and run again.",
    "user_stamps_late": "Use --timestamps kernel, or add workers (--workers).",
    "kernel_stamps_missing": "Run fastllmload doctor: it tests whether this kernel stamps what it receives.",
    "coalesced": "Use --timestamps tap where it is permitted; else see the error bounds of the figures.",
    "batched_delivery": "Enable TCP_NODELAY or unbuffered streaming at the server and its proxies.",
    "clamped": "Nothing: the server answered before the complete request was sent.",
    "clock_step": "Configure time synchronization to slew the clock, not step it, and run again.",
    "nic_losses": "See ethtool -S for where packets were lost; enlarge its rings (ethtool -G) or use more hosts.",
    "nic_load": "Spread the load over more hosts, or use a faster interface.",
    "host_hiccups": "Use a host that is not shared, or stop other programs on it.",
    "host_steal": "Use a host with dedicated CPUs.",
    "run_queue": "Stop other programs on this host, or pin the client to free cores (--pin).",
    "no_fd": "Raise the limit of open files (ulimit -n) and run again; see fastllmload doctor.",
    "no_memory": "Use more --workers, fewer requests at once, or stream the answers, and run again.",
    "no_port": "Add source addresses (--source-address) or target addresses; see fastllmload doctor.",
    "fd_headroom": "Raise the limit of open files (ulimit -n).",
    "port_headroom": "Add source addresses (--source-address) or target addresses.",
    "disk_full": "Free space on the disk of the run folder, or use a faster disk, and run again.",
    "uncertain_figure": "Give the client its own cores (--pin), or use --timestamps tap, and run again.",
    "host_lost": "See the incidents for what became of the host, and run again.",
    "host_alone": "See the incidents for why the driver was lost, and run again.",
    "host_late": "Run again; see fastllmload doctor for what the host lacks.",
    "host_excluded": "Run again without the host before you quote a throughput.",
    "clock_unknown": "Check that UDP passes between the host and the driver, and run again.",
    "clock_bound": "Use a quieter network between the host and the driver, and run again.",
    "clock_in_gaps": "Nothing, unless arrivals are to be exact across hosts: then use fewer hosts.",
    "uneven_ttft": "Compare the networks of the hosts; fastllmload report --exclude-host leaves one out.",
    "uneven_tpot": "Compare the networks of the hosts; fastllmload report --exclude-host leaves one out.",
    "uneven_slots": "Compare the failures of the hosts: a slot waits after a request that failed.",
    "headroom": "Add workers or hosts before you report this as the target's capacity.",
}
HOSTS_SHOWN = 3
REMEDY_OF_TIMESTAMPS = (
    "Use --timestamps tap, which needs CAP_NET_RAW (fastllmload doctor): it stamps each segment when it arrives."
)
REMEDY_OF_HOST = "The host stalled: use a host that is not shared, stop other programs on it, and run again."


class Headline(NamedTuple):
    """A warning that belongs to every figure. *mark*: its name in capitals, possibly with a detail in brackets."""

    mark: str
    text: str

    def __str__(self) -> str:
        return f"{self.mark}: {self.text}"


SIMULATED = Headline("SIMULATED ENGINE", "the target was fastllmload's own simulator, not a server")
BANNER = (
    SIMULATED.mark,
    "The target was fastllmload's own simulator, not a server. These figures do not describe any model server.",
)  # of a page
PROFILED = Headline("PROFILED", "the server's profiler ran during the measurement, which slows it down")
QUICK = Headline("QUICK", "durations and counts are scaled down; this does not conform to the draft")


def simulated(document: RunDocument) -> bool:
    """Whether the target was the simulated engine."""
    return document.target.simulated is True


def incomplete(document: RunDocument | ProcedureDocument) -> list[Headline]:
    """That the figures are not those of all requests: the run did not end as planned, or hosts are excluded."""
    found = []
    if document.status != DONE:
        ended = "killed" if document.status in (RUNNING, KILLED) else "stopped early"
        mark = f"INCOMPLETE ({document.status or 'no status'})"
        found.append(Headline(mark, f"{ended}; the figures are of what was measured"))
    if isinstance(document, RunDocument) and document.excluded_hosts:
        mark = f"WITHOUT {host_names(document, document.excluded_hosts)}"
        found.append(Headline(mark, "no figure has their requests, but the target had their load"))
    return found


def host_names(document: RunDocument, numbers: Sequence[int]) -> str:
    """`host 2 (node-17), host 4 (node-19) and 3 more`."""
    names = {host.host: host.name for host in document.hosts}
    shown = [
        f"host {number}" + (f" ({names[number]})" if names.get(number) else "") for number in numbers[:HOSTS_SHOWN]
    ]
    return ", ".join(shown) + (f" and {len(numbers) - HOSTS_SHOWN} more" if len(numbers) > HOSTS_SHOWN else "")


def cold_start(document: RunDocument | None) -> list[Headline]:
    if document is None or not declared_cold(document.declarations):
        return []
    first = milliseconds(document.metric("cold_start_latency"), "value")
    took = "" if first is None else f" (first token after {quantity(first)} ms)"
    return [Headline(f"COLD START{took}", "the target had just become ready and had received no earlier request")]


def special_states(document: RunDocument | None) -> list[Headline]:
    """A cold start, and a server that was profiled."""
    profiled = document is not None and document.control is not None and document.control.profiled
    return [*cold_start(document), *([PROFILED] if profiled else [])]


def verdict(document: RunDocument) -> Verdict:
    certificate = document.certificate or Certificate()
    word = certificate.verdict or NOT_JUDGED
    nothing = any(reason.code == "nothing_measured" for reason in certificate.reasons)
    meaning = NOTHING_MEASURED if nothing else MEANINGS.get(word, NO_MEANING)
    reasons = [
        VerdictReason(one.severity or "note", reason_text(one, document), remedy(one.code, one.cause))
        for one in reasons_of(document)
    ]
    competitors = certificate.host.competitors
    if competitors and any(one.cause == "host" for one in certificate.reasons):
        reasons.append(VerdictReason("note", f"also running: {', '.join(competitors)}"))
    return Verdict(word, meaning, reasons, "" if word in MEANINGS else "invalid")


def reasons_of(document: RunDocument) -> tuple[Reason, ...]:
    """Of the certificate, the most severe first."""
    found = () if document.certificate is None else document.certificate.reasons
    return tuple(sorted(found, key=lambda reason: SEVERITIES.get(reason.severity, 0)))


def reason_text(reason: Reason, document: RunDocument) -> str:
    """The sentence of a reason of the certificate, with the hosts that it is about, and its code."""
    text = coded(reason.code, reason.text) if reason.text and reason.code else reason.text or reason.code
    return f"{host_names(document, reason.hosts)}: {text}" if reason.hosts else text


def remedy(code: str | None, cause: str | None = "generator") -> str:
    """The remedy for a reason; empty for an unknown code."""
    if cause == "host" and code not in ("host_hiccups", "host_steal"):
        return REMEDY_OF_HOST if code in REMEDIES else ""
    if cause == "timestamps" and code in REMEDIES:
        return REMEDY_OF_TIMESTAMPS
    return REMEDIES.get(code or "", "")


def bad_seconds(certificate: Certificate) -> str | None:
    """The number of seconds of the window in which the client was bad, and the worst of them; None without any."""
    if not certificate.seconds.worst:
        return None
    seconds, first = certificate.seconds, certificate.seconds.worst[0]
    shown = [
        ("lag P99 {} ms", known(first.lag_p99_us), LAG_US, 1e-3),
        ("brackets P99 {} ms", known(first.bracket_p99_us), BRACKET_US, 1e-3),
        ("CPU {} %", known(first.cpu_share), CPU_SHARE, 100),
    ]
    each = ", ".join(
        text.format(quantity(value * scale))
        for text, value, limit, scale in shown
        if value is not None and value > limit
    )
    return f"{seconds.bad} of {seconds.n}, the worst at {first.at_s} s: {each}"


def p99_error(certificate: Certificate, metrics: Sequence[str]) -> tuple[float, float] | None:
    """(us, share) of P99 within which the first judged one of *metrics* is known; None where none was judged."""
    judged = (figure.p99 for name in metrics if (figure := certificate.figures.get(name)) is not None)
    found = next((p99 for p99 in judged if p99 is not None), StatisticBounds())
    value, share = known(found.value), known(found.error_share)
    return None if value is None or share is None else (value * share * 1e3, share)


def busiest_share(certificate: Certificate, workers: Collection[int] | None = None) -> float | None:
    """Share of a core that the busiest worker used, of all or of *workers*."""
    chosen = [each for each in certificate.workers if workers is None or each.worker in workers]
    return max((share for each in chosen if (share := known(each.cpu_share)) is not None), default=None)


def headroom_text(certificate: Certificate) -> str:
    if known(certificate.headroom) is None:
        return "n/a (run fastllmload calibrate)"
    return f"{quantity(certificate.headroom)} x this load"
