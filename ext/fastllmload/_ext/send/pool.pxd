# Connections of a worker: which targets they go to, which are idle, which are opened ahead. Opens and closes them; what is
# written and read is the transport's.
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from fastllmload._ext.send.connection cimport Connection, List, RequestStream, StreamOfMany, TargetState
from fastllmload._ext.system.wire cimport Address
from fastllmload._ext.tls.session cimport TlsContext

cdef class Pool:
    cdef int epfd                       # where sockets are watched; borrowed
    cdef int64_t* words                 # counters.pxd; borrowed
    cdef size_t max_event               # of the exchanges that connections carry
    cdef bint stamps                    # kernel stamps are asked for
    cdef bint fresh                     # one connection per request: nothing is kept, nothing opened ahead
    cdef bint foreign                   # some target's connections are the event loop's
    cdef TargetState* targets           # owned
    cdef Py_ssize_t target_count
    cdef double weights                 # of all targets
    cdef Address* sources               # owned
    cdef Py_ssize_t source_count
    cdef Py_ssize_t source_next
    cdef Connection** connections                               # owned; what they point at lies in blocks
    cdef void** block                   # the latest; begins with the address of the one before. All are owned
    cdef uint8_t* room                  # what is left of it
    cdef size_t room_left
    cdef uint32_t connection_count
    cdef uint32_t connection_cap
    cdef List streams                   # those of HTTP/2 that are free
    cdef uint32_t in_use                # and how many are not
    cdef List tails                     # whose request has ended and whose message has not, by how long they may still last
    cdef TlsContext tls                 # of the targets that have it; None: none
    cdef list spare                     # numbers of free structs
    cdef dict loop_connections                   # number -> LoopConnection of those that the event loop owns
    cdef object connector               # called with (target, number, generation), returns the LoopConnection that it opens

    # The connection that *tag* (generation above, number below) names; NULL when that was an earlier use of it.
    cdef inline Connection* find(self, uint64_t tag) noexcept:
        cdef Connection* c = self.connections[<uint32_t>tag]
        return c if c.generation == <uint32_t>(tag >> 32) else NULL

    cdef int add_target(self, str family, address, int port, bint over_asyncio, double weight, bytes name) except -1
    cdef Connection* make(self, uint16_t target) except NULL    # not connected yet
    cdef uint8_t* _memory(self, size_t* size) except NULL
    cdef Connection* _new(self) except NULL
    cdef StreamOfMany* _new_of_many(self) except NULL
    cdef RequestStream* reuse(self, uint16_t target) except? NULL       # on the connection that is idle longest, or NULL
    cdef RequestStream* begin(self, uint16_t target) except NULL        # on a new connection
    # The stream of connection *number* whose row has the number *row*; NULL: it has ended.
    cdef inline RequestStream* stream(self, uint32_t number, uint32_t row) noexcept:
        cdef RequestStream* s = &self.connections[number].stream
        if self.in_use:
            s = self._stream_of_many(row)
            if s != NULL:
                return s
            s = &self.connections[number].stream
        return s if s.x.row != NULL and s.x.number == row else NULL

    cdef int use_websocket(self, uint16_t target, bytes upgrade) except -1      # which is the request that asks for it
    # HTTP/2
    cdef int use_http2(self, uint16_t target, uint32_t streams) except -1       # most of them on a connection
    cdef RequestStream* stream_on(self, Connection* c) except NULL      # one more
    cdef int release(self, RequestStream* s) except -1          # its request has ended
    cdef int look(self, Connection* c) except -1                # whether it has room, and whether it is idle
    cdef RequestStream* _stream_of_many(self, uint32_t row) noexcept
    cdef uint32_t _places(self, TargetState* t) noexcept        # for streams on connections that are there or under way
    cdef void _farewell(self, Connection* c) noexcept

    cdef int put(self, Connection* c) except -1                 # it is idle from now on
    cdef int connect(self, Connection* c) except -1             # 0: under way; else the errno of its failure
    cdef int secure(self, Connection* c, int64_t now) except -1                 # C_SECURING: it is connected, and TLS begins
    cdef int secured(self, Connection* c, int64_t now) except -1                # the handshake has succeeded
    cdef Py_ssize_t send_records(self, Connection* c) noexcept   # of TLS, as far as the socket takes them: 0 when these are all, or -errno
    cdef void _end_tls(self, Connection* c, bint reset) noexcept
    @cython.final
    cdef int _watch(self, Connection* c, int operation) noexcept
    cdef int again(self, Connection* c) except -1               # report it once more if there is still something to read
    cdef int tail(self, Connection* c, int64_t now) except -1   # its request has ended; the message may end for a while
    cdef int end_tails(self, int64_t now) except -1             # drop those which have not
    cdef uint8_t failed(self, Connection* c, int error_number) noexcept  # the ErrorClass of that; drop() is to follow
    cdef void _left(self, Connection* c) noexcept
    cdef int drop(self, Connection* c, bint reset) except -1    # close and forget; its request has ended before
    # Until every target has its share of *count* by its weight, idle or under way; at most that many are begun now.
    cdef int open_ahead(self, uint32_t count, uint32_t at_once) except -1
    cdef uint32_t idle(self) noexcept
    cdef uint32_t connecting(self) noexcept                     # ahead; requests that wait for a connection are not in it
    cdef int close_idle(self) except -1                         # what carries no request
