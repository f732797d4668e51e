# The bytes of Ollama's replies: one JSON object per line, and a last one with the durations.
from libc.stdint cimport int64_t, uint8_t

from fastllmload._ext.simbody.form cimport Form, Piece, Stamp, Usage

cdef class OllamaForm(Form):
    cdef size_t time_at                 # of created_at's text in opening, and in document_opening
    cdef size_t document_time_at
    cdef int64_t second                 # that *clock* spells; Unix seconds
    cdef char[32] clock                 # YYYY-MM-DDTHH:MM:SS
    cdef Piece silent                   # the carrier with an empty text
    cdef void stamp_time(self, uint8_t* at) noexcept
    cdef uint8_t* last_fields(self, uint8_t* out, Stamp* s, int ending, bint with_usage, Usage* u) noexcept
