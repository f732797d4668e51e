# Socket system calls of the reactor, and kernel receive stamps. No state but the file descriptor.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cdef extern from "<sys/socket.h>" nogil:
    ctypedef unsigned int socklen_t
    struct sockaddr:
        pass
    struct sockaddr_storage:
        unsigned short ss_family

cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void* iov_base
        size_t iov_len

cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data_t:
        uint64_t u64
    struct epoll_event:
        uint32_t events
        epoll_data_t data
    int epoll_create1(int flags)
    int epoll_ctl(int epfd, int op, int fd, epoll_event* event)
    int epoll_wait(int epfd, epoll_event* events, int maxevents, int timeout)
    int EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD
    uint32_t EPOLLIN, EPOLLOUT, EPOLLRDHUP, EPOLLHUP, EPOLLERR, EPOLLET

cdef struct Address:            # a resolved peer or source
    sockaddr_storage storage
    socklen_t size
    uint8_t is_unix

cdef int address_of(Address* a, str family, object address, int port) except -1

# Non-blocking connect. Returns the descriptor, or -errno. *source* may be NULL. *stamps*: ask for kernel receive stamps.
# *receive_buffer*: bytes that the kernel may hold for us, so that the peer feels a reader who does not read; 0: its own.
cdef int wire_connect(Address* peer, Address* source, bint stamps, int receive_buffer) noexcept nogil
# What is ready of the set *epfd*, waiting up to *ms* (-1: for ever): how many, or -1 and errno.
cdef int wire_wait(int epfd, epoll_event* events, int most, int ms) noexcept nogil
cdef int wire_connect_error(int fd) noexcept nogil              # SO_ERROR
cdef int wire_local_port(int fd) noexcept nogil                 # 0 for Unix sockets
cdef Py_ssize_t wire_send(int fd, iovec* pieces, int count) noexcept nogil          # bytes, or -errno
# One recvmsg. *stamp* is CLOCK_REALTIME ns of the newest segment returned, 0 when the kernel gave none.
cdef Py_ssize_t wire_recv(int fd, void* data, size_t size, int64_t* stamp) noexcept nogil   # bytes, or -errno
# The same without reading: how many of *most* bytes a read would return now, and the stamp of the newest segment among them.
cdef Py_ssize_t wire_peek(int fd, size_t most, int64_t* stamp) noexcept nogil       # bytes, or -errno
cdef bint wire_ask_stamps(int fd) noexcept nogil                # from now on; False: it has none
# Segments with data that the kernel got on the connection so far; False when it cannot tell, or when it holds more bytes than
# the *received* ones (modulo 2^32) that were read.
cdef bint wire_segments(int fd, uint32_t received, uint32_t* segments) noexcept nogil
# Nanoseconds that the calling thread was ready to run and did not; *fd* is of wire_open_run_delay(). -1 when not known.
cdef int64_t wire_run_delay(int fd) noexcept nogil
cdef int wire_open_run_delay() noexcept nogil       # -1: this kernel does not tell
# How often this process was continued after a signal had stopped it (SIGCONT), since wire_watch_stops().
cdef int64_t wire_stops() noexcept nogil
cdef void wire_watch_stops() noexcept nogil
cdef void wire_close(int fd, bint reset) noexcept nogil
