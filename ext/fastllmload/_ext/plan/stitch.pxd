# Request bodies out of drawn numbers: a gather of word bytes between the fixed pieces of a body.
from libc.stdint cimport int32_t, uint32_t, uint64_t, uint8_t

cdef enum:
    WORD_MAX = 64           # bytes of one word at most; the blob has that many spare bytes after its last word
    NUMBER_MAX = 20         # bytes of a decimal number at most

cdef class Stitcher:
    # body = before + words + pieces[0] + N + pieces[1] + N … + pieces[-1], N = the request's output tokens in decimal.
    cdef object _keep                   # what the views and pointers below borrow from
    cdef const uint8_t[::1] blob        # all words, then WORD_MAX bytes of anything
    cdef const uint32_t[::1] words      # per drawn number: offset into blob << 8 | bytes
    cdef const uint32_t[::1] first      # the same for the first word of a prompt
    cdef bytes before
    cdef list pieces                    # of bytes; at least one
    cdef readonly Py_ssize_t fixed      # bytes of a body besides its words, at most
    cdef readonly Py_ssize_t longest    # bytes of the longest word

    cdef int _check(self, const uint32_t[::1] table) except -1
    cdef uint8_t* _tail(self, uint8_t* at, int32_t number) except NULL
