# What one event says, before it is judged: filled by the C scan below or by msgspec (delta.pyx), judged in
# one place.
from libc.stdint cimport int32_t, int64_t, uint8_t

from fastllmload._ext.bytes.cursor cimport Cursor
from fastllmload._ext.bytes.jsonscan cimport StringSpan

cdef enum Carrier:              # what carries the generated text; of OpenAI's, a key of a choice
    CARRIED_BY_DELTA = 0        # chat, streamed: an object
    CARRIED_BY_MESSAGE = 1      # chat, whole: an object of the same keys
    CARRIED_BY_TEXT = 2         # completions, both: a string
    CARRIED_BY_OLLAMA_CHAT = 3      # Ollama, both: the object `message` at the top
    CARRIED_BY_OLLAMA_GENERATE = 4  # Ollama, both: the strings `response` and `thinking` at the top

cdef enum FinishReason:
    FINISH_NONE = 0
    FINISH_STOP = 1
    FINISH_LENGTH = 2
    FINISH_TOOL_CALLS = 3       # tool_calls, function_call
    FINISH_CONTENT_FILTER = 4
    FINISH_OTHER = 5            # a word of none of these: the answer is judged without it
    FINISH_LOAD = 6             # Ollama: only the model was loaded
    FINISH_UNLOAD = 7
    FINISH_FAILED = 8           # abort, error ...: the server says that it did not get to the end

cdef enum:                      # durations that Ollama measures and says in its last object: places in server_ns
    NS_TOTAL = 0
    NS_LOAD = 1
    NS_PROMPT_EVAL = 2
    NS_EVAL = 3
    DURATIONS = 4

cdef struct Facts:
    uint8_t carrier             # Carrier; set by facts_clear
    uint8_t known               # a key of ours stands at the top: choices, usage, error, object or id
    uint8_t error
    uint8_t role                # a role that is not empty
    uint8_t tool                # a tool call with a name or arguments
    uint8_t calls               # something of tool_calls, if only an id
    uint8_t finish              # FinishReason
    uint8_t done                # Ollama: done is true
    uint8_t choice              # a choice stands there, whatever it says; of Ollama: always
    int32_t index               # of the choice
    int32_t prompt_tokens       # -1: not said
    int32_t completion_tokens
    int32_t reasoning_tokens
    int32_t cached_tokens
    int32_t token_ids           # how many the choice lists; -1: no list
    int32_t logprobs            # of how many tokens; -1: no list
    const unsigned char* completion_at      # first digit of completion_tokens, of total_tokens; NULL: not said, or found by
    const unsigned char* total_at           # msgspec
    int64_t[DURATIONS] server_ns    # 0: not said, as Ollama itself leaves a zero out
    StringSpan content                # size 0: none, empty or null
    StringSpan reasoning_content
    StringSpan reasoning
    StringSpan refusal
    StringSpan arguments              # the first that is not empty, of any tool call
    StringSpan name                   # likewise

cdef void facts_clear(Facts* f, uint8_t carrier) noexcept nogil
# True: *data* is one valid JSON text and *f* holds all of it that matters. False: ask msgspec; *f* is half
# filled then.
cdef bint facts_scan(Facts* f, const unsigned char* data, size_t size) noexcept nogil
cdef uint8_t finish_of(StringSpan* name) noexcept nogil     # FinishReason of a finish_reason
cdef uint8_t done_reason_of(StringSpan* name) noexcept nogil          # the same of Ollama's done_reason
