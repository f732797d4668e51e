# The packet ring of a run: segments of its connections with the kernel's time of each, taken before TCP sees them.
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from fastllmload._ext.tap.segment cimport FRAME_KINDS, Peers, Segment

cdef enum:
    HELD = 16384                # segments that are written at once

cdef class Ring:
    # A packet socket with its ring. Made by the supervisor, so that frames are kept from before the first connection on;
    # read by a process that inherits the descriptor.
    cdef int fd                         # owned; -1 after close()
    cdef uint8_t* base                  # mapped blocks; owned, NULL before attach()
    cdef size_t mapped                  # bytes
    cdef uint32_t block_size
    cdef uint32_t blocks
    cdef uint32_t next                  # block that is read next
    cdef Peers peers                    # remote sides that are watched
    cdef Peers locals                   # addresses of this host
    cdef readonly bint looped                    # what is sent comes in too
    cdef int out                        # descriptor of the file; borrowed
    cdef Segment* held                  # not yet written; owned
    cdef uint32_t holding
    cdef int64_t offset                 # CLOCK_REALTIME - CLOCK_MONOTONIC
    cdef int64_t now                    # when it was last looked at
    cdef int64_t sure_from              # it changed then: what came before has no time; 0: it never did
    cdef int64_t counted                # when the kernel's counts were last taken
    cdef readonly uint64_t segments     # written, or held
    cdef readonly uint64_t payload      # their bytes
    cdef readonly uint64_t drops        # frames that found the ring full
    cdef readonly uint64_t freezes      # times that it was full
    cdef readonly uint64_t steps        # of the wall clock
    cdef readonly uint64_t unwritten    # segments that found the disk full
    cdef readonly uint64_t foreign      # frames of others that passed the filter
    cdef uint64_t[FRAME_KINDS] kinds
    cdef readonly int error_number      # why nothing more is written; 0: it is

    cdef int block(self, uint8_t* at) except -1
    cdef int frame(self, uint8_t* at) except -1
    cdef int put(self, Segment* segment) except -1
    cdef int clock(self) noexcept
