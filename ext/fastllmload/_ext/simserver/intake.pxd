# From a request's bytes to a sequence and a reply: model, lengths, usage, fault, priority.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from fastllmload._ext.http.request cimport Request, Text
from fastllmload._ext.simbody.form cimport Form, Piece
from fastllmload._ext.simserver.connection cimport Connection
from fastllmload._ext.sim.fault cimport Faults

cdef enum:
    APIS = 64                       # at most
    LENGTHS = 4                     # keys for the output length, of one API

cdef struct Route:                  # the path of one API; pieces are lower case, borrowed from it
    Piece head                      # up to the model's name, or all of it
    Piece tail                      # after the name
    bint named                      # has one
    size_t root                     # bytes of the first part with its slashes: /api/
    bint socket                     # it is served over WebSocket
    bint calls                      # ... over gRPC
    int other                       # number of a later API with the same path; -1: none

cdef struct NullKeys:               # what null mode looks for: quoted names, empty where there is none
    Piece recognised_by                   # in every mode: of requests that only one of the APIs with its path has
    Piece stream
    Piece usage
    bint stream_default
    int64_t output_tokens
    int lengths
    Piece[LENGTHS] length

cdef class Intake:
    cdef uint64_t seed
    cdef bint null, any_model, secured
    cdef str model                  # of requests that name none
    cdef frozenset models           # that are served
    cdef int64_t chunk_bytes
    cdef int64_t default_max_tokens, max_model_len
    cdef double eos_mean
    cdef uint32_t block             # tokens per prefix block; 0 = no prefix cache
    cdef Faults faults
    cdef size_t count               # of APIs
    cdef list apis                  # (SimulatedApi, decoder of its bodies)
    cdef Route[APIS] routes         # of each
    cdef NullKeys[APIS] null_keys
    cdef list keep                  # owns the bytes of the routes
    cdef dict form_numbers          # (number of the API, model) -> number
    cdef list forms                 # of Form; the first are those of the default model, in the order of the APIs
    cdef object store               # (id, output tokens, tool calls) of the request that is read, or None
    cdef readonly uint64_t prompt_tokens
    cdef readonly object refusal    # (status, type, message) when read() returned False; status 200: a page of that type
    cdef Piece quoted(self, str path)
    cdef Piece kept(self, bytes text)
    cdef int route(self, Text path) noexcept            # number of the API of a path; -1: none
    cdef int socket(self, int number) noexcept          # of the APIs of one path, that of WebSocket; -1: none
    cdef str named(self, int number, Text path)
    cdef int spoken(self, int number, const uint8_t* body, size_t size) noexcept       # of the APIs of one path
    cdef int relative(self, Request* r) noexcept        # of one whose paths begin as this, or over gRPC as this; 0: none
    # Fills c.sequence and c.reply. False: the request is refused.
    cdef bint read(self, Connection* c, Request* r, int number, const uint8_t* body, size_t size) except? False
    cdef bint read_null(self, Connection* c, int number, const uint8_t* body, size_t size) except? False
    cdef bint read_json(self, Connection* c, Request* r, int number, const uint8_t* body, size_t size) except? False
    cdef bint fault_of(self, Connection* c, Request* r) except? False
    cdef bint refuse(self, int status, str kind, str message) except? False
    cdef int form(self, int number, str model) except -1
    cdef int64_t output_length(self, Connection* c, int64_t most, int64_t least, bint ignore_eos) noexcept
    cdef bint lengths(self, Connection* c, object asked) except? False
