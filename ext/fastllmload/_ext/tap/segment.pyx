"""Frames as the packet ring has them → segments.

A frame begins with its network header (the ring's sockets are cooked: no link header, no VLAN tag). What it claims is never
believed beyond what was captured: every header is read through a cursor.
"""

import ipaddress

from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memset

from fastllmload._ext.bytes.cursor cimport left, over

cdef enum:
    TCP = 6                     # and what an IPv6 header may be followed by before it
    HOP_BY_HOP = 0
    ROUTING = 43
    FRAGMENT = 44
    AUTHENTICATION = 51
    DESTINATION = 60
    MOBILITY = 135
    MOST_EXTENSIONS = 16        # of an IPv6 header; a frame with more is not a segment that anybody sent us
    MOST_PEERS = 65_535

cdef inline uint32_t word(const unsigned char* at) noexcept nogil:
    return <uint32_t>at[0] << 24 | <uint32_t>at[1] << 16 | <uint32_t>at[2] << 8 | at[3]


cdef inline uint16_t half(const unsigned char* at) noexcept nogil:
    return <uint16_t>(at[0] << 8 | at[1])


cdef FrameKind frame_read(Cursor* c, uint32_t size, Packet* p) noexcept nogil:
    if left(c) < 1:
        return FRAME_CUT
    if c.at[0] >> 4 == 4:
        return ipv4(c, size, p)
    if c.at[0] >> 4 == 6:
        return ipv6(c, size, p)
    return FRAME_OTHER


cdef FrameKind ipv4(Cursor* c, uint32_t size, Packet* p) noexcept nogil:
    cdef uint32_t head, total
    if left(c) < 20:
        return FRAME_CUT
    head = <uint32_t>(c.at[0] & 15) * 4
    total = half(c.at + 2)
    if c.at[9] != TCP or half(c.at + 6) & 0x1FFF:
        return FRAME_OTHER
    if total == 0:
        total = size                # more than 64 KiB, put together by the network card or for it
    if head < 20 or total < head or total > size:
        return FRAME_BAD
    memset(p, 0, sizeof(Packet))
    p.family = 4
    memcpy(p.source, c.at + 12, 4)
    memcpy(p.target, c.at + 16, 4)
    if left(c) < head:
        return FRAME_CUT
    c.at += head
    return tcp(c, total - head, p)


cdef FrameKind ipv6(Cursor* c, uint32_t size, Packet* p) noexcept nogil:
    cdef uint32_t rest, length
    cdef uint8_t follows
    cdef int extensions = 0
    if left(c) < 40:
        return FRAME_CUT
    rest = half(c.at + 4)
    if rest == 0 and size >= 40:
        rest = size - 40            # more than 64 KiB
    if rest + 40 > size:
        return FRAME_BAD
    memset(p, 0, sizeof(Packet))
    p.family = 6
    memcpy(p.source, c.at + 8, 16)
    memcpy(p.target, c.at + 24, 16)
    follows = c.at[6]
    c.at += 40
    while follows != TCP:
        if follows not in (HOP_BY_HOP, ROUTING, FRAGMENT, AUTHENTICATION, DESTINATION, MOBILITY):
            return FRAME_OTHER
        extensions += 1
        if extensions > MOST_EXTENSIONS:
            return FRAME_BAD
        if left(c) < 8:
            return FRAME_CUT
        if follows == FRAGMENT:
            if half(c.at + 2) & 0xFFF8:
                return FRAME_OTHER
            length = 8
        elif follows == AUTHENTICATION:
            length = (<uint32_t>c.at[1] + 2) * 4
        else:
            length = (<uint32_t>c.at[1] + 1) * 8
        if length > rest:
            return FRAME_BAD
        if left(c) < length:
            return FRAME_CUT
        follows = c.at[0]
        c.at += length
        rest -= length
    return tcp(c, rest, p)


cdef FrameKind tcp(Cursor* c, uint32_t size, Packet* p) noexcept nogil:
    # *size*: bytes of header and payload, by the IP header.
    cdef uint32_t head
    cdef uint8_t flags
    if left(c) < 16:
        return FRAME_CUT
    head = <uint32_t>(c.at[12] >> 4) * 4
    if head < 20 or head > size:
        return FRAME_BAD
    flags = c.at[13]
    p.source_port = half(c.at)
    p.target_port = half(c.at + 2)
    p.seq = word(c.at + 4)
    p.length = size - head
    p.flags = (SEG_FIN if flags & 1 else 0) | (SEG_SYN if flags & 2 else 0) | (SEG_RST if flags & 4 else 0)
    return FRAME_SEGMENT


cdef class Peers:
    """Numbers of (address, port), counted from 0 in the order in which they are added."""

    def __cinit__(self):
        self.mask = 15
        self.places = <Peer*>calloc(self.mask + 1, sizeof(Peer))
        if self.places == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.places)

    cdef Peer* find(self, uint8_t family, const uint8_t* address, uint16_t port) noexcept nogil:
        cdef uint32_t hashed = <uint32_t>port * 0x9E3779B1u + family
        cdef int i
        cdef Peer* at
        for i in range(0, 16, 4):
            hashed = (hashed ^ word(address + i)) * 0x85EBCA6Bu
            hashed ^= hashed >> 15
        while True:
            at = &self.places[hashed & self.mask]
            if at.family == 0 or (at.port == port and at.family == family and memcmp(at.address, address, 16) == 0):
                return at
            hashed += 1

    cdef int number(self, uint8_t family, const uint8_t* address, uint16_t port) noexcept nogil:
        cdef Peer* at = self.find(family, address, port)
        return at.number if at.family else -1

    cdef int add(self, uint8_t family, const uint8_t* address, uint16_t port) except -1 nogil:
        cdef Peer* at = self.find(family, address, port)
        if at.family:
            return at.number
        if self.count == MOST_PEERS:
            return -2
        if 2 * (self.count + 1) > self.mask:
            self.grow()
            at = self.find(family, address, port)
        at.family = family
        at.port = port
        at.number = <uint16_t>self.count
        memcpy(at.address, address, 16)
        self.count += 1
        return at.number

    cdef int grow(self) except -1 nogil:
        cdef Peer* before = self.places
        cdef uint32_t places = self.mask + 1
        cdef uint32_t i
        cdef Peer* more = <Peer*>calloc(2 * <size_t>places, sizeof(Peer))
        if more == NULL:
            with gil:
                raise MemoryError()
        self.places = more
        self.mask = 2 * places - 1
        for i in range(places):
            if before[i].family:
                self.find(before[i].family, before[i].address, before[i].port)[0] = before[i]
        free(before)
        return 0

    def watch(self, str address, int port) -> int:
        """The number of *address*, which is numeric, and *port*. ValueError for what is not an address."""
        cdef uint8_t[16] raw
        cdef bytes packed = ipaddress.ip_address(address).packed
        if not 0 <= port <= 65_535:
            raise ValueError(f"{port} is not a port")
        memset(raw, 0, 16)
        memcpy(raw, <const char*>packed, len(packed))
        number = self.add(4 if len(packed) == 4 else 6, raw, <uint16_t>port)
        if number < 0:
            raise ValueError(f"more than {MOST_PEERS} addresses")
        return number


def segment_dtype():
    """numpy dtype of Segment, taken from the compiled struct itself."""
    import numpy as np                  # here: the process that reads the ring has no use for it

    cdef Segment segment
    return np.asarray(<Segment[:1]>&segment).dtype


def read_frame(const unsigned char[::1] data not None, uint32_t size):
    """What a frame of *size* bytes says whose first bytes are *data*: a dict, or the name of what is wrong with it."""
    cdef Packet p
    cdef Cursor c
    cdef FrameKind kind
    cdef const unsigned char[::1] bytes_ = data if data.shape[0] else b"\0"
    over(&c, &bytes_[0], <size_t>data.shape[0])
    kind = frame_read(&c, size, &p)
    if kind != FRAME_SEGMENT:
        return ("segment", "other", "cut", "bad")[<int>kind]
    wide = 4 if p.family == 4 else 16
    return {
        "source": (str(ipaddress.ip_address((<char*>p.source)[:wide])), p.source_port),
        "target": (str(ipaddress.ip_address((<char*>p.target)[:wide])), p.target_port),
        "seq": p.seq,
        "length": p.length,
        "flags": p.flags,
    }
