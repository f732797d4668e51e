"""Messages of gRPC: most lie whole in one read, and are handed on where they lie; one that is split is kept."""

from libc.string cimport memset

from fastllmload._ext.bytes.carry cimport carry_add, carry_free, carry_reset
from fastllmload._ext.bytes.cursor cimport left, over
from fastllmload._ext.events.sse cimport arrived_with


# Names of statuses, by number (doc/statuscodes.md of gRPC).
STATUSES = (
    "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE",
    "DATA_LOSS", "UNAUTHENTICATED",
)


cpdef bytes status_text(int status, bytes message):
    """What a status other than OK and its *message* say."""
    cdef str name = STATUSES[status] if 0 <= status < len(STATUSES) else "status"
    cdef bytes said = f"{name} ({status})".encode()
    return said + b": " + message if message else said


cdef void grpc_init(Grpc* s, size_t limit) noexcept nogil:
    memset(s, 0, sizeof(Grpc))
    s.limit = limit


cdef void grpc_reset(Grpc* s) noexcept nogil:
    carry_reset(&s.held, &s.held_size, &s.held_cap)
    s.fault = 0


cdef void grpc_free(Grpc* s) noexcept nogil:
    carry_free(&s.held, &s.held_size, &s.held_cap)


cdef inline bint prefix_taken(Grpc* s, const unsigned char* prefix, size_t* size) noexcept nogil:
    # The size of the message, if it can be taken.
    size[0] = <size_t>prefix[1] << 24 | <size_t>prefix[2] << 16 | <size_t>prefix[3] << 8 | prefix[4]
    if prefix[0] != 0:
        s.fault = GRPC_COMPRESSED if prefix[0] == 1 else GRPC_BROKEN
    elif size[0] > s.limit:
        s.fault = GRPC_TOO_LONG
    return s.fault == 0


cdef inline bint keep(Grpc* s, Cursor* c, size_t wanted) noexcept nogil:
    # Bytes of a partial message, until *wanted* are there.
    cdef size_t size = min(left(c), wanted - s.held_size)
    if carry_add(&s.held, &s.held_size, &s.held_cap, c.at, size) < 0:
        s.fault = GRPC_TOO_LONG
        return False
    c.at += size
    return s.held_size == wanted


cdef GrpcStep grpc_next(Grpc* s, Cursor* c, SseEvent* event) noexcept nogil:
    cdef const unsigned char* at = c.at
    cdef size_t size
    if s.fault:
        return <GrpcStep>s.fault
    if c.at == c.end:
        return GRPC_NEED
    if s.held_size == 0 and left(c) >= PREFIX:
        if not prefix_taken(s, at, &size):
            return <GrpcStep>s.fault
        if left(c) >= PREFIX + size:
            c.at += PREFIX + size
            return deliver(s, at, size, c, event)
    elif s.held_size < PREFIX and not keep(s, c, PREFIX):
        return <GrpcStep>s.fault
    elif not prefix_taken(s, s.held, &size):
        return <GrpcStep>s.fault
    if not keep(s, c, PREFIX + size):
        return <GrpcStep>s.fault
    s.held_size = 0             # its bytes stay until the next call
    return deliver(s, s.held, size, c, event)


cdef inline GrpcStep deliver(Grpc* s, const unsigned char* message, size_t size, Cursor* c, SseEvent* event) noexcept nogil:
    event.data = message + PREFIX
    event.size = size
    event.name = NULL
    event.name_size = 0
    event.arrival = s.now[0]
    event.offset = arrived_with(s.now, c.at)
    return GRPC_MESSAGE


cdef class GrpcParser:
    """Messages of one stream, for callers outside the hot path; ``limit`` bounds one in bytes."""

    cdef Grpc grpc
    cdef Arrival now

    def __cinit__(self, *, size_t limit=1 << 20):
        grpc_init(&self.grpc, limit)
        self.grpc.now = &self.now

    def __dealloc__(self):
        grpc_free(&self.grpc)

    @property
    def fault(self):
        """What ended it: too_long, compressed, broken; None: nothing."""
        return {GRPC_TOO_LONG: "too_long", GRPC_COMPRESSED: "compressed", GRPC_BROKEN: "broken"}.get(self.grpc.fault)

    @property
    def rests(self):
        """No part of a message is there."""
        return grpc_rests(&self.grpc)

    def feed(self, const unsigned char[::1] data not None):
        """Messages that *data* completes."""
        cdef Cursor c
        cdef SseEvent event
        over(&c, &data[0] if len(data) else NULL, len(data))
        found = []
        while grpc_next(&self.grpc, &c, &event) == GRPC_MESSAGE:
            found.append(event.data[:event.size] if event.size else b"")
        return found
