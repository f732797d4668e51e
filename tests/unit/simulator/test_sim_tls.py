"""The simulated engine over TLS, against the interpreter's own `ssl`."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from certificates import certificate, needs_openssl
from refusals import raises_code
from sim_client import Client, Response, get, request

from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions
from fastllmload.simulator.tls import tls_context
from fastllmload.simulator.truth import FLAGS, load

pytestmark = [pytest.mark.slow, needs_openssl]

Start = Callable[..., SimulatorProcess]


class SecureClient(Client):
    """A client that has shaken hands, as `localhost`."""

    def __init__(
        self, port: int, context: ssl.SSLContext, session: ssl.SSLSession | None = None, name: str = "localhost"
    ) -> None:
        super().__init__(port)
        plain = self.socket
        try:
            self.socket = context.wrap_socket(plain, server_hostname=name, session=session, suppress_ragged_eofs=False)
        except BaseException:
            plain.close()
            raise

    @property
    def tls(self) -> ssl.SSLSocket:
        assert isinstance(self.socket, ssl.SSLSocket)
        return self.socket


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    cert, key = certificate(tmp_path_factory.mktemp("tls"), "server")
    return {"tls_cert": str(cert), "tls_key": str(key)}


def trusting(files: dict[str, str], **settings: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=files["tls_cert"])
    for name, value in settings.items():
        setattr(context, name, value)
    return context


def counted(process: SimulatorProcess, context: ssl.SSLContext) -> tuple[int, ...]:
    """(full, resumed, failed) handshakes before this question, whose own is a full one."""
    with SecureClient(process.port, context) as client:
        lines = client.ask(get("/metrics")).body.decode().splitlines()
    found = [line.rsplit(" ", 1)[1] for line in lines if line.startswith("fastllmload_simulator:tls_")]
    full, resumed, failed = map(int, found)
    return full - 1, resumed, failed


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_streams_documents_and_pages_are_those_of_clear_text(
    simulator: Start, files: dict[str, str], version: ssl.TLSVersion
) -> None:
    plain, secured = simulator(ttft_ms=1.0, itl_ms=1.0), simulator(ttft_ms=1.0, itl_ms=1.0, **files)
    assert secured.url.startswith("https://")
    large = {"messages": [{"role": "user", "content": "word " * 200_000}]}
    with Client(plain.port) as one, SecureClient(secured.port, trusting(files, maximum_version=version)) as other:
        assert other.tls.version() == version.name.replace("v1_", "v1.")
        for asked in (request(), request(stream=False), request(**large), request(max_tokens=200), get("/health")):
            expected, found = one.ask(asked), other.ask(asked)
            assert (found.status, bare(found)) == (expected.status, bare(expected))


def bare(reply: Response) -> object:
    """What two servers say alike: the words of a stream, or the size of a document."""
    return reply.text if reply.events else len(reply.body)


def test_one_record_per_event(simulator: Start, files: dict[str, str], tmp_path: Path) -> None:
    """Every read of a record gives one event, and the truth has its instant before that read, after the handshake."""
    path = str(tmp_path / "truth")
    process = simulator(ttft_ms=20.0, itl_ms=20.0, truth=path, **files)
    with SecureClient(process.port, trusting(files)) as client:
        client.ask(request(max_tokens=1))
        shaken = time.monotonic_ns()
        reply = client.ask(request(max_tokens=10))
    process.stop()
    truth = load(path)
    assert (truth.requests["t_accept"] < truth.requests["t_tls"]).all()
    assert (truth.requests["t_tls"] < truth.requests["t_recv_first"]).all()
    assert truth.requests["t_tls"][0] == truth.requests["t_tls"][1] < shaken
    content = truth.content()
    sent = content["t_ns"][content["serial"] == truth.requests["serial"][1]]
    reads = [at for at, data in reply.reads if b'"content"' in data and b'"role"' not in data]
    assert len(sent) == len(reads) == 10
    assert all(before < after for before, after in zip(sent, reads, strict=True))


@pytest.mark.parametrize(("fault", "reads"), [("coalesce:4", 2), ("split:9", 100)])
def test_faults_of_writes_are_faults_of_records(
    simulator: Start, files: dict[str, str], fault: str, reads: int
) -> None:
    """Several events in a record, and an event over several records."""
    process = simulator(ttft_ms=5.0, itl_ms=2.0, **files)
    with SecureClient(process.port, trusting(files)) as client:
        reply = client.ask(request(max_tokens=8, headers=(f"X-Fault: {fault}",)))
    assert reply.usage["completion_tokens"] == 8
    content = [data for _, data in reply.reads if b'"content"' in data or fault.startswith("split")]
    assert len(content) >= reads if fault.startswith("split") else len(content) <= reads + 1


def test_sessions_are_resumed_and_counted(simulator: Start, files: dict[str, str], tmp_path: Path) -> None:
    path = str(tmp_path / "truth")
    process = simulator(null=True, truth=path, **files)
    context = trusting(files)
    with SecureClient(process.port, context) as client:
        assert client.ask(request()).status == 200
        session = client.tls.session
    for _ in range(2):
        with SecureClient(process.port, context, session) as client:
            assert client.tls.session_reused and client.ask(request()).status == 200
            session = client.tls.session
    assert counted(process, context) == (1, 2, 0)
    process.stop()
    assert (load(path).requests["flags"] & FLAGS["resumed"] > 0).tolist() == [False, True, True]


def test_processes_resume_each_others_sessions(simulator: Start, files: dict[str, str]) -> None:
    """Sixteen connections to four processes, so that some meet another one than before."""
    process = simulator(null=True, processes=4, **files)
    context, session = trusting(files), None
    for number in range(16):
        with SecureClient(process.port, context, session) as client:
            assert client.tls.session_reused is (number > 0) and client.ask(request()).status == 200
            session = client.tls.session


def test_a_client_certificate_that_is_asked_for(simulator: Start, files: dict[str, str], tmp_path: Path) -> None:
    mine, key = certificate(tmp_path, "client")
    other, other_key = certificate(tmp_path, "other")
    process = simulator(null=True, tls_client_ca=str(mine), **files)
    for shown, allowed in (((mine, key), True), ((other, other_key), False), (None, False)):
        context = trusting(files)
        if shown is not None:
            context.load_cert_chain(*shown)
        if allowed:
            with SecureClient(process.port, context) as client:
                assert client.ask(request()).status == 200
            continue
        with pytest.raises(ssl.SSLError), SecureClient(process.port, context) as client:
            client.ask(request())


@pytest.mark.parametrize(
    ("offered", "names", "chosen"),
    [
        ("http/1.1", ["h2", "http/1.1"], "http/1.1"),
        ("h2,http/1.1", ["http/1.1", "h2"], "h2"),
        ("http/1.1", [], None),
        ("", ["h2"], None),
        ("h2", ["http/1.1"], "refused"),
    ],
)
def test_application_protocols(
    simulator: Start, files: dict[str, str], offered: str, names: list[str], chosen: str | None
) -> None:
    process = simulator(null=True, tls_alpn=offered, **files)
    context = trusting(files)
    if names:
        context.set_alpn_protocols(names)
    if chosen == "refused":
        with pytest.raises(ssl.SSLError, match="no application protocol"):
            SecureClient(process.port, context)
        assert counted(process, trusting(files)) == (0, 0, 1)
        return
    with SecureClient(process.port, context) as client:
        assert client.tls.selected_alpn_protocol() == chosen


def words_of(error: BaseException) -> str:
    """OpenSSL 3.0 has no names for some alerts, only texts."""
    return str(error).upper().replace(" ", "_")


def broken(port: int, context: ssl.SSLContext, fault: str, **fields: object) -> tuple[bytes, BaseException | None]:
    """(what came, how it ended: None is an end that was announced)."""
    with SecureClient(port, context) as client:
        client.send(request(headers=(f"X-Fault: {fault}",), **({"max_tokens": 8} | fields)))
        try:
            return client.rest(), None
        except (OSError, EOFError) as error:
            return client.buffer, error


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("close", None),
        ("tls_alert", "ALERT_BAD_RECORD_MAC"),
        ("tls_truncate", "EOF_OCCURRED"),
        ("tls_garbage", "WRONG_VERSION_NUMBER|HTTP_REQUEST"),
    ],
)
def test_ends_in_the_middle_of_a_reply(
    simulator: Start, files: dict[str, str], tmp_path: Path, fault: str, reason: str | None, stream: bool
) -> None:
    path = str(tmp_path / "truth")
    process = simulator(ttft_ms=1.0, itl_ms=1.0, truth=path, **files)
    came, ended = broken(process.port, trusting(files), fault, stream=stream)
    assert came.startswith(b"HTTP/1.1 200") and b"[DONE]" not in came
    if reason is None:
        assert ended is None
    else:
        assert isinstance(ended, ssl.SSLError) and re.search(reason, words_of(ended))
    process.stop()
    (row,) = load(path).requests
    assert row["output_tokens"] == (4 if stream else 8)


def test_a_token_of_choice_ends_it(simulator: Start, files: dict[str, str]) -> None:
    process = simulator(ttft_ms=1.0, itl_ms=1.0, **files)
    came, ended = broken(process.port, trusting(files), "tls_alert:2")
    assert came.count(b'"content"') == 3 and isinstance(ended, ssl.SSLError)  # the role's event has an empty one


@pytest.mark.parametrize("fault", ["drip:1", "stall:100", "slow_head:100", "huge_event:200000", "cr", "content_length"])
def test_odd_streams_are_whole(simulator: Start, files: dict[str, str], fault: str) -> None:
    process = simulator(ttft_ms=1.0, itl_ms=1.0, **files)
    with SecureClient(process.port, trusting(files)) as client:
        reply = client.ask(request(max_tokens=2, headers=(f"X-Fault: {fault}",)))
        assert reply.usage["completion_tokens"] == 2
        assert client.ask(request(max_tokens=1)).status == 200


def test_an_endless_line(simulator: Start, files: dict[str, str]) -> None:
    process = simulator(null=True, **files)
    came, ended = broken(process.port, trusting(files), "huge_line:5000000")
    assert len(came) > 5_000_000 and came.endswith(b"a" * 1000) and ended is None


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("handshake_close", "EOF_OCCURRED|CONNECTION_RESET"),
        ("handshake_alert", "HANDSHAKE_FAILURE"),
        ("handshake_alert:120", "NO_APPLICATION_PROTOCOL"),
        ("handshake_garbage", "WRONG_VERSION_NUMBER|HTTP_REQUEST"),
    ],
)
def test_handshakes_that_fail(simulator: Start, files: dict[str, str], fault: str, reason: str) -> None:
    name, colon, argument = fault.partition(":")
    process = simulator(null=True, faults=(f"{name}:1{colon}{argument}",), **files)
    with pytest.raises(OSError) as caught:
        SecureClient(process.port, trusting(files))
    assert re.search(reason, words_of(caught.value))


def test_a_share_of_the_handshakes_fails_and_is_counted(simulator: Start, files: dict[str, str]) -> None:
    """The others serve whole replies; a fault of replies has its own draw."""
    process = simulator(null=True, faults=("handshake_close:0.5", "coalesce:0.5"), **files)
    failed = 0
    for _ in range(40):
        try:
            with SecureClient(process.port, trusting(files)) as client:
                assert client.ask(request()).usage["completion_tokens"] == 4
        except OSError:
            failed += 1
    assert 8 <= failed <= 32


def test_a_handshake_that_hangs(simulator: Start, files: dict[str, str]) -> None:
    """The connection stays open without a byte; others are served."""
    process = simulator(null=True, faults=("handshake_hang:1",), **files)
    with Client(process.port) as client:
        client.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            trusting(files).wrap_socket(client.socket, server_hostname="localhost")


def test_a_request_in_clear_text_is_a_handshake_that_failed(simulator: Start, files: dict[str, str]) -> None:
    process = simulator(null=True, **files)
    with Client(process.port) as client:
        client.send(get("/health"))
        assert client.rest() == b""
    assert counted(process, trusting(files)) == (0, 0, 1)


def test_a_request_in_many_records_and_many_in_one(simulator: Start, files: dict[str, str]) -> None:
    process = simulator(null=True, **files)
    with SecureClient(process.port, trusting(files)) as client:
        asked = request(stream=False)
        for at in range(0, len(asked), 7):
            client.send(asked[at : at + 7])
        assert client.response().status == 200
        client.send(asked * 5)
        assert [client.response().status for _ in range(5)] == [200] * 5


def test_a_client_that_leaves_in_the_middle(simulator: Start, files: dict[str, str], tmp_path: Path) -> None:
    """By close_notify, by FIN and by RST: its request is cancelled, and the row says so."""
    path = str(tmp_path / "truth")
    process = simulator(ttft_ms=1.0, itl_ms=5.0, truth=path, **files)
    for how in ("notify", "fin", "reset"):
        with SecureClient(process.port, trusting(files)) as client:
            client.send(request(max_tokens=10_000))
            client.until(b"data: ")
            if how == "notify":
                client.tls.settimeout(0)
                with contextlib.suppress(ssl.SSLError):  # the reply continues
                    client.tls.unwrap()
                client.tls.settimeout(20)
                with pytest.raises((OSError, EOFError)):
                    client.until(b"never")
            elif how == "reset":
                client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with SecureClient(process.port, trusting(files)) as client:
        while 'num_requests_running{model_name="simulated"} 0' not in client.ask(get("/metrics")).body.decode():
            time.sleep(0.01)
    process.stop()
    requests = load(path).requests
    assert len(requests) == 3 and (requests["flags"] & FLAGS["aborted"] > 0).all()


def test_a_certificate_of_its_own(simulator: Start) -> None:
    """Without files: it verifies against itself, for this host's names."""
    process = simulator(null=True, tls=True)
    untrusting = ssl.create_default_context()
    untrusting.check_hostname, untrusting.verify_mode = False, ssl.CERT_NONE
    with SecureClient(process.port, untrusting) as client:
        shown = client.tls.getpeercert(binary_form=True)
    assert shown is not None
    context = ssl.create_default_context(cadata=shown)
    for name in ("localhost", "127.0.0.1", "::1"):
        with SecureClient(process.port, context, name=name) as client:
            assert client.ask(request()).status == 200
    with pytest.raises(ssl.SSLCertVerificationError):
        SecureClient(process.port, context, name="elsewhere")


@pytest.mark.parametrize(
    ("options", "code", "value"),
    [
        ({"tls_key": "k"}, "simulator-option-invalid", "--tls-key"),
        ({"tls_key": "k", "tls": True}, "simulator-option-invalid", "--tls-key"),
        ({"tls_client_ca": "k"}, "simulator-option-invalid", "--tls-client-ca"),
        ({"faults": ("tls_alert:1",)}, "simulator-option-invalid", "tls_alert:1"),
        ({"faults": ("handshake_hang:0.1",)}, "simulator-option-invalid", "handshake_hang:0.1"),
        ({"tls_cert": "/nowhere/c.pem"}, "tls-file-invalid", "/nowhere/c.pem"),
        ({"tls_cert": "/dev/null"}, "tls-file-invalid", "/dev/null"),
        ({"tls_cert": "CERT", "tls_key": "CERT"}, "tls-file-invalid", "--tls-key"),
        ({"tls_cert": "CERT", "tls_key": "KEY", "tls_client_ca": "KEY"}, "tls-file-invalid", "--tls-client-ca"),
    ],
)
def test_options_that_cannot_be_served(files: dict[str, str], options: dict[str, Any], code: str, value: str) -> None:
    named = {"CERT": files["tls_cert"], "KEY": files["tls_key"]}
    given: dict[str, Any] = {
        name: named.get(text, text) if isinstance(text, str) else text for name, text in options.items()
    }
    with raises_code(code, value):
        tls_context(SimulatorOptions(**given))


def test_a_key_with_a_pass_phrase_is_not_asked_for_it(files: dict[str, str], tmp_path: Path) -> None:
    locked = str(tmp_path / "locked.pem")
    subprocess.run(
        ["openssl", "pkey", "-in", files["tls_key"], "-aes256", "-passout", "pass:secret", "-out", locked], check=True
    )
    with raises_code("tls-key-locked", "pass phrase"):
        tls_context(SimulatorOptions(tls_cert=files["tls_cert"], tls_key=locked))


def test_a_fault_of_tls_is_refused_where_it_cannot_happen(simulator: Start, files: dict[str, str], quick: int) -> None:
    """In clear text, and by a request for its own handshake, which is over."""
    process = simulator(null=True, **files)
    with Client(quick) as plain, SecureClient(process.port, trusting(files)) as secured:
        assert plain.ask(request(headers=("X-Fault: tls_alert",))).status == 400
        assert secured.ask(request(headers=("X-Fault: handshake_hang",))).status == 400
