"""Real gateways in front of the simulated engine: what they do to a stream is seen, and no trap counts as a success."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest
from certificates import certificate, needs_openssl
from integration.servers.real_gateways import caddy, conserved, envoy, haproxy, nginx, run, words_of
from truth.truth_bench import until_quiet, wait_for_phase

from fastllmload.records import layout
from fastllmload.records.run import load
from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions
from fastllmload.simulator.truth import load as load_truth

LOAD = ["--rate", "50", "--duration", "3", "--isl", "32", "--osl", "20", "--warmup", "5"]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[SimulatorProcess]:
    options = SimulatorOptions(ttft_ms=30.0, itl_ms=10.0, phase="spread", truth=str(tmp_path / "truth.bin"))
    with SimulatorProcess(options) as server:
        yield server


def front(
    name: str,
    folder: Path,
    upstream: int,
    environment: Path,
    http2: bool = False,
    tls: tuple[Path, Path] | None = None,
) -> AbstractContextManager[int]:
    """*tls*: of nginx alone."""
    if name == "nginx":
        return nginx(folder, upstream, http2=http2, tls=tls)
    if name == "haproxy":
        return haproxy(folder, upstream, http2=http2)
    if name == "caddy":
        return caddy(folder, upstream)
    return envoy(folder, upstream, environment)


@pytest.mark.parametrize("version", ["1.1", "2"])
@pytest.mark.parametrize(
    "name", ["nginx", pytest.param("nginx over TLS", marks=needs_openssl), "haproxy", "envoy", "caddy"]
)
def test_a_streaming_gateway_passes_tokens_on(tmp_path: Path, real_servers: Path, name: str, version: str) -> None:
    """All answered, also with 20 streams on a connection of HTTP/2; each token is stated
    within 2 ms (p50) after the engine's own send, and never before it.
    """
    files = certificate(tmp_path, "nginx") if "TLS" in name else None
    scheme, trust = ("http", []) if files is None else ("https", ["--cacert", str(files[0])])

    def check(directory: Path) -> tuple[bool, str]:
        directory.mkdir(parents=True)
        truth = directory / "truth.bin"
        options = SimulatorOptions(ttft_ms=30.0, itl_ms=10.0, phase="spread", truth=str(truth))
        http2 = ["--http-version", "2", "--streams-per-connection", "20"] if version == "2" else []
        with (
            SimulatorProcess(options) as server,
            front(name.split()[0], directory / "front", server.port, real_servers, bool(http2), files) as port,
        ):
            code, said, document = run(f"{scheme}://127.0.0.1:{port}/v1", directory / "run", *LOAD, *http2, *trust)
        assert code == 0, said
        assert conserved(document)
        if document["failed"]:
            return False, f"{document['errors']}"
        found = load(directory / "run")
        number = next(phase["number"] for phase in document["phases"] if phase["name"] == "measure")
        log = load_truth(truth)
        late = []
        for r in np.flatnonzero(found.rows["phase"] == layout.MEASURE):
            mine = slice(found.first_event[r], found.first_event[r + 1])
            stated = found.event_t[mine][found.event_kind[mine] == layout.EVENT_CONTENT]
            sent = log.of(int(found.rows["request"][r]), number)
            sent = np.sort(sent["t_ns"][sent["kind"] == layout.EVENT_CONTENT])
            assert len(stated) == len(sent) == 20
            late.append(stated - sent)
        lateness = np.concatenate(late) / 1e6
        assert lateness.min() > -0.1, "a token was stated before it was sent"
        return bool(np.median(lateness) < 2.0), f"median lateness {np.median(lateness):.2f} ms"

    until_quiet(tmp_path, check)


def test_auto_speaks_http2_with_a_port_that_speaks_nothing_else(tmp_path: Path, real_servers: Path) -> None:
    """nginx with http2 on a port without TLS; several requests share its connection, which the report says."""
    with (
        SimulatorProcess(SimulatorOptions(itl_ms=10.0)) as server,
        nginx(tmp_path / "front", server.port, http2=True) as port,
    ):
        code, said, document = run(f"http://127.0.0.1:{port}/v1", tmp_path / "run", *LOAD)
        refused, why, _ = run(f"http://127.0.0.1:{port}/v1", tmp_path / "no", *LOAD, "--http-version", "1.1")
    assert code == 0 and "HTTP/2" in said, said
    assert document["target"]["http_version"] == document["config"]["client"]["http_version"] == "2"
    assert not document["failed"] and document["metrics"]["streams_per_connection"]["max"] > 1
    assert refused and "http2-only" in why


def test_coalescing_by_a_gateway_is_said_not_called_fast(
    tmp_path: Path, real_servers: Path, engine: SimulatorProcess
) -> None:
    """HAProxy without http-no-delay holds tokens back and sends bursts: the verdict says that the path delivers
    tokens in batches. A client that is stopped reads several at once too, hence a quiet try.
    """

    def check(directory: Path) -> tuple[bool, str]:
        shares = {}
        for no_delay in (True, False):
            folder = directory / f"delay-{not no_delay}"
            with haproxy(folder / "haproxy", engine.port, no_delay) as port:
                code, said, document = run(f"http://127.0.0.1:{port}/v1", folder / "run", *LOAD)
            assert code == 0, said
            shares[no_delay] = document["certificate"]["batched_share"]
            reasons = [reason["code"] for reason in document["certificate"]["reasons"]]
            if not no_delay:
                assert "batched_delivery" in reasons and "BATCHES" in said, (reasons, said)
        assert shares[False] > 0.3, shares
        return shares[True] < 0.3, str(shares)

    until_quiet(tmp_path, check)


def test_idle_connections_that_a_gateway_closes(tmp_path: Path, real_servers: Path, engine: SimulatorProcess) -> None:
    """nginx closes after 1 s of idleness: idle connections are dropped before use; what dies anyway has its own
    class, another one where the connection was opened ahead and never used.
    """
    with nginx(tmp_path / "nginx", engine.port, idle="1s") as port:
        code, said, document = run(
            f"http://127.0.0.1:{port}/v1", tmp_path / "run", "--rate", "3", "--duration", "6", "--arrival", "constant",
            "--isl", "16", "--osl", "4", "--warmup", "20",
        )  # fmt: skip
    assert code == 0, said
    assert conserved(document)
    failures = {group["error"] for group in document["errors"]}
    assert failures <= {"reused_connection_lost", "closed_before_response"}, failures
    samples = load(tmp_path / "run").samples
    assert samples is not None and samples["idle_dropped"].max() > 0


def test_an_upstream_that_dies_is_a_failure_with_its_status(tmp_path: Path, real_servers: Path) -> None:
    """The engine behind nginx is killed half way: 502 pages and broken streams are counted, nothing before is lost."""
    with (
        SimulatorProcess(SimulatorOptions(ttft_ms=30.0, itl_ms=10.0)) as server,
        nginx(tmp_path / "nginx", server.port) as port,
    ):
        folder = tmp_path / "run"
        process = subprocess.Popen(
            [sys.executable, "-m", "fastllmload", *words_of(f"http://127.0.0.1:{port}/v1", folder, *LOAD)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        wait_for_phase(folder, after_s=1.5)
        server.stop()
        said, _ = process.communicate(timeout=120)
    document = json.loads((folder / "run.json").read_text())
    assert conserved(document), said
    counts = document["counts"]
    assert counts["ok"] > 20 and counts["http_error"] > 20, counts
    assert {group["http_status"] for group in document["errors"] if group["status"] == "http_error"} <= {502, 504}
    assert process.returncode == 0


@pytest.mark.parametrize(("path", "word"), [("empty", "no body"), ("page", "web page")])
def test_a_200_without_an_answer_is_refused(
    tmp_path: Path, real_servers: Path, engine: SimulatorProcess, path: str, word: str
) -> None:
    """200 without a body, 200 with a page: refused before the run in one sentence."""
    with nginx(tmp_path / "nginx", engine.port) as port:
        code, said, document = run(f"http://127.0.0.1:{port}/{path}", tmp_path / "run", "-m", "x", *LOAD)
    assert code == 3 and not document, said
    assert word in said and "Traceback" not in said


def test_errors_inside_a_200_stream_are_failures(tmp_path: Path, real_servers: Path) -> None:
    """A third of the streams end with an error event from a gateway: none of them is a success."""
    options = SimulatorOptions(ttft_ms=20.0, itl_ms=5.0, faults=("error_event:0.33",))
    for attempt in range(3):  # once in 250 runs the fault meets each of the five probes
        place = tmp_path / str(attempt)
        with SimulatorProcess(options) as server, nginx(place / "nginx", server.port) as port:
            code, said, document = run(f"http://127.0.0.1:{port}/v1", place / "run", *LOAD)
        if code != 3:
            break
    counts = document["counts"]
    assert conserved(document) and counts["stream_error"] > 15 and counts["ok"] > 50, (said, counts)
    assert counts["stream_error"] + counts["ok"] == counts["planned"]


def test_a_page_of_another_site_is_not_an_answer(tmp_path: Path, real_servers: Path, engine: SimulatorProcess) -> None:
    """Caddy knows its site by the address and answers any other Host with 200 and nothing: refused in one sentence."""
    with caddy(tmp_path / "caddy", engine.port) as port:
        code, said, document = run(f"http://localhost:{port}/v1", tmp_path / "run", "-m", "simulated", *LOAD)
    assert code == 3 and not document, said
    assert "no body" in said and "Traceback" not in said


def test_kept_connections_that_die_at_a_gateway(tmp_path: Path, real_servers: Path) -> None:
    """The engine closes each connection 10 ms after a reply, while Caddy keeps it for the next request: what meets that
    is a 502 with its status, or was answered whole.
    """
    options = SimulatorOptions(ttft_ms=15.0, itl_ms=2.0, faults=("idle_close:1:10",))
    with SimulatorProcess(options) as server, caddy(tmp_path / "caddy", server.port) as port:
        code, said, document = run(
            f"http://127.0.0.1:{port}/v1", tmp_path / "run", "--rate", "100", "--duration", "3", "--isl", "16", "--osl",
            "10", "--warmup", "5",
        )  # fmt: skip
    assert code == 0, said
    counts = document["counts"]
    assert conserved(document) and counts["ok"] + counts["http_error"] == counts["planned"], document["errors"]
    assert {group["http_status"] for group in document["errors"]} <= {502}
    rows = load(tmp_path / "run").rows
    measured = rows[rows["phase"] == layout.MEASURE]
    assert (measured["content_events"] == np.where(measured["status"] == layout.OK, 10, 0)).all()
