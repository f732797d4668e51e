# Short time slices for threads that must run soon after they wake, and run briefly.
from libc.stdint cimport int64_t

# Ask the scheduler for slices of *ns* for the calling thread. 0, or the errno; its policy and nice value stay.
cdef int slice_ask(int64_t ns) noexcept nogil
