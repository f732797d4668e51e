# What the server really did and when: fixed records, buffered, one append-only file. simulator/truth.py reads it.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t

cdef enum TruthBlock:               # a file is 16 bytes of head, then blocks: uint32 TruthBlock, uint32 records, the records
    TRUTH_EVENTS = 1
    TRUTH_REQUESTS = 2
    TRUTH_NOTES = 3                 # of bytes: uint32 serial, uint32 size, text, for each request
    TRUTH_CALLS = 4                 # of bytes: int64 t_ns, uint32 status, text: one call of a control route

cdef enum:
    TRUTH_VERSION = 7               # 3: how long the send() of an event took; 4: TLS handshakes; 5: gRPC; 6: notes; 7: calls
    TRUTH_EVENT_CAP = 65536         # records buffered: 1.25 MiB
    TRUTH_REQUEST_CAP = 8192
    TRUTH_NOTE_CAP = 1 << 20        # bytes

cdef packed struct TruthEvent:      # 20 bytes
    int64_t t_ns                    # CLOCK_MONOTONIC just before the send() that carries it
    uint32_t serial                 # of the request in this process
    uint32_t index_kind             # index in the stream << 8 | QUEUED | EventKind of delta.pxd
    uint32_t took_ns                # of that send(): on loopback the peer's kernel stamps the segment inside it

cdef enum:
    TRUTH_QUEUED = 0x80             # the socket did not take all of it at t_ns: it left later

cdef packed struct TruthRequest:    # 140 bytes; a time of 0 means that it did not happen
    uint32_t serial
    uint32_t key                    # last number of X-Fastllmload-Request, 0xFFFFFFFF when absent
    uint32_t phase                  # the number before it
    uint32_t connection             # number of the connection in this process, from 0
    int32_t prompt_tokens
    int32_t output_tokens           # tokens put on the wire
    int32_t cached_tokens
    uint16_t status                 # HTTP status of the response; 0 = none was sent
    uint8_t flags                   # TruthFlag
    uint8_t fault                   # Fault of fault.pxd
    int64_t t_accept                # of the connection
    int64_t t_recv_first            # the read that delivered the request's first byte
    int64_t t_recv_first_kernel     # its newest segment reached the socket
    int64_t t_recv_last             # the read that delivered its last byte
    int64_t t_recv_last_kernel
    int64_t t_admitted              # left the waiting queue
    int64_t t_first                 # just before the send() of its first token
    int64_t t_end                   # just before the send() of its last byte; the instant of the loss when it was aborted
    int64_t total_ns                # durations in the last object of an Ollama reply; 0: none were said
    int64_t load_ns
    int64_t prompt_eval_ns
    int64_t eval_ns
    int64_t t_tls                   # the connection's TLS handshake had ended; 0: it is in clear text
    int32_t call_status             # gRPC: the grpc-status that was sent; -1: none

cdef enum TruthFlag:
    TRUTH_STREAM = 1
    TRUTH_ABORTED = 2               # the client went away first
    TRUTH_REUSED = 4                # the connection had served a request before
    TRUTH_PREEMPTED = 8
    TRUTH_LENGTH = 16               # finish_reason was length, not stop
    TRUTH_RESUMED = 32              # the connection's TLS session continues an earlier one

cdef class Truth:
    cdef readonly bint on
    cdef int fd
    cdef TruthEvent* events         # owned; NULL when off
    cdef size_t event_count
    cdef TruthRequest* requests     # owned
    cdef size_t request_count
    cdef bytearray notes
    cdef int flush(self) except -1
    cdef int event_block(self) except -1
    cdef int request_block(self) except -1
    cdef int write_all(self, const void* data, size_t size) except -1
    cdef int request(self, TruthRequest* row) except -1
    cdef int note(self, uint32_t serial, bytes text) except -1        # what a request said of its session
    cdef int note_block(self) except -1
    cdef int call(self, int64_t t_ns, int status, bytes text) except -1       # written at once: calls are rare

cdef inline int truth_event(Truth truth, int64_t t_ns, int64_t took, uint32_t serial, uint32_t index,
                            uint8_t kind) except -1:
    cdef TruthEvent* e
    if truth.event_count == TRUTH_EVENT_CAP:
        truth.event_block()
    e = &truth.events[truth.event_count]
    truth.event_count += 1
    e.t_ns = t_ns
    e.serial = serial
    e.index_kind = index << 8 | kind
    e.took_ns = <uint32_t>min(took, <int64_t>0xFFFFFFFF)
    return 0
