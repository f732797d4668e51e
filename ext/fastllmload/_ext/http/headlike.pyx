"""Heads that are alike.

The heads of a server's responses differ in Date, in an id, in Content-Length, and in nothing that changes what they mean.
So a head that the parser has accepted is kept by its lines, and a later one that has the same lines is judged as it was:
a line that means something to us or to the parser must be equal to the byte, of another only the name, as long as its value
is of printable ASCII, and of Content-Length the digits are read. Whatever else differs goes to the parser.
"""

from libc.string cimport memchr, memcmp, memcpy

from fastllmload._ext.bytes.cursor cimport Cursor, over
from fastllmload._ext.bytes.jsonscan cimport fll_marked16
from fastllmload._ext.http.fieldvalue cimport is_blank, is_word, trim

cdef enum:
    LENGTH_DIGITS = 15          # longer ones are the parser's


cdef void head_keep(KeptHead* k, const unsigned char* head, size_t size, Said* said, const Wanted* wanted) noexcept nogil:
    cdef size_t at = 0
    cdef uint16_t lines = 0
    k.count = 0
    if size > BYTES_KEPT:
        return
    while not (head[at] == c'\r' and size - at == 2):
        if lines == LINES_KEPT or not keep_line(&k.lines[lines], head + at, size - at, lines == 0, wanted):
            return
        at += k.lines[lines].size
        lines += 1
        if at + 2 > size:
            return
    memcpy(k.text, head, size)
    k.said = said[0]
    k.count = lines


cdef bint keep_line(HeadLine* line, const unsigned char* at, size_t size, bint first, const Wanted* wanted) noexcept nogil:
    """The line that begins at *at*; False unless it ends with CR LF, and when it continues the line before it."""
    cdef const unsigned char* end = <const unsigned char*>memchr(at, c'\n', size)
    cdef const unsigned char* colon
    if end == NULL or end - at < 2 or (end - 1)[0] != c'\r' or is_blank(at[0]):
        return False
    line.size = <uint16_t>(end + 1 - at)
    line.value = 0
    line.kind = LINE_SAME
    if first:
        return at[0] == c'H'
    colon = <const unsigned char*>memchr(at, c':', end - at)
    if colon == NULL:
        return False
    line.value = <uint16_t>(colon + 1 - at)
    line.kind = kind_of(at, colon - at, wanted)
    if line.kind == LINE_LENGTH:
        while is_blank(at[line.value]):
            line.value += 1
        if not c'0' <= at[line.value] <= c'9':
            line.kind = LINE_SAME
    return True


cdef int kind_of(const unsigned char* name, size_t size, const Wanted* wanted) noexcept nogil:
    cdef Cursor n
    cdef int i
    over(&n, name, size)
    for i in range(wanted.count):
        if is_word(n, wanted.name[i]):
            return LINE_WANTED + i
    if is_word(n, b"content-length"):
        return LINE_LENGTH
    # Ours (HeadReader.on_header), and those that the parser itself heeds.
    if (is_word(n, b"content-type") or is_word(n, b"transfer-encoding") or is_word(n, b"connection")
            or is_word(n, b"proxy-connection") or is_word(n, b"content-encoding") or is_word(n, b"retry-after")
            or is_word(n, b"upgrade")):
        return LINE_SAME
    return LINE_ANY


cdef size_t head_like(KeptHead* k, const unsigned char* data, size_t size, uint64_t* length, Wanted* wanted) noexcept nogil:
    cdef const unsigned char* at = data
    cdef const unsigned char* end = data + size
    cdef const unsigned char* text = k.text
    cdef const unsigned char* value
    cdef HeadLine* line
    cdef int i
    wanted_clear(wanted)
    for i in range(k.count):
        line = &k.lines[i]
        # Content-Length is read in any case: where it is equal, *length* is still that of another head.
        if line.kind < LINE_LENGTH and end - at >= line.size and memcmp(at, text, line.size) == 0:
            at += line.size
        elif line.kind == LINE_SAME or end - at < line.value or memcmp(at, text, line.value) != 0:
            return 0
        else:
            at += line.value
            value = at
            at = skip_number(at, end, length) if line.kind == LINE_LENGTH else skip_printable(at, end)
            if at == NULL or end - at < 2 or at[0] != c'\r' or at[1] != c'\n':
                return 0
            if line.kind >= LINE_WANTED:
                over(&wanted.value[line.kind - LINE_WANTED], value, at - value)
                trim(&wanted.value[line.kind - LINE_WANTED])
            at += 2
        text += line.size
    if k.count == 0 or end - at < 2 or at[0] != c'\r' or at[1] != c'\n':
        return 0
    return <size_t>(at + 2 - data)


cdef inline const unsigned char* skip_number(const unsigned char* at, const unsigned char* end,
                                               uint64_t* number) noexcept nogil:
    """Behind 1 to LENGTH_DIGITS digits; NULL: there are none, or more."""
    cdef uint64_t value = 0
    cdef int digits = 0
    while at < end and c'0' <= at[0] <= c'9' and digits <= LENGTH_DIGITS:
        value = value * 10 + (at[0] - c'0')
        digits += 1
        at += 1
    if digits == 0 or digits > LENGTH_DIGITS:
        return NULL
    number[0] = value
    return at


cdef inline const unsigned char* skip_printable(const unsigned char* at, const unsigned char* end) noexcept nogil:
    """At the first byte that is neither printable ASCII nor a tab."""
    while end - at >= 16 and not fll_marked16(at, 127, 127):
        at += 16
    while at < end and (0x20 <= at[0] <= 0x7E or at[0] == c'\t'):
        at += 1
    return at
