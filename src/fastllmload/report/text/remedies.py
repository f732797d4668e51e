"""What to do about each reason of the certificate, in one sentence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fastllmload.report.documents import results
from fastllmload.report.text.tables import escaped

GENERATOR = {
    "nothing_measured": "See in the errors what the target answered, and run again once it answers.",
    "no_releases": "Run longer, or raise the rate: the window must hold some requests.",
    "no_samples": "Run longer than a second, and look in the run folder for what ended the worker.",
    "schedule_lag": "Give the client cores of its own (--workers, --pin), or spread the rate over more hosts.",
    "late_release": "Give the client cores of its own (--pin) and stop what else runs on this host.",
    "early_release": "Check this host's clock (fastllmload doctor) and report it: this must not happen.",
    "drift": "Lower the rate or add workers: the client cannot keep up for long.",
    "rate": "Lower the rate or add workers, and send again.",
    "capped": "Raise --max-concurrency, or call the run a closed loop (--concurrency).",
    "schedule_shape": "Draw another schedule with --seed; if it comes back, check the trace or the rate file.",
    "quantised_sends": "Leave --spin-budget at its default and give the client a core of its own.",
    "clumped_sends": "Give the client a core of its own (--pin) so that it wakes in time.",
    "dispersion": "Give the client a core of its own (--pin) and stop what else runs on this host.",
    "worker_died": "Look at the incidents below for what ended it, and send again.",
    "gc": "Report it: collections are off while the clock runs.",
    "cpu": "Add workers (--workers) or hosts: this one had no room left.",
    "worker_stall": "Give the client cores of its own (--pin) and send again.",
    "user_stamps_late": "Use --timestamps kernel, or give the client more room (--workers).",
    "kernel_stamps_missing": "Nothing, if the target has TLS or a proxy library; else see fastllmload doctor.",
    "coalesced": "Use --timestamps tap where it is permitted; else see how far the figures may be away.",
    "batched_delivery": "Switch TCP_NODELAY or unbuffered streaming on at the server and its proxies.",
    "clamped": "Nothing: the server answered before the whole request was out.",
    "clock_step": "Let the clock be slewed, not stepped, and send again.",
    "host_hiccups": "Use a host that is not shared, or stop what else runs on it.",
    "host_steal": "Use a host whose CPUs are its own.",
    "run_queue": "Stop what else runs on this host, or pin the client to free cores (--pin).",
    "no_fd": "Raise the limit of open files (ulimit -n) and send again; see fastllmload doctor.",
    "no_port": "Add source addresses (--source-address) or target addresses; see fastllmload doctor.",
    "fd_headroom": "Raise the limit of open files (ulimit -n).",
    "port_headroom": "Add source addresses (--source-address) or target addresses.",
    "disk_full": "Free room on the disk of the run folder, or take a quicker one, and send again.",
    "uncertain_figure": "Give the client cores of its own (--pin), or use --timestamps tap, and send again.",
    "headroom": "Add workers or hosts before you call this the target's capacity.",
}
TIMESTAMPS = (
    "Use --timestamps tap, which needs CAP_NET_RAW (fastllmload doctor): it stamps each segment when it comes in."
)
HOST = "The whole host stalled: use one that is not shared, stop what else runs on it, and send again."


def remedy(code: object, cause: object = "generator") -> str:
    """Empty for a code that is not known."""
    if cause == "host" and code not in ("host_hiccups", "host_steal"):
        return HOST if code in GENERATOR else ""
    if cause == "timestamps" and code in GENERATOR:
        return TIMESTAMPS
    return GENERATOR.get(code, "") if isinstance(code, str) else ""


def codes(document: Mapping[str, Any]) -> set[object]:
    """Codes of the certificate's reasons."""
    found = (document.get("certificate") or {}).get("reasons") or ()
    return {each.get("code") for each in found if isinstance(each, Mapping)}


def reason_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """The certificate's reasons as a list."""
    found = list(results.reasons(document))
    if found:
        yield ""
    for severity, text in found:
        yield f"* {'note: ' if severity == 'note' else ''}{escaped(text)}"
