# One client connection of the simulated engine: what was read, what is still to be written, and the reply in progress.
# A stream of HTTP/2 is a connection without a socket: its carrier has that, and what the stream reads and writes is in frames there.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from fastllmload._ext.http.request cimport Unchunk
from fastllmload._ext.sim.sequence cimport Sequence
from fastllmload._ext.simbody.form cimport Piece, Stamp
from fastllmload._ext.simserver.truth cimport TruthRequest
from fastllmload._ext.tls.session cimport Tls, TlsContext

cdef enum ConnectionState:
    CONNECTION_FREE = 0
    CONNECTION_READING = 1      # waits for a request, or is inside one
    CONNECTION_BUSY = 2         # a reply is being produced
    CONNECTION_DRAINING = 3     # the reply is composed, its last bytes are queued
    CONNECTION_SILENT = 4       # never answered, on purpose
    CONNECTION_LINGERING = 5    # refused, or its handshake hangs; what still comes in is thrown away

cdef enum:
    UPGRADE_FAULT = 32
    SAID = 160                  # bytes of lines that visits.py adds to a head

cdef enum Filler:               # endless bytes of a hostile reply
    FILLER_NONE = 0
    FILLER_FIELDS = 1           # X-Filler: aaaa...\r\n
    FILLER_LETTERS = 2

cdef struct Reply:              # the reply in progress; reset for each request
    Stamp stamp
    uint8_t stream
    uint8_t head_sent
    uint8_t opened              # its first event was sent, or there is none
    uint8_t fault               # Fault of fault.pxd
    uint8_t close_after
    uint8_t page                # not a completion: no row, no count
    uint8_t last                # what is written next is the end of it
    uint8_t ended               # HTTP/2: END_STREAM or RST_STREAM was sent
    uint8_t old_client          # HTTP/1.0: no chunks
    uint8_t ending              # Ending of form.pxd
    uint16_t form               # number of the Form; of a page or an error, whose errors it has
    uint32_t fault_arg
    int32_t fault_at            # token before which the fault happens
    int32_t sent                # tokens written
    int32_t coalesce            # tokens per write
    uint32_t events             # events written
    Piece trailers              # gRPC: the fields that end the call; of size 0: the stream ends without
    uint8_t call_status         # ... and the status in them
    uint8_t said_size           # of *said*
    char[SAID] said             # lines that the head has more: a token of the session, the name of the backend
    int64_t load_ns             # from its arrival to its submission to the engine

cdef struct Many:               # HTTP/2: what a carrier has more than other connections
    Connection** streams        # open ones, in no order; owned
    uint32_t count              # of them
    uint32_t most
    uint32_t turn               # the one that is written to first
    uint32_t last_id            # of the client's latest stream
    uint32_t before_settings_id # of its latest one before it knew our SETTINGS
    uint32_t frame_most         # bytes of a payload that the client takes
    uint32_t taken              # bytes of DATA since the connection's window was opened again
    int64_t window              # bytes of bodies that the client takes now on the connection
    int64_t window_first        # that its streams begin with
    uint32_t block_stream       # whose head is being read; 0: none
    uint32_t block_frames       # that it came in
    uint8_t block_ends          # it is all of its request
    uint8_t settled             # the client's SETTINGS have come
    uint8_t leaving             # GOAWAY was sent: the connection closes with its last stream
    uint8_t closing             # it closes when nothing is queued
    uint8_t flooded             # a head without an end: nothing else can be sent
    unsigned char* block        # a head in several frames; owned
    size_t block_size
    size_t block_cap

cdef struct Connection:
    Sequence sequence           # first: a Sequence* from a cadence is the Connection*
    Connection* carrier         # of a stream; NULL: it has a socket of its own
    Many* many                  # of a carrier; owned. NULL: HTTP/1.1, or a stream
    uint32_t stream             # its id
    uint8_t more                # gRPC: the client may send another message
    uint8_t answered            # ... and has an answer, so the head has left
    uint32_t place              # in its carrier's streams
    int64_t window              # bytes of its body that the client takes now
    uint32_t taken              # bytes of DATA since its own window was opened again
    const uint8_t* head         # block of fields that goes before the next bytes; borrowed until they are sent or queued
    size_t head_size
    int fd
    uint32_t generation         # one more at each close; epoll's words carry it
    uint32_t number
    uint32_t requests           # served before the current one
    uint8_t state               # ConnectionState
    uint8_t want_out            # EPOLLOUT is registered
    uint8_t chunked_body        # the request's body is being unchunked
    uint8_t continued           # 100 Continue was sent
    uint8_t out_timer           # a timer for out_due is set
    uint8_t abrupt              # TLS: it ends without close_notify
    uint16_t messages           # WebSocket: 1 + number of the API whose messages it carries; 0: it is not upgraded
    uint8_t upgrade_fault_size  # of *upgrade_fault*
    char[UPGRADE_FAULT] upgrade_fault   # X-Fault of the upgrade, which is that of all its requests
    uint8_t fault               # Fault of its handshake
    uint32_t fault_arg
    Tls* tls                    # owned; NULL: clear text
    int64_t t_accept
    int64_t t_tls               # the handshake had ended
    int64_t t_sent              # just before the latest send()
    int64_t recv_first          # of the request that is being read: user time and kernel stamp of its first read ...
    int64_t recv_first_kernel
    int64_t recv_last           # ... and of its latest one
    int64_t recv_last_kernel
    uint8_t* read               # bytes of an incomplete or pipelined request; owned, NULL when none
    size_t read_size
    size_t read_cap
    size_t seen                 # of them, searched for the end of the head
    size_t need                 # size at which the request is complete; 0 = not known
    Unchunk unchunk
    uint8_t* out                # bytes (with TLS: records) that the socket did not take, or that wait for out_due; owned
    size_t out_at
    size_t out_size             # end of the bytes in out
    size_t out_cap
    int64_t out_due             # nothing leaves before this instant; 0 = at once
    int64_t drip_ns             # out leaves one byte at a time, so far apart; 0 = not
    uint64_t filler_left
    uint8_t filler              # Filler
    Reply reply
    TruthRequest truth
    Connection* next_free

cdef enum:
    READ_AGAIN = -1             # nothing to read
    READ_CLOSED = -2            # end of stream, reset, or any other error

cdef enum Sent:
    SENT_ALL = 0
    SENT_QUEUED = 1             # all or some of it is in out
    SENT_FAILED = 2             # the connection is gone; the caller closes it

cdef class Connections:
    cdef int epoll              # owned; the server's other descriptors are in it too
    cdef TlsContext context     # None: clear text
    cdef Connection** by_fd     # owned table; its connections are owned too, and are reused
    cdef size_t cap
    cdef Connection* free_list
    cdef readonly size_t open_count
    cdef readonly uint64_t accepted
    cdef Connection* adopt(self, int fd) except NULL
    cdef Connection* fresh(self) except NULL                # one that is not in use
    cdef void recycle(self, Connection* c) noexcept
    cdef Connection* of(self, uint64_t word) noexcept       # from an epoll word; NULL when it has been closed since
    cdef void drop(self, Connection* c, bint reset) noexcept
    cdef int watch(self, Connection* c, bint out) noexcept
    cdef int watch_with(self, Connection* c, int operation, bint out) noexcept
    cdef int make_place(self, int fd) except -1
    cdef Py_ssize_t send_filler(self, Connection* c) except? -1
    # The rest is about one connection and its socket.
    cdef int keep(self, Connection* c, const uint8_t* data, size_t size) except -1      # append to read
    cdef int room(self, Connection* c, size_t size) except -1                           # read can hold size bytes
    cdef int append(self, Connection* c, const uint8_t* data, size_t size) except -1    # to out
    cdef int queue(self, Connection* c, const uint8_t* data, size_t size) except -1     # to out, as one record or more
    # As one record if they are TLS_RECORD at most; c.t_sent is then the instant at which it was ready.
    cdef Sent send(self, Connection* c, const uint8_t* data, size_t size) except? SENT_FAILED
    cdef Sent send_raw(self, Connection* c, const uint8_t* data, size_t size) except? SENT_FAILED      # below TLS
    cdef Sent send_records(self, Connection* c) except? SENT_FAILED     # what TLS has to say
    cdef int say_end(self, Connection* c) except -1                     # close_notify
    cdef Sent flush(self, Connection* c, int64_t now) except? SENT_FAILED

cdef void many_free(Connection* c) noexcept

cdef inline Connection* carrier_of(Connection* c) noexcept nogil:
    return c if c.carrier == NULL else c.carrier

cdef inline bint pending(Connection* c) noexcept nogil:
    return c.out_at < c.out_size or c.filler_left > 0
