"""Events of chosen rows → times of their chunks → times of their tokens → gaps between them; one pass over each event.

All lists of items are CSR: request k of the chosen ones has the items first[k]:first[k + 1]. *chosen* is one byte per row of
the run, 0 = left out. Event arrays are C-contiguous bytes of whole EventRow records.
"""

cimport cython
from libc.math cimport NAN, sqrt
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t

from fastllmload._ext.events.delta cimport (
    EVENT_CONTENT, EVENT_EMPTY, EVENT_REFUSAL, EVENT_ROLE, EVENT_TOOL, EVENT_WHITESPACE,
)
from fastllmload._ext.receive.timeline cimport WITHOUT_TEXT
from fastllmload._ext.record.recorder cimport BRACKET_OPEN, TOKENS_NONE, EventRow


cdef int check_lists(const int64_t[::1] first, Py_ssize_t items) except -1:
    """IndexError unless *first* ascends from 0 or more and ends within *items*."""
    cdef Py_ssize_t k
    if first.shape[0] == 0 or first[0] < 0 or first[first.shape[0] - 1] > items:
        raise IndexError(f"lists do not lie within {items} items")
    for k in range(first.shape[0] - 1):
        if first[k] > first[k + 1]:
            raise IndexError(f"list {k} ends before it begins")
    return 0


cdef inline bint is_timed(const EventRow* event, bint* begun) noexcept nogil:
    # On the content timeline (spec/metrics 3.2): whitespace counts only after the first content of its request.
    if event.kind == EVENT_CONTENT or event.kind == EVENT_TOOL or event.kind == EVENT_REFUSAL:
        begun[0] = True
        return True
    return begun[0] and event.kind == EVENT_WHITESPACE


cdef int64_t timed_of(const EventRow* at, int64_t begin, int64_t end) noexcept nogil:
    cdef bint begun = False
    cdef int64_t i, found = 0
    for i in range(begin, end):
        found += is_timed(&at[i], &begun)
    return found


def count_timed(
    const uint8_t[::1] events, const int64_t[::1] first_event, const uint8_t[::1] chosen, int64_t[::1] first
) -> None:
    """Write the lists' borders: *first* has one item more than there are chosen rows."""
    cdef Py_ssize_t row, k = 0
    cdef int64_t n = events.shape[0] // <Py_ssize_t>sizeof(EventRow)
    cdef const EventRow* at = <const EventRow*>&events[0] if n else NULL
    check_lists(first_event, n)
    if first_event.shape[0] != chosen.shape[0] + 1:
        raise ValueError(f"{chosen.shape[0]} rows need {chosen.shape[0] + 1} borders of their events")
    first[0] = 0
    for row in range(chosen.shape[0]):
        if chosen[row]:
            first[k + 1] = first[k] + timed_of(at, first_event[row], first_event[row + 1])
            k += 1
    if k + 1 != first.shape[0]:
        raise ValueError(f"{k} rows are chosen, but there is room for {first.shape[0] - 1}")


def take_timed(
    const uint8_t[::1] events, const int64_t[::1] first_event, const uint8_t[::1] chosen,
    int64_t[::1] t_ns, uint16_t[::1] tokens
) -> None:
    """Write time and stated tokens (0 = not said) of each timed event of the chosen rows."""
    cdef Py_ssize_t row
    cdef int64_t i, k = 0, n = events.shape[0] // <Py_ssize_t>sizeof(EventRow)
    cdef const EventRow* at = <const EventRow*>&events[0] if n else NULL
    cdef bint begun
    check_lists(first_event, n)
    if t_ns.shape[0] != tokens.shape[0] or first_event.shape[0] != chosen.shape[0] + 1:
        raise ValueError("times and tokens need one item per timed event")
    for row in range(chosen.shape[0]):
        begun = False
        if not chosen[row]:
            continue
        for i in range(first_event[row], first_event[row + 1]):
            if is_timed(&at[i], &begun):
                t_ns[k] = at[i].t_ns
                tokens[k] = at[i].tokens
                k += 1


cdef inline int64_t earliest_of(const EventRow* event, int64_t submitted) noexcept nogil:
    cdef int64_t low = submitted
    if event.bracket_ns != BRACKET_OPEN:
        low = max(low, event.t_ns - <int64_t>event.bracket_ns)
    return min(low, event.t_ns)


def take_gap_bounds(
    const uint8_t[::1] events, const int64_t[::1] first_event, const uint8_t[::1] chosen, const int64_t[::1] t_submit,
    const uint8_t[::1] bearing, int64_t[::1] least, int64_t[::1] most
) -> tuple[int, int]:
    """Write the shortest and the longest ns that each gap between consecutive timed events of one chosen row may be, none of
    which came before its row's *t_submit*; returns how many gaps, and how many timed events there are.

    *bearing*: one byte per timed event, 0 = left out; None: all count. *least* and *most* have room for all events.
    """
    cdef Py_ssize_t row
    cdef int64_t i, low, t_before, low_before, timed = 0, found = 0, n = events.shape[0] // <Py_ssize_t>sizeof(EventRow)
    cdef const EventRow* at = <const EventRow*>&events[0] if n else NULL
    cdef bint begun, follows, every = bearing is None
    check_lists(first_event, n)
    if first_event.shape[0] != chosen.shape[0] + 1 or t_submit.shape[0] != chosen.shape[0]:
        raise ValueError("borders and submissions need one item per row")
    if least.shape[0] != most.shape[0] or least.shape[0] < first_event[chosen.shape[0]] - first_event[0]:
        raise ValueError("bounds need one place per event")
    for row in range(chosen.shape[0]):
        begun = follows = False
        t_before = low_before = 0
        if not chosen[row]:
            continue
        for i in range(first_event[row], first_event[row + 1]):
            if not is_timed(&at[i], &begun):
                continue
            timed += 1
            if not every and not bearing[timed - 1]:
                continue
            low = earliest_of(&at[i], t_submit[row])
            if follows:
                least[found] = max(low - t_before, <int64_t>0)
                most[found] = at[i].t_ns - low_before
                found += 1
            follows = True
            t_before = at[i].t_ns
            low_before = low
    return found, timed


def take_gap_brackets(
    const uint8_t[::1] events, const int64_t[::1] first_event, const uint8_t[::1] chosen, int64_t[::1] into
) -> int:
    """Write the larger bracket of the two ends of each gap between content events of one chosen row; returns their number.

    Whitespace counts wherever it stands. *into* has room for as many as there are events.
    """
    cdef Py_ssize_t row
    cdef int64_t i, bracket, before, found = 0, n = events.shape[0] // <Py_ssize_t>sizeof(EventRow)
    cdef const EventRow* at = <const EventRow*>&events[0] if n else NULL
    check_lists(first_event, n)
    if first_event.shape[0] != chosen.shape[0] + 1 or into.shape[0] < first_event[chosen.shape[0]] - first_event[0]:
        raise ValueError("borders need one item per row, and brackets one place per event")
    for row in range(chosen.shape[0]):
        before = -1
        if not chosen[row]:
            continue
        for i in range(first_event[row], first_event[row + 1]):
            if at[i].kind != EVENT_CONTENT and at[i].kind != EVENT_WHITESPACE and at[i].kind != EVENT_TOOL:
                continue
            bracket = at[i].bracket_ns
            if before >= 0:
                into[found] = max(bracket, before)
                found += 1
            before = bracket
    return found


def count_empty(
    const uint8_t[::1] events, const int64_t[::1] first_event, const uint8_t[::1] chosen, int64_t[::1] unsaid
) -> int:
    """Events without text between timed events of the chosen rows: write those of each for which it is not known whether they carry
    a token, and return how many carry some.
    """
    cdef Py_ssize_t row, k = 0
    cdef int64_t i, waiting, said = 0, n = events.shape[0] // <Py_ssize_t>sizeof(EventRow)
    cdef const EventRow* at = <const EventRow*>&events[0] if n else NULL
    cdef bint begun
    check_lists(first_event, n)
    if first_event.shape[0] != chosen.shape[0] + 1:
        raise ValueError(f"{chosen.shape[0]} rows need {chosen.shape[0] + 1} borders of their events")
    for row in range(chosen.shape[0]):
        begun = False
        waiting = 0
        if not chosen[row]:
            continue
        unsaid[k] = 0
        for i in range(first_event[row], first_event[row + 1]):
            if is_timed(&at[i], &begun):
                unsaid[k] += waiting
                waiting = 0
                said += at[i].stamp & WITHOUT_TEXT != 0
            elif begun and (at[i].kind == EVENT_EMPTY or at[i].kind == EVENT_ROLE) and at[i].tokens == 0:
                waiting += 1        # some servers say the role in every event
        k += 1
    if k != unsaid.shape[0]:
        raise ValueError(f"{k} rows are chosen, but there is room for {unsaid.shape[0]}")
    return said


@cython.boundscheck(False)
@cython.wraparound(False)
def chunk_facts(
    const uint16_t[::1] tokens, const int64_t[::1] first, int64_t[::1] said, int64_t[::1] single, int64_t[::1] total
) -> None:
    """Per request: chunks whose tokens the server stated, chunks with exactly one, and the stated tokens altogether."""
    cdef Py_ssize_t k, n = first.shape[0] - 1
    cdef int64_t i
    check_lists(first, tokens.shape[0])
    if said.shape[0] != n or single.shape[0] != n or total.shape[0] != n:
        raise ValueError("facts need one item per request")
    for k in range(n):
        said[k] = single[k] = total[k] = 0
        for i in range(first[k], first[k + 1]):
            said[k] += tokens[i] > 0
            single[k] += tokens[i] == 1
            total[k] += tokens[i] if tokens[i] != TOKENS_NONE else 0


def spread(const int64_t[::1] t_ns, const uint32_t[::1] sizes, int64_t[::1] into) -> None:
    """Write each chunk's time once per token of the chunk (option B). *into* has as many items as there are tokens."""
    cdef Py_ssize_t i
    cdef int64_t at = 0
    cdef uint32_t k
    if sizes.shape[0] != t_ns.shape[0]:
        raise ValueError("sizes need one item per chunk")
    for i in range(t_ns.shape[0]):
        for k in range(sizes[i]):
            into[at] = t_ns[i]
            at += 1
    if at != into.shape[0]:
        raise ValueError(f"{at} tokens do not fill {into.shape[0]} places")


@cython.boundscheck(False)
@cython.wraparound(False)
def take_gaps(const int64_t[::1] t_ns, const int64_t[::1] first, const uint8_t[::1] kept, int64_t[::1] into) -> None:
    """Write the ns between consecutive items of each request that is *kept*; *into* has exactly that many items."""
    cdef Py_ssize_t k, n = first.shape[0] - 1
    cdef int64_t i, at = 0, room = into.shape[0]
    check_lists(first, t_ns.shape[0])
    if kept.shape[0] != n:
        raise ValueError("kept needs one item per request")
    for k in range(n):
        if not kept[k] or first[k + 1] <= first[k]:
            continue
        if at + first[k + 1] - first[k] - 1 > room:
            raise IndexError(f"there is room for {room} gaps only")
        for i in range(first[k] + 1, first[k + 1]):
            into[at] = t_ns[i] - t_ns[i - 1]
            at += 1
    if at != room:
        raise ValueError(f"{at} gaps do not fill {room} places")


@cython.cdivision(True)
cdef double deviation(const int64_t* gap, int64_t n) noexcept nogil:
    # Population standard deviation of n >= 1 gaps, in two passes: the sum of squares alone would cancel.
    cdef int64_t i, total = 0
    cdef double mean, step, squares = 0
    for i in range(n):
        total += gap[i]
    mean = <double>total / n
    for i in range(n):
        step = gap[i] - mean
        squares += step * step
    return sqrt(squares / n)


@cython.boundscheck(False)
@cython.wraparound(False)
def gap_figures(const int64_t[::1] gaps, const int64_t[::1] first, double[::1] jitter, double[::1] longest) -> None:
    """Per request: standard deviation of its gaps (NaN below 2) and the longest of them (NaN without one), in ns."""
    cdef Py_ssize_t k, n = first.shape[0] - 1
    cdef int64_t i, most
    check_lists(first, gaps.shape[0])
    if jitter.shape[0] != n or longest.shape[0] != n:
        raise ValueError("figures need one item per request")
    for k in range(n):
        jitter[k] = longest[k] = NAN
        if first[k + 1] <= first[k]:
            continue
        most = gaps[first[k]]
        for i in range(first[k] + 1, first[k + 1]):
            most = max(most, gaps[i])
        longest[k] = most
        if first[k + 1] - first[k] >= 2:
            jitter[k] = deviation(&gaps[first[k]], first[k + 1] - first[k])


@cython.boundscheck(False)
@cython.wraparound(False)
def longest_gaps(const int64_t[::1] t_ns, const int64_t[::1] first, double[::1] longest) -> None:
    """Per request: the longest ns between consecutive items, NaN below two of them."""
    cdef Py_ssize_t k, n = first.shape[0] - 1
    cdef int64_t i, most
    check_lists(first, t_ns.shape[0])
    if longest.shape[0] != n:
        raise ValueError("longest gaps need one item per request")
    for k in range(n):
        longest[k] = NAN
        if first[k + 1] - first[k] < 2:
            continue
        most = t_ns[first[k] + 1] - t_ns[first[k]]
        for i in range(first[k] + 2, first[k + 1]):
            most = max(most, t_ns[i] - t_ns[i - 1])
        longest[k] = most
