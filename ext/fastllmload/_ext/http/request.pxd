# HTTP/1.1 requests, sans-IO: bytes in, one request out. Pointers borrow from the caller's buffer.
from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef enum:
    HEAD_LIMIT = 65536
    BODY_LIMIT = 16777216

cdef struct Text:
    const uint8_t* at
    size_t size

cdef struct Request:
    Text method
    Text target                 # without the query
    Text fault                  # X-Fault
    Text authorization
    Text api_key                # x-api-key
    Text websocket_key          # Sec-WebSocket-Key
    size_t head_size            # with its terminator
    uint64_t length             # of the body; 0 when chunked
    uint16_t refusal            # HTTP status of a request that must not be served; 0 = good
    uint8_t minor_version
    uint8_t chunked
    uint8_t keep_alive
    uint8_t expects             # Expect: 100-continue
    uint8_t calls               # Content-Type: application/grpc, with a suffix or not
    uint8_t has_length
    uint8_t has_priority
    int32_t priority            # X-Priority
    uint32_t phase              # last two numbers of X-Fastllmload-Request (<run>-<phase>-<index>); NO_KEY when absent
    uint32_t key

cdef enum:
    NO_KEY = 0xFFFFFFFF

# Size of the head with its terminator, or 0 when it is not complete; *seen* bytes were searched before without success.
cdef size_t request_head_size(const uint8_t* data, size_t size, size_t seen) noexcept nogil
# Reads one complete head. What is wrong with it is in refusal.
cdef void request_read(Request* r, const uint8_t* data, size_t head_size) noexcept nogil
# Its phase and key, from the value of X-Fastllmload-Request.
cdef void request_id(Request* r, Text value) noexcept nogil
# True when the first bytes cannot become a request line: a TLS hello, binary noise.
cdef bint request_hopeless(const uint8_t* data, size_t size) noexcept nogil

cdef struct Unchunk:            # a chunked request body, decoded in place; offsets from the start of the buffer
    size_t read_at              # next framed byte
    size_t write_at             # end of the decoded body
    uint64_t left               # payload bytes of the current chunk
    size_t trailer_bytes
    uint8_t state

cdef void unchunk_begin(Unchunk* u, size_t body_at) noexcept nogil
# 0: more bytes are needed; 1: complete, read_at is the first byte after it; else the HTTP status that refuses it.
cdef int unchunk(Unchunk* u, uint8_t* buffer, size_t size, size_t body_at) noexcept nogil

cdef inline bint same(Text text, const char* lower, size_t size) noexcept nogil:
    # Equal but for letter case; *lower* is in lower case.
    cdef size_t i
    if text.size != size:
        return False
    for i in range(size):
        if (text.at[i] | 0x20 if 65 <= text.at[i] <= 90 else text.at[i]) != <uint8_t>lower[i]:
            return False
    return True
