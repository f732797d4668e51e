"""Event rows of workers → one array grouped by merged row, each row's events in time order; one pass over each event.

Event and text arrays are C-contiguous bytes of whole records. *merged_row* maps a worker's row numbers to merged ones.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from fastllmload._ext.recorder cimport EventRow


cdef int check_row(uint32_t row, Py_ssize_t rows) except -1:
    if row >= <uint32_t>rows:
        raise IndexError(f"an event belongs to row {row}, but there are {rows} rows")
    return 0


def used_events(const uint8_t[::1] events) -> int:
    """Number of event records before the zeros at the end of an unfinished file."""
    cdef Py_ssize_t n = events.shape[0] // <Py_ssize_t>sizeof(EventRow)
    if n == 0:
        return 0
    cdef const EventRow* at = <const EventRow*>&events[0]
    while n > 0 and at[n - 1].t_ns == 0:
        n -= 1
    return n


def count_events(const uint8_t[::1] events, const int64_t[::1] merged_row, int64_t[::1] counts) -> None:
    """Add the number of events of each merged row to *counts*. IndexError for an event of a row that is not there."""
    cdef Py_ssize_t i, n = events.shape[0] // <Py_ssize_t>sizeof(EventRow)
    if n == 0:
        return
    cdef const EventRow* at = <const EventRow*>&events[0]
    for i in range(n):
        check_row(at[i].row, merged_row.shape[0])
        counts[merged_row[at[i].row]] += 1


def place_events(
    const uint8_t[::1] events, const int64_t[::1] merged_row, int64_t[::1] next_place, uint8_t[::1] into
) -> None:
    """Copy each event to `next_place[merged row]`, which then moves on, with its merged row number in it."""
    cdef Py_ssize_t i, n = events.shape[0] // <Py_ssize_t>sizeof(EventRow)
    cdef int64_t row, places = into.shape[0] // <Py_ssize_t>sizeof(EventRow)
    if n == 0:
        return
    cdef const EventRow* at = <const EventRow*>&events[0]
    cdef EventRow* to = <EventRow*>&into[0]
    for i in range(n):
        check_row(at[i].row, merged_row.shape[0])
        row = merged_row[at[i].row]
        if not 0 <= next_place[row] < places:
            raise IndexError(f"event {i} has no place: counts and events differ")
        to[next_place[row]] = at[i]
        to[next_place[row]].row = <uint32_t>row
        next_place[row] += 1


def order_rows(uint8_t[::1] events, const int64_t[::1] first) -> int:
    """Sort the events of each row by time, equal times in the order they have; returns how many had to move.

    Row r has the events first[r] to first[r + 1] - 1. They are nearly in order, so insertion is one look per event.
    """
    cdef Py_ssize_t r
    cdef int64_t i, k, n = events.shape[0] // <Py_ssize_t>sizeof(EventRow), moved = 0
    cdef EventRow held
    cdef EventRow* at
    if n == 0:
        return 0
    at = <EventRow*>&events[0]
    for r in range(first.shape[0] - 1):
        if not 0 <= first[r] <= first[r + 1] <= n:
            raise IndexError(f"row {r} has events {first[r]} to {first[r + 1]}, but there are {n}")
        for i in range(first[r] + 1, first[r + 1]):
            if at[i - 1].t_ns <= at[i].t_ns:
                continue
            held = at[i]
            k = i
            while k > first[r] and at[k - 1].t_ns > held.t_ns:
                at[k] = at[k - 1]
                k -= 1
            at[k] = held
            moved += 1
    return moved


def count_rows(const uint8_t[::1] events, int64_t[::1] counts) -> bool:
    """Count the events of each row of a merged file; False when they are not grouped by ascending row."""
    cdef Py_ssize_t i, n = events.shape[0] // <Py_ssize_t>sizeof(EventRow)
    cdef uint32_t before = 0
    if n == 0:
        return True
    cdef const EventRow* at = <const EventRow*>&events[0]
    for i in range(n):
        check_row(at[i].row, counts.shape[0])
        if at[i].row < before:
            return False
        before = at[i].row
        counts[before] += 1
    return True


def repoint_text(const uint8_t[::1] text, const int64_t[::1] merged_row, uint8_t[::1] into) -> None:
    """Copy complete text records {u32 row, u32 size, bytes} with merged row numbers; both arrays have the same size."""
    cdef int64_t at = 0, end = text.shape[0]
    cdef uint32_t[2] head
    if into.shape[0] != end:
        raise ValueError(f"{end} bytes of text do not fit {into.shape[0]} bytes exactly")
    while at < end:
        if end - at < <int64_t>sizeof(head):
            raise ValueError("text ends inside a record")
        memcpy(head, &text[at], sizeof(head))
        if end - at - <int64_t>sizeof(head) < head[1]:
            raise ValueError("text ends inside a record")
        check_row(head[0], merged_row.shape[0])
        head[0] = <uint32_t>merged_row[head[0]]
        memcpy(&into[at], head, sizeof(head))
        at += sizeof(head)
        if head[1]:
            memcpy(&into[at], &text[at], head[1])
        at += head[1]
