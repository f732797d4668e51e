"""The figures of the certificate that the verdict on the client is based on."""

from __future__ import annotations

from collections.abc import Sequence

from fastllmload.documents.certificate import Certificate, ScheduleLag
from fastllmload.documents.fields import Number, known
from fastllmload.report.blocks import Code, Facts, Text
from fastllmload.report.run_page.context import ReportContext
from fastllmload.report.text.numbers import NOT_KNOWN, count, duration, percent, quantity
from fastllmload.report.text.tokens import gap_name, has_tokens, headlines
from fastllmload.report.text.traffic import closed_class_text, mixes_loops, of_open_loops
from fastllmload.report.text.verdict import ERRORS, bad_seconds, busiest_share, p99_error

SHORT = {"ttft_any": "TTFT of any token", "tbc": "time between chunks", "itl_b": "ITL (B)"}


def evidence(context: ReportContext) -> Facts | None:
    """None without a certificate."""
    certificate = context.document.certificate
    if certificate is None:
        return None
    closed = context.document.plan.description.load.loop == "closed"
    lag = certificate.schedule_lag_us or ScheduleLag()
    host, source = certificate.host, certificate.timestamp_source or NOT_KNOWN
    of = f" of {count(lag.n)} requests{of_open_loops(context.document)}" if mixes_loops(context.document) else ""
    slots = {f"Slots of {name}": closed_class_text(one) for name, one in certificate.closed_classes.items()}
    rows: dict[str, Text] = {
        "Turn-around" if closed else "Release lag": f"P50 {us(lag.p50)}, P99 {us(lag.p99)}, max {us(lag.max)}{of}",
        "Rate": f"planned {_rate(certificate.planned_rate)}, sent {_rate(certificate.offered_rate)}"
        + of_open_loops(context.document),
        **slots,
        "P99 is known within": ", ".join(
            f"{SHORT.get(gap_name(context.document, name), name.upper())} {_within(certificate, ERRORS[name])}"
            for name in headlines(context.document, tuple(ERRORS))
        ),
        "Stamps": f"{source}; {percent(certificate.batched_share)} of tokens arrived with the previous one"
        if has_tokens(context.document)
        else source,
        "Busiest worker": _busiest(certificate),
        "Bad seconds": bad_seconds(certificate) or "none",
        "Headroom": _headroom(certificate),
        "Host": f"steal {percent(host.steal_share)}, longest stall {us(host.hiccup_max_us)}",
    }
    if closed:
        rows["Rate"] = f"sent {_rate(certificate.offered_rate)}"
    return Facts(list(rows.items()))


def us(given: Number) -> str:
    """A duration given in us."""
    value = known(given)
    return NOT_KNOWN if value is None else duration(value / 1e3)


def _rate(given: Number) -> str:
    rate = quantity(given)
    return rate if rate == NOT_KNOWN else f"{rate}/s"


def _within(certificate: Certificate, metrics: Sequence[str]) -> str:
    """Error bound of P99 of the first of *metrics* that was judged."""
    found = p99_error(certificate, metrics)
    return us(None if found is None else found[0])


def _busiest(certificate: Certificate) -> str:
    workers, share = len(certificate.workers), busiest_share(certificate)
    of = f" (of {workers})" if workers > 1 else ""
    return NOT_KNOWN if share is None else f"{percent(share)} of its core{of}"


def _headroom(certificate: Certificate) -> Text:
    value = known(certificate.headroom)
    if value is None:
        return ("not known; measure it with ", Code("fastllmload calibrate"))
    return f"{value:.3g} times the peak load"
