# One request and its response, sans-IO: the transport opens it, feeds what it read, and is told what to do with the
# connection. Rows, stamps, live histograms and counters are written here and nowhere else.
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from fastllmload._ext.cursor cimport Cursor
from fastllmload._ext.delta cimport Classifier, Meaning, Template
from fastllmload._ext.histogram cimport Hdr
from fastllmload._ext.http1 cimport Body, HeadReader
from fastllmload._ext.ndjson cimport Ndjson
from fastllmload._ext.recorder cimport Chunk, Recorder, RequestRow
from fastllmload._ext.sse cimport Sse, SseEvent

cdef enum ExchangeState:
    X_IDLE = 0              # nothing expected: any byte from the peer is an error
    X_HEAD = 1              # waiting for, or inside, the response head
    X_BODY = 2
    X_TAIL = 3              # the request has ended ([DONE]); the message framing has not

cdef enum Verdict:          # what the transport does next
    V_MORE = 0              # read on
    V_REUSE = 1             # response complete, connection may serve the next request
    V_CLOSE = 2             # close it

cdef struct Exchange:
    RequestRow* row         # NULL unless a request is open; lives in the recorder's window
    Chunk* chunk            # that window
    uint32_t number         # row number in the worker's requests file
    uint8_t state           # ExchangeState
    uint8_t content         # ContentKind of the response
    uint8_t keep_alive
    uint8_t bad_events      # events that were no events, saturating
    uint8_t error_events
    uint8_t refusals
    uint8_t reused          # the connection served a request before
    Body body
    Sse sse
    Ndjson ndjson
    Template template
    unsigned char* reply    # text of the answer, escaped as it came, while *keep*; owned
    size_t reply_size
    size_t reply_cap
    uint8_t keep            # a later turn of the conversation carries it
    unsigned char* held     # partial head, or a non-streaming body; owned
    size_t held_size
    size_t held_cap
    int64_t read_t          # stamp of the latest read
    int64_t floor_t         # stamp of the read before it: lower bound of coalesced events
    uint32_t event_read     # number of the read that delivered the latest event
    uint8_t read_class      # StampClass of the latest read

cdef class Protocol:
    # One per worker: parsers' configuration and every sink. Not thread-safe.
    cdef readonly Recorder recorder
    cdef readonly Classifier classifier
    cdef HeadReader head
    cdef int64_t* words             # counters.pxd; borrowed from *shared*
    cdef object shared              # keeps the memory behind *words* alive
    cdef Hdr ttft, itl, e2e
    cdef size_t max_event           # bytes of one event, and of one SSE line
    cdef size_t max_body            # bytes of a non-streaming body
    cdef uint32_t reads             # running number of the read being fed
    cdef bint last_ok               # status of the request that ended last
    cdef bint last_left             # its user left: neither ok nor a failure
    cdef int64_t last_t             # its t_end

    cdef int open(self, Exchange* x) except -1                  # row is set by the caller; parsers are made ready
    cdef Verdict feed(self, Exchange* x, const unsigned char* data, size_t size, int64_t t, uint8_t stamp_class,
                      int64_t user_t) except *
    cdef Verdict eof(self, Exchange* x, int64_t t, int64_t user_t, int error_number) except *
    cdef int fail(self, Exchange* x, uint8_t status, uint8_t error, int64_t t, int64_t user_t) except -1

    cdef Verdict _head(self, Exchange* x, Cursor* c, int64_t t, int64_t user_t) except *
    cdef Verdict _response(self, Exchange* x, int64_t t, int64_t user_t) except *
    cdef Verdict _body(self, Exchange* x, Cursor* c, int64_t t, int64_t user_t) except *
    cdef int _payload(self, Exchange* x, Cursor* span, int64_t user_t, Pending* p) except -1
    cdef int _event(self, Exchange* x, SseEvent* event, int64_t user_t, Pending* p) except -1
    cdef int _ollama_done(self, RequestRow* row, Meaning* m) noexcept
    cdef int _last_line(self, Exchange* x, int64_t user_t) except -1
    cdef int _usage(self, RequestRow* row, Meaning* m) noexcept
    cdef int _timed(self, Exchange* x, Meaning* m, int64_t t, uint8_t kind) except -1
    cdef int _flush(self, Exchange* x, Pending* p, bint coalesced) except -1
    cdef int _whole(self, Exchange* x, int64_t t, int64_t user_t) except -1
    cdef bint _streams(self, Exchange* x) noexcept
    cdef int _end(self, Exchange* x, uint8_t status, uint8_t error, int64_t t, int64_t user_t) except -1
    cdef int _finish(self, Exchange* x, int64_t t, int64_t user_t) except -1
    cdef int _hold(self, Exchange* x, const unsigned char* data, size_t size) except -1
    cdef int _keep(self, Exchange* x, const unsigned char* text, size_t size) except -1

cdef struct Pending:        # the latest event of the read being fed: its class is known when the next one comes, or none
    int64_t t
    uint32_t row
    uint32_t read
    uint8_t kind
    uint8_t follows         # same read as the request's previous event
    uint8_t full
    uint8_t first           # it set t_first

cdef void exchange_init(Exchange* x, size_t max_event) noexcept nogil
cdef void exchange_free(Exchange* x) noexcept nogil
