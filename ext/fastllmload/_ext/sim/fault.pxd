# Faults on demand: which reply or handshake goes wrong, and how. What each does to the bytes is in responder.pyx and session.pyx.
from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef enum Fault:                # the numbers are in the truth log
    FAULT_NONE = 0
    FAULT_SPLIT = 1
    FAULT_COALESCE = 2
    FAULT_SLOW_HEAD = 3
    FAULT_STALL = 4
    FAULT_RESET = 5
    FAULT_CLOSE = 6
    FAULT_ERROR_EVENT = 7
    FAULT_BAD_JSON = 8
    FAULT_NO_DONE = 9
    FAULT_STATUS = 10
    FAULT_HUGE_EVENT = 11
    FAULT_EMPTY = 12
    FAULT_NO_BODY = 13
    FAULT_HTML = 14
    FAULT_GZIP = 15
    FAULT_ENDLESS_HEAD = 16
    FAULT_DRIP = 17
    FAULT_DEEP_JSON = 18
    FAULT_HUGE_LINE = 19
    FAULT_CRLF = 20
    FAULT_CR = 21
    FAULT_COMMENTS = 22
    FAULT_IDLE_CLOSE = 23
    FAULT_NEVER = 24
    FAULT_CLOSE_BEFORE_RESPONSE = 25
    FAULT_NO_USAGE = 26
    FAULT_WHITESPACE_FIRST = 27
    FAULT_REASONING = 28
    FAULT_UNTIL_CLOSE = 29
    FAULT_CONTENT_LENGTH = 30
    FAULT_TOOL_CALLS = 31
    FAULT_ABORT = 32
    FAULT_MULTI_TOKEN = 33
    FAULT_EMPTY_TEXT = 34
    FAULT_TLS_ALERT = 35
    FAULT_TLS_TRUNCATE = 36
    FAULT_TLS_GARBAGE = 37
    FAULT_RESET_STREAM = 38     # HTTP/2
    FAULT_GOAWAY = 39
    FAULT_LARGE_FRAME = 40
    FAULT_STRAY_FRAME = 41
    FAULT_CLOSE_FRAME = 42      # WebSocket
    FAULT_FRAGMENTS = 43
    FAULT_CUT_MESSAGE = 44      # gRPC
    FAULT_NO_HTTP2 = 45         # from here on: of connections
    FAULT_HANDSHAKE_HANG = 46
    FAULT_HANDSHAKE_CLOSE = 47
    FAULT_HANDSHAKE_ALERT = 48
    FAULT_HANDSHAKE_GARBAGE = 49
    FAULTS = 50

cdef enum:
    MIDDLE = 0xFFFFFFFF         # argument: in the middle of the reply

cdef class Faults:
    cdef uint64_t seed
    cdef size_t count
    cdef double[32] upto        # cumulated probabilities
    cdef uint8_t[32] fault
    cdef uint32_t[32] arg
    cdef Fault of(self, uint64_t serial, uint32_t* arg) noexcept
