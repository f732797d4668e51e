"""Request rows, event rows and text of one worker, into memory that is there before the clock starts.

A process of its own writes them to the disk (rowwriter.pyx), so a disk that stalls holds up nothing here: what waits for it
stays in memory, up to the bounds of rowmemory.pxd, and is counted as lost beyond them.
"""

import os

import numpy as np

from fastllmload._ext.record import rowmemory

from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from fastllmload._ext.record.rowmemory cimport (
    BLOCK, EVENT_BLOCKS, EVENT_BYTES, EVENTS_PER_BLOCK, M_EVENTS, M_EVENTS_GIVEN, M_LOST_EVENTS, M_LOST_ROWS,
    M_LOST_TEXT, M_OPENED, M_PLACES, M_ROWS_GIVEN, M_TEXT, M_TEXT_GIVEN, ROW_BYTES, ROW_PLACES, TAG_ENDED, TAG_OPEN,
    TAG_SHIFT, TEXT_BLOCKS, place_take,
)

cdef enum:
    HEADER = 4096

HEADER_BYTES = HEADER
ROWS, EVENTS, TEXT = "requests.npy", "tokens.npy", "text.bin"


def request_dtype():
    """numpy dtype of RequestRow, taken from the compiled struct itself."""
    cdef RequestRow row
    return np.asarray(<RequestRow[:1]>&row).dtype


cdef object ROW = request_dtype()  # to make it of the struct's format takes 0.3 ms


def event_dtype():
    """numpy dtype of EventRow, taken from the compiled struct itself."""
    cdef EventRow row
    return np.asarray(<EventRow[:1]>&row).dtype


def npy_header(dtype, uint64_t records) -> bytes:
    """A version 1 .npy header of 4096 bytes for *records* items of *dtype*."""
    described = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (records,)}
    text = repr(described).encode("latin-1")
    return b"\x93NUMPY\x01\x00" + (HEADER - 10).to_bytes(2, "little") + text.ljust(HEADER - 11) + b"\n"


def text_index(const unsigned char[::1] data):
    """Rows (uint32), byte offsets (int64) and sizes (uint32) of the records in the bytes of a text.bin.

    Ends at the first record that is not complete: zeros after the last one, or bytes that a kill cut off.
    """
    cdef Py_ssize_t count = walk_text(data, None, None, None)
    rows, starts, sizes = np.empty(count, np.uint32), np.empty(count, np.int64), np.empty(count, np.uint32)
    walk_text(data, rows, starts, sizes)
    return rows, starts, sizes


cdef Py_ssize_t walk_text(const unsigned char[::1] data, uint32_t[::1] rows, int64_t[::1] starts, uint32_t[::1] sizes):
    """How many whole records there are; rows is not None: what they are."""
    cdef uint32_t[2] head
    cdef int64_t at = 0, end = data.shape[0]
    cdef Py_ssize_t found = 0
    while end - at > <int64_t>sizeof(head):
        memcpy(head, &data[at], sizeof(head))
        at += sizeof(head)
        if head[1] == 0 or head[1] > end - at:
            break
        if rows is not None:
            rows[found], starts[found], sizes[found] = head[0], at, head[1]
        at += head[1]
        found += 1
    return found


def make_files(directory, bint text) -> None:
    """The files of a worker, without records. FileExistsError where there are any."""
    for name, content in ((ROWS, npy_header(request_dtype(), 0)), (EVENTS, npy_header(event_dtype(), 0)), (TEXT, b"")):
        if text or name != TEXT:
            with open(os.path.join(directory, name), "xb") as file:
                file.write(content)


cdef class EventCount:
    """How many events were recorded, and how many found no memory."""

    def __cinit__(self):
        self.chunks = <Chunk*>calloc(EVENT_BLOCKS, sizeof(Chunk))
        if self.chunks == NULL:
            raise MemoryError("event blocks")

    def __dealloc__(self):
        free(self.chunks)


cdef class Recorder:
    """Rows, events and, with *text*, text of a worker.

    *directory*: where its files are made, which this process then writes itself, at `flush()`, `close()` and where memory
    runs out. None: another process writes *memory*, a descriptor of `rowmemory.create()`.
    The Python methods below are for tests and for generators of rows; the hot path calls the C methods.
    """

    def __init__(self, directory=None, bint text=False, memory=None):
        cdef RowMemory m
        if sizeof(RequestRow) != ROW_BYTES or sizeof(EventRow) != EVENT_BYTES or BLOCK // EVENT_BYTES != EVENTS_PER_BLOCK:
            raise AssertionError("rowmemory.pxd has other sizes of rows than recorder.pxd")
        self.text_on = text
        self._open = {}
        self.events = EventCount()
        self.writer = None
        if directory is not None:
            make_files(directory, text)
            memory = rowmemory.create()
        self.memory = m = RowMemory(memory)
        if directory is not None:
            from fastllmload._ext.record.rowwriter import RowWriter

            self.writer = RowWriter(memory, directory, text)
            os.close(memory)
        else:
            m.warm(text)
        self.recorded = m.words + M_EVENTS
        self.row_places = Places(m.tags, m.words + M_ROWS_GIVEN, 0, 0, ROW_PLACES)
        self.event_places = Places(m.event_links, m.words + M_EVENTS_GIVEN, 0, 0, EVENT_BLOCKS)
        self.text_places = Places(m.text_links, m.words + M_TEXT_GIVEN, 0, 0, TEXT_BLOCKS)

    cdef int64_t _take(self, Places* places) except? -1:
        cdef int64_t place = -1 if self.closed else place_take(places)
        if place < 0 and self.writer is not None and not self.closed:
            self.writer.write_out()
            place = place_take(places)
        return place

    cdef RequestRow* open_row(self, uint32_t* number) except? NULL:
        cdef RowMemory m = self.memory
        cdef int64_t place = self._take(&self.row_places)
        cdef RequestRow* row
        if place < 0:
            m.words[M_LOST_ROWS] += 1
            return NULL
        row = <RequestRow*>m.rows + place
        memset(row, 0, sizeof(RequestRow))
        row.status = STATUS_IN_FLIGHT
        number[0] = <uint32_t>m.words[M_OPENED]
        fll_publish(m.tags + place, (<uint64_t>TAG_OPEN << TAG_SHIFT) | number[0])
        if <uint64_t>place >= m.words[M_PLACES]:
            fll_publish(m.words + M_PLACES, <uint64_t>place + 1)
        fll_publish(m.words + M_OPENED, m.words[M_OPENED] + 1)
        return row

    cdef int end_row(self, RequestRow* row) except -1:
        cdef uint64_t* tag = self.memory.tags + (row - <RequestRow*>self.memory.rows)
        fll_publish(tag, (<uint64_t>TAG_ENDED << TAG_SHIFT) | <uint32_t>tag[0])
        return 0

    cdef int new_event_window(self) except -1:
        cdef RowMemory m = self.memory
        cdef int64_t place = self._take(&self.event_places)
        if place < 0:
            self.events.lost += 1
            m.words[M_LOST_EVENTS] += 1
            return 1
        m.event_order[m.words[M_EVENTS] // EVENTS_PER_BLOCK % EVENT_BLOCKS] = <uint32_t>place
        self.events.current = self.events.chunks + place
        self.events.current.base = m.events + place * BLOCK
        self.slot = <EventRow*>self.events.current.base
        self.slot_end = self.slot + EVENTS_PER_BLOCK
        return 0

    cdef int write_text(self, uint32_t row, const unsigned char* text, uint32_t size) except -1:
        cdef RowMemory m = self.memory
        cdef uint64_t at = m.words[M_TEXT]
        cdef uint64_t end = at + 2 * sizeof(uint32_t) + size
        cdef uint32_t[2] head
        cdef int64_t place
        if size == 0:
            return 0
        while self.text_room < end:
            place = self._take(&self.text_places)
            if place < 0:
                m.words[M_LOST_TEXT] += 1
                return 1
            m.text_order[self.text_room // BLOCK % TEXT_BLOCKS] = <uint32_t>place
            self.text_room += BLOCK
        head[0] = row
        head[1] = size
        text_put(m, at, <const unsigned char*>head, sizeof(head))
        text_put(m, at + sizeof(head), text, size)
        fll_publish(m.words + M_TEXT, end)
        return 0

    @property
    def rows(self) -> int:
        """Rows opened so far."""
        return self.memory.words[M_OPENED]

    @property
    def full(self) -> bool:
        """The disk cannot take more, or the memory is full because the disk is too slow."""
        cdef uint64_t* w = self.memory.words
        return self.memory.error_number != 0 or w[M_LOST_ROWS] + w[M_LOST_EVENTS] + w[M_LOST_TEXT] > 0

    def add_row(self, **fields):
        """Open a row and fill *fields* of it; its number, or None when there is no memory left."""
        cdef uint32_t number
        cdef RequestRow* row = self.open_row(&number)
        if row == NULL:
            return None
        self._open[number] = <size_t>row
        self.set_row(number, **fields)
        return number

    def set_row(self, number, **fields) -> None:
        """Change fields of a row that add_row() opened and finish_row() has not ended."""
        cdef RequestRow* row = <RequestRow*><size_t>self._open[number]
        view = np.frombuffer(<uint8_t[:sizeof(RequestRow)]><uint8_t*>row, ROW)
        for name, value in fields.items():
            view[name] = value

    def finish_row(self, number, **fields) -> None:
        """Change fields of a row and end it."""
        self.set_row(number, **fields)
        self.end_row(<RequestRow*><size_t>self._open.pop(number))

    def add_event(self, t_ns, row, kind, stamp=0, tokens=0, bracket_ns=0, offset=0) -> bool:
        """Append an event; False when there is no memory left."""
        return self.event(t_ns, row, kind, stamp, tokens, bracket_ns, offset) == 0

    def change_event(self, int back, uint8_t stamp, uint32_t bracket_ns) -> None:
        """Put the event right that was recorded *back* events ago, as Timeline.settle() does; it is in the latest block."""
        cdef EventRow* e = self.slot - 1 - back
        if back < 0 or self.slot == NULL or <uint8_t*>e < self.events.current.base:
            raise ValueError(f"no event {back} before the latest one in its block")
        e.stamp = stamp
        e.bracket_ns = bracket_ns

    def add_text(self, row, const unsigned char[::1] text) -> bool:
        """Append text of a row; False when there is no memory left."""
        if text.shape[0] == 0:
            return True
        return self.write_text(row, &text[0], <uint32_t>text.shape[0]) == 0

    def flush(self) -> None:
        """Write to the disk what there is, where this process does that; a full disk sets *full*."""
        if self.writer is not None and not self.closed:
            self.writer.write_out()

    def close(self) -> None:
        """Nothing more can be recorded. Where this process writes: write what there is and close the files."""
        if self.closed:
            return
        self.closed = True
        self._open.clear()
        self.slot = self.slot_end = NULL
        self.events.current = NULL
        if self.writer is not None:
            self.writer.finish()


cdef void text_put(RowMemory m, uint64_t at, const unsigned char* data, uint64_t size) noexcept:
    # Into blocks that were taken.
    cdef uint64_t inside, part
    while size:
        inside = at % BLOCK
        part = min(size, BLOCK - inside)
        memcpy(m.text + m.text_order[at // BLOCK % TEXT_BLOCKS] * <uint64_t>BLOCK + inside, data, part)
        at += part
        data += part
        size -= part
