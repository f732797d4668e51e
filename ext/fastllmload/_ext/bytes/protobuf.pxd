# Protobuf's wire format: numbers of seven bits a byte, and fields that are not looked at.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from fastllmload._ext.bytes.cursor cimport Cursor, left

cdef enum WireType:
    WIRE_VARINT = 0
    WIRE_FIXED64 = 1
    WIRE_SIZED = 2              # its size, then its bytes: strings, messages, packed numbers
    WIRE_FIXED32 = 5

cdef enum:
    VARINT_LONGEST = 10
    NUMBER_HIGHEST = 0x1FFFFFFF     # of a field

# False: cut off, or too long.
cdef inline bint varint(Cursor* c, uint64_t* value) noexcept nogil:
    cdef uint64_t found = 0
    cdef int shift = 0
    cdef uint8_t byte
    while c.at < c.end and shift < 7 * VARINT_LONGEST:
        byte = c.at[0]
        c.at += 1
        found |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            value[0] = found
            return True
        shift += 7
    return False

cdef inline bint tag_read(Cursor* c, uint32_t* number, uint8_t* wire) noexcept nogil:
    cdef uint64_t tag
    if not varint(c, &tag) or tag >> 3 == 0 or tag >> 3 > NUMBER_HIGHEST:
        return False
    number[0] = <uint32_t>(tag >> 3)
    wire[0] = tag & 7
    return True

# The bytes of a WIRE_SIZED value.
cdef inline bint sized_read(Cursor* c, Cursor* inside) noexcept nogil:
    cdef uint64_t size
    if not varint(c, &size) or size > left(c):
        return False
    inside.at = c.at
    inside.end = c.at + <size_t>size
    c.at = inside.end
    return True

# A value that says nothing. Groups (wire types 3 and 4) are older than what is read here.
cdef inline bint value_skip(Cursor* c, uint8_t wire) noexcept nogil:
    cdef uint64_t value
    cdef Cursor inside
    cdef size_t size
    if wire == WIRE_VARINT:
        return varint(c, &value)
    if wire == WIRE_SIZED:
        return sized_read(c, &inside)
    if wire != WIRE_FIXED64 and wire != WIRE_FIXED32:
        return False
    size = 8 if wire == WIRE_FIXED64 else 4
    if left(c) < size:
        return False
    c.at += size
    return True

# How many numbers a packed list has; -1: the last is cut off.
cdef inline int64_t packed_count(const Cursor* list) noexcept nogil:
    cdef const unsigned char* at = list.at
    cdef int64_t found = 0
    if at == list.end:
        return 0
    if list.end[-1] >= 0x80:
        return -1
    while at < list.end:
        found += at[0] < 0x80
        at += 1
    return found
