"""Checks after the warm-up which requests failed, and whether the target takes connections (docs/running.md)."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fastllmload.engine.workers.spec import TargetSpec
from fastllmload.report.text.failures import errors, failed_counts
from fastllmload.report.text.numbers import count

CONNECT_S = 2.0  # the target took the preflight's connections moments ago
FAMILIES = {"inet": socket.AF_INET, "inet6": socket.AF_INET6, "unix": socket.AF_UNIX}


@dataclass(frozen=True)
class WarmUpCheck:
    """Requests of the warm-up. *classes*: failed ones by class of error; *failed_at*: by URL, if there are several."""

    ended: int
    failed: int
    classes: Mapping[str, int]
    failed_at: Mapping[str, int] | None = None

    def sentence(self, lost: Sequence[str] = ()) -> str | None:
        """None when nothing failed. *lost*: the URLs, when none of them takes connections any more."""
        if not self.failed:
            return None
        many = (
            f"all {count(self.ended)}"
            if self.failed == self.ended
            else f"{count(self.failed)} of the {count(self.ended)}"
        )
        where = failed_counts(self.failed_at)
        what = errors(dict(self.classes)) + (f"; at {where}" if where else "")
        failed = f"{many} warm-up requests failed ({what})"
        if lost:
            return (
                f"{failed}, and {', '.join(lost)} no longer {'accepts' if len(lost) == 1 else 'accept'} connections: "
                "the measurement was not started; is the server up?"
            )
        return f"{failed}; the measurement continues"


def unreachable(targets: Sequence[TargetSpec], source: str | None = None) -> list[str]:
    """The URLs of *targets* if none of them takes a connection; empty if one does. *source*: local address to use."""
    if any(takes_connections(target, source) for target in targets):
        return []
    return list(dict.fromkeys(target.url for target in targets))


def takes_connections(target: TargetSpec, source: str | None) -> bool:
    """Whether *target* accepts a TCP or Unix connection; no request is sent."""
    local = target.family == "unix"
    with socket.socket(FAMILIES[target.family], socket.SOCK_STREAM) as trial:
        trial.settimeout(CONNECT_S)
        try:
            if source is not None and not local:
                trial.bind((source, 0))
            trial.connect(target.address if local else (target.address, target.port))
        except OSError:
            return False
    return True
