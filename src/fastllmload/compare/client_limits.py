"""Limits that the client sets to a comparison of two single runs: bounds of events' times, and a busy host that also ran
the server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastllmload.compare.change import Change
from fastllmload.compare.figure import ComparedFigure
from fastllmload.compare.side import RunRecord
from fastllmload.host.probe import is_loopback
from fastllmload.report.text.numbers import quantity

FIRST_TOKEN = ("ttft", "ttft_sched", "ttft_any")
LATE_HOST = "host_hiccups"  # reason of a certificate: a thread that only sleeps was late


def within_clocks(figure: ComparedFigure, base: Mapping[str, Any], new: Mapping[str, Any], change: Change) -> Change:
    """*change*, widened by the bounds of both runs' times; unchanged where a run.json does not have them."""
    known, value = [figure.clocks(document) for document in (base, new)], figure.value(base)
    if known[0] is None or known[1] is None or value is None:
        return change
    return change.measured_within(known[1][0] + known[0][1], known[1][1] + known[0][0], value)


def starved_server(figure: ComparedFigure, runs: Sequence[RunRecord]) -> str | None:
    """Why the first token of single *runs* cannot be compared; None where it can.

    TTFT contains only a few waits for a processor, so on a busy host it varies far more from run to run than TPOT.
    """
    if figure.metric not in FIRST_TOKEN:
        return None
    for run in runs:
        late = next((each for each in _reasons(run.document) if each.get("code") == LATE_HOST), None)
        if late is not None and on_this_host(run.document):
            lateness = quantity(float(late.get("value") or 0.0) / 1000)
            return (
                f"the server of {run.folder} ran on the client's host, where other processes delayed it "
                f"(a thread that only sleeps was {lateness} ms late at P99); repeat on a quiet host, or 3 runs a side"
            )
    return None


def on_this_host(document: Mapping[str, Any]) -> bool:
    """Whether every address of the target is a loopback one, or a Unix socket."""
    target = document.get("target") or {}
    addresses = target.get("addresses") or ()
    socket = ((document.get("config") or {}).get("target") or {}).get("unix_socket")
    return socket is not None or (bool(addresses) and all(is_loopback(str(each)) for each in addresses))


def _reasons(document: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return (document.get("certificate") or {}).get("reasons") or ()
