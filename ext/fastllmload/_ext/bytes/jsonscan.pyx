# Strings are read sixteen bytes at a time until one of them is special: a quote, a backslash, a control
# character, or a byte above 127. Recursion is bounded by JSON_DEPTH, so hostile nesting costs no stack.

from fastllmload._ext.bytes.cursor cimport over

cdef enum:
    LOW_SURROGATE = 0xDC00
    HIGH_SURROGATE = 0xD800
    BEHIND_SURROGATES = 0xE000


cdef bint json_string(Cursor* c, StringSpan* body) noexcept nogil:
    cdef unsigned char byte
    body.at = c.at
    body.escaped = False
    while True:
        to_special(c)
        if c.at == c.end:
            return False
        byte = c.at[0]
        if byte == c'"':
            body.size = <size_t>(c.at - body.at)
            c.at += 1
            return True
        if byte == c'\\':
            body.escaped = True
            if not escape(c):
                return False
        elif byte < 0x20 or not utf8(c):
            return False


cdef inline bint escape(Cursor* c) noexcept nogil:
    # A backslash and what belongs to it. Surrogates come in pairs; one alone is unusual.
    cdef unsigned char byte
    cdef int32_t unit
    c.at += 1
    if c.at == c.end:
        return False
    byte = c.at[0]
    c.at += 1
    if byte == c'u':
        unit = hex4(c)
        if unit < HIGH_SURROGATE or unit >= BEHIND_SURROGATES:
            return unit >= 0
        if unit >= LOW_SURROGATE or not json_word(c, b"\\u", 2):
            return False
        unit = hex4(c)
        return LOW_SURROGATE <= unit < BEHIND_SURROGATES
    return (byte == c'"' or byte == c'\\' or byte == c'/' or byte == c'n' or byte == c't' or byte == c'r'
            or byte == c'b' or byte == c'f')


cdef inline int32_t hex4(Cursor* c) noexcept nogil:
    # Four hexadecimal digits, or -1.
    cdef int32_t value = 0
    cdef unsigned char byte
    cdef int i
    if left(c) < 4:
        return -1
    for i in range(4):
        byte = c.at[i]
        if c'0' <= byte <= c'9':
            value = value << 4 | (byte - c'0')
        elif c'a' <= byte | 0x20 <= c'f':
            value = value << 4 | ((byte | 0x20) - c'a' + 10)
        else:
            return -1
    c.at += 4
    return value


cdef inline bint utf8(Cursor* c) noexcept nogil:
    # One sequence above 127, by table 3-7 of the Unicode standard.
    cdef unsigned char lead = c.at[0]
    cdef unsigned char lowest = 0x80
    cdef unsigned char highest = 0xBF
    cdef int size, i
    if 0xC2 <= lead <= 0xDF:
        size = 2
    elif 0xE0 <= lead <= 0xEF:
        size = 3
        lowest = 0xA0 if lead == 0xE0 else 0x80
        highest = 0x9F if lead == 0xED else 0xBF
    elif 0xF0 <= lead <= 0xF4:
        size = 4
        lowest = 0x90 if lead == 0xF0 else 0x80
        highest = 0x8F if lead == 0xF4 else 0xBF
    else:
        return False
    if left(c) < <size_t>size or not lowest <= c.at[1] <= highest:
        return False
    for i in range(2, size):
        if not 0x80 <= c.at[i] <= 0xBF:
            return False
    c.at += size
    return True


cdef inline bint digits(Cursor* c) noexcept nogil:
    # One or more.
    cdef const unsigned char* start = c.at
    while c.at < c.end and c'0' <= c.at[0] <= c'9':
        c.at += 1
    return c.at > start


cdef bint json_number(Cursor* c) noexcept nogil:
    cdef const unsigned char* start = c.at
    if c.at < c.end and c.at[0] == c'-':
        c.at += 1
    if c.at < c.end and c.at[0] == c'0':
        c.at += 1
    elif not digits(c):
        return False
    if c.at < c.end and c.at[0] == c'.':
        c.at += 1
        if not digits(c):
            return False
    if c.at < c.end and c.at[0] | 0x20 == c'e':
        c.at += 1
        if c.at < c.end and (c.at[0] == c'+' or c.at[0] == c'-'):
            c.at += 1
        if not digits(c):
            return False
    return c.at - start <= NUMBER_LONGEST


cdef bint json_count(Cursor* c, int32_t* value) noexcept nogil:
    cdef int64_t number
    if not json_digits(c, &number, 9):
        return False
    value[0] = <int32_t>number
    return True


cdef bint json_digits(Cursor* c, int64_t* value, int most) noexcept nogil:
    cdef const unsigned char* start
    cdef const unsigned char* at
    json_blanks(c)
    start = c.at
    if not json_number(c) or not 1 <= c.at - start <= most:
        return False
    value[0] = 0
    at = start
    while at < c.at:
        if not c'0' <= at[0] <= c'9':
            return False
        value[0] = value[0] * 10 + (at[0] - c'0')
        at += 1
    return True


cdef bint json_skip(Cursor* c, int depth) noexcept nogil:
    cdef StringSpan body
    cdef int byte = json_peek(c)
    if byte == c'"':
        c.at += 1
        return json_string(c, &body)
    if byte == c'{' or byte == c'[':
        return depth < JSON_DEPTH and container(c, byte == c'{', depth)
    if byte == c'n':
        return json_word(c, b"null", 4)
    if byte == c't':
        return json_word(c, b"true", 4)
    if byte == c'f':
        return json_word(c, b"false", 5)
    return json_number(c)


cdef bint container(Cursor* c, bint keyed, int depth) noexcept nogil:
    cdef StringSpan key
    cdef int close = c'}' if keyed else c']'
    c.at += 1
    if json_take(c, close):
        return True
    while True:
        if keyed and not (json_take(c, c'"') and json_string(c, &key) and json_take(c, c':')):
            return False
        if not json_skip(c, depth + 1):
            return False
        if json_take(c, close):
            return True
        if not json_take(c, c','):
            return False


cdef bint blank_text(const unsigned char* at, size_t size) noexcept nogil:
    # True when the body, as json_string gave it, is a row of whitespace characters and nothing else. The
    # first character that is none decides, so ordinary text costs one comparison.
    cdef Cursor c
    over(&c, at, size)
    while c.at < c.end:
        if not blank_character(&c):
            return False
    return True


cdef inline bint blank_character(Cursor* c) noexcept nogil:
    cdef unsigned char byte = c.at[0]
    c.at += 1
    if byte == c' ':
        return True
    if byte == c'\\' and c.at < c.end:
        byte = c.at[0]
        c.at += 1
        if byte == c'u':
            return blank_unit(hex4(c))
        return byte == c'n' or byte == c't' or byte == c'r' or byte == c'f'
    if byte == 0xC2 and left(c) >= 1:
        c.at += 1
        return blank_unit((c.at - 1)[0])
    if 0xE1 <= byte <= 0xE3 and left(c) >= 2:
        c.at += 2
        return blank_unit((byte & 0x0F) << 12 | ((c.at - 2)[0] ^ 0x80) << 6 | ((c.at - 1)[0] ^ 0x80))
    return False


cdef inline bint blank_unit(int32_t unit) noexcept nogil:
    # str.isspace() of one code point; all whitespace lies below U+10000.
    return (9 <= unit <= 13 or 0x1C <= unit <= 0x20 or unit == 0x85 or unit == 0xA0 or unit == 0x1680
            or 0x2000 <= unit <= 0x200A or unit == 0x2028 or unit == 0x2029 or unit == 0x202F
            or unit == 0x205F or unit == 0x3000)
