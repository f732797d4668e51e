# Bytes of a plan's bodies, read from their file into memory that is there before a clock starts: a mapped file is not.
from libc.stdint cimport uint8_t, uint64_t

cdef class Bodies:
    # Of a phase. Addresses are those of the mapped bodies, so that code that keeps one for later need not know of the window.
    cdef const uint8_t[::1] mapped      # keeps them
    cdef int fd                         # their file; owned, -1: they are in this process's own memory
    cdef uint8_t* window                # owned
    cdef uint64_t at                    # what it holds: *held* bytes of the file from here on
    cdef uint64_t held

    # Where the *size* bytes at *wanted* can be read, until the next call; fewer, and *size* says how many, of a long body.
    # Addresses outside of the bodies stay what they are.
    cdef const uint8_t* near(self, const void* wanted, size_t* size) noexcept
    cdef const uint8_t* whole(self, uint64_t offset, size_t size) noexcept      # all of them, from *offset* in the file on
    cdef bytes taken(self, const void* wanted, size_t size)                     # a copy of all of them
