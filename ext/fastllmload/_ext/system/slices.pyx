# cython: language_level=3str
"""How long the calling thread may run at a time.

Linux (6.12 and later) lets a thread of the ordinary policy ask for shorter slices: it gets no more of the CPU, but gets it
sooner after it wakes, also from one that is in the middle of a longer slice. Older kernels take the request and do nothing.
No privilege is needed.
"""

cdef extern from * nogil:
    """
    #include <errno.h>
    #include <sched.h>
    #include <stdint.h>
    #include <sys/resource.h>
    #include <sys/syscall.h>
    #include <unistd.h>
    static int fll_slice(int64_t ns) {
        struct { uint32_t size, policy; uint64_t flags; int32_t nice; uint32_t priority; uint64_t runtime, deadline, period; } a = {0};
        if (sched_getscheduler(0) != SCHED_OTHER)
            return 0;           /* somebody has chosen another one for it */
        a.size = sizeof a;
        a.policy = SCHED_OTHER;
        a.nice = getpriority(PRIO_PROCESS, 0);
        a.runtime = (uint64_t)ns;
        return syscall(SYS_sched_setattr, 0, &a, 0) == 0 ? 0 : errno;
    }
    """
    int fll_slice(int64_t ns)


cdef int slice_ask(int64_t ns) noexcept nogil:
    return fll_slice(ns)


def ask_for_slices(int64_t ns) -> int:
    """Ask for slices of *ns* (from 100,000 on) for the calling thread; 0, or the errno of a system that refuses."""
    return slice_ask(ns)
