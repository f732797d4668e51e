"""The event loop's side of a connection that it owns (TLS, or `--transport asyncio`): a buffered protocol that hands
everything to the reactor. Reads land in the reactor's one shared buffer.
"""

import errno

from libc.stdint cimport uint32_t


cdef class Stream:
    """asyncio.BufferedProtocol of one connection; *number* and *generation* name it in the reactor."""

    cdef object reactor
    cdef uint32_t number
    cdef uint32_t generation
    cdef object transport
    cdef object view
    cdef Py_ssize_t sending         # bytes of the request that the transport has not let go of
    cdef bint paused

    def __init__(self, reactor, uint32_t number, uint32_t generation):
        self.reactor = reactor
        self.number = number
        self.generation = generation
        self.view = reactor.read_buffer()

    def connection_made(self, transport) -> None:
        self.transport = transport
        # With a high mark of 0 the loop's TLS transport pauses at every write, also when nothing is left in its buffer.
        transport.set_write_buffer_limits(high=1, low=0)
        if not self.reactor.stream_connected(self.number, self.generation):
            transport.abort()

    def connect_failed(self, int error_number, bint tls) -> None:
        """From the connector: no connection came about. *error_number* is an errno, 0 when there is none."""
        self.reactor.stream_connect_failed(self.number, self.generation, error_number, tls)

    def get_buffer(self, sizehint):
        return self.view

    def buffer_updated(self, Py_ssize_t size) -> None:
        self.reactor.stream_data(self.number, self.generation, size)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error) -> None:
        number = 0 if error is None else getattr(error, "errno", None) or errno.ECONNRESET
        self.reactor.stream_lost(self.number, self.generation, number)

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        if self.sending:
            size, self.sending = self.sending, 0
            self.reactor.stream_sent(self.number, self.generation, size)

    def send(self, bytes request) -> None:
        """Hand over a whole request; the reactor hears when the last byte has left the transport's buffer."""
        self.sending = len(request)
        self.transport.write(request)
        if not self.paused and self.sending:
            self.sending = 0
            self.reactor.stream_sent(self.number, self.generation, len(request))

    def close(self, bint reset) -> None:
        if self.transport is None:
            return
        if reset:
            self.transport.abort()
        else:
            self.transport.close()
