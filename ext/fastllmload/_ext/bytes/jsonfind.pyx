from libc.string cimport memcmp

from fastllmload._ext.bytes.jsonscan cimport StringSpan, json_blanks, json_skip, json_string, json_take


cdef bint json_member(Cursor* object, const char* name, size_t size, Cursor* value) noexcept nogil:
    cdef Cursor c = object[0]
    cdef StringSpan key
    cdef const unsigned char* begin
    value.at = value.end = NULL
    if not json_take(&c, c'{'):
        return False
    if json_take(&c, c'}'):
        return True
    while True:
        if not (json_take(&c, c'"') and json_string(&c, &key) and json_take(&c, c':')) or key.escaped:
            return False
        json_blanks(&c)
        begin = c.at
        if not json_skip(&c, 1):
            return False
        if key.size == size and memcmp(key.at, name, size) == 0:
            value.at, value.end = begin, c.at
        if json_take(&c, c'}'):
            break
        if not json_take(&c, c','):
            return False
    if value.at != NULL and value.at[0] == c'n':
        value.at = value.end = NULL
    return True


cdef int json_item(Cursor* c, bint first, Cursor* value) noexcept nogil:
    if first and not json_take(c, c'['):
        return -1
    if json_take(c, c']'):
        return 0
    if not first and not json_take(c, c','):
        return -1
    json_blanks(c)
    value.at = c.at
    if not json_skip(c, 1):
        return -1
    value.end = c.at
    return 1
