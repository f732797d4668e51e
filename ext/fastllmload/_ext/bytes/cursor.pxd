# A bounded pointer: every read of foreign bytes goes through one. It never owns the bytes it points at.
cdef struct Cursor:
    const unsigned char* at       # next unread byte; borrowed from the caller's buffer
    const unsigned char* end      # one past the last readable byte

cdef inline size_t left(Cursor* c) noexcept nogil:
    return <size_t>(c.end - c.at)

cdef inline void over(Cursor* c, const unsigned char* data, size_t size) noexcept nogil:
    c.at = data
    c.end = data + size
