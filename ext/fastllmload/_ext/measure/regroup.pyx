"""Event rows of workers → one array grouped by merged row, each row's events in time order; one pass over each event.

Event and text arrays are C-contiguous bytes of whole records. *merged_row* maps a worker's row numbers to merged ones.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from fastllmload._ext.events.delta cimport EVENT_CONTENT, EVENT_REASONING, EVENT_REFUSAL, EVENT_TOOL, EVENT_WHITESPACE
from fastllmload._ext.receive.timeline cimport STAMP_CLASS
from fastllmload._ext.record.recorder cimport BRACKET_OPEN, FLAG_FIRST_COALESCED, STAMP_COALESCED, EventRow, RequestRow


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

    Row r has the events first[r] to first[r + 1] - 1. They are nearly in order, so insertion is one comparison per event.
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


def describe_stamps(uint8_t[::1] rows, const uint8_t[::1] events, const int64_t[::1] first) -> None:
    """Set what request rows repeat of the stamps of their events: `stamps` (that of the first token), `coalesced_events` and
    FLAG_FIRST_COALESCED. *rows* has len(first) - 1 records.
    """
    cdef Py_ssize_t i
    cdef int64_t at, n = events.shape[0] // <Py_ssize_t>sizeof(EventRow)
    cdef RequestRow* row
    cdef const EventRow* event
    cdef bint found
    if rows.shape[0] != (first.shape[0] - 1) * <Py_ssize_t>sizeof(RequestRow):
        raise ValueError(f"{rows.shape[0]} bytes of rows do not fit {first.shape[0] - 1} rows")
    if n == 0:
        return
    for i in range(first.shape[0] - 1):
        if not 0 <= first[i] <= first[i + 1] <= n:
            raise IndexError(f"row {i} has events {first[i]} to {first[i + 1]}, but there are {n}")
        row = <RequestRow*>&rows[0] + i
        row.coalesced_events = 0
        row.flags &= ~<uint8_t>FLAG_FIRST_COALESCED
        found = False
        for at in range(first[i], first[i + 1]):
            event = <const EventRow*>&events[0] + at
            row.coalesced_events += event.stamp & STAMP_CLASS == STAMP_COALESCED
            if not found and (event.kind == EVENT_CONTENT or event.kind == EVENT_TOOL):
                found = True
                row.stamps = event.stamp & STAMP_CLASS
                if row.stamps == STAMP_COALESCED:
                    row.flags |= FLAG_FIRST_COALESCED


def earliest(const uint8_t[::1] events, const int64_t[::1] first, const int64_t[::1] t_submit, int64_t[:, ::1] into) -> None:
    """Lower ends of three times of each row: t_any, t_first, t_last, in the columns of *into*; 0 where there is no such event.
    An answer that is not tokens has only t_last, which is its last event.

    None is before the row's *t_submit*.
    """
    cdef Py_ssize_t i, column, rows = first.shape[0] - 1
    cdef int64_t at, low, n = events.shape[0] // <Py_ssize_t>sizeof(EventRow)
    cdef const EventRow* event
    if into.shape[0] != rows or into.shape[1] != 3 or t_submit.shape[0] != rows:
        raise ValueError(f"{into.shape[0]} places and {t_submit.shape[0]} submissions do not fit {rows} rows")
    for i in range(rows):
        if not 0 <= first[i] <= first[i + 1] <= n:
            raise IndexError(f"row {i} has events {first[i]} to {first[i + 1]}, but there are {n}")
        for column in range(3):
            into[i, column] = 0
        for at in range(first[i], first[i + 1]):
            event = <const EventRow*>&events[0] + at
            low = t_submit[i]
            if event.bracket_ns != BRACKET_OPEN:
                low = max(low, event.t_ns - <int64_t>event.bracket_ns)
            if event.kind not in (EVENT_CONTENT, EVENT_TOOL, EVENT_REASONING, EVENT_WHITESPACE, EVENT_REFUSAL):
                if into[i, 0] == 0:
                    into[i, 2] = low
                continue
            if into[i, 0] == 0:
                into[i, 0] = low
            if event.kind == EVENT_CONTENT or event.kind == EVENT_TOOL:
                if into[i, 1] == 0:
                    into[i, 1] = low
                into[i, 2] = low
            elif into[i, 1] == 0:       # of an answer that is all reasoning, the last of it
                into[i, 2] = low


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
