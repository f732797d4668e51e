# Head of an HTTP/2 response: a block of compressed fields (RFC 7541), sans-IO. Decoded by hpack, once for equal bytes.
from libc.stdint cimport int64_t, uint8_t

from fastllmload._ext.http.headlike cimport Wanted

cdef enum:
    BLOCKS_KEPT = 16        # equal heads that are known side by side
    BLOCK_LONGEST = 1024    # of those; longer ones are decoded each time

cdef enum BlockError:
    BLOCK_OK = 0
    BLOCK_MALFORMED = 1     # not decodable, no status, or fields that HTTP/2 forbids
    BLOCK_TABLE = 2         # it refers to a table of fields of earlier blocks, or makes one: the peer must have none
    BLOCK_TOO_LARGE = 3     # decoded, above 64 KiB

cdef struct BlockSaid:
    int status              # 0: of trailers, which have none
    int grpc_status         # -1: not said
    uint8_t content         # ContentKind (response.pxd)
    uint8_t encoded         # Content-Encoding other than identity
    int64_t length          # Content-Length; -1: not said
    int64_t retry_after_ms  # -1: not said

cdef struct KeptBlock:
    size_t size             # 0: nothing is kept here
    BlockSaid said
    unsigned char[BLOCK_LONGEST] bytes

cdef class BlockReader:
    # Of all connections of a worker: without a table of earlier fields a block says the same wherever it comes.
    cdef BlockSaid said                 # of the latest block that read() took
    cdef bytes message                  # grpc-message of that block
    cdef readonly int64_t by_equality   # blocks that were not decoded
    cdef Wanted wanted                  # what the latest block said of fields that were asked for with want()
    cdef list names                     # of these
    cdef dict kept_values               # number of a kept block -> (number of a field, its value)
    cdef list values                    # of the latest block
    cdef object decode
    cdef KeptBlock* kept                # owned
    cdef int liked                      # the one that came last
    cdef int next                       # the one that makes room
    cdef int want(self, list names) except -1           # at most WANTED, in lower case
    cdef int _note(self, list values) except -1
    cdef BlockError read(self, const unsigned char* block, size_t size, bint trailers=*) except *
    cdef BlockError _decode(self, const unsigned char* block, size_t size) except *
