"""What goes over a worker's connections.

A readable socket is read until it is empty: a read shorter than the buffer means that it is (sockets are edge-triggered).
One that fills the buffer is reported again by the next poll, so that a server which sends without end keeps the thread from
no other socket and no release.
Each read has the kernel's stamp of its newest segment, which is CLOCK_REALTIME: the offset to the monotonic clock is taken
once per batch. Where there is none the time in user space counts, and the row says so. The protocol's verdict on the read
decides what becomes of the connection.

How early may data have come whose stamp is that of a later segment, or of the process? Not before the poll that did not
find its socket ready (`empty_at`), nor before the read that drained it (`Connection.drained`). When the thread slept in the poll,
the first segment woke it, and only the wake-up lies between: the time that the scheduler let the thread wait, which it
counts, and what an idle processor needs. None of that holds across a stop: a signal's is known from the one that ended it
(`wire_stops`), any other from the beat, which comes too late. When the kernel got no more segments than there were reads, each
read had one, and its stamp is exact for all that it brought.

With TLS the socket is the same, and so are its stamps: the bytes of a read are records, which are opened in memory. What a read
says is what its complete records say. Where it ended with a record, its newest segment ended the last event; where a record
has begun after that, the segment may have brought no more than that, and the stamp is an upper bound (STAMP_COALESCED), unless
one segment was all.
"""

import os

from libc.errno cimport EAGAIN, ECONNABORTED
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

cimport fastllmload._ext.record.counters as k
cimport fastllmload._ext.record.recorder as r
from fastllmload._ext.events.dialect cimport FINISH_NONE
from fastllmload._ext.receive.exchange cimport V_CLOSE, V_MORE, V_REPLY, V_REUSE, Exchange, exchange_open, fll_fetch
from fastllmload._ext.receive.framing cimport IN_MESSAGES
from fastllmload._ext.receive.messages cimport Socket, has_replies, put_bytes, replies_sent
from fastllmload._ext.receive.multiplex cimport window_closed
from fastllmload._ext.record.histogram cimport HDR_WORDS, hdr_place, hdr_record
from fastllmload._ext.record.recorder cimport FLAG_REUSED, RequestRow
from fastllmload._ext.send.connection cimport (
    C_BUSY, C_CONNECTING, C_IDLE, C_SECURING, C_TAIL, C_UPGRADING, PIECES, TargetState, connection_fetch_rest, connection_tagged, sent_whole,
)
from fastllmload._ext.system.clock cimport mono_ns, real_minus_mono, real_ns, thread_cpu_ns
from fastllmload._ext.system.wire cimport (
    EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, EPOLLRDHUP, iovec, wire_connect_error, wire_local_port, wire_open_run_delay,
    wire_recv, wire_run_delay, wire_segments, wire_send, wire_stops, wire_watch_stops,
)
from fastllmload._ext.tls.session cimport (
    TLS_CLOSED, TLS_FAILED, TLS_HANDSHAKE, TLS_OPEN, TLS_PLAIN, TLS_RECORD, tls_complete, tls_problem, tls_protocol, tls_read, tls_write,
)

cdef enum:
    DRAIN_NS = 50_000           # a read has emptied its socket at most this long before its end, if the thread was not stopped
    LOOK_NS = 500               # a realtime clock that differs by more is read again: it was set, or the reading was interrupted
    STEP_NS = 1_000_000         # a realtime clock that moved by more between two batches was set
    UNSURE_NS = 20_000_000      # after that, stamps from before it may still lie in the kernel this long: none is believed


cdef inline void advance(Connection* c, size_t sent) noexcept:
    """So much more of the request is out."""
    while c.piece < PIECES and sent >= c.pieces[c.piece].iov_len:
        sent -= c.pieces[c.piece].iov_len
        c.piece += 1
    if sent:
        c.pieces[c.piece].iov_base = <char*>c.pieces[c.piece].iov_base + sent
        c.pieces[c.piece].iov_len -= sent


cdef class Transport:
    """What goes over the sockets of one worker. *protocol* has the sinks."""

    def __init__(self, Protocol protocol not None, Pool pool not None, Users users not None):
        self.protocol = protocol
        self.pool = pool
        self.users = users
        self.epfd = pool.epfd
        self.words = protocol.words
        self.socket_to_user.counts = self.words + k.WORDS + k.H_SOCKET_TO_USER * HDR_WORDS
        self.offset = real_minus_mono()
        self.buffer = <unsigned char*>malloc(BUFFER)
        if self.buffer == NULL:
            raise MemoryError("read buffer")
        memset(self.buffer, 1, BUFFER)          # its pages are there before a clock starts; of zeros a compiler makes calloc()
        self.bodies = Bodies()
        self.streams = Streams(protocol, pool, users)
        wire_watch_stops()
        self.schedstat = wire_open_run_delay()
        self.run_delay = wire_run_delay(self.schedstat)

    def __dealloc__(self):
        free(self.buffer)
        free(self.plain)
        if self.schedstat > 0:
            os.close(self.schedstat)

    cdef int clock(self) except -1:
        cdef int64_t offset = real_minus_mono()
        if offset - self.offset > STEP_NS or self.offset - offset > STEP_NS:
            self.words[k.W_CLOCK_STEPS] += 1
            self.unsure_until = mono_ns() + UNSURE_NS
        self.offset = offset
        return 0

    cdef int64_t check_clock(self) except -1:
        """Between two settings of the wall clock *offset* does not change, for both clocks are slewed alike: one reading of each is
        enough to see that it has not.
        """
        cdef int64_t real = real_ns()
        cdef int64_t now = mono_ns()
        if not -LOOK_NS < real - now - self.offset < LOOK_NS:
            self.clock()
        return now

    # -- sending ------------------------------------------------------------------------------------------------------

    cdef int open(self, RequestStream* s) except -1:
        cdef Connection* c = s.connection
        s.x.reused = c.served > 0
        if s.x.reused:
            s.x.row.flags |= FLAG_REUSED
        exchange_open(&s.x)
        s.x.row.stream_begin = c.n.now.end
        if s.many:
            return self.protocol.http2.open(&c.n, &s.x)
        return self.protocol.websocket.open(&c.n, &s.x) if c.n.state == IN_MESSAGES else self.protocol.framing.open(&c.n, &s.x)

    cdef int submit(self, RequestStream* s, int64_t now) except -1:
        cdef int error_number
        if s.many:
            return self.streams.submit(s, now)
        if s.connection.state == C_IDLE:
            return self.send(s.connection, now)
        error_number = self.pool.connect(s.connection)
        return self.connect_failed(s.connection, error_number, False) if error_number else 0

    cdef int use_tls(self, TlsContext context) except -1:
        self.pool.tls = context
        self.plain = <unsigned char*>malloc(BUFFER + TLS_PLAIN)
        if self.plain == NULL:
            raise MemoryError("read buffer")
        memset(self.plain, 1, BUFFER + TLS_PLAIN)
        return 0

    cdef int connected(self, Connection* c) except -1:
        cdef int64_t now = mono_ns()
        if c.n.many == NULL and not c.ahead:
            c.stream.x.row.t_connected = now
        if c.fd < 0 or c.tls != NULL or not self.pool.targets[c.target].tls:
            return self._usable(c)
        self.pool.secure(c, now)
        return self._shake_hands(c, 0)

    cdef int _usable(self, Connection* c) except -1:
        if c.n.many != NULL:
            return self.streams.connected(c)
        if c.n.socket != NULL and c.n.state != IN_MESSAGES:
            return self._upgrade(c)
        if c.ahead:
            return self.pool.put(c)
        return self.send(c, mono_ns())

    cdef int _upgrade(self, Connection* c) except -1:
        cdef TargetState* t = &self.pool.targets[c.target]
        if c.ahead:
            self.protocol.framing.open(&c.n, &c.stream.x)       # of no request
        c.state = C_UPGRADING
        c.upgraded_from = mono_ns()
        put_bytes(c.n.socket, t.upgrade, t.upgrade_size)
        return self._reply(c)

    cdef int _upgrading(self, Connection* c, Py_ssize_t got) except -1:
        cdef int64_t now = mono_ns()
        cdef const unsigned char* data = self.buffer
        cdef size_t size = <size_t>got
        cdef Verdict verdict = V_MORE
        c.reads += 1
        if c.tls != NULL:
            data = self.plain
            size = <size_t>tls_read(c.tls, self.buffer, <size_t>got, self.plain)
        if size and c.ahead:
            verdict = self.protocol.feed_upgrade(&c.n, data, size)
        elif size:
            verdict = self.protocol.feed(&c.n, data, size, now, 0, r.STAMP_USER, now)
        if verdict == V_CLOSE or verdict == V_REUSE:            # it was refused
            if c.ahead:
                self.pool.failed(c, 0)
            return self.pool.drop(c, False)
        if c.tls != NULL and c.tls.state != TLS_OPEN:
            return self._tls_failed(c) if c.tls.state == TLS_FAILED else self.broken(c, 0)
        if c.n.state != IN_MESSAGES:
            return 0
        self.words[k.W_UPGRADES] += 1
        self.words[k.W_UPGRADE_NS] += now - c.upgraded_from
        return 0 if self._reply(c) else self._usable(c)

    cdef int _reply(self, Connection* c) except -1:
        """What waits while a message is being sent is sent after it."""
        cdef Py_ssize_t sent
        if c.state == C_BUSY and c.stream.x.row != NULL and c.stream.x.row.bytes_sent and c.piece < PIECES:
            return 0
        sent = self._send_replies(c)
        if sent == 0 or sent == -EAGAIN:
            return 0
        self.broken(c, <int>-sent)
        return 1

    cdef Py_ssize_t _send_replies(self, Connection* c) except? -1:
        cdef Socket* s = c.n.socket
        cdef iovec piece
        cdef Py_ssize_t sent
        while has_replies(s):
            piece.iov_base = s.out + s.out_at
            piece.iov_len = s.out_size - s.out_at
            if c.tls == NULL:
                sent = wire_send(c.fd, &piece, 1)
                if sent < 0:
                    return sent
                self.words[k.W_BYTES_OUT] += sent
            else:
                tls_write(c.tls, piece.iov_base, piece.iov_len)
                sent = <Py_ssize_t>piece.iov_len
            replies_sent(s, <size_t>sent)
        return 0 if c.tls == NULL else self.pool.send_records(c)

    cdef int _shake_hands(self, Connection* c, Py_ssize_t got) except -1:
        cdef int64_t now, cpu = thread_cpu_ns()
        cdef Py_ssize_t sent, plain = tls_read(c.tls, self.buffer, <size_t>got, self.plain)
        cdef uint32_t generation = c.generation
        c.reads += got > 0
        self.words[k.W_HANDSHAKE_CPU_NS] += thread_cpu_ns() - cpu
        sent = self.pool.send_records(c)
        if sent < 0 and sent != -EAGAIN:
            return self.connect_failed(c, <int>-sent, True)
        if c.tls.state == TLS_FAILED or c.tls.state == TLS_CLOSED:
            return self._tls_failed(c)
        if c.tls.state == TLS_HANDSHAKE:
            return 0
        now = mono_ns()
        self.pool.secured(c, now)
        if c.n.many != NULL:
            if tls_protocol(c.tls) != b"h2":
                return self._tls_failed(c)
            c.state = C_CONNECTING              # until the server's SETTINGS have come, perhaps in this read
        elif not c.ahead:
            c.stream.x.row.tls_us = c.tls_us
        self._usable(c)
        if plain == 0 or c.generation != generation:
            return 0
        if c.n.many == NULL:                    # nothing has been asked for yet
            return self.broken(c, 0)
        return self.streams.fed(
            c, self.protocol.feed_streams(&c.n, self.plain, <size_t>plain, now, 0, r.STAMP_USER, now), now)

    cdef int _tls_failed(self, Connection* c) except -1:
        """The records cannot be read any further, or the handshake has failed. What OpenSSL says of it is kept for people."""
        cdef uint32_t i
        cdef bytes why = b"TLS: " + (
            tls_problem(c.tls) if c.tls.state == TLS_FAILED
            else "the server closed it in the handshake" if c.tls.state == TLS_CLOSED
            else "the server did not agree to HTTP/2 (ALPN)").encode()
        if c.n.many == NULL:
            self._tls_fails(c, &c.stream.x, why)
        else:
            for i in range(c.n.many.mask + 1):
                if c.n.many.streams[i].id and self._tls_fails(c, c.n.many.streams[i].x, why):
                    c.n.many.streams[i].x = NULL        # its request has ended
        if c.state == C_SECURING:
            return self.connect_failed(c, 0, True)
        self.pool.send_records(c)             # an alert, if the socket takes it now
        return self.broken(c, ECONNABORTED)

    cdef int _tls_fails(self, Connection* c, Exchange* x, bytes why) except -1:
        """Whether that ends a request on it; one that has said why it ends is judged as on any connection that breaks."""
        cdef int64_t now = mono_ns()
        if x == NULL or x.row == NULL:
            return 0
        if x.row.phase == r.PHASE_MEASURE:
            self.protocol.error_texts.note(x.row.http_status, r.ERROR_TLS, why, <size_t>len(why))
        if c.state != C_SECURING and x.row.finish == FINISH_NONE:
            self.protocol.fail(x, r.STATUS_CONNECTION_ERROR, r.ERROR_TLS, now, now)
            return 1
        return 0

    cdef int connect_failed(self, Connection* c, int error_number, bint tls) except -1:
        cdef int64_t now = mono_ns()
        cdef uint8_t error = self.pool.failed(c, error_number)
        if c.n.many != NULL:
            return self.streams.connect_failed(c, error_number, r.ERROR_TLS if tls else error)
        if not c.ahead:
            c.stream.x.row.error_number = error_number
            self.protocol.fail(&c.stream.x, r.STATUS_CONNECTION_ERROR, r.ERROR_TLS if tls else error, now, now)
        return self.pool.drop(c, False)

    cdef int send(self, Connection* c, int64_t now) except -1:
        """Hand what is left of the request to the socket; the rest follows when it takes more."""
        cdef Py_ssize_t sent
        cdef size_t size
        cdef void* body
        cdef RequestRow* row = c.stream.x.row
        cdef iovec* last = &c.pieces[PIECES - 1]
        if c.n.many != NULL:
            return self.streams.write(c, now)
        if row.t_submit_start == 0:
            row.t_submit_start = now
            if c.served == 0 and c.fd >= 0:
                c.local_port = wire_local_port(c.fd)
            row.local_port = c.local_port
        c.state = C_BUSY
        if c.n.socket != NULL and row.bytes_sent == 0 and has_replies(c.n.socket):
            if self._reply(c) or has_replies(c.n.socket):
                return 0
        if c.fd < 0:
            return self._send_by_loop(c)
        if c.tls != NULL:
            return self._send_sealed(c)
        while c.piece < PIECES:
            body = last.iov_base
            size = last.iov_len
            last.iov_base = <void*>self.bodies.near(body, &last.iov_len)
            sent = wire_send(c.fd, &c.pieces[c.piece], PIECES - c.piece)
            last.iov_base = body                # what is left of it is searched for again
            last.iov_len = size
            if sent == -EAGAIN:
                return 0
            if sent < 0:
                return self.broken(c, <int>-sent)
            row.bytes_sent += sent
            self.words[k.W_BYTES_OUT] += sent
            advance(c, <size_t>sent)
        return self.submitted(c)

    cdef int _send_sealed(self, Connection* c) except -1:
        """The same, in records that are full or have the end of the request: as many at once as the socket takes."""
        cdef Py_ssize_t sent
        cdef size_t size, filled
        cdef const void* part
        cdef RequestRow* row = c.stream.x.row
        while True:
            sent = self.pool.send_records(c)
            if sent == -EAGAIN:
                return 0
            if sent < 0:
                return self.broken(c, <int>-sent)
            if c.piece == PIECES:
                return self.submitted(c) if row.t_submit == 0 else 0
            filled = 0
            while c.piece < PIECES and filled < TLS_RECORD:
                size = c.pieces[c.piece].iov_len
                part = self.bodies.near(c.pieces[c.piece].iov_base, &size)
                size = min(size, TLS_RECORD - filled)
                memcpy(self.plain + filled, part, size)
                filled += size
                advance(c, size)
            tls_write(c.tls, self.plain, filled)
            row.bytes_sent += filled

    cdef int _send_by_loop(self, Connection* c) except -1:
        self.pool.loop_connections[c.number].send(b"".join(
            [self.bodies.taken(c.pieces[i].iov_base, c.pieces[i].iov_len) for i in range(PIECES)]))
        return 0

    cdef int submitted(self, Connection* c) except -1:
        """The last byte of the request is with the kernel (IETF B.1.1)."""
        c.stream.x.row.t_submit = mono_ns()
        c.piece = PIECES
        return 0 if c.n.socket == NULL else self._reply(c)

    # -- receiving ----------------------------------------------------------------------------------------------------

    cdef int event(self, epoll_event* event) except -1:
        cdef uint32_t flags = event.events
        cdef Connection* c = connection_tagged(event.data.u64)
        cdef int failed
        if c == NULL:
            return 0                # of a connection that was dropped earlier in this batch
        if c.state == C_BUSY:
            if flags & EPOLLOUT and not sent_whole(c):
                self.send(c, 0)
                if connection_tagged(event.data.u64) == NULL:
                    return 0
        elif c.state == C_CONNECTING:
            if not flags & (EPOLLOUT | EPOLLERR | EPOLLHUP):
                return 0
            failed = wire_connect_error(c.fd)
            if failed:
                return self.connect_failed(c, failed, False)
            self.connected(c)
            if connection_tagged(event.data.u64) == NULL:
                return 0
        elif c.state >= C_SECURING and flags & EPOLLOUT:
            if c.state == C_UPGRADING:
                self._reply(c)
                if connection_tagged(event.data.u64) == NULL:
                    return 0
            else:
                self.pool.send_records(c)
        if flags & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR) and (c.read_rate == 0 or c.state >= C_SECURING):
            return self._read(c, flags)
        return 0

    cdef int _read(self, Connection* c, uint32_t flags) except -1:
        """Read until the socket is empty, or the buffer full: one recvmsg, unless the peer has closed."""
        cdef int64_t stamp
        cdef Py_ssize_t got
        cdef int64_t low = 0
        cdef uint32_t generation = c.generation
        connection_fetch_rest(c)
        while True:
            got = wire_recv(c.fd, self.buffer, BUFFER, &stamp)
            if got == BUFFER and not c.unread:
                low = self._earliest(c, mono_ns())
            if got == -EAGAIN:
                return 0
            if got <= 0:
                return self.broken(c, <int>-got)
            if c.state >= C_SECURING:
                if c.state == C_SECURING:
                    self._shake_hands(c, got)
                else:
                    self._upgrading(c, got)
            else:
                self._got(c, got, stamp)
            if c.generation != generation:
                return 0
            if got == BUFFER:
                if not c.unread:        # what it left came as early as what it had, but no earlier
                    c.unread = True
                    c.drained = low + DRAIN_NS
                return self.pool.again(c)
            if not flags & (EPOLLRDHUP | EPOLLHUP | EPOLLERR):
                return 0

    cdef int _got(self, Connection* c, Py_ssize_t got, int64_t stamp) except -1:
        """*got* bytes are in the buffer; *stamp* is the kernel's, 0 when it gave none."""
        cdef int64_t t, user_t = mono_ns()
        cdef int64_t low = 0                # of a kernel stamp it is asked when it is needed
        cdef int64_t late = -1              # in user space, of a kernel stamp
        cdef uint8_t stamp_class
        cdef const unsigned char* data = self.buffer
        cdef size_t size = <size_t>got
        cdef Verdict verdict = V_MORE
        self.read_at = user_t
        self.words[k.W_READS] += 1
        self.words[k.W_BYTES_IN] += got
        # A slow reader has it when it reads it, however long it lay in the kernel.
        if stamp and c.read_rate == 0 and user_t >= self.unsure_until:
            t = stamp - self.offset
            if t > user_t:
                t = user_t
            stamp_class = r.STAMP_KERNEL
            self.words[k.W_KERNEL_STAMPS] += 1
            late = user_t - t
            fll_fetch(hdr_place(&self.socket_to_user, late))        # where it is counted below: a far place, for most reads
        else:
            t = user_t
            stamp_class = r.STAMP_USER
            self.words[k.W_USER_STAMPS] += 1
            if c.read_rate == 0:            # a slow reader lets data lie: nothing is known of when it came
                low = self._earliest(c, user_t)
        c.reads += 1
        if c.tls != NULL:
            data = self.plain
            size = <size_t>tls_read(c.tls, self.buffer, <size_t>got, self.plain)
            if stamp_class == r.STAMP_KERNEL and not tls_complete(c.tls):
                stamp_class = r.STAMP_COALESCED
        # It came too late without doubt, also where the client stood still when the time was over.
        if c.stream.x.row != NULL and (low if stamp_class == r.STAMP_USER else t) > c.stream.deadline:
            if late >= 0:
                hdr_record(&self.socket_to_user, late)
            return self.cancel(&c.stream, r.STATUS_TIMEOUT, r.ERROR_DEADLINE, user_t)
        if size == 0:
            pass
        elif c.n.many == NULL:
            verdict = self.protocol.feed(&c.n, data, size, t, low, stamp_class, user_t)
        else:
            verdict = self.protocol.feed_streams(&c.n, data, size, t, low, stamp_class, user_t)
        if late >= 0:
            hdr_record(&self.socket_to_user, late)
        if self.protocol.timeline.unsettled:
            self._settle(c)
        if got < BUFFER:
            # What comes after it has this as its lower bound; after a stop the read may have been as early as the batch.
            c.drained = user_t if wire_stops() == self.stops else self.begun
            c.unread = False
        return self.fed(c, verdict, user_t) if c.tls == NULL else self._fed_sealed(c, verdict, user_t)

    cdef int _fed_sealed(self, Connection* c, Verdict verdict, int64_t user_t) except -1:
        """The same for a connection with TLS, whose records say more than the plaintext in them."""
        cdef Py_ssize_t sent = 0
        cdef uint32_t generation = c.generation
        if c.n.many != NULL:
            pass                                # Streams.fed writes what there is
        elif c.state == C_BUSY and c.stream.x.row != NULL and not sent_whole(c):
            self.send(c, 0)
            if c.generation != generation:
                return 0
        else:
            sent = self.pool.send_records(c)
        if c.n.now.stamp_class == r.STAMP_COALESCED:
            c.n.now.stamp_class = r.STAMP_KERNEL    # whatever comes later in the stream came later than this stamp
        if sent < 0 and sent != -EAGAIN:
            return self.broken(c, <int>-sent)
        if c.tls.state == TLS_OPEN:
            return 0 if c.state == C_IDLE and verdict == V_MORE else self.fed(c, verdict, user_t)
        if verdict != V_MORE:
            return self.fed(c, V_CLOSE, user_t)
        return self._tls_failed(c) if c.tls.state == TLS_FAILED else self.broken(c, 0)

    cdef int64_t _earliest(self, Connection* c, int64_t newest) noexcept:
        """No byte of the latest read came before this instant; the last of them came at *newest*."""
        cdef int64_t low = c.drained - DRAIN_NS if c.unread else max(self.empty_at, c.drained - DRAIN_NS)
        cdef int64_t ready = self._ready_ns()
        cdef int64_t woken
        # What was known of an instant may be known of an earlier one only, if the thread then had to wait for a processor
        # before it took the time: so long at the most.
        low -= ready
        if self.slept_from and self.on_time(ready) and self.begun - self.slept_from > ready + WAKE_NS:
            woken = self.begun - ready - WAKE_NS
            if woken < newest:              # else the wake-up took longer than is thought here
                low = max(low, woken)
        return low

    cdef bint on_time(self, int64_t ready) noexcept:
        """The batch began when the beat was due at the latest, but for the *ready* ns that its thread had no processor: one
        that stands still (in a frozen cgroup, say) sleeps through it.
        """
        return self.begun <= self.awaited + ready + STOPPED_NS

    cdef int64_t _ready_ns(self) noexcept:
        """How long the thread was ready to run and had no processor, since the end of an earlier batch."""
        cdef int64_t delay
        if self.ready < 0:
            delay = wire_run_delay(self.schedstat)
            if delay < 0 or self.run_delay < 0:
                self.slept_from = 0         # not known: the wake-up tells nothing then
                self.ready = 0
            else:
                self.ready = delay - self.run_delay
        return self.ready

    cdef int _settle(self, Connection* c) except -1:
        cdef uint32_t segments = 0
        cdef bint exact
        cdef bint known = wire_segments(c.fd, c.n.now.end if c.tls == NULL else c.tls.received, &segments)
        exact = known and c.extra_known and segments - c.reads == c.extra
        c.extra_known = known
        if known:
            c.extra = segments - c.reads
        return self.protocol.timeline.settle(exact, 0 if exact or c.read_rate != 0 else self._earliest(c, c.n.now.t))

    cdef int fed(self, Connection* c, Verdict verdict, int64_t user_t) except -1:
        """What a read made of the connection."""
        cdef RequestRow* row = c.stream.x.row
        if verdict == V_MORE:
            if row == NULL:
                if c.n.many != NULL:
                    return self.streams.fed(c, verdict, user_t)
                return 0 if c.state == C_TAIL or c.state == C_IDLE else self.pool.tail(c, user_t)
            if c.stream.leave_tokens and row.content_events >= c.stream.leave_tokens:
                return self.cancel(&c.stream, r.STATUS_CANCELLED, r.ERROR_CLIENT_CANCELLED, mono_ns())
            return 0
        if c.n.many != NULL:
            return self.streams.fed(c, verdict, user_t)
        if c.n.socket != NULL and has_replies(c.n.socket) and self._reply(c):
            return 0
        if verdict == V_REPLY:
            return self.fed(c, V_MORE, user_t)
        # A request whose response came before it was sent whole leaves the connection in an unknown state.
        if verdict == V_REUSE and sent_whole(c) and not self.pool.fresh and c.read_rate == 0:
            c.served += 1
            return self.pool.put(c)
        if c.state == C_IDLE:
            self.words[k.W_IDLE_DROPPED] += 1
        return self.pool.drop(c, False)

    cdef int broken(self, Connection* c, int error_number) except -1:
        cdef int64_t now = mono_ns()
        if c.state == C_SECURING:
            return self.connect_failed(c, error_number, True)
        if c.n.many != NULL:
            return self.streams.broken(c, error_number)
        if c.state == C_IDLE:
            self.words[k.W_IDLE_DROPPED] += 1
        elif c.state == C_UPGRADING and c.ahead:
            self.pool.failed(c, error_number)
        self.protocol.eof(&c.n, now, now, error_number)
        return self.pool.drop(c, False)

    cdef int cancel(self, RequestStream* s, uint8_t status, uint8_t error, int64_t now) except -1:
        if s.many:
            return self.streams.cancel(s, status, error, now)
        self.protocol.fail(&s.x, status, error, now, now)
        return self.pool.drop(s.connection, True)

    cdef int time_out(self, RequestStream* s, int64_t now) except -1:
        if s.many and window_closed(s.connection.n.many, &s.x):
            return self.cancel(s, r.STATUS_TIMEOUT, r.ERROR_WINDOW_CLOSED, now)
        return self.cancel(
            s, r.STATUS_TIMEOUT, r.ERROR_TLS if s.connection.state == C_SECURING
            else r.ERROR_NOT_UPGRADED if s.connection.state == C_UPGRADING
            else r.ERROR_CONNECT_TIMEOUT if s.connection.state == C_CONNECTING else r.ERROR_DEADLINE, now)

    # -- slow readers -------------------------------------------------------------------------------------------------

    cdef int sip_all(self, int64_t now) except -1:
        cdef uint32_t place = 0
        cdef Connection* c
        while place < self.users.slow_count:
            c = self.users.slow_reader(self.pool, place)
            if c != NULL:
                place += 1
                if c.state == C_BUSY or c.state == C_TAIL:
                    self._sip(c, now)
        return 0

    cdef int _sip(self, Connection* c, int64_t now) except -1:
        """Read as much as the rate allows."""
        cdef uint32_t generation = c.generation
        cdef int64_t stamp
        cdef Py_ssize_t got
        cdef size_t most
        while c.generation == generation:
            most = self.users.may_read(c, now, BUFFER)
            if most == 0:
                return 0
            got = wire_recv(c.fd, self.buffer, most, &stamp)
            if got == -EAGAIN:
                return 0
            if got <= 0:
                return self.broken(c, <int>-got)
            if c.read_from == 0:
                c.read_from = now
            self._got(c, got, stamp)
        return 0
