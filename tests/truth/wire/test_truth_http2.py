"""HTTP/2 against the truth of the simulated engine, in clear text and over TLS: the record says what the log says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from truth.truth_bench import Measured, measure, times_within, until_quiet

from fastllmload._ext.sim.fault import NAMES
from fastllmload.endpoint import ENDPOINTS
from fastllmload.records.layout import ERROR_NAMES, EVENT_NAMES, FINISH_NAMES, STATUS_NAMES

TRANSPORTS = pytest.mark.parametrize("tls", [False, True], ids=["clear", "tls"])
OF_HTTP = [  # the simulated engine has no gRPC, and WebSocket begins with HTTP/1.1
    name for name, each in ENDPOINTS.items() if each.tokens and each.call is None and not each.websocket
]


def over_http2(directory: Path, tls: bool, options: list[str], **simulator: Any) -> Measured:
    given = ["--http-version", "2", "--isl", "16", "--warmup", "0", "--no-telemetry", *["--insecure"] * tls, *options]
    return measure(directory, given, **{"ttft_ms": 20.0, "itl_ms": 4.0, "phase": "spread", "tls": tls} | simulator)


@pytest.mark.clock
@TRANSPORTS
def test_times_are_the_servers(tmp_path: Path, tls: bool) -> None:
    """Many streams on few connections: every token and ttft within what the host's noise allows."""

    def check(directory: Path) -> tuple[bool | None, str]:
        options = ["--rate", "40", "--duration", "2", "--osl", "15", "--seed", "7"]
        measured = over_http2(directory, tls, options, ttft_ms=25.0, itl_ms=8.0)
        assert measured.exit_code == 0, measured.said
        ours, theirs = measured.joined()
        assert len(set(theirs["connection"])) < 10 < len(ours)
        return times_within(measured, 100 if tls else 40, 600)

    until_quiet(tmp_path, check)


TEXT = [name for name in OF_HTTP if ENDPOINTS[name].takes("text")]
IDS = [name for name in OF_HTTP if name not in TEXT]
EACH = 20  # requests


@pytest.mark.parametrize(("streamed", "tls"), [(True, False), (True, True), (False, True)])
@pytest.mark.parametrize("endpoints", [TEXT, IDS], ids=["text", "ids"])
def test_figures_are_the_servers(tmp_path: Path, endpoints: list[str], streamed: bool, tls: bool) -> None:
    """Statuses, ends, usage and the number of events of each protocol, a class of one run. TLS hands on the same bytes,
    whatever the protocol above HTTP/2.
    """
    classes = [word for name in endpoints for word in ("--class", f"{name} rate=40 endpoint-type={name}")]
    asked = classes if endpoints is TEXT else ["--endpoint-type", *endpoints, "--prompt-form", "ids", "--rate", "40"]
    options = ["-m", "simulated", "--osl", "uniform:3,9", *asked]
    options += ["-n", str(EACH * len(endpoints))]
    measured = over_http2(tmp_path / "run", tls, [*options, *([] if streamed else ["--no-stream"])])
    assert measured.exit_code == 0, measured.said
    ours, theirs = measured.joined()
    assert list(ours["http_status"]) == list(theirs["status"])
    for number, endpoint in enumerate(endpoints):
        own = ours["request_class"] == number
        assert own.sum() > EACH / 4, endpoint
        assert {STATUS_NAMES[status] for status in ours["status"][own]} == {"ok"}, endpoint
        assert {FINISH_NAMES[word] for word in ours["finish"][own]} <= {"length", "none"}, endpoint
        for mine, their in (("prompt", "prompt"), ("completion", "output")):
            said = own & (ours[f"{mine}_tokens"] >= 0)  # TGI and vLLM's own protocol do not say them all
            assert list(ours[f"{mine}_tokens"][said]) == list(theirs[f"{their}_tokens"][said]), (endpoint, mine)
        if streamed:
            assert (ours["content_events"][own] > 0).all(), endpoint


@TRANSPORTS
def test_events_have_the_servers_kinds(tmp_path: Path, tls: bool) -> None:
    options = ["--rate", "40", "-n", "20", "--osl", "11"]
    measured = over_http2(tmp_path / "run", tls, options, faults=("reasoning:0.4:4", "tool_calls:0.4:2"))
    assert measured.exit_code == 0, measured.said
    measured.joined()
    run, number = measured.run, measured.run.manifest["phases"][-1]["number"]
    said = [EVENT_NAMES.index(name) for name in ("content", "reasoning", "tool")]
    for r in np.flatnonzero(run.rows["phase"] == 1):
        mine = run.event_kind[run.first_event[r] : run.first_event[r + 1]]
        theirs = measured.truth.of(int(run.rows["request"][r]), number)["kind"]
        assert list(mine[np.isin(mine, said)]) == list(theirs[np.isin(theirs, said)])


EXPECTED = {"reset_stream": "truncated", "status": "http_error", "error_event": "stream_error", "split": "ok",
            "html": "protocol_error"}  # fmt: skip


@TRANSPORTS
def test_failures_of_streams(tmp_path: Path, tls: bool) -> None:
    """Each reply's outcome follows from its own fault: others on the connection are not touched."""
    faults = tuple(f"{name}:0.17" for name in EXPECTED)
    measured = over_http2(tmp_path / "run", tls, ["--rate", "80", "-n", "80", "--osl", "8"], faults=faults)
    ours, theirs = measured.joined()
    named = [NAMES.get(fault) for fault in theirs["fault"]]
    assert set(named) == {None, *EXPECTED}
    assert [STATUS_NAMES[status] for status in ours["status"]] == [EXPECTED.get(str(name), "ok") for name in named]
    assert list(ours["http_status"]) == list(theirs["status"])
    tokens = theirs["status"] == 200
    assert (ours["content_events"][tokens] == theirs["output_tokens"][tokens]).all()


@TRANSPORTS
@pytest.mark.parametrize(
    ("fault", "error"),
    [("goaway", "goaway"), ("large_frame", "bad_frame"), ("stray_frame", "bad_frame"), ("endless_head", "head_too_large"),
     ("close", "closed_in_body"), ("reset", "reset"), ("tls_alert", "tls"), ("tls_garbage", "tls")],
)  # fmt: skip
def test_failures_of_connections(tmp_path: Path, tls: bool, fault: str, error: str) -> None:
    """The connection's streams fail together, whichever had the fault; what came of them is kept, and others are opened."""
    if fault.startswith("tls") and not tls:
        pytest.skip("it is a fault of TLS")
    options = ["--rate", "80", "-n", "80", "--osl", "8", "--streams-per-connection", "4"]
    measured = over_http2(tmp_path / "run", tls, options, faults=(f"{fault}:0.1",))
    number = measured.run.manifest["phases"][-1]["number"]
    theirs = measured.truth.requests[measured.truth.requests["phase"] == number]
    theirs = theirs[np.argsort(theirs["key"], kind="stable")]
    rows = measured.run.rows[measured.run.rows["phase"] == 1]
    read = np.isin(
        rows["request"], theirs["key"]
    )  # a request that was on its way when its connection ended is not read
    assert (rows["error"][~read] > 0).all()
    ours = rows[read]
    assert list(ours["request"]) == list(theirs["key"])
    failed = np.array([ERROR_NAMES[error] for error in ours["error"]]) != "none"
    faulty = theirs["fault"] > 0
    assert failed[faulty].all() and faulty.any() and not failed.all()
    begun = ours["t_headers"] > 0
    assert {ERROR_NAMES[one] for one in ours["error"][failed & begun]} == {error}
    # A stream of which nothing had come may have been sent again, or have failed before it could be.
    lost = {"reused_connection_lost", *(["closed_before_response"] if fault == "close" else [])}
    assert {ERROR_NAMES[one] for one in ours["error"][failed & ~begun]} <= {error, *lost}
    assert set(theirs["connection"][failed]) == set(theirs["connection"][faulty])
    assert (ours["content_events"] == theirs["output_tokens"])[~failed].all()
    assert (ours["content_events"] <= theirs["output_tokens"]).all()


@TRANSPORTS
def test_bodies_wait_for_the_servers_window(tmp_path: Path, tls: bool) -> None:
    options = ["--rate", "40", "-n", "20", "--osl", "4", "--isl", "300"]
    measured = over_http2(tmp_path / "run", tls, options, http2_window=200)
    assert measured.exit_code == 0, measured.said
    ours, theirs = measured.joined()
    assert {STATUS_NAMES[status] for status in ours["status"]} == {"ok"}
    assert list(ours["prompt_tokens"]) == list(theirs["prompt_tokens"]) and (theirs["prompt_tokens"] >= 300).all()
