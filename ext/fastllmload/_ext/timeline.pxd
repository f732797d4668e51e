# Events of a response onto its timeline: kind, time and class of the stamp of each; live TTFT and ITL. Rows of events and
# the live histograms of tokens are written here and nowhere else.
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t

from fastllmload._ext.calls cimport CallReader
from fastllmload._ext.delta cimport Classifier, Meaning
from fastllmload._ext.errortexts cimport ErrorTexts
from fastllmload._ext.exchange cimport Exchange
from fastllmload._ext.histogram cimport Hdr
from fastllmload._ext.recorder cimport Recorder, RequestRow
from fastllmload._ext.sse cimport SseEvent

cdef struct Pending:        # the latest event of the read being fed: its class is known when the next one comes, or none
    int64_t t
    uint32_t row
    uint32_t read
    uint8_t kind
    uint8_t follows         # same read as the request's previous event
    uint8_t full
    uint8_t first           # it set t_first

@cython.final
cdef class Timeline:
    # One per worker. Not thread-safe. Every Exchange that comes in has an open row.
    cdef Recorder recorder
    cdef Classifier classifier
    cdef CallReader calls
    cdef ErrorTexts error_texts
    cdef int64_t* words             # counters.pxd; borrowed from the Protocol's shared memory
    cdef Hdr ttft, itl
    cdef int event(self, Exchange* x, SseEvent* event, Pending* p) except -1            # one event of a stream
    cdef int flush(self, Exchange* x, Pending* p, bint coalesced) except -1             # write what is pending
    cdef int whole(self, Exchange* x, int64_t t, uint32_t read) except -1               # a body that was no stream
    cdef int _timed(self, Exchange* x, Meaning* m, int64_t t, uint8_t kind) except -1
    cdef int _wrong(self, Exchange* x, uint8_t error, const unsigned char* text, size_t size) except -1
    cdef int _said(self, RequestRow* row, Meaning* m) noexcept
