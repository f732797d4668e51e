"""The bodies of a plan, near at hand.

They lie in one file, in the order in which they are sent, and the file may be large. Mapped memory would cost a page fault
for each 64 KiB that are sent and would count as memory of the worker for as long as it is mapped. So a window of the file is
read into memory that was touched before: one short read for many small bodies. Where the file cannot be read the mapping is.
"""

import os

from libc.errno cimport EINTR, errno
from libc.stdlib cimport free, malloc
from libc.string cimport memset

cdef extern from "<unistd.h>" nogil:
    ssize_t pread(int fd, void* data, size_t size, long long offset)

cdef enum:
    WINDOW = 262144
    AHEAD = 16384               # read at once at least: workers send only their share of what follows each other


cdef class Bodies:
    """*mapped*: the bodies; *path*: their file. Without it they are taken from *mapped*."""

    def __cinit__(self):
        self.fd = -1

    def __init__(self, const uint8_t[::1] mapped=None, path=None):
        self.mapped = mapped
        if path is None or mapped is None or mapped.shape[0] == 0:
            return
        self.window = <uint8_t*>malloc(WINDOW)
        if self.window == NULL:
            raise MemoryError("a window of bodies")
        memset(self.window, 1, WINDOW)          # its pages are there before a clock starts; of zeros a compiler makes calloc()
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __dealloc__(self):
        free(self.window)
        if self.fd >= 0:
            os.close(self.fd)

    cdef const uint8_t* near(self, const void* wanted, size_t* size) noexcept:
        cdef const uint8_t* asked = <const uint8_t*>wanted
        cdef const uint8_t* first
        cdef uint64_t offset
        cdef ssize_t n
        if self.fd < 0:
            return asked
        first = &self.mapped[0]
        if asked < first or asked >= first + self.mapped.shape[0]:
            return asked
        offset = <uint64_t>(asked - first)
        if offset < self.at or offset + size[0] > self.at + self.held:
            n = -1
            while n < 0:
                n = pread(self.fd, self.window, min(max(size[0], <size_t>AHEAD), <size_t>WINDOW), <long long>offset)
                if n == 0 or (n < 0 and errno != EINTR):
                    self.held = 0
                    return asked
            self.at = offset
            self.held = <uint64_t>n
            size[0] = min(size[0], <size_t>n)
        return self.window + (offset - self.at)

    cdef const uint8_t* whole(self, uint64_t offset, size_t size) noexcept:
        cdef const uint8_t* asked = &self.mapped[0] + offset
        cdef size_t got = size
        cdef const uint8_t* found = self.near(asked, &got)
        return found if got == size else asked

    cdef bytes taken(self, const void* wanted, size_t size):
        cdef size_t got = size
        cdef const uint8_t* found = self.near(wanted, &got)
        if got == size:
            return (<const char*>found)[:size]
        return (<const char*>found)[:got] + self.taken(<const uint8_t*>wanted + got, size - got)

    def read(self, offset, size) -> bytes:
        """*size* bytes from *offset* on: for tests."""
        return self.taken(&self.mapped[0] + <uint64_t>offset, size)
