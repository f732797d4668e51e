#define _GNU_SOURCE
#include "tls.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum { RECORDS = 65536, WANT_READ = 2, BIO_FLAGS = 15, READ_AGAIN = 9, FLUSH = 11, SOURCE = 0x0400, SERVER_NAME = 55 };

/* What of OpenSSL 3 is called; its headers are not needed. */
#define CALLS(X)                                                                     \
    X(const void *, TLS_client_method, (void))                                       \
    X(void *, SSL_CTX_new, (const void *))                                           \
    X(void *, SSL_new, (void *))                                                     \
    X(void, SSL_set_bio, (void *, void *, void *))                                   \
    X(void, SSL_set_connect_state, (void *))                                         \
    X(long, SSL_ctrl, (void *, int, long, void *))                                   \
    X(int, SSL_do_handshake, (void *))                                               \
    X(int, SSL_read, (void *, void *, int))                                          \
    X(int, SSL_write, (void *, const void *, int))                                   \
    X(int, SSL_get_error, (const void *, int))                                       \
    X(void, ERR_clear_error, (void))                                                 \
    X(void *, BIO_meth_new, (int, const char *))                                     \
    X(int, BIO_meth_set_read, (void *, int (*)(void *, char *, int)))                \
    X(int, BIO_meth_set_write, (void *, int (*)(void *, const char *, int)))         \
    X(int, BIO_meth_set_ctrl, (void *, long (*)(void *, int, long, void *)))         \
    X(void *, BIO_new, (const void *))                                               \
    X(void, BIO_set_data, (void *, void *))                                          \
    X(void *, BIO_get_data, (void *))                                                \
    X(void, BIO_set_init, (void *, int))                                             \
    X(void, BIO_set_flags, (void *, int))                                            \
    X(void, BIO_clear_flags, (void *, int))
#define DECLARE(type, name, arguments) static type(*name) arguments;
CALLS(DECLARE)

struct Tls { void *ssl; int fd; const char *at, *end; };    /* records that were read and not taken yet */

static void *context, *method;
static char records[RECORDS];

static void fail(const char *what) { fprintf(stderr, "limitclient: %s\n", what); exit(2); }

/* ---- a BIO that reads what one recvmsg gave, and sends at once ---- */

static int give(void *bio, char *out, int size) {
    struct Tls *t = BIO_get_data(bio);
    ssize_t left = t->end - t->at;
    BIO_clear_flags(bio, BIO_FLAGS);
    if (left == 0) { BIO_set_flags(bio, READ_AGAIN); return -1; }
    if (size > left) size = (int)left;
    memcpy(out, t->at, (size_t)size);
    t->at += size;
    return size;
}

static int take(void *bio, const char *data, int size) {
    struct Tls *t = BIO_get_data(bio);
    return (int)send(t->fd, data, (size_t)size, MSG_NOSIGNAL);
}

static long control(void *bio, int what, long number, void *pointer) {
    (void)bio, (void)number, (void)pointer;
    return what == FLUSH;
}

void tls_load(void) {
    void *library = dlopen("libssl.so.3", RTLD_NOW | RTLD_GLOBAL);
    if (library == NULL) fail("--tls needs libssl.so.3 (OpenSSL 3), which is not installed");
#define FIND(type, name, arguments) if ((*(void **)&name = dlsym(library, #name)) == NULL) fail("libssl.so.3 lacks " #name);
    CALLS(FIND)
    context = SSL_CTX_new(TLS_client_method());
    method = BIO_meth_new(SOURCE | 100, "records");
    if (context == NULL || method == NULL) fail("OpenSSL has no memory");
    BIO_meth_set_read(method, give);
    BIO_meth_set_write(method, take);
    BIO_meth_set_ctrl(method, control);
}

static ssize_t receive(struct Tls *t, int64_t *stamp) {
    union { char bytes[CMSG_SPACE(sizeof(struct timespec))]; struct cmsghdr align; } room;
    struct iovec piece = {records, RECORDS};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = &room, .msg_controllen = sizeof room};
    ssize_t size = recvmsg(t->fd, &message, 0);
    *stamp = 0;
    t->at = records;
    t->end = records + (size > 0 ? size : 0);
    for (struct cmsghdr *c = size > 0 ? CMSG_FIRSTHDR(&message) : NULL; c != NULL; c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_TIMESTAMPNS) {
            struct timespec when;
            memcpy(&when, CMSG_DATA(c), sizeof when);
            *stamp = (int64_t)when.tv_sec * 1000000000 + when.tv_nsec;
        }
    }
    return size;
}

struct Tls *tls_connect(int fd, const char *host) {
    struct Tls *t = calloc(1, sizeof *t);
    void *bio;
    int one = 1, done;
    int64_t stamp;
    if (t == NULL || (t->ssl = SSL_new(context)) == NULL || (bio = BIO_new(method)) == NULL) fail("OpenSSL has no memory");
    t->fd = fd;
    setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one);
    BIO_set_data(bio, t);
    BIO_set_init(bio, 1);
    SSL_set_bio(t->ssl, bio, bio);
    SSL_ctrl(t->ssl, SERVER_NAME, 0, (void *)host);
    SSL_set_connect_state(t->ssl);
    while ((done = SSL_do_handshake(t->ssl)) != 1) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        if (SSL_get_error(t->ssl, done) != WANT_READ) fail("the TLS handshake failed");
        if (poll(&ready, 1, 10000) != 1 || receive(t, &stamp) <= 0) fail("the TLS handshake was not answered");
    }
    return t;
}

int tls_send(struct Tls *t, const char *data, size_t size) {
    return SSL_write(t->ssl, data, (int)size) == (int)size ? 0 : -1;
}

ssize_t tls_recv(struct Tls *t, char *data, size_t room, int64_t *stamp) {
    size_t got = 0;
    int size;
    ssize_t read = receive(t, stamp);
    if (read <= 0) return read;
    while ((size = SSL_read(t->ssl, data + got, (int)(room - got))) > 0) {
        got += (size_t)size;
        if (t->at == t->end) break;                     /* whatever is left inside is not a whole record */
    }
    if (size <= 0 && SSL_get_error(t->ssl, size) != WANT_READ) { ERR_clear_error(); errno = EPROTO; return got ? (ssize_t)got : -1; }
    if (got == 0) { errno = EAGAIN; return -1; }
    return (ssize_t)got;
}
