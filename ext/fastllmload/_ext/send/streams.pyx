"""Requests onto connections of HTTP/2.

A connection is C_CONNECTING until the server's SETTINGS have come: only they say how many streams it takes. Streams may wait on it
before that. A request that is released is written to the connection's frames (`Multiplex.out`) as far as the server's windows let
it through, and these go to the socket. It is submitted when the socket has the last of its bytes.
"""

from libc.errno cimport EAGAIN
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cimport fastllmload._ext.record.counters as k
cimport fastllmload._ext.record.recorder as r
from fastllmload._ext.receive.exchange cimport V_CLOSE, exchange_on
from fastllmload._ext.receive.multiplex cimport (
    CODE_CANCEL, OUT_MOST, Multiplex, OpenStream, put_body, put_head, put_sent, stream_close, window_closed,
)
from fastllmload._ext.record.recorder cimport RequestRow
from fastllmload._ext.send.connection cimport (
    C_BUSY, C_CONNECTING, C_FREE, C_SECURING, Link, TargetState, list_add, list_remove, of_many,
)
from fastllmload._ext.system.clock cimport mono_ns
from fastllmload._ext.system.wire cimport iovec, wire_local_port, wire_send
from fastllmload._ext.tls.session cimport tls_unsent, tls_write

cdef enum:
    TAILS_NS = 1_000_000_000        # a message without a request is reset after one to two of these


cdef class Streams:
    def __init__(self, Protocol protocol not None, Pool pool not None, Users users not None):
        self.protocol = protocol
        self.pool = pool
        self.users = users
        self.words = protocol.words
        self.bodies = Bodies()

    # -- sending ------------------------------------------------------------------------------------------------------

    cdef int submit(self, RequestStream* s, int64_t now) except -1:
        cdef Connection* c = s.connection
        cdef StreamOfMany* one = of_many(s)
        cdef int error_number
        one.places = &c.unwritten
        list_add(&c.unwritten, &one.place)
        if c.state == C_FREE:
            error_number = self.pool.connect(c)
            if error_number:
                return self.connect_failed(c, error_number, self.pool.failed(c, error_number))
        self.pool.look(c)
        return 0 if c.state == C_CONNECTING or c.state == C_SECURING else self.write(c, now)

    cdef int write(self, Connection* c, int64_t now) except -1:
        """Hand to the socket what waits, as far as it takes it; the rest follows when it takes more."""
        cdef Multiplex* m = c.n.many
        cdef iovec piece
        cdef Py_ssize_t sent
        if now == 0 and c.unwritten.count:
            now = mono_ns()
        while True:
            if c.state != C_CONNECTING:
                self._fill(c, now)
            if m.out_at == m.out_size and (c.tls == NULL or tls_unsent(c.tls) == 0):
                return 0
            piece.iov_base = m.out + m.out_at
            piece.iov_len = m.out_size - m.out_at
            if c.tls == NULL:
                sent = wire_send(c.fd, &piece, 1)
            else:
                sent = self._send_sealed(c, &piece)
            if sent == -EAGAIN:
                return 0
            if sent < 0:
                return self.broken(c, <int>-sent)
            if c.tls == NULL:
                self.words[k.W_BYTES_OUT] += sent
            put_sent(m, <size_t>sent)
            self._submitted(c)

    cdef Py_ssize_t _send_sealed(self, Connection* c, const iovec* frames) except? -1:
        """Some of *frames* in records; how many bytes of frames the socket has of those that it had not before, or -errno."""
        cdef Py_ssize_t sent
        if tls_unsent(c.tls) == 0:
            c.sealed = <uint32_t>min(frames.iov_len, <size_t>OUT_MOST)
            tls_write(c.tls, frames.iov_base, c.sealed)
        sent = self.pool.send_records(c)
        if sent == 0:
            sent = c.sealed
            c.sealed = 0
        return sent

    cdef int _fill(self, Connection* c, int64_t now) except -1:
        """Requests by their release; one that waits for its stream's window holds up no other."""
        cdef Multiplex* m = c.n.many
        cdef Link* at = c.unwritten.oldest
        cdef StreamOfMany* one
        while at != NULL and m.out_size - m.out_at < OUT_MOST:
            one = <StreamOfMany*>at.item
            at = at.younger
            if one.s.x.row != NULL and self._fill_one(c, one, now):
                list_remove(&c.unwritten, &one.place)
                list_add(&c.unsent, &one.place)
                one.places = &c.unsent
                one.end = m.put
        return 0

    cdef bint _fill_one(self, Connection* c, StreamOfMany* one, int64_t now) except -1:
        """Whether all of the request is written now."""
        cdef Multiplex* m = c.n.many
        cdef RequestRow* row = one.s.x.row
        cdef iovec* body = &one.pieces[2]
        cdef uint64_t before = m.put
        cdef const void* near
        cdef size_t size
        cdef Py_ssize_t taken
        if not one.headed:
            one.headed = True
            row.t_submit_start = now
            row.local_port = c.local_port
            put_head(m, &one.s.x, one.pieces[0].iov_base, one.pieces[0].iov_len, one.pieces[1].iov_base, one.pieces[1].iov_len,
                     body.iov_len == 0 and one.opening.iov_len == 0)
        if one.opening.iov_len:
            taken = put_body(m, &one.s.x, one.opening.iov_base, one.opening.iov_len, body.iov_len == 0)
            one.opening.iov_base = <char*>one.opening.iov_base + taken
            one.opening.iov_len -= <size_t>taken
        while body.iov_len and one.opening.iov_len == 0:
            size = body.iov_len
            near = self.bodies.near(body.iov_base, &size)
            taken = put_body(m, &one.s.x, near, size, size == body.iov_len)
            body.iov_base = <char*>body.iov_base + taken
            body.iov_len -= <size_t>taken
            if <size_t>taken < size:
                break
        row.bytes_sent += m.put - before
        if body.iov_len + one.opening.iov_len and not one.waited and window_closed(m, &one.s.x):
            one.waited = True
            self.words[k.W_WINDOW_WAITS] += 1
        return body.iov_len + one.opening.iov_len == 0

    cdef int _submitted(self, Connection* c) noexcept:
        """The last byte of these requests is with the kernel (IETF B.1.1)."""
        cdef StreamOfMany* one
        cdef int64_t now = mono_ns()
        while c.unsent.oldest != NULL:
            one = <StreamOfMany*>c.unsent.oldest.item
            if one.end > c.n.many.gone:
                break
            list_remove(&c.unsent, &one.place)
            one.places = NULL
            if one.s.x.row != NULL:
                one.s.x.row.t_submit = now
        return 0

    # -- connections --------------------------------------------------------------------------------------------------

    cdef int connected(self, Connection* c) except -1:
        """The socket is connected, and asked again until the server has said its SETTINGS."""
        if not c.connected:
            c.connected = True
            c.local_port = wire_local_port(c.fd)
        return self.write(c, mono_ns())

    cdef int _established(self, Connection* c, int64_t now) except -1:
        """The server's SETTINGS are there: the streams that waited for them are written, but for those that it does not take."""
        cdef Multiplex* m = c.n.many
        cdef TargetState* t = &self.pool.targets[c.target]
        cdef uint32_t generation = c.generation
        cdef Link* at = c.unwritten.oldest
        cdef StreamOfMany* one
        if c.ahead:
            t.connecting -= 1
            c.ahead = False
        c.state = C_BUSY
        while at != NULL:
            one = <StreamOfMany*>at.item
            at = at.younger
            if one.s.x.row != NULL:
                one.s.x.row.t_connected = now if c.tls == NULL else c.secured_from
                one.s.x.row.tls_us = c.tls_us
                if m.most == 0:
                    self.protocol.fail(&one.s.x, r.STATUS_CONNECTION_ERROR, r.ERROR_STREAM_REFUSED, now, now)
                    self.protocol.http2.reset(&c.n, &one.s.x, CODE_CANCEL)
        if m.most:
            t.streams = min(t.streams, m.most)
        self.pool.look(c)
        while c.generation == generation and m.open > m.most and c.unwritten.youngest != NULL and m.most:
            self._move(<StreamOfMany*>c.unwritten.youngest.item, now)
        return self.write(c, now) if c.generation == generation else 0

    cdef int _move(self, StreamOfMany* one, int64_t now) except -1:
        """Onto another connection, before anything of it was written."""
        cdef Connection* c = one.s.connection
        cdef Link* other = self.pool.targets[c.target].idle.oldest
        list_remove(&c.unwritten, &one.place)
        one.places = NULL
        if one.s.x.row == NULL:
            return 0
        stream_close(c.n.many, one.s.x.stream)
        c = self.pool.make(c.target) if other == NULL else <Connection*>other.item
        one.s.connection = c
        exchange_on(&one.s.x, &c.n.now)
        one.s.x.row.stream_begin = c.n.now.end
        self.protocol.http2.open(&c.n, &one.s.x)
        return self.submit(&one.s, now)

    cdef int connect_failed(self, Connection* c, int error_number, uint8_t error) except -1:
        cdef int64_t now = mono_ns()
        cdef Link* at = c.unwritten.oldest
        cdef StreamOfMany* one
        while at != NULL:
            one = <StreamOfMany*>at.item
            at = at.younger
            if one.s.x.row != NULL:
                one.s.x.row.error_number = error_number
                self.protocol.fail(&one.s.x, r.STATUS_CONNECTION_ERROR, error, now, now)
        return self.pool.drop(c, False)

    cdef int fed(self, Connection* c, Verdict verdict, int64_t user_t) except -1:
        """What a read made of the connection."""
        cdef uint32_t generation = c.generation
        if verdict == V_CLOSE:
            if c.state == C_CONNECTING:
                self.pool.failed(c, 0)
            return self.pool.drop(c, False)
        if c.state == C_CONNECTING and c.n.many.settled:
            self._established(c, user_t)
        if c.generation == generation and (c.unwritten.count or c.n.many.out_at < c.n.many.out_size
                                           or (c.tls != NULL and tls_unsent(c.tls))):
            self.write(c, user_t)
        if c.generation == generation and not self.users.only_wait:
            self._cancel_left(c, user_t)
        return self.pool.look(c) if c.generation == generation else 0

    cdef int broken(self, Connection* c, int error_number) except -1:
        cdef int64_t now = mono_ns()
        if c.quiet:
            self.words[k.W_IDLE_DROPPED] += 1
        elif c.state == C_CONNECTING:
            self.pool.failed(c, error_number)
        self.protocol.eof(&c.n, now, now, error_number)
        return self.pool.drop(c, False)

    # -- ends of streams ----------------------------------------------------------------------------------------------

    cdef int cancel(self, RequestStream* s, uint8_t status, uint8_t error, int64_t now) except -1:
        """Of this stream alone; but a server that has not said anything yet is left."""
        cdef Connection* c = s.connection
        cdef uint32_t generation = c.generation
        self.protocol.fail(&s.x, status, error, now, now)
        self.protocol.http2.reset(&c.n, &s.x, CODE_CANCEL)
        if c.state == C_CONNECTING or c.state == C_SECURING:
            return self.pool.drop(c, True) if c.n.many.open == 0 and not c.ahead else 0
        self.write(c, now)
        return self.pool.look(c) if c.generation == generation else 0

    cdef int _cancel_left(self, Connection* c, int64_t now) except -1:
        """Whose users leave after as many tokens as they have."""
        cdef uint32_t i = 0, generation = c.generation
        cdef OpenStream* at
        cdef RequestStream* s
        while c.generation == generation and i <= c.n.many.mask:
            at = &c.n.many.streams[i]
            s = <RequestStream*>at.x
            if at.id and s != NULL and s.leave_tokens and s.x.row.content_events >= s.leave_tokens:
                self.cancel(s, r.STATUS_CANCELLED, r.ERROR_CLIENT_CANCELLED, mono_ns())
                i = 0
            else:
                i += 1
        return 0

    cdef int end_tails(self, int64_t now) except -1:
        cdef uint32_t i
        cdef Connection* c
        if now < self.tails_at:
            return 0
        self.tails_at = now + TAILS_NS
        for i in range(self.pool.connection_count):
            c = self.pool.connections[i]
            if c.n.many != NULL and c.state == C_BUSY:
                self.protocol.http2.end_tails(&c.n)
                self.write(c, now)
                if c.n.many != NULL:
                    self.pool.look(c)
        return 0
