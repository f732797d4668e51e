# A dialect: how the events of one protocol are read, as data. Its tables are made once, from the description in the protocol's
# file (fastllmload/endpoint), and are only read afterwards.
from libc.stdint cimport uint8_t, uint16_t

from fastllmload._ext.bytes.jsonscan cimport StringSpan

cpdef enum Field:               # what the value of a key says; all other values are checked and skipped
    ANY = 0                     # nothing, but an event has such a key
    OBJECT                      # an object with keys of its own; of another type the event is bad
    TABLE                       # the same, but as if absent if it is of another type
    CHOICES                     # a list of objects, of which the first with INDEX 0, or without, counts
    CALLS                       # a list of tool calls
    INDEX
    ERROR                       # an object, or anything that is not null, false, 0 or empty
    ERROR_WORD                  # "error": the event is one
    ROLE
    CONTENT
    REASONING_CONTENT           # reasoning; before the next one where both are there
    REASONING
    REFUSAL
    NAME                        # of a tool call
    ARGUMENTS
    FINISH                      # a word that says why the answer ended
    DONE                        # true: the stream ends with this event. FINISH counts only then
    PROMPT_TOKENS
    COMPLETION_TOKENS
    TOTAL_TOKENS
    CACHED_TOKENS
    REASONING_TOKENS
    TOKEN_IDS                   # a list with one item per token of the event
    LOGPROBS                    # the same
    DURATION                    # ns that the server measured, at a place of Facts.server_ns

cpdef enum FinishReason:
    FINISH_NONE = 0
    FINISH_STOP = 1
    FINISH_LENGTH = 2
    FINISH_TOOL_CALLS = 3       # tool_calls, function_call
    FINISH_CONTENT_FILTER = 4
    FINISH_OTHER = 5            # a word of none of these: the answer is judged without it
    FINISH_LOAD = 6             # Ollama: only the model was loaded
    FINISH_UNLOAD = 7
    FINISH_FAILED = 8           # abort, error ...: the server says that it did not get to the end

cpdef enum Duration:            # that a server measures: places in Facts.server_ns
    NS_TOTAL = 0
    NS_LOAD = 1
    NS_PROMPT_EVAL = 2
    NS_EVAL = 3

cdef enum:
    DURATIONS = 4
    NODES_MOST = 32             # objects whose keys are known, of one dialect
    KEYS_MOST = 160             # their keys, together
    NODE_KEYS_MOST = 64         # of one of them: a bit each says which came
    WORDS_MOST = 80
    STEPS_MOST = 4              # from an event to its tool calls
    SENTINEL_LONGEST = 16

cdef struct Key:
    const unsigned char* name   # borrowed from a bytes object that the Dialect keeps
    uint8_t size
    uint8_t field               # Field
    uint8_t child               # the node of an OBJECT, a TABLE, or of the items of a list; of a DURATION its place
    uint8_t bit                 # its number in the node

cdef struct Node:
    uint16_t first              # its keys
    uint16_t count

cdef struct Word:
    const unsigned char* name
    uint8_t size
    uint8_t reason              # FinishReason

cdef struct Step:               # on the way to tool calls
    const unsigned char* name
    uint8_t size
    uint8_t choices             # the item with index 0 of a list; else an object

cdef struct DialectTable:
    Node[NODES_MOST] nodes
    Key[KEYS_MOST] keys
    Word[WORDS_MOST] words
    int word_count
    uint8_t[2] roots            # the node of an event, and that of a whole body
    uint8_t[2] single           # there are no choices: an event is one
    Step[2][STEPS_MOST] steps   # to the list of tool calls, the last of them
    uint8_t[2] step_count       # 0: there is none
    uint8_t[SENTINEL_LONGEST] sentinel      # the data of an event that says nothing but the end
    uint8_t sentinel_size
    uint8_t repeats             # events of a stream differ in their text and token counts only
    uint8_t fragments           # streamed tool calls come in fragments
    uint8_t object_arguments    # requests have the arguments of a tool call as an object, and calls need no ids
    uint8_t says_done           # an answer without a last word is cut short, streamed or not

cdef class Dialect:
    cdef DialectTable table
    cdef readonly tuple trees   # the same as dicts: of an event, of a body; name -> (Field, child or place)
    cdef list keep              # owns the bytes behind all names
    cdef const unsigned char* _kept(self, str name, uint8_t* size) except NULL
    cdef int _node(self, dict tree, int* used) except -1
    cdef int _steps(self, int whole, list path) except -1
    cdef int _word(self, str name, int reason) except -1

cdef uint8_t finish_of(const DialectTable* d, const StringSpan* word) noexcept nogil      # FinishReason
