"""Responses over WebSocket: what the record says is what the simulated engine's log says, in clear text and over TLS."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from certificates import certificate, needs_openssl
from truth.truth_bench import Measured, measure

from fastllmload.records.error_texts import message_of
from fastllmload.records.layout import ERROR_NAMES, FINISH_NAMES, STATUS_NAMES
from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions
from fastllmload.simulator.truth import load as load_truth

TYPE = ("--endpoint-type", "openai-responses-ws")
LOAD = ("--rate", "60", "--num-requests", "60", "--isl", "32", "--warmup", "4")


def statuses(ours: np.ndarray) -> np.ndarray:
    return np.array([f"{STATUS_NAMES[row['status']]} {ERROR_NAMES[row['error']]}" for row in ours])


def run(directory: Path, *options: str, **engine: object) -> Measured:
    return measure(directory / "run", [*TYPE, *LOAD, *options], **engine)  # type: ignore[arg-type]


@pytest.mark.parametrize("tls", [False, pytest.param(True, marks=needs_openssl)], ids=["clear", "tls"])
def test_tokens_usage_and_connections_are_the_servers(tmp_path: Path, tls: bool) -> None:
    """Each request on the connection that the log says, reused by those that follow."""
    engine: dict[str, object] = {"overrides": (("step_ms", "1"),)}
    if tls:
        cert, key = certificate(tmp_path, "server")
        engine |= {"tls_cert": str(cert), "tls_key": str(key)}
    measured = run(tmp_path, "--osl", "uniform:3,9", "--prefix-len", "256", "--num-prefixes", "2",
                   *(["--cacert", str(cert)] if tls else []), **engine)  # fmt: skip
    assert measured.exit_code == 0, measured.said
    ours, theirs = measured.joined()
    assert len(ours) == 60 and set(statuses(ours)) == {"ok none"} and set(ours["http_status"]) == {200}
    assert {FINISH_NAMES[one] for one in ours["finish"]} == {"length"}
    for mine, their in (("prompt", "prompt"), ("completion", "output"), ("cached", "cached")):
        assert list(ours[f"{mine}_tokens"]) == list(theirs[f"{their}_tokens"]), mine
    assert list(ours["content_events"]) == list(theirs["output_tokens"])
    assert list(ours["flags"] & 1 != 0) == list(theirs["flags"] & 4 != 0) and (ours["flags"] & 1).any()
    assert len(set(theirs["connection"])) < 60
    assert len({(port, one) for port, one in zip(ours["local_port"], theirs["connection"], strict=True)}) == len(
        set(theirs["connection"])
    )


def test_turns_of_a_conversation_repeat_the_history(tmp_path: Path) -> None:
    """The prompt of a turn holds the turns before it: the server counts more tokens each time."""
    measured = run(tmp_path, "--osl", "8", "--turns", "3", overrides=(("step_ms", "1"),))
    assert measured.exit_code == 0, measured.said
    ours, theirs = measured.joined()
    assert set(statuses(ours)) == {"ok none"} and list(ours["prompt_tokens"]) == list(theirs["prompt_tokens"])
    for session in set(ours["session"]):
        of_one = ours[ours["session"] == session]
        assert (np.diff(of_one["prompt_tokens"][np.argsort(of_one["turn"])]) > 0).all()


def test_classes_with_servers_of_their_own(tmp_path: Path) -> None:
    """The connections of each server are upgraded, also where the first class has none there."""
    other = SimulatorOptions(ttft_ms=4.0, itl_ms=1.0, truth=str(tmp_path / "other.bin"))
    with SimulatorProcess(other) as server:
        classes = ("--class", "a share=0.5", "--class", f"b share=0.5 url={server.url}")
        measured = run(tmp_path, "--osl", "4", *classes, ttft_ms=4.0, itl_ms=1.0)
    assert measured.exit_code == 0, measured.said
    rows = measured.run.rows[measured.run.rows["phase"] == 1]
    assert set(statuses(rows)) == {"ok none"} and len(rows) == 60
    for number, log in enumerate((measured.truth.requests, load_truth(other.truth).requests)):
        of_class = rows["request"][rows["request_class"] == number]
        assert len(of_class) and sorted(log["key"][log["phase"] == 1]) == sorted(of_class)


def test_failures_are_the_servers(tmp_path: Path) -> None:
    """Each fault of the log has its one outcome here, and the texts are what was said."""
    faults = ("status:0.15:429", "error_event:0.15", "close:0.1", "close_frame:0.15:1011", "reset:0.1", "bad_json:0.1")
    measured = run(tmp_path, "--osl", "9", ttft_ms=4.0, itl_ms=1.0, phase="spread", faults=faults)
    ours, theirs = measured.joined()
    found = {
        int(fault): set(statuses(ours[theirs["fault"] == fault])) for fault in set(theirs["fault"])
    }  # by numbers of fault.pxd
    expected = {
        0: {"ok none"}, 10: {"stream_error event"}, 7: {"stream_error event"}, 6: {"truncated closed_in_body"},
        42: {"truncated close_frame"}, 5: {"connection_error reset"}, 8: {"protocol_error bad_event"},
    }  # fmt: skip
    assert found == {fault: expected[fault] for fault in found} and len(found) > 4
    assert set(ours["error_number"][theirs["fault"] == 42]) == {1011}
    texts = {message_of(one["text"]) for one in measured.document["error_texts"]["texts"]}
    assert "simulated failure" in texts


@pytest.mark.parametrize("fault", ["fragments:1:16", "comments:1", "split:1:7", "coalesce:1:4"])
def test_odd_framing_changes_nothing(tmp_path: Path, fault: str) -> None:
    """Messages in parts, pings between parts and between messages, any cuts between reads."""
    measured = run(tmp_path, "--osl", "9", ttft_ms=4.0, itl_ms=1.0, phase="spread", faults=(fault,))
    assert measured.exit_code == 0, measured.said
    ours, theirs = measured.joined()
    assert set(statuses(ours)) == {"ok none"} and set(ours["content_events"]) == {9}
    assert list(ours["completion_tokens"]) == list(theirs["output_tokens"])
