"""Every fault of TLS against the real reactor: what is recorded is what was done, in handshakes and in replies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from certificates import HERE, certificate, needs_openssl
from ext.reactor_drive import HEAD, Outcome, drive
from fault.test_fault_catalogue import BODY, OK, REQUESTS, TOKENS

from fastllmload._ext.record import counters as k
from fastllmload._ext.tls.session import TlsContext
from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions
from fastllmload.simulator.truth import FLAGS, load

pytestmark = needs_openssl


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    cert, key = certificate(tmp_path_factory.mktemp("tls"), "server")
    return {"tls_cert": str(cert), "tls_key": str(key)}


@pytest.fixture(scope="module")
def port(files: dict[str, str]) -> Iterator[int]:
    with SimulatorProcess(SimulatorOptions(ttft_ms=5.0, itl_ms=3.0, phase="spread", **files)) as server:
        yield server.port


def faulty(directory: Path, port: int, ca: str, fault: str = "", requests: int = REQUESTS, **options: Any) -> Outcome:
    tls = options.pop("tls", None) or TlsContext(cacert=ca, protocols=("http/1.1",))
    head = HEAD + (b"X-Fault: %s\r\n" % fault.encode() if fault else b"")
    given = {"gaps_ms": [20.0] * requests, "preconnect": 0, "timeout_s": 20.0} | options
    return drive(directory, ("127.0.0.1", port), body=BODY, head=head, tls=tls, **given)


@pytest.mark.parametrize(
    "fault",
    ["", "split", "coalesce:4", "slow_head:30", "stall:30", "drip:1", "crlf", "comments", "until_close", "content_length",
     "huge_event:200000"],
)  # fmt: skip
def test_odd_but_right_streams_are_successes(tmp_path: Path, port: int, files: dict[str, str], fault: str) -> None:
    """Whatever the records are cut into, all tokens are there, in time order."""
    requests = 1 if fault.startswith("drip") else REQUESTS
    outcome = faulty(tmp_path, port, files["tls_cert"], fault, requests)
    assert outcome.statuses() == {OK: requests}
    assert set(outcome.rows["content_events"]) == {TOKENS + fault.startswith("huge_event")}
    assert set(outcome.rows["completion_tokens"]) == {TOKENS}
    assert (outcome.rows["t_first"] <= outcome.rows["t_last"]).all()


@pytest.mark.parametrize(
    ("fault", "expected", "events"),
    [
        ("tls_alert:3", ("connection_error", "tls"), 3),
        ("tls_truncate:3", ("truncated", "closed_in_body"), 3),
        ("tls_garbage:3", ("connection_error", "tls"), 3),
        ("close:3", ("truncated", "closed_in_body"), 3),
        ("close_before_response", ("connection_error", "closed_before_response"), 0),
        ("huge_line:40000000", ("protocol_error", "event_too_large"), TOKENS // 2),
        ("endless_head:10000000", ("protocol_error", "head_too_large"), 0),
    ],
)
def test_each_end_in_a_reply_has_its_class(
    tmp_path: Path, port: int, files: dict[str, str], fault: str, expected: tuple[str, str], events: int
) -> None:
    """Never a success; what arrived before is kept."""
    outcome = faulty(tmp_path, port, files["tls_cert"], fault)
    assert outcome.statuses() == {expected: REQUESTS}
    assert outcome.words[k.W_OK] == 0 and (outcome.rows["content_events"] == events).all()


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("handshake_alert:1", ("connection_error", "tls")),
        ("handshake_alert:1:120", ("connection_error", "tls")),
        ("handshake_garbage:1", ("connection_error", "tls")),
        ("handshake_close:1", ("connection_error", "tls")),
        ("handshake_hang:1", ("timeout", "tls")),
    ],
)
def test_each_failure_of_a_handshake_has_its_class(
    tmp_path: Path, files: dict[str, str], fault: str, expected: tuple[str, str]
) -> None:
    """Nothing was asked, so nothing was submitted."""
    options = SimulatorOptions(null=True, faults=(fault,), **files)
    with SimulatorProcess(options) as server:
        outcome = faulty(tmp_path, server.port, files["tls_cert"], timeout_s=1.0 if "hang" in fault else 20.0)
    assert outcome.statuses() == {expected: REQUESTS}
    assert (outcome.rows["t_submit"] == 0).all() and (outcome.rows["t_end"] > 0).all()


@pytest.mark.parametrize(
    "case", ["expired", "another issuer", "another name", "another protocol", "no client certificate"]
)
def test_each_refusal_of_a_peer_has_its_class(tmp_path: Path, files: dict[str, str], case: str) -> None:
    """Certificates and protocols that one side does not accept."""
    names = ("DNS:elsewhere",) if case == "another name" else HERE
    cert, key = certificate(tmp_path, "own", names, -1 if case == "expired" else 2)
    served: dict[str, Any] = {"tls_cert": str(cert), "tls_key": str(key)}
    if case == "another protocol":
        served["tls_alpn"] = "h2"
    if case == "no client certificate":
        served["tls_client_ca"] = files["tls_cert"]
    trusted = files["tls_cert"] if case == "another issuer" else str(cert)
    with SimulatorProcess(SimulatorOptions(null=True, **served)) as server:
        outcome = faulty(tmp_path, server.port, trusted)
    assert outcome.statuses() == {("connection_error", "tls"): REQUESTS}


@pytest.mark.parametrize("resume", [True, False])
def test_sessions_continue(tmp_path: Path, files: dict[str, str], resume: bool) -> None:
    """Each request has a connection of its own; with `resume` each after the first one continues a session."""
    truth = tmp_path / "truth"
    tls = TlsContext(cacert=files["tls_cert"], protocols=("http/1.1",), resume=resume)
    with SimulatorProcess(SimulatorOptions(null=True, truth=str(truth), **files)) as server:
        outcome = faulty(tmp_path, server.port, files["tls_cert"], requests=0, slots=1, limit=10, fresh=True, tls=tls)
    assert outcome.statuses() == {OK: 10}
    assert (outcome.rows["tls_us"] > 0).all()
    continued = load(truth).requests["flags"] & FLAGS["resumed"] > 0
    assert continued.tolist() == [False] + [resume] * 9
