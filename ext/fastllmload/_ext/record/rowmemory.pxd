# Memory that a worker writes its rows, events and text to, and that another process writes out (rowwriter.pyx). One memfd
# per worker, mapped by both, sparse: only what was ever in use has pages.
#
# Rows are in places of a table from their beginning until they have ended and are on the disk. Events and text are streams
# over blocks; `order` says which block has the n-th stretch of the stream. Places and blocks are taken by the worker and
# given back by the writer through a list that begins in a shared word, so the memory in use is what is not on disk yet.
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cdef enum:
    PAGE = 4096
    BLOCK = 1 << 18             # bytes of a block of events or text
    ROW_PLACES = 1 << 20        # rows that are open, or wait for the disk, at most
    EVENT_BLOCKS = 1024
    TEXT_BLOCKS = 256

cdef enum:
    ROW_BYTES = 256             # of a RequestRow
    EVENT_BYTES = 24            # of an EventRow
    EVENTS_PER_BLOCK = 10922    # whole ones

cdef enum:                      # words of the first page; those of the two processes are on cache lines of their own
    # Written by the worker
    M_OPENED = 0                # rows opened: the numbers of rows are below
    M_EVENTS = 1                # events recorded
    M_TEXT = 2                  # bytes of text recorded
    M_PLACES = 3                # places of the row table that were ever taken
    M_LOST_ROWS = 4             # found no memory
    M_LOST_EVENTS = 5
    M_LOST_TEXT = 6
    # Written by the writer
    M_ERROR = 64                # errno of a write that failed; 0: none did
    M_ROWS_WRITTEN = 65         # rows in the file
    M_EVENTS_TAKEN = 66         # events in the file that are final
    M_EVENTS_WRITTEN = 67       # events in the file
    M_TEXT_WRITTEN = 68
    # Written by both: the place or block that was given back last, plus 1
    M_ROWS_GIVEN = 128
    M_EVENTS_GIVEN = 136
    M_TEXT_GIVEN = 144

cdef enum:                      # byte offsets
    AT_EVENT_ORDER = PAGE                                   # uint32[EVENT_BLOCKS]
    AT_TEXT_ORDER = AT_EVENT_ORDER + EVENT_BLOCKS * 4       # uint32[TEXT_BLOCKS]
    AT_EVENT_LINKS = AT_TEXT_ORDER + PAGE                   # uint64[EVENT_BLOCKS]
    AT_TEXT_LINKS = AT_EVENT_LINKS + EVENT_BLOCKS * 8       # uint64[TEXT_BLOCKS]
    AT_TAGS = AT_TEXT_LINKS + PAGE                          # uint64[ROW_PLACES]
    AT_ROWS = AT_TAGS + ROW_PLACES * 8
    AT_EVENTS = AT_ROWS + ROW_PLACES * ROW_BYTES
    AT_TEXT = AT_EVENTS + EVENT_BLOCKS * BLOCK
    MEMORY_BYTES = AT_TEXT + TEXT_BLOCKS * BLOCK

cdef enum:                      # high bits of a tag; the low 32 are the row's number, or without them a link
    TAG_OPEN = 1                # << 62
    TAG_ENDED = 2
    TAG_SHIFT = 62

cdef extern from * nogil:
    """
    #include <stdint.h>
    static inline void fll_publish(uint64_t* at, uint64_t value) { __atomic_store_n(at, value, __ATOMIC_RELEASE); }
    static inline uint64_t fll_seen(uint64_t* at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }
    static inline uint64_t fll_take_all(uint64_t* at) { return __atomic_exchange_n(at, 0, __ATOMIC_ACQ_REL); }
    static inline void fll_give(uint64_t* links, uint64_t* given, uint32_t place) {
        uint64_t head = __atomic_load_n(given, __ATOMIC_ACQUIRE);
        do links[place] = head;
        while (!__atomic_compare_exchange_n(given, &head, (uint64_t)place + 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
    }
    """
    void fll_publish(uint64_t* at, uint64_t value) noexcept        # what was stored before is seen by who sees *value*
    uint64_t fll_seen(uint64_t* at) noexcept
    uint64_t fll_take_all(uint64_t* at) noexcept
    void fll_give(uint64_t* links, uint64_t* given, uint32_t place) noexcept

cdef struct Places:             # the worker's side of a list of places
    uint64_t* links             # shared: of a place in a list, the next one plus 1
    uint64_t* given             # shared: what the writer gave back
    uint32_t first              # of those that this side may take, plus 1; 0: none
    uint32_t fresh              # places from here on were never taken
    uint32_t count

# A place, or -1 when there is none. What came back last is taken first: its pages and cache lines are warm.
cdef inline int64_t place_take(Places* p) noexcept nogil:
    cdef int64_t place
    if p.first == 0 and fll_seen(p.given) != 0:
        p.first = <uint32_t>fll_take_all(p.given)
    if p.first:
        place = <int64_t>p.first - 1
        p.first = <uint32_t>p.links[place]
        return place
    if p.fresh == p.count:
        return -1
    p.fresh += 1
    return <int64_t>p.fresh - 1

@cython.final
cdef class RowMemory:
    # The memory, mapped. *descriptor* is borrowed; the mapping is owned.
    cdef readonly int descriptor
    cdef uint8_t* base
    cdef uint64_t* words
    cdef uint32_t* event_order
    cdef uint32_t* text_order
    cdef uint64_t* event_links
    cdef uint64_t* text_links
    cdef uint64_t* tags
    cdef uint8_t* rows
    cdef uint8_t* events
    cdef uint8_t* text
