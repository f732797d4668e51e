"""OpenSSL's C functions on memory: a connection's records come from a socket that is not OpenSSL's.

The interpreter's `ssl` objects cost three times as much for each record as the functions below them. Its library is taken, so
that both mean the same by a trust store or a version; there are no headers on most hosts, so the functions are declared here. All
of them are in every OpenSSL from 1.1.1 to 3.x.

A record begins with its kind, a version and its size, in clear, so the bytes of a read tell whether it ended with a record.
"""

import ipaddress

from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from fastllmload._ext.bytes.carry cimport CARRY_KEEP, carry_add, carry_free

cdef extern from *:
    """
    #include <dlfcn.h>
    #include <string.h>
    #define FLL_FUNCTIONS(X) \\
        X(unsigned long, OpenSSL_version_num, (void)) \\
        X(const void *, TLS_client_method, (void)) \\
        X(const void *, TLS_server_method, (void)) \\
        X(void *, SSL_CTX_new, (const void *)) \\
        X(void, SSL_CTX_free, (void *)) \\
        X(long, SSL_CTX_ctrl, (void *, int, long, void *)) \\
        X(unsigned long, SSL_CTX_set_options, (void *, unsigned long)) \\
        X(void, SSL_CTX_set_verify, (void *, int, void *)) \\
        X(void *, SSL_CTX_get0_param, (void *)) \\
        X(int, X509_VERIFY_PARAM_set_flags, (void *, unsigned long)) \\
        X(int, X509_VERIFY_PARAM_set1_ip_asc, (void *, const char *)) \\
        X(int, SSL_CTX_load_verify_locations, (void *, const char *, const char *)) \\
        X(int, SSL_CTX_set_default_verify_paths, (void *)) \\
        X(void *, SSL_load_client_CA_file, (const char *)) \\
        X(void, SSL_CTX_set_client_CA_list, (void *, void *)) \\
        X(int, SSL_CTX_use_certificate_chain_file, (void *, const char *)) \\
        X(int, SSL_CTX_use_PrivateKey_file, (void *, const char *, int)) \\
        X(int, SSL_CTX_set_cipher_list, (void *, const char *)) \\
        X(int, SSL_CTX_set_alpn_protos, (void *, const unsigned char *, unsigned int)) \\
        X(void, SSL_CTX_set_alpn_select_cb, (void *, void *, void *)) \\
        X(int, SSL_CTX_set_session_id_context, (void *, const unsigned char *, unsigned int)) \\
        X(int, SSL_CTX_set_num_tickets, (void *, size_t)) \\
        X(void, SSL_CTX_sess_set_new_cb, (void *, void *)) \\
        X(int, SSL_select_next_proto, (unsigned char **, unsigned char *, const unsigned char *, unsigned int, \\
                                       const unsigned char *, unsigned int)) \\
        X(void *, SSL_new, (void *)) \\
        X(void, SSL_free, (void *)) \\
        X(void, SSL_set_bio, (void *, void *, void *)) \\
        X(void, SSL_set_connect_state, (void *)) \\
        X(void, SSL_set_accept_state, (void *)) \\
        X(long, SSL_ctrl, (void *, int, long, void *)) \\
        X(int, SSL_set1_host, (void *, const char *)) \\
        X(void, SSL_set_hostflags, (void *, unsigned int)) \\
        X(void *, SSL_get0_param, (void *)) \\
        X(int, SSL_set_session, (void *, void *)) \\
        X(int, SSL_session_reused, (void *)) \\
        X(void, SSL_SESSION_free, (void *)) \\
        X(int, SSL_set_ex_data, (void *, int, void *)) \\
        X(void *, SSL_get_ex_data, (void *, int)) \\
        X(int, SSL_do_handshake, (void *)) \\
        X(int, SSL_read_ex, (void *, void *, size_t, size_t *)) \\
        X(int, SSL_write_ex, (void *, const void *, size_t, size_t *)) \\
        X(int, SSL_get_error, (void *, int)) \\
        X(int, SSL_shutdown, (void *)) \\
        X(void, SSL_set_shutdown, (void *, int)) \\
        X(long, SSL_get_verify_result, (void *)) \\
        X(void, SSL_get0_alpn_selected, (void *, const unsigned char **, unsigned int *)) \\
        X(const char *, SSL_get_version, (void *)) \\
        X(const void *, SSL_get_current_cipher, (void *)) \\
        X(const char *, SSL_CIPHER_get_name, (const void *)) \\
        X(int, BIO_get_new_index, (void)) \\
        X(void *, BIO_meth_new, (int, const char *)) \\
        X(int, BIO_meth_set_read_ex, (void *, int (*)(void *, char *, size_t, size_t *))) \\
        X(int, BIO_meth_set_write_ex, (void *, int (*)(void *, const char *, size_t, size_t *))) \\
        X(int, BIO_meth_set_ctrl, (void *, long (*)(void *, int, long, void *))) \\
        X(void *, BIO_new, (void *)) \\
        X(void, BIO_set_data, (void *, void *)) \\
        X(void *, BIO_get_data, (void *)) \\
        X(void, BIO_set_init, (void *, int)) \\
        X(void, BIO_set_flags, (void *, int)) \\
        X(void, BIO_clear_flags, (void *, int)) \\
        X(unsigned long, ERR_peek_error, (void)) \\
        X(void, ERR_clear_error, (void)) \\
        X(const char *, ERR_reason_error_string, (unsigned long)) \\
        X(const char *, X509_verify_cert_error_string, (long))
    #define FLL_DECLARE(result, name, arguments) static result (*name) arguments;
    FLL_FUNCTIONS(FLL_DECLARE)

    /* NULL, or what is missing. */
    static const char *fll_load(const char *path) {
        void *at, *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!library) return path;
    #define FLL_LOAD(result, name, arguments) \\
        if (!(at = dlsym(library, #name))) return #name; \\
        memcpy((void *)&name, &at, sizeof(at));
        FLL_FUNCTIONS(FLL_LOAD)
        return NULL;
    }
    """
    const char* fll_load(const char* path) nogil
    unsigned long OpenSSL_version_num() nogil
    const void* TLS_client_method() nogil
    const void* TLS_server_method() nogil
    void* SSL_CTX_new(const void* method) nogil
    void SSL_CTX_free(void* ctx) nogil
    long SSL_CTX_ctrl(void* ctx, int what, long number, void* data) nogil
    unsigned long SSL_CTX_set_options(void* ctx, unsigned long options) nogil
    void SSL_CTX_set_verify(void* ctx, int mode, void* callback) nogil
    void* SSL_CTX_get0_param(void* ctx) nogil
    int X509_VERIFY_PARAM_set_flags(void* param, unsigned long flags) nogil
    int X509_VERIFY_PARAM_set1_ip_asc(void* param, const char* address) nogil
    int SSL_CTX_load_verify_locations(void* ctx, const char* file, const char* directory) nogil
    int SSL_CTX_set_default_verify_paths(void* ctx) nogil
    void* SSL_load_client_CA_file(const char* file) nogil
    void SSL_CTX_set_client_CA_list(void* ctx, void* names) nogil
    int SSL_CTX_use_certificate_chain_file(void* ctx, const char* file) nogil
    int SSL_CTX_use_PrivateKey_file(void* ctx, const char* file, int kind) nogil
    int SSL_CTX_set_cipher_list(void* ctx, const char* names) nogil
    int SSL_CTX_set_alpn_protos(void* ctx, const unsigned char* protocols, unsigned int size) nogil
    void SSL_CTX_set_alpn_select_cb(void* ctx, void* callback, void* argument) nogil
    int SSL_CTX_set_session_id_context(void* ctx, const unsigned char* context, unsigned int size) nogil
    int SSL_CTX_set_num_tickets(void* ctx, size_t count) nogil
    void SSL_CTX_sess_set_new_cb(void* ctx, void* callback) nogil
    int SSL_select_next_proto(unsigned char** out, unsigned char* out_size, const unsigned char* server, unsigned int server_size,
                              const unsigned char* client, unsigned int client_size) nogil
    void* SSL_new(void* ctx) nogil
    void SSL_free(void* ssl) nogil
    void SSL_set_bio(void* ssl, void* read, void* write) nogil
    void SSL_set_connect_state(void* ssl) nogil
    void SSL_set_accept_state(void* ssl) nogil
    long SSL_ctrl(void* ssl, int what, long number, void* data) nogil
    int SSL_set1_host(void* ssl, const char* name) nogil
    void SSL_set_hostflags(void* ssl, unsigned int flags) nogil
    void* SSL_get0_param(void* ssl) nogil
    int SSL_set_session(void* ssl, void* session) nogil
    int SSL_session_reused(void* ssl) nogil
    void SSL_SESSION_free(void* session) nogil
    int SSL_set_ex_data(void* ssl, int index, void* data) nogil
    void* SSL_get_ex_data(void* ssl, int index) nogil
    int SSL_do_handshake(void* ssl) nogil
    int SSL_read_ex(void* ssl, void* data, size_t size, size_t* got) nogil
    int SSL_write_ex(void* ssl, const void* data, size_t size, size_t* written) nogil
    int SSL_get_error(void* ssl, int result) nogil
    int SSL_shutdown(void* ssl) nogil
    void SSL_set_shutdown(void* ssl, int mode) nogil
    long SSL_get_verify_result(void* ssl) nogil
    void SSL_get0_alpn_selected(void* ssl, const unsigned char** name, unsigned int* size) nogil
    const char* SSL_get_version(void* ssl) nogil
    const void* SSL_get_current_cipher(void* ssl) nogil
    const char* SSL_CIPHER_get_name(const void* cipher) nogil
    int BIO_get_new_index() nogil
    void* BIO_meth_new(int kind, const char* name) nogil
    int BIO_meth_set_read_ex(void* method, int (*read)(void*, char*, size_t, size_t*) noexcept nogil) nogil
    int BIO_meth_set_write_ex(void* method, int (*write)(void*, const char*, size_t, size_t*) noexcept nogil) nogil
    int BIO_meth_set_ctrl(void* method, long (*control)(void*, int, long, void*) noexcept nogil) nogil
    void* BIO_new(void* method) nogil
    void BIO_set_data(void* bio, void* data) nogil
    void* BIO_get_data(void* bio) nogil
    void BIO_set_init(void* bio, int init) nogil
    void BIO_set_flags(void* bio, int flags) nogil
    void BIO_clear_flags(void* bio, int flags) nogil
    unsigned long ERR_peek_error() nogil
    void ERR_clear_error() nogil
    const char* ERR_reason_error_string(unsigned long error) nogil
    const char* X509_verify_cert_error_string(long result) nogil

cdef enum:                      # OpenSSL's macros; the same in all versions
    SSL_CTRL_MODE = 33
    SSL_CTRL_SET_SESS_CACHE_MODE = 44
    SSL_CTRL_SET_TLSEXT_HOSTNAME = 55
    SSL_CTRL_SET_MIN_PROTO_VERSION = 123
    SSL_CTRL_SET_MAX_PROTO_VERSION = 124
    SSL_MODE_RELEASE_BUFFERS = 0x10
    SSL_SESS_CACHE_CLIENT = 1
    SSL_SESS_CACHE_SERVER = 2
    SSL_SESS_CACHE_NO_INTERNAL = 0x300
    SSL_VERIFY_NONE = 0
    SSL_VERIFY_PEER = 1
    SSL_VERIFY_FAIL_IF_NO_PEER_CERT = 2
    SSL_FILETYPE_PEM = 1
    SSL_OP_NO_TICKET = 1 << 14
    SSL_SHUTDOWN_BOTH = 3
    SSL_ERROR_WANT_READ = 2
    SSL_ERROR_ZERO_RETURN = 6
    SSL_TLSEXT_ERR_OK = 0
    SSL_TLSEXT_ERR_ALERT_FATAL = 2
    OPENSSL_NPN_NEGOTIATED = 1
    BIO_TYPE_SOURCE_SINK = 0x400
    BIO_CTRL_FLUSH = 11
    BIO_FLAGS_READ_RETRY = 0x01 | 0x08          # BIO_FLAGS_READ | BIO_FLAGS_SHOULD_RETRY
    HOST_FLAGS = 0x4                            # X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS, as the interpreter's
    OLDEST = 0x10101000                         # OpenSSL 1.1.1

cdef void* METHOD                               # the BIO of all connections; NULL until the library is there


cdef int bio_read(void* bio, char* data, size_t size, size_t* got) noexcept nogil:
    cdef Tls* t = <Tls*>BIO_get_data(bio)
    if t.left == 0:
        got[0] = 0
        BIO_set_flags(bio, BIO_FLAGS_READ_RETRY)
        return 0
    size = min(size, t.left)
    memcpy(data, t.data, size)
    t.data += size
    t.left -= size
    got[0] = size
    return 1


cdef int bio_write(void* bio, const char* data, size_t size, size_t* written) noexcept nogil:
    cdef Tls* t = <Tls*>BIO_get_data(bio)
    if carry_add(&t.out, &t.out_size, &t.out_cap, <const unsigned char*>data, size) < 0:
        return 0
    written[0] = size
    return 1


cdef long bio_control(void* bio, int what, long number, void* data) noexcept nogil:
    return what == BIO_CTRL_FLUSH


cdef int session_came(void* ssl, void* session) noexcept nogil:
    """The peer gave a session to continue; 1: it is kept."""
    cdef Tls* t = <Tls*>SSL_get_ex_data(ssl, 0)
    if t.session == NULL:
        return 0
    if t.session[0] != NULL:
        SSL_SESSION_free(t.session[0])
    t.session[0] = session
    return 1


cdef int protocol_chosen(void* ssl, const unsigned char** out, unsigned char* out_size, const unsigned char* offered,
                         unsigned int size, void* argument) noexcept with gil:
    """A server takes the first of its own protocols that the client offers; none: it refuses (RFC 7301, 3.2)."""
    cdef TlsContext context = <TlsContext>argument
    cdef const unsigned char* own = context.protocols
    if SSL_select_next_proto(<unsigned char**>out, out_size, own, <unsigned int>len(context.protocols), offered,
                             size) != OPENSSL_NPN_NEGOTIATED:
        return SSL_TLSEXT_ERR_ALERT_FATAL
    return SSL_TLSEXT_ERR_OK


def tls_library() -> str:
    """Path of the library that is loaded now, unless it was before. OSError: there is none that can be used."""
    global METHOD, loaded
    if METHOD != NULL:
        return loaded
    missing = "no library libssl is there"
    for path in libraries():
        problem = fll_load(path.encode())
        if problem == NULL and OpenSSL_version_num() >= OLDEST:
            METHOD = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, b"memory of a read")
            if METHOD == NULL:
                raise MemoryError("TLS")
            BIO_meth_set_read_ex(METHOD, bio_read)
            BIO_meth_set_write_ex(METHOD, bio_write)
            BIO_meth_set_ctrl(METHOD, bio_control)
            loaded = path
            return path
        missing = f"{path} is older than OpenSSL 1.1.1" if problem == NULL else f"{path} lacks {problem.decode()}"
    raise OSError(missing)


cdef str loaded = ""


cdef list libraries():
    """The interpreter's own first."""
    import _ssl  # loads it  # noqa: F401
    with open("/proc/self/maps") as maps:
        own = {line.split(maxsplit=5)[-1].strip() for line in maps if "/libssl" in line}
    return [*sorted(own), "libssl.so.3", "libssl.so.1.1"]


cdef str reason(unsigned long error):
    cdef const char* text = ERR_reason_error_string(error)
    return "unknown failure" if text == NULL else text.decode()


cdef class TlsContext:
    """Settings of many connections. A file that cannot be used is a ValueError in OpenSSL's words.

    *cert*, *key*: own certificate chain and key (PEM). *cacert*: who is trusted (PEM); None: the host's store. *verify*: the peer
    needs a certificate that is. *protocols*: for ALPN, the preferred first. *resume*: sessions are continued. *options*,
    *verify_flags*, *versions*, *ciphers*: of an `ssl.SSLContext` (`settings_of`).
    """

    def __init__(self, *, bint server=False, str cert=None, str key=None, str cacert=None, bint verify=True,
                 tuple protocols=(), bint resume=False, unsigned long options=0, unsigned long verify_flags=0,
                 tuple versions=(0, 0), str ciphers=""):
        tls_library()
        self.server = server
        self.protocols = b"".join([bytes([len(name)]) + name.encode() for name in protocols])
        self.ctx = SSL_CTX_new(TLS_server_method() if server else TLS_client_method())
        if self.ctx == NULL:
            raise MemoryError("TLS")
        ERR_clear_error()
        SSL_CTX_ctrl(self.ctx, SSL_CTRL_MODE, SSL_MODE_RELEASE_BUFFERS, NULL)
        SSL_CTX_set_options(self.ctx, options)
        X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(self.ctx), verify_flags)
        self._check(SSL_CTX_ctrl(self.ctx, SSL_CTRL_SET_MIN_PROTO_VERSION, <long>versions[0], NULL) == 1, "the lowest version")
        self._check(SSL_CTX_ctrl(self.ctx, SSL_CTRL_SET_MAX_PROTO_VERSION, <long>versions[1], NULL) == 1, "the highest version")
        if ciphers:
            self._check(SSL_CTX_set_cipher_list(self.ctx, ciphers.encode()) == 1, "ciphers")
        if cert is not None:
            self._check(SSL_CTX_use_certificate_chain_file(self.ctx, cert.encode()) == 1, cert)
            self._check(SSL_CTX_use_PrivateKey_file(self.ctx, (key or cert).encode(), SSL_FILETYPE_PEM) == 1, key or cert)
        if cacert is not None:
            self._check(SSL_CTX_load_verify_locations(self.ctx, cacert.encode(), NULL) == 1, cacert)
        elif verify:
            SSL_CTX_set_default_verify_paths(self.ctx)
        SSL_CTX_set_verify(
            self.ctx, SSL_VERIFY_PEER | (SSL_VERIFY_FAIL_IF_NO_PEER_CERT if server else 0) if verify else SSL_VERIFY_NONE, NULL)
        if server:
            self._serve(cacert if verify else None, resume)
        else:
            if resume:
                SSL_CTX_ctrl(self.ctx, SSL_CTRL_SET_SESS_CACHE_MODE, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL, NULL)
                SSL_CTX_sess_set_new_cb(self.ctx, <void*>session_came)
            else:
                SSL_CTX_ctrl(self.ctx, SSL_CTRL_SET_SESS_CACHE_MODE, 0, NULL)
            if self.protocols:
                SSL_CTX_set_alpn_protos(self.ctx, self.protocols, <unsigned int>len(self.protocols))

    def _serve(self, cacert, bint resume) -> None:
        SSL_CTX_set_session_id_context(self.ctx, b"fastllmload", 11)
        SSL_CTX_ctrl(self.ctx, SSL_CTRL_SET_SESS_CACHE_MODE, SSL_SESS_CACHE_SERVER if resume else 0, NULL)
        if not resume:
            SSL_CTX_set_options(self.ctx, SSL_OP_NO_TICKET)
            SSL_CTX_set_num_tickets(self.ctx, 0)
        if cacert is not None:
            SSL_CTX_set_client_CA_list(self.ctx, SSL_load_client_CA_file(cacert.encode()))
        if self.protocols:
            SSL_CTX_set_alpn_select_cb(self.ctx, <void*>protocol_chosen, <void*>self)

    def __dealloc__(self):
        if self.ctx != NULL:
            SSL_CTX_free(self.ctx)

    def _check(self, bint holds, what) -> None:
        if not holds:
            error = ERR_peek_error()
            ERR_clear_error()
            raise ValueError(f"{what}: {reason(error)}")

    cdef Tls* connection(self, const char* name, bint is_address, void** session) except NULL:
        cdef void* bio
        cdef Tls* t = <Tls*>calloc(1, sizeof(Tls))
        if t == NULL:
            raise MemoryError("TLS")
        t.ssl = SSL_new(self.ctx)
        bio = BIO_new(METHOD)
        if t.ssl == NULL or bio == NULL:
            tls_free(t)
            raise MemoryError("TLS")
        BIO_set_data(bio, t)
        BIO_set_init(bio, 1)
        SSL_set_bio(t.ssl, bio, bio)
        SSL_set_ex_data(t.ssl, 0, t)
        t.session = session
        if self.server:
            SSL_set_accept_state(t.ssl)
            return t
        SSL_set_connect_state(t.ssl)
        if name != NULL and is_address:
            X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(t.ssl), name)
        elif name != NULL:
            SSL_ctrl(t.ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME, 0, <void*>name)
            SSL_set_hostflags(t.ssl, HOST_FLAGS)
            SSL_set1_host(t.ssl, name)
        if session != NULL and session[0] != NULL:
            SSL_set_session(t.ssl, session[0])
        return t


cdef void tls_free(Tls* t) noexcept:
    if t == NULL:
        return
    if t.ssl != NULL:
        if t.state == TLS_OPEN or t.state == TLS_CLOSED:
            SSL_set_shutdown(t.ssl, SSL_SHUTDOWN_BOTH)      # else its session counts as one that failed
        SSL_free(t.ssl)
    carry_free(&t.out, &t.out_size, &t.out_cap)
    free(t)


cdef void tls_forget(void** session) noexcept:
    if session[0] != NULL:
        SSL_SESSION_free(session[0])
        session[0] = NULL


cdef void follow(Tls* t, const unsigned char* at, size_t size) noexcept nogil:
    """Records are a kind (20 to 24), a version, and the size of what comes; all of it also when sealed."""
    cdef size_t taken
    t.received += <uint32_t>size
    while size:
        if t.rest:
            taken = min(<size_t>t.rest, size)
            t.rest -= <uint16_t>taken
        else:
            taken = min(<size_t>(TLS_HEADER - t.header_size), size)
            memcpy(&t.header[t.header_size], at, taken)
            t.header_size += <uint8_t>taken
            if t.header_size == TLS_HEADER:
                t.astray |= not 20 <= t.header[0] <= 24
                t.rest = <uint16_t>(t.header[3] << 8 | t.header[4])
                t.header_size = 0
        at += taken
        size -= taken


cdef void stopped(Tls* t, int result) noexcept nogil:
    """What a call of OpenSSL that did not succeed means."""
    cdef int error = SSL_get_error(t.ssl, result)
    if error == SSL_ERROR_WANT_READ:
        return
    t.left = 0
    if error == SSL_ERROR_ZERO_RETURN:
        t.state = TLS_CLOSED
        return
    t.state = TLS_FAILED
    t.error = ERR_peek_error()
    ERR_clear_error()


cdef Py_ssize_t tls_read(Tls* t, const unsigned char* data, size_t size, unsigned char* plain) noexcept:
    cdef size_t got, written = 0
    cdef int result
    follow(t, data, size)
    t.data = data
    t.left = size
    if t.state == TLS_HANDSHAKE:
        ERR_clear_error()
        result = SSL_do_handshake(t.ssl)
        if result == 1:
            t.state = TLS_OPEN
            t.resumed = SSL_session_reused(t.ssl) == 1
        else:
            stopped(t, result)
            return 0
    while t.left and t.state == TLS_OPEN:
        got = 0
        result = SSL_read_ex(t.ssl, plain + written, size + TLS_PLAIN - written, &got)
        written += got
        if result != 1:
            stopped(t, result)
            break
    return <Py_ssize_t>written


cdef int tls_write(Tls* t, const void* data, size_t size) except -1:
    cdef size_t written = 0
    cdef int result
    if size == 0 or t.state != TLS_OPEN:
        return 0
    result = SSL_write_ex(t.ssl, data, size, &written)
    if result != 1:
        stopped(t, result)
        if t.state != TLS_FAILED:
            raise MemoryError(f"{size} bytes to send over TLS")
    return 0


cdef void tls_end(Tls* t) noexcept:
    if t.state == TLS_OPEN or t.state == TLS_CLOSED:
        SSL_shutdown(t.ssl)
        ERR_clear_error()


cdef void tls_sent(Tls* t, size_t size) noexcept:
    t.out_at += size
    if t.out_at == t.out_size:
        t.out_at = t.out_size = 0
        if t.out_cap > CARRY_KEEP:
            carry_free(&t.out, &t.out_size, &t.out_cap)


cdef bytes tls_protocol(Tls* t):
    cdef const unsigned char* name = NULL
    cdef unsigned int size = 0
    SSL_get0_alpn_selected(t.ssl, &name, &size)
    return (<const char*>name)[:size] if size else b""


cdef str tls_problem(Tls* t):
    cdef long result = SSL_get_verify_result(t.ssl)
    text = reason(t.error)
    return f"{text}: {X509_verify_cert_error_string(result).decode()}" if result and "certificate verify" in text else text


cpdef bint is_address(str name) except -1:
    """*name*, of a host, is an IP address: it is checked otherwise than a name, and not sent (RFC 6066, 3)."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


cdef class Channel:
    """One side of a connection without a socket, for tests. *name*: of the server; *earlier*: a channel whose session continues."""

    cdef Tls* t
    cdef TlsContext context
    cdef void* session
    cdef bytes name

    def __cinit__(self, TlsContext context not None, str name=None, Channel earlier=None):
        self.context = context
        if earlier is not None:
            self.session, earlier.session = earlier.session, NULL
        self.name = None if name is None else name.encode("idna")
        cdef const char* wanted = NULL
        if self.name is not None:
            wanted = self.name
        self.t = context.connection(wanted, name is not None and is_address(name), &self.session)

    def __dealloc__(self):
        tls_free(self.t)
        tls_forget(&self.session)

    def feed(self, const unsigned char[::1] data not None) -> bytes:
        """Plaintext of *data*, records from the other side; without any a client begins."""
        cdef size_t size = <size_t>data.shape[0]
        plain = bytearray(size + TLS_PLAIN)
        cdef unsigned char[::1] room = plain
        cdef Py_ssize_t got = tls_read(self.t, &data[0] if size else NULL, size, &room[0])
        return bytes(plain[:got])

    def write(self, const unsigned char[::1] data not None) -> None:
        tls_write(self.t, &data[0] if data.shape[0] else NULL, <size_t>data.shape[0])

    def end(self) -> None:
        tls_end(self.t)

    def taken(self) -> bytes:
        """What is to be sent now."""
        cdef size_t size = tls_unsent(self.t)
        out = (<const char*>self.t.out + self.t.out_at)[:size] if size else b""
        tls_sent(self.t, size)
        return out

    @property
    def state(self) -> int:
        return self.t.state

    @property
    def complete(self) -> bool:
        return tls_complete(self.t)

    @property
    def resumed(self) -> bool:
        return bool(self.t.resumed)

    @property
    def problem(self) -> str:
        """Why it failed; empty: it has not."""
        return tls_problem(self.t) if self.t.state == TLS_FAILED else ""

    @property
    def protocol(self) -> str:
        """What ALPN agreed on; empty: nothing."""
        return tls_protocol(self.t).decode()

    @property
    def cipher(self) -> str:
        return f"{SSL_get_version(self.t.ssl).decode()} {SSL_CIPHER_get_name(SSL_get_current_cipher(self.t.ssl)).decode()}"


def settings_of(context) -> dict:
    """Of an `ssl.SSLContext`, what TlsContext is to have of it, too."""
    lowest, highest = (max(0, int(version)) for version in (context.minimum_version, context.maximum_version))
    return {
        "options": int(context.options) & 0xFFFFFFFFFFFFFFFF,
        "verify_flags": int(context.verify_flags),
        "versions": (lowest, highest),
        "ciphers": ":".join(each["name"] for each in context.get_ciphers() if each["protocol"] != "TLSv1.3"),
    }
