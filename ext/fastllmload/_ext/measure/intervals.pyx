"""Values and gaps counted into one HDR histogram per interval of time: the rows of an interval log.

*words* is int64[intervals, histogram.WORDS]; interval i holds what happened in
[begin_ns + i * width_ns, begin_ns + (i + 1) * width_ns). What happened outside of all intervals is not counted.
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t

from fastllmload._ext.record.histogram cimport HDR_WORDS, Hdr, hdr_record


cdef int check_words(const int64_t[:, ::1] words, int64_t width_ns) except -1:
    if words.shape[1] != HDR_WORDS:
        raise ValueError(f"a histogram has {HDR_WORDS} words, not {words.shape[1]}")
    if width_ns <= 0:
        raise ValueError(f"an interval takes longer than {width_ns} ns")
    return 0


def record_values(
    const int64_t[::1] t_ns, const int64_t[::1] values, int64_t begin_ns, int64_t width_ns, int64_t[:, ::1] words
) -> int:
    """Count values[k] in the interval of t_ns[k]; returns how many were counted."""
    cdef Py_ssize_t k
    cdef int64_t place, end_ns, counted = 0
    cdef Hdr h
    h.counts = NULL
    check_words(words, width_ns)
    if t_ns.shape[0] != values.shape[0]:
        raise ValueError(f"{values.shape[0]} values need as many times, not {t_ns.shape[0]}")
    end_ns = begin_ns + words.shape[0] * width_ns
    for k in range(t_ns.shape[0]):
        if begin_ns <= t_ns[k] < end_ns:
            place = (t_ns[k] - begin_ns) // width_ns
            h.counts = &words[place, 0]
            hdr_record(&h, values[k])
            counted += 1
    return counted


@cython.boundscheck(False)      # each index is checked against the lists and the intervals by hand
@cython.wraparound(False)
@cython.cdivision(True)
cdef int64_t gaps_of_one(
    const int64_t[::1] t_ns, int64_t begin, int64_t end, int64_t begin_ns, int64_t width_ns, int64_t[:, ::1] words
) noexcept nogil:
    # Times ascend, so the interval of one token is mostly that of the token before: a division only where it changes.
    cdef int64_t i, t, next_ns = begin_ns, end_ns = begin_ns + words.shape[0] * width_ns, counted = 0
    cdef Hdr h
    h.counts = NULL
    for i in range(begin + 1, end):
        t = t_ns[i]
        if t < begin_ns or t >= end_ns:
            continue
        if t >= next_ns or t < next_ns - width_ns:
            next_ns = begin_ns + ((t - begin_ns) // width_ns + 1) * width_ns
            h.counts = &words[(t - begin_ns) // width_ns, 0]
        hdr_record(&h, t - t_ns[i - 1])
        counted += 1
    return counted


def record_gaps(
    const int64_t[::1] t_ns, const int64_t[::1] first, const uint8_t[::1] chosen,
    int64_t begin_ns, int64_t width_ns, int64_t[:, ::1] words
) -> int:
    """Count the ns between consecutive items of each chosen list in the interval of the later one; returns how many.

    List k has the items `t_ns[first[k]:first[k + 1]]`.
    """
    cdef Py_ssize_t k, n = first.shape[0] - 1
    cdef int64_t counted = 0
    check_words(words, width_ns)
    if chosen.shape[0] != n:
        raise ValueError(f"{n} lists need as many choices, not {chosen.shape[0]}")
    for k in range(n):
        if not 0 <= first[k] <= first[k + 1] <= t_ns.shape[0]:
            raise IndexError(f"list {k} does not lie within {t_ns.shape[0]} items")
        if chosen[k]:
            counted += gaps_of_one(t_ns, first[k], first[k + 1], begin_ns, width_ns, words)
    return counted
