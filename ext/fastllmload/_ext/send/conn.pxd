# A connection, the idle list of its target, and the list of what is in flight. Plain data: no socket call in here.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from fastllmload._ext.events.delta cimport Template
from fastllmload._ext.plan.talk cimport Talk
from fastllmload._ext.receive.exchange cimport Exchange
from fastllmload._ext.record.recorder cimport RequestRow
from fastllmload._ext.system.wire cimport Address, iovec

cdef enum:
    LINES = 128             # bytes of a request's own lines

cdef enum ConnState:
    C_FREE = 0
    C_CONNECTING = 1
    C_IDLE = 2              # in the pool of its target
    C_SENDING = 3           # a request is partly handed to the socket
    C_WAITING = 4           # request handed over, response not complete
    C_TAIL = 5              # the request has ended, the message framing has not; in the pool's list of such
    C_ENDED = 6             # the request has ended, what becomes of the connection is said next

cdef struct Conn:           # what every read touches comes first
    int fd                  # -1 for connections that asyncio owns
    uint32_t generation     # counts uses of this struct: events of an earlier connection are recognised by it
    uint8_t state           # ConnState
    uint8_t unread          # the last read left something unread that was there since *drained* at the earliest
    uint16_t target
    float read_rate         # the user reads no faster (leaving.pxd); 0: at once
    uint32_t leave_tokens   # the user leaves after that many events with content; 0: does not
    uint32_t reads          # that returned bytes
    int64_t drained         # when a read last left nothing behind; 0: never
    int64_t deadline
    Exchange x
    uint32_t number         # index in Pool.conns
    uint32_t extra          # segments that the kernel got beyond one for each of *reads*, when this was last known
    uint8_t extra_known
    uint8_t read_bytes      # *read_rate* is of bytes
    uint32_t served         # requests ended on this connection
    uint32_t local_port     # since its first request; 0: none
    uint32_t request        # request of the plan that it carries
    int32_t slot            # closed loop: the slot that the request fills; -1 otherwise
    Talk* talk              # the conversation that the request is a turn of, and that continues after it; NULL otherwise
    int64_t read_from       # slow reader: when the first bytes were there
    Conn* older             # in the in-flight list (by dispatch: also the order of deadlines) or its target's idle list
    Conn* younger
    iovec[3] pieces         # what is left to send: head, per-request lines, body
    int piece
    int lines_size
    char[LINES] lines       # X-Request-Id, Content-Length, end of head

cdef struct ConnList:           # intrusive, oldest first
    Conn* oldest                # borrowed
    Conn* youngest
    uint32_t count

cdef struct Head:
    char* text              # request head up to the per-request lines; owned
    size_t size
    uint8_t dialect         # of the answers: number in the classifier

cdef struct TargetState:
    Address address
    ConnList idle           # the longest idle is used next: a server that closes after an answer has been seen to by then
    uint32_t connecting     # pre-connects under way
    uint8_t over_asyncio    # connections are made by the event loop (TLS, or --transport asyncio)
    double weight           # its part of what is opened ahead, relative to those of the others
    int64_t retry_at        # no pre-connect before this instant: the last one failed

cdef enum:
    LINE = 64               # bytes that a processor fetches at once
    HOT_LINES = 4           # of a Conn: what every read touches (asserted in pool.pyx)
    TEMPLATE_LINES = 8      # most of a template that are fetched

cdef extern from * nogil:
    """
    /* The empty assembly keeps it: a function that does nothing else has no effect for the compiler, and its calls would go. */
    static inline void fll_fetch(const void *at) {
        __builtin_prefetch(at, 1);
        __asm__ volatile("" : : "r"(at));
    }
    #define FLL_READ_TOUCHES(c) __builtin_offsetof(__typeof__(*(c)), x.sse.line)
    """
    void fll_fetch(const void* at) noexcept
    size_t FLL_READ_TOUCHES(Conn* c) noexcept       # bytes from the beginning on

# What the kernel says with each event of a connection's socket: where the struct is, which takes 48 bits, and the end of its
# generation. An event is handled in the batch that it came with, so it is not older than a few uses.
cdef enum:
    PLACE_BITS = 48

cdef inline uint64_t conn_tag(const Conn* c) noexcept nogil:
    return <uint64_t>c.generation << PLACE_BITS | <uint64_t>c

cdef inline Conn* conn_placed(uint64_t tag) noexcept nogil:
    return <Conn*>(tag & ((<uint64_t>1 << PLACE_BITS) - 1))

# NULL when the event is of an earlier use.
cdef inline Conn* conn_tagged(uint64_t tag) noexcept nogil:
    cdef Conn* c = conn_placed(tag)
    return c if c.generation & 0xFFFF == tag >> PLACE_BITS else NULL

# With thousands of streams none of their memory is in a near cache when an event comes, and waiting for it would be most of
# what an event costs in user space. So it is asked for while something else is done, which changes nothing but the time: of
# the connections that come next in a batch the first line, and before a read the rest and what the first line points at.
cdef inline void conn_fetch(uint64_t tag) noexcept nogil:       # of a timer: nothing lies there, and nothing is fetched
    fll_fetch(conn_placed(tag))

cdef inline void conn_fetch_rest(Conn* c) noexcept nogil:
    cdef int i
    cdef Template* t = &c.x.template
    for i in range(1, HOT_LINES):
        fll_fetch(<char*>c + i * LINE)
    if c.x.row == NULL:
        return
    for i in range(<int>sizeof(RequestRow) // LINE):
        fll_fetch(<char*>c.x.row + i * LINE)
    for i in range(min((t.prefix + t.suffix + LINE - 1) // LINE, TEMPLATE_LINES)):
        fll_fetch(t.bytes + i * LINE)

cdef void list_add(ConnList* list, Conn* c) noexcept            # as the youngest
cdef void list_remove(ConnList* list, Conn* c) noexcept         # from wherever it is
