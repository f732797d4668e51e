# A protobuf message as data: names and numbers of its fields. It writes messages from JSON, and tells readers the numbers.
from libc.stdint cimport uint8_t, uint16_t

from fastllmload._ext.bytes.cursor cimport Cursor

cpdef enum Kind:                # how the value of a field is written; a list of numbers is packed
    BOOL = 0
    INTEGER = 1                 # int32, int64, uint32, uint64, enum
    FLOAT = 2
    DOUBLE = 3
    TEXT = 4                    # string, or bytes that are UTF-8
    MESSAGE = 5
    MAP = 6                     # of a text to a message

cdef enum:
    SCHEMA_NODES_MOST = 32      # messages of one schema
    SCHEMA_FIELDS_MOST = 192    # their fields, together
    SCHEMA_DEPTH = 16           # messages inside each other
    PREFIX = 5                  # bytes before each message of gRPC: whether it is compressed, and its size

cdef struct SchemaField:
    const unsigned char* name   # borrowed from the Schema
    uint8_t size
    uint8_t kind                # Kind
    uint8_t child               # the node of a MESSAGE or of the values of a MAP
    uint16_t number

cdef struct SchemaNode:
    uint16_t first
    uint16_t count

cdef struct Written:            # bytes that were written; who uses it frees them
    unsigned char* at
    size_t size
    size_t cap

cdef void written_free(Written* out) noexcept nogil
cdef int written_grow(Written* out, size_t size) except -1     # room for *size* more bytes; MemoryError when there is none

cdef class Schema:
    cdef SchemaNode[SCHEMA_NODES_MOST] nodes
    cdef SchemaField[SCHEMA_FIELDS_MOST] fields
    cdef int node_count, field_count
    cdef readonly dict tree             # name -> (number, Kind, tree of a MESSAGE or MAP)
    cdef list keep                      # owns the bytes of all names
    cdef Written scratch
    cdef int _node(self, dict tree) except -1
    # *json* as a message after what *out* holds. False: it is not JSON, or says what the message lacks; *wrong* is there then.
    cdef bint write(self, Cursor* json, Written* out, Cursor* wrong) except? False
