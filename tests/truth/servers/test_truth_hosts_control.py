"""Control of servers from two hosts, with a key of its own for administration, by the engines' logs: once per server."""

from __future__ import annotations

import http.client
import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from commands import command
from support.local_hosts import agents_folder

from fastllmload.engine.hosts.placement import cluster
from fastllmload.engine.hosts.placement.local import LocalPlacement
from fastllmload.experiment import experiment
from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions
from fastllmload.simulator.truth import NO_KEY, Truth
from fastllmload.simulator.truth import load as load_truth

RUN_KEY, ADMIN_KEY = "sk-run-0123456789", "sk-admin-0123456789"
SHAPE = ("--isl", "320", "--osl", "8", "--prefix-len", "256")
scratch = agents_folder()


@dataclass
class Guarded:
    """An engine whose control routes ask for ADMIN_KEY; *refused*: such requests without it."""

    url: str
    log: Path
    refused: list[str] = field(default_factory=list)


@contextmanager
def guarded(engine: SimulatorProcess, log: Path) -> Iterator[Guarded]:
    """A gate in front of *engine*, which asks for the key of the run itself."""
    found = Guarded("", log)
    target = urlsplit(engine.url).netloc

    class Gate(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def hand_on(self) -> None:
            sent = dict(self.headers.items())
            body = self.rfile.read(int(sent.pop("Content-Length", "0")))
            given = sent.pop("Authorization", "")
            of_load = self.path.startswith("/v1/")
            if self.command == "POST" and given != f"Bearer {RUN_KEY if of_load else ADMIN_KEY}":
                found.refused.append(self.path)
                return self.answer(401, b'{"detail":"Unauthorized"}', "application/json")
            connection = http.client.HTTPConnection(target, timeout=60)
            connection.request(self.command, self.path, body, {**sent, "Authorization": f"Bearer {RUN_KEY}"})
            answer = connection.getresponse()
            self.answer(answer.status, answer.read(), answer.headers["Content-Type"])
            connection.close()

        do_GET = do_POST = do_OPTIONS = hand_on

        def answer(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Gate)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    found.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def replicas(directory: Path) -> Iterator[tuple[list[str], list[Guarded]]]:
    """Words that name two engines as targets, and the gates in front of them."""
    with ExitStack() as stack:
        words, gates = [], []
        for number in range(2):
            log = directory / f"truth{number}"
            engine = stack.enter_context(SimulatorProcess(SimulatorOptions(truth=str(log), api_key=RUN_KEY)))
            gates.append(stack.enter_context(guarded(engine, log)))
            words += ["--url", engine.url, "--replica", gates[-1].url]
        yield words, gates


def load_of(truth: Truth) -> np.ndarray:
    """The engine's rows of the load, warm-up too: not of probes."""
    found: np.ndarray = truth.requests[truth.requests["key"] != NO_KEY]
    return found


@pytest.mark.parametrize(
    ("words", "runs"),
    [
        (("run", "--rate", "60", "-n", "40", "--warmup", "30", *SHAPE), 1),
        (("sweep", "--vary", "rate=40,60", "-n", "40", "--warmup", "10", "--settle", "none", *SHAPE), 2),
        (("search", "--goodput", "ttft:1000", "--level-duration", "1s", "--min", "20", "--max", "40", "--max-levels", "2",
          "--runs", "1", "--warmup", "5", "--settle", "none", *SHAPE), 2),
        (("procedure", "ttft", "--quick", "--warmup", "0", "--settle", "none", "--rate", "20", "-n", "1000", "--isl", "64",
          "--osl", "8"), 1),
    ],
    ids=["run", "sweep", "search", "procedure"],
)  # fmt: skip
def test_verbs_are_called_once_per_server_and_never_during_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scratch: Path, words: tuple[str, ...], runs: int
) -> None:
    """Two hosts, two servers: for each measured run a server gets sleep, wake, reset, proof, reset, profile, load, the
    profile's end; never twice, as once per host would be, and nothing while it has load.
    """
    monkeypatch.setattr(cluster, "RayPlacement", lambda hosts: LocalPlacement(2))
    monkeypatch.setattr(experiment, "require_ray", lambda: None)
    key, admin = tmp_path / "key", tmp_path / "admin"
    key.write_text(RUN_KEY), admin.write_text(ADMIN_KEY)
    asked = [word for verb in ("sleep", "wake", "reset-cache", "profile") for word in ("--between", verb)]
    with replicas(tmp_path) as (targets, gates):
        done = command(
            *words, *targets, *asked, "--api-key-file", key, "--admin-key-file", admin, "--ray", "10.0.0.1:6379",
            "--workers", "1", "--timestamps", "kernel", "--ui", "plain", "-o", tmp_path / "o",
        )  # fmt: skip
    said = done.stdout + done.stderr
    documents = [json.loads(path.read_text()) for path in sorted((tmp_path / "o").rglob("run.json"))]
    controlled = [each for each in documents if each["control"] is not None]
    assert len(controlled) >= runs and all(len(each["hosts"]) == 2 for each in documents), said
    assert ADMIN_KEY not in said and RUN_KEY not in said
    for gate in gates:
        truth = load_truth(gate.log)
        calls = [call for call in truth.calls if call.text.startswith("POST")]
        once = ["/sleep", "/wake_up", *["/reset_prefix_cache"] * 2, "/start_profile", "/stop_profile"]
        assert [call.text for call in calls] == [f"POST {path}" for path in once] * len(controlled), said
        assert {call.status for call in calls} == {200} and gate.refused == []
        load = load_of(truth)
        for call in calls:
            assert not ((load["t_recv_first"] < call.t_ns) & (load["t_end"] > call.t_ns)).any(), call.text
        for number in range(len(controlled)):
            *_, start, stop = calls[6 * number : 6 * number + 6]
            during = truth.requests[
                (truth.requests["t_recv_first"] > start.t_ns) & (truth.requests["t_recv_first"] < stop.t_ns)
            ]
            assert len(during) and (during["key"] != NO_KEY).all(), "the measured load, and no probe"
        proofs = [proof for each in controlled for proof in each["control"]["proofs"] if proof["url"] == gate.url]
        assert [proof["proved"] for proof in proofs] == [True] * len(controlled)
        pages = [page for each in controlled for page in each["server_pages"] if page["url"] == gate.url]
        assert len(pages) >= len(controlled) and all(page["read_after"] for page in pages)
