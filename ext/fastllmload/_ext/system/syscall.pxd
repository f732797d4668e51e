# System calls that only the simulated engine's server makes; the shared ones are in wire.pxd. No state but the descriptor.
from libc.stdint cimport int64_t
from posix.time cimport itimerspec

cdef extern from * nogil:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <sys/socket.h>
    #include <sys/timerfd.h>
    #include <sys/signalfd.h>
    #include <signal.h>
    #include <errno.h>
    #include <string.h>

    static inline int fll_signal_fd(void) {
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGTERM);
        sigaddset(&set, SIGINT);
        sigaddset(&set, SIGHUP);
        sigaddset(&set, SIGUSR1);
        if (sigprocmask(SIG_BLOCK, &set, NULL)) return -1;
        return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    }

    static inline int fll_signal_next(int fd) {
        struct signalfd_siginfo info;
        return read(fd, &info, sizeof(info)) == (ssize_t)sizeof(info) ? (int)info.ssi_signo : 0;
    }
    """
    int fll_signal_fd()                 # SIGTERM, SIGINT, SIGHUP and SIGUSR1 are blocked and read from here
    int fll_signal_next(int fd)         # number of the next signal, 0 when there is none
    int SIGUSR1

cdef extern from "<sys/socket.h>" nogil:
    int fll_accept4 "accept4"(int fd, void* address, void* size, int flags)
    Py_ssize_t send(int fd, const void* data, size_t size, int flags)
    int SOCK_NONBLOCK, SOCK_CLOEXEC, MSG_NOSIGNAL, MSG_DONTWAIT

cdef extern from "<sys/timerfd.h>" nogil:
    int timerfd_create(int clock, int flags)
    int timerfd_settime(int fd, int flags, const itimerspec* new_value, itimerspec* old_value)
    int TFD_NONBLOCK, TFD_CLOEXEC, TFD_TIMER_ABSTIME

cdef extern from "<string.h>" nogil:
    void* memmem(const void* data, size_t size, const void* needle, size_t needle_size)

cdef inline int arm(int timer, int64_t due) noexcept nogil:
    # One expiry at CLOCK_MONOTONIC *due*; an instant that has passed fires at once.
    cdef itimerspec when
    when.it_interval.tv_sec = 0
    when.it_interval.tv_nsec = 0
    when.it_value.tv_sec = due // 1_000_000_000
    when.it_value.tv_nsec = due % 1_000_000_000
    return timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, NULL)
