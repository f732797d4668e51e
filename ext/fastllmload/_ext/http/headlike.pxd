# Response heads that equal an earlier one in all but values that are not read: they need no parser.
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint64_t

from fastllmload._ext.bytes.cursor cimport Cursor

cdef enum:
    HEADS_KEPT = 4              # of one server there are few kinds: streamed, whole, and one or two refusals
    LINES_KEPT = 32
    BYTES_KEPT = 2048
    WANTED = 2                  # fields whose values are wanted

cdef enum LineKind:
    LINE_SAME = 0               # means something to us or to the parser, or is the status line: must be equal
    LINE_ANY = 1                # only its name must be equal
    LINE_LENGTH = 2             # Content-Length: its name must be equal, the value is read
    LINE_WANTED = 3             # and above, by the number of the field: only its name must be equal, the value is noted

cdef struct HeadLine:
    uint16_t size               # with CR LF
    uint16_t value              # where the value begins, blanks before it included; of LINE_LENGTH its first digit
    uint8_t kind                # LineKind

cdef struct Said:               # what a head says (HeadReader)
    int status
    int minor_version
    int framing
    int content
    uint64_t length
    int64_t retry_after_ms
    uint8_t keep_alive
    uint8_t encoded
    uint8_t upgrade

ctypedef const char* FieldName

cdef struct Wanted:             # fields of heads, and what the latest head said
    uint8_t count
    FieldName[WANTED] name      # in lower case, ended with NUL; borrowed
    Cursor[WANTED] value        # borrowed from the head, and empty where it has no such field

cdef inline void wanted_clear(Wanted* w) noexcept nogil:
    cdef int i
    for i in range(w.count):
        w.value[i].at = w.value[i].end = NULL

cdef struct KeptHead:
    uint16_t count              # of lines before the empty one; 0: nothing is kept here
    Said said
    HeadLine[LINES_KEPT] lines
    unsigned char[BYTES_KEPT] text

# Keep a head that the parser has accepted, with what it said; one of an unusual form is not kept (count is 0 then).
cdef void head_keep(KeptHead* k, const unsigned char* head, size_t size, Said* said, const Wanted* wanted) noexcept nogil
# The size of the head at the start of *data* when it is like *k*, and its Content-Length (untouched where it has none);
# 0: it is not, or it is not there whole.
cdef size_t head_like(KeptHead* k, const unsigned char* data, size_t size, uint64_t* length, Wanted* wanted) noexcept nogil
