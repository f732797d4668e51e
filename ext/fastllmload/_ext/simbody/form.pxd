# The bytes of replies. A Form holds what is fixed for one endpoint and model; compose functions patch in what changes.
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

cdef struct Piece:
    const uint8_t* at           # borrowed from a bytes object that the Form keeps
    size_t size

cdef enum LineEnd:
    END_LF = 0
    END_CRLF = 1
    END_CR = 2

cdef enum FormKind:             # also the number of the default model's form
    FORM_COMPLETIONS = 0
    FORM_CHAT = 1
    FORM_OLLAMA_CHAT = 2
    FORM_OLLAMA_GENERATE = 3
    FORM_KINDS = 4

cdef inline bint of_ollama(int kind) noexcept nogil:
    return kind == FORM_OLLAMA_CHAT or kind == FORM_OLLAMA_GENERATE

cdef struct Stamp:              # what makes one reply's bytes its own
    uint64_t id
    int64_t created             # Unix seconds
    uint8_t line_end            # LineEnd
    uint8_t chunked             # each event is a chunk of its own
    uint8_t ndjson              # a line per event; else server-sent events
    uint8_t padded              # the stream's length was declared: numbers that are not known yet have a fixed width
    uint8_t counted             # every event with a choice says the usage up to then (continuous_usage_stats)
    int64_t prompt              # its numbers
    int64_t completion
    uint8_t lists               # Lists: what events with text say of each of their tokens
    int64_t tokens              # in the event

cdef enum Lists:
    LISTS_IDS = 1               # return_token_ids
    LISTS_LOGPROBS = 2

cdef struct Usage:
    int64_t prompt
    int64_t completion
    int64_t cached
    int64_t total_ns            # Ollama's durations
    int64_t load_ns
    int64_t prompt_eval_ns
    int64_t eval_ns

cdef enum:
    WORDS = 64
    WORD_LONGEST = 11           # with its leading space
    EVENT_SLACK = 384           # bytes that framing, line ends, numbers and lists add to an event of one token at most

cdef Piece[WORDS] WORD          # " the": a leading space, then letters; each is one token of cl100k_base

cdef enum:                      # Ending: finish_reason stop, length, abort
    ENDED_STOP = 0
    ENDED_LENGTH = 1
    ENDED_ABORT = 2
    ENDINGS = 3

cdef class Form:
    cdef readonly int kind              # FormKind
    cdef readonly bint chat             # begins with a role event
    cdef readonly bint reasons          # has reasoning events
    cdef readonly str model
    cdef readonly size_t event_size     # of a content event with the longest word, framing included
    cdef list keep                      # owns the bytes behind all pieces
    cdef Piece opening                  # data: {"id":... "choices":[
    cdef size_t id_at
    cdef size_t created_at
    cdef Piece content_open, content_close
    cdef Piece reasoning_open, reasoning_close
    cdef Piece to_logprobs, to_ids, to_end      # content_close in three: what lists are put between
    cdef Piece role
    cdef Piece[ENDINGS] finishes        # by Ending
    cdef Piece document_opening         # the same of a reply in one document
    cdef size_t document_id_at
    cdef size_t document_created_at
    cdef Piece[ENDINGS] document_ends   # by Ending
    cdef Piece done                     # data: [DONE]
    cdef Piece nothing
    cdef bytes stream_type              # Content-Type of a stream
    cdef bytes stream_head              # its response head, up to the framing
    cdef bytes failure                  # an error body, and its line in a stream
    cdef bytes error_line
    cdef bytes broken_line              # of cut JSON
    cdef bytes deep_open, deep_close    # around brackets inside each other
    cdef bytes huge_open                # begins a line without an end
    cdef bytes comment                  # a line that says nothing
    cdef Piece keep_piece(self, bytes text)
    # Each writes one event at *out* and returns the first byte after it. The caller has room: event_size, or
    # opening.size + the pieces' sizes + EVENT_SLACK.
    cdef uint8_t* content(self, uint8_t* out, Stamp* s, const uint8_t* text, size_t size) noexcept
    cdef uint8_t* reasoning(self, uint8_t* out, Stamp* s, const uint8_t* text, size_t size) noexcept
    cdef uint8_t* listed(self, uint8_t* out, Stamp* s, Piece before, const uint8_t* text, size_t size) noexcept
    cdef uint8_t* with_piece(self, uint8_t* out, Stamp* s, Piece piece) noexcept
    cdef uint8_t* tail(self, uint8_t* out, Stamp* s, int ending, bint with_usage, Usage* u) noexcept
    cdef uint8_t* usage(self, uint8_t* out, Stamp* s, Usage* u) noexcept
    cdef uint8_t* event(self, uint8_t* out, Stamp* s, Piece before, const uint8_t* text, size_t size, Piece after) noexcept
    cdef size_t document_size(self, int64_t tokens) noexcept         # upper bound
    cdef uint8_t* document(self, uint8_t* out, Stamp* s, uint64_t seed, int64_t tokens, int ending, Usage* u,
                           bint with_usage) noexcept

cdef inline uint8_t* put_line_end(uint8_t* out, Stamp* s) noexcept nogil:
    # An event's last line end, and the empty line after it where events end so.
    cdef int n = 1 if s.ndjson else 2
    while n:
        n -= 1
        if s.line_end != END_LF and not (s.ndjson and s.line_end == END_CR):
            out[0] = 13
            out += 1
        if s.line_end != END_CR or s.ndjson:
            out[0] = 10
            out += 1
    return out

cdef inline size_t line_end_size(Stamp* s) noexcept nogil:
    return (2 if s.line_end == END_CRLF else 1) * (1 if s.ndjson else 2)

cdef uint8_t* raw_event(uint8_t* out, Stamp* s, const uint8_t* text, size_t size) noexcept nogil    # text, line ends, framing

cdef inline uint8_t* put(uint8_t* out, const void* data, size_t size) noexcept nogil:
    memcpy(out, data, size)
    return out + size

cdef inline uint8_t* put_piece(uint8_t* out, Piece piece) noexcept nogil:
    memcpy(out, piece.at, piece.size)
    return out + piece.size

cdef inline uint8_t* put_chunk_size(uint8_t* out, uint64_t size) noexcept nogil:
    cdef const char* hexadecimal = b"0123456789abcdef"
    cdef int shift = 60
    while shift and not (size >> shift) & 15:
        shift -= 4
    while shift >= 0:
        out[0] = <uint8_t>hexadecimal[(size >> shift) & 15]
        out += 1
        shift -= 4
    out[0], out[1] = 13, 10
    return out + 2
