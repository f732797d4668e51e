"""Links refuse who has no key, another protocol, and frames that the peer did not send; a cut frame is not a message."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import msgspec
import pytest

from fastllmload.engine.hosts.link import connection
from fastllmload.engine.hosts.link.connection import (
    Acceptance,
    Frames,
    Link,
    LinkError,
    Listener,
    authenticate,
    connect,
    listen,
)
from fastllmload.engine.hosts.link.messages import PROTOCOL, Beat, Changes, Chunk, Finish, Hello, Incident

KEY, OTHER = b"k" * 32, b"o" * 32
FILES = Hello(PROTOCOL, 1, "files", b"n" * 32)


@contextlib.contextmanager
def listening(key: bytes = KEY, purpose: str = "agent") -> Iterator[Listener]:
    listener = Listener(listen("127.0.0.1"), key, purpose)
    try:
        yield listener
    finally:
        listener.close()


def pair(listener: Listener, key: bytes = KEY, purpose: str = "agent") -> tuple[Link, Link]:
    """Both ends of a link: the agent's and the driver's."""
    own: list[Link | LinkError] = []

    def agent() -> None:
        try:
            own.append(connect("127.0.0.1", listener.port, key, 1, purpose, 10.0))
        except LinkError as problem:
            own.append(problem)

    thread = threading.Thread(target=agent)
    thread.start()
    found: list[tuple[Hello, Link]] = []
    while thread.is_alive() or (own and isinstance(own[0], Link) and not found):
        found += listener.accept()
    if isinstance(own[0], LinkError):
        raise own[0]
    assert found[0][0].host == 1
    return own[0], found[0][1]


def received(link: Link) -> list[object]:
    while not (found := link.receive()):
        pass
    return list(found)


def test_messages_arrive_in_both_directions_and_in_order() -> None:
    with listening() as listener:
        agent, driver = pair(listener)
        words = Changes(b"\1\0\0\0", b"\2" + 7 * b"\0")
        sent = [Incident("host-late", "x"), Beat(number=1, words=words), Chunk("a", 5, b"data")]
        for message in sent:
            agent.send(message)
        found: list[object] = []
        while len(found) < len(sent):
            found += driver.receive()
        assert found == sent
        driver.send(Finish())
        assert received(agent) == [Finish()]
        agent.close()
        with pytest.raises(LinkError, match="closed"):
            received(driver)
        driver.close()


def test_an_agent_with_another_key_is_refused_and_refuses_the_driver() -> None:
    with listening() as listener, pytest.raises(LinkError, match="key"):
        pair(listener, OTHER)


def test_a_peer_that_cannot_prove_the_key_gets_no_link() -> None:
    """It has seen a correct challenge, and answers with a proof of its own."""
    acceptance, frames = Acceptance(KEY), Frames()
    acceptance.receive(frames.encode(msgspec.msgpack.encode(FILES)))
    with pytest.raises(LinkError, match="key"):
        acceptance.receive(frames.encode(msgspec.msgpack.encode({"type": "proof", "proof": b"p" * 32})))
    assert not acceptance.done


def test_a_connection_for_another_purpose_is_refused() -> None:
    with listening() as listener:
        agent = socket.create_connection(("127.0.0.1", listener.port))
        thread = threading.Thread(target=lambda: authenticate(agent, KEY, 1, "files"))
        thread.start()
        while not listener.refused:
            assert listener.accept() == []
        thread.join()
        assert "files" in listener.refused[0]
        agent.close()


def test_another_version_of_the_protocol_is_refused() -> None:
    hello = msgspec.msgpack.encode(msgspec.structs.replace(FILES, protocol=PROTOCOL + 1))
    with pytest.raises(LinkError, match=f"version {PROTOCOL + 1}"):
        Acceptance(KEY).receive(Frames().encode(hello))


@pytest.mark.parametrize(
    "content", [b"", b"GET / HTTP/1.1\r\n\r\n", msgspec.msgpack.encode({"type": "hello"}), msgspec.msgpack.encode(7)]
)
def test_what_is_not_a_hello_is_refused(content: bytes) -> None:
    with pytest.raises(LinkError):
        Acceptance(KEY).receive(Frames().encode(content))


def test_a_connection_that_does_not_authenticate_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HANDSHAKE_S", 0.0)
    with listening() as listener, socket.create_connection(("127.0.0.1", listener.port)) as silent:
        while not listener.refused:
            assert listener.accept() == []
        assert silent.recv(1) == b""


def test_the_first_bytes_of_a_stranger_are_not_kept() -> None:
    """Before authentication a frame is short, so a stranger cannot make the driver reserve memory."""
    with pytest.raises(LinkError, match="at most 512"):
        Acceptance(KEY).receive(connection.LENGTH.pack(513))


def protected() -> tuple[Frames, Frames]:
    one, other = Frames(), Frames()
    one.protect(b"a" * 32, b"b" * 32)
    other.protect(b"b" * 32, b"a" * 32)
    return one, other


def test_any_split_of_the_bytes_gives_the_same_contents() -> None:
    contents = [b"", b"x", b"y" * 1000]
    sender, _ = protected()
    data = b"".join(map(sender.encode, contents))
    for size in (1, 3, 7, len(data)):
        _, receiver = protected()
        found = []
        for start in range(0, len(data), size):
            receiver.feed(data[start : start + size])
            while (content := receiver.next()) is not None:
                found.append(content)
        assert found == contents and not receiver.partial


def test_a_frame_that_is_too_long_is_refused_before_it_has_arrived() -> None:
    _, receiver = protected()
    receiver.feed(connection.LENGTH.pack(connection.MOST + 1))
    with pytest.raises(LinkError, match="at most"):
        receiver.next()
    with pytest.raises(LinkError, match="too long"):
        protected()[0].encode(bytes(connection.MOST))


@pytest.mark.parametrize("place", [4, 10, -1])
def test_a_changed_byte_is_refused(place: int) -> None:
    sender, receiver = protected()
    frame = bytearray(sender.encode(b"transfer 1"))
    frame[place] ^= 1
    receiver.feed(bytes(frame))
    with pytest.raises(LinkError, match="MAC"):
        receiver.next()


def test_a_frame_that_is_repeated_left_out_or_sent_back_is_refused() -> None:
    sender, receiver = protected()
    first, second = sender.encode(b"1"), sender.encode(b"2")
    receiver.feed(first + first)
    assert receiver.next() == b"1"
    with pytest.raises(LinkError, match="MAC"):
        receiver.next()
    _, receiver = protected()
    receiver.feed(second)
    with pytest.raises(LinkError, match="MAC"):
        receiver.next()
    sender, _ = protected()
    sender.feed(first)
    with pytest.raises(LinkError, match="MAC"):
        sender.next()


def test_a_frame_without_room_for_a_mac_is_refused() -> None:
    _, receiver = protected()
    receiver.feed(connection.LENGTH.pack(3) + b"abc")
    with pytest.raises(LinkError, match="MAC"):
        receiver.next()


def test_a_link_that_is_cut_within_a_frame_gives_the_frames_before_and_ends() -> None:
    near, far = socket.socketpair()
    one, other = protected()
    link = Link(near, other)
    frames = one.encode(msgspec.msgpack.encode(Finish())) + one.encode(msgspec.msgpack.encode(Finish()))[:-3]
    far.sendall(frames)
    far.close()
    assert link.receive() == [Finish()]
    with pytest.raises(LinkError, match="within a message"):
        link.receive()
    link.close()


@pytest.mark.parametrize("content", [b"\xc1", msgspec.msgpack.encode({"type": "unknown"}), msgspec.msgpack.encode([1])])
def test_a_message_that_this_version_does_not_know_ends_the_link(content: bytes) -> None:
    near, far = socket.socketpair()
    one, other = protected()
    link = Link(near, other)
    far.sendall(one.encode(content))
    with pytest.raises(LinkError, match="does not know"):
        link.receive()
    link.close()
    far.close()


def test_a_peer_that_reads_nothing_never_makes_a_sender_wait() -> None:
    near, far = socket.socketpair()
    one, other = protected()
    link, peer = Link(near, one), Link(far, other)
    chunk = Chunk("a", 0, b"x" * 65536)
    sent = 0
    while not link.pending:
        link.send(chunk)
        sent += 1
    assert not link.flush()
    with pytest.raises(LinkError, match="took no bytes"):
        link.drain(0.01)
    found = 0
    while found < sent:
        found += len(peer.receive())
        link.flush()
    assert not link.pending
    link.close()
    peer.close()


def test_a_config_does_not_show_its_key() -> None:
    from fastllmload.engine.hosts.link.messages import AgentConfig

    config = AgentConfig(address="127.0.0.1", tcp_port=1, udp_port=2, key="feed", host=0)
    assert "feed" not in repr(config) and "feed" not in f"{config}"
