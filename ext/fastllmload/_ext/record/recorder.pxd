# Rows, events and text of a worker, into memory that another process writes out.
cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from fastllmload._ext.record.rowmemory cimport Places, RowMemory, fll_publish
cdef enum Status:               # spec/metrics 3.5, plus in_flight (only ever seen in a killed run), stream_error and host_lost
    STATUS_NOT_SENT = 0
    STATUS_IN_FLIGHT = 1
    STATUS_OK = 2
    STATUS_EMPTY = 3
    STATUS_REFUSED = 4
    STATUS_HTTP_ERROR = 5
    STATUS_RATE_LIMITED = 6
    STATUS_TRUNCATED = 7
    STATUS_TIMEOUT = 8
    STATUS_CONNECTION_ERROR = 9
    STATUS_PROTOCOL_ERROR = 10
    STATUS_CANCELLED = 11
    STATUS_STREAM_ERROR = 12
    STATUS_HOST_LOST = 13       # set when rows are merged: its host was lost, and it is not known how it ended
    STATUSES                    # how many: always the last

cdef enum ErrorClass:           # why, in one closed list; names in records/layout.py
    ERROR_NONE = 0
    ERROR_CONNECT_REFUSED = 1
    ERROR_CONNECT_TIMEOUT = 2
    ERROR_CONNECT_FAILED = 3            # any other errno of connect()
    ERROR_NO_PORT = 4                   # EADDRNOTAVAIL
    ERROR_NO_FD = 5                     # EMFILE, ENFILE
    ERROR_TLS = 6
    ERROR_SEND_FAILED = 7
    ERROR_RESET = 8                     # reset after the first response byte
    ERROR_REUSED_CONNECTION_LOST = 9    # died on a reused connection before any response byte
    ERROR_CLOSED_BEFORE_RESPONSE = 10   # the same on a fresh connection
    ERROR_CLOSED_IN_BODY = 11
    ERROR_HEAD_TOO_LARGE = 12
    ERROR_BAD_HEAD = 13
    ERROR_BAD_CHUNK = 14
    ERROR_EVENT_TOO_LARGE = 15
    ERROR_BAD_EVENT = 16                # not JSON, or no event
    ERROR_ENCODED_BODY = 17             # Content-Encoding that was not asked for
    ERROR_UNEXPECTED_CONTENT_TYPE = 18  # e.g. an HTML page with status 200
    ERROR_NO_DONE = 19                  # ended without finish_reason and without [DONE]
    ERROR_EVENT = 20                    # an error object inside a 200 stream
    ERROR_HTTP_STATUS = 21
    ERROR_DEADLINE = 22                 # request time-out
    ERROR_DRAIN = 23                    # cancelled by the drain time-out or an interrupt
    ERROR_BODY_TOO_LARGE = 24           # non-streaming body above the limit, or (connection_error) all of a worker's together
    ERROR_EXTRA_BYTES = 25              # bytes after the end of the response on a connection with nothing in flight
    ERROR_CLIENT_CANCELLED = 26         # the user left by plan: no failure of anybody
    ERROR_CLIENT_ABANDONED = 27         # the user left because a deadline had passed
    ERROR_FINISH_REASON = 28            # ended with a finish_reason that is not a normal end, such as abort
    ERROR_CUT_AFTER_END = 29            # status ok: the connection went after the finish_reason, before the message's own end
    ERROR_NOT_HTTP2 = 30                # the peer answered HTTP/2 with something else, or closed before its SETTINGS
    ERROR_BAD_FRAME = 31                # HTTP/2, WebSocket: a frame that breaks the protocol, or is larger than allowed
    ERROR_STREAM_RESET = 32             # HTTP/2: the server ended the stream with RST_STREAM
    ERROR_STREAM_REFUSED = 33           # the same with REFUSED_STREAM: it has not looked at the request
    ERROR_GOAWAY = 34                   # HTTP/2: the server left the connection with GOAWAY, and this stream with it
    ERROR_WINDOW_CLOSED = 35            # HTTP/2: time-out while the server's window let no more of the request through
    ERROR_HEADER_TABLE = 36             # HTTP/2: the server compressed a head with a table that it may not use
    ERROR_NOT_UPGRADED = 37             # WebSocket: the upgrade was answered with neither a proper 101 nor a failure
    ERROR_CLOSE_FRAME = 38              # WebSocket: the server sent a close frame
    ERROR_GRPC_STATUS = 39              # gRPC: the call ended with another status than 0, which is in error_number
    ERROR_NO_GRPC_STATUS = 40           # gRPC: the stream ended without one
    ERROR_CLASSES                       # how many: always the last

cdef enum RowFlag:
    FLAG_REUSED = 1             # the connection had served a request before
    FLAG_DONE = 2               # [DONE] seen
    FLAG_TOOL = 4
    FLAG_USAGE = 8              # usage seen
    FLAG_FIRST_COALESCED = 16   # t_first is the stamp of a later segment: an upper bound (set when rows are merged)
    FLAG_CLAMPED = 32           # a kernel stamp lay before t_submit (loopback) and was moved up to it
    FLAG_STREAM = 64            # the response was an event stream
    FLAG_LATE_CONNECT = 128     # no idle connection was ready at release

cdef enum Phase:
    PHASE_WARMUP = 0
    PHASE_MEASURE = 1           # ramp and window are distinguished by time, after the run
    PHASE_PROBE = 2

cdef enum StampClass:
    STAMP_USER = 0              # taken by the process after the read: an upper bound
    STAMP_KERNEL = 1            # of the segment that brought it: exact
    STAMP_COALESCED = 2         # of the newest of several segments that one read returned: an upper bound
    STAMP_TAP = 3               # of the segment that brought it, from the packet ring: exact

cdef packed struct RequestRow:  # 256 bytes; a time of 0 means that it did not happen
    int64_t t_sched
    int64_t t_dispatch
    int64_t t_submit_start      # first byte handed to the socket
    int64_t t_submit            # last byte handed to the socket
    int64_t t_connected         # connection established, when that happened after t_dispatch; else 0
    int64_t t_headers
    int64_t t_any
    int64_t t_first
    int64_t t_last
    int64_t t_end
    int64_t t_end_user          # user-space time at which the end was seen
    uint32_t stream_begin       # bytes that the connection had received before this response, modulo 2^32
    uint32_t head_end           # connection offset of the end of the response head, likewise; 0 without a head
    int32_t retry_after_ms      # -1: no Retry-After
    uint32_t tls_us             # duration of the TLS handshake of its connection, when that ended after t_dispatch; 0: none
    uint64_t bytes_sent
    uint64_t bytes_received
    uint64_t text_bytes         # bytes of generated text (JSON-escaped form)
    uint32_t request            # index in the plan's sequence
    uint32_t session
    uint32_t input_target       # tokens asked for by the plan
    uint32_t output_target
    int32_t prompt_tokens       # from usage; -1 not reported
    int32_t completion_tokens
    int32_t reasoning_tokens
    int32_t cached_tokens
    uint32_t events             # data events of any kind
    uint32_t content_events     # events on the content timeline
    uint32_t reasoning_events
    uint32_t leading_events     # whitespace-only events before t_first
    uint32_t coalesced_events   # of STAMP_COALESCED (set when rows are merged)
    uint32_t reads
    uint32_t comments
    int32_t error_number        # errno of a connection error; 0 = none
    uint32_t local_port         # of the connection, to match a packet capture
    uint16_t http_status
    uint16_t request_class
    uint16_t url
    uint16_t worker
    uint16_t turn
    uint8_t status              # Status
    uint8_t error               # ErrorClass
    uint8_t finish              # FinishReason
    uint8_t flags               # RowFlag
    uint8_t phase               # Phase
    uint8_t stamps              # StampClass of t_first (set when rows are merged)
    uint16_t client             # ClientFlag (leaving.pxd)
    uint16_t backend            # that answered (backends.pxd), a number of its worker; 0: it did not say
    int64_t server_total_ns     # durations that an Ollama server says of itself; 0: it said none
    int64_t server_load_ns
    int64_t server_prompt_eval_ns
    int64_t server_eval_ns
    int64_t t_wire              # when the segment with the last byte of the request left; 0: not observed

cdef packed struct EventRow:    # 24 bytes; the event arrived between t_ns - bracket_ns and t_ns
    int64_t t_ns                # CLOCK_MONOTONIC
    uint32_t row                # row number in this worker's requests file
    uint8_t kind                # EventKind
    uint8_t stamp               # low 2 bits StampClass; bit 2: same read as the request's previous event; bit 3: without text
    uint16_t tokens             # tokens that the event carries; 0: the server did not say; TOKENS_NONE: none
    uint32_t bracket_ns         # 0: t_ns is exact; BRACKET_OPEN: nothing is known but that it came after the submission
    uint32_t offset             # bytes received on the connection with the event's last byte, modulo 2^32

cdef enum:
    BRACKET_OPEN = 0xFFFFFFFF
    TOKENS_NONE = 0xFFFF
    TOKENS_MOST = 0xFFFE        # more are recorded as this number

cdef struct Chunk:              # a block of event rows
    uint8_t* base               # borrowed from the memory

@cython.final
cdef class EventCount:
    # Events of a recorder.
    cdef readonly uint64_t lost             # found no memory
    cdef Chunk* current                     # the block that is being filled; borrowed, NULL before the first event
    cdef Chunk* chunks                      # of each block; owned

@cython.final
cdef class Recorder:
    # All that a worker writes while the clock runs. Not thread-safe: one per worker process. It writes to memory
    # (rowmemory.pxd), which is faulted in before the clock starts, and never waits for a disk.
    cdef readonly RowMemory memory
    cdef readonly object writer             # writes to the disk from this process; None: another process does that
    cdef readonly EventCount events
    cdef readonly bint text_on
    cdef readonly bint closed
    cdef EventRow* slot                     # where the next event goes; borrowed from the memory
    cdef EventRow* slot_end                 # of its block
    cdef uint64_t* recorded                 # events so far: a word of the memory
    cdef Places row_places
    cdef Places event_places
    cdef Places text_places
    cdef uint64_t text_room                 # bytes of the text stream up to the end of its last block
    cdef dict _open                         # rows opened from Python: number -> address
    # NULL when there is no memory left. The row is zeroed but for status IN_FLIGHT and what the caller fills; *number* is
    # its row number. It stays where it is until end_row().
    cdef RequestRow* open_row(self, uint32_t* number) except? NULL
    cdef int end_row(self, RequestRow* row) except -1       # nothing of it may be used afterwards
    cdef int new_event_window(self) except -1
    cdef int write_text(self, uint32_t row, const unsigned char* text, uint32_t size) except -1
    cdef int64_t _take(self, Places* places) except? -1

    # 0: recorded; 1: there is no memory left, counted in events.lost
    cdef inline int event(self, int64_t t_ns, uint32_t row, uint8_t kind, uint8_t stamp, uint16_t tokens,
                          uint32_t bracket_ns, uint32_t offset) except -1:
        cdef EventRow* e = self.slot
        if e == self.slot_end:
            if self.new_event_window():
                return 1
            e = self.slot
        e.t_ns = t_ns
        e.row = row
        e.kind = kind
        e.stamp = stamp
        e.tokens = tokens
        e.bracket_ns = bracket_ns
        e.offset = offset
        self.slot = e + 1
        fll_publish(self.recorded, self.recorded[0] + 1)      # last: the writer reads up to here
        return 0
