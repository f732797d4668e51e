# Reading the value of a header field through a cursor: words, lists, numbers. Upper and lower case are the
# same.
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memchr

from fastllmload._ext.bytes.cursor cimport Cursor, left

cdef inline unsigned char lower(unsigned char byte) noexcept nogil:
    return byte | 0x20 if c'A' <= byte <= c'Z' else byte

cdef inline bint is_blank(unsigned char byte) noexcept nogil:
    return byte == c' ' or byte == c'\t'

cdef inline void trim(Cursor* c) noexcept nogil:
    while c.at < c.end and is_blank(c.at[0]):
        c.at += 1
    while c.at < c.end and is_blank((c.end - 1)[0]):
        c.end -= 1

# *word* is lower case and ends with NUL.
cdef inline bint is_word(Cursor c, const char* word) noexcept nogil:
    while c.at < c.end and word[0] != 0 and lower(c.at[0]) == <unsigned char>word[0]:
        c.at += 1
        word += 1
    return c.at == c.end and word[0] == 0

# The next item of a list, trimmed; what is after its separator stays in *c*. False at the end of the list.
cdef inline bint next_item(Cursor* c, Cursor* item, unsigned char separator) noexcept nogil:
    cdef const unsigned char* found
    if c.at >= c.end:
        return False
    found = <const unsigned char*>memchr(c.at, separator, left(c))
    item.at = c.at
    item.end = c.end if found == NULL else found
    c.at = c.end if found == NULL else found + 1
    trim(item)
    return True

# Digits only, at least one and at most *most* of them; -1 otherwise. The value must fit, so most <= 18.
cdef inline int64_t digits(Cursor c, size_t most) noexcept nogil:
    cdef int64_t value = 0
    if c.at == c.end or left(&c) > most:
        return -1
    while c.at < c.end:
        if not c'0' <= c.at[0] <= c'9':
            return -1
        value = value * 10 + (c.at[0] - c'0')
        c.at += 1
    return value

# A value that is known to be digits and to fit.
cdef inline uint64_t checked_number(Cursor c) noexcept nogil:
    cdef uint64_t value = 0
    while c.at < c.end:
        value = value * 10 + (c.at[0] - c'0')
        c.at += 1
    return value
