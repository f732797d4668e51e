"""What the warm-up says of the target before anything is measured: which of its requests failed, and whether there is
still anybody there (decision 093).
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fastllmload.engine.workers.spec import TargetSpec
from fastllmload.report.text.failing_urls import places
from fastllmload.report.text.numbers import count, errors

CONNECT_S = 2.0  # the target took the preflight's connections moments ago
FAMILIES = {"inet": socket.AF_INET, "inet6": socket.AF_INET6, "unix": socket.AF_UNIX}


@dataclass(frozen=True)
class WarmUpCheck:
    """Requests of the warm-up. *classes*: of the failed ones by class of error; *failed_at*: by URL, where there are
    several.
    """

    ended: int
    failed: int
    classes: Mapping[str, int]
    failed_at: Mapping[str, int] | None = None

    def sentence(self, silent: Sequence[str] = ()) -> str | None:
        """None where nothing failed. *silent*: the URLs, where none of them takes a connection any more."""
        if not self.failed:
            return None
        many = (
            f"all {count(self.ended)}"
            if self.failed == self.ended
            else f"{count(self.failed)} of the {count(self.ended)}"
        )
        where = places(self.failed_at)
        what = errors(dict(self.classes)) + (f"; at {where}" if where else "")
        failed = f"{many} warm-up requests failed ({what})"
        if silent:
            return (
                f"{failed}, and {', '.join(silent)} {'takes' if len(silent) == 1 else 'take'} no connection any more: "
                "the measurement was not begun; is the server up?"
            )
        return f"{failed}; the measurement goes on"


def deserted(targets: Sequence[TargetSpec], source: str | None = None) -> list[str]:
    """The URLs of *targets* where none of them takes a connection; empty where one does. *source*: where from."""
    if any(takes_connections(target, source) for target in targets):
        return []
    return list(dict.fromkeys(target.url for target in targets))


def takes_connections(target: TargetSpec, source: str | None) -> bool:
    """The kernel's answer is enough: what the server says is the measurement's business."""
    local = target.family == "unix"
    with socket.socket(FAMILIES[target.family], socket.SOCK_STREAM) as knock:
        knock.settimeout(CONNECT_S)
        try:
            if source is not None and not local:
                knock.bind((source, 0))
            knock.connect(target.address if local else (target.address, target.port))
        except OSError:
            return False
    return True
