"""Every request is one entry of the server's own log, or never arrived and says so; every status is explained."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from ext.reactor_drive import drive
from fault.faulty_server import ACTIONS

from fastllmload.records.layout import ERROR_NAMES, STATUS_NAMES

SLOTS = 64
TIMEOUT_S = 0.5
LEFT_NS = 20_000_000  # of the time-out, when the server's answer is in time without doubt

OK, LOST = ("ok", "none"), ("connection_error", "reused_connection_lost")
CLOSED = ("connection_error", "closed_before_response")
LATE = ("timeout", "deadline")
EXPLAINED = {
    "late": {LATE},
    "silent": {LATE},
    "close": {LOST, CLOSED},
    "reset": {LOST, CLOSED},
    "busy": {("http_error", "http_status")},
    "limited": {("rate_limited", "http_status")},
    "garbage": {("protocol_error", "bad_head")},
    "close_in_body": {("truncated", "closed_in_body")},
    "reset_in_body": {("connection_error", "reset")},
    "no_end": {("truncated", "no_done")},
    "cut": {("ok", "cut_after_end")},
    "cut_reset": {("ok", "cut_after_end")},
    "error_event": {("stream_error", "event")},
    "ok_and_close": {OK},
    "stream": {OK},
    "whole": {OK},
}


@pytest.mark.parametrize(
    "requests",
    [
        20_000,
        pytest.param(
            1_000_000,
            marks=pytest.mark.skipif(os.environ.get("FASTLLMLOAD_SLOW") != "1", reason="minutes; FASTLLMLOAD_SLOW=1"),
        ),
    ],
)
def test_every_status_is_explained_by_the_servers_log(tmp_path: Path, requests: int) -> None:
    """Mixed faults in a closed loop: closed and reset connections, silence, late answers, cut and broken messages."""
    log = tmp_path / "log.npy"
    command = [sys.executable, str(Path(__file__).parent / "faulty_server.py"), str(log)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None and server.stdout is not None
        address = ("127.0.0.1", int(server.stdout.readline()))
        outcome = drive(
            tmp_path, address, gaps_ms=[], slots=SLOTS, limit=requests, preconnect=SLOTS, timeout_s=TIMEOUT_S,
            patience_s=1800,
        )  # fmt: skip
        server.stdin.close()
        assert server.wait(60) == 0
    rows, entries = outcome.rows, np.load(log)
    assert np.array_equal(np.sort(rows["request"]), np.arange(requests))
    assert len(np.unique(entries["number"])) == len(entries)  # nothing was sent twice
    of = {int(entry["number"]): entry for entry in entries}
    assert of.keys() <= set(range(requests))
    unexplained = Counter(
        (ACTIONS[entry["action"]] if entry is not None else "never arrived", *status)
        for row in rows
        if not explained(row, entry := of.get(int(row["request"])), status := status_of(row))
    )
    assert not unexplained, unexplained
    assert {status_of(row) for row in rows} >= set().union(*EXPLAINED.values()) - {CLOSED}


def status_of(row: np.void) -> tuple[str, str]:
    return STATUS_NAMES[row["status"]], ERROR_NAMES[row["error"]]


def explained(row: np.void, entry: np.void | None, status: tuple[str, str]) -> bool:
    if entry is None:  # it was sent as the connection went, or lies unread where the server has not come to it in time
        return row["bytes_received"] == 0 and status in {
            LOST,
            CLOSED,
            ("timeout", "deadline"),
            ("timeout", "connect_timeout"),
        }
    if status in EXPLAINED[ACTIONS[entry["action"]]]:
        return True
    due = row["t_dispatch"] + TIMEOUT_S * 1e9 - LEFT_NS
    return status == LATE and (entry["t_sent"] == 0 or entry["t_sent"] > due)
