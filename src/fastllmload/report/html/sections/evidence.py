"""The figures of the certificate that the verdict on the client is based on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastllmload.documents.certificate import Certificate
from fastllmload.report.html.charts.scales import duration
from fastllmload.report.html.context import ReportContext, number, part
from fastllmload.report.html.markup import Markup, element, joined, visible
from fastllmload.report.terminal.summary import ERRORS, bad_seconds, gap_name
from fastllmload.report.text.numbers import NOT_KNOWN, percent, quantity
from fastllmload.report.text.reasoning import headlines

SHORT = {"ttft_any": "TTFT of any token", "tbc": "time between chunks", "itl_b": "ITL (B)"}
LAGS = {"p50": "P50", "p99": "P99", "max": "max"}


def evidence(context: ReportContext) -> Markup | None:
    """None without a certificate."""
    certificate = context.get("certificate")
    if not isinstance(certificate, Mapping):
        return None
    closed = context.get("plan", "description", "load", "loop") == "closed"
    lag = part(certificate, "schedule_lag_us")
    host, source = part(certificate, "host"), visible(certificate.get("timestamp_source") or NOT_KNOWN, 20)
    rows: dict[str, str | Markup] = {
        "Turn-around" if closed else "Release lag": ", ".join(f"{label} {us(lag, k)}" for k, label in LAGS.items()),
        "Rate": f"planned {_rate(certificate, 'planned_rate')}, sent {_rate(certificate, 'offered_rate')}",
        "P99 is known within": ", ".join(
            f"{SHORT.get(gap_name(context.document, name), name.upper())} {_within(certificate, ERRORS[name])}"
            for name in headlines(context.document, tuple(ERRORS))
        ),
        "Stamps": f"{source}; {percent(certificate.get('batched_share'))} of tokens arrived with the previous one",
        "Busiest worker": _busiest(certificate),
        "Bad seconds": bad_seconds(context.document.certificate or Certificate()) or "none",
        "Headroom": _headroom(certificate),
        "Host": f"steal {percent(part(host, 'steal_share'))}, longest stall {us(host, 'hiccup_max_us')}",
    }
    if closed:
        rows["Rate"] = f"sent {_rate(certificate, 'offered_rate')}"
    pairs = (joined(element("dt", name), element("dd", text)) for name, text in rows.items())
    return element("dl", *pairs, class_="evidence")


def us(found: object, key: str) -> str:
    """A duration given in us."""
    value = number(part(found, key))
    return NOT_KNOWN if value is None else duration(value / 1e3)


def _rate(certificate: Mapping[str, Any], key: str) -> str:
    rate = quantity(certificate.get(key))
    return rate if rate == NOT_KNOWN else f"{rate}/s"


def _within(certificate: Mapping[str, Any], metrics: Sequence[str]) -> str:
    """Error bound of P99 of the first of *metrics* that was judged."""
    found = next((p99 for name in metrics if (p99 := part(certificate, "figures", name, "p99")) is not None), None)
    value, share = number(part(found, "value")), number(part(found, "error_share"))
    return NOT_KNOWN if value is None or share is None else duration(value * share)


def _busiest(certificate: Mapping[str, Any]) -> str:
    workers = certificate.get("workers")
    shares = [number(part(worker, "cpu_share")) for worker in workers] if isinstance(workers, list) else []
    known = [share for share in shares if share is not None]
    of = f" (of {len(shares)})" if len(shares) > 1 else ""
    return f"{percent(max(known))} of its core{of}" if known else NOT_KNOWN


def _headroom(certificate: Mapping[str, Any]) -> str | Markup:
    value = number(certificate.get("headroom"))
    if value is None:
        return joined("not known; measure it with ", element("code", "fastllmload calibrate"))
    return f"{value:.3g} times the peak load"
