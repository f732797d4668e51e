"""Limits that the client sets to a comparison of two single runs: bounds of events' times, and a busy host that also ran
the server.
"""

from __future__ import annotations

from collections.abc import Sequence

from fastllmload.compare.change import Change
from fastllmload.compare.figure import ComparedFigure
from fastllmload.compare.side import RunRecord
from fastllmload.documents.certificate import Certificate
from fastllmload.documents.fields import known
from fastllmload.documents.run import RunDocument
from fastllmload.host.probe import is_loopback
from fastllmload.report.text.numbers import quantity

FIRST_TOKEN = ("ttft", "ttft_sched", "ttft_any")
LATE_HOST = "host_hiccups"  # reason of a certificate: a thread that only sleeps was late


def within_clocks(figure: ComparedFigure, base: RunDocument, new: RunDocument, change: Change) -> Change:
    """*change*, widened by the bounds of both runs' times; unchanged where a run.json does not have them."""
    old, fresh, value = figure.clocks(base), figure.clocks(new), figure.value(base)
    if old is None or fresh is None or value is None:
        return change
    return change.measured_within(fresh[0] + old[1], fresh[1] + old[0], value)


def starved_server(figure: ComparedFigure, runs: Sequence[RunRecord]) -> str | None:
    """Why the first token of single *runs* cannot be compared; None where it can.

    TTFT contains only a few waits for a processor, so on a busy host it varies far more from run to run than TPOT.
    """
    if figure.metric not in FIRST_TOKEN:
        return None
    for run in runs:
        certificate = run.document.certificate or Certificate()
        late = next((each for each in certificate.reasons if each.code == LATE_HOST), None)
        if late is not None and on_this_host(run.document):
            lateness = quantity((known(late.value) or 0.0) / 1000)
            return (
                f"the server of {run.folder} ran on the client's host, where other processes delayed it "
                f"(a thread that only sleeps was {lateness} ms late at P99); repeat on a quiet host, or 3 runs a side"
            )
    return None


def on_this_host(document: RunDocument) -> bool:
    """Whether every address of the target is a loopback one, or a Unix socket."""
    addresses = document.target.addresses
    local = bool(addresses) and all(map(is_loopback, addresses))
    return local or document.config.target.unix_socket is not None
