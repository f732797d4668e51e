"""How much of a run's connections goes to one place: local ports are used once per source address and place."""

from __future__ import annotations

from urllib.parse import urlsplit

import numpy as np

from fastllmload.certificate.evidence import CertificateEvidence, Figures
from fastllmload.records import layout
from fastllmload.records.run import Run

Place = tuple[str, int]  # numeric address, port


def crowded_share(run: Run) -> float | None:
    """The largest part of the connections that one place had, by the time that its requests took (Little's law); 1
    where the run does not tell. None where all places are Unix sockets, which use no ports.
    """
    target = run.manifest.get("target") or {}
    places = [
        place_of(url, str(at)) for url, at in zip(target.get("urls", ()), target.get("addresses", ()), strict=False)
    ]
    if not places:
        return 1.0
    if not any(places):
        return None
    rows = run.rows[(run.rows["phase"] == layout.MEASURE) & (run.rows["t_dispatch"] > 0) & (run.rows["t_end"] > 0)]
    mine = rows[rows["url"] < len(places)]
    held = np.bincount(mine["url"], (mine["t_end"] - mine["t_dispatch"]).astype(np.float64), len(places))
    parts: dict[Place, float] = {}
    for place, seconds in zip(places, held.tolist(), strict=True):
        if place is not None:
            parts[place] = parts.get(place, 0.0) + seconds
    return max(parts.values()) / float(held.sum()) if max(parts.values()) > 0 else 1.0


def place_of(url: str, address: str) -> Place | None:
    """Where *url* was found; None for a Unix socket, whose address is a path."""
    if "/" in address:
        return None
    parts = urlsplit(url)
    return address, parts.port or (443 if parts.scheme == "https" else 80)


def ports(evidence: CertificateEvidence) -> Figures:
    """fd_limit, connections_max, fd_headroom (limit over used, tightest worker); ports, port_headroom; no_fd,
    no_port.
    """
    available = evidence.host.ports
    open_at_once = [worker.connections_max for worker in evidence.workers if worker.connections_max is not None]
    used = sum(open_at_once)
    tightest = [
        worker.fd_limit / worker.connections_max
        for worker in evidence.workers
        if worker.fd_limit is not None and worker.connections_max
    ]
    return {
        "connections_max": used if open_at_once else None,
        "fd_headroom": min(tightest) if tightest else None,
        "ports": available,
        "port_headroom": available / used if available is not None and used else None,
        "no_fd": evidence.no_fd,
        "no_port": evidence.no_port,
    }
