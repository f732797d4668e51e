"""The connections of a worker.

A connection goes C_CONNECTING -> C_IDLE -> C_BUSY -> C_IDLE. Sockets are registered once, edge-triggered
for both directions. Idle ones stay registered, so one that the server closes is dropped before it is used; the one that is
idle longest is used next. With TLS there is C_SECURING after C_CONNECTING, with
WebSocket C_UPGRADING after both. Connections that the event loop owns run through the
same states; only the verbs connect, send and close differ.

A message that has not ended at the end of its request ([DONE]) has TAIL_NS for that: a server that keeps it open
would otherwise cost a connection for each request.

A Connection struct is never freed while the worker runs: `generation` counts its uses, and code that keeps a connection for later
(an event of the kernel, an instant, a LoopConnection) notes the generation with it.
"""

from libc.errno cimport EADDRNOTAVAIL, ECONNREFUSED, EMFILE, ENFILE, ETIMEDOUT, errno
from libc.math cimport ceil
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset, strdup

cimport fastllmload._ext.record.counters as k
cimport fastllmload._ext.record.recorder as r
from fastllmload._ext.events.delta cimport TEMPLATE_LONGEST
from fastllmload._ext.plan.talk cimport talk_free
from fastllmload._ext.receive.exchange cimport LINE, exchange_free, exchange_init, exchange_on
from fastllmload._ext.receive.framing cimport IN_IDLE, IN_MESSAGES, incoming_free
from fastllmload._ext.receive.http2 cimport http2_begin
from fastllmload._ext.receive.messages cimport CLOSE_NORMAL, put_close, socket_new
from fastllmload._ext.receive.multiplex cimport CODE_NO_ERROR, carries, has_room, put_goaway
from fastllmload._ext.send.connection cimport (
    C_CONNECTING, C_FREE, C_IDLE, C_SECURING, C_TAIL, C_UPGRADING, FLL_READ_TOUCHES, HOT_LINES, PIECES, Link, StreamOfMany,
    connection_placed, connection_tag, list_add, list_remove, of_many,
)
from fastllmload._ext.system.clock cimport mono_ns
from fastllmload._ext.system.life cimport LIFE_CONNECTION, life_begins, life_ends
from fastllmload._ext.system.static_assert cimport FLL_STATIC_ASSERT
from fastllmload._ext.system.wire cimport (
    EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLLET, EPOLLIN, EPOLLOUT, EPOLLRDHUP, address_of, epoll_ctl, epoll_event, iovec,
    wire_close, wire_connect, wire_send,
)
from fastllmload._ext.tls.session cimport TLS_OPEN, is_address, tls_end, tls_forget, tls_free, tls_sent, tls_unsent, tls_write

cdef extern from "<sys/mman.h>" nogil:
    int PROT_READ, PROT_WRITE, MAP_PRIVATE, MAP_ANONYMOUS
    void* MAP_FAILED
    int MADV_HUGEPAGE, MADV_NOHUGEPAGE
    void* mmap(void* at, size_t size, int protection, int flags, int fd, long long offset)
    int munmap(void* at, size_t size)
    int madvise(void* at, size_t size, int advice)

cdef enum:
    TAIL_NS = 1_000_000_000     # from the end of a request to that of its message
    BLOCK = 1 << 21             # bytes of memory for connections that are taken at once: a huge page, so that finding the memory
                                # of any of a thousand takes the processor one step and not one each
    RETRY_NS = 100_000_000      # pause of a target's pre-connects after one that failed
    HANDSHAKES = 64             # pre-connects of a target with TLS that are under way at once: each costs both sides a millisecond
    SLOW_BUFFER = 4096          # bytes that the kernel may hold for a slow reader


cdef void** new_block(bint huge) noexcept:
    """BLOCK bytes at a multiple of it; *huge*: in a huge page where the kernel has one. NULL when there is no memory."""
    cdef uint8_t* at = <uint8_t*>mmap(NULL, 2 * BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
    cdef uint8_t* block = <uint8_t*>((<uint64_t>at + BLOCK - 1) // BLOCK * BLOCK)
    if at == MAP_FAILED:
        return NULL
    if block > at:
        munmap(at, block - at)
    munmap(block + BLOCK, at + BLOCK - block)
    madvise(block, BLOCK, MADV_HUGEPAGE if huge else MADV_NOHUGEPAGE)
    block[0] = 0                                            # faults in the huge page, or the first of many pages
    madvise(block, BLOCK, MADV_NOHUGEPAGE)                  # else the kernel may join them later, and a run waits for that
    return <void**>block


cdef class Pool:
    """*shared*: the worker's shared memory, which must outlive the object. *sources*: (family, address) to connect from."""

    def __cinit__(self):
        self.spare = []
        self.loop_connections = {}

    def __init__(self, int epfd, int64_t[::1] shared not None, size_t max_event, bint stamps, bint fresh, sources):
        self.epfd = epfd
        self.words = &shared[0]
        self.max_event = max_event
        self.stamps = stamps
        self.fresh = fresh
        self.sources = <Address*>calloc(max(1, len(sources)), sizeof(Address))
        if self.sources == NULL:
            raise MemoryError("source addresses")
        for family, text in sources:
            address_of(&self.sources[self.source_count], family, text, 0)
            self.source_count += 1

    def __dealloc__(self):
        cdef uint32_t i
        cdef void** before
        cdef StreamOfMany* of_many_free
        cdef Connection* c
        for i in range(self.connection_count):
            c = self.connections[i]
            if c.fd >= 0:
                wire_close(c.fd, False)
            c.stream.x.template.bytes = NULL                # it lies next to the connection
            tls_free(c.tls)
            exchange_free(&c.stream.x)
            free(c.stream.own)
            incoming_free(&c.n)
            if c.stream.talk != NULL:
                talk_free(c.stream.talk)
        while self.streams.oldest != NULL:
            of_many_free = <StreamOfMany*>self.streams.oldest.item
            list_remove(&self.streams, self.streams.oldest)
            of_many_free.s.x.template.bytes = NULL          # it lies next to the stream
            exchange_free(&of_many_free.s.x)
            free(of_many_free.s.own)
        while self.block != NULL:
            before = <void**>self.block[0]
            munmap(self.block, BLOCK)
            self.block = before
        for i in range(<uint32_t>self.target_count):
            tls_forget(&self.targets[i].session)
            free(self.targets[i].name)
            free(self.targets[i].upgrade)
        free(self.connections)
        free(self.targets)
        free(self.sources)

    cdef int add_target(self, str family, address, int port, bint over_asyncio, double weight, bytes name) except -1:
        cdef TargetState* grown = <TargetState*>realloc(self.targets, (self.target_count + 1) * sizeof(TargetState))
        if grown == NULL:
            raise MemoryError("targets")
        self.targets = grown
        cdef TargetState* t = &self.targets[self.target_count]
        memset(t, 0, sizeof(TargetState))
        address_of(&t.address, family, address, port)
        t.over_asyncio = over_asyncio
        t.weight = weight
        if name is not None:
            t.tls = True
            t.name_is_address = is_address(name.decode())
            t.name = strdup(name)
            if t.name == NULL:
                raise MemoryError("targets")
        self.weights += weight
        self.foreign = self.foreign or over_asyncio
        self.target_count += 1
        return 0

    cdef Connection* make(self, uint16_t target) except NULL:
        cdef Connection* c = NULL
        cdef Connection** grown
        FLL_STATIC_ASSERT(FLL_READ_TOUCHES(c) <= HOT_LINES * LINE)
        if self.spare:
            c = self.connections[<uint32_t>self.spare.pop()]
        else:
            if self.connection_count == self.connection_cap:
                grown = <Connection**>realloc(self.connections, (self.connection_cap * 2 + 256) * sizeof(Connection*))
                if grown == NULL:
                    raise MemoryError("connections")
                self.connections = grown
                self.connection_cap = self.connection_cap * 2 + 256
            c = self._new()
            c.number = self.connection_count
            self.connections[self.connection_count] = c
            self.connection_count += 1
        life_begins(LIFE_CONNECTION)
        c.fd = -1
        c.generation += 1
        c.state = C_FREE
        c.target = target
        c.served = 0
        c.ahead = False
        c.piece = PIECES
        c.read_rate = 0
        c.reads = c.extra = 0
        c.extra_known = 1
        c.drained = 0
        c.unread = 0
        c.n.state = IN_IDLE
        memset(&c.n.now, 0, sizeof(c.n.now))
        if self.targets[target].http2:
            c.connected = False
            c.piece = 0
            http2_begin(&c.n)
        elif self.targets[target].upgrade != NULL:
            c.n.socket = socket_new()
        return c

    cdef uint8_t* _memory(self, size_t* size) except NULL:
        """*size* bytes of zeros, in lines of their own, then room for the template of a stream's events."""
        cdef size_t own = (size[0] + LINE - 1) // LINE * LINE
        cdef size_t all_of = own + (TEMPLATE_LONGEST + LINE - 1) // LINE * LINE
        cdef void** block
        cdef uint8_t* at
        if self.room_left < all_of:
            block = new_block(self.words[k.W_STATE] != k.RUNNING)   # the kernel may take long to find a huge page
            if block == NULL:
                raise MemoryError("connections")
            block[0] = self.block
            self.block = block
            self.room = <uint8_t*>block + LINE
            self.room_left = BLOCK - LINE
            if connection_placed(<uint64_t>self.room + self.room_left) != <Connection*>(self.room + self.room_left):
                self.room_left = 0
                raise MemoryError("connections: addresses of this machine do not fit into 48 bits")
        at = self.room
        memset(at, 0, all_of)                               # its pages are there from now on
        self.room += all_of
        self.room_left -= all_of
        size[0] = own
        return at

    cdef Connection* _new(self) except NULL:
        cdef size_t size = sizeof(Connection)
        cdef Connection* c = <Connection*>self._memory(&size)
        exchange_init(&c.stream.x, &c.n.now, self.max_event)
        c.stream.x.template.bytes = <uint8_t*>c + size
        c.stream.connection = c
        c.stream.link.item = &c.stream
        c.link.item = c
        return c

    cdef StreamOfMany* _new_of_many(self) except NULL:
        cdef size_t size = sizeof(StreamOfMany)
        cdef StreamOfMany* one = <StreamOfMany*>self._memory(&size)
        exchange_init(&one.s.x, NULL, self.max_event)
        one.s.x.template.bytes = <uint8_t*>one + size
        one.s.many = True
        one.s.link.item = one.place.item = one
        return one

    cdef RequestStream* reuse(self, uint16_t target) except? NULL:
        cdef Link* oldest = self.targets[target].idle.oldest
        if oldest == NULL:
            return NULL
        if self.targets[target].http2:
            return self.stream_on(<Connection*>oldest.item)
        self.words[k.W_IDLE] -= 1
        list_remove(&self.targets[target].idle, oldest)
        return &(<Connection*>oldest.item).stream

    cdef RequestStream* begin(self, uint16_t target) except NULL:
        cdef Connection* c = self.make(target)
        return self.stream_on(c) if self.targets[target].http2 else &c.stream

    cdef int use_websocket(self, uint16_t target, bytes upgrade) except -1:
        cdef TargetState* t = &self.targets[target]
        t.upgrade_size = <size_t>len(upgrade)
        t.upgrade = strdup(upgrade)
        if t.upgrade == NULL:
            raise MemoryError("targets")
        return 0

    # -- HTTP/2 -------------------------------------------------------------------------------------------------------

    cdef int use_http2(self, uint16_t target, uint32_t streams) except -1:
        self.targets[target].http2 = True
        self.targets[target].streams = 1 if self.fresh else streams
        return 0

    cdef RequestStream* stream_on(self, Connection* c) except NULL:
        cdef StreamOfMany* one
        if self.streams.oldest == NULL:
            one = self._new_of_many()
        else:
            one = <StreamOfMany*>self.streams.oldest.item
            list_remove(&self.streams, &one.s.link)
        exchange_on(&one.s.x, &c.n.now)
        one.s.connection = c
        one.places = NULL
        one.headed = one.waited = False
        self.in_use += 1
        return &one.s

    cdef int release(self, RequestStream* s) except -1:
        cdef StreamOfMany* one = of_many(s)
        if one.places != NULL:
            list_remove(one.places, &one.place)
            one.places = NULL
        self.in_use -= 1
        s.connection.served += 1
        list_add(&self.streams, &s.link)
        return self.look(s.connection)

    cdef int look(self, Connection* c) except -1:
        cdef TargetState* t = &self.targets[c.target]
        cdef bint room = (c.n.many != NULL and c.n.state != IN_IDLE and has_room(c.n.many) and c.n.many.open < t.streams
                          and not (self.fresh and c.served))
        if room != c.listed:
            c.listed = room
            if room:
                list_add(&t.idle, &c.link)
            else:
                list_remove(&t.idle, &c.link)
        if c.n.many == NULL or c.state == C_CONNECTING or c.state == C_FREE:
            return 0
        if c.n.many.open == 0 and (c.n.many.leaving or (self.fresh and c.served)):
            return self.drop(c, False)
        if (c.n.many.open == 0) != c.quiet:
            c.quiet = not c.quiet
            self.words[k.W_IDLE] += 1 if c.quiet else -1
        return 0

    cdef RequestStream* _stream_of_many(self, uint32_t row) noexcept:
        """Few ask, and seldom: users who leave."""
        cdef uint32_t i, at
        cdef Connection* c
        cdef RequestStream* s
        for i in range(self.connection_count):
            c = self.connections[i]
            if c.n.many == NULL:
                continue
            for at in range(c.n.many.mask + 1):
                s = <RequestStream*>c.n.many.streams[at].x
                if c.n.many.streams[at].id and s != NULL and s.x.number == row:
                    return s
        return NULL

    cdef uint32_t _places(self, TargetState* t) noexcept:
        cdef uint32_t count = 0
        cdef Link* at = t.idle.oldest
        cdef Connection* c
        while at != NULL:
            c = <Connection*>at.item
            count += min(t.streams, c.n.many.most) - c.n.many.open
            at = at.younger
        return count

    cdef void _farewell(self, Connection* c) noexcept:
        """The server may trust that nothing was cut off; sent if the socket takes it now."""
        cdef iovec last
        try:
            if c.n.socket != NULL:
                put_close(c.n.socket, CLOSE_NORMAL)
            elif not c.n.many.broken:
                put_goaway(c.n.many, CODE_NO_ERROR)
        except MemoryError:
            return
        if c.n.socket != NULL:
            last.iov_base = c.n.socket.out + c.n.socket.out_at
            last.iov_len = c.n.socket.out_size - c.n.socket.out_at
        else:
            last.iov_base = c.n.many.out + c.n.many.out_at
            last.iov_len = c.n.many.out_size - c.n.many.out_at
        if c.tls == NULL:
            wire_send(c.fd, &last, 1)
        elif c.sealed == 0:
            try:
                tls_write(c.tls, last.iov_base, last.iov_len)           # sent with the end of TLS
            except MemoryError:
                return

    cdef int put(self, Connection* c) except -1:
        self._left(c)
        self.words[k.W_IDLE] += 1
        c.state = C_IDLE
        list_add(&self.targets[c.target].idle, &c.link)
        return 0

    cdef int connect(self, Connection* c) except -1:
        cdef TargetState* t = &self.targets[c.target]
        cdef Address* source = NULL
        c.state = C_CONNECTING
        self.words[k.W_CONNECTIONS] += 1
        self.words[k.W_CONNECTS] += 1
        if c.ahead:
            t.connecting += 1
        if t.over_asyncio:
            self.loop_connections[c.number] = self.connector(c.target, c.number, c.generation)
            return 0
        if self.source_count:
            source = &self.sources[self.source_next]
            self.source_next = (self.source_next + 1) % self.source_count
        c.fd = wire_connect(&t.address, source, self.stamps, SLOW_BUFFER if c.read_rate > 0 else 0)
        if c.fd < 0:
            return -c.fd
        return self._watch(c, EPOLL_CTL_ADD)

    cdef int secure(self, Connection* c, int64_t now) except -1:
        cdef TargetState* t = &self.targets[c.target]
        c.tls = self.tls.connection(t.name, t.name_is_address, &t.session)
        c.state = C_SECURING
        c.secured_from = now
        c.tls_us = 0
        c.sealed = 0
        return 0

    cdef int secured(self, Connection* c, int64_t now) except -1:
        self.words[k.W_HANDSHAKES] += 1
        self.words[k.W_HANDSHAKES_RESUMED] += c.tls.resumed
        self.words[k.W_HANDSHAKE_NS] += now - c.secured_from
        c.tls_us = <uint32_t>max((now - c.secured_from) // 1000, <int64_t>1)
        return 0

    cdef int _watch(self, Connection* c, int operation) noexcept:
        """0 or the errno."""
        cdef epoll_event event
        event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET
        event.data.u64 = connection_tag(c)
        return errno if epoll_ctl(self.epfd, operation, c.fd, &event) != 0 else 0

    cdef int again(self, Connection* c) except -1:
        cdef int error_number = self._watch(c, EPOLL_CTL_MOD)
        if error_number:
            raise OSError(error_number, "a socket cannot be watched any more")
        return 0

    cdef int tail(self, Connection* c, int64_t now) except -1:
        c.state = C_TAIL
        c.tail_until = now + TAIL_NS
        list_add(&self.tails, &c.link)
        return 0

    cdef int end_tails(self, int64_t now) except -1:
        cdef Connection* c
        while self.tails.oldest != NULL:
            c = <Connection*>self.tails.oldest.item
            if c.tail_until > now:
                break
            self.drop(c, False)
        return 0

    cdef uint8_t failed(self, Connection* c, int error_number) noexcept:
        self.words[k.W_CONNECT_FAILURES] += 1
        self.targets[c.target].retry_at = mono_ns() + RETRY_NS
        if c.fd < 0:
            c.fd = -1
        if error_number == ECONNREFUSED:
            return r.ERROR_CONNECT_REFUSED
        if error_number == ETIMEDOUT:
            return r.ERROR_CONNECT_TIMEOUT
        if error_number == EADDRNOTAVAIL:
            return r.ERROR_NO_PORT
        if error_number == EMFILE or error_number == ENFILE:
            return r.ERROR_NO_FD
        return r.ERROR_CONNECT_FAILED

    cdef void _left(self, Connection* c) noexcept:
        """It leaves the list or the count that it is in by its state."""
        if c.listed:
            list_remove(&self.targets[c.target].idle, &c.link)
        self.words[k.W_IDLE] -= c.quiet
        c.listed = c.quiet = False
        if c.state == C_IDLE:
            self.words[k.W_IDLE] -= 1
            list_remove(&self.targets[c.target].idle, &c.link)
        elif c.state == C_TAIL:
            list_remove(&self.tails, &c.link)
        elif (c.state == C_CONNECTING or c.state >= C_SECURING) and c.ahead:
            self.targets[c.target].connecting -= 1
            c.ahead = False

    cdef int drop(self, Connection* c, bint reset) except -1:
        if c.state == C_FREE:
            return 0
        self._left(c)
        # Free before it is closed: what the event loop says of it while it closes a transport is of a connection of the past.
        c.state = C_FREE
        c.generation += 1
        self.words[k.W_CONNECTIONS] -= 1
        self.spare.append(c.number)
        life_ends(LIFE_CONNECTION)
        if c.n.many != NULL or c.n.socket != NULL:
            if not reset and (c.connected if c.n.many != NULL else c.n.state == IN_MESSAGES):
                self._farewell(c)
            incoming_free(&c.n)
        if c.tls != NULL:
            self._end_tls(c, reset)
        if c.fd >= 0:
            wire_close(c.fd, reset)
            c.fd = -1
        elif c.number in self.loop_connections:
            self.loop_connections.pop(c.number).close(reset)
        return 0

    cdef Py_ssize_t send_records(self, Connection* c) noexcept:
        cdef Py_ssize_t sent
        cdef iovec piece
        while tls_unsent(c.tls):
            piece.iov_base = c.tls.out + c.tls.out_at
            piece.iov_len = tls_unsent(c.tls)
            sent = wire_send(c.fd, &piece, 1)
            if sent < 0:
                return sent
            self.words[k.W_BYTES_OUT] += sent
            tls_sent(c.tls, <size_t>sent)
        return 0

    cdef void _end_tls(self, Connection* c, bint reset) noexcept:
        if not reset and c.tls.state == TLS_OPEN:
            tls_end(c.tls)                  # the peer may trust that nothing was cut off; sent if the socket takes it now
            self.send_records(c)
        tls_free(c.tls)
        c.tls = NULL

    cdef int open_ahead(self, uint32_t count, uint32_t at_once) except -1:
        cdef int64_t now = mono_ns()
        cdef uint32_t share, begun = 0, streams = 0
        cdef TargetState* t
        cdef Connection* c
        cdef int error_number
        if self.fresh or not self.target_count:
            return 0
        for i in range(self.target_count):
            t = &self.targets[i]
            share = <uint32_t>ceil(count * t.weight / self.weights) if t.weight > 0 else 0
            while ((self._places(t) if t.http2 else t.idle.count + t.connecting) < share and begun < at_once and t.retry_at <= now
                   and (not t.tls or t.connecting < HANDSHAKES)):
                c = self.make(<uint16_t>i)
                c.ahead = True
                begun += 1
                error_number = self.connect(c)
                if error_number:
                    self.failed(c, error_number)
                    self.drop(c, False)
                elif t.http2:
                    self.look(c)
            streams += share if t.http2 else 0
        while self.streams.count + self.in_use < streams:       # in huge pages, while there is time to find them
            list_add(&self.streams, &self._new_of_many().s.link)
        return 0

    cdef uint32_t idle(self) noexcept:
        cdef uint32_t count = 0
        for i in range(self.target_count):
            count += self.targets[i].idle.count
        return count

    cdef uint32_t connecting(self) noexcept:
        cdef uint32_t count = 0
        for i in range(self.target_count):
            count += self.targets[i].connecting
        return count

    cdef int close_idle(self) except -1:
        cdef uint32_t i
        for i in range(self.connection_count):
            if self.connections[i].n.many != NULL:
                if not carries(self.connections[i].n.many):
                    self.drop(self.connections[i], False)
            elif self.connections[i].state in (C_IDLE, C_TAIL) or (
                    self.connections[i].state in (C_CONNECTING, C_SECURING, C_UPGRADING) and self.connections[i].ahead):
                self.drop(self.connections[i], False)
        return 0
