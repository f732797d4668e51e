"""Computes how much of the local ports and file descriptors a run used; a port is used once per address and target."""

from __future__ import annotations

from urllib.parse import urlsplit

import numpy as np

from fastllmload.certificate.evidence import CertificateEvidence
from fastllmload.documents.certificate import PortUsage
from fastllmload.records import layout
from fastllmload.records.run import Run

Address = tuple[str, int]  # numeric address, port


def largest_target_share(run: Run) -> float | None:
    """The largest share of the connections to one target address, by the total duration of its requests (Little's law); 1
    where it is not known. None where all targets are Unix sockets, which use no ports.
    """
    target = run.document.target
    addresses = [address_of(url, str(at)) for url, at in zip(target.urls, target.addresses, strict=False)]
    if not addresses:
        return 1.0
    if not any(addresses):
        return None
    rows = run.rows[(run.rows["phase"] == layout.MEASURE) & (run.rows["t_dispatch"] > 0) & (run.rows["t_end"] > 0)]
    selected = rows[rows["url"] < len(addresses)]
    durations = np.bincount(
        selected["url"], (selected["t_end"] - selected["t_dispatch"]).astype(np.float64), len(addresses)
    )
    totals: dict[Address, float] = {}
    for address, seconds in zip(addresses, durations.tolist(), strict=True):
        if address is not None:
            totals[address] = totals.get(address, 0.0) + seconds
    return max(totals.values()) / float(durations.sum()) if max(totals.values()) > 0 else 1.0


def address_of(url: str, address: str) -> Address | None:
    """Numeric address and port of *url*; None for a Unix socket, whose address is a path."""
    if "/" in address:
        return None
    parts = urlsplit(url)
    return address, parts.port or (443 if parts.scheme == "https" else 80)


def ports(evidence: CertificateEvidence) -> PortUsage:
    """Of all workers; the headroom of descriptors (limit over used) is that of the worker with the least."""
    available = evidence.host.ports
    open_at_once = [worker.connections_max for worker in evidence.workers if worker.connections_max is not None]
    used = sum(open_at_once)
    headrooms = [
        worker.fd_limit / worker.connections_max
        for worker in evidence.workers
        if worker.fd_limit is not None and worker.connections_max
    ]
    return PortUsage(
        connections_max=used if open_at_once else None,
        fd_headroom=min(headrooms) if headrooms else None,
        ports=available,
        port_headroom=available / used if available is not None and used else None,
        no_fd=evidence.no_fd,
        no_port=evidence.no_port,
    )
