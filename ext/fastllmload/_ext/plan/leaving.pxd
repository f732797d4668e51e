# What one user does besides waiting for the end: an item of client.npy. 0: does not do it. Times count from t_submit.
from libc.stdint cimport int64_t, uint32_t

cdef packed struct Leaving:
    int64_t cancel_ns       # leaves then
    int64_t abandon_ns      # leaves then, if the first token (or the end) has not come
    uint32_t cancel_tokens  # leaves after that many events with content
    float read_rate         # reads no faster: tokens/s, or bytes/s
    uint32_t abandon_e2e    # 1: it is the end that is waited for
    uint32_t read_bytes     # 1: read_rate is bytes/s

cdef enum ClientFlag:       # RequestRow.client
    CLIENT_CANCELS = 1      # was to leave by plan
    CLIENT_ABANDONS = 2     # had a deadline after which it leaves
    CLIENT_SLOW = 4         # read slowly: its times of receipt are its own doing
