"""Memory between a worker and the process that writes its rows to the disk."""

import os

from libc.errno cimport errno as c_errno

cdef extern from "<sys/mman.h>" nogil:
    int PROT_READ, PROT_WRITE, MAP_SHARED, MAP_NORESERVE
    void* MAP_FAILED
    void* mmap(void* at, size_t size, int protection, int flags, int fd, long long offset)
    int munmap(void* at, size_t size)
    int mlock(const void* at, size_t size)

cdef enum:
    WARM_ROWS = 1 << 14         # places of rows, 4 MiB
    WARM_EVENTS = 64            # blocks of events, 16 MiB
    WARM_TEXT = 16              # blocks of text, 4 MiB

WARM = {"rows": WARM_ROWS, "events": WARM_EVENTS * EVENTS_PER_BLOCK, "text_bytes": WARM_TEXT * BLOCK}
MOST = {"rows": ROW_PLACES, "events": EVENT_BLOCKS * EVENTS_PER_BLOCK, "text_bytes": TEXT_BLOCKS * BLOCK}


def create() -> int:
    """A descriptor of new memory for one worker, not inherited. OSError when the system gives none."""
    descriptor = os.memfd_create("rows", os.MFD_CLOEXEC)
    try:
        os.ftruncate(descriptor, MEMORY_BYTES)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


cdef int touch(uint8_t* at, uint64_t size) noexcept nogil:
    # Pages that are there, writable, from now on; kept there where the process may ask for that.
    cdef uint64_t done = 0
    while done < size:
        (<volatile uint8_t*>at)[done] = at[done]
        done += PAGE
    mlock(at, size)
    return 0


cdef class RowMemory:
    """*descriptor*: of create(), open for as long as this lives. OSError when it cannot be mapped."""

    def __init__(self, int descriptor):
        cdef void* at = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor, 0)
        if at == MAP_FAILED:
            raise OSError(c_errno, f"cannot map the memory of rows: {os.strerror(c_errno)}")
        self.descriptor = descriptor
        self.base = <uint8_t*>at
        self.words = <uint64_t*>at
        self.event_order = <uint32_t*>(self.base + AT_EVENT_ORDER)
        self.text_order = <uint32_t*>(self.base + AT_TEXT_ORDER)
        self.event_links = <uint64_t*>(self.base + AT_EVENT_LINKS)
        self.text_links = <uint64_t*>(self.base + AT_TEXT_LINKS)
        self.tags = <uint64_t*>(self.base + AT_TAGS)
        self.rows = self.base + AT_ROWS
        self.events = self.base + AT_EVENTS
        self.text = self.base + AT_TEXT

    def __dealloc__(self):
        if self.base != NULL:
            munmap(self.base, MEMORY_BYTES)

    def warm(self, bint text) -> None:
        """Fault in what a run at its usual pace takes, before a clock runs (`WARM`)."""
        touch(self.base, AT_TAGS + WARM_ROWS * sizeof(uint64_t))
        touch(self.rows, WARM_ROWS * ROW_BYTES)
        touch(self.events, WARM_EVENTS * BLOCK)
        if text:
            touch(self.text, WARM_TEXT * BLOCK)

    @property
    def error_number(self) -> int:
        """errno of a write to the disk that failed; 0: none did."""
        return self.words[M_ERROR]

    @property
    def missing(self) -> dict:
        """Rows, events and texts that are not on the disk: what found no memory, and what has not been written."""
        cdef uint64_t* w = self.words
        return {
            "rows": w[M_LOST_ROWS] + w[M_OPENED] - w[M_ROWS_WRITTEN],
            "events": w[M_LOST_EVENTS] + w[M_EVENTS] - w[M_EVENTS_WRITTEN],
            "texts": w[M_LOST_TEXT] + (w[M_TEXT] != w[M_TEXT_WRITTEN]),
        }
