# Tool calls and thoughts of one reply, put together out of the fragments that a server streams: what the next turn's history
# repeats.
from libc.stdint cimport int32_t, uint8_t, uint32_t

from fastllmload._ext.bytes.carry cimport carry_add, carry_free
from fastllmload._ext.bytes.cursor cimport Cursor
from fastllmload._ext.events.dialect cimport Dialect, DialectTable
from fastllmload._ext.events.tree cimport EventTree

cdef struct Text:               # bytes that grow
    unsigned char* at           # owned
    size_t size
    size_t cap

cdef inline int text_add(Text* t, const void* data, size_t size) except -1:
    if carry_add(&t.at, &t.size, &t.cap, <const unsigned char*>data, size) < 0:
        raise MemoryError(f"{t.size + size} bytes of text")
    return 0

cdef inline void text_free(Text* t) noexcept nogil:
    carry_free(&t.at, &t.size, &t.cap)

cdef struct Call:               # or a thought: *arguments* is its text
    int32_t index               # as the server counts them; the ones after another where it does not
    uint8_t value               # *arguments* is a JSON value, not the inside of a string
    uint8_t answered            # while a turn is put together: a message of it answers the call
    uint8_t sealed              # a thought that only the server can read
    Text key                    # as these came: insides of JSON strings
    Text id
    Text name
    Text arguments
    Text signature              # of a thought

cdef struct Calls:
    Call* items                 # owned, with what they point at; *cap* of them are valid memory
    uint32_t count              # by index
    uint32_t cap
    Calls* thoughts             # owned; NULL until there was one
    Text response               # the id of the reply

cdef void calls_clear(Calls* calls) noexcept nogil          # for the next reply; small buffers stay
cdef void calls_free(Calls* calls) noexcept nogil           # and *calls* itself; NULL is fine
cdef list calls_said(Calls* calls)

cdef class CallReader:
    # One per worker.
    cdef EventTree _tree
    # Adds what one event (or whole body) says of calls and thoughts to *calls*, which is made when it is NULL.
    cdef int read(self, Calls** calls, const unsigned char* data, size_t size, const DialectTable* d, bint whole) except -1

cdef class CallList:
    cdef Calls* calls           # owned; NULL until the first event
    cdef CallReader reader
    cdef Dialect dialect
    cdef bint whole
