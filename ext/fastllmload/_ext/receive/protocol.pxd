# HTTP/1.1 responses of a worker, sans-IO: bytes of reads in, verdicts on the connection out. What requests came to (row,
# counters) is written here and nowhere else.
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t

from fastllmload._ext.bytes.cursor cimport Cursor
from fastllmload._ext.events.delta cimport Classifier
from fastllmload._ext.http.response cimport HeadReader
from fastllmload._ext.receive.exchange cimport V_CLOSE, Exchange, Verdict
from fastllmload._ext.receive.timeline cimport Timeline
from fastllmload._ext.record.errortexts cimport ErrorTexts
from fastllmload._ext.record.histogram cimport Hdr
from fastllmload._ext.record.recorder cimport Recorder

@cython.final
cdef class Protocol:
    # One per worker: parsers' configuration and every sink. Not thread-safe.
    cdef readonly Recorder recorder
    cdef readonly Classifier classifier
    cdef readonly ErrorTexts error_texts
    cdef Timeline timeline
    cdef HeadReader head
    cdef int64_t* words             # counters.pxd; borrowed from *shared*
    cdef object shared              # keeps the memory behind *words* alive
    cdef Hdr e2e
    cdef size_t max_event           # bytes of one event, and of one SSE line
    cdef size_t max_body            # bytes of a non-streaming body
    cdef int64_t max_held           # bytes that all connections together hold of what is not complete
    cdef uint32_t reads             # running number of the read being fed
    cdef bint last_ok               # status of the request that ended last
    cdef bint last_left             # its user left: neither ok nor a failure
    cdef int64_t last_t             # its t_end

    # Bytes of one read: its stamp *t* (ns) and the stamp's class, *low*: none of them came earlier, and when user space had
    # them. Afterwards the caller settles timeline.unsettled.
    cdef Verdict feed(self, Exchange* x, const unsigned char* data, size_t size, int64_t t, int64_t low,
                      uint8_t stamp_class, int64_t user_t) except? V_CLOSE
    cdef Verdict eof(self, Exchange* x, int64_t t, int64_t user_t, int error_number) except? V_CLOSE
    cdef int fail(self, Exchange* x, uint8_t status, uint8_t error, int64_t t, int64_t user_t) except -1

    cdef Verdict _head(self, Exchange* x, Cursor* c, int64_t t, int64_t user_t) except? V_CLOSE
    cdef Verdict _response(self, Exchange* x, int64_t t, int64_t user_t) except? V_CLOSE
    cdef Verdict _body(self, Exchange* x, Cursor* c, int64_t t, int64_t user_t) except? V_CLOSE
    cdef int _payload(self, Exchange* x, Cursor* span) except -1
    cdef int _last_line(self, Exchange* x) except -1
    cdef bint _streams(self, Exchange* x) noexcept
    cdef int _end(self, Exchange* x, uint8_t status, uint8_t error, int64_t t, int64_t user_t) except -1
    cdef int _finish(self, Exchange* x, int64_t t, int64_t user_t, bint cut=*) except -1
