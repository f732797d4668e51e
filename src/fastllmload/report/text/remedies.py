"""Reasons of the certificate as a list, and what to do about each, one sentence each."""

from __future__ import annotations

from fastllmload.documents.run import RunDocument

GENERATOR = {
    "nothing_measured": "See the errors for what the target answered, and run again once it answers requests.",
    "no_releases": "Run longer, or raise the rate: the window must hold some requests.",
    "no_samples": "Run longer than a second, and see the files of the run folder for what ended the worker.",
    "schedule_lag": "Give the client its own cores (--workers, --pin), or spread the rate over more hosts.",
    "late_release": "Give the client its own cores (--pin) and stop other programs on this host.",
    "early_release": "Check this host's clock (fastllmload doctor) and report this as a bug.",
    "drift": "Lower the rate or add workers: the client cannot keep up for long.",
    "rate": "Lower the rate or add workers, and run again.",
    "capped": "Raise --max-concurrency, or run a closed loop (--concurrency).",
    "schedule_shape": "Draw another schedule with --seed; if this recurs, check the trace or the rate file.",
    "quantised_sends": "Leave --spin-budget at its default and give the client its own core.",
    "clumped_sends": "Give the client its own core (--pin) so that it wakes in time.",
    "dispersion": "Give the client its own core (--pin) and stop other programs on this host.",
    "worker_died": "See the incidents below for what ended it, and run again.",
    "gc": "Report this as a bug: garbage collection is off during a run.",
    "cpu": "Add workers (--workers) or hosts: this one had no capacity left.",
    "worker_stall": "Give the client its own cores (--pin) and run again.",
    "user_stamps_late": "Use --timestamps kernel, or add workers (--workers).",
    "kernel_stamps_missing": "Run fastllmload doctor: it tests whether this kernel stamps what it receives.",
    "coalesced": "Use --timestamps tap where it is permitted; else see the error bounds of the figures.",
    "batched_delivery": "Enable TCP_NODELAY or unbuffered streaming at the server and its proxies.",
    "clamped": "Nothing: the server answered before the complete request was sent.",
    "clock_step": "Configure time synchronization to slew the clock, not step it, and run again.",
    "host_hiccups": "Use a host that is not shared, or stop other programs on it.",
    "host_steal": "Use a host with dedicated CPUs.",
    "run_queue": "Stop other programs on this host, or pin the client to free cores (--pin).",
    "no_fd": "Raise the limit of open files (ulimit -n) and run again; see fastllmload doctor.",
    "no_port": "Add source addresses (--source-address) or target addresses; see fastllmload doctor.",
    "fd_headroom": "Raise the limit of open files (ulimit -n).",
    "port_headroom": "Add source addresses (--source-address) or target addresses.",
    "disk_full": "Free space on the disk of the run folder, or use a faster disk, and run again.",
    "uncertain_figure": "Give the client its own cores (--pin), or use --timestamps tap, and run again.",
    "headroom": "Add workers or hosts before you report this as the target's capacity.",
}
TIMESTAMPS = (
    "Use --timestamps tap, which needs CAP_NET_RAW (fastllmload doctor): it stamps each segment when it arrives."
)
HOST = "The host stalled: use a host that is not shared, stop other programs on it, and run again."


def remedy(code: str | None, cause: str | None = "generator") -> str:
    """The remedy for a reason; empty for an unknown code."""
    if cause == "host" and code not in ("host_hiccups", "host_steal"):
        return HOST if code in GENERATOR else ""
    if cause == "timestamps" and code in GENERATOR:
        return TIMESTAMPS
    return GENERATOR.get(code or "", "")


def codes(document: RunDocument) -> set[str]:
    """Codes of the certificate's reasons."""
    return set() if document.certificate is None else {reason.code for reason in document.certificate.reasons}
