# What a connection receives, as heads and payloads of responses: one interface for every way to frame them on a connection. Sans-IO.
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t

from fastllmload._ext.bytes.cursor cimport Cursor
from fastllmload._ext.events.sse cimport Arrival
from fastllmload._ext.http.headlike cimport Wanted
from fastllmload._ext.http.response cimport Body
from fastllmload._ext.receive.exchange cimport Exchange
from fastllmload._ext.receive.messages cimport Socket
from fastllmload._ext.receive.multiplex cimport Multiplex

cdef enum IncomingState:
    IN_IDLE = 0             # nothing is expected: any byte from the peer is an error
    IN_MESSAGES = 1         # WebSocket: the connection is upgraded
    IN_HEAD = 2             # waiting for, or inside, the head of a response
    IN_BODY = 3

cdef struct Incoming:       # of one connection; what every read touches comes first
    Arrival now             # of the latest read; its *t* is 0 before the first one of a response
    Exchange* x             # HTTP/1.1: the exchange whose response is expected; borrowed
    Body body
    uint8_t state           # IncomingState
    uint8_t keep_alive      # the connection may serve another request
    unsigned char* held     # a partial head; owned
    size_t held_size
    size_t held_cap
    size_t head_bytes       # of the heads of this response up to now: interim ones come before the final one
    Multiplex* many         # HTTP/2: what it has instead of *x*, *body* and heads; NULL otherwise. Owned
    Socket* socket          # WebSocket: what it has instead of *body*; NULL otherwise. Owned

cdef enum FrameStep:
    FRAME_RAISED = -1       # an exception
    FRAME_MORE = 0          # every byte is taken: read on
    FRAME_HEAD = 1          # the final head of *x*, of which *status* and the fields after it tell
    FRAME_PAYLOAD = 2       # *span*: bytes of the body of *x*, borrowed from what was fed
    FRAME_END = 3           # the response of *x* is complete
    FRAME_ERROR = 4         # *error*: nothing that follows on the connection can be read
    FRAME_FAILED = 5        # HTTP/2: *error* has ended *x*, but not the connection. Before FRAME_ERROR each exchange fails
    FRAME_UPGRADED = 6      # HTTP/1.1: *span* is the head of a 101 to the upgrade of a WebSocket
    FRAME_TRAILERS = 7      # of gRPC: *grpc_status*, and in *span* its words; FRAME_END follows

cdef struct Frame:
    Exchange* x             # whose
    Cursor span
    uint8_t error           # ErrorClass (recorder.pxd)
    uint8_t ends            # of FRAME_PAYLOAD: it is the last, and FRAME_END follows, if no more has come than that
    uint8_t reusable        # of FRAME_END: the connection may serve the next request
    uint16_t status         # HTTP status
    uint8_t content         # ContentKind
    uint8_t encoded         # Content-Encoding other than identity
    int64_t retry_after_ms  # -1: not said
    Wanted* wanted          # what the head says of fields that were asked for
    uint32_t size           # HTTP/2: bytes of the exchange that this took
    int grpc_status         # of FRAME_TRAILERS; -1: not said
    uint32_t code           # what the peer said: HTTP/2, of FRAME_FAILED (Http2Code); WebSocket, of FRAME_ERROR, its close code or 0

cdef class Framing:
    cdef int open(self, Incoming* n, Exchange* x) except -1             # the request of *x* is sent on the connection
    # The next of what *c* holds. After a payload that neither leaves anything nor ends its response there is nothing more.
    cdef FrameStep next(self, Incoming* n, Cursor* c, Frame* frame) except FRAME_RAISED
    # The peer closed: FRAME_END if that completes the response, else FRAME_ERROR.
    cdef FrameStep eof(self, Incoming* n, Frame* frame) except FRAME_RAISED

cdef void incoming_free(Incoming* n) noexcept nogil
