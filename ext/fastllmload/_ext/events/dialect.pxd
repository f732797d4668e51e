# A dialect: how the events of one protocol are read, as data. Its tables are made once, from the description in the protocol's
# file (fastllmload/endpoint), and are only read afterwards.
from libc.stdint cimport uint8_t, uint16_t, uint64_t
from libc.string cimport memcmp

from fastllmload._ext.bytes.jsonscan cimport StringSpan

cpdef enum Field:               # what the value of a key says; all other values are checked and skipped
    ANY = 0                     # nothing, but an event has such a key
    OBJECT                      # an object with keys of its own; of another type the event is bad
    TABLE                       # the same, but as if absent if it is of another type
    TYPE                        # a word that tells which keys its object has besides: word -> keys
    CHOICES                     # a list of objects, of which the first with INDEX 0, or without, counts
    PARTS                       # a list of objects that all count; their texts are joined
    CALLS                       # a list of tool calls, or of pieces of them
    INDEX                       # of an object of CHOICES
    ERROR                       # an object, or anything that is not null, false, 0 or empty
    ERROR_WORD                  # "error": the event is one
    ROLE
    CONTENT
    CONTENT_SO_FAR              # all of it since the stream began: what is new counts. Where the event lists fewer TOKEN_IDS
                                # than it counts COMPLETION_TOKENS, it is only what is new, as CONTENT
    REASONING_CONTENT           # reasoning; before the next one where both are there
    REASONING
    REFUSAL
    CALL_INDEX                  # of a tool call: pieces with the same index are of one call
    CALL_KEY                    # likewise, a word; before CALL_INDEX where both are there
    CALL_ID                     # by which a later request names the call
    NAME                        # of a tool call
    ARGUMENTS
    FINISH                      # a word that says why the answer ended
    FINISH_DETAIL               # likewise; before FINISH where both are there
    DONE                        # true: the stream ends with this event. FINISH counts only then
    LAST                        # anything but null: the stream ends with this event
    PROMPT_TOKENS
    PROMPT_IDS                  # a list with one item per PROMPT_TOKENS
    UNCACHED_TOKENS             # PROMPT_TOKENS without those that a cache held (CACHED_TOKENS) or was given
    CACHE_WRITTEN_TOKENS        # PROMPT_TOKENS that a cache was given
    COMPLETION_TOKENS
    COUNTER                     # a number or a string that differs from event to event and says nothing
    CACHED_TOKENS
    REASONING_TOKENS
    TOKEN_IDS                   # a list with one item per token of the event
    ANSWER_IDS                  # the same; they are the answer where the event has no key of CONTENT
    TOKEN_ID                    # a number: the event is one token
    EVENT_TOKENS                # how many tokens the event is
    LOGPROBS                    # as TOKEN_IDS, which come before them
    SPECIAL                     # true: the text is a name of a token, and none of the answer
    DURATION                    # ns that the server measured, at a place of Facts.server_ns
    WHOLE_IDS                   # as ANSWER_IDS, where no event before listed any
    ENTRIES                     # protobuf: a map of messages; its keys are those of the object
    TENSORS                     # protobuf: KServe's tensors; their names are the keys of the object
    RAW_TENSORS                 # protobuf: contents of TENSORS, in their order
    LANE                        # whose the event is, where answers share a connection: one of another than the stream's first
                                # says nothing
    SIGNATURE                   # of a thought, whose text is REASONING: a later request repeats both
    SEALED                      # a thought that only the server can read, which a later request repeats
    RESPONSE_ID                 # by which a later request names the answer

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

cdef enum CallsOf:              # where an event has its tool calls
    CALLS_NONE = 0
    CALLS_LIST = 1              # each item of CALLS is one, or a piece of one
    CALLS_EVENT = 2             # the event is one, or a piece of one, and so is each item of PARTS

cdef enum:
    DURATIONS = 4
    NODES_MOST = 96             # objects whose keys are known, of one dialect
    KEYS_MOST = 320             # their keys, together
    NODE_KEYS_MOST = 64         # of one of them: a bit each says which came
    VARIANTS_MOST = 64          # words of TYPE, together
    WORDS_MOST = 80
    NAME_LONGEST = 255          # bytes of a key or a word
    SENTINEL_LONGEST = 16

cdef struct Key:
    const unsigned char* name   # borrowed from a bytes object that the Dialect keeps
    uint8_t size
    uint8_t field               # Field
    uint8_t child               # the node of an object, or of the items of a list; of a DURATION its place
    uint8_t bit                 # its number in the node
    uint8_t aside               # its value says nothing, or (TYPE) has been read
    uint8_t varies              # its value differs from event to event of a stream
    uint8_t wire                # protobuf: the WireType of its value
    uint16_t number             # protobuf: of the field; 0: it is found by its name

cdef struct Node:
    uint16_t first              # its keys
    uint16_t count
    uint16_t of_event           # how many of them say something of the event; the others are of a tool call alone
    const Key* type_key          # its TYPE; NULL: there is none
    uint8_t zeros               # protobuf: it has counts that are 0 where they are left out
    uint16_t variant            # the first of its variants
    uint16_t variants

cdef struct Variant:            # what a word of TYPE tells
    const unsigned char* name
    uint8_t size
    uint8_t node                # all keys that the object has then
    uint8_t error               # the event is an error
    uint8_t last                # the stream ends with it

cdef struct Word:
    const unsigned char* name
    uint8_t size
    uint8_t reason              # FinishReason

cdef struct DialectTable:
    Node[NODES_MOST] nodes
    Key[KEYS_MOST] keys
    Variant[VARIANTS_MOST] variants
    Word[WORDS_MOST] words
    int node_count
    int key_count
    int variant_count
    int word_count
    uint8_t[2] roots            # the node of an event, and that of a whole body
    uint8_t[2] single           # there are neither choices nor a TYPE: an event is a choice
    uint8_t[2] calls            # CallsOf
    uint8_t[2] needs_end        # an answer without a last word is cut short
    uint8_t[SENTINEL_LONGEST] sentinel      # the data of an event that says nothing but the end
    uint8_t sentinel_size
    uint8_t recalls             # what an event says depends on those before it (Recalled)
    uint8_t sums                # PROMPT_TOKENS are the sum of UNCACHED_TOKENS and others
    uint8_t fragments           # streamed tool calls come in fragments
    uint8_t says_done           # FINISH counts only with DONE
    uint8_t thoughts            # a later request repeats them
    uint8_t message             # events are protobuf messages of gRPC

cdef class Dialect:
    cdef DialectTable table
    cdef readonly tuple trees   # the same as dicts: of an event, of a body; name -> (Field, child or place)
    cdef list keep              # owns the bytes of all names
    cdef const unsigned char* _kept(self, str name, uint8_t* size) except NULL
    cdef int _node(self, dict tree, dict known) except -1
    cdef int _variants(self, int node, dict variants, dict known) except -1
    cdef int _word(self, str name, int reason) except -1
    cdef int _number(self, int node, dict tree, dict fields) except -1

cdef uint8_t finish_of(const DialectTable* d, const StringSpan* word) noexcept nogil      # FinishReason
cdef uint64_t lane_of(const StringSpan* word) noexcept nogil             # a number for each word; 0: it is empty

# Among the first *count* keys of a node; NULL: it is none of them.
cdef inline const Key* key_of(const Key* key, int count, const StringSpan* name) noexcept nogil:
    cdef const Key* end = key + count
    while key < end:
        if key.size == name.size and memcmp(key.name, name.at, name.size) == 0:
            return key
        key += 1
    return NULL
