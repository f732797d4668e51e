"""Room that was left in the two things a client runs out of first: file descriptors and ephemeral ports."""

from __future__ import annotations

from fastllmload.certificate.evidence import Evidence, Figures


def ports(evidence: Evidence) -> Figures:
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
