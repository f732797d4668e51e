# What one event says, before it is judged: filled by the C scan below or by msgspec (tree.pyx), judged in one place (delta.pyx).
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from fastllmload._ext.bytes.cursor cimport Cursor
from fastllmload._ext.bytes.jsonscan cimport StringSpan
from fastllmload._ext.events.dialect cimport DURATIONS, DialectTable, Variant

cdef enum:
    PLACES_MOST = 8             # of an event with more of them no template is learned

cdef struct Place:              # of a value that may differ from event to event; a string's without its quotes
    const unsigned char* at
    const unsigned char* end
    uint8_t field               # Field of dialect.pxd

cdef struct Facts:
    uint8_t known               # a key of ours stands at the top
    uint8_t error
    uint8_t role                # a role that is not empty
    uint8_t tool                # a tool call with a name or arguments
    uint8_t calls               # something of tool calls, if only an id, of thoughts besides their text, or the answer's id
    uint8_t finish              # FinishReason, of FINISH
    uint8_t detail              # likewise, of FINISH_DETAIL
    uint8_t done                # the stream ends with this event
    uint8_t choice              # a choice stands there, whatever it says; always where an event is one
    uint8_t so_far              # *content* is all of it since the stream began
    uint8_t special             # *content* is the name of a token
    uint8_t answer_ids          # the tokens that are listed are the answer
    int32_t index               # of the choice
    int32_t prompt_tokens       # -1: not said
    int32_t completion_tokens
    int32_t reasoning_tokens
    int32_t cached_tokens
    int32_t uncached_tokens
    int32_t written_tokens
    int32_t token_ids           # how many the event lists, or says that it is; -1: neither
    int32_t logprobs            # of how many tokens; -1: no list
    int32_t whole_ids           # as *token_ids*, of the whole answer
    uint64_t lane               # `lane_of` LANE
    int64_t[DURATIONS] server_ns    # 0: not said, as Ollama itself leaves a zero out
    StringSpan content                # size 0: none, empty or null; at is NULL where there is none, or null
    StringSpan reasoning_content
    StringSpan reasoning
    StringSpan refusal
    StringSpan arguments              # the first that is not empty, of any tool call
    StringSpan name                   # likewise
    StringSpan word                   # protobuf: of an error or of FINISH, as it came
    int place_count             # PLACES_MOST + 1: more than there is room for
    Place[PLACES_MOST] places   # in the order of the event; by the scan alone

cdef void facts_clear(Facts* f, const DialectTable* d, bint whole) noexcept nogil
# True: *data* is one valid JSON text and *f* holds all of it that matters. False: ask msgspec; *f* is half filled then.
cdef bint facts_scan(Facts* f, const DialectTable* d, bint whole, const unsigned char* data, size_t size) noexcept nogil
# The word of the TYPE of an object of *node*, as the dialect knows it; NULL: it has none, or an unknown one. *c* is after the
# opening brace, and stays there: the word may come after what it tells. False: ask msgspec.
cdef bint variant_of(const DialectTable* d, const Cursor* c, int node, int depth, const Variant** found) noexcept nogil
