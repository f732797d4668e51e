"""Connections and their bytes. A connection's memory is reused after it closes and freed with the table, so that a
pointer held by a cadence or a timer never dangles; generations tell that it means another client now."""

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memmove, memset
from posix.unistd cimport close

from fastllmload._ext.bytes.carry cimport carry_free
from fastllmload._ext.system.syscall cimport MSG_DONTWAIT, MSG_NOSIGNAL, send
from fastllmload._ext.system.clock cimport mono_ns
from fastllmload._ext.system.wire cimport (
    EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLLIN, EPOLLOUT, epoll_create1, epoll_ctl, epoll_event, wire_close,
)
from fastllmload._ext.tls.session cimport TLS_RECORD, tls_end, tls_free, tls_sent, tls_unsent, tls_write

cdef enum:
    KEEP = 16384                # buffers above this are given back when they empty
    FILLER_SIZE = 65536

cdef uint8_t[65536] FIELDS
cdef uint8_t[65536] LETTERS


def _fill() -> None:
    line = b"x-filler: " + b"a" * 52 + b"\r\n"
    for i in range(FILLER_SIZE):
        FIELDS[i] = line[i % 64]
        LETTERS[i] = 97


_fill()


cdef class Connections:
    """*context*: of TLS, None for clear text."""

    def __init__(self, context: TlsContext | None = None):
        self.context = context

    def __cinit__(self, *_):
        self.epoll = epoll_create1(EPOLL_CLOEXEC)
        if self.epoll < 0:
            raise OSError(errno, "the simulator's epoll set could not be made")

    def __dealloc__(self):
        cdef size_t fd
        cdef Connection* c
        for fd in range(self.cap):
            if self.by_fd[fd] != NULL:
                wire_close(<int>fd, False)
                destroy(self.by_fd[fd])
        while self.free_list != NULL:
            c = self.free_list
            self.free_list = c.next_free
            destroy(c)
        free(self.by_fd)
        if self.epoll >= 0:
            close(self.epoll)

    cdef Connection* adopt(self, int fd) except NULL:
        cdef Connection* c
        self.make_place(fd)
        c = self.fresh()
        if self.context is not None:
            c.tls = self.context.connection(NULL, False, NULL)
        c.fd = fd
        c.state = CONNECTION_READING
        c.number = <uint32_t>self.accepted
        c.requests = 0
        self.by_fd[fd] = c
        self.open_count += 1
        self.accepted += 1
        self.watch_with(c, EPOLL_CTL_ADD, False)
        return c

    cdef Connection* fresh(self) except NULL:
        cdef Connection* c = self.free_list
        if c != NULL:
            self.free_list = c.next_free
            return c
        c = <Connection*>calloc(1, sizeof(Connection))
        if c == NULL:
            raise MemoryError("no memory for a connection")
        return c

    cdef int make_place(self, int fd) except -1:
        cdef size_t cap = self.cap if self.cap else 1024
        cdef Connection** table
        if <size_t>fd < self.cap:
            return 0
        while cap <= <size_t>fd:
            cap *= 2
        table = <Connection**>realloc(self.by_fd, cap * sizeof(Connection*))
        if table == NULL:
            raise MemoryError(f"no memory for {cap} connections")
        memset(table + self.cap, 0, (cap - self.cap) * sizeof(Connection*))
        self.by_fd = table
        self.cap = cap
        return 0

    cdef Connection* of(self, uint64_t word) noexcept:
        cdef size_t fd = <size_t>(word & 0xFFFFFFFF)
        cdef Connection* c = self.by_fd[fd] if fd < self.cap else NULL
        return c if c != NULL and c.generation == <uint32_t>(word >> 32) else NULL

    cdef int watch_with(self, Connection* c, int operation, bint out) noexcept:
        cdef epoll_event event
        event.events = EPOLLIN | EPOLLOUT if out else EPOLLIN
        event.data.u64 = <uint64_t>c.generation << 32 | <uint32_t>c.fd
        c.want_out = out
        return epoll_ctl(self.epoll, operation, c.fd, &event)

    cdef int watch(self, Connection* c, bint out) noexcept:
        return 0 if c.want_out == out else self.watch_with(c, EPOLL_CTL_MOD, out)

    cdef void drop(self, Connection* c, bint reset) noexcept:
        # The cadence must have let go of its sequence before.
        if not reset:
            self.say_end(c)
        tls_free(c.tls)
        c.tls = NULL
        c.t_tls = 0
        c.abrupt = False
        self.by_fd[c.fd] = NULL
        wire_close(c.fd, reset)
        self.open_count -= 1
        self.recycle(c)

    cdef void recycle(self, Connection* c) noexcept:
        c.fd = -1
        c.generation += 1
        c.state = CONNECTION_FREE
        free(c.read)
        free(c.out)
        c.read = c.out = NULL
        c.read_size = c.read_cap = c.seen = c.need = 0
        c.out_at = c.out_size = c.out_cap = 0
        c.out_due = c.drip_ns = 0
        c.filler_left = 0
        c.filler = FILLER_NONE
        c.messages = 0
        c.want_out = c.chunked_body = c.continued = c.out_timer = False
        c.next_free = self.free_list
        self.free_list = c

    cdef int room(self, Connection* c, size_t size) except -1:
        cdef size_t cap = c.read_cap if c.read_cap else 2048
        cdef uint8_t* grown
        if size <= c.read_cap:
            return 0
        while cap < size:
            cap *= 2
        grown = <uint8_t*>realloc(c.read, cap)
        if grown == NULL:
            raise MemoryError(f"no memory for a request of {cap} bytes")
        c.read = grown
        c.read_cap = cap
        return 0

    cdef int keep(self, Connection* c, const uint8_t* data, size_t size) except -1:
        # *data* may lie inside c.read itself: what follows a request that is done.
        if c.read_size == 0 and c.read != NULL and c.read <= data < c.read + c.read_cap:
            memmove(c.read, data, size)
        elif size:
            self.room(c, c.read_size + size)
            memcpy(c.read + c.read_size, data, size)
        c.read_size += size
        if c.read_size == 0 and c.read_cap > KEEP:
            free(c.read)
            c.read = NULL
            c.read_cap = 0
        return 0

    cdef int append(self, Connection* c, const uint8_t* data, size_t size) except -1:
        cdef size_t cap
        cdef uint8_t* grown
        if c.out_at == c.out_size:
            c.out_at = c.out_size = 0
        if c.out_size + size > c.out_cap and c.out_at:
            memmove(c.out, c.out + c.out_at, c.out_size - c.out_at)
            c.out_size -= c.out_at
            c.out_at = 0
        if c.out_size + size > c.out_cap:
            cap = c.out_cap if c.out_cap else 1024
            while cap < c.out_size + size:
                cap *= 2
            grown = <uint8_t*>realloc(c.out, cap)
            if grown == NULL:
                raise MemoryError(f"no memory for {cap} bytes that a client does not read")
            c.out = grown
            c.out_cap = cap
        memcpy(c.out + c.out_size, data, size)
        c.out_size += size
        return 0

    cdef int queue(self, Connection* c, const uint8_t* data, size_t size) except -1:
        cdef size_t sealed
        if c.tls == NULL:
            return self.append(c, data, size)
        tls_write(c.tls, data, size)
        sealed = tls_unsent(c.tls)
        self.append(c, c.tls.out + c.tls.out_at, sealed)
        tls_sent(c.tls, sealed)
        return 0

    cdef Sent send(self, Connection* c, const uint8_t* data, size_t size) except? SENT_FAILED:
        if c.tls == NULL:
            return self.send_raw(c, data, size)
        tls_write(c.tls, data, size)
        c.t_sent = mono_ns()
        return self.send_records(c)

    cdef Sent send_records(self, Connection* c) except? SENT_FAILED:
        cdef size_t size = tls_unsent(c.tls)
        cdef Sent sent = self.send_raw(c, c.tls.out + c.tls.out_at, size) if size else SENT_ALL
        tls_sent(c.tls, size)
        return sent

    cdef int say_end(self, Connection* c) except -1:
        if c.tls != NULL and not c.abrupt and not pending(c):
            tls_end(c.tls)
            self.send_records(c)
        return 0

    cdef Sent send_raw(self, Connection* c, const uint8_t* data, size_t size) except? SENT_FAILED:
        cdef Py_ssize_t n
        if pending(c) or c.out_due or c.drip_ns:
            self.append(c, data, size)
            return SENT_QUEUED
        n = send(c.fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT)
        if n == <Py_ssize_t>size:
            return SENT_ALL
        if n < 0:
            if errno != EAGAIN and errno != EINTR:
                return SENT_FAILED
            n = 0
        self.append(c, data + n, size - n)
        self.watch(c, True)
        return SENT_QUEUED

    cdef Sent flush(self, Connection* c, int64_t now) except? SENT_FAILED:
        """Writes what is queued, then filler; SENT_ALL when nothing is left."""
        cdef Py_ssize_t n
        if c.out_due > now:
            return SENT_QUEUED
        c.out_due = 0
        while pending(c):
            if c.out_at < c.out_size:
                n = send(c.fd, c.out + c.out_at, 1 if c.drip_ns else c.out_size - c.out_at, MSG_NOSIGNAL | MSG_DONTWAIT)
            else:
                n = self.send_filler(c)
            if n < 0:
                if errno != EAGAIN and errno != EINTR:
                    return SENT_FAILED
                self.watch(c, True)
                return SENT_QUEUED
            if c.out_at < c.out_size:
                c.out_at += n
            else:
                c.filler_left -= <uint64_t>n
            if c.drip_ns and c.out_at < c.out_size:
                c.out_due = now + c.drip_ns
                return SENT_QUEUED
        self.watch(c, False)
        if c.out_cap > KEEP:
            free(c.out)
            c.out = NULL
            c.out_at = c.out_size = c.out_cap = 0
        return SENT_ALL

    cdef Py_ssize_t send_filler(self, Connection* c) except? -1:
        # A filler's size is a multiple of 64, its lines are 64 long: what is left tells where in a line we are.
        cdef const uint8_t* source = &FIELDS[0] if c.filler == FILLER_FIELDS else &LETTERS[0]
        cdef size_t start = (64 - c.filler_left % 64) % 64
        cdef size_t size = FILLER_SIZE - start
        if size > c.filler_left:
            size = <size_t>c.filler_left
        if c.tls != NULL:
            size = min(size, <size_t>TLS_RECORD)
            self.queue(c, source + start, size)
            c.filler_left -= size
            return 0
        return send(c.fd, source + start, size, MSG_NOSIGNAL | MSG_DONTWAIT)


cdef void many_free(Connection* c) noexcept:
    if c.many == NULL:
        return
    carry_free(&c.many.block, &c.many.block_size, &c.many.block_cap)
    free(c.many.streams)
    free(c.many)
    c.many = NULL


cdef void destroy(Connection* c) noexcept:
    cdef uint32_t i
    if c.many != NULL:
        for i in range(c.many.count):
            destroy(c.many.streams[i])
        many_free(c)
    tls_free(c.tls)
    free(c.sequence.hashes)
    free(c.sequence.nodes)
    free(c.read)
    free(c.out)
    free(c)
