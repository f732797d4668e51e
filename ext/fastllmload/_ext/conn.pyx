"""Idle stacks and the in-flight list: constant-time, intrusive, allocation only when a stack grows."""

from libc.stdlib cimport realloc


cdef int idle_push(TargetState* t, Conn* c) except -1:
    cdef Conn** grown
    if t.idle_count == t.idle_cap:
        grown = <Conn**>realloc(t.idle, (t.idle_cap * 2 + 256) * sizeof(Conn*))
        if grown == NULL:
            raise MemoryError("stack of idle connections")
        t.idle = grown
        t.idle_cap = t.idle_cap * 2 + 256
    c.state = C_IDLE
    c.pool_at = t.idle_count
    t.idle[t.idle_count] = c
    t.idle_count += 1
    return 0


cdef void idle_remove(TargetState* t, Conn* c) noexcept:
    t.idle_count -= 1
    t.idle[c.pool_at] = t.idle[t.idle_count]
    t.idle[c.pool_at].pool_at = c.pool_at


cdef void in_flight_add(InFlight* list, Conn* c) noexcept:
    c.older = list.youngest
    c.younger = NULL
    if list.youngest != NULL:
        list.youngest.younger = c
    else:
        list.oldest = c
    list.youngest = c
    list.count += 1


cdef void in_flight_remove(InFlight* list, Conn* c) noexcept:
    if c.older != NULL:
        c.older.younger = c.younger
    else:
        list.oldest = c.younger
    if c.younger != NULL:
        c.younger.older = c.older
    else:
        list.youngest = c.older
    list.count -= 1
