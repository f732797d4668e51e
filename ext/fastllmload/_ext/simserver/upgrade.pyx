"""WebSocket (RFC 6455) on the server's side, written apart from the client's."""

import base64
import hashlib
import struct

from libc.string cimport memset

from fastllmload._ext.http.request cimport BODY_LIMIT, NO_KEY, Text, request_id
from fastllmload._ext.system.syscall cimport memmem

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

cdef enum:
    NAME_NEAR = 256             # bytes of a message in which the name of its request is looked for
    TEXT = 1
    CLOSE = 8
    PING = 9


cdef ClientStep client_frame(ClientFrame* f, uint8_t* data, size_t size) noexcept nogil:
    cdef size_t i, head
    f.whole = 2
    if size < 2:
        return CLIENT_NEED
    f.opcode = data[0] & 0x0F
    f.size = data[1] & 0x7F
    head = 2 if f.size < 126 else 4 if f.size == 126 else 10
    if data[0] & 0xF0 != 0x80 or not data[1] & 0x80 or not (f.opcode == TEXT or CLOSE <= f.opcode <= PING + 1):
        return CLIENT_BAD
    f.whole = head + 4
    if size < f.whole:
        return CLIENT_NEED
    if head > 2:
        f.size = 0
        for i in range(2, head):
            f.size = f.size << 8 | data[i]
    if f.size > <size_t>BODY_LIMIT:
        return CLIENT_BAD
    f.whole += f.size
    if size < f.whole:
        return CLIENT_NEED
    f.at = data + head + 4
    if data[head] or data[head + 1] or data[head + 2] or data[head + 3]:
        for i in range(f.size):
            f.at[i] ^= data[head + i % 4]
    return CLIENT_FRAME


cdef void client_names(Request* r, const uint8_t* message, size_t size) noexcept nogil:
    cdef const uint8_t* at
    cdef Text name
    memset(r, 0, sizeof(Request))
    r.minor_version = r.keep_alive = 1
    r.phase = r.key = NO_KEY
    at = <const uint8_t*>memmem(message, min(size, <size_t>NAME_NEAR), b'"request_id":"', 14)
    if at == NULL:
        return
    name.at = at + 14
    name.size = 0
    while name.at + name.size < message + size and name.at[name.size] != c'"':
        name.size += 1
    request_id(r, name)


cdef bytes accepted(Request* r):
    key = (<char*>r.websocket_key.at)[: r.websocket_key.size]
    answer = base64.b64encode(hashlib.sha1(key + GUID, usedforsecurity=False).digest())
    return (b"HTTP/1.1 101 Switching Protocols\r\nserver: fastllmload-simulator\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
            b"sec-websocket-accept: %b\r\n\r\n" % answer)


cdef bytes frame_of(int opcode, bytes payload):
    return head_of(0x80 | opcode, len(payload)) + payload


cdef bytes head_of(int first, size_t size):
    if size < 126:
        return bytes((first, size))
    return struct.pack(">BBH", first, 126, size) if size < 65536 else struct.pack(">BBQ", first, 127, size)


cdef bytes close_of(int code):
    return frame_of(CLOSE, struct.pack(">H", code))


cdef bytes in_parts(bytes frames, size_t most):
    made = bytearray()
    at = 0
    while at < len(frames):
        size = frames[at + 1]
        head = 2 if size < 126 else 4 if size == 126 else 10
        if head > 2:
            size = int.from_bytes(frames[at + 2 : at + head], "big")
        payload = frames[at + head : at + head + size]
        starts = range(0, max(size, 1), most)
        for start in starts:
            last = start == starts[-1]
            made += head_of((0x80 if last else 0) | (0 if start else frames[at] & 0x0F), len(payload[start : start + most]))
            made += payload[start : start + most]
            if not last:
                made += frame_of(PING, b"between")
        at += head + size
    return bytes(made)
