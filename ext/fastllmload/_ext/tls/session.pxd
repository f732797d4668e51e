# TLS without a socket: records in, plaintext out, and back. OpenSSL's C functions on memory, for a client and for a server.
cimport cython
from libc.stdint cimport uint8_t, uint16_t, uint32_t

cpdef enum TlsState:
    TLS_HANDSHAKE = 0
    TLS_OPEN = 1
    TLS_CLOSED = 2          # the peer has said that it sends no more
    TLS_FAILED = 3          # tls_problem() says why; nothing that follows can be read

cdef enum:
    TLS_RECORD = 16384      # bytes of plaintext in a record at most
    TLS_PLAIN = 2 * TLS_RECORD                  # beyond what is fed: plaintext of a record that had begun before
    TLS_HEADER = 5          # bytes before a record

cdef struct Tls:            # of one connection
    void* ssl               # OpenSSL's SSL, owned
    const unsigned char* data                   # what is fed and not taken yet; borrowed for a call
    size_t left
    unsigned char* out      # records to send, from *out_at* on; owned
    size_t out_size
    size_t out_cap
    size_t out_at
    uint32_t received       # bytes that were fed so far, modulo 2^32
    uint16_t rest           # bytes of the latest record that are still to come
    uint8_t header_size     # what is there of a header that is not complete
    unsigned char[TLS_HEADER] header
    uint8_t astray          # these are not records
    uint8_t state           # TlsState
    uint8_t resumed         # the handshake continued an earlier session
    unsigned long error     # OpenSSL's code of the failure
    void** session          # client: where the next handshake with this peer finds a session to continue; borrowed, may be NULL

@cython.final
cdef class TlsContext:
    cdef void* ctx          # OpenSSL's SSL_CTX, owned
    cdef bint server
    cdef bytes protocols    # for ALPN, each with its length before it; empty: not used
    # For a connection of this context. *name*: of the server, as its certificate has it; NULL: it is not checked. *session*
    # as in Tls.
    cdef Tls* connection(self, const char* name, bint is_address, void** session) except NULL

cdef void tls_free(Tls* t) noexcept
# Take *size* bytes that came, and write what they say into *plain*, which has room for *size* + TLS_PLAIN bytes. Returns the number
# of bytes. In TLS_HANDSHAKE it continues the handshake; with a *size* of 0 a client's begins.
cdef Py_ssize_t tls_read(Tls* t, const unsigned char* data, size_t size, unsigned char* plain) noexcept
cdef int tls_write(Tls* t, const void* data, size_t size) except -1     # at once into *out*, records of TLS_RECORD at most
cdef void tls_end(Tls* t) noexcept                              # say into *out* that no more is sent
cdef void tls_sent(Tls* t, size_t size) noexcept                # so much of *out* is with the kernel
cdef inline size_t tls_unsent(const Tls* t) noexcept nogil:
    return t.out_size - t.out_at
# The latest read ended with a record: its last byte is the last one of what it brought.
cdef inline bint tls_complete(const Tls* t) noexcept nogil:
    return t.rest == 0 and t.header_size == 0 and not t.astray
cdef bytes tls_protocol(Tls* t)                                  # that ALPN agreed on; empty: none
cdef str tls_problem(Tls* t)                                    # of TLS_FAILED, in OpenSSL's words
cpdef bint is_address(str name) except -1                       # of a host: it is checked otherwise than a name, and not sent (RFC 6066, 3)
cdef void tls_forget(void** session) noexcept
