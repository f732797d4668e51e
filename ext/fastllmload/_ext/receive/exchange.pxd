# One request and its response while it lasts: the data that transport, protocol and timeline share. Sans-IO.
from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t

from fastllmload._ext.events.calls cimport Calls
from fastllmload._ext.events.delta cimport Template
from fastllmload._ext.events.ndjson cimport Ndjson
from fastllmload._ext.events.sse cimport Arrival, Sse
from fastllmload._ext.http.response cimport Body
from fastllmload._ext.record.recorder cimport RequestRow

cdef enum ExchangeState:
    X_IDLE = 0              # nothing expected: any byte from the peer is an error
    X_HEAD = 1              # waiting for, or inside, the response head
    X_BODY = 2
    X_TAIL = 3              # the request has ended ([DONE]); the message framing has not

cdef enum Verdict:          # what the transport does next
    V_MORE = 0              # read on
    V_REUSE = 1             # response complete, connection may serve the next request
    V_CLOSE = 2             # close it

cdef struct Exchange:       # what every read touches comes first
    RequestRow* row         # NULL unless a request is open; lives in the recorder's memory
    Template template
    Arrival now             # of the latest read; its *t* is 0 before the first one of the response
    uint32_t number         # row number in the worker's requests file
    uint32_t event_read     # number of the read that delivered the latest event
    uint8_t state           # ExchangeState
    uint8_t content         # ContentKind of the response
    uint8_t keep_alive
    uint8_t bad_events      # events that were no events, saturating
    uint8_t error_events
    uint8_t refusals
    uint8_t reused          # the connection served a request before
    uint8_t dialect         # number in the classifier
    uint8_t keep            # a later turn of the conversation carries the answer's text
    uint8_t counted         # an event said its cumulative completion_tokens
    uint8_t uncounted       # an event with text did not: later growth is not that of one event
    int32_t completion      # completion_tokens that the events up to now account for
    Body body
    Sse sse
    Ndjson ndjson
    unsigned char* reply    # text of the answer, escaped as it came, while *keep*; owned
    size_t reply_size
    size_t reply_cap
    Calls* calls            # tool calls of the answer, while *keep*; owned, NULL until there was one
    unsigned char* held     # partial head, or a non-streaming body; owned
    size_t held_size
    size_t held_cap

cdef void exchange_init(Exchange* x, size_t max_event) noexcept nogil
cdef void exchange_free(Exchange* x) noexcept nogil
cdef void exchange_open(Exchange* x) noexcept nogil         # for the next request; the caller has set its row
# What it holds beyond small buffers, and give that back: nothing of a request that has ended is needed but its reply.
cdef size_t exchange_held(Exchange* x) noexcept nogil
cdef void exchange_give_back(Exchange* x) noexcept nogil
# Keep bytes of a partial head or of a body until the rest is there, or text of the answer for a later turn. Callers bound
# the size. MemoryError when there is none.
cdef int exchange_hold(Exchange* x, const unsigned char* data, size_t size) except -1
cdef int exchange_reply(Exchange* x, const unsigned char* text, size_t size) except -1

# A final status whose body can be the answer. 206 is none: it gives a part of one, and only to who asked for a range
# (RFC 9110 15.3.7), which no request does.
cdef inline bint answers(uint16_t http_status) noexcept nogil:
    return http_status < 300 and http_status != 206
