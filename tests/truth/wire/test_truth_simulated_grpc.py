"""gRPC against the truth of the simulated engine, in clear text and over TLS: the record says what the log says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from truth.truth_bench import Measured, measure, times_within, until_quiet

from fastllmload._ext.sim.fault import NAMES
from fastllmload.endpoint import ENDPOINTS
from fastllmload.metrics.tokens.counts import count_tokens
from fastllmload.records.layout import ERROR_NAMES, EVENT_NAMES, FINISH_NAMES, STATUS_NAMES

TRANSPORTS = pytest.mark.parametrize("tls", [False, True], ids=["clear", "tls"])
PROTOCOLS = pytest.mark.parametrize("endpoint", [name for name, each in ENDPOINTS.items() if each.call is not None])
SPOKEN = [EVENT_NAMES.index(name) for name in ("whitespace", "content")]


def over_grpc(directory: Path, endpoint: str, tls: bool, options: list[str], **simulator: Any) -> Measured:
    form = [] if ENDPOINTS[endpoint].takes("text") else ["--prompt-form", "ids"]
    given = ["--endpoint-type", endpoint, "-m", "simulated", *form, "--isl", "16", "--warmup", "0", "--no-telemetry",
             *["--insecure"] * tls, *options]  # fmt: skip
    return measure(directory, given, **{"ttft_ms": 20.0, "itl_ms": 4.0, "phase": "spread", "tls": tls} | simulator)


@pytest.mark.clock
@TRANSPORTS
@PROTOCOLS
def test_times_are_the_servers(tmp_path: Path, endpoint: str, tls: bool) -> None:
    """Every token and ttft within what the host's noise allows."""

    def check(directory: Path) -> tuple[bool | None, str]:
        options = ["--rate", "40", "--duration", "2", "--osl", "15", "--seed", "7"]
        measured = over_grpc(directory, endpoint, tls, options, ttft_ms=25.0, itl_ms=8.0)
        assert measured.exit_code == 0, measured.said
        return times_within(measured, 100 if tls else 40, 600)

    until_quiet(tmp_path, check)


@pytest.mark.parametrize(("streamed", "tls"), [(True, False), (True, True), (False, True)])
@PROTOCOLS
def test_figures_are_the_servers(tmp_path: Path, endpoint: str, streamed: bool, tls: bool) -> None:
    """Statuses, ends, usage, cached tokens, output tokens, and the kind of each event; TLS hands on the same bytes."""
    options = ["--rate", "40", "-n", "30", "--osl", "uniform:3,9", "--prefix-len", "64", "--num-prefixes", "2"]
    steps = {"ttft_ms": None, "itl_ms": None, "phase": None, "overrides": (("step_ms", "1"),)}
    measured = over_grpc(tmp_path / "run", endpoint, tls, [*options, *([] if streamed else ["--no-stream"])], **steps)
    assert measured.exit_code == 0, measured.said
    ours, theirs = measured.joined()
    assert {STATUS_NAMES[status] for status in ours["status"]} == {"ok"}
    ensemble = endpoint == "kserve-grpc-ensemble"  # says its text, and nothing of it
    assert {FINISH_NAMES[word] for word in ours["finish"]} == {"none" if ensemble else "length"}
    assert set(theirs["call_status"]) == {0} and list(ours["http_status"]) == list(theirs["status"])
    assert list(ours["prompt_tokens"]) == ([-1] * len(ours) if ensemble else list(theirs["prompt_tokens"]))
    assert list(count_tokens(measured.run).output[measured.run.rows["phase"] == 1]) == list(theirs["output_tokens"])
    if not endpoint.startswith("kserve-grpc"):  # which have no word for it
        assert list(ours["cached_tokens"]) == list(theirs["cached_tokens"]) and theirs["cached_tokens"].max() >= 64
    if endpoint == "sglang-grpc":  # the others say what an event has
        assert list(ours["completion_tokens"]) == list(theirs["output_tokens"])
    assert list(ours["content_events"]) == (list(theirs["output_tokens"]) if streamed else [1] * len(ours))
    run, number = measured.run, measured.run.manifest["phases"][-1]["number"]
    for r in np.flatnonzero(run.rows["phase"] == 1):
        mine = run.event_kind[run.first_event[r] : run.first_event[r + 1]]
        said = measured.truth.of(int(run.rows["request"][r]), number)["kind"]
        assert list(mine[np.isin(mine, SPOKEN)]) == list(said[np.isin(said, SPOKEN)])


# What each fault makes of a request: status, error.
FINE = ("ok", "none")
EXPECTED = {
    "split": FINE, "coalesce": FINE, "stall": FINE, "slow_head": FINE, "drip": FINE, "multi_token": FINE,
    "status": ("stream_error", "grpc_status"), "error_event": ("stream_error", "grpc_status"),
    "no_done": ("truncated", "no_grpc_status"), "no_body": ("truncated", "no_grpc_status"),
    "bad_json": ("protocol_error", "bad_event"), "cut_message": ("protocol_error", "bad_event"),
    "html": ("protocol_error", "unexpected_content_type"), "gzip": ("protocol_error", "encoded_body"),
    "empty": ("empty", "none"), "reset_stream": ("truncated", "stream_reset"), "abort": ("stream_error", "finish_reason"),
}  # fmt: skip
NAMED = list(EXPECTED)


@TRANSPORTS
@PROTOCOLS
@pytest.mark.parametrize("faults", [NAMED[::2], NAMED[1::2]], ids=["even", "odd"])
def test_failures_are_the_servers(tmp_path: Path, endpoint: str, faults: list[str], tls: bool) -> None:
    """Each call's outcome follows from its own fault, with the status that was sent, and the tokens before it."""
    chances = tuple(f"{name}:{0.9 / len(faults):.4f}" + (":30" if name == "stall" else "") for name in faults)
    options = ["--rate", "100", "-n", "150", "--osl", "8"]
    measured = over_grpc(tmp_path / "run", endpoint, tls, options, ttft_ms=5.0, itl_ms=1.0, faults=chances)
    ours, theirs = measured.joined()
    named = [str(NAMES.get(int(fault), "none")) for fault in theirs["fault"]]
    assert set(named) == {"none", *faults}
    expected = {"none": FINE, **EXPECTED}
    if endpoint.startswith("kserve-grpc"):  # which say errors in messages
        expected["error_event"] = ("stream_error", "event")
    if endpoint == "kserve-grpc-ensemble":  # says no reason
        expected["abort"] = FINE
    found = [(STATUS_NAMES[one["status"]], ERROR_NAMES[one["error"]]) for one in ours]
    assert found == [expected[name] for name in named]
    assert list(ours["http_status"]) == list(theirs["status"])
    refused = ours["error"] == ERROR_NAMES.index("grpc_status")
    assert list(ours["error_number"][refused]) == list(theirs["call_status"][refused])
    assert {int(status) for status in theirs["call_status"][refused]} <= {13, 14}
    several = np.array([name == "multi_token" for name in named])
    assert (ours["content_events"] == np.where(several, 2, theirs["output_tokens"])).all()
