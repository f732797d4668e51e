"""TLS failures are reported in one sentence with the cause and the option to use; the servers here really fail that way."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from certificates import certificate, needs_openssl
from refusals import code_of, raises_code, says

from fastllmload.engine.preflight.check import preflight
from fastllmload.engine.preflight.tls import tls_context
from fastllmload.errors import TargetError
from fastllmload.redact import Redactor
from fastllmload.settings import RunSettings, Target

pytestmark = needs_openssl
Files = tuple[Path, Path]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Files]:
    directory = tmp_path_factory.mktemp("certificates")
    return {name: certificate(directory, name) for name in ("server", "mine", "stranger")}


@contextlib.contextmanager
def listening(greet: Callable[[socket.socket], None]) -> Iterator[int]:
    """A port whose connections are passed to *greet*, whose errors are ignored, and then closed."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection, contextlib.suppress(OSError):
                    connection.settimeout(10)
                    greet(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def refused(port: int, scheme: str = "https", **target: object) -> str:
    url = f"{scheme}://127.0.0.1:{port}"
    settings = RunSettings(target=Target(urls=(url,), **target))  # type: ignore[arg-type]
    with pytest.raises(TargetError) as caught:
        preflight(settings, [url], None, Redactor([]))
    text = str(caught.value)
    assert "\n" not in text and "_ssl.c" not in text
    return text


def shaking(files: dict[str, Files], version: ssl.TLSVersion, wants: str | None) -> Callable[[socket.socket], None]:
    """The handshake of a server with TLS *version* only that requires a client certificate signed by *wants*."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files["server"])
    context.minimum_version = context.maximum_version = version
    if wants is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(files[wants][0])

    def greet(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as secured:
            secured.recv(65536)

    return greet


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize(
    ("given", "advice"),
    [(None, "a client certificate (--cert, --key)?"), ("stranger", "certificate of --cert?")],
)
def test_a_client_certificate_that_is_missing_or_not_accepted(
    files: dict[str, Files], version: ssl.TLSVersion, given: str | None, advice: str
) -> None:
    """With TLS 1.3 the server refuses only after the client has finished its handshake."""
    pair = {} if given is None else {"client_cert": str(files[given][0]), "client_key": str(files[given][1])}
    with listening(shaking(files, version, "mine")) as port:
        said = refused(port, cacert=str(files["server"][0]), **pair)
        assert advice in said
        assert code_of(said) == ("tls-failed" if version == ssl.TLSVersion.TLSv1_2 else "answer-broken")


def test_a_server_that_hangs_up_in_the_handshake() -> None:
    with listening(lambda connection: None) as port:
        assert says(refused(port), "tls-failed", "speak https", "a client certificate")


@pytest.mark.parametrize(
    ("alert", "advice"),
    [(70, "no version of TLS"), (112, "another with --server-name"), (116, "a client certificate")],
)
def test_alerts_of_a_server_are_explained(alert: int, advice: str) -> None:
    """RFC 8446 6: protocol_version, unrecognized_name, certificate_required."""

    def greet(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"\x15\x03\x03\x00\x02\x02%c" % alert)

    with listening(greet) as port:
        said = refused(port)
        assert advice in said and code_of(said) == "tls-failed"


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_port_that_speaks_something_else(files: dict[str, Files], scheme: str) -> None:
    """A TLS server receives plain HTTP and hangs up; a server of another protocol answers the handshake in its own."""
    greet = shaking(files, ssl.TLSVersion.TLSv1_3, None)
    with listening(
        greet if scheme == "http" else lambda connection: connection.sendall(b"220 mail.example ESMTP\r\n")
    ) as port:
        assert "https?" in refused(port, scheme)


def test_a_locked_key_is_rejected_without_a_prompt_for_its_phrase(tmp_path: Path, files: dict[str, Files]) -> None:
    mine, key = files["mine"]
    locked = tmp_path / "locked.key"
    subprocess.run(
        ["openssl", "pkey", "-in", key, "-aes128", "-passout", "pass:word", "-out", locked],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    with raises_code("tls-key-locked", locked, "unlock a copy"):
        tls_context(Target(client_cert=str(mine), client_key=str(locked)), "http/1.1")


def test_a_key_of_another_certificate(files: dict[str, Files]) -> None:
    with raises_code("tls-file-invalid", "--cert ", "--key ", "key values mismatch"):
        tls_context(Target(client_cert=str(files["mine"][0]), client_key=str(files["stranger"][1])), "http/1.1")


def test_a_host_without_openssl(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> str:
        raise OSError("no library libssl is there")

    monkeypatch.setattr("fastllmload.engine.preflight.tls.tls_library", missing)
    with raises_code("tls-library-missing", "no library libssl is there", "libssl3"):
        tls_context(Target(), "http/1.1")
