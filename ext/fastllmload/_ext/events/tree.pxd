# What an event says, by way of a msgspec tree: for whatever the scan gives up on, and for every event under
# strict.
from libc.stdint cimport int32_t, uint8_t

from fastllmload._ext.bytes.jsonscan cimport StringSpan
from fastllmload._ext.events.dialect cimport Dialect, DialectTable
from fastllmload._ext.events.facts cimport Facts

cdef class EventTree:
    cdef object _decoder
    cdef bytes _data            # what is being read, with unpaired surrogates and invalid UTF-8 replaced
    cdef list _keep             # bytes objects that hold the bodies in Facts, until the next call
    # True: *f*, cleared before, holds what the event says. False: it is not JSON, or of a shape that is no
    # event.
    cdef bint read(self, const unsigned char* data, size_t size, Dialect dialect, bint whole, Facts* f) except? False
    # The event written again: no name has an escape, no name comes twice, every string is valid. It must be JSON.
    cdef bytes anew(self, const unsigned char* data, size_t size)
    cdef int _event(self, dict event, dict keys, const DialectTable* d, Facts* f) except -1
    cdef int _object(self, tuple path, dict found, dict keys, const DialectTable* d, Facts* f) except -1
    cdef int _value(self, tuple path, str name, value, uint8_t field, more, const DialectTable* d, Facts* f) except -1
    cdef int _choices(self, tuple path, list entries, dict keys, const DialectTable* d, Facts* f) except -1
    cdef int _of_call(self, tuple path, str name, str text, bint said, StringSpan* body, Facts* f) except -1
    cdef int _body(self, tuple path, str name, str text, StringSpan* body) except -1
