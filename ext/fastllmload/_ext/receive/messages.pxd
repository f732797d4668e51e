# The state of a WebSocket connection (RFC 6455), and the frames that wait to be sent on it. Sans-IO.
from libc.stdint cimport uint8_t, uint16_t, uint64_t

cdef enum Opcode:
    OP_CONTINUATION = 0
    OP_TEXT = 1
    OP_BINARY = 2
    OP_CLOSE = 8            # from here on control frames
    OP_PING = 9
    OP_PONG = 10

cdef enum CloseCode:        # RFC 6455 7.4.1
    CLOSE_NORMAL = 1000
    CLOSE_PROTOCOL = 1002
    CLOSE_NONE = 1005       # the frame has none
    CLOSE_TOO_BIG = 1009

cdef enum:
    MESSAGE_HEADER = 10     # most bytes before the payload of a server's frame
    CONTROL_MOST = 125      # bytes of the payload of a control frame
    MASK_KEY = 4            # bytes of the key of a client's frame

cdef struct Socket:         # of one connection; what every read touches comes first
    uint64_t left           # bytes of the frame's payload that have not come
    size_t message_size     # of *message*
    uint8_t header_size     # bytes of the frame's header that have come
    uint8_t in_payload      # the header is read
    uint8_t opcode
    uint8_t final           # the frame is the last of its message
    uint8_t continues       # a message has begun whose last frame has not come
    uint8_t closed          # a close frame was sent
    uint8_t control_size
    unsigned char* message  # one that came in parts; owned
    size_t message_cap
    unsigned char* out      # bytes to be sent: the upgrade, answers to control frames; owned
    size_t out_at
    size_t out_size
    size_t out_cap
    unsigned char[MESSAGE_HEADER] header
    unsigned char[CONTROL_MOST] control

cdef Socket* socket_new() except NULL
cdef void socket_free(Socket* s) noexcept nogil
cdef inline bint has_replies(const Socket* s) noexcept nogil:
    return s.out_at < s.out_size

# To be sent; MemoryError when there is none. A frame of the client's, and bytes as they are.
cdef int put_control(Socket* s, Opcode opcode, const void* payload, size_t size) except -1
cdef int put_close(Socket* s, uint16_t code) except -1      # unless one was sent before
cdef int put_bytes(Socket* s, const void* data, size_t size) except -1
cdef void replies_sent(Socket* s, size_t size) noexcept nogil               # that many bytes of *out* have gone
# The header of a client's text message of *size* bytes that are not masked: its key is 0. Where it ends.
cdef uint8_t* put_text_header(uint8_t* at, uint64_t size) noexcept nogil
