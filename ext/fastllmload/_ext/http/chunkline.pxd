# The lines between chunks: pure functions from state and byte to the next state. Strict as llhttp, but for blanks after a
# size and around the ";" and "=" of extensions, which a client has to bear (BWS, RFC 9112 7.1.1).
#
#   SIZE_FIRST -> SIZE -> (SIZE_BLANK) -> (EXT...) -> SIZE_LF -> DATA -> DATA_CR -> DATA_LF -> SIZE_FIRST
#   after size 0: TRAILER_FIRST -> (NAME -> VALUE -> TRAILER_LF -> TRAILER_FIRST ...) -> LAST_LF -> COMPLETE
#
# A bare LF ends nothing. Extensions are name[=value]; a value may hold quotes. Trailers are checked, never
# interpreted.
from libc.stdint cimport uint8_t, uint64_t

cdef enum BodyState:
    AT_COMPLETE = 0
    AT_BROKEN = 1
    AT_DATA = 2             # the states after it consume framing bytes
    AT_DATA_CR = 3
    AT_DATA_LF = 4
    AT_SIZE_FIRST = 5
    AT_SIZE = 6
    AT_SIZE_BLANK = 7       # blanks after a size
    AT_SIZE_LF = 8
    AT_EXT_FIRST = 9        # after ";" and blanks: no CR may follow
    AT_EXT_NAME = 10
    AT_EXT_NAME_END = 11    # blanks after a name
    AT_EXT_VALUE_FIRST = 12 # after "=" and blanks
    AT_EXT_VALUE = 13
    AT_EXT_QUOTED = 14
    AT_EXT_PAIR = 15        # after a backslash inside quotes
    AT_EXT_END = 16         # after quotes, or blanks after a value
    AT_TRAILER_FIRST = 17
    AT_TRAILER_NAME = 18
    AT_TRAILER_VALUE = 19
    AT_TRAILER_LF = 20
    AT_LAST_LF = 21

# RFC 9110 5.6.2: ! # $ % & ' * + - . ^ _ ` | ~ digits letters, one bit each.
cdef inline bint is_token(unsigned char byte) noexcept nogil:
    if byte < 64:
        return (<uint64_t>0x03FF6CFA00000000ULL >> byte) & 1
    return byte < 128 and (<uint64_t>0x57FFFFFFC7FFFFFEULL >> (byte - 64)) & 1

cdef inline bint is_text(unsigned char byte) noexcept nogil:
    return byte == c'\t' or (byte >= 32 and byte != 127)

cdef inline int hex_value(unsigned char byte) noexcept nogil:
    if c'0' <= byte <= c'9':
        return byte - c'0'
    byte |= 0x20
    return byte - c'a' + 10 if c'a' <= byte <= c'f' else -1

cdef inline bint is_bws(unsigned char byte) noexcept nogil:
    return byte == c' ' or byte == c'\t'

cdef inline uint8_t extension_next(uint8_t state, unsigned char byte) noexcept nogil:
    if state == AT_EXT_QUOTED or state == AT_EXT_PAIR:
        return quoted_next(state, byte)
    if is_bws(byte):
        if state == AT_EXT_NAME:
            return AT_EXT_NAME_END
        return AT_EXT_END if state == AT_EXT_VALUE else state
    if state != AT_EXT_FIRST and byte == c'\r':
        return AT_SIZE_LF
    if byte == c';':
        return AT_EXT_FIRST
    if state == AT_EXT_END:
        return AT_BROKEN
    if state == AT_EXT_VALUE or state == AT_EXT_VALUE_FIRST:
        if byte == c'"':
            return AT_EXT_QUOTED
        return AT_EXT_VALUE if is_token(byte) else AT_BROKEN
    if byte == c'=':
        return AT_EXT_VALUE_FIRST
    return AT_EXT_NAME if state != AT_EXT_NAME_END and is_token(byte) else AT_BROKEN

cdef inline uint8_t quoted_next(uint8_t state, unsigned char byte) noexcept nogil:
    if state == AT_EXT_QUOTED and byte == c'"':
        return AT_EXT_END
    if state == AT_EXT_QUOTED and byte == c'\\':
        return AT_EXT_PAIR
    return AT_EXT_QUOTED if is_text(byte) else AT_BROKEN

cdef inline uint8_t trailer_next(uint8_t state, unsigned char byte) noexcept nogil:
    if state == AT_LAST_LF:
        return AT_COMPLETE if byte == c'\n' else AT_BROKEN
    if state == AT_TRAILER_LF:
        return AT_TRAILER_FIRST if byte == c'\n' else AT_BROKEN
    if state == AT_TRAILER_VALUE:
        if byte == c'\r':
            return AT_TRAILER_LF
        return AT_TRAILER_VALUE if is_text(byte) else AT_BROKEN
    if state == AT_TRAILER_FIRST and byte == c'\r':
        return AT_LAST_LF
    if state == AT_TRAILER_NAME and byte == c':':
        return AT_TRAILER_VALUE
    return AT_TRAILER_NAME if is_token(byte) else AT_BROKEN
