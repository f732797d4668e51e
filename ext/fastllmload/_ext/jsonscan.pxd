# Strict JSON (RFC 8259) over a cursor, one pass, no tree. Every function answers True and moves the cursor
# behind what it read, or answers False: the text is invalid, or it is valid and unusual. False is never a
# verdict, only "ask msgspec".
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp

from fastllmload._ext.cursor cimport Cursor

cdef enum:
    JSON_DEPTH = 64             # containers inside each other; deeper is unusual
    NUMBER_LONGEST = 300        # bytes of a number; longer is unusual

cdef struct Body:               # what stands between the quotes of a string, still escaped; valid UTF-8
    const unsigned char* at     # borrowed from the cursor's buffer; NULL: no string, or null
    size_t size
    uint8_t escaped             # has a backslash

cdef bint json_string(Cursor* c, Body* body) noexcept nogil     # the cursor stands behind the opening quote
cdef bint json_number(Cursor* c) noexcept nogil                 # the cursor stands at its first byte
cdef bint json_skip(Cursor* c, int depth) noexcept nogil        # any value, blanks before it included
cdef bint json_count(Cursor* c, int32_t* value) noexcept nogil  # an integer from 0 to 999,999,999
cdef bint json_digits(Cursor* c, int64_t* value, int most) noexcept nogil   # of at most *most* digits, most <= 18
cdef bint blank_text(const unsigned char* at, size_t size) noexcept nogil   # str.isspace(); size > 0

cdef inline void json_blanks(Cursor* c) noexcept nogil:
    while c.at < c.end and (c.at[0] == c' ' or c.at[0] == c'\n' or c.at[0] == c'\r' or c.at[0] == c'\t'):
        c.at += 1

cdef inline int json_peek(Cursor* c) noexcept nogil:
    # The next byte that is no blank, or -1; the cursor stands at it.
    json_blanks(c)
    return c.at[0] if c.at < c.end else -1

cdef inline bint json_take(Cursor* c, int byte) noexcept nogil:
    if json_peek(c) != byte:
        return False
    c.at += 1
    return True

cdef inline bint json_word(Cursor* c, const char* word, size_t size) noexcept nogil:
    if <size_t>(c.end - c.at) < size or memcmp(c.at, word, size) != 0:
        return False
    c.at += size
    return True
