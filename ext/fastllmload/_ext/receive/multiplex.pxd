# The streams of an HTTP/2 connection (RFC 9113) and the frames that wait to be sent on it. Sans-IO.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from fastllmload._ext.http.frames cimport (
    CODE_CALM, CODE_CANCEL, CODE_COMPRESSION, CODE_FLOW_CONTROL, CODE_FRAME_SIZE, CODE_INTERNAL, CODE_NO_ERROR, CODE_PROTOCOL,
    CODE_REFUSED_STREAM, CODE_STREAM_CLOSED, FF_ACK, FF_END_HEADERS, FF_END_STREAM, FF_PADDED, FF_PRIORITY, FRAME_HEADER,
    FT_CONTINUATION, FT_DATA, FT_GOAWAY, FT_HEADERS, FT_PING, FT_PRIORITY, FT_PUSH_PROMISE, FT_RST_STREAM, FT_SETTINGS,
    FT_WINDOW_UPDATE, MAX_FRAME, STREAM_LAST, TOP_UP, WINDOW_FIRST, WINDOW_MOST, FrameType,
)
from fastllmload._ext.receive.exchange cimport Exchange

cdef enum:
    OUT_MOST = 65536        # bytes of frames with bodies that wait to be sent: more is taken from a body when they have gone
    REPLIES_MOST = 16384    # bytes of answers to PING and SETTINGS that a peer may leave unread

cdef struct OpenStream:
    uint32_t id             # 0: this place is free
    uint32_t taken          # bytes of DATA since its window was opened again
    Exchange* x             # NULL: its request has ended, and its message has not; borrowed
    int64_t window          # bytes of its body that the peer takes now
    int64_t length          # of the response's body, as its head says; -1: not said
    uint64_t body           # bytes of it that have come
    uint8_t headed          # the final head has come
    uint8_t grpc            # and says that its body is messages of gRPC
    uint8_t old             # it had no request when end_tails() was called last
    uint8_t announced       # the head of its request is written
    uint8_t sent            # the last frame of its request is written

cdef struct Multiplex:      # of one connection; what every read touches comes first
    OpenStream* streams     # by id, with open addressing; owned
    uint32_t mask           # places - 1
    uint32_t left           # bytes of the frame's payload that have not come
    uint32_t stream         # the frame's
    uint8_t type            # FrameType
    uint8_t flags
    uint8_t header_size     # bytes of the frame's header that have come; FRAME_HEADER: the payload is being read
    uint8_t padded          # its first byte, which says how much padding there is, has not come
    uint32_t padding        # bytes of it that have not come
    uint32_t ending         # the stream whose last frame was read; 0: none
    uint8_t trailing        # that frame had fields, that its caller has yet to get
    uint32_t taken          # bytes of DATA since the connection's window was opened again
    uint8_t error           # ErrorClass: streams above *fail_above* have failed, and come one by one; 0: none
    uint8_t broken          # and after them the connection
    uint8_t settled         # the peer's first SETTINGS have come
    uint8_t leaving         # it sent GOAWAY
    uint32_t fail_above
    uint32_t code           # Http2Code that came with it
    uint32_t open           # streams, those whose request has ended too
    uint32_t next_id
    uint32_t most           # streams that the peer takes at once
    uint32_t window_first   # that its streams begin with
    uint32_t frame_most     # bytes of a payload that it takes
    int64_t window          # bytes of bodies that it takes now on the connection
    unsigned char[FRAME_HEADER] header
    uint32_t block_stream   # whose head is being read; 0: none
    uint32_t block_frames   # that it came in
    uint8_t block_ends      # it is all of its message
    unsigned char* block    # a head in several frames; owned
    size_t block_size
    size_t block_cap
    unsigned char* out      # frames, from *out_at* on not sent yet; owned
    size_t out_at
    size_t out_size
    size_t out_cap
    uint64_t put            # bytes ever written to *out*, and those of them that were sent
    uint64_t gone
    uint32_t replies        # bytes of answers among what waits

cdef Multiplex* multiplex_new() noexcept nogil              # NULL: no memory. The client's first frames are in *out*
cdef void multiplex_free(Multiplex* m) noexcept nogil
cdef OpenStream* stream_find(Multiplex* m, uint32_t id) noexcept nogil       # NULL: it is closed
cdef int stream_open(Multiplex* m, Exchange* x) except -1   # its id is in x.stream
cdef void stream_close(Multiplex* m, uint32_t id) noexcept nogil
cdef bint carries(const Multiplex* m) noexcept nogil        # a request that has not ended
cdef inline bint has_room(const Multiplex* m) noexcept nogil:
    return m.open < m.most and not m.leaving and not m.broken and m.next_id < STREAM_LAST

# Frames to be sent. MemoryError when there is none.
cdef int put_frame(Multiplex* m, FrameType type, uint8_t flags, uint32_t stream, const void* payload, size_t size) except -1
cdef int put_reply(Multiplex* m, FrameType type, uint8_t flags, const void* payload, size_t size) except -1
cdef int put_code(Multiplex* m, FrameType type, uint32_t stream, uint32_t code) except -1    # RST_STREAM or WINDOW_UPDATE
cdef int put_goaway(Multiplex* m, uint32_t code) except -1
# The head of the request of *x*: *head* and *lines* are one block of fields. *ends*: it has no body.
cdef int put_head(Multiplex* m, Exchange* x, const void* head, size_t head_size, const void* lines, size_t lines_size, bint ends) except -1
# Of *size* bytes of its body as many as windows and *out* take; how many. *ends*: they are the last of it.
cdef Py_ssize_t put_body(Multiplex* m, Exchange* x, const void* data, size_t size, bint ends) except -1
cdef bint window_closed(Multiplex* m, Exchange* x) noexcept nogil        # the peer takes no byte of its body now
cdef void put_sent(Multiplex* m, size_t size) noexcept nogil            # that many bytes of *out* have gone
