"""TLS on memory, against Python's own: handshakes, records split anywhere, ends and failures."""

from __future__ import annotations

import itertools
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import RSA, certificate, needs_openssl
from hypothesis import given, settings
from hypothesis import strategies as st
from openssl_side import UpdatingSide, needs_libssl

from fastllmload._ext.tls.session import Channel, TlsContext, TlsState, is_address, settings_of, tls_library

pytestmark = needs_openssl
RECORD = 16384


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    cert, key = certificate(tmp_path_factory.mktemp("tls"), "server", kind=RSA)
    return str(cert), str(key)


class Twin:
    """Python's own TLS on memory, as a server or a client."""

    def __init__(self, files: tuple[str, str], *, server: bool, name: str = "localhost") -> None:
        self.given, self.out = ssl.MemoryBIO(), ssl.MemoryBIO()
        if server:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*files)
        else:
            context = ssl.create_default_context(cafile=files[0])
        self.object = context.wrap_bio(self.given, self.out, server, None if server else name)
        self.open = False

    def feed(self, data: bytes) -> bytes:
        self.given.write(data)
        found = b""
        try:
            if not self.open:
                self.object.do_handshake()
                self.open = True
            while more := self.object.read(1 << 20):
                found += more
        except ssl.SSLWantReadError:
            pass
        return found

    def seal(self, data: bytes) -> bytes:
        self.object.write(data)
        return self.out.read()


def shake(client: Channel | Twin, server: Channel | Twin | UpdatingSide) -> None:
    """Until neither has anything to say."""
    sides = (client, server)
    client.feed(b"")
    for _ in range(6):
        for side, other in (sides, sides[::-1]):
            said = side.out.read() if isinstance(side, Twin) else side.taken()
            if said:
                other.feed(said)


def joined(files: tuple[str, str], *, server: bool) -> tuple[Channel, Twin]:
    """Our side, a server or not, and the other, after their handshake."""
    if server:
        ours, twin = (
            Channel(TlsContext(server=True, cert=files[0], key=files[1], verify=False)),
            Twin(files, server=False),
        )
        shake(twin, ours)
    else:
        ours, twin = Channel(TlsContext(cacert=files[0]), "localhost"), Twin(files, server=True)
        shake(ours, twin)
    assert ours.state == TlsState.TLS_OPEN and twin.open and not ours.problem
    return ours, twin


def ends(sealed: bytes) -> Iterator[int]:
    """Where the records of *sealed* end."""
    at = 0
    while at < len(sealed):
        at += 5 + int.from_bytes(sealed[at + 3 : at + 5], "big")
        yield at


@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(
        st.binary(min_size=1, max_size=3 * RECORD) | st.binary(min_size=1, max_size=40), min_size=1, max_size=8
    ),
    cuts=st.lists(st.integers(0, 1 << 17), max_size=12),
    server=st.booleans(),
)
def test_records_split_anywhere_say_the_same(
    files: tuple[str, str], texts: list[bytes], cuts: list[int], server: bool
) -> None:
    ours, twin = joined(files, server=server)
    sealed = b"".join(twin.seal(text) for text in texts)
    whole = set(ends(sealed))
    places = [0, *sorted(cut % (len(sealed) + 1) for cut in cuts), len(sealed)]
    found = b""
    for begin, end in itertools.pairwise(places):
        if begin < end:
            found += ours.feed(sealed[begin:end])
            assert ours.complete == (end in whole)
            assert len(found) == len(twin_of(texts, sealed, end))
    assert found == b"".join(texts)
    back = b"".join(texts)
    ours.write(back)
    assert twin.feed(ours.taken()) == back


@needs_libssl
@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(st.binary(min_size=1, max_size=RECORD) | st.booleans(), min_size=1, max_size=12),
    cuts=st.lists(st.integers(0, 1 << 17), max_size=12),
)
def test_keys_that_the_server_changes(files: tuple[str, str], steps: list[bytes | bool], cuts: list[int]) -> None:
    """Texts and changes of keys, which ask for ours as well (True) or do not: all texts are read, and ours after them."""
    ours, side = Channel(TlsContext(cacert=files[0]), "localhost"), UpdatingSide(*files)
    shake(ours, side)
    for step in steps:
        side.update(step) if isinstance(step, bool) else side.write(step)
    sealed = side.taken()
    places = [0, *sorted(cut % (len(sealed) + 1) for cut in cuts), len(sealed)]
    found = b"".join(ours.feed(sealed[begin:end]) for begin, end in itertools.pairwise(places) if begin < end)
    assert found == b"".join(step for step in steps if isinstance(step, bytes)) and ours.complete and not ours.problem
    ours.write(b"an answer")
    assert side.feed(ours.taken()) == b"an answer" and (side.peers > 0) == (True in steps)


def twin_of(texts: list[bytes], sealed: bytes, end: int) -> bytes:
    """Plaintext of the records that are complete in the first *end* bytes: each has RECORD bytes of a text, or its rest."""
    parts = [text[at : at + RECORD] for text in texts for at in range(0, len(text), RECORD)]
    return b"".join(part for part, place in zip(parts, ends(sealed), strict=True) if place <= end)


def test_both_sides_agree_with_the_interpreter(files: tuple[str, str]) -> None:
    for server in (True, False):
        ours, twin = joined(files, server=server)
        name, version, _ = twin.object.cipher() or ("", "", 0)
        assert ours.cipher == f"{version} {name}" and "libssl" in tls_library()


def test_settings_are_those_of_the_interpreter(files: tuple[str, str]) -> None:
    context = ssl.create_default_context()
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE-RSA-AES128-GCM-SHA256")
    ours, twin = Channel(TlsContext(cacert=files[0], **settings_of(context)), "localhost"), Twin(files, server=True)
    shake(ours, twin)
    assert ours.cipher == "TLSv1.2 ECDHE-RSA-AES128-GCM-SHA256"


def test_an_end_is_not_a_failure(files: tuple[str, str]) -> None:
    ours, twin = joined(files, server=False)
    sealed = twin.seal(b"last words")
    with pytest.raises(ssl.SSLWantReadError):
        twin.object.unwrap()
    assert ours.feed(sealed + twin.out.read()) == b"last words"
    assert ours.state == TlsState.TLS_CLOSED and ours.problem == ""
    ours, twin = joined(files, server=False)
    sealed = bytearray(twin.seal(b"last words"))
    sealed[-1] ^= 1
    assert ours.feed(bytes(sealed)) == b""
    assert ours.state == TlsState.TLS_FAILED and ours.problem == "decryption failed or bad record mac"
    with pytest.raises(ssl.SSLError, match="bad record mac"):  # it got an alert
        twin.feed(ours.taken())


def test_names_and_addresses(files: tuple[str, str]) -> None:
    assert is_address("127.0.0.1") and is_address("::1") and not is_address("localhost")
    for name, problem in (
        ("localhost", ""),
        ("127.0.0.1", ""),
        ("127.0.0.2", "certificate verify failed: IP address mismatch"),
        ("elsewhere", "certificate verify failed: hostname mismatch"),
    ):
        ours = Channel(TlsContext(cacert=files[0]), name)
        server = Channel(TlsContext(server=True, cert=files[0], key=files[1], verify=False))
        shake(ours, server)
        assert ours.problem.lower() == problem.lower()


def test_files_that_cannot_be_used(tmp_path: Path, files: tuple[str, str]) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    for options in ({"cacert": str(empty)}, {"cert": str(empty)}, {"cert": files[0], "key": str(empty)}):
        with pytest.raises(ValueError, match="empty.pem"):
            TlsContext(**options)
