"""A 4-ary heap of instants. Equal instants come out in no promised order; callers that care put a tie-breaker in the key."""

from libc.stdlib cimport free, realloc


cdef int grow(Timers* t) except -1:
    cdef size_t cap = t.cap * 2 if t.cap else 64
    cdef Timer* items = <Timer*>realloc(t.items, cap * sizeof(Timer))
    if items == NULL:
        raise MemoryError(f"no memory for {cap} timers")
    t.items = items
    t.cap = cap
    return 0


cdef int timers_push(Timers* t, int64_t due, void* owner, uint32_t generation, uint32_t purpose) except -1:
    cdef size_t at, parent
    if t.count == t.cap:
        grow(t)
    at = t.count
    t.count += 1
    while at:
        parent = (at - 1) >> 2
        if t.items[parent].due <= due:
            break
        t.items[at] = t.items[parent]
        at = parent
    t.items[at].due = due
    t.items[at].owner = owner
    t.items[at].generation = generation
    t.items[at].purpose = purpose
    return 0


cdef inline size_t least_child(Timers* t, size_t first) noexcept nogil:
    cdef size_t last = first + 4 if first + 4 < t.count else t.count
    cdef size_t best = first
    cdef size_t child
    for child in range(first + 1, last):
        if t.items[child].due < t.items[best].due:
            best = child
    return best


cdef void timers_pop(Timers* t) noexcept nogil:
    cdef size_t at = 0
    cdef size_t child
    cdef Timer last
    t.count -= 1
    last = t.items[t.count]
    while True:
        child = 4 * at + 1
        if child >= t.count:
            break
        child = least_child(t, child)
        if t.items[child].due >= last.due:
            break
        t.items[at] = t.items[child]
        at = child
    t.items[at] = last


cdef void timers_free(Timers* t) noexcept nogil:
    free(t.items)
    t.items = NULL
    t.count = t.cap = 0
