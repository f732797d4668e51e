"""What the deadlines of a stream say about each request: fluidity, the least deadline it keeps, and a reader's waiting.

Token times are CSR: request k has t_ns[first[k]:first[k + 1]], CLOCK_MONOTONIC ns in ascending order; *origin* is the
instant, per request, from which its deadlines count. Everything is integer ns.
"""

cimport cython
from libc.stdint cimport INT64_MIN

cdef enum:
    KEPT_OF = 10

NEVER = INT64_MIN  # what a request without the figure has
MISS_SHARE = KEPT_OF  # the least deadline may be missed by one in that many


cdef int check_lists(const int64_t[::1] first, Py_ssize_t items, Py_ssize_t per_request) except -1:
    """IndexError unless *first* ascends within *items* and there are *per_request* lists."""
    cdef Py_ssize_t k
    if first.shape[0] != per_request + 1 or first[0] < 0 or first[per_request] > items:
        raise IndexError(f"{per_request} requests do not lie within {items} token times")
    for k in range(per_request):
        if first[k] > first[k + 1]:
            raise IndexError(f"the tokens of request {k} end before they begin")
    return 0


@cython.cdivision(True)  # late and d_next are above 0 there
cdef Tally judge(
    const int64_t* t_ns, int64_t n, int64_t before, int64_t d_first, int64_t d_next
) noexcept nogil:
    # n tokens, the first due d_first after *before*, each other one d_next after the one before it. What a token comes
    # early is slack for those after it; a miss loses all slack. d_next > 0.
    cdef Tally tally
    cdef int64_t i, late, slack = 0, due = d_first
    tally.met = tally.missed = 0
    for i in range(n):
        late = t_ns[i] - before - due - slack
        if late <= 0:
            tally.met += 1
            slack = -late
        else:
            tally.missed += late // d_next + 1
            slack = 0
        before = t_ns[i]
        due = d_next
    return tally


@cython.boundscheck(False)
@cython.wraparound(False)
def fluidity(
    const int64_t[::1] t_ns, const int64_t[::1] first, const int64_t[::1] origin, const int64_t[::1] d_p, int64_t d_d,
    int64_t[:, ::1] tallies
) -> None:
    """Per request (met, missed, met without the first token): d_p from *origin* to token 1, d_d from token to token."""
    cdef Py_ssize_t k, n = tallies.shape[0]
    cdef int64_t tokens
    cdef Tally tally
    check_lists(first, t_ns.shape[0], n)
    if origin.shape[0] != n or d_p.shape[0] != n or tallies.shape[1] != 3 or d_d <= 0:
        raise ValueError("fluidity needs an origin, a d_p and three places per request, and d_d above 0")
    for k in range(n):
        tokens = first[k + 1] - first[k]
        tallies[k, 0] = tallies[k, 1] = tallies[k, 2] = 0
        if tokens == 0:
            continue
        tally = judge(&t_ns[first[k]], tokens, origin[k], d_p[k], d_d)
        tallies[k, 0], tallies[k, 1] = tally.met, tally.missed
        if tokens > 1:
            tallies[k, 2] = judge(&t_ns[first[k] + 1], tokens - 1, t_ns[first[k]], d_d, d_d).met


cdef bint keeps(const int64_t* t_ns, int64_t n, int64_t deadline) noexcept nogil:
    # Whether at most 1 in KEPT_OF deadlines of tokens 2 to n passes without its token.
    cdef Tally tally = judge(t_ns + 1, n - 1, t_ns[0], deadline, deadline)
    return tally.missed * KEPT_OF <= tally.met + tally.missed


cdef int64_t longest_gap(const int64_t* t_ns, int64_t n) noexcept nogil:
    cdef int64_t i, most = 0
    for i in range(1, n):
        most = max(most, t_ns[i] - t_ns[i - 1])
    return most


@cython.boundscheck(False)
@cython.wraparound(False)
def least_deadline(const int64_t[::1] t_ns, const int64_t[::1] first, int64_t step, int64_t[::1] into) -> None:
    """Per request the smallest d_d, to *step* ns, that at most a tenth of the decode deadlines miss; NEVER below 2 tokens.

    Bisection between 0 and the longest gap, which misses nothing. The miss rate is not monotone in d_d everywhere: what
    comes out keeps the bound, and the value tried *step* or less below it did not.
    """
    cdef Py_ssize_t k, n = into.shape[0]
    cdef int64_t low, high, middle, tokens
    cdef const int64_t* at
    check_lists(first, t_ns.shape[0], n)
    if step <= 0:
        raise ValueError(f"step is {step} ns; it must be above 0")
    for k in range(n):
        tokens = first[k + 1] - first[k]
        into[k] = INT64_MIN
        if tokens < 2:
            continue
        at = &t_ns[first[k]]
        low, high = 0, longest_gap(at, tokens)
        while high - low > step:
            middle = low + (high - low) // 2
            if keeps(at, tokens, middle):
                high = middle
            else:
                low = middle
        into[k] = high


@cython.boundscheck(False)
@cython.wraparound(False)
def lateness(
    const int64_t[::1] t_ns, const int64_t[::1] first, const int64_t[::1] origin, const int64_t[::1] waited_until,
    int64_t d_1, int64_t per_token, int64_t[::1] into
) -> None:
    """Per request max over its tokens of t_i - (d_1 + (i - 1) per_token), from *origin*; may be negative.

    *waited_until* is 0 for a request whose reader got all there was; else the instant until which the reader waited for
    one token more, which counts as a token of that instant. NEVER for a request with neither.
    """
    cdef Py_ssize_t k, n = into.shape[0]
    cdef int64_t i, due, worst
    check_lists(first, t_ns.shape[0], n)
    if origin.shape[0] != n or waited_until.shape[0] != n:
        raise ValueError("lateness needs an origin and an end per request")
    for k in range(n):
        worst = INT64_MIN
        due = origin[k] + d_1
        for i in range(first[k], first[k + 1]):
            worst = max(worst, t_ns[i] - due)
            due += per_token
        if waited_until[k]:
            worst = max(worst, waited_until[k] - due)
        into[k] = worst
