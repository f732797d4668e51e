"""The host's own stalls: a thread that wants to wake now and then and writes down how late it did.

The thread holds no GIL and shares no lock with the load, so what it sees is the scheduler, the hypervisor or a stopped
process, never the interpreter. It asks for the shortest time slices: a busy client or a simulated server on the same cores
would else hold it up until the next tick (4 ms with most kernels) and be taken for the host. Linux (6.12 and later) lets a
thread of the ordinary policy ask for shorter slices: it gets no more of the CPU, but gets it sooner after it wakes, also from
one that is in the middle of a longer slice. Older kernels take the request and do nothing. No privilege is needed.

A wake-up that comes late counts once for every instant that it missed (as jHiccup does): the histogram then says what an event at any
moment would have met.

A wake-up costs some 20 us of a processor, a thousand a second as much as a client of a hundred requests a second. So on a
quiet host only every fourth instant is looked at, and counts for the four; when one was late by more than *late_ns*, every
one for a while. What is counted stays an estimate of the same: each instant that is examined represents those that were
not, and which ones are was decided before.
"""

import os
import threading

import numpy as np

cimport cython
from libc.errno cimport EINTR
from libc.stdint cimport int64_t
from posix.time cimport CLOCK_MONOTONIC, TIMER_ABSTIME, clock_nanosleep, timespec

from fastllmload._ext.record.histogram cimport HDR_WORDS, Hdr, hdr_record
from fastllmload._ext.system.clock cimport mono_ns

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
            return 0;           /* another one was chosen for it */
        a.size = sizeof a;
        a.policy = SCHED_OTHER;
        a.nice = getpriority(PRIO_PROCESS, 0);
        a.runtime = (uint64_t)ns;
        return syscall(SYS_sched_setattr, 0, &a, 0) == 0 ? 0 : errno;
    }
    """
    int fll_slice(int64_t ns)   # asks for slices of *ns* for the calling thread: 0, or the errno; policy and nice value stay

cdef extern from "<sys/prctl.h>" nogil:
    int prctl(int option, unsigned long value, ...)
    int PR_SET_TIMERSLACK, PR_SET_NAME

cdef enum:
    RING = 4096                 # stalls kept; the newest ones when there were more
    STALL_NS = 5_000_000        # a lateness above this is a stall and goes into the ring
    SPARSE = 4                  # every that many instants on a quiet host
    LATE_NS = 1_000_000           # a wake-up later than this, unless another limit is given: it is not quiet
    WATCHFUL = 100              # instants that are all looked at after that
    SLICE_NS = 100_000          # the shortest that there are: the meter preempts the load, and is not late because of it


cdef class HiccupMeter:
    """Measures wake-up lateness from start() to stop(); *cpu* pins the thread (None: wherever the thread may run
    that makes it). *late_ns*: a wake-up later than this has the meter examine every instant for a while.

    words: int64[HDR_WORDS], lateness in ns (histogram.pxd), readable while it runs.
    stalls: int64[n, 2], rows (CLOCK_MONOTONIC ns of the instant that was missed, lateness in ns) above 5 ms, in order. Where
    instants before it were not looked at, half of them count as missed: that is where a stall began in the mean.
    """

    cdef readonly object words
    cdef readonly int64_t interval_ns
    cdef int64_t late_ns
    cdef readonly object cpu
    cdef readonly int slice_error           # errno of asking for short slices; 0: had, or the kernel is older than they are
    cdef readonly int64_t stall_count       # stalls seen; those beyond RING were overwritten
    cdef int64_t[::1] _words
    cdef int64_t[:, ::1] _ring
    cdef object _ring_array
    cdef object _thread
    cdef object _places
    cdef object _started
    cdef int _stopping

    def __init__(self, int64_t interval_ns=1_000_000, cpu=None, int64_t late_ns=LATE_NS) -> None:
        if interval_ns <= 0:
            raise ValueError(f"interval_ns is {interval_ns}; it must be above 0")
        self.interval_ns = interval_ns
        self.late_ns = late_ns
        self.cpu = cpu
        self._places = os.sched_getaffinity(0) if cpu is None else {cpu}
        self.words = np.zeros(HDR_WORDS, np.int64)
        self._words = self.words
        self._ring_array = np.zeros((RING, 2), np.int64)
        self._ring = self._ring_array
        self._thread = None

    @property
    def running(self) -> bool:
        return self._thread is not None

    @property
    def thread_id(self):
        """Kernel thread number while it runs, for /proc/self/task/N/schedstat; None otherwise."""
        return self._thread.native_id if self._thread is not None else None

    @property
    def stalls(self):
        cdef int64_t seen = self.stall_count
        if seen <= RING:
            return self._ring_array[:seen].copy()
        return np.roll(self._ring_array, -(seen % RING), axis=0)

    def start(self) -> None:
        """Start measuring; a stall after the return is seen. RuntimeError when it already does, OSError when *cpu* cannot be had."""
        if self._thread is not None:
            raise RuntimeError("the hiccup meter runs already")
        if self.cpu is not None and self.cpu not in os.sched_getaffinity(0):
            raise OSError(f"CPU {self.cpu} is not among those this process may use")
        self._stopping = 0
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hiccup", daemon=True)
        self._thread.start()
        self._started.wait()

    def stop(self) -> None:
        """Stop and wait for the thread, at most four intervals; nothing happens when it does not run."""
        if self._thread is None:
            return
        self._stopping = 1
        self._thread.join()
        self._thread = None

    def _run(self) -> None:
        os.sched_setaffinity(0, self._places)        # 0 is the calling thread
        # The default slack of 50 us would be measured as lateness of the host.
        prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
        prctl(PR_SET_NAME, <unsigned long><const char*>b"hiccup", 0, 0, 0)
        self.slice_error = fll_slice(SLICE_NS)
        cdef int64_t due = mono_ns() + self.interval_ns
        self._started.set()
        with nogil:
            self._watch(due)

    @cython.boundscheck(False)          # every index is modulo RING or below HDR_WORDS; a check would need the GIL
    @cython.wraparound(False)
    @cython.cdivision(True)
    cdef void _watch(self, int64_t due) noexcept nogil:
        cdef Hdr h
        cdef int64_t now, begin, i
        cdef int64_t every = 1, watchful = WATCHFUL     # instants between two that are examined; examinations until it is SPARSE
        h.counts = &self._words[0]
        while not self._stopping:
            self._sleep_until(due)
            now = mono_ns()
            if now < due:                           # a signal
                continue
            begin = due - (every - 1) * self.interval_ns // 2
            if now - begin > STALL_NS:
                self._ring[self.stall_count % RING, 0] = begin
                self._ring[self.stall_count % RING, 1] = now - begin
                self.stall_count += 1
            if now - due > self.late_ns:
                watchful = WATCHFUL
            while due <= now:
                for i in range(every):
                    hdr_record(&h, now - due)
                due += every * self.interval_ns
            watchful -= watchful > 0
            due -= every * self.interval_ns
            every = 1 if watchful else SPARSE
            due += every * self.interval_ns

    cdef void _sleep_until(self, int64_t due) noexcept nogil:
        cdef timespec until
        until.tv_sec = due // 1_000_000_000
        until.tv_nsec = due % 1_000_000_000
        while clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR:
            if self._stopping:
                return
