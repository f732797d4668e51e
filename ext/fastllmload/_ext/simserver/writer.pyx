"""Composed bytes on their way to the socket: stamped, logged, and cut or delayed where a fault asks for it."""

from urllib.parse import quote

from libc.stdint cimport uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from fastllmload._ext.bytes.digits cimport put_number
from fastllmload._ext.http.frames cimport FF_END_HEADERS, FF_END_STREAM, FT_HEADERS
from fastllmload._ext.sim.sequence cimport DRAW_SPLIT, draw
from fastllmload._ext.simserver.connection cimport SAID, SENT_FAILED, SENT_QUEUED, Sent
from fastllmload._ext.sim.fault cimport FAULT_FRAGMENTS, FAULT_SLOW_HEAD, FAULT_SPLIT
from fastllmload._ext.simserver.streams cimport BACK, FRONT, Streams
from fastllmload._ext.simserver.truth cimport TRUTH_QUEUED, truth_event
from fastllmload._ext.simserver.upgrade cimport frame_of, in_parts
from fastllmload._ext.system.clock cimport mono_ns

from fastllmload._ext.http.block import response_block, sized

cdef enum:
    MS = 1_000_000

GARBAGE = b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n"      # as of a proxy that answers in clear text
REASONS = {
    400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed", 409: "Conflict",
    413: "Content Too Large", 429: "Too Many Requests", 431: "Request Header Fields Too Large",
    500: "Internal Server Error", 501: "Not Implemented", 502: "Bad Gateway", 503: "Service Unavailable",
    504: "Gateway Timeout", 505: "HTTP Version Not Supported",
}

# Statuses of gRPC for those of HTTP (google.rpc.Code); all others are UNKNOWN.
CALL_STATUS = {
    400: 3, 401: 16, 403: 7, 404: 5, 405: 12, 409: 10, 413: 8, 429: 8, 499: 1, 500: 13, 501: 12, 502: 14, 503: 14, 504: 4, 505: 12,
}
UNKNOWN = 2
CALL_HEAD = b"HTTP/1.1 200 OK\r\nserver: fastllmload-simulator\r\ncontent-type: application/grpc\r\n"
FAILURE = "simulated failure"
MESSAGE_MOST = 250              # bytes of a status's message, %-encoded


def status_fields(status: int, message: str = "") -> dict[str, str]:
    """The fields that say how a call ended; of a long message its first characters."""
    message = message[:MESSAGE_MOST]
    while len(said := quote(message, safe=" !#$&'()*+,/:;=?@[]")) > MESSAGE_MOST:
        message = message[:-1]
    return {"grpc-status": str(status)} | ({"grpc-message": said} if said else {})


def trailers(status: int, message: str = "") -> bytes:
    """The block of them; no table takes them up."""
    return b"".join(b"\x10" + sized(name.encode()) + sized(text.encode()) for name, text in status_fields(status, message).items())


CALL_INTERNAL = CALL_STATUS[500]
SAID_MOST = SAID
CALL_OK, CALL_FAILED = trailers(0), trailers(CALL_INTERNAL, FAILURE)


def page_head(status: int, content_type: str, size: int, extra: str = "") -> bytes:
    """The head of a reply with Content-Length; *extra*: more fields, each ended by CR LF."""
    reason = REASONS.get(status, "OK" if status < 300 else "Error")
    return (
        f"HTTP/1.1 {status} {reason}\r\nserver: fastllmload-simulator\r\ncontent-type: {content_type}\r\n"
        f"content-length: {size}\r\n{extra}\r\n"
    ).encode("latin-1")


cdef class Writer:
    """Writes to *connections* and logs to *truth*."""

    def __init__(self, connections: Streams, truth: Truth):
        self.connections = connections
        self.truth = truth
        self.ensure(262_144)

    def __dealloc__(self):
        free(self.memory)

    cdef int ensure(self, size_t size) except -1:
        cdef uint8_t* grown
        if size > self.scratch_size:
            grown = <uint8_t*>realloc(self.memory, FRONT + size + BACK)
            if grown == NULL:
                raise MemoryError(f"no memory for a reply of {size} bytes")
            self.memory = grown
            self.scratch = grown + FRONT
            self.scratch_size = size
        return 0

    cdef Outcome write(self, Connection* c, uint8_t* start, uint8_t* end, int64_t* at) except? LOST:
        cdef Sent sent
        cdef size_t size
        cdef bint last = c.reply.last
        if c.reply.fault == FAULT_SPLIT:
            return self.write_split(c, start, end, at)
        if c.reply.fault == FAULT_FRAGMENTS:
            parts = in_parts((<char*>start)[: end - start], max(c.reply.fault_arg, <size_t>1))
            start = <uint8_t*><char*>parts
            end = start + len(parts)
        if c.reply.fault == FAULT_SLOW_HEAD and c.reply.fault_at == 0 and end - start > 20:
            c.reply.fault_at = -1
            size = 20 if c.carrier == NULL else 0       # the head of a stream is whole or nothing
            c.reply.last = False
            if self.connections.send(c, start, size) == SENT_FAILED:
                return LOST
            c.reply.last = last
            start += size
            c.out_due = mono_ns() + <int64_t>c.reply.fault_arg * MS
        c.t_sent = mono_ns()
        sent = self.connections.send(c, start, <size_t>(end - start))
        at[0] = c.t_sent
        if self.truth.on:
            self.sent = mono_ns()
        self.queued = sent == SENT_QUEUED
        return LOST if sent == SENT_FAILED else GOING

    cdef Outcome write_split(self, Connection* c, uint8_t* start, uint8_t* end, int64_t* at) except? LOST:
        # The stamp is that of the last piece: only then is the event whole.
        cdef uint64_t word
        cdef size_t size
        cdef Sent sent
        cdef bint last = c.reply.last
        while start < end:
            word = draw(c.reply.stamp.id, <uint64_t>(end - start), DRAW_SPLIT)
            size = min(<size_t>(1 + word % (c.reply.fault_arg if c.reply.fault_arg else 1)), <size_t>(end - start))
            c.reply.last = last and start + size == end
            c.t_sent = mono_ns()
            sent = self.connections.send(c, start, size)
            at[0] = c.t_sent
            if self.truth.on:
                self.sent = mono_ns()
            if sent == SENT_FAILED:
                return LOST
            self.queued = sent == SENT_QUEUED
            start += size
        return GOING

    cdef int set_head(self, Connection* c, bytes block, int64_t length) except -1:
        cdef uint8_t* end
        cdef size_t size = <size_t>len(block)
        if size + 24 + SAID > sizeof(self.fields):
            raise OverflowError(f"the head of a response has {size} bytes: enlarge Writer.fields")
        memcpy(self.fields, <const char*>block, size)
        end = self.fields + size
        if length >= 0:
            end[0], end[1] = 0x0F, 0x0D         # a literal with name 28 of the static table: content-length
            end[2] = <uint8_t>(put_number(end + 3, length) - end - 3)
            end += 3 + end[2]
        for line in c.reply.said[:c.reply.said_size].splitlines():
            name, _, value = line.partition(b": ")
            said = b"\x10" + sized(name) + sized(value)
            memcpy(end, <const char*>said, <size_t>len(said))
            end += len(said)
        c.head = self.fields
        c.head_size = <size_t>(end - self.fields)
        return 0

    cdef int set_trailers(self, Connection* c, bytes block, int status) except -1:
        c.reply.trailers.at = <const uint8_t*><const char*>block
        c.reply.trailers.size = <size_t>len(block)
        c.reply.call_status = <uint8_t>status
        return 0

    cdef Outcome refuse_call(self, Connection* c, int http_status, str message) except? LOST:
        cdef int status = CALL_STATUS.get(http_status, UNKNOWN)
        c.truth.status = 200
        c.truth.call_status = status
        c.reply.trailers.size = 0
        if c.answered:
            c.reply.ended = True
            block = trailers(status, message)
            if self.connections.put(c.carrier, FT_HEADERS, FF_END_HEADERS | FF_END_STREAM, c.stream, <const char*>block,
                                    <size_t>len(block)) == SENT_FAILED:
                return LOST
            return COMPLETE
        said = "".join(f"{name}: {text}\r\n" for name, text in status_fields(status, message).items())
        return self.page(c, CALL_HEAD + said.encode(), b"")

    cdef int log(self, Connection* c, int64_t at, uint8_t kind) except -1:
        if self.truth.on:
            truth_event(self.truth, at, self.sent - at, c.sequence.serial, c.reply.events,
                        kind | (TRUTH_QUEUED if self.queued else 0))
        c.reply.events += 1
        return 0

    cdef Outcome page(self, Connection* c, bytes head, bytes body) except? LOST:
        c.reply.last = True
        if c.carrier != NULL:
            self.set_head(c, response_block(head), -1)
            head = b""
        elif c.reply.said_size:
            head = head[:-2] + c.reply.said[:c.reply.said_size] + b"\r\n"
        whole = frame_of(1, body) if c.messages else head + body
        self.ensure(len(whole))
        memcpy(self.scratch, <const char*>whole, len(whole))
        cdef int64_t at = 0
        if self.write(c, self.scratch, self.scratch + len(whole), &at) == LOST:
            return LOST
        return COMPLETE
