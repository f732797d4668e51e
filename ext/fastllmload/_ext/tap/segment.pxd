# TCP segments out of captured frames, sans-IO: the bytes of a frame from its network header on in, one fixed record out.
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t

from fastllmload._ext.bytes.cursor cimport Cursor

cdef enum SegmentFlag:
    SEG_SENT = 1                # it left this host; else it came in
    SEG_SYN = 2
    SEG_FIN = 4
    SEG_RST = 8
    SEG_UNSURE = 16             # the wall clock was set around it: its time is not known
    SEG_LOST = 32               # no segment: *seq* frames were lost in the *length* us before t_ns

cdef packed struct Segment:     # 24 bytes
    int64_t t_ns                # CLOCK_MONOTONIC
    uint32_t seq                # of its first byte
    uint32_t length             # bytes of payload
    uint16_t port               # this host's
    uint16_t remote             # number of the other side among the watched ones
    uint16_t local              # number of this host's address, by first sight
    uint8_t flags               # SegmentFlag
    uint8_t spare

cdef enum FrameKind:
    FRAME_SEGMENT = 0           # a segment of TCP
    FRAME_OTHER = 1             # not TCP over IP, or a later fragment, which has no TCP header
    FRAME_CUT = 2               # it ends inside its headers
    FRAME_BAD = 3               # its lengths contradict each other
    FRAME_KINDS = 4

cdef struct Packet:             # what a frame says
    uint8_t family              # 4 or 6
    uint8_t flags               # SYN, FIN, RST of SegmentFlag
    uint16_t source_port
    uint16_t target_port
    uint32_t seq
    uint32_t length
    uint8_t[16] source          # an IPv4 address has 4 bytes, zeros follow
    uint8_t[16] target

# *c*: the captured bytes; *size*: how long the frame was, which the IP header may not say (segments of more than 64 KiB).
cdef FrameKind frame_read(Cursor* c, uint32_t size, Packet* p) noexcept nogil

cdef struct Peer:
    uint8_t[16] address
    uint16_t port
    uint8_t family              # 0: the place is free
    uint16_t number

@cython.final
cdef class Peers:
    # Numbers of addresses with ports: a hash table with open places.
    cdef Peer* places           # owned
    cdef uint32_t mask          # places - 1
    cdef readonly uint32_t count
    cdef Peer* find(self, uint8_t family, const uint8_t* address, uint16_t port) noexcept nogil    # its place, or the free one
    cdef int number(self, uint8_t family, const uint8_t* address, uint16_t port) noexcept nogil    # -1: not known
    cdef int add(self, uint8_t family, const uint8_t* address, uint16_t port) except -1 nogil      # its number, old or new; -2: full
    cdef int grow(self) except -1 nogil
