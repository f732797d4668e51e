# What failed responses said, for people: the first distinct texts, and how many requests each came with.
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint16_t

@cython.final
cdef class ErrorTexts:
    # One per worker. Bounded: a server that puts a number of its own into every text fills it once.
    cdef dict kept                      # (http_status, error, text) -> requests
    cdef readonly int64_t left_out      # failed requests whose text is none of them
    cdef readonly int64_t versions      # grows with every new text
    cdef int words                      # of *kept*: finish_reasons of answers that did not fail
    cdef int note(self, uint16_t http_status, uint8_t error, const unsigned char* text, size_t size) except -1
    # *data*: the event or body whose finish_reason (Ollama: done_reason) is not a normal end; its word is kept, else all of it.
    # *error* is ERROR_NONE where the word is merely not known.
    cdef int note_reason(self, uint16_t http_status, uint8_t error, const unsigned char* data, size_t size) except -1
