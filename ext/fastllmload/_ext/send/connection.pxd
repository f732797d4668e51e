# A connection and the requests that it carries, the idle list of its target, and the list of what is in flight. Plain data: no
# socket call in here.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from fastllmload._ext.plan.talk cimport Talk
from fastllmload._ext.receive.exchange cimport LINE, Exchange, exchange_fetch_far, fll_fetch
from fastllmload._ext.receive.framing cimport Incoming
from fastllmload._ext.system.wire cimport Address, iovec
from fastllmload._ext.tls.session cimport Tls, tls_unsent

cdef enum:
    LINES = 128             # bytes of a request's own lines
    FIELDS = 224            # the same of HTTP/2, with the opening of a message of gRPC
    PIECES = 3              # of a request: head, its own lines, body

cdef enum ConnectionState:
    C_FREE = 0
    C_CONNECTING = 1
    C_IDLE = 2              # in the pool of its target
    C_BUSY = 3              # it carries requests
    C_TAIL = 4              # the request has ended, the message framing has not; in the pool's list of such
    C_SECURING = 5          # connected; the TLS handshake has not ended
    C_UPGRADING = 6         # connected and secured; the upgrade to WebSocket has not been answered

cdef struct Link:           # of a connection or a stream
    Link* older             # borrowed, like all of these
    Link* younger
    void* item              # what it is a part of

cdef struct List:           # intrusive, oldest first
    Link* oldest
    Link* youngest
    uint32_t count

# One request in flight and its response, from its release to its end.
cdef struct RequestStream:  # what every read touches comes first
    Exchange x              # the first field: an Exchange that has ended is found to be that of its stream
    Connection* connection
    int64_t deadline
    uint32_t leave_tokens   # the user leaves after that many events with content; 0: does not
    uint32_t request        # of the plan
    uint8_t many            # it is the *s* of a StreamOfMany
    int32_t slot            # closed loop: the slot that the request fills; -1 otherwise
    Talk* talk              # the conversation that the request is a turn of, and that continues after it; NULL otherwise
    unsigned char* own      # its lines, where they differ by session; owned, NULL: in *lines*
    size_t own_cap
    Link link               # in the in-flight list (by dispatch: also the order of deadlines)

cdef struct StreamOfMany:   # on a connection of HTTP/2; lives in the pool's memory
    RequestStream s         # the first field
    Link place              # among those of its connection whose request is not written whole, or not sent whole
    List* places            # which of the two lists; NULL: none
    uint64_t end            # sent whole: it is sent when that many bytes of the connection are
    iovec[PIECES] pieces    # head, own lines and body, which alone may be written in parts
    iovec opening           # of gRPC: the body's first bytes, in *lines*
    char[FIELDS] lines
    uint8_t headed          # the head is written
    uint8_t waited          # the server's window has held up the body

cdef inline StreamOfMany* of_many(RequestStream* s) noexcept nogil:
    return <StreamOfMany*>s

cdef struct Connection:     # what every read touches comes first
    int fd                  # -1 for connections that asyncio owns
    uint32_t generation     # counts uses of this struct: events of an earlier connection are recognised by it
    uint8_t state           # ConnectionState
    uint8_t unread          # the last read left something unread that was there since *drained* at the earliest
    uint16_t target
    float read_rate         # the user reads no faster (leaving.pxd); 0: at once
    uint32_t reads          # that returned bytes
    int64_t drained         # when a read last left nothing unread; 0: never
    Tls* tls                # owned; NULL: plain
    Incoming n
    RequestStream stream    # the one of HTTP/1.1, next to what each read of it touches
    uint32_t number         # index in Pool.connections
    uint32_t extra          # segments that the kernel got beyond one for each of *reads*, when this was last known
    uint8_t extra_known
    uint8_t read_bytes      # *read_rate* is of bytes
    uint8_t ahead           # it was opened for no request yet
    uint32_t served         # requests ended on this connection
    uint32_t local_port     # since its first request; 0: none
    int64_t secured_from    # when the handshake began: the socket was connected
    int64_t upgraded_from   # WebSocket: when the upgrade was asked for
    uint32_t tls_us         # how long it took; 0: it has not ended
    uint32_t sealed         # HTTP/2: bytes of frames that the records to be sent hold
    int64_t read_from       # slow reader: when the first bytes were there
    int64_t tail_until      # C_TAIL: then it is closed
    Link link               # in the idle list of its target, or the pool's list of tails
    iovec[PIECES] pieces    # what is left to send
    int piece               # PIECES: nothing
    char[LINES] lines       # X-Fastllmload-Request, Content-Length, end of head
    # HTTP/2
    List unwritten          # streams by their release: requests that are not written whole
    List unsent             # that are written, and not sent whole
    uint8_t connected       # the socket is; C_CONNECTING until the server's SETTINGS have come
    uint8_t quiet           # it carries no request. Its state is C_BUSY all the same, and its *piece* 0: it may have frames to send
    uint8_t listed          # it is in the idle list of its target, which has room for a stream on it

cdef struct Head:
    char* text              # request head up to the per-request lines; owned
    size_t size
    uint8_t dialect         # of the answers: number in the classifier
    uint8_t id_tag          # gRPC: tag of the field with the request's id; 0: bodies are not messages

cdef struct TargetState:
    Address address
    List idle               # the longest idle is used next: a server that closes after an answer has been seen to by then
    uint32_t connecting     # pre-connects under way
    uint8_t http2
    uint32_t streams        # HTTP/2: most on a connection
    char* upgrade           # WebSocket: what its connections begin with; owned, NULL: none
    size_t upgrade_size
    uint8_t over_asyncio    # connections are made by the event loop (--transport asyncio)
    uint8_t tls
    char* name              # of the server, as its certificate has it; owned
    uint8_t name_is_address
    void* session           # of TLS, that the next handshake continues; owned, NULL: none
    double weight           # its part of what is opened ahead, relative to those of the others
    int64_t retry_at        # no pre-connect before this instant: the last one failed

cdef enum:
    HOT_LINES = 5           # of a Connection: what every read touches (asserted in pool.pyx)

cdef extern from * nogil:
    """
    #define FLL_READ_TOUCHES(c) __builtin_offsetof(__typeof__(*(c)), stream.x.sse.line)
    """
    size_t FLL_READ_TOUCHES(Connection* c) noexcept     # bytes from the beginning on

# What the kernel says with each event of a connection's socket: where the struct is, which takes 48 bits, and the end of its
# generation. An event is handled in the batch that it came with, so it is not older than a few uses.
cdef enum:
    PLACE_BITS = 48

cdef inline uint64_t connection_tag(const Connection* c) noexcept nogil:
    return <uint64_t>c.generation << PLACE_BITS | <uint64_t>c

cdef inline Connection* connection_placed(uint64_t tag) noexcept nogil:
    return <Connection*>(tag & ((<uint64_t>1 << PLACE_BITS) - 1))

# NULL when the event is of an earlier use.
cdef inline Connection* connection_tagged(uint64_t tag) noexcept nogil:
    cdef Connection* c = connection_placed(tag)
    return c if c.generation & 0xFFFF == tag >> PLACE_BITS else NULL

# As exchange_fetch: of the connections that come next in a batch two lines, and before a read the rest and what these point at.
cdef inline void connection_fetch(uint64_t tag) noexcept nogil:       # of a timer: nothing lies there, and nothing is fetched
    fll_fetch(connection_placed(tag))
    fll_fetch(&connection_placed(tag).stream.x.row)

cdef inline void connection_fetch_rest(Connection* c) noexcept nogil:
    cdef int i
    for i in range(1, HOT_LINES):
        fll_fetch(<char*>c + i * LINE)
    exchange_fetch_far(&c.stream.x)

# The socket has all of the request.
cdef inline bint sent_whole(const Connection* c) noexcept nogil:
    return c.piece == PIECES and (c.tls == NULL or tls_unsent(c.tls) == 0)

cdef void list_add(List* list, Link* link) noexcept         # as the youngest
cdef void list_remove(List* list, Link* link) noexcept      # from wherever it is
