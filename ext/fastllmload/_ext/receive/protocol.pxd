# Responses of a worker, sans-IO: bytes of reads in; out come a verdict on the connection, and the requests that have ended. What
# they came to (row, counters) is written here and nowhere else.
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t

from fastllmload._ext.bytes.cursor cimport Cursor
from fastllmload._ext.events.delta cimport Classifier
from fastllmload._ext.events.sse cimport SseEvent
from fastllmload._ext.http.headlike cimport Wanted
from fastllmload._ext.receive.exchange cimport V_RAISED, Ended, Exchange, Verdict
from fastllmload._ext.receive.framing cimport Frame, FrameStep, Framing, Incoming
from fastllmload._ext.receive.http2 cimport Http2
from fastllmload._ext.receive.timeline cimport Timeline
from fastllmload._ext.receive.websocket cimport WebSocket
from fastllmload._ext.record.backends cimport Backends
from fastllmload._ext.record.errortexts cimport ErrorTexts
from fastllmload._ext.record.histogram cimport Hdr
from fastllmload._ext.record.recorder cimport Recorder

@cython.final
cdef class Protocol:
    # One per worker: parsers' configuration and every sink. Not thread-safe.
    cdef readonly Recorder recorder
    cdef readonly Classifier classifier
    cdef readonly ErrorTexts error_texts
    cdef readonly Backends backends     # None: answers are not asked which backend they are of
    cdef int token_at               # which of the wanted fields of heads has the token of a session; -1: none
    cdef bytes token_path           # where bodies have it: names of members from the outermost object on, each with a NUL
    cdef int token_depth            # how many names these are; 0: it is not in bodies
    cdef int backend_at             # and which the name of the backend
    cdef Timeline timeline
    cdef Framing framing
    cdef Http2 http2                # of connections that carry many exchanges
    cdef WebSocket websocket        # of connections that are upgraded
    cdef Ended ended                # what the transport has not handled yet
    cdef int64_t* words             # counters.pxd; borrowed from *shared*
    cdef object shared              # keeps the memory of *words* alive
    cdef Hdr e2e
    cdef size_t max_event           # bytes of one event, and of one SSE line
    cdef size_t max_body            # bytes of a non-streaming body
    cdef int64_t max_held           # bytes that all connections together hold of what is not complete
    cdef uint32_t reads             # running number of the read being fed

    # Bytes of one read: its stamp *t* (ns) and the stamp's class, *low*: none of them came earlier, and when user space had
    # them. Afterwards the caller settles timeline.unsettled.
    cdef Verdict feed(self, Incoming* n, const unsigned char* data, size_t size, int64_t t, int64_t low,
                      uint8_t stamp_class, int64_t user_t) except V_RAISED
    # The same for a connection of HTTP/2.
    cdef Verdict feed_streams(self, Incoming* n, const unsigned char* data, size_t size, int64_t t, int64_t low,
                              uint8_t stamp_class, int64_t user_t) except V_RAISED
    # Of a connection without a request, which is being upgraded.
    cdef Verdict feed_upgrade(self, Incoming* n, const unsigned char* data, size_t size) except V_RAISED
    cdef int eof(self, Incoming* n, int64_t t, int64_t user_t, int error_number) except -1
    cdef int fail(self, Exchange* x, uint8_t status, uint8_t error, int64_t t, int64_t user_t) except -1

    cdef Verdict _feed_messages(self, Incoming* n, const unsigned char* data, size_t size, int64_t t, int64_t low,
                                uint8_t stamp_class, int64_t user_t) except V_RAISED
    cdef Verdict _messages(self, Incoming* n, Cursor* c, int64_t t, int64_t user_t) except V_RAISED
    cdef Verdict _message(self, Incoming* n, Cursor* span, uint32_t offset, int64_t t, int64_t user_t) except V_RAISED
    cdef Verdict _upgraded(self, Incoming* n, Frame* frame, Cursor* c, int64_t t, int64_t user_t) except V_RAISED
    cdef int _step(self, Incoming* n, FrameStep step, Frame* frame, Cursor* c, int64_t t, int64_t user_t) except -1
    cdef int _cut(self, Exchange* x, bint complete, uint8_t error, int64_t t, int64_t user_t, int error_number) except -1
    cdef int _said(self, Exchange* x, Wanted* wanted) except -1
    cdef int _event(self, Exchange* x, SseEvent* event) except -1
    cdef int _find_token(self, Exchange* x, const unsigned char* data, size_t size) except -1
    cdef Verdict _head(self, Frame* frame, uint32_t head_end, int64_t t, int64_t user_t) except V_RAISED
    cdef Verdict _body(self, Exchange* x, Cursor* span, int64_t t, int64_t user_t) except V_RAISED
    cdef int _payload(self, Exchange* x, Cursor* span) except -1
    cdef int _last_line(self, Exchange* x) except -1
    cdef bint _streams(self, Exchange* x) noexcept
    cdef int _finish(self, Exchange* x, int64_t t, int64_t user_t, bint cut=*) except -1
    cdef int _call_failed(self, Exchange* x, uint8_t* status, uint8_t* error) except -1
    cdef int _end(self, Exchange* x, uint8_t status, uint8_t error, int64_t t, int64_t user_t) except -1
