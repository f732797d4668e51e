"""Whole runs with a packet ring: every event has the time of its segment, over IPv4, IPv6, TLS, and over a bad link."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from certificates import needs_openssl
from commands import command
from integration.servers.test_integration_tls import front
from truth.truth_bench import CONTENT, until_quiet

from fastllmload.engine.recording.tap import permitted
from fastllmload.records import layout
from fastllmload.records.run import Run, load
from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions
from fastllmload.simulator.truth import load as load_truth

LOAD = ["--rate", "40", "--duration", "2", "--isl", "16", "--osl", "10", "--warmup", "3", "--ui", "plain"]
pytestmark = pytest.mark.skipif(not permitted(), reason="CAP_NET_RAW is missing")


def run(folder: Path, *options: str) -> tuple[dict[str, Any], Run]:
    done = command("-o", folder / "run", *LOAD, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((folder / "run" / "run.json").read_text()), load(folder / "run")


def errors_us(found: Run, truth: Path) -> np.ndarray:
    """Stated time less the server's, of every content event of the measured phase."""
    number = next(phase["number"] for phase in found.manifest["phases"] if phase["name"] == "measure")
    sent = load_truth(truth).content()
    sent = sent[sent["phase"] == number]
    sent = sent[np.lexsort((sent["index"], sent["key"]))]
    rows = np.flatnonzero(found.rows["phase"] == layout.MEASURE)
    stated = [
        found.event_t[begin:end][found.event_kind[begin:end] == CONTENT]
        for begin, end in zip(found.first_event[rows], found.first_event[rows + 1], strict=True)
    ]
    errors: np.ndarray = (np.concatenate(stated) - sent["t_ns"]) / 1e3
    return errors


def own_address(elsewhere: str) -> str:
    """The address that this host would send from to *elsewhere*."""
    with socket.socket(socket.AF_INET6 if ":" in elsewhere else socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            asked.connect((elsewhere, 9))
        except OSError as problem:
            pytest.skip(f"no way to {elsewhere} from here: {problem}")
        return str(asked.getsockname()[0])


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "own 198.51.100.1", "own 2001:db8::1"])
@pytest.mark.parametrize("fresh", [(), ("--fresh-connections",)])
def test_every_event_has_the_time_of_its_segment(tmp_path: Path, host: str, fresh: tuple[str, ...]) -> None:
    """An address of this host's is reached over the loopback interface, wherever it is assigned."""
    truth = tmp_path / "truth.bin"
    if host.startswith("own "):
        host = own_address(host.removeprefix("own "))
    with SimulatorProcess(SimulatorOptions(host=host, truth=str(truth), ttft_ms=20.0, itl_ms=10.0)) as server:
        document, found = run(tmp_path, "--url", server.url, "--timestamps", "tap", *fresh)
    tap = document["tap"]
    assert tap["joined"] == tap["events"] == len(found.events) > 500
    assert not any(tap["unmatched"].values()) and tap["drops"] == 0
    assert tap["requests_timed"] == len(found.rows) and tap["interface"] == "lo"
    assert document["certificate"]["timestamp_source"] == document["config"]["client"]["timestamps"] == "tap"
    assert set(found.event_stamp & layout.STAMP_CLASS_MASK) == {layout.STAMP_TAP}
    assert set(found.rows["stamps"]) == {layout.STAMP_TAP} and not found.rows["coalesced_events"].any()
    sent = found.rows["t_wire"].astype(np.int64)
    assert (sent - found.rows["t_submit_start"] > -50_000).all(), "a request leaves when it is handed over, not before"
    errors = errors_us(found, truth)
    assert errors.min() > -50 and np.median(errors) < 200, "nothing comes before it is sent"
    agreement = tap["against_kernel_stamps_us"]
    assert agreement["n"] > 300 and agreement["p50"] < 20
    assert not (tmp_path / "run" / "workers").exists()


@needs_openssl
def test_encrypted_events_have_a_segment_of_their_bracket(tmp_path: Path) -> None:
    """The kernel's stamp of an encrypted read is exact only for a segment that came alone. On a host that does other work,
    more than 1 % of the brackets may hold no segment.
    """

    def share(folder: Path) -> tuple[bool, str]:
        folder.mkdir()
        truth = folder / "truth.bin"
        with SimulatorProcess(SimulatorOptions(truth=str(truth), ttft_ms=20.0, itl_ms=10.0)) as server:
            secured = front(folder, server.port)
            try:
                document, found = run(folder, "--url", secured.url, "--cacert", str(secured.ca), "--timestamps", "tap")
            finally:
                secured.process.kill()
                secured.process.communicate()
        tap = document["tap"]
        assert document["config"]["client"]["timestamps"] == "tap" and tap["events"] > 500
        assert tap["joined"] > 0.5 * tap["events"]
        assert tap["requests_timed"] == len(found.rows)
        assert errors_us(found, truth).min() > 0
        return tap["joined"] + tap["narrowed"] >= 0.99 * tap["events"], f"unmatched: {tap['unmatched']}"

    until_quiet(tmp_path, share)


def run_in_namespaces(module: str, folder: Path, *options: str) -> tuple[dict[str, Any], Run]:
    command = [sys.executable, "-m", f"integration.{module}", str(folder), *LOAD, "--timestamps", "tap", *options]
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, env=paths)
    if done.returncode == 77:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((folder / "run" / "run.json").read_text()), load(folder / "run")


def test_lost_and_reordered_packets_make_events_as_late_as_they_were(tmp_path: Path) -> None:
    """An event whose segment was lost came with its retransmission: where the kernel's own stamp is exact, it agrees."""
    document, found = run_in_namespaces("lossy_link", tmp_path, "--timeout", "60")
    tap = document["tap"]
    assert tap["joined"] == tap["events"] > 500, tap["unmatched"]
    assert tap["interface"] is None and tap["requests_timed"] == len(found.rows)
    assert tap["retransmitted"] + tap["out_of_order"] > 5
    errors = errors_us(found, tmp_path / "truth.bin")
    assert errors.min() > 1_900, "the link takes 2 ms"
    assert (errors > 10_000).sum() > 5, "what was lost came late"
    assert tap["against_kernel_stamps_us"]["max"] < 2_000


def test_frames_above_the_mtu_on_several_interfaces_give_exact_times(tmp_path: Path) -> None:
    """The kernel hands over what it has joined (GRO), or not yet divided (TSO), as one frame."""
    document, found = run_in_namespaces("two_links", tmp_path, "--osl", "200")
    tap = document["tap"]
    assert tap["joined"] == tap["events"] > 5_000 and not any(tap["unmatched"].values())
    assert tap["interface"] is None and tap["requests_timed"] == len(found.rows)
    assert tap["payload_bytes"] / tap["segments"] > 2 * 1_500
    assert (np.bincount(found.rows["url"], minlength=2) > 10).all()
    errors = errors_us(found, tmp_path / "truth.bin")
    assert errors.min() > 0 and np.median(errors) < 200


def test_without_the_privilege_one_sentence_names_it(tmp_path: Path) -> None:
    """Asked for, it is refused with exit code 2; `auto` uses the kernel's stamps without a message."""
    script = (
        "import ctypes, sys\n"
        "ctypes.CDLL(None).prctl(24, 13, 0, 0, 0)\n"  # PR_CAPBSET_DROP CAP_NET_RAW: gone with the next exec
        "import os; os.execv(sys.executable, [sys.executable, '-m', 'fastllmload', *sys.argv[1:]])\n"
    )

    def dropped(folder: str, source: str) -> tuple[int, str]:
        crowded = ["--workers", str(len(os.sched_getaffinity(0)))]  # where it would have taken the ring
        options = [*LOAD, *crowded, "--timestamps", source, "-o", str(tmp_path / folder)]
        done = subprocess.run([sys.executable, "-c", script, *options], capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout + done.stderr

    code, said = dropped("asked", "tap")
    assert code == 2 and "--timestamps tap: CAP_NET_RAW is missing" in said and "setcap" in said
    assert not (tmp_path / "asked" / "run.json").exists()
    code, said = dropped("auto", "auto")
    assert code == 0, said
    document = json.loads((tmp_path / "auto" / "run.json").read_text())
    assert document["certificate"]["timestamp_source"] == "kernel"
    assert "CAP_NET_RAW" not in said + "".join(document["target"]["notes"])
    assert "tap" not in document
