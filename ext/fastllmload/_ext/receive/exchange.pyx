"""One request and its response: begin, keep what is not complete, end.

An Exchange outlives its requests: small buffers stay for the next one, those above 64 KiB are given back when the request ends.
"""

from libc.string cimport memset

from fastllmload._ext.bytes.carry cimport CARRY_KEEP, carry_add, carry_free, carry_reset
from fastllmload._ext.events.calls cimport calls_clear, calls_free
from fastllmload._ext.events.delta cimport template_free, template_held, template_reset
from fastllmload._ext.events.grpc cimport grpc_free, grpc_init, grpc_reset
from fastllmload._ext.events.ndjson cimport ndjson_free, ndjson_init, ndjson_reset
from fastllmload._ext.events.sse cimport sse_free, sse_init, sse_reset
from fastllmload._ext.system.life cimport LIFE_REQUEST, life_begins


cdef void ended_add(Ended* list, Exchange* x) noexcept nogil:
    x.next = NULL
    if list.first == NULL:
        list.first = x
    else:
        list.last.next = x
    list.last = x


cdef Exchange* ended_take(Ended* list) noexcept nogil:
    cdef Exchange* x = list.first
    if x != NULL:
        list.first = x.next
    return x


cdef void exchange_init(Exchange* x, Arrival* now, size_t max_event) noexcept nogil:
    memset(x, 0, sizeof(Exchange))
    sse_init(&x.sse, max_event)
    ndjson_init(&x.ndjson, max_event)
    grpc_init(&x.grpc, max_event)
    exchange_on(x, now)


cdef void exchange_on(Exchange* x, Arrival* now) noexcept nogil:
    x.now = x.sse.now = x.ndjson.now = x.grpc.now = now


cdef void exchange_free(Exchange* x) noexcept nogil:
    sse_free(&x.sse)
    ndjson_free(&x.ndjson)
    grpc_free(&x.grpc)
    template_free(&x.template)
    carry_free(&x.held, &x.held_size, &x.held_cap)
    carry_free(&x.reply, &x.reply_size, &x.reply_cap)
    carry_free(&x.token, &x.token_size, &x.token_cap)
    calls_free(x.calls)


cdef void exchange_open(Exchange* x) noexcept nogil:
    life_begins(LIFE_REQUEST)
    x.content = 0
    x.grpc_status = -1
    x.bad_events = 0
    x.error_events = 0
    x.refusals = 0
    x.keep = 0
    x.counted = x.uncounted = 0
    x.completion = 0
    x.event_read = 0
    carry_reset(&x.held, &x.held_size, &x.held_cap)
    carry_reset(&x.reply, &x.reply_size, &x.reply_cap)
    carry_reset(&x.token, &x.token_size, &x.token_cap)
    if x.calls != NULL:
        calls_clear(x.calls)
    template_reset(&x.template)


cdef inline size_t large(size_t cap) noexcept nogil:
    return cap if cap > CARRY_KEEP else 0


cdef size_t exchange_held(Exchange* x) noexcept nogil:
    return (large(x.held_cap) + large(x.reply_cap) + large(x.sse.line_cap) + large(x.sse.data_cap) + large(x.sse.name_cap)
            + large(x.ndjson.line_cap) + large(x.grpc.held_cap) + template_held(&x.template))


cdef void exchange_give_back(Exchange* x) noexcept nogil:
    carry_reset(&x.held, &x.held_size, &x.held_cap)
    if large(x.sse.line_cap) or large(x.sse.data_cap) or large(x.sse.name_cap):
        sse_reset(&x.sse)
    if large(x.ndjson.line_cap):
        ndjson_reset(&x.ndjson)
    if template_held(&x.template):
        template_reset(&x.template)
    if large(x.grpc.held_cap):
        grpc_reset(&x.grpc)


cdef int exchange_hold(Exchange* x, const unsigned char* data, size_t size) except -1:
    if carry_add(&x.held, &x.held_size, &x.held_cap, data, size) < 0:
        raise MemoryError(f"{x.held_size + size} bytes for a response")
    return 0


cdef int exchange_token(Exchange* x, const unsigned char* text, size_t size) except -1:
    carry_reset(&x.token, &x.token_size, &x.token_cap)
    if carry_add(&x.token, &x.token_size, &x.token_cap, text, size) < 0:
        raise MemoryError(f"{size} bytes for the token of a session")
    return 0


cdef int exchange_reply(Exchange* x, const unsigned char* text, size_t size) except -1:
    if carry_add(&x.reply, &x.reply_size, &x.reply_cap, text, size) < 0:
        raise MemoryError(f"{x.reply_size + size} bytes for a reply")
    return 0
