"""Authenticated links over TCP: frames with a MAC, the handshake before them, and non-blocking sockets.

A frame is its length (uint32, little-endian), the content and, once both sides have proved that they have the run's key, a
MAC of the frame's number and content with a key of this connection and direction: what is changed, left out, repeated or
sent by another program is refused. Contents are authenticated, not encrypted.

    agent → driver   Hello(nonce)
    driver → agent   Challenge(nonce, HMAC(key, "driver" + both nonces + host + purpose))
    agent → driver   Proof(HMAC(key, "agent" + the same))
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import hmac
import os
import select
import socket
import struct
import time
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from fastllmload.engine.hosts.link.messages import PROTOCOL, Challenge, Hello, Message, Proof

LENGTH, NUMBER = struct.Struct("<I"), struct.Struct("<Q")
MOST, MOST_BEFORE = 8 << 20, 512  # bytes of a frame, after and before authentication
MAC_BYTES, NONCE_BYTES = 16, 32
AT_ONCE, READ_BYTES = 1 << 18, 1 << 16  # bytes of a write, and of a read
HANDSHAKE_S = 10.0
MOST_WAITING = 64  # connections that are not authenticated yet
BUFFER_BYTES = 1 << 20
# A driver whose kernel does not acknowledge for this long is gone. One that is frozen is not: its kernel answers.
USER_TIMEOUT_MS, KEEPALIVE_S, KEEPALIVE_COUNT = 6000, 2, 2
ENCODER = msgspec.msgpack.Encoder()
DECODER: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


class LinkError(Exception):
    """The link has ended, or the peer breaks the protocol; the message is a clause."""


class Frames:
    """Contents to frames and back, without a socket."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._keys: tuple[bytes, bytes] | None = None
        self._sent = self._received = 0

    def protect(self, own: bytes, peer: bytes) -> None:
        """From now on frames carry a MAC: *own* is the key of those that this side sends."""
        self._keys = own, peer

    def encode(self, content: bytes) -> bytes:
        if self._keys is None:
            return LENGTH.pack(len(content)) + content
        if len(content) > MOST - MAC_BYTES:
            raise LinkError(f"a message of {len(content):,} bytes is too long for a frame")
        seal = mac(self._keys[0], self._sent, content)
        self._sent += 1
        return LENGTH.pack(len(content) + MAC_BYTES) + content + seal

    def feed(self, data: bytes | memoryview) -> None:
        self._buffer += data

    def next(self) -> bytes | None:
        """The next complete content; None when more bytes are needed. LinkError for a frame that is refused."""
        if len(self._buffer) < LENGTH.size:
            return None
        (size,) = LENGTH.unpack_from(self._buffer)
        most = MOST_BEFORE if self._keys is None else MOST
        if size > most:
            raise LinkError(f"a frame of {size:,} bytes was received; at most {most:,} are allowed")
        if len(self._buffer) < LENGTH.size + size:
            return None
        frame = bytes(self._buffer[LENGTH.size : LENGTH.size + size])
        del self._buffer[: LENGTH.size + size]
        return frame if self._keys is None else self._checked(frame)

    @property
    def partial(self) -> bool:
        """Whether a part of a frame waits for the rest."""
        return bool(self._buffer)

    def _checked(self, frame: bytes) -> bytes:
        assert self._keys is not None
        content = frame[:-MAC_BYTES]
        if not hmac.compare_digest(mac(self._keys[1], self._received, content), frame[-MAC_BYTES:]):
            raise LinkError("a frame was received that the peer did not send: its MAC is wrong")
        self._received += 1
        return content


def mac(key: bytes, number: int, content: bytes) -> bytes:
    return hashlib.blake2b(NUMBER.pack(number) + content, key=key, digest_size=MAC_BYTES).digest()


def derive(key: bytes, label: bytes, hello: Hello, nonce: bytes) -> bytes:
    text = b"|".join((label, str(hello.host).encode(), hello.purpose.encode()))
    return hmac.digest(key, text + hello.nonce + nonce, "sha256")


class Link:
    """An authenticated connection. Owns *connection*, which does not block."""

    def __init__(self, connection: socket.socket, frames: Frames) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._frames = frames
        self._out = bytearray()
        self._in = bytearray(READ_BYTES)  # a new one for each read would cost more than all else
        self._ended: str | None = None

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def pending(self) -> int:
        """Bytes that wait for the socket."""
        return len(self._out)

    def send(self, message: Message) -> None:
        """Send *message*, or as much of it as the socket takes; `flush` sends the rest. LinkError."""
        self._out += self._frames.encode(ENCODER.encode(message))
        self.flush()

    def flush(self) -> bool:
        """Whether nothing waits any more. LinkError."""
        while self._out:
            try:
                sent = self._socket.send(memoryview(self._out)[:AT_ONCE])
            except BlockingIOError:
                return False
            except OSError as problem:
                raise LinkError(ended_by(problem)) from problem
            del self._out[:sent]
        return True

    def drain(self, seconds: float) -> None:
        """Wait until nothing is left to send. LinkError after *seconds* without progress."""
        while not self.flush():
            if not select.select([], [self._socket], [], seconds)[1]:
                raise LinkError(f"the peer took no bytes for {seconds:g} s")

    def receive(self) -> list[Message]:
        """The complete messages that have arrived; it never waits. LinkError when the link has ended and none is left."""
        self._read()
        found: list[Message] = []
        try:
            while (content := self._frames.next()) is not None:
                found.append(DECODER.decode(content))
        except LinkError as problem:
            self._ended = str(problem)
        except msgspec.MsgspecError as problem:
            self._ended = f"a message was received that this version does not know: {problem}"
        if self._ended is not None and not found:
            raise LinkError(self._ended)
        return found

    def _read(self) -> None:
        if self._ended is not None:
            return
        try:
            for _ in range(MOST // READ_BYTES):
                count = self._socket.recv_into(self._in)
                if not count:
                    self._ended = "the connection was closed" + (" within a message" if self._frames.partial else "")
                    return
                self._frames.feed(memoryview(self._in)[:count])
                if count < READ_BYTES:
                    return
        except BlockingIOError:
            return
        except OSError as problem:
            self._ended = ended_by(problem)

    def close(self) -> None:
        self._socket.close()


def ended_by(problem: OSError) -> str:
    if problem.errno in (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH):
        return "the peer's host does not answer any more"
    return f"the connection failed: {(problem.strerror or str(problem)).lower()}"


def tune(connection: socket.socket) -> None:
    """Small messages at once, and an end within seconds when the peer's host is gone while nothing is sent."""
    if connection.family == socket.AF_UNIX:
        return
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_COUNT)


def connect(address: str, port: int, key: bytes, host: int, purpose: str, seconds: float = HANDSHAKE_S) -> Link:
    """Connect to the driver and authenticate both sides. OSError, LinkError. *seconds*: for the driver to answer."""
    connection = socket.create_connection((address, port), HANDSHAKE_S)
    try:
        tune(connection)
        if purpose == "agent":  # a process that receives files may wait for its disk
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS)
        return authenticate(connection, key, host, purpose, seconds)
    except BaseException:
        connection.close()
        raise


def authenticate(connection: socket.socket, key: bytes, host: int, purpose: str, seconds: float = HANDSHAKE_S) -> Link:
    """The agent's side of the handshake on a connected socket. LinkError when the driver does not have the key."""
    until = time.monotonic() + seconds
    frames = Frames()
    hello = Hello(PROTOCOL, host, purpose, os.urandom(NONCE_BYTES))
    connection.settimeout(seconds)
    connection.sendall(frames.encode(ENCODER.encode(hello)))
    while (content := frames.next()) is None:
        connection.settimeout(max(0.001, until - time.monotonic()))
        try:
            data = connection.recv(MOST_BEFORE)
        except TimeoutError:
            raise LinkError(f"the driver did not answer within {seconds:g} s") from None
        if not data:
            raise LinkError("the driver refused the connection: it has another key or another version of the protocol")
        frames.feed(data)
    challenge = decoded(content, Challenge)
    if not hmac.compare_digest(challenge.proof, derive(key, b"driver", hello, challenge.nonce)):
        raise LinkError("the driver does not have the key of this run")
    connection.sendall(frames.encode(ENCODER.encode(Proof(derive(key, b"agent", hello, challenge.nonce)))))
    frames.protect(derive(key, b"to driver", hello, challenge.nonce), derive(key, b"to agent", hello, challenge.nonce))
    return Link(connection, frames)


@dataclass
class Acceptance:
    """The driver's side of the handshake of one connection. *answer*: bytes to send; *link_frames*: once it is complete."""

    key: bytes
    frames: Frames = field(default_factory=Frames)
    hello: Hello | None = None
    nonce: bytes = field(default_factory=lambda: os.urandom(NONCE_BYTES))
    done: bool = False

    def receive(self, data: bytes) -> bytes:
        """Bytes to send. LinkError: close the connection."""
        self.frames.feed(data)
        answer = b""
        while not self.done and (content := self.frames.next()) is not None:
            answer += self._challenge(content) if self.hello is None else self._accept(content)
        return answer

    def _challenge(self, content: bytes) -> bytes:
        hello = decoded(content, Hello)
        if hello.protocol != PROTOCOL:
            raise LinkError(f"the agent speaks version {hello.protocol} of the protocol, this driver {PROTOCOL}")
        if len(hello.nonce) != NONCE_BYTES:
            raise LinkError("the nonce of an agent has another length")
        self.hello = hello
        proof = derive(self.key, b"driver", hello, self.nonce)
        return self.frames.encode(ENCODER.encode(Challenge(self.nonce, proof)))

    def _accept(self, content: bytes) -> bytes:
        assert self.hello is not None
        if not hmac.compare_digest(decoded(content, Proof).proof, derive(self.key, b"agent", self.hello, self.nonce)):
            raise LinkError("an agent does not have the key of this run")
        to_agent, to_driver = (derive(self.key, label, self.hello, self.nonce) for label in (b"to agent", b"to driver"))
        self.frames.protect(to_agent, to_driver)
        self.done = True
        return b""


Kind = TypeVar("Kind")


def decoded(content: bytes, kind: type[Kind]) -> Kind:
    try:
        return msgspec.msgpack.decode(content, type=kind)
    except msgspec.MsgspecError as problem:
        raise LinkError(f"a message of the handshake cannot be read: {problem}") from problem


class Listener:
    """Accepts connections of agents. Owns *listening*. Connections that do not authenticate in time are closed."""

    def __init__(self, listening: socket.socket, key: bytes, purpose: str) -> None:
        self.listening = listening
        self.listening.setblocking(False)
        self._key, self._purpose = key, purpose
        self._waiting: dict[int, tuple[socket.socket, Acceptance, float]] = {}
        self._poll = select.epoll()
        self._poll.register(self.listening, select.EPOLLIN)
        self.refused: list[str] = []  # why, of connections that were refused

    @property
    def port(self) -> int:
        return int(self.listening.getsockname()[1])

    def fileno(self) -> int:
        """Readable when `accept` has something to do."""
        return self._poll.fileno()

    def accept(self) -> list[tuple[Hello, Link]]:
        """The connections that have authenticated since the last call; it never waits."""
        now, found = time.monotonic(), []
        for number in [number for number, (_, _, until) in self._waiting.items() if now > until]:
            self._refuse(number, f"it did not authenticate within {HANDSHAKE_S:g} s")
        for number, _ in self._poll.poll(0):
            if number == self.listening.fileno():
                self._accept()
            elif (link := self._continue(number)) is not None:
                found.append(link)
        return found

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listening.accept()
            except OSError:  # none is left, or it has ended already
                return
            if len(self._waiting) >= MOST_WAITING:
                connection.close()
                continue
            connection.setblocking(False)
            tune(connection)
            until = time.monotonic() + HANDSHAKE_S
            self._waiting[connection.fileno()] = connection, Acceptance(self._key), until
            self._poll.register(connection, select.EPOLLIN)

    def _continue(self, number: int) -> tuple[Hello, Link] | None:
        connection, acceptance, _ = self._waiting[number]
        try:
            data = connection.recv(AT_ONCE)
            if not data:
                raise LinkError("it was closed before it had authenticated")
            connection.sendall(acceptance.receive(data))
            if not acceptance.done:
                return None
            assert acceptance.hello is not None
            if acceptance.hello.purpose != self._purpose:
                raise LinkError(f"its purpose is {acceptance.hello.purpose!r}")
        except (LinkError, OSError) as problem:
            self._refuse(number, str(problem))
            return None
        del self._waiting[number]
        self._poll.unregister(connection)
        return acceptance.hello, Link(connection, acceptance.frames)

    def _refuse(self, number: int, why: str) -> None:
        connection = self._waiting.pop(number)[0]
        self._poll.unregister(connection)
        connection.close()
        self.refused.append(why)

    def close(self) -> None:
        for connection, _, _ in self._waiting.values():
            connection.close()
        self._waiting.clear()
        self._poll.close()
        with contextlib.suppress(OSError):
            self.listening.close()


def listen(address: str, port: int = 0) -> socket.socket:
    """A listening TCP socket at *address*. OSError."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        listening.bind((address, port))
        listening.listen(1024)
    except BaseException:
        listening.close()
        raise
    return listening
