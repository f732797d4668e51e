"""Frames of a client, to be sent on a WebSocket connection.

They carry a key that masks their payload, which keeps scripts of web pages from choosing bytes on the wire. Here all bytes are a
plan's, and the key is 0, so that payload is sent as it lies in the plan.
"""

from libc.stdlib cimport calloc, free
from libc.string cimport memset

from fastllmload._ext.bytes.carry cimport carry_add, carry_free, carry_reset

cdef enum:
    FINAL = 0x80
    MASKED = 0x80


cdef Socket* socket_new() except NULL:
    cdef Socket* s = <Socket*>calloc(1, sizeof(Socket))
    if s == NULL:
        raise MemoryError("a WebSocket connection")
    return s


cdef void socket_free(Socket* s) noexcept nogil:
    if s != NULL:
        carry_free(&s.message, &s.message_size, &s.message_cap)
        carry_free(&s.out, &s.out_size, &s.out_cap)
        free(s)


cdef int put_bytes(Socket* s, const void* data, size_t size) except -1:
    if carry_add(&s.out, &s.out_size, &s.out_cap, <const unsigned char*>data, size) < 0:
        raise MemoryError(f"{s.out_size + size} bytes to be sent")
    return 0


cdef int put_control(Socket* s, Opcode opcode, const void* payload, size_t size) except -1:
    cdef uint8_t[2 + MASK_KEY] header = [<uint8_t>(FINAL | opcode), <uint8_t>(MASKED | size), 0, 0, 0, 0]
    put_bytes(s, header, sizeof(header))
    return put_bytes(s, payload, size)


cdef int put_close(Socket* s, uint16_t code) except -1:
    cdef uint8_t[2] said = [<uint8_t>(code >> 8), <uint8_t>code]
    if s.closed:
        return 0
    s.closed = True
    return put_control(s, OP_CLOSE, said, 0 if code == CLOSE_NONE else 2)


cdef void replies_sent(Socket* s, size_t size) noexcept nogil:
    s.out_at += size
    if s.out_at == s.out_size:
        s.out_at = 0
        carry_reset(&s.out, &s.out_size, &s.out_cap)


cdef uint8_t* put_text_header(uint8_t* at, uint64_t size) noexcept nogil:
    cdef int i, wide = 0 if size <= CONTROL_MOST else 2 if size < 65536 else 8
    at[0] = FINAL | OP_TEXT
    at[1] = MASKED | <uint8_t>(size if wide == 0 else 126 if wide == 2 else 127)
    at += 2
    for i in range(wide):
        at[i] = <uint8_t>(size >> 8 * (wide - 1 - i))
    memset(at + wide, 0, MASK_KEY)
    return at + wide + MASK_KEY


def text_frame(bytes payload not None) -> bytes:
    """A client's message, as a run sends it."""
    cdef uint8_t[MESSAGE_HEADER + MASK_KEY] header
    cdef uint8_t* end = put_text_header(header, <uint64_t>len(payload))
    return header[: end - &header[0]] + payload
