"""Lists of connections: constant-time, intrusive, nothing is allocated. A connection is in at most one at a time."""


cdef void list_add(ConnList* list, Conn* c) noexcept:
    c.older = list.youngest
    c.younger = NULL
    if list.youngest != NULL:
        list.youngest.younger = c
    else:
        list.oldest = c
    list.youngest = c
    list.count += 1


cdef void list_remove(ConnList* list, Conn* c) noexcept:
    if c.older != NULL:
        c.older.younger = c.younger
    else:
        list.oldest = c.younger
    if c.younger != NULL:
        c.younger.older = c.older
    else:
        list.youngest = c.older
    list.count -= 1
