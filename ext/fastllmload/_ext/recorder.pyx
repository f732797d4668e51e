"""Request rows, event rows and text of one worker, in mapped files that can be read at every moment, also after SIGKILL.

A file grows by windows of up to 1 MiB. Disk blocks are allocated before a window is mapped, so that a full disk is an answer
of posix_fallocate and never a SIGBUS; the header is rewritten after that, so that it never promises more than is there.
"""

import errno
import os
from array import array
from math import lcm

import numpy as np

from libc.errno cimport EINTR, errno as c_errno
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

cdef extern from "<fcntl.h>" nogil:
    int posix_fallocate(int fd, long long offset, long long size)

cdef extern from "<unistd.h>" nogil:
    int close_fd "close"(int fd)

cdef extern from "<sys/mman.h>" nogil:
    int PROT_READ, PROT_WRITE, MAP_SHARED
    void* MAP_FAILED
    void* mmap(void* at, size_t size, int protection, int flags, int fd, long long offset)
    int munmap(void* at, size_t size)

cdef enum:
    PAGE = 4096
    HEADER = PAGE
    WINDOW = 1 << 20            # at most

HEADER_BYTES = HEADER
WINDOW_BYTES = WINDOW


cdef int allocate(int fd, uint64_t offset, uint64_t size) noexcept nogil:
    # 0, or the errno of a disk that cannot take *size* more bytes.
    cdef int failed = EINTR
    while failed == EINTR:
        failed = posix_fallocate(fd, <long long>offset, <long long>size)
    return failed


cdef uint8_t* map_window(int fd, uint64_t offset, uint64_t size) except NULL:
    cdef void* at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, <long long>offset)
    if at == MAP_FAILED:
        raise OSError(c_errno, f"cannot map a window of {size} bytes: {os.strerror(c_errno)}")
    return <uint8_t*>at


cdef int unmap_window(uint8_t* base, uint64_t size) except -1:
    if munmap(base, size):
        raise OSError(c_errno, f"cannot unmap a window: {os.strerror(c_errno)}")
    return 0


def request_dtype():
    """numpy dtype of RequestRow, taken from the compiled struct itself."""
    cdef RequestRow row
    return np.asarray(<RequestRow[:1]>&row).dtype


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

    Ends at the first record that is not complete: zeros behind the last one, or bytes that a kill cut off.
    """
    cdef uint32_t[2] head
    cdef int64_t at = 0, end = data.shape[0]
    rows, starts, sizes = array("I"), array("q"), array("I")
    while end - at > <int64_t>sizeof(head):
        memcpy(head, &data[at], sizeof(head))
        at += sizeof(head)
        if head[1] == 0 or head[1] > end - at:
            break
        rows.append(head[0])
        starts.append(at)
        sizes.append(head[1])
        at += head[1]
    return np.array(rows, np.uint32), np.array(starts, np.int64), np.array(sizes, np.uint32)


cdef class RowFile:
    """A growing .npy file of fixed records. *path* must not exist yet. OSError when it cannot be created."""

    def __cinit__(self):
        self.fd = -1

    def __init__(self, path, dtype, bint pinned):
        self.path = os.fspath(path)
        self.dtype = dtype
        self.pinned = pinned
        self.record = dtype.itemsize
        self.window = WINDOW - WINDOW % lcm(self.record, PAGE)
        self.per_chunk = self.window // self.record
        self.open_chunks = []
        self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        self.write_header(0)

    def __dealloc__(self):
        # Given up without close(): the file stays as after a kill. munmap and close cannot fail for what we own.
        if self.current != NULL:
            munmap(self.current.base, self.window)
            free(self.current)
        for address in self.open_chunks or ():
            munmap((<Chunk*><size_t>address).base, self.window)
            free(<Chunk*><size_t>address)
        if self.fd >= 0:
            close_fd(self.fd)

    @property
    def mapped(self) -> int:
        """Windows mapped now."""
        return len(self.open_chunks) + (self.current != NULL)

    cdef int write_header(self, uint64_t records) except -1:
        os.pwrite(self.fd, npy_header(self.dtype, records), 0)
        return 0

    cdef int release(self, Chunk* chunk) except -1:
        cdef uint8_t* base = chunk.base
        free(chunk)
        return unmap_window(base, self.window)

    cdef int grow(self) except -1:
        cdef uint64_t first = self.count
        cdef uint64_t offset = HEADER + first * self.record
        cdef Chunk* chunk
        if self.full:
            return 1
        self.error_number = allocate(self.fd, offset, self.window)
        if self.error_number:
            self.full = True
            return 1
        self.write_header(first + self.per_chunk)
        chunk = <Chunk*>calloc(1, sizeof(Chunk))
        if chunk == NULL:
            raise MemoryError()
        chunk.first = first
        try:
            chunk.base = map_window(self.fd, offset, self.window)
        except BaseException:
            free(chunk)
            raise
        self.seal()
        self.current = chunk
        self.room = self.per_chunk
        return 0

    cdef int seal(self) except -1:
        # The current window gets no more records: unmapped at once, or with the end of its last open row.
        cdef Chunk* chunk = self.current
        self.current = NULL
        self.room = 0
        if chunk == NULL:
            return 0
        chunk.sealed = 1
        if chunk.live:
            self.open_chunks.append(<size_t>chunk)
            return 0
        return self.release(chunk)

    cdef uint8_t* append(self) except? NULL:
        cdef uint8_t* at
        if self.room == 0 and self.grow():
            self.lost += 1
            return NULL
        at = self.current.base + (self.count - self.current.first) * self.record
        self.count += 1
        self.room -= 1
        return at

    def close(self) -> None:
        """Unmap, cut the file to its records and write the final header. No row may be used afterwards."""
        if self.fd < 0:
            return
        self.seal()
        for address in self.open_chunks:
            self.release(<Chunk*><size_t>address)
        self.open_chunks.clear()
        # Header first: between the two calls the file has more bytes than promised, never fewer.
        self.write_header(self.count)
        os.ftruncate(self.fd, HEADER + self.count * self.record)
        os.close(self.fd)
        self.fd = -1
        self.full = True
        self.error_number = errno.EBADF


cdef class ByteFile:
    """text.bin: records {u32 row, u32 size, bytes}. *path* must not exist yet. OSError when it cannot be created."""

    def __cinit__(self):
        self.fd = -1

    def __init__(self, path):
        self.path = os.fspath(path)
        self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)

    def __dealloc__(self):
        if self.base != NULL:
            munmap(self.base, WINDOW)
        if self.fd >= 0:
            close_fd(self.fd)

    cdef int reserve(self, uint64_t size) except -1:
        cdef uint64_t missing
        if self.full:
            return 1
        if self.used + size <= self.reserved:
            return 0
        missing = (self.used + size - self.reserved + WINDOW - 1) // WINDOW * WINDOW
        self.error_number = allocate(self.fd, self.reserved, missing)
        if self.error_number:
            self.full = True
            return 1
        self.reserved += missing
        return 0

    cdef int put(self, const unsigned char* data, uint64_t size) except -1:
        cdef uint64_t inside, part
        while size:
            inside = self.used % WINDOW
            if self.base == NULL or self.used - inside != self.mapped:
                if self.base != NULL:
                    unmap_window(self.base, WINDOW)
                    self.base = NULL
                self.base = map_window(self.fd, self.used - inside, WINDOW)
                self.mapped = self.used - inside
            part = min(size, WINDOW - inside)
            memcpy(self.base + inside, data, part)
            self.used += part
            data += part
            size -= part
        return 0

    cdef int write(self, uint32_t row, const unsigned char* data, uint32_t size) except -1:
        cdef uint32_t[2] head
        if size == 0:
            return 0
        if self.reserve(sizeof(head) + size):
            self.lost += 1
            return 1
        head[0] = row
        head[1] = size
        self.put(<const unsigned char*>head, sizeof(head))
        self.put(data, size)
        return 0

    def close(self) -> None:
        """Unmap and cut the file to what was written."""
        if self.fd < 0:
            return
        if self.base != NULL:
            unmap_window(self.base, WINDOW)
            self.base = NULL
        os.ftruncate(self.fd, self.used)
        os.close(self.fd)
        self.fd = -1
        self.full = True
        self.error_number = errno.EBADF


cdef class Recorder:
    """requests.npy, tokens.npy and, with *text*, text.bin in *directory*, which exists and has none of them.

    The Python methods below are for tests and for generators of rows; the hot path calls the C methods.
    """

    def __init__(self, directory, bint text=False):
        self.text_on = text
        self._open = {}
        self.requests = RowFile(os.path.join(directory, "requests.npy"), request_dtype(), True)
        self.events = RowFile(os.path.join(directory, "tokens.npy"), event_dtype(), False)
        if text:
            self.text = ByteFile(os.path.join(directory, "text.bin"))

    cdef RequestRow* open_row(self, uint32_t* number, Chunk** chunk) except? NULL:
        cdef RequestRow* row
        number[0] = <uint32_t>self.requests.count
        row = <RequestRow*>self.requests.append()
        if row == NULL:
            chunk[0] = NULL
            return NULL
        row.status = STATUS_IN_FLIGHT
        chunk[0] = self.requests.current
        self.requests.current.live += 1
        return row

    cdef int end_row(self, Chunk* chunk) except -1:
        chunk.live -= 1
        if chunk.live == 0 and chunk.sealed:
            self.requests.open_chunks.remove(<size_t>chunk)
            return self.requests.release(chunk)
        return 0

    cdef int new_event_window(self) except -1:
        if self.events.grow():
            self.events.lost += 1
            return 1
        self.slot = <EventRow*>self.events.current.base
        return 0

    cdef int write_text(self, uint32_t row, const unsigned char* text, uint32_t size) except -1:
        return self.text.write(row, text, size)

    @property
    def full(self) -> bool:
        """A file could not grow: records were lost, and are counted in *lost* of that file."""
        return self.requests.full or self.events.full or (self.text is not None and self.text.full)

    def add_row(self, **fields):
        """Open a row and fill *fields* of it; its number, or None when the disk is full."""
        cdef uint32_t number
        cdef Chunk* chunk
        cdef RequestRow* row = self.open_row(&number, &chunk)
        if row == NULL:
            return None
        self._open[number] = (<size_t>row, <size_t>chunk)
        self.set_row(number, **fields)
        return number

    def set_row(self, number, **fields) -> None:
        """Change fields of a row that add_row() opened and finish_row() has not ended."""
        cdef RequestRow* row = <RequestRow*><size_t>self._open[number][0]
        view = np.asarray(<RequestRow[:1]>row)
        for name, value in fields.items():
            view[name] = value

    def finish_row(self, number, **fields) -> None:
        """Change fields of a row and end it."""
        self.set_row(number, **fields)
        self.end_row(<Chunk*><size_t>self._open.pop(number)[1])

    def add_event(self, t_ns, row, kind, stamp=0, tokens=0, bracket_ns=0, offset=0) -> bool:
        """Append an event; False when the disk is full."""
        return self.event(t_ns, row, kind, stamp, tokens, bracket_ns, offset) == 0

    def add_text(self, row, const unsigned char[::1] text) -> bool:
        """Append text of a row; False when the disk is full."""
        if text.shape[0] == 0:
            return True
        return self.write_text(row, &text[0], <uint32_t>text.shape[0]) == 0

    def close(self) -> None:
        """Cut the files to what was written and close them. Every row must have ended or be given up."""
        self._open.clear()
        self.slot = NULL
        self.requests.close()
        self.events.close()
        if self.text is not None:
            self.text.close()
