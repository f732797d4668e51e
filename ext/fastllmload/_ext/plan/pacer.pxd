# When the next request is due, to the microsecond: an absolute timerfd armed early, the rest spun within a budget.
from libc.stdint cimport int64_t

from fastllmload._ext.plan.dues cimport Dues

cdef class Pacer:
    # Instants are CLOCK_MONOTONIC ns. One per worker; the owner polls *fd* (edge-triggered) and calls due()/arm().
    cdef readonly int fd                # timerfd; owned
    cdef const int64_t[::1] schedule    # offsets from *start*, ascending; borrowed from the plan
    cdef readonly Py_ssize_t next       # first request of the schedule that is not released
    cdef Py_ssize_t size
    cdef readonly int64_t start         # time zero
    cdef int64_t lead                   # wake this early, spin the rest: as early as most wake-ups have been late
    cdef int64_t most                   # and no earlier
    cdef Dues followers                 # turns that came out of replies, in addition to the schedule; what they are is the owner's
    cdef double budget                  # share of a core that spinning may take
    cdef int64_t spun                   # ns spent spinning since *start*
    cdef int64_t armed                  # instant the timer is set to; 0 = not armed
    cdef int64_t shifted                # ns by which shift() has moved *start*

    cdef int64_t due(self) noexcept                 # instant of the next release; INT64_MAX when there is none
    cdef bint follower_is_next(self) noexcept       # and it is a turn, not one of the schedule
    # Releases of the schedule that are due before *until*; more than *most* are not counted.
    cdef Py_ssize_t near(self, int64_t until, Py_ssize_t most) noexcept
    cdef int64_t _planned(self) noexcept
    cdef void woke(self, int64_t now) noexcept      # a thread that slept for the timer came to know of it
    cdef int arm(self, int64_t now) except -1       # set the timer for the next release (or leave it)
    cdef int64_t spin(self, int64_t now) noexcept   # if the next release is within the lead: burn until it is due; returns the time
    cdef void shift(self, int64_t ns) noexcept      # move what is not released to *ns* after where start_at() put it
    cdef int stop(self) except -1                   # forget what is not released

cdef class Beat:
    # A timerfd set again after each beat: gives the event loop its turn while the reactor waits itself. (A periodic one
    # starts its next period only when it is read: that is a system call too.)
    cdef readonly int fd                # owned
    cdef int after(self, int64_t ns) except -1              # 0 stops it
