# What one event says, before it is judged: filled by the C scan below or by msgspec (delta.pyx), judged in
# one place.
from libc.stdint cimport int32_t, uint8_t, uint32_t

from fastllmload._ext.cursor cimport Cursor
from fastllmload._ext.jsonscan cimport Body

cdef enum Carrier:              # the key of a choice that carries the generated text
    CARRIED_BY_DELTA = 0        # chat, streamed: an object
    CARRIED_BY_MESSAGE = 1      # chat, whole: an object of the same keys
    CARRIED_BY_TEXT = 2         # completions, both: a string

cdef struct Facts:
    uint8_t carrier             # Carrier; set by facts_clear
    uint8_t known               # a key of ours stands at the top: choices, usage, error, object or id
    uint8_t error
    uint8_t role                # a role that is not empty
    uint8_t tool                # a tool call with a name or arguments
    uint8_t finish              # FinishReason of delta.pxd
    int32_t index               # of the choice
    int32_t prompt_tokens       # -1: not said
    int32_t completion_tokens
    int32_t reasoning_tokens
    int32_t cached_tokens
    Body content                # size 0: none, empty or null
    Body reasoning_content
    Body reasoning
    Body refusal
    Body arguments              # the first that is not empty, of any tool call
    Body name                   # likewise

cdef void facts_clear(Facts* f, uint8_t carrier) noexcept nogil
# True: *data* is one valid JSON text and *f* holds all of it that matters. False: ask msgspec; *f* is half
# filled then.
cdef bint facts_scan(Facts* f, const unsigned char* data, size_t size) noexcept nogil
cdef uint8_t finish_of(Body* name) noexcept nogil     # FinishReason of a finish_reason
