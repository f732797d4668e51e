# Finds the place of a value in a JSON text: for what is read seldom and needs no tree. Callers go down level by level.
from fastllmload._ext.bytes.cursor cimport Cursor

# The value of the member *name* of the object at *object*, the last of that name. False: the object cannot be read this way
# (invalid, or unusual: an escape in a name). value.at is NULL where there is no such member, or it is null.
cdef bint json_member(Cursor* object, const char* name, size_t size, Cursor* value) noexcept nogil

# The next item of an array; *c* stands before its opening bracket when *first*, and after the previous item otherwise. 1:
# *value* is one; 0: there is none, *c* is after the closing bracket; -1: the array cannot be read this way.
cdef int json_item(Cursor* c, bint first, Cursor* value) noexcept nogil
