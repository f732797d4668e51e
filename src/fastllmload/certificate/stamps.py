"""How the receive times of the window came about: by the kernel, by the process, or as bounds of a coalesced read."""

from __future__ import annotations

from fastllmload.certificate.evidence import Stamps


def stamp_figures(stamps: Stamps) -> dict[str, float | int | str | None]:
    """timestamp_source (tap, kernel, user, mixed, none) and the shares of the classes among the window's events that carry
    text.

    `kernel_share` is of the events that are not coalesced; `bounded_share` is of all events: an exact stamp of the kernel or
    the packet ring, or an interval that holds the truth.
    """
    n, own = stamps.events, stamps.user + stamps.kernel
    return {
        "timestamp_source": source(stamps),
        "events": n,
        "kernel_share": stamps.kernel / own if own else None,
        "bounded_share": (stamps.tap + stamps.kernel + stamps.coalesced) / n if n else None,
        "coalesced_read_share": stamps.coalesced / n if n else None,
        "batched_share": stamps.batched / n if n else None,
        "clamped": stamps.clamped,
        "clamped_share": stamps.clamped / stamps.requests if stamps.requests else None,
    }


def source(stamps: Stamps) -> str:
    """A coalesced event has its read's stamp, so it speaks for no source."""
    counts = {"tap": stamps.tap, "kernel": stamps.kernel, "user": stamps.user}
    most = max(counts.values())
    if most == 0:
        return "none" if not stamps.coalesced else stamps.asked
    better = counts["tap"] + (0 if stamps.tap else counts["kernel"])
    if stamps.user > better / 1000:
        return "mixed" if better else "user"
    if stamps.tap:
        return "mixed" if stamps.kernel > stamps.tap / 1000 else "tap"
    return "kernel"
