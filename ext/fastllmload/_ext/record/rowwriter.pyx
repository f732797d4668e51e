"""What a worker recorded, from memory (rowmemory.pxd) to its files, which can be read at every moment.

A pass writes rows first and events after them, because an event names its row; and records before the header that counts
them. A row is written while it is open, and again whenever it has changed for a second; when it has ended and is written its
place is given back. Blocks of events are written as they fill, so that a kill of everything loses little, and once more as a
whole when the worker has gone on to the next one: until then the latest events may still be put right (timeline.pyx).

What cannot be written stays in memory and is tried again at the next pass.
"""

import os

cimport cython
from libc.errno cimport EINTR, errno as c_errno
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, qsort, realloc
from libc.string cimport memcpy

from fastllmload._ext.record.rowmemory cimport (
    BLOCK, EVENT_BLOCKS, EVENT_BYTES, EVENTS_PER_BLOCK, M_ERROR, M_EVENTS, M_EVENTS_GIVEN, M_EVENTS_TAKEN,
    M_EVENTS_WRITTEN, M_OPENED, M_PLACES, M_ROWS_GIVEN, M_ROWS_WRITTEN, M_TEXT, M_TEXT_GIVEN, M_TEXT_WRITTEN, ROW_BYTES,
    RowMemory, TAG_ENDED, TAG_OPEN, TAG_SHIFT, TEXT_BLOCKS, fll_give, fll_publish, fll_seen,
)

cdef extern from "<unistd.h>" nogil:
    ssize_t c_pwrite "pwrite"(int fd, const void* data, size_t size, long long offset)

cdef enum:
    HEADER = 4096
    RUN_ROWS = 1024             # rows written by one call
    ENDED_SHIFT = 31            # of an entry: number << 32 | ended << 31 | place
    PLACE = 0x7FFFFFFF
    REFRESH = 2                 # passes after which open rows are written again

cdef extern from * nogil:
    """
    static int fll_ascending(const void* a, const void* b) {
        uint64_t x = *(const uint64_t*)a, y = *(const uint64_t*)b;
        return (x > y) - (x < y);
    }
    """
    int fll_ascending(const void* a, const void* b)


@cython.final
cdef class RowWriter:
    """Writes the memory *descriptor* to the files in *directory*, which `recorder.make_files` made."""

    cdef RowMemory memory
    cdef list files                 # descriptors: rows, events, text
    cdef int rows_fd, events_fd, text_fd
    cdef list described             # of rows and events: the header up to the number of records
    cdef uint64_t* entries          # rows of a pass; owned
    cdef uint64_t room
    cdef uint8_t* run               # RUN_ROWS rows; owned
    cdef uint64_t passes

    def __cinit__(self):
        self.run = <uint8_t*>malloc(RUN_ROWS * ROW_BYTES)
        if self.run == NULL:
            raise MemoryError("a run of rows")

    def __init__(self, int descriptor, directory, bint text):
        self.memory = RowMemory(descriptor)
        names = ("requests.npy", "tokens.npy", "text.bin") if text else ("requests.npy", "tokens.npy")
        self.files = [os.open(os.path.join(directory, name), os.O_RDWR | os.O_CLOEXEC) for name in names]
        self.rows_fd, self.events_fd = self.files[:2]
        self.text_fd = self.files[2] if text else -1
        self.described = [os.pread(each, HEADER, 0).partition(b"'shape': ")[0] + b"'shape': " for each in self.files[:2]]

    def __dealloc__(self):
        free(self.entries)
        free(self.run)
        for each in self.files or ():
            os.close(each)

    def write_out(self, bint final=False) -> bool:
        """One pass; whether all that there was is on the disk. *final*: recording has ended."""
        cdef RowMemory m = self.memory
        cdef uint64_t events = fll_seen(m.words + M_EVENTS)         # before the rows that they name
        cdef uint64_t text = fll_seen(m.words + M_TEXT)
        cdef uint64_t opened = fll_seen(m.words + M_OPENED)
        cdef bint whole
        self.passes += 1
        whole = self._rows(opened, final or self.passes % REFRESH == 0)
        if not whole:
            events = self._named(events)
        whole = self._events(events, final) and whole
        return self._text(text) and whole

    def finish(self) -> bool:
        """The last pass, when recording has ended; whether everything is on the disk. The files are closed."""
        cdef RowMemory m = self.memory
        whole = self.write_out(True)
        # Part of a record may follow the last complete one when the disk is full.
        os.ftruncate(self.rows_fd, HEADER + m.words[M_ROWS_WRITTEN] * ROW_BYTES)
        os.ftruncate(self.events_fd, HEADER + m.words[M_EVENTS_WRITTEN] * EVENT_BYTES)
        if self.text_fd >= 0:
            os.ftruncate(self.text_fd, m.words[M_TEXT_WRITTEN])
        files, self.files = self.files, []
        for each in files:
            os.close(each)
        return whole

    cdef uint64_t _put(self, int fd, const uint8_t* data, uint64_t size, uint64_t offset) except? 0:
        """Bytes written: fewer than *size* where the disk is full or fails, which is noted."""
        cdef uint64_t done = 0
        cdef ssize_t n
        while done < size:
            with nogil:
                n = c_pwrite(fd, data + done, size - done, <long long>(offset + done))
            if n > 0:
                done += <uint64_t>n
            elif n < 0 and c_errno != EINTR:
                fll_publish(self.memory.words + M_ERROR, <uint64_t>c_errno)
                break
        return done

    cdef int _header(self, int which, uint64_t records) except -1:
        text = (self.described[which] + b"(%d,)}" % records).ljust(HEADER - 1) + b"\n"
        self._put(self.files[which], text, HEADER, 0)
        return 0

    # -- rows ---------------------------------------------------------------------------------------------------------

    cdef uint64_t _gather(self, uint64_t opened, bint refresh) except? 0:
        """Entries of the rows below *opened* that are to be written, by number."""
        cdef RowMemory m = self.memory
        cdef uint64_t places = fll_seen(m.words + M_PLACES)
        cdef uint64_t place, tag, state, number, found = 0
        cdef uint64_t* grown
        if self.room < places:
            grown = <uint64_t*>realloc(self.entries, (2 * places + 1024) * sizeof(uint64_t))
            if grown == NULL:
                raise MemoryError("rows of a pass")
            self.entries = grown
            self.room = 2 * places + 1024
        for place in range(places):
            tag = fll_seen(m.tags + place)
            state = tag >> TAG_SHIFT
            number = <uint32_t>tag
            if state == 0 or number >= opened:
                continue
            if state == TAG_OPEN and number < m.words[M_ROWS_WRITTEN] and not refresh:
                continue
            self.entries[found] = number << 32 | <uint64_t>(state == TAG_ENDED) << ENDED_SHIFT | place
            found += 1
        qsort(self.entries, found, sizeof(uint64_t), fll_ascending)
        return found

    cdef bint _rows(self, uint64_t opened, bint refresh) except? False:
        """Whether all of them are written. A row that ends meanwhile is written as it is, and again at the next pass."""
        cdef RowMemory m = self.memory
        cdef uint64_t found = self._gather(opened, refresh)
        cdef uint64_t i = 0, n, k, done, written = m.words[M_ROWS_WRITTEN]
        cdef uint64_t first, entry
        cdef bint whole = True
        while i < found and whole:
            first = self.entries[i] >> 32
            n = 0
            while n < RUN_ROWS and i + n < found and self.entries[i + n] >> 32 == first + n:
                entry = self.entries[i + n]
                memcpy(self.run + n * ROW_BYTES, m.rows + (entry & PLACE) * ROW_BYTES, ROW_BYTES)
                n += 1
            done = self._put(self.rows_fd, self.run, n * ROW_BYTES, HEADER + first * ROW_BYTES) // ROW_BYTES
            for k in range(done):
                entry = self.entries[i + k]
                if entry >> ENDED_SHIFT & 1:
                    fll_give(m.tags, m.words + M_ROWS_GIVEN, <uint32_t>(entry & PLACE))
            written = max(written, first + done)
            whole = done == n
            i += n
        if written != m.words[M_ROWS_WRITTEN]:
            self._header(0, written)
            fll_publish(m.words + M_ROWS_WRITTEN, written)
        return whole

    cdef uint64_t _named(self, uint64_t events) except? 0:
        """How many of the first *events* name rows that are in the file."""
        cdef RowMemory m = self.memory
        cdef uint64_t n = m.words[M_EVENTS_WRITTEN]
        while n < events and (<uint32_t*>(self._event(n) + 8))[0] < m.words[M_ROWS_WRITTEN]:
            n += 1
        return n

    # -- events and text ----------------------------------------------------------------------------------------------

    cdef uint8_t* _event(self, uint64_t number) noexcept:
        cdef RowMemory m = self.memory
        cdef uint64_t block = m.event_order[number // EVENTS_PER_BLOCK % EVENT_BLOCKS]
        return m.events + block * BLOCK + number % EVENTS_PER_BLOCK * EVENT_BYTES

    cdef bint _events(self, uint64_t events, bint final) except? False:
        """Whole blocks for good, and of the one that is being filled what is new."""
        cdef RowMemory m = self.memory
        cdef uint64_t taken = m.words[M_EVENTS_TAKEN], written = m.words[M_EVENTS_WRITTEN]
        cdef uint64_t begin, n, done
        cdef bint whole = True, last
        begin = taken
        while whole and begin < events:
            last = events - begin <= EVENTS_PER_BLOCK       # the block of the latest event: the worker may still change it
            n = min(events - begin, <uint64_t>EVENTS_PER_BLOCK)
            if last and not final and written > begin:
                n -= written - begin
                begin = written
            done = self._put(self.events_fd, self._event(begin), n * EVENT_BYTES, HEADER + begin * EVENT_BYTES) // EVENT_BYTES
            whole = done == n
            begin += done
            written = max(written, begin)
            if whole and not last:
                fll_give(m.event_links, m.words + M_EVENTS_GIVEN,
                         m.event_order[taken // EVENTS_PER_BLOCK % EVENT_BLOCKS])
                taken += EVENTS_PER_BLOCK
                fll_publish(m.words + M_EVENTS_TAKEN, taken)
        if written != m.words[M_EVENTS_WRITTEN]:
            self._header(1, written)
            fll_publish(m.words + M_EVENTS_WRITTEN, written)
        return whole

    cdef bint _text(self, uint64_t size) except? False:
        """Text does not change: a block is given back when it is full and written."""
        cdef RowMemory m = self.memory
        cdef uint64_t written = m.words[M_TEXT_WRITTEN]
        cdef uint64_t inside, n, done
        cdef uint32_t block
        while self.text_fd >= 0 and written < size:
            inside = written % BLOCK
            n = min(size - written, BLOCK - inside)
            block = m.text_order[written // BLOCK % TEXT_BLOCKS]
            done = self._put(self.text_fd, m.text + block * <uint64_t>BLOCK + inside, n, written)
            written += done
            if done == n and written % BLOCK == 0:
                fll_give(m.text_links, m.words + M_TEXT_GIVEN, block)
            fll_publish(m.words + M_TEXT_WRITTEN, written)
            if done < n:
                return False
        return True
