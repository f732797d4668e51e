"""The event loop's side of a connection that it owns (`--transport asyncio`): a buffered protocol that hands
everything to the reactor. Reads land in the reactor's one shared buffer.

The loop reads without asking for the kernel's stamps. So just before each of its reads, when it asks for the buffer, the socket is
peeked at: the kernel says how many bytes lie there, and the stamp of the newest segment among them, without a copy. What the
read returns beyond those bytes came in between, and has its stamp in user space.

What the loop tells of a connection can come after the reactor has dropped it: the generation tells.
"""

import errno

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cimport fastllmload._ext.record.counters as k
cimport fastllmload._ext.record.recorder as r
from fastllmload._ext.receive.exchange cimport V_CLOSE, V_REUSE, Verdict
from fastllmload._ext.record.histogram cimport hdr_record
from fastllmload._ext.send.connection cimport C_BUSY, C_CONNECTING, C_FREE, PIECES, Connection
from fastllmload._ext.send.reactor cimport Reactor
from fastllmload._ext.send.transport cimport BUFFER, Transport
from fastllmload._ext.system.clock cimport mono_ns
from fastllmload._ext.system.wire cimport wire_ask_stamps, wire_peek, wire_segments


cdef class LoopConnection:
    """asyncio.BufferedProtocol of one connection; *number* and *generation* name it in the reactor."""

    cdef Reactor reactor
    cdef uint64_t tag
    cdef object transport
    cdef object view
    cdef Py_ssize_t sending         # bytes of the request that the transport has not let go of
    cdef bint paused
    cdef int fd                     # -1: kernel stamps are not to be had. Borrowed from the transport
    cdef Py_ssize_t peeked          # bytes that lay in the socket just before the latest read; 0: not known
    cdef int64_t peeked_at          # before that poll
    cdef int64_t stamp              # the kernel's of the newest of them (CLOCK_REALTIME)

    def __init__(self, Reactor reactor not None, uint32_t number, uint32_t generation):
        self.reactor = reactor
        self.tag = <uint64_t>generation << 32 | number
        self.view = memoryview(<unsigned char[:BUFFER]>reactor.transport.buffer)
        self.fd = -1

    cdef Connection* _find(self) noexcept:
        """NULL: the connection is no longer wanted, or the run has failed."""
        cdef Connection* c = self.reactor.pool.find(self.tag)
        return c if c != NULL and c.state != C_FREE and self.reactor.failure is None else NULL

    # -- the loop's callbacks: what one raises is a bug, and ends the run (Reactor.fail) ----------------------------------

    def connection_made(self, transport) -> None:
        try:
            self._made(transport)
        except BaseException as error:
            self.reactor.fail(error)

    def connect_failed(self, int error_number) -> None:
        """From the connector: no connection came about. *error_number* is an errno, 0 when there is none."""
        cdef Connection* c = self._find()
        try:
            if c != NULL and c.state == C_CONNECTING:
                self.reactor.transport.connect_failed(c, error_number, False)
                self.reactor.loop_read(mono_ns())
        except BaseException as error:
            self.reactor.fail(error)

    def get_buffer(self, sizehint):
        self._peek(BUFFER)
        return self.view

    def buffer_updated(self, Py_ssize_t size) -> None:
        cdef Connection* c = self._find()
        try:
            if c != NULL:
                self._read(c, size, mono_ns())
        except BaseException as error:
            self.reactor.fail(error)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error) -> None:
        cdef Connection* c = self._find()
        number = 0 if error is None else getattr(error, "errno", None) or errno.ECONNRESET
        try:
            if c != NULL:
                self.reactor.transport.broken(c, number)
                self.reactor.loop_read(mono_ns())
        except BaseException as failure:
            self.reactor.fail(failure)

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        try:
            if self.sending:
                size, self.sending = self.sending, 0
                self._sent(size)
        except BaseException as error:
            self.reactor.fail(error)

    def send(self, bytes request) -> None:
        """Hand over a whole request; the reactor hears when the last byte has left the transport's buffer."""
        self.sending = len(request)
        self.transport.write(request)
        if not self.paused and self.sending:
            self.sending = 0
            self._sent(len(request))

    # -- reads ------------------------------------------------------------------------------------------------------------

    cdef int _use_socket(self, transport) except -1:
        """Have the kernel stamp what comes, where it can and is to."""
        if self.reactor.pool.stamps:
            self.fd = transport.get_extra_info("socket").fileno()
            if not wire_ask_stamps(self.fd):        # a Unix socket
                self.fd = -1
        return 0

    cdef void _peek(self, Py_ssize_t most) noexcept:
        self.peeked = 0
        self.stamp = 0
        if self.fd >= 0:
            self.peeked_at = mono_ns()
            self.peeked = max(wire_peek(self.fd, <size_t>most, &self.stamp), 0)

    cdef int _made(self, transport) except -1:
        cdef Connection* c = self._find()
        self.transport = transport
        transport.set_write_buffer_limits(high=0)
        if c == NULL or c.state != C_CONNECTING:
            transport.abort()
            return 0
        self._use_socket(transport)
        own = transport.get_extra_info("sockname")
        c.local_port = <uint32_t>own[1] if isinstance(own, tuple) else 0
        self.reactor.transport.connected(c)
        return self.reactor.loop_read(mono_ns())

    cdef int _read(self, Connection* c, Py_ssize_t size, int64_t user_t) except -1:
        cdef Py_ssize_t stamped = 0                 # how many of them came at the kernel's stamp or before
        cdef int64_t low = self.reactor.loop_earliest(user_t)
        cdef int64_t late
        self.reactor.words[k.W_READS] += 1
        self.reactor.words[k.W_BYTES_IN] += size
        if self.stamp:
            self.reactor.transport.check_clock()
            if user_t >= self.reactor.transport.unsure_until:
                stamped = min(size, self.peeked)
        if stamped:
            late = max(user_t - (self.stamp - self.reactor.transport.offset), 0)
            self.reactor.words[k.W_KERNEL_STAMPS] += 1
            hdr_record(&self.reactor.transport.socket_to_user, late)
            self._feed(c, 0, stamped, user_t - late, low, r.STAMP_KERNEL, user_t, stamped < size)
            c = self._find()
        else:
            self.reactor.words[k.W_USER_STAMPS] += 1
        if stamped < size and c != NULL:
            self._feed(c, stamped, size - stamped, user_t, self.peeked_at if stamped else low, r.STAMP_USER, user_t, False)
        return self.reactor.loop_read(user_t)

    cdef int _feed(self, Connection* c, Py_ssize_t begin, Py_ssize_t size, int64_t t, int64_t low, uint8_t stamp_class,
                   int64_t user_t, bint more) except -1:
        """*more*: bytes of the same read follow."""
        cdef Verdict verdict
        cdef Transport transport = self.reactor.transport
        c.reads += 1
        verdict = transport.protocol.feed(&c.n, transport.buffer + begin, <size_t>size, t, low, stamp_class, user_t)
        if transport.protocol.timeline.unsettled:
            self._settle(c, low)
        return transport.fed(c, V_CLOSE if more and verdict == V_REUSE else verdict, user_t)

    cdef int _settle(self, Connection* c, int64_t low) except -1:
        cdef uint32_t segments = 0
        cdef bint known = wire_segments(self.fd, c.n.now.end, &segments)
        cdef bint exact = known and c.extra_known and segments - c.reads == c.extra
        c.extra_known = known
        if known:
            c.extra = segments - c.reads
        return self.reactor.transport.protocol.timeline.settle(exact, 0 if exact else low)

    cdef int _sent(self, Py_ssize_t size) except -1:
        cdef Connection* c = self._find()
        if c != NULL and c.state == C_BUSY and c.piece < PIECES:
            c.stream.x.row.bytes_sent += size
            self.reactor.words[k.W_BYTES_OUT] += size
            self.reactor.transport.submitted(c)
        return 0

    def close(self, bint reset) -> None:
        if self.transport is None:
            return
        if reset:
            self.transport.abort()
        else:
            self.transport.close()
