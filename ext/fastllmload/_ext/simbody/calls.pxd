# Tool calls of the simulated engine: the events and the document of a reply that calls tools.
from libc.stdint cimport int64_t, uint8_t, uint32_t

from fastllmload._ext.simbody.form cimport Form, Stamp

cdef enum:
    CALL_ROOM = 512             # bytes of a call's text in one event at most

# Token *index* of *tokens*, of a reply with *calls* calls. Where calls are not in pieces, each is one token, and text follows.
cdef uint8_t* put_call(Form form, uint8_t* out, Stamp* s, int64_t index, int64_t tokens, uint32_t calls) except NULL
