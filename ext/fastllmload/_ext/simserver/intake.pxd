# From a request's bytes to a sequence and a reply: model, lengths, usage, fault, priority.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from fastllmload._ext.http.request cimport Request
from fastllmload._ext.simserver.connection cimport Connection
from fastllmload._ext.simserver.fault cimport Faults

cdef class Intake:
    cdef uint64_t seed
    cdef bint null, any_model
    cdef str model
    cdef int64_t chunk_bytes
    cdef int64_t default_max_tokens, max_model_len
    cdef double eos_mean
    cdef uint32_t block             # tokens per prefix block; 0 = no prefix cache
    cdef Faults faults
    cdef tuple decoders             # of OpenAI's bodies, of Ollama's
    cdef dict form_numbers          # (FormKind, model) -> number
    cdef list forms
    cdef readonly uint64_t prompt_tokens
    cdef readonly object refusal    # (status, type, message) when read() returned False; status 200: a page of that type
    # Fills c.sequence and c.reply. False: the request is refused.
    cdef bint read(self, Connection* c, Request* r, int kind, const uint8_t* body, size_t size) except? False
    cdef bint read_null(self, Connection* c, int kind, const uint8_t* body, size_t size) except? False
    cdef bint read_json(self, Connection* c, Request* r, int kind, const uint8_t* body, size_t size) except? False
    cdef bint fault_of(self, Connection* c, Request* r) except? False
    cdef bint refuse(self, int status, str kind, str message) except? False
    cdef int form(self, int kind, str model) except -1
    cdef int64_t output_length(self, Connection* c, int64_t most, int64_t least, bint ignore_eos) noexcept
    cdef bint lengths(self, Connection* c, object asked, int kind) except? False
