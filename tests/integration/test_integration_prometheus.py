"""`--prometheus`: during the run its counters and histograms can be read, in Prometheus' own text format."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from integration.bad_days import EMBEDDED, begin, run

parser = pytest.importorskip(
    "prometheus_client.parser", reason="without the extra `prometheus` no page of --prometheus is read during a run"
)
DOCUMENTED = Path(__file__).parents[2] / "docs" / "guides" / "prometheus.md"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def page(port: int) -> tuple[str, str]:
    """(content type, text) of the metrics page."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def families(text: str) -> dict[str, Any]:
    """The parser of Prometheus' own client refuses what is not its format."""
    return {family.name: family for family in parser.text_string_to_metric_families(text)}


def value(found: dict[str, Any], family: str, name: str, **labels: str) -> float:
    (one,) = [
        sample.value
        for sample in found[family].samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]
    return float(one)


def test_the_counters_grow_during_the_run(tmp_path: Path) -> None:
    """Two scrapes of the measured phase, and the run.json of the end: the same things, counted on."""
    port = free_port()
    one = begin(tmp_path / "run", "--rate", "60", "--duration", "5", *EMBEDDED, "--prometheus", str(port))
    try:
        one.until_answered()
        kind, text = page(port)
        assert kind.startswith("text/plain") and "version=" in kind
        first = families(text)
        sent = value(first, "fastllmload_requests_dispatched", "fastllmload_requests_dispatched_total", phase="measure")
        one.until(lambda: dispatched(port) > sent)
        second = families(page(port)[1])
        document = one.end().kept(0, "done")
    finally:
        one.kill()
    assert 0 < sent < document["counts"]["dispatched"]
    for family in second.values():
        check_histogram(family)
    ended = value(second, "fastllmload_requests", "fastllmload_requests_total", phase="measure", status="ok")
    assert 0 < ended <= document["counts"]["ok"]
    assert value(second, "fastllmload_asked_requests_per_second", "fastllmload_asked_requests_per_second") == 60.0
    documented = DOCUMENTED.read_text()
    assert [name for name in second if f"`{name}" not in documented] == []
    with pytest.raises(urllib.error.URLError):
        page(port)  # it went with the run


def dispatched(port: int) -> float:
    name = "fastllmload_requests_dispatched"
    return value(families(page(port)[1]), name, f"{name}_total", phase="measure")


def check_histogram(family: Any) -> None:
    """Cumulative buckets up to +Inf, which is the count."""
    if family.type != "histogram":
        return
    buckets = [sample for sample in family.samples if sample.name.endswith("_bucket")]
    counts = [sample.value for sample in buckets]
    assert counts == sorted(counts) and buckets[-1].labels["le"] == "+Inf", family.name
    (count,) = [sample.value for sample in family.samples if sample.name.endswith("_count")]
    assert counts[-1] == count, family.name


def test_a_port_that_is_taken_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = run(tmp_path / "run", "--rate", "60", "--duration", "2", *EMBEDDED, "--prometheus", port)
    ended.refused(2, f"--prometheus 127.0.0.1:{port} cannot be served", "address already in use")
