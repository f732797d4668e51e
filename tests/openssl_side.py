"""A server's side of TLS 1.3 on the system's libssl, which can change its keys in the middle of a stream.

Python's `ssl` cannot ask for that. It has what `Secured` of reactor_drive needs of a Channel.
"""

from __future__ import annotations

import ctypes
import ctypes.util

import pytest

from fastllmload._ext.tls.session import TlsState

NAME = ctypes.util.find_library("ssl")
needs_libssl = pytest.mark.skipif(NAME is None, reason="there is no libssl that can be loaded")
PEM = 1  # a kind of file
KEY_UPDATE = 24  # type of the handshake message (RFC 8446, 4.6.3)
HANDSHAKE = 22  # type of a record's content
MESSAGE = ctypes.CFUNCTYPE(
    None, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p
)
ALPN = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_char_p), ctypes.POINTER(ctypes.c_ubyte), ctypes.c_void_p,
    ctypes.c_uint, ctypes.c_void_p,
)  # fmt: skip


@ALPN
def agree_to_http2(
    _ssl: int, said: ctypes._Pointer[ctypes.c_char_p], size: ctypes._Pointer[ctypes.c_ubyte], *_: int
) -> int:
    said[0], size[0] = b"h2", 2
    return 0


def library() -> ctypes.CDLL:
    found = ctypes.CDLL(NAME)
    for name in ("TLS_server_method", "SSL_CTX_new", "SSL_new", "BIO_new", "BIO_s_mem"):
        getattr(found, name).restype = ctypes.c_void_p
    return found


class UpdatingSide:
    """*http2*: it agrees to that by ALPN, whatever is asked. *peers*: key updates that the other side has sent."""

    def __init__(self, cert: str, key: str, http2: bool = False) -> None:
        self.ssl = library()
        context = ctypes.c_void_p(self.ssl.SSL_CTX_new(ctypes.c_void_p(self.ssl.TLS_server_method())))
        assert self.ssl.SSL_CTX_use_certificate_chain_file(context, cert.encode()) == 1
        assert self.ssl.SSL_CTX_use_PrivateKey_file(context, key.encode(), PEM) == 1
        if http2:
            self.ssl.SSL_CTX_set_alpn_select_cb(context, agree_to_http2, None)
        self.side = ctypes.c_void_p(self.ssl.SSL_new(context))
        self.given, self.out = (
            ctypes.c_void_p(self.ssl.BIO_new(ctypes.c_void_p(self.ssl.BIO_s_mem()))) for _ in range(2)
        )
        self.ssl.SSL_set_bio(self.side, self.given, self.out)
        self.ssl.SSL_set_accept_state(self.side)
        self.peers = 0
        self.noticed = MESSAGE(self.notice)
        self.ssl.SSL_set_msg_callback(self.side, self.noticed)
        self.state = int(TlsState.TLS_HANDSHAKE)
        self.problem = ""
        self.ssl.SSL_CTX_free(context)

    def __del__(self) -> None:
        self.ssl.SSL_free(self.side)

    def notice(self, written: int, _version: int, content: int, data: int, size: int, *_: int) -> None:
        if not written and content == HANDSHAKE and size and ctypes.string_at(data, 1)[0] == KEY_UPDATE:
            self.peers += 1

    def feed(self, data: bytes) -> bytes:
        self.ssl.BIO_write(self.given, data, len(data))
        if self.state == TlsState.TLS_HANDSHAKE and self.ssl.SSL_do_handshake(self.side) == 1:
            self.state = int(TlsState.TLS_OPEN)
        room = ctypes.create_string_buffer(65536)
        found = b""
        while self.state == TlsState.TLS_OPEN and (got := self.ssl.SSL_read(self.side, room, len(room))) > 0:
            found += room.raw[:got]
        return found

    def write(self, data: bytes) -> None:
        assert self.ssl.SSL_write(self.side, data, len(data)) == len(data)

    def update(self, asked: bool) -> None:
        """New keys for what is sent from here on; *asked*: of the other side, too."""
        assert self.ssl.SSL_key_update(self.side, int(asked)) == 1
        assert self.ssl.SSL_do_handshake(self.side) == 1

    def taken(self) -> bytes:
        room = ctypes.create_string_buffer(1 << 20)
        size = self.ssl.BIO_read(self.out, room, len(room))
        return room.raw[: max(size, 0)]
