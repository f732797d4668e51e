"""What is wrong before the run is refused before the run: one sentence, the right exit code, nothing left behind."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import certificate, needs_openssl
from integration.bad_days import EMBEDDED, FAST, run
from support.canned_server import canned

from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions

PAGE = b"<!doctype html><html><body><h1>Sign in</h1></body></html>"
MODELS = (200, "application/json", b'{"object":"list","data":[{"id":"one"}]}')
LOAD = ("--rate", "20", "--duration", "1")


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (("--rate", "many"), ("--rate 'many'", "[rate-invalid]", "requests per second")),
        (("--rat", "5"), ("--rat", "--rate")),
        (("--rate", "5", "--concurrency", "4", "--duration", "1"), ("--rate", "--concurrency", "contradict")),
        ((), ("--rate is missing", "--rate 500 --duration 30")),
        (("--rate", "inf"), ("--num-requests",)),
        ((*LOAD, "--simulate", "fault=explode:1"), ("'explode'", "there are", "reset")),
    ],
)
def test_a_wrong_option_names_itself_and_what_to_write(
    tmp_path: Path, options: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    run(tmp_path / "run", *options).refused(2, *parts)


def test_a_host_that_refuses_or_has_no_address(tmp_path: Path) -> None:
    """A port without a listener: it is bound here, so no other process takes it."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        url = f"http://127.0.0.1:{port}/v1"
        run(tmp_path / "refused", "--url", url, *LOAD).refused(3, "cannot be reached", "connection refused", str(port))
    run(tmp_path / "name", "--url", "http://host.invalid/v1", *LOAD).refused(3, "host.invalid", "cannot be resolved")


def test_a_full_accept_queue_is_reported_as_a_time_out(tmp_path: Path) -> None:
    """A host that drops the connection attempt: the sentence says that it timed out."""
    with socket.socket() as full, contextlib.ExitStack() as queued:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(3):
            one = queued.enter_context(socket.socket())
            one.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                one.connect(full.getsockname())
        url = f"http://127.0.0.1:{full.getsockname()[1]}/v1"
        run(tmp_path / "run", "--url", url, *LOAD).refused(3, "cannot be reached", "timed out")


def test_a_wrong_key_and_an_unknown_model(tmp_path: Path) -> None:
    options = SimulatorOptions(ttft_ms=5, itl_ms=2, api_key="another-key")
    with SimulatorProcess(options) as server:
        run(tmp_path / "key", "--url", server.url, *LOAD).refused(3, "401", "the API key was refused")
        run(tmp_path / "none", "--url", server.url, *LOAD, OPENAI_API_KEY="").refused(3, "401", "OPENAI_API_KEY")
    with SimulatorProcess(SimulatorOptions(ttft_ms=5, itl_ms=2)) as server:
        run(tmp_path / "model", "--url", server.url, *LOAD, "-m", "gpt-none").refused(2, "'gpt-none'", "'simulated'")


@pytest.mark.parametrize(
    ("answers", "parts"),
    [
        ({"/v1/models": (200, "text/html", PAGE)}, ("[model-missing]", "-m")),
        ({"/v1/models": MODELS, "/v1/chat/completions": (200, "text/html", PAGE)}, ("a web page", "openai-chat")),
        ({"/v1/models": MODELS, "/v1/chat/completions": (404, "text/html", PAGE)}, ("404", "endpoint type right")),
        ({"/v1/models": MODELS, "/v1/chat/completions": (200, "application/json", None)}, ("[answer-broken]", "POST")),
    ],
)
def test_a_server_of_another_kind(tmp_path: Path, answers: dict[str, object], parts: tuple[str, ...]) -> None:
    """A portal that answers everything with a page, or nothing at all."""
    with canned(answers) as server:
        ended = run(tmp_path / "run", "--url", f"{server.url}/v1", *LOAD)
    ended.refused(2 if "-m" in parts else 3, *parts)


@pytest.mark.parametrize("what", ["run", "ttft", "search", "sweep", "plan"])
def test_an_output_that_cannot_be_written_is_refused_before_anything_is_sent(tmp_path: Path, what: str) -> None:
    """Its parent is a file, which stops root too. The target would count a connection."""
    (tmp_path / "file").touch()
    options = {
        "run": ("run", *LOAD, "-o", "file/run"),
        "ttft": ("procedure", "ttft", *LOAD, "--allow-nonconforming", "-o", "file/run"),
        "search": ("search", "--min", "1", "--max", "2", "--goodput", "ttft:9", "-o", "file/run"),
        "sweep": ("sweep", "--vary", "rate=1,2", "--duration", "1", "-o", "file/run"),
        "plan": ("run", *LOAD, "--save-plan", "file/plan", "-o", "run"),
    }[what]
    with socket.create_server(("127.0.0.1", 0)) as unused:
        unused.setblocking(False)
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        command = [sys.executable, "-m", "fastllmload", *options, "--url", url]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        with pytest.raises(BlockingIOError):
            unused.accept()
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    assert "Not a directory" in done.stderr.splitlines()[-1] and "choose another" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


# -- certificates -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def handshaking(made: Path, key: Path) -> Iterator[int]:
    """A TLS server that shows its certificate and hangs up; yields its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made, key)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    one, _ = listener.accept()
                except OSError:
                    return
                with one, contextlib.suppress(OSError), context.wrap_socket(one, server_side=True) as secured:
                    secured.recv(1)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)  # wakes accept(), which close() would not
            thread.join()


@needs_openssl
@pytest.mark.parametrize(
    ("name", "days", "trusted", "parts"),
    [
        ("localhost", 2, False, ("is not trusted", "--cacert")),
        ("elsewhere.example", 2, True, ("localhost", "--server-name")),
        ("localhost", -1, True, ("has expired", "renew it")),
    ],
)
def test_a_wrong_certificate(tmp_path: Path, name: str, days: int, trusted: bool, parts: tuple[str, ...]) -> None:
    """Unknown issuer, another host's name, out of date: each is said, and what to do about it."""
    made, key = certificate(tmp_path, name, [f"DNS:{name}"], days)
    with handshaking(made, key) as port:
        trust = ("--cacert", str(made)) if trusted else ()
        run(tmp_path / "run", "--url", f"https://localhost:{port}/v1", *LOAD, *trust).refused(3, *parts)


# -- this host --------------------------------------------------------------------------------------------------------

LIMITED = ("bash", "-c", 'ulimit -Sn "$0" && ulimit -Hn "$1" && shift && exec "$@"')


def test_open_files_that_do_not_suffice_are_refused_with_what_to_do(tmp_path: Path) -> None:
    slow = ("--simulate", "ttft_ms=400", "itl_ms=20")
    ended = run(tmp_path / "run", "--rate", "100", "--duration", "5", *FAST, *slow, wrap=(*LIMITED, "64", "64"))
    ended.refused(2, "the limit of open files is 64", "ulimit -Hn", "--workers")


@pytest.mark.parametrize("files", [10, 12])
def test_fewer_open_files_than_the_command_itself_needs(tmp_path: Path, files: int) -> None:
    """No trace: it is the limit that is wrong, not the program."""
    ended = run(tmp_path / "run", *LOAD, *EMBEDDED, wrap=(*LIMITED, str(files), str(files)))
    ended.refused(2, "too many open files", "ulimit -n")


def test_a_soft_limit_of_open_files_is_raised(tmp_path: Path) -> None:
    """A hundred connections with a soft limit of 64: the hard limit counts."""
    held = ("--concurrency", "100", "--num-requests", "100")
    ended = run(tmp_path / "run", *held, *EMBEDDED, wrap=(*LIMITED, "64", "400"))
    assert ended.code == 0 and ended.document is not None, ended.said
    assert (ended.document["completed"], ended.document["failed"]) == (100, 0)


def network(ports: str) -> tuple[str, ...]:
    """A network of its own with that many local ports; skips where that is not allowed."""
    script = f'ip link set lo up && echo "{ports}" > /proc/sys/net/ipv4/ip_local_port_range'
    tried = subprocess.run(["unshare", "-n", "bash", "-c", script], capture_output=True, text=True)
    if tried.returncode != 0:
        pytest.skip(f"no network namespace with its own port range here: {tried.stderr.strip()}")
    return ("unshare", "-n", "bash", "-c", f'{script} && exec "$0" "$@"')


def test_ports_that_do_not_suffice_are_refused_with_what_to_do(tmp_path: Path) -> None:
    slow = ("--simulate", "ttft_ms=400", "itl_ms=20")
    ended = run(tmp_path / "run", "--rate", "100", "--duration", "5", *FAST, *slow, wrap=network("40000 40020"))
    ended.refused(2, "local ports", "1 source address has 21", "--source-address", "ip_local_port_range")


def test_ports_that_run_out_after_all_are_failures_of_their_own_class(tmp_path: Path) -> None:
    """The probe found a quick server, the load makes it slow: what finds no port is `no_port`, the rest is sent. Even a
    probe of a second needs two thirds of the ports only.
    """
    slow = ("--simulate", "set.max_running=1", "set.step_ms=50", "--osl", "2", "--grace", "0.5")
    ended = run(tmp_path / "run", "--rate", "20", "--duration", "4", *FAST, *slow, wrap=network("40000 40030"))
    assert ended.code == 0 and ended.document is not None, ended.said
    failed = {group["error"]: group["count"] for group in ended.document["errors"]}
    assert failed.get("no_port", 0) > 0 and ended.document["completed"] > 0
    assert f"no_port {failed['no_port']}" in ended.said
    assert "no_port" in [reason["code"] for reason in ended.document["certificate"]["reasons"]]


# -- where the run goes -----------------------------------------------------------------------------------------------


def test_a_folder_that_cannot_be_made_or_is_taken(tmp_path: Path) -> None:
    """A file in its way, a file system that takes no folders, another run: nothing is sent, nothing is touched."""
    (tmp_path / "file").write_text("not a folder")
    for folder in (tmp_path / "file" / "run", Path("/proc/run")):
        ended = run(tmp_path / "in" / "the-way", *LOAD, *EMBEDDED, "-o", str(folder))
        ended.refused(2, str(folder), "cannot be created", "--output")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "notes.txt").write_text("mine")
    ended = run(tmp_path / "in" / "the-way", *LOAD, *EMBEDDED, "-o", str(tmp_path / "taken"))
    ended.refused(2, "exists and is not empty", "name a new folder")
    assert [path.name for path in (tmp_path / "taken").iterdir()] == ["notes.txt"]


def test_an_empty_folder_of_the_user_stays_when_the_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    run(tmp_path / "run", "--url", "http://host.invalid/v1", *LOAD, "-o", str(tmp_path / "mine")).refused(3, "resolved")
    assert list((tmp_path / "mine").iterdir()) == []
