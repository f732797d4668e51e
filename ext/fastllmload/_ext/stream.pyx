"""The event loop's side of a connection that it owns (TLS, or `--transport asyncio`): a buffered protocol that hands
everything to the reactor. Reads land in the reactor's one shared buffer, and their stamps are those of user space.

What the loop tells of a connection can come after the reactor has dropped it: the generation tells.
"""

import errno

from libc.stdint cimport int64_t, uint32_t, uint64_t

cimport fastllmload._ext.counters as k
cimport fastllmload._ext.recorder as r
from fastllmload._ext.clock cimport mono_ns
from fastllmload._ext.conn cimport C_CONNECTING, C_FREE, C_SENDING, Conn
from fastllmload._ext.reactor cimport Reactor
from fastllmload._ext.transport cimport BUFFER


cdef class Stream:
    """asyncio.BufferedProtocol of one connection; *number* and *generation* name it in the reactor."""

    cdef Reactor reactor
    cdef uint64_t tag
    cdef object transport
    cdef object view
    cdef Py_ssize_t sending         # bytes of the request that the transport has not let go of
    cdef bint paused

    def __init__(self, Reactor reactor not None, uint32_t number, uint32_t generation):
        self.reactor = reactor
        self.tag = <uint64_t>generation << 32 | number
        self.view = memoryview(<unsigned char[:BUFFER]>reactor.buffer)

    cdef Conn* _conn(self) noexcept:
        """NULL: the connection is no longer wanted, or the run has failed."""
        cdef Conn* c = self.reactor.pool.find(self.tag)
        return c if c != NULL and c.state != C_FREE and self.reactor.failure is None else NULL

    # -- the loop's callbacks: what one raises is a bug, and ends the run (Reactor.fail) ----------------------------------

    def connection_made(self, transport) -> None:
        try:
            self._made(transport)
        except BaseException as error:
            self.reactor.fail(error)

    def connect_failed(self, int error_number, bint tls) -> None:
        """From the connector: no connection came about. *error_number* is an errno, 0 when there is none."""
        cdef Conn* c = self._conn()
        try:
            if c != NULL and c.state == C_CONNECTING:
                self.reactor.connect_failed(c, error_number, tls)
                self.reactor.loop_read(mono_ns())
        except BaseException as error:
            self.reactor.fail(error)

    def get_buffer(self, sizehint):
        return self.view

    def buffer_updated(self, Py_ssize_t size) -> None:
        cdef Conn* c = self._conn()
        try:
            if c != NULL:
                self._read(c, size, mono_ns())
        except BaseException as error:
            self.reactor.fail(error)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error) -> None:
        cdef Conn* c = self._conn()
        number = 0 if error is None else getattr(error, "errno", None) or errno.ECONNRESET
        try:
            if c != NULL:
                self.reactor.broken(c, number)
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

    cdef int _made(self, transport) except -1:
        cdef Conn* c = self._conn()
        self.transport = transport
        # With a high mark of 0 the loop's TLS transport pauses at every write, also when nothing is left in its buffer.
        transport.set_write_buffer_limits(high=1, low=0)
        if c == NULL or c.state != C_CONNECTING:
            transport.abort()
            return 0
        own = transport.get_extra_info("sockname")
        c.local_port = <uint32_t>own[1] if isinstance(own, tuple) else 0
        self.reactor.connected(c)
        return self.reactor.loop_read(mono_ns())

    cdef int _read(self, Conn* c, Py_ssize_t size, int64_t user_t) except -1:
        cdef bint had = c.x.row != NULL
        self.reactor.words[k.W_READS] += 1
        self.reactor.words[k.W_BYTES_IN] += size
        self.reactor.words[k.W_USER_STAMPS] += 1
        self.reactor.fed(c, self.reactor.protocol.feed(&c.x, self.reactor.buffer, <size_t>size, user_t,
                                                       self.reactor.loop_earliest(user_t), r.STAMP_USER, user_t), had, user_t)
        return self.reactor.loop_read(user_t)

    cdef int _sent(self, Py_ssize_t size) except -1:
        cdef Conn* c = self._conn()
        if c != NULL and c.state == C_SENDING and c.x.row != NULL:
            c.x.row.bytes_sent += size
            self.reactor.words[k.W_BYTES_OUT] += size
            self.reactor.submitted(c)
        return 0

    def close(self, bint reset) -> None:
        if self.transport is None:
            return
        if reset:
            self.transport.abort()
        else:
            self.transport.close()
