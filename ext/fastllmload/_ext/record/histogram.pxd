# HDR histogram recording, bucket-compatible with hdrhistogram.HdrHistogram(1, 3_600_000_000_000, 3): nanoseconds, 1 h, 3 digits.
from libc.stdint cimport int64_t

cdef enum:
    HDR_SUB_BUCKET_HALF_BITS = 10       # 3 significant digits: 2048 sub-buckets
    HDR_SUB_BUCKETS = 2048
    HDR_BUCKETS = 32                    # fewest powers of two that cover 3.6e12 ns
    HDR_COUNTS = 33792                  # (HDR_BUCKETS + 1) * HDR_SUB_BUCKETS / 2
    HDR_WORDS = 33800                   # counts, then total, min, max, overflow and 4 spare words: what one histogram takes in shared memory

cdef extern from * nogil:
    int __builtin_clzll(unsigned long long)

cdef struct Hdr:
    int64_t* counts             # HDR_WORDS int64; borrowed (shared memory or a numpy array)

# Where a value from 0 to 1 h is counted.
cdef inline int64_t* hdr_place(Hdr* h, int64_t value) noexcept nogil:
    cdef int bucket = 64 - __builtin_clzll(<unsigned long long>value | 2047) - 11
    return h.counts + ((bucket + 1) << HDR_SUB_BUCKET_HALF_BITS) + (value >> bucket) - 1024

cdef inline void hdr_record(Hdr* h, int64_t value) noexcept nogil:
    # Values below 0 count as 0; above 1 h as 1 h, and in the overflow word.
    if value < 0:
        value = 0
    if value > 3_600_000_000_000LL:
        value = 3_600_000_000_000LL
        h.counts[HDR_COUNTS + 3] += 1
    hdr_place(h, value)[0] += 1
    if h.counts[HDR_COUNTS] == 0 or value < h.counts[HDR_COUNTS + 1]:
        h.counts[HDR_COUNTS + 1] = value
    if value > h.counts[HDR_COUNTS + 2]:
        h.counts[HDR_COUNTS + 2] = value
    h.counts[HDR_COUNTS] += 1
