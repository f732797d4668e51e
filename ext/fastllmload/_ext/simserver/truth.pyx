"""The truth log: never a system call per event; blocks are written when a buffer is full, at idle and at the end."""

import os

from libc.errno cimport EINTR, errno
from libc.stdlib cimport free, malloc
from posix.unistd cimport write


cdef class Truth:
    """*path* None: nothing is kept. An existing file is replaced; OSError says why it cannot be."""

    def __cinit__(self, path):
        cdef uint32_t[2] tail
        self.fd = -1
        self.notes = bytearray()
        self.on = path is not None
        if not self.on:
            return
        self.events = <TruthEvent*>malloc(TRUTH_EVENT_CAP * sizeof(TruthEvent))
        self.requests = <TruthRequest*>malloc(TRUTH_REQUEST_CAP * sizeof(TruthRequest))
        if self.events == NULL or self.requests == NULL:
            raise MemoryError("no memory for the truth log's buffers")
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        tail[0], tail[1] = TRUTH_VERSION, 0
        self.write_all(<const char*>b"FLLTRUTH", 8)
        self.write_all(tail, 8)

    def __dealloc__(self):
        free(self.events)
        free(self.requests)
        if self.fd >= 0:
            os.close(self.fd)

    cdef int write_all(self, const void* data, size_t size) except -1:
        cdef const char* at = <const char*>data
        cdef Py_ssize_t n
        while size:
            n = write(self.fd, at, size)
            if n < 0 and errno == EINTR:
                continue
            if n < 0:
                raise OSError(errno, f"the truth log could not be written: {os.strerror(errno)}")
            at += n
            size -= n
        return 0

    cdef int event_block(self) except -1:
        cdef uint32_t[2] head
        if self.event_count == 0:
            return 0
        head[0], head[1] = TRUTH_EVENTS, <uint32_t>self.event_count
        self.write_all(head, 8)
        self.write_all(self.events, self.event_count * sizeof(TruthEvent))
        self.event_count = 0
        return 0

    cdef int request_block(self) except -1:
        cdef uint32_t[2] head
        if self.request_count == 0:
            return 0
        head[0], head[1] = TRUTH_REQUESTS, <uint32_t>self.request_count
        self.write_all(head, 8)
        self.write_all(self.requests, self.request_count * sizeof(TruthRequest))
        self.request_count = 0
        return 0

    cdef int request(self, TruthRequest* row) except -1:
        if not self.on:
            return 0
        if self.request_count == TRUTH_REQUEST_CAP:
            self.request_block()
        self.requests[self.request_count] = row[0]
        self.request_count += 1
        return 0

    cdef int note(self, uint32_t serial, bytes text) except -1:
        if self.on:
            self.notes += int(serial).to_bytes(4, "little") + len(text).to_bytes(4, "little") + text
            if len(self.notes) >= TRUTH_NOTE_CAP:
                self.note_block()
        return 0

    cdef int call(self, int64_t t_ns, int status, bytes text) except -1:
        cdef uint32_t[2] head
        if self.on:
            head[0], head[1] = TRUTH_CALLS, <uint32_t>(12 + len(text))
            self.write_all(head, 8)
            self.write_all(&t_ns, 8)
            self.write_all(&status, 4)
            self.write_all(<const char*>text, <size_t>len(text))
        return 0

    cdef int note_block(self) except -1:
        cdef uint32_t[2] head
        if self.notes:
            head[0], head[1] = TRUTH_NOTES, <uint32_t>len(self.notes)
            self.write_all(head, 8)
            self.write_all(<const char*>self.notes, <size_t>len(self.notes))
            self.notes.clear()
        return 0

    cdef int flush(self) except -1:
        self.event_block()
        self.request_block()
        self.note_block()
        return 0
