"""HDR histograms in int64 words: the counts of hdrhistogram's HdrHistogram(1, 3_600_000_000_000, 3), then a short tail.

*words* is always a C-contiguous int64 array of WORDS items; it may lie in shared memory that a worker is writing.
"""

import sys

import numpy as np

WORDS = HDR_WORDS
COUNTS = HDR_COUNTS
HIGHEST = 3_600_000_000_000
DIGITS = 3
# Positions of the tail words
TOTAL, MINIMUM, MAXIMUM, OVERFLOW = HDR_COUNTS, HDR_COUNTS + 1, HDR_COUNTS + 2, HDR_COUNTS + 3


cdef int check_size(int64_t[::1] words) except -1:
    if words.shape[0] != HDR_WORDS:
        raise ValueError(f"a histogram has {HDR_WORDS} words, not {words.shape[0]}")
    return 0


cdef (int64_t, int64_t) equivalents(Py_ssize_t index) noexcept nogil:
    # The smallest and the largest value that are counted at *index*.
    cdef Py_ssize_t bucket = (index >> HDR_SUB_BUCKET_HALF_BITS) - 1
    cdef int64_t sub = (index & 1023) + 1024
    if bucket < 0:
        sub -= 1024
        bucket = 0
    return sub << bucket, ((sub + 1) << bucket) - 1


def empty():
    """A new histogram: WORDS zeroed int64 words."""
    return np.zeros(HDR_WORDS, np.int64)


def record_many(int64_t[::1] words, const int64_t[::1] values) -> None:
    """Count every value (ns) as the worker's hot path does: below 0 as 0, above 1 h as 1 h and in the overflow word."""
    cdef Hdr h
    cdef Py_ssize_t i
    check_size(words)
    h.counts = &words[0]
    for i in range(values.shape[0]):
        hdr_record(&h, values[i])


def total(const int64_t[::1] words) -> int:
    """Number of counted values, from the counts themselves: the total word may be ahead while a worker writes."""
    cdef int64_t seen = 0
    cdef Py_ssize_t i
    if words.shape[0] < HDR_COUNTS:
        raise ValueError(f"a histogram has {HDR_COUNTS} counts, not {words.shape[0]}")
    for i in range(HDR_COUNTS):
        seen += words[i]
    return seen


def percentile(const int64_t[::1] words, double q):
    """Value in ns below or at which the share *q* in [0, 1] of the values lies; None when nothing was counted.

    The same number as HdrHistogram.get_value_at_percentile(100 * q): the highest value of its bucket (for q = 0 the
    lowest). The difference of two readings of one histogram is a histogram too, and gives the percentile of what came between.
    """
    cdef int64_t target, seen = 0
    cdef Py_ssize_t i
    if not 0.0 <= q <= 1.0:
        raise ValueError(f"q is a share between 0 and 1, not {q}")
    cdef int64_t n = total(words)
    if n == 0:
        return None
    target = max(1, int(100.0 * q * n / 100.0 + 0.5))
    for i in range(HDR_COUNTS):
        seen += words[i]
        if seen >= target:
            break
    low, high = equivalents(i)
    return high if q else low


def add(int64_t[::1] into, const int64_t[::1] words) -> None:
    """Add a histogram to another one, as if its values had been recorded there too."""
    cdef Py_ssize_t i
    check_size(into)
    if words.shape[0] != HDR_WORDS:
        raise ValueError(f"a histogram has {HDR_WORDS} words, not {words.shape[0]}")
    if words[HDR_COUNTS] == 0:
        return
    if into[HDR_COUNTS] == 0 or words[HDR_COUNTS + 1] < into[HDR_COUNTS + 1]:
        into[HDR_COUNTS + 1] = words[HDR_COUNTS + 1]
    into[HDR_COUNTS + 2] = max(into[HDR_COUNTS + 2], words[HDR_COUNTS + 2])
    into[HDR_COUNTS + 3] += words[HDR_COUNTS + 3]
    into[HDR_COUNTS] += words[HDR_COUNTS]
    for i in range(HDR_COUNTS):
        into[i] += words[i]


def to_hdrhistogram(const int64_t[::1] words):
    """A hdrhistogram.HdrHistogram with the same state as if every value had gone through its record_value()."""
    from hdrh.histogram import HdrHistogram

    if words.shape[0] != HDR_WORDS:
        raise ValueError(f"a histogram has {HDR_WORDS} words, not {words.shape[0]}")
    histogram = HdrHistogram(1, HIGHEST, DIGITS)
    np.frombuffer(histogram.counts, np.int64)[:] = words[:HDR_COUNTS]
    histogram.total_count = words[HDR_COUNTS]
    histogram.min_value = words[HDR_COUNTS + 1] if words[HDR_COUNTS] else sys.maxsize
    histogram.max_value = words[HDR_COUNTS + 2]
    return histogram
