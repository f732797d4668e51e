# Tool calls of the simulated engine: the events and the document of a reply that calls tools.
from libc.stdint cimport int64_t, uint8_t, uint32_t

from fastllmload._ext.simbody.form cimport Form, Stamp, Usage

cdef class ToolCalls:
    # One per Responder.
    cdef size_t room            # bytes of one event at most, besides the form's own
    # Token *index* of *tokens*, of a reply with *calls* calls; Ollama says each call whole in one event, and then text.
    cdef uint8_t* token(self, Form form, uint8_t* out, Stamp* s, int64_t index, int64_t tokens, uint32_t calls) except NULL
    cdef uint8_t* finish(self, Form form, uint8_t* out, Stamp* s) except NULL       # of a stream: why it ended; not Ollama's
    cdef bytes document(self, Form form, Stamp* s, int64_t tokens, uint32_t calls, Usage* u)
