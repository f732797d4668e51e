# Messages of gRPC out of payload bytes, sans-IO, whatever the split: a byte that says whether one is compressed, four with its
# size, then the message.
from libc.stdint cimport uint8_t, uint32_t

from fastllmload._ext.bytes.cursor cimport Cursor
from fastllmload._ext.bytes.schema cimport PREFIX
from fastllmload._ext.events.sse cimport Arrival, SseEvent

cdef enum GrpcStep:
    GRPC_NEED = 0           # cursor used up
    GRPC_MESSAGE = 1        # *event* is filled; its data hold until the next call
    GRPC_TOO_LONG = 2       # a message above Grpc.limit; after this or what follows the same comes again
    GRPC_COMPRESSED = 3     # although nothing was said of an encoding that is taken
    GRPC_BROKEN = 4         # no prefix of a message

cdef struct Grpc:
    Arrival* now                    # of the bytes being fed; borrowed, set by the feeder before each read
    size_t limit                    # bytes of one message
    unsigned char* held             # a partial message with its prefix; owned
    size_t held_size
    size_t held_cap
    uint8_t fault                   # GrpcStep that ended it; 0: none

cdef void grpc_init(Grpc* s, size_t limit) noexcept nogil
cdef void grpc_reset(Grpc* s) noexcept nogil
cdef void grpc_free(Grpc* s) noexcept nogil
cdef GrpcStep grpc_next(Grpc* s, Cursor* c, SseEvent* event) noexcept nogil

cpdef bytes status_text(int status, bytes message)

# Between two messages.
cdef inline bint grpc_rests(const Grpc* s) noexcept nogil:
    return s.held_size == 0
