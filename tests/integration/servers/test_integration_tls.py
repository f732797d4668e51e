"""TLS in whole runs: trust, refusal, client certificates, server names, and a submission stamp that is not late."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from certificates import RSA, certificate, needs_openssl
from commands import command
from integration.turning_server import Quiet, turning
from truth.truth_bench import until_quiet

from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions

LOAD = ["--rate", "40", "--duration", "2", "--isl", "16", "--osl", "8", "--warmup", "3", "--ui", "plain"]
pytestmark = needs_openssl


@dataclass
class Front:
    url: str
    ca: Path
    process: subprocess.Popen[str]

    def said(self) -> list[str]:
        self.process.terminate()
        return self.process.communicate(timeout=10)[0].splitlines()


def front(directory: Path, upstream: int, *options: str) -> Front:
    """*options* as tls_relay.py has them."""
    ca, key = certificate(directory, "server", kind=RSA)
    command = [sys.executable, str(Path(__file__).with_name("tls_relay.py")), str(upstream), str(ca), str(key)]
    process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    port = process.stdout.readline().split()[1]
    return Front(f"https://localhost:{port}/v1", ca, process)


@pytest.fixture
def upstream() -> Iterator[int]:
    with SimulatorProcess(SimulatorOptions(ttft_ms=20.0, itl_ms=10.0)) as server:
        yield server.port


@pytest.fixture
def secured(tmp_path: Path, upstream: int) -> Iterator[Front]:
    made = front(tmp_path, upstream)
    yield made
    made.process.kill()
    made.process.wait()
    if made.process.stdout is not None:
        made.process.stdout.close()


def run(folder: Path, url: str, *options: str) -> tuple[int, str, dict[str, Any] | None]:
    done = command("--url", url, "-o", folder, *LOAD, *options)
    path = folder / "run.json"
    return done.returncode, done.stdout + done.stderr, json.loads(path.read_text()) if path.exists() else None


def test_a_trusted_certificate_carries_a_whole_run(tmp_path: Path, secured: Front) -> None:
    """All answered; the stamp of the last byte is taken when it leaves, so ttft and ttft_sched agree within 5 ms."""

    def check(directory: Path) -> tuple[bool, str]:
        code, said, document = run(directory, secured.url, "--cacert", str(secured.ca), "--timestamps", "kernel")
        assert code == 0 and document is not None, said
        assert document["completed"] == document["counts"]["planned"] > 40
        source = document["certificate"]["timestamp_source"]
        ttft, scheduled = (document["metrics"][name] for name in ("ttft", "ttft_sched"))
        agree = abs(ttft["mean"] - scheduled["mean"]) < 5 and 20 <= ttft["p50"] < 45 and source == "kernel"
        return agree, f"ttft {ttft['mean']}, P50 {ttft['p50']}, ttft_sched {scheduled['mean']}, stamps {source}"

    until_quiet(tmp_path / "run", check)
    assert "sni localhost" in secured.said()


def test_an_unknown_issuer_is_refused_before_the_run(tmp_path: Path, secured: Front) -> None:
    code, said, document = run(tmp_path / "run", secured.url)
    assert code == 3 and document is None
    assert "is not trusted" in said and "--cacert" in said and "--insecure" in said


def test_insecure_goes_without_verification_and_names_the_server(tmp_path: Path, secured: Front) -> None:
    code, said, document = run(tmp_path / "run", secured.url, "--insecure", "--server-name", "models.example")
    assert code == 0 and document is not None, said
    assert document["failed"] == 0
    assert "sni models.example" in secured.said()


def test_tls_over_a_unix_socket(tmp_path: Path, upstream: int) -> None:
    """The URL says that it is TLS and for which name the certificate must be; the socket says where."""
    made, path = front(tmp_path, upstream, "--socket", str(tmp_path / "s")), str(tmp_path / "s")
    try:
        trust = ["--cacert", str(made.ca)]
        code, said, document = run(tmp_path / "run", "https://localhost", *trust, "--unix-socket", path)
        assert code == 0 and document is not None and document["failed"] == 0, said
        assert document["completed"] == document["counts"]["planned"] > 40
        code, said, document = run(tmp_path / "other", "https://elsewhere", *trust, "--unix-socket", path)
        assert code == 3 and document is None and "'elsewhere'" in said, said
    finally:
        assert set(made.said()) == {"sni localhost", "sni elsewhere"}


def test_a_plain_port_is_distinguished_from_a_tls_one(tmp_path: Path, upstream: int) -> None:
    code, said, _ = run(tmp_path / "run", f"https://localhost:{upstream}/v1")
    assert code == 3 and "https" in said


def test_a_client_certificate_that_is_asked_for(tmp_path: Path, upstream: int) -> None:
    """With it the run goes through; without it the server's refusal is one sentence and exit code 3."""
    client, key = certificate(tmp_path, "client")
    made = front(tmp_path, upstream, "--client-ca", str(client))
    try:
        trust = ["--cacert", str(made.ca)]
        code, said, document = run(tmp_path / "with", made.url, *trust, "--cert", str(client), "--key", str(key))
        assert code == 0 and document is not None and document["failed"] == 0, said
        code, said, document = run(tmp_path / "without", made.url, *trust)
        assert code == 3 and document is None, said
        assert "Traceback" not in said
    finally:
        made.said()


def shy(certificate: Path, key: Path) -> type[Quiet]:
    """A TLS server that stops shaking hands when its handler has no good answers left."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    class Shy(Quiet):
        silent: ClassVar[list[socket.socket]] = []

        def get_request(self) -> tuple[socket.socket, Any]:
            connection, address = super().get_request()
            if self.RequestHandlerClass.good > 0:  # type: ignore[attr-defined]
                return context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False), address
            self.silent.append(connection)
            raise OSError("no handshake here")

        def server_close(self) -> None:
            super().server_close()
            for connection in self.silent:
                connection.close()

    return Shy


def test_handshakes_that_hang_do_not_hold_the_run_back(tmp_path: Path) -> None:
    """After the first probe no handshake is answered: every request has its time-out, and the exit code is 3."""
    with turning("silence", kind=shy(*certificate(tmp_path, "server"))) as url:
        code, said, document = run(
            tmp_path / "run", url.replace("http:", "https:"), "--insecure", "--timeout", "2", "--warmup", "0",
            "--no-telemetry",
        )  # fmt: skip
    assert code == 3 and "Traceback" not in said, said
    assert document is not None and document["status"] == "done"
    assert document["counts"]["timeout"] == document["failed"] == document["counts"]["planned"] > 0
