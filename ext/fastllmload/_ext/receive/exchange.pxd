# One request and its response while it lasts: the data that framing, protocol and timeline share. Sans-IO.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t

cimport fastllmload._ext.record.recorder as r
from fastllmload._ext.events.calls cimport Calls
from fastllmload._ext.events.delta cimport Template
from fastllmload._ext.events.grpc cimport Grpc
from fastllmload._ext.events.ndjson cimport Ndjson
from fastllmload._ext.events.sse cimport Arrival, Sse
from fastllmload._ext.record.recorder cimport RequestRow

cdef enum Verdict:          # what the transport does next
    V_RAISED = -1           # an exception
    V_MORE = 0              # read on
    V_REUSE = 1             # response complete, connection may serve the next request
    V_CLOSE = 2             # close it
    V_REPLY = 3             # WebSocket: send what answers its control frames, and read on

cdef struct End:            # what a request came to
    uint8_t status          # Status
    uint8_t error           # ErrorClass
    int64_t t               # row.t_end
    int64_t user_t          # row.t_end_user

# Its user left: it is neither ok nor a failure.
cdef inline bint left_by_user(const End* end) noexcept nogil:
    return end.error == r.ERROR_CLIENT_CANCELLED or end.error == r.ERROR_CLIENT_ABANDONED

cdef struct Exchange:       # what every read touches comes first
    RequestRow* row         # NULL unless a request is open; lives in the recorder's memory
    Template template
    Arrival* now            # of the connection's latest read; borrowed
    uint32_t number         # row number in the worker's requests file
    uint32_t event_read     # number of the read that delivered the latest event
    uint32_t read           # HTTP/2: number of the latest read that brought bytes of it
    uint8_t content         # ContentKind of the response
    uint8_t bad_events      # events that were no events, saturating
    uint8_t error_events
    uint8_t refusals
    uint8_t reused          # the connection served a request before
    uint8_t dialect         # number in the classifier
    uint8_t keep            # a later turn of the conversation carries the answer's text
    uint8_t counted         # an event said its cumulative completion_tokens
    uint8_t uncounted       # an event with text did not: later growth is not that of one event
    int32_t completion      # completion_tokens that the events up to now account for
    Sse sse
    Ndjson ndjson
    Grpc grpc
    int grpc_status         # of its trailers; -1: not said
    unsigned char* reply    # text of the answer, escaped as it came, while *keep*; owned
    size_t reply_size
    size_t reply_cap
    Calls* calls            # tool calls, thoughts and id of the answer, while *keep*; owned, NULL until there was one
    unsigned char* held     # a non-streaming body, or the last words of a stream; owned
    size_t held_size
    size_t held_cap
    unsigned char* token    # what the head said of the session's token; owned
    size_t token_size       # 0: nothing
    size_t token_cap
    End end
    uint32_t stream         # HTTP/2: its number on the connection
    Exchange* next          # that ended after this one and was not handled yet either; borrowed

cdef enum:
    LINE = 64               # bytes that a processor fetches at once
    TEMPLATE_LINES = 8      # most of a template that are fetched

cdef extern from * nogil:
    """
    /* The empty assembly keeps it: a function that does nothing else has no effect for the compiler, and its calls would go. */
    static inline void fll_fetch(const void *at) {
        __builtin_prefetch(at, 1);
        __asm__ volatile("" : : "r"(at));
    }
    #define FLL_EVENT_TOUCHES(x) __builtin_offsetof(__typeof__(*(x)), sse.line)
    """
    void fll_fetch(const void* at) noexcept
    size_t FLL_EVENT_TOUCHES(const Exchange* x) noexcept        # bytes from the beginning on

# With thousands of streams none of their memory is in a near cache when an event comes, and waiting for it would be most of
# what an event costs in user space. So it is asked for at once while something else is done, which changes nothing but the time.
# What an exchange points at:
cdef inline void exchange_fetch_far(const Exchange* x) noexcept nogil:
    cdef int i
    if x.row == NULL:
        return
    for i in range(<int>sizeof(RequestRow) // LINE):
        fll_fetch(<char*>x.row + i * LINE)
    for i in range(min((x.template.prefix + x.template.suffix + LINE - 1) // LINE, TEMPLATE_LINES)):
        fll_fetch(x.template.bytes + i * LINE)

# And itself, of those that share a connection:
cdef inline void exchange_fetch(const Exchange* x) noexcept nogil:
    cdef size_t i
    for i in range((FLL_EVENT_TOUCHES(x) + LINE - 1) // LINE):
        fll_fetch(<char*>x + i * LINE)
    fll_fetch(&x.grpc)
    exchange_fetch_far(x)

cdef struct Ended:          # exchanges that have ended and were not handled yet: the oldest and the latest of them, borrowed
    Exchange* first
    Exchange* last

cdef void ended_add(Ended* list, Exchange* x) noexcept nogil
cdef Exchange* ended_take(Ended* list) noexcept nogil           # the oldest; NULL: there is none

cdef void exchange_init(Exchange* x, Arrival* now, size_t max_event) noexcept nogil
cdef void exchange_on(Exchange* x, Arrival* now) noexcept nogil             # another connection carries it from now on
cdef void exchange_free(Exchange* x) noexcept nogil
cdef void exchange_open(Exchange* x) noexcept nogil         # for the next request; the caller has set its row
# What it holds beyond small buffers, and give that back: nothing of a request that has ended is needed but its reply.
cdef size_t exchange_held(Exchange* x) noexcept nogil
cdef void exchange_give_back(Exchange* x) noexcept nogil
# Keep bytes of a body until the rest is there, or text of the answer for a later turn. Callers bound the size. MemoryError
# when there is none.
cdef int exchange_hold(Exchange* x, const unsigned char* data, size_t size) except -1
cdef int exchange_token(Exchange* x, const unsigned char* text, size_t size) except -1       # the answer has this one
cdef int exchange_reply(Exchange* x, const unsigned char* text, size_t size) except -1

# A final status whose body can be the answer. 206 is none: it gives a part of one, and only to who asked for a range
# (RFC 9110 15.3.7), which no request does.
cdef inline bint answers(uint16_t http_status) noexcept nogil:
    return http_status < 300 and http_status != 206
