"""Lists of connections and of streams: constant-time, intrusive, nothing is allocated. A link is in at most one list at a time."""


cdef void list_add(List* list, Link* link) noexcept:
    link.older = list.youngest
    link.younger = NULL
    if list.youngest != NULL:
        list.youngest.younger = link
    else:
        list.oldest = link
    list.youngest = link
    list.count += 1


cdef void list_remove(List* list, Link* link) noexcept:
    if link.older != NULL:
        link.older.younger = link.younger
    else:
        list.oldest = link.younger
    if link.younger != NULL:
        link.younger.older = link.older
    else:
        list.youngest = link.older
    list.count -= 1
