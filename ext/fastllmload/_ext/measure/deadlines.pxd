# Deadlines of token streams, in integer ns: 0.3 // 0.1 is 2.0 in floating point.
from libc.stdint cimport int64_t

cdef struct Tally:          # of one request (spec/metrics 5.9)
    int64_t met             # tokens that came within their deadline and the slack before it
    int64_t missed          # deadlines that passed without a token; a long stall misses several

cdef Tally judge(
    const int64_t* t_ns, int64_t n, int64_t before, int64_t d_first, int64_t d_next
) noexcept nogil
