"""Tables of the hosts of a run over many, and of the network interfaces that carried the load: of many the worst."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from fastllmload.certificate.usage import lost_share, peak_share
from fastllmload.documents.certificate import Certificate, ScheduleLag
from fastllmload.documents.fields import WITHHELD, Number, known
from fastllmload.documents.run import RunDocument
from fastllmload.documents.run_parts.hosts import HostEntry, InterfaceUse
from fastllmload.report.blocks import Cell, Table
from fastllmload.report.text.numbers import NOT_KNOWN, count, percent, quantity
from fastllmload.report.text.traffic import total
from fastllmload.report.text.verdict import NOT_JUDGED, busiest_share

MOST_HOSTS = 16  # that are shown; interfaces likewise
MOST_CODES = 2  # of the reasons of a host
HOST_HEAD = (
    "Host", "Requests", "TTFT P50 (ms)", "Lag P99 (us)", "Busiest worker", "Steal", "Network (of link)", "Clock within (us)",
    "Verdict",
)  # fmt: skip
INTERFACE_HEAD = (
    "Interface", "Link (Gbit/s)", "Received (MB)", "Sent (MB)", "Packets", "Lost packets", "Busiest second (MB/s)",
    "Of the link",
)  # fmt: skip
RANK = {"invalid": 0, NOT_JUDGED: 1, "suspect": 2, "valid": 3}


def host_table(document: RunDocument, title: str = "") -> Table | None:
    """One row per host, of many the worst; None for a run of one."""
    rows = [_host_row(document, host) for host in shown_hosts(document)]
    rest = other_hosts(document)
    return Table(title, HOST_HEAD, rows, [rest] if rest else []) if rows else None


def shown_hosts(document: RunDocument) -> Sequence[HostEntry]:
    """All hosts by number where they are at most MOST_HOSTS; else that many of them, the worst first."""
    if len(document.hosts) <= MOST_HOSTS:
        return document.hosts

    def badness(host: HostEntry) -> tuple[int, bool, float]:
        lag = (host.certificate or Certificate()).schedule_lag_us or ScheduleLag()
        return RANK.get(own_verdict(host), 0), host.host not in document.excluded_hosts, -(known(lag.p99) or 0.0)

    return sorted(document.hosts, key=badness)[:MOST_HOSTS]


def other_hosts(document: RunDocument) -> str | None:
    """A sentence about the hosts that `shown_hosts` leaves out; None where there are none."""
    numbers = {host.host for host in shown_hosts(document)}
    rest = [host for host in document.hosts if host.host not in numbers]
    if not rest:
        return None
    verdicts = Counter(host_verdict(document, host) for host in rest)
    lag = greatest(((host.certificate or Certificate()).schedule_lag_us or ScheduleLag()).p99 for host in rest)
    busiest = [busiest_share(document.certificate or Certificate(), host.workers) for host in rest]
    words = ", ".join(f"{many} {word}" for word, many in verdicts.items())
    return (
        f"{count(len(rest))} more hosts in run.json: {words}; lag P99 at most {quantity(lag)} us, "
        f"busiest worker at most {percent(greatest(busiest))}"
    )


def greatest(values: Iterable[Number]) -> float | None:
    return max((found for value in values if (found := known(value)) is not None), default=None)


def _host_row(document: RunDocument, host: HostEntry) -> list[Cell]:
    certificate, run = host.certificate or Certificate(), document.certificate or Certificate()
    lag = certificate.schedule_lag_us or ScheduleLag()
    return [
        f"{host.host} {host.name or ''}".rstrip(),
        percent(host.share),
        quantity(host.ttft_p50_ms),
        quantity(lag.p99),
        percent(busiest_share(run, host.workers)),
        percent(host.watch.steal_share),
        network_text(certificate),
        quantity(clock_bound_us(host)),
        judgement(document, host),
    ]


def clock_bound_us(host: HostEntry) -> float | None:
    bound = None if host.clock is None else known(host.clock.bound_ns)
    return None if bound is None else bound / 1e3


def network_text(certificate: Certificate) -> str:
    """`12.0 %`: the busiest second of a link; with packets that were lost `12.0 %, 0.0500 % lost`."""
    lost = known(certificate.network.lost_share)
    return percent(certificate.network.peak_share) + (f", {quantity(100 * lost)} % lost" if lost else "")


def interface_table(document: RunDocument, title: str = "") -> Table | None:
    """The network interfaces that carried the load, the worst first; None where none is known."""
    of_run = [("", each) for each in document.watch.interfaces]
    found = of_run or [
        (f"{host.host} {host.name or ''}".rstrip(), one) for host in document.hosts for one in host.watch.interfaces
    ]
    found.sort(key=lambda each: (-(lost_share(each[1]) or 0.0), -(peak_share(each[1]) or 0.0)))
    rows = [[*([host] if document.hosts else []), *_interface_row(one)] for host, one in found[:MOST_HOSTS]]
    columns = [*(["Host"] if document.hosts else []), *INTERFACE_HEAD]
    left_out = len(found) - len(rows)
    return (
        Table(title, columns, rows, [f"{count(left_out)} more interfaces in run.json"] if left_out else [])
        if rows
        else None
    )


def _interface_row(one: InterfaceUse) -> list[Cell]:
    packets = (one.rx_packets, one.tx_packets)
    lost = (one.rx_dropped, one.rx_errors, one.tx_dropped, one.tx_errors)
    peaks = (one.peak_rx_bytes_per_s, one.peak_tx_bytes_per_s)
    return [
        one.name or NOT_KNOWN,
        quantity(scaled(one.speed_bits_per_s, 1e9)),
        quantity(scaled(one.rx_bytes, 1e6)),
        quantity(scaled(one.tx_bytes, 1e6)),
        count(total(packets)),
        count(total(lost)),
        quantity(WITHHELD if WITHHELD in peaks else scaled(greatest(peaks), 1e6)),
        percent(peak_share(one)),
    ]


def scaled(value: Number, unit: float) -> Number:
    found = known(value)
    return value if found is None else found / unit


def host_verdict(document: RunDocument, host: HostEntry) -> str:
    """`invalid (lost)`, or that the host is excluded."""
    if host.host in document.excluded_hosts:
        return "excluded"
    word = own_verdict(host)
    return word if host.status in (None, "ended") else f"{word} ({host.status})"


def judgement(document: RunDocument, host: HostEntry) -> str:
    """Its verdict with the codes of the reasons, the first MOST_CODES: `suspect [nic_losses, uneven_ttft and 2 more]`."""
    found = (
        [] if host.certificate is None else [reason for reason in host.certificate.reasons if reason.severity != "note"]
    )
    codes = list(dict.fromkeys(reason.code for reason in found))
    rest = f" and {len(codes) - MOST_CODES} more" if len(codes) > MOST_CODES else ""
    named = f" [{', '.join(codes[:MOST_CODES])}{rest}]" if codes else ""
    return f"{host_verdict(document, host)}{named}"


def own_verdict(host: HostEntry) -> str:
    return NOT_JUDGED if host.certificate is None else host.certificate.verdict or NOT_JUDGED
