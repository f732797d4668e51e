"""Socket system calls of the reactor: connect, gather-send, receive with kernel stamp. Linux only."""

import os
import socket
import time

from libc.errno cimport EADDRNOTAVAIL, EINPROGRESS, EINTR, ENETUNREACH, errno
from posix.unistd cimport close

cdef extern from *:
    """
    #include <sys/epoll.h>
    #include <sys/socket.h>
    #include <sys/syscall.h>
    #include <unistd.h>
    #include <sys/un.h>
    #include <netinet/in.h>
    #include <netinet/tcp.h>
    #include <arpa/inet.h>
    #include <string.h>
    #include <stdlib.h>
    #include <fcntl.h>
    #include <time.h>
    #include <errno.h>
    #include <signal.h>
    #ifndef IP_BIND_ADDRESS_NO_PORT
    #define IP_BIND_ADDRESS_NO_PORT 24
    #endif
    #ifndef SCM_TIMESTAMPNS
    #define SCM_TIMESTAMPNS SO_TIMESTAMPNS
    #endif

    static int fll_inet(struct sockaddr_storage *out, int family, const char *text, int port) {
        memset(out, 0, sizeof(*out));
        if (family == AF_INET) {
            struct sockaddr_in *in = (struct sockaddr_in *)out;
            in->sin_family = AF_INET;
            in->sin_port = htons((unsigned short)port);
            return inet_pton(AF_INET, text, &in->sin_addr) == 1 ? (int)sizeof(*in) : -1;
        }
        struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)out;
        in6->sin6_family = AF_INET6;
        in6->sin6_port = htons((unsigned short)port);
        return inet_pton(AF_INET6, text, &in6->sin6_addr) == 1 ? (int)sizeof(*in6) : -1;
    }

    static int fll_unix(struct sockaddr_storage *out, const char *path, size_t size) {
        struct sockaddr_un *un = (struct sockaddr_un *)out;
        memset(out, 0, sizeof(*out));
        un->sun_family = AF_UNIX;
        if (size >= sizeof(un->sun_path)) return -1;
        memcpy(un->sun_path, path, size);
        return (int)(sizeof(un->sun_family) + size + 1);
    }

    static int fll_port(int fd) {
        struct sockaddr_storage a;
        socklen_t n = sizeof(a);
        if (getsockname(fd, (struct sockaddr *)&a, &n)) return 0;
        if (a.ss_family == AF_INET) return ntohs(((struct sockaddr_in *)&a)->sin_port);
        if (a.ss_family == AF_INET6) return ntohs(((struct sockaddr_in6 *)&a)->sin6_port);
        return 0;
    }

    static int fll_inet_socket(int fd) {
        struct sockaddr_storage a;
        socklen_t n = sizeof(a);
        return !getsockname(fd, (struct sockaddr *)&a, &n) && a.ss_family != AF_UNIX;
    }

    /* Runs before anything else when the process is continued. */
    static volatile int64_t fll_stops;
    static void fll_continued(int signal_number) {
        (void)signal_number;
        fll_stops++;
    }
    static void fll_watch_stops(void) {
        struct sigaction action;
        memset(&action, 0, sizeof(action));
        action.sa_handler = fll_continued;
        action.sa_flags = SA_RESTART;
        sigaction(SIGCONT, &action, NULL);
    }

    /* One recvmsg with room for one time stamp; *stamp = 0 when the kernel attached none. */
    static ssize_t fll_recv(int fd, void *data, size_t size, int flags, int64_t *stamp) {
        union { char bytes[CMSG_SPACE(sizeof(struct timespec)) + 64]; struct cmsghdr align; } control;
        struct iovec piece = { data, size };
        struct msghdr message;
        struct cmsghdr *c;
        ssize_t n;
        memset(&message, 0, sizeof(message));
        message.msg_iov = &piece;
        message.msg_iovlen = 1;
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof(control.bytes);
        *stamp = 0;
        /* The library's recvmsg is a cancellation point: in a process with threads two locked instructions a call. */
        n = syscall(SYS_recvmsg, fd, &message, MSG_DONTWAIT | flags);
        if (n <= 0) return n < 0 ? -errno : 0;
        for (c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
            if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_TIMESTAMPNS) {
                struct timespec when;
                memcpy(&when, CMSG_DATA(c), sizeof(when));
                *stamp = (int64_t)when.tv_sec * 1000000000 + when.tv_nsec;
            }
        }
        return n;
    }

    /* Nor is the library's epoll_wait called, for the same reason. */
    static int fll_wait(int epfd, struct epoll_event *events, int most, int ms) {
        return (int)syscall(SYS_epoll_pwait, epfd, events, most, ms, NULL, 8L);
    }

    static ssize_t fll_send(int fd, struct iovec *pieces, int count) {
        struct msghdr message;
        ssize_t n;
        memset(&message, 0, sizeof(message));
        message.msg_iov = pieces;
        message.msg_iovlen = (size_t)count;
        n = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        return n < 0 ? -errno : n;
    }

    /* The beginning of the kernel's struct tcp_info; the C library's header may be older than these fields. */
    struct fll_tcp_info {
        uint8_t state, to_here[7];
        uint32_t more[24];
        uint64_t pacing_rate, max_pacing_rate, bytes_acked, bytes_received;
        uint32_t segments_out, segments_in, not_sent, least_rtt, data_segments_in, data_segments_out;
    };

    static int fll_segments(int fd, uint32_t received, uint32_t *segments) {
        struct fll_tcp_info info;
        socklen_t n = sizeof(info);
        if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n) || n < sizeof(info)) return 0;
        *segments = info.data_segments_in;
        /* The peer's FIN counts as a byte that no read returns. */
        return (uint32_t)info.bytes_received - (info.state == TCP_CLOSE_WAIT) == received;
    }

    static int64_t fll_run_delay(int fd) {
        char text[96];
        char *at;
        ssize_t n = fd < 0 ? 0 : pread(fd, text, sizeof(text) - 1, 0);
        if (n <= 0) return -1;
        text[n] = 0;
        at = strchr(text, ' ');     /* time on the processor, time ready to run, slices */
        return at ? strtoll(at, NULL, 10) : -1;
    }

    static int fll_set(int fd, int level, int name, int value) {
        return setsockopt(fd, level, name, &value, sizeof(value));
    }

    static void fll_reset_on_close(int fd) {
        struct linger now = { 1, 0 };
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    }
    """
    int fll_inet(sockaddr_storage* out, int family, const char* text, int port) nogil
    int fll_unix(sockaddr_storage* out, const char* path, size_t size) nogil
    int fll_port(int fd) nogil
    bint fll_inet_socket(int fd) nogil
    Py_ssize_t fll_recv(int fd, void* data, size_t size, int flags, int64_t* stamp) nogil
    int fll_wait(int epfd, epoll_event* events, int most, int ms) nogil
    Py_ssize_t fll_send(int fd, iovec* pieces, int count) nogil
    bint fll_segments(int fd, uint32_t received, uint32_t* segments) nogil
    int64_t fll_run_delay(int fd) nogil
    int64_t fll_stops
    void fll_watch_stops() nogil
    int fll_set(int fd, int level, int name, int value) nogil
    void fll_reset_on_close(int fd) nogil
    int socket_ "socket"(int domain, int type, int protocol) nogil
    int connect_ "connect"(int fd, sockaddr* address, socklen_t size) nogil
    int bind_ "bind"(int fd, sockaddr* address, socklen_t size) nogil
    int getsockopt(int fd, int level, int name, void* value, socklen_t* size) nogil
    int open_ "open"(const char* path, int flags) nogil
    int O_RDONLY, O_CLOEXEC
    int AF_INET, AF_INET6, SOCK_STREAM, SOCK_NONBLOCK, SOCK_CLOEXEC
    int MSG_PEEK, MSG_TRUNC
    int SOL_SOCKET, SO_ERROR, SO_RCVBUF, SO_TIMESTAMPNS, IPPROTO_IP, IPPROTO_TCP, TCP_NODELAY, IP_BIND_ADDRESS_NO_PORT


cdef int address_of(Address* a, str family, object address, int port) except -1:
    """Fill *a* from a numeric address ("inet", "inet6") or a path ("unix"). Raises ValueError for anything else."""
    cdef bytes text = os.fsencode(address)
    cdef int size
    if family == "unix":
        size = fll_unix(&a.storage, text, len(text))
    elif family in ("inet", "inet6"):
        size = fll_inet(&a.storage, AF_INET if family == "inet" else AF_INET6, text, port)
    else:
        raise ValueError(f"address family {family!r} is not inet, inet6 or unix")
    if size < 0:
        raise ValueError(f"{address!r} is not a numeric {family} address (or is too long for a socket path)")
    a.size = <socklen_t>size
    a.is_unix = family == "unix"
    return 0


cdef int wire_connect(Address* peer, Address* source, bint stamps, int receive_buffer) noexcept nogil:
    cdef int fd = socket_(peer.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)
    cdef int failed
    if fd < 0:
        return -errno
    if receive_buffer:                      # before connect(): the window that it offers comes from it
        fll_set(fd, SOL_SOCKET, SO_RCVBUF, receive_buffer)
    if not peer.is_unix:
        fll_set(fd, IPPROTO_TCP, TCP_NODELAY, 1)
        if stamps:
            fll_set(fd, SOL_SOCKET, SO_TIMESTAMPNS, 1)
        if source != NULL:
            # Without this option bind() would reserve the port for every destination.
            fll_set(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
            if bind_(fd, <sockaddr*>&source.storage, source.size) != 0:
                failed = errno
                close(fd)
                return -failed
    if connect_(fd, <sockaddr*>&peer.storage, peer.size) != 0 and errno != EINPROGRESS:
        failed = errno
        close(fd)
        return -failed
    return fd


cdef int wire_wait(int epfd, epoll_event* events, int most, int ms) noexcept nogil:
    return fll_wait(epfd, events, most, ms)


cdef int wire_connect_error(int fd) noexcept nogil:
    cdef int value = 0
    cdef socklen_t size = sizeof(value)
    if getsockopt(fd, SOL_SOCKET, SO_ERROR, &value, &size) != 0:
        return errno
    return value


cdef int wire_local_port(int fd) noexcept nogil:
    return fll_port(fd)


cdef Py_ssize_t wire_send(int fd, iovec* pieces, int count) noexcept nogil:
    cdef Py_ssize_t sent = fll_send(fd, pieces, count)
    while sent == -EINTR:
        sent = fll_send(fd, pieces, count)
    return sent


cdef Py_ssize_t wire_recv(int fd, void* data, size_t size, int64_t* stamp) noexcept nogil:
    cdef Py_ssize_t got = fll_recv(fd, data, size, 0, stamp)
    while got == -EINTR:
        got = fll_recv(fd, data, size, 0, stamp)
    return got


cdef Py_ssize_t wire_peek(int fd, size_t most, int64_t* stamp) noexcept nogil:
    cdef Py_ssize_t got = fll_recv(fd, NULL, most, MSG_PEEK | MSG_TRUNC, stamp)     # MSG_TRUNC: nothing is copied
    while got == -EINTR:
        got = fll_recv(fd, NULL, most, MSG_PEEK | MSG_TRUNC, stamp)
    return got


cdef bint wire_ask_stamps(int fd) noexcept nogil:
    return fll_inet_socket(fd) and fll_set(fd, SOL_SOCKET, SO_TIMESTAMPNS, 1) == 0


cdef bint wire_segments(int fd, uint32_t received, uint32_t* segments) noexcept nogil:
    return fll_segments(fd, received, segments)


cdef int wire_open_run_delay() noexcept nogil:
    return open_(b"/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)


cdef int64_t wire_run_delay(int fd) noexcept nogil:
    return fll_run_delay(fd)


cdef int64_t wire_stops() noexcept nogil:
    return fll_stops


cdef void wire_watch_stops() noexcept nogil:
    fll_watch_stops()


cdef void wire_close(int fd, bint reset) noexcept nogil:
    if reset:
        fll_reset_on_close(fd)
    close(fd)


def warm_up_kernel_stamps():
    """Switch the kernel's receive stamps on and wait until they come; returns the socket that keeps them on.

    The kernel patches the stamping code in lazily, from a work queue: the first segments after the very first request
    for stamps have none. Keep the returned socket open for as long as stamps are wanted. Returns None when this kernel
    gives no stamps within 200 ms. In a network namespace whose loopback is down nothing can be tried: the socket is
    returned after 200 ms.
    """
    keeper = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    keeper.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    keeper.settimeout(0.02)
    try:
        keeper.bind(("127.0.0.1", 0))
        for _ in range(10):
            keeper.sendto(b"\0", keeper.getsockname())
            try:
                _, control, _, _ = keeper.recvmsg(16, 128)
            except TimeoutError:
                continue
            if any(level == SOL_SOCKET and kind == SO_TIMESTAMPNS for level, kind, _ in control):
                return keeper
    except OSError as error:
        if error.errno not in (EADDRNOTAVAIL, ENETUNREACH):
            raise
        time.sleep(0.2)
        return keeper
    keeper.close()
    return None
