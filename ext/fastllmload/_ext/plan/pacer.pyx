"""Release instants: an absolute timerfd armed early by the lead, the rest spun.

A sleeping process wakes 20 to 60 us after its timer, so the timer is set `lead` before the release and the rest is burnt
with the clock in hand. The lead follows what wake-ups need on this host: seven of eight come before their release. Burning
is bounded: it stops being used while the time spun since the start exceeds `budget` of the
time passed, and then releases are as late as the wake-up.
"""

import os

cimport cython
from libc.stdint cimport INT64_MAX
from posix.time cimport CLOCK_MONOTONIC, itimerspec

from fastllmload._ext.plan.dues cimport dues_first, dues_free
from fastllmload._ext.system.clock cimport mono_ns

cdef extern from "<sys/timerfd.h>" nogil:
    int timerfd_create(int clockid, int flags)
    int timerfd_settime(int fd, int flags, const itimerspec* new_value, itimerspec* old_value)
    int TFD_NONBLOCK, TFD_CLOEXEC, TFD_TIMER_ABSTIME

cdef enum:
    LEAST_LEAD = 5_000
    LEAD_STEP = 64              # a wake-up in time shortens the lead by this part of it, one too late makes it longer by seven
    GRACE = 2_000_000           # ns of spinning that are free at the start, before a share of time passed means anything


cdef class Pacer:
    """Walks one phase's schedule. `load()` gives it, `start_at()` sets time zero."""

    def __init__(self, double budget=0.15, int64_t lead_ns=90_000):
        self.fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)
        if self.fd < 0:
            raise OSError("timerfd_create failed: this kernel gives no timer descriptors")
        self.budget = budget
        self.lead = self.most = lead_ns if budget > 0 else 0

    def __dealloc__(self):
        dues_free(&self.followers)
        if self.fd >= 0:
            os.close(self.fd)

    def load(self, const int64_t[::1] schedule not None) -> None:
        """*schedule*: int64 offsets in ns from time zero, ascending."""
        self.schedule = schedule
        self.size = schedule.shape[0]
        self.next = 0
        self.start = self.shifted = 0
        self.spun = 0

    def start_at(self, int64_t start) -> None:
        self.start = start
        self.shifted = 0
        self.arm(mono_ns())

    @property
    def lead_ns(self) -> int:
        return self.lead

    def after_wakes(self, list late_ns) -> int:
        """The lead when wake-ups were so late one after the other: for tests."""
        self.armed = 1
        for late in late_ns:
            self.woke(self.armed + <int64_t>late)
        self.armed = 0
        return self.lead

    @cython.boundscheck(False)
    @cython.wraparound(False)
    @cython.initializedcheck(False)
    cdef int64_t _planned(self) noexcept:
        if self.next >= self.size or self.start == 0:
            return INT64_MAX
        return self.start + self.schedule[self.next]

    cdef int64_t due(self) noexcept:
        return min(self._planned(), dues_first(&self.followers))

    cdef bint follower_is_next(self) noexcept:
        return self.followers.count > 0 and dues_first(&self.followers) < self._planned()

    cdef Py_ssize_t near(self, int64_t until, Py_ssize_t most) noexcept:
        cdef Py_ssize_t found = 0
        if self.start == 0:
            return 0
        while found < most and self.next + found < self.size and self.start + self.schedule[self.next + found] <= until:
            found += 1
        return found

    cdef int64_t spin(self, int64_t now) noexcept:
        cdef int64_t due = self.due()
        cdef int64_t begun = now
        if due - now > self.lead or due <= now or self.spun > self.budget * (now - self.start) + GRACE:
            return now
        while now < due:
            now = mono_ns()
        self.spun += now - begun
        return now

    @cython.cdivision(True)
    cdef void woke(self, int64_t now) noexcept:
        cdef int64_t step = self.lead // LEAD_STEP
        if now - self.armed > self.lead:
            self.lead = min(self.lead + 7 * step, self.most)
        elif self.lead > LEAST_LEAD:
            self.lead -= step

    cdef int arm(self, int64_t now) except -1:
        cdef itimerspec when
        cdef int64_t due = self.due()
        if due == INT64_MAX:
            return 0
        if self.spun <= self.budget * (now - self.start) + GRACE:
            due -= self.lead
        if due < 1:
            due = 1
        if due == self.armed and due > now:
            return 0                # an instant that has passed is set again: its expiry may have been consumed already
        when.it_interval.tv_sec = 0
        when.it_interval.tv_nsec = 0
        when.it_value.tv_sec = due // 1_000_000_000
        when.it_value.tv_nsec = due % 1_000_000_000
        if timerfd_settime(self.fd, TFD_TIMER_ABSTIME, &when, NULL) != 0:
            raise OSError("timerfd_settime failed")
        self.armed = due
        return 0

    cdef void shift(self, int64_t ns) noexcept:
        self.start += ns - self.shifted
        self.shifted = ns

    cdef int stop(self) except -1:
        self.size = self.next
        return 0


cdef class Beat:
    """One expiry per call of `after`."""

    def __init__(self):
        self.fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)
        if self.fd < 0:
            raise OSError("timerfd_create failed: this kernel gives no timer descriptors")

    def __dealloc__(self):
        if self.fd >= 0:
            os.close(self.fd)

    cdef int after(self, int64_t ns) except -1:
        cdef itimerspec when
        when.it_interval.tv_sec = 0
        when.it_interval.tv_nsec = 0
        when.it_value.tv_sec = ns // 1_000_000_000
        when.it_value.tv_nsec = ns % 1_000_000_000
        if timerfd_settime(self.fd, 0, &when, NULL) != 0:
            raise OSError("timerfd_settime failed")
        return 0
