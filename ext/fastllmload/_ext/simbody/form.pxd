# What the simulated engine writes for one endpoint and model. Templates are declared in endpoint/ and compiled once; an
# event is written by copying its fixed pieces and filling the slots between them.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from fastllmload._ext.simbody.template cimport NUMBERS, VARIANTS

cdef struct Piece:
    const uint8_t* at           # borrowed from a bytes object that the Form keeps
    size_t size

cdef enum LineEnd:
    END_LF = 0
    END_CRLF = 1
    END_CR = 2

cdef enum Framed:
    FRAMED_NONE = 0
    FRAMED_CHUNKS = 1
    FRAMED_MESSAGES = 2         # of WebSocket
    FRAMED_GRPC = 3

cdef enum Block:                # what an event's text belongs to; some protocols say where each begins and ends
    BLOCK_NONE = 0
    BLOCK_REASONING = 1
    BLOCK_CONTENT = 2
    BLOCK_CALL = 3
    BLOCKS = 4

cdef enum Ending:               # finish_reason stop, length, abort, tool_calls
    ENDED_STOP = 0
    ENDED_LENGTH = 1
    ENDED_ABORT = 2
    ENDED_CALLS = 3
    ENDINGS = 4

cdef enum Place:                # where a Form keeps the program of what it writes; + Block or + Ending
    AT_TOKEN = 0                # AT_TOKEN + BLOCK_NONE: at the start
    AT_OPENING = 4
    AT_CLOSING = 8
    AT_FINISH = 12
    AT_LAST = 16                # the event of the last token, if it differs
    AT_DOCUMENT = 20
    AT_USAGE = 24
    AT_DONE = 25
    AT_ERROR = 26
    AT_CALLS = 27               # the document of a reply that calls tools, and one of its calls
    AT_CALL_ENTRY = 28
    PLACES = 29

cdef enum:
    ASKED_MOST = 128            # bytes of a request's id that are repeated

cdef struct Stamp:              # what makes one reply's bytes its own
    uint64_t id
    int64_t created             # Unix seconds
    uint8_t[16] id_text         # both as they are written: spell() does it once for a reply
    uint8_t[10] created_text
    int64_t[NUMBERS] number
    int64_t tokens              # in the event
    int64_t first               # token with which the block began
    int64_t spoken              # 1 + token with which the content began; 0: there was none
    uint8_t line_end            # LineEnd
    uint8_t line_ends           # after each event
    uint8_t chunked             # each event is a chunk of its own, or a message: Framed
    uint8_t padded              # the stream's length was declared: numbers that are not known yet have a fixed width
    uint8_t says                # Says
    uint8_t block               # Block that is open
    uint8_t last                # 1 + Ending: the event is that of the last token
    uint8_t asked_size
    uint8_t[ASKED_MOST] asked   # the id that the client gave its request, of gRPC

cdef struct Step:
    Piece piece
    uint32_t event_size         # of an event's first step: bytes of all its pieces
    int32_t id_at               # places in the piece that are written over, or NOWHERE
    int32_t created_at
    int32_t time_at
    uint8_t slot                # after the piece: a Number or a Slot
    uint8_t optional            # left out if its number is 0
    uint8_t last                # of its event

cdef struct Program:            # the events of one template, or a document
    const Step* steps           # owned by the Form
    size_t count

cdef enum:
    WORDS = 64
    WORD_LONGEST = 11           # with its leading space
    EVENT_SLACK = 64            # bytes that framing and line ends add to an event at most
    CALL_WHOLE = 5              # tokens that the arguments of a call have that is one event
    TOKEN_ROOM = 32             # bytes of a token of a call's arguments, among all of them, at most

cdef Piece[WORDS] WORD          # " the": a leading space, then letters; each is one token of cl100k_base

cdef class Form:
    cdef readonly object api            # what was declared
    cdef readonly str model
    cdef readonly bint timed            # a reply says its durations
    cdef readonly size_t token_room     # bytes that the events of a token need, framing included, without its text
    cdef readonly size_t room           # of all other events, and of a document without its text
    cdef readonly size_t growth         # more for each token before, in an event that repeats them
    cdef readonly size_t text_room      # for each token of a document
    cdef list keep                      # owns the bytes of all pieces, and the steps
    cdef Program[PLACES][VARIANTS] programs
    cdef Piece before_logprob, after_logprob
    cdef uint8_t line_ends              # after each event
    cdef bytes stream_type              # Content-Type of a stream
    cdef bytes stream_head              # its response head, up to the framing
    cdef bytes stream_block             # the same for HTTP/2
    cdef bytes error_body               # of a simulated failure
    cdef bytes broken_line              # of cut JSON
    cdef bytes deep_open, deep_close    # around brackets inside each other
    cdef bytes huge_open                # begins a line without an end
    cdef bytes comment                  # a line that says nothing
    cdef bytes blank                    # text of a token that is white space
    cdef bint calls                     # of gRPC
    cdef bint texts                     # ... whose events have text, not token ids
    # Each writes events at *out* and returns the first byte after them. The caller has room.
    cdef uint8_t* events(self, int place, uint8_t* out, Stamp* s, const uint8_t* text, size_t size) noexcept
    cdef uint8_t* content(self, uint8_t* out, Stamp* s, const uint8_t* text, size_t size) noexcept
    cdef uint8_t* reasoning(self, uint8_t* out, Stamp* s, const uint8_t* text, size_t size) noexcept
    cdef uint8_t* enter(self, uint8_t* out, Stamp* s, int block) noexcept
    cdef uint8_t* finish(self, uint8_t* out, Stamp* s, int ending) noexcept         # ... and usage, and the end marker
    # Without framing: a document, or a part of one.
    cdef uint8_t* plain(self, int place, uint8_t* out, Stamp* s, const uint8_t* text, size_t size) noexcept
    cdef uint8_t* fill(self, int slot, uint8_t* out, Stamp* s) noexcept
    cdef uint8_t* put_logprobs(self, uint8_t* out, Stamp* s, int64_t first) noexcept
    cdef int compile(self, int place, list events, dict fixed) except -1
    cdef size_t program(self, Program* program, list events, size_t* growth) except? 0
    cdef Piece kept(self, bytes text)

cdef inline bint has(Form form, int place) noexcept:
    return form.programs[place][0].count > 0

cdef inline uint8_t* put_line_end(uint8_t* out, Stamp* s) noexcept nogil:
    if s.line_end != END_LF:
        out[0] = c'\r'
        out += 1
    if s.line_end != END_CR:
        out[0] = c'\n'
        out += 1
    return out

cdef void spell(Stamp* s) noexcept nogil

cdef uint8_t* put_words(uint8_t* out, Stamp* s, int64_t first, int64_t past) noexcept nogil
cdef int64_t id_of(Stamp* s, int64_t token) noexcept nogil

cdef uint8_t* raw_event(uint8_t* out, Stamp* s, const uint8_t* text, size_t size) noexcept nogil    # text, line ends, framing

cdef inline uint8_t* put(uint8_t* out, const void* data, size_t size) noexcept nogil:
    memcpy(out, data, size)
    return out + size

cdef inline uint8_t* put_piece(uint8_t* out, Piece piece) noexcept nogil:
    memcpy(out, piece.at, piece.size)
    return out + piece.size

cdef inline int hex_digits(uint64_t value) noexcept nogil:
    cdef int n = 1
    while value >> 4 * n and n < 16:
        n += 1
    return n

cdef inline uint8_t* put_hex(uint8_t* out, uint64_t value, int digits) noexcept nogil:
    cdef const char* hexadecimal = b"0123456789abcdef"
    while digits:
        digits -= 1
        out[0] = <uint8_t>hexadecimal[(value >> 4 * digits) & 15]
        out += 1
    return out

cdef inline uint8_t* put_chunk_size(uint8_t* out, uint64_t size) noexcept nogil:
    return put(put_hex(out, size, hex_digits(size)), b"\r\n", 2)

cdef inline uint8_t* put_prefix(uint8_t* out, uint64_t size) noexcept nogil:
    # What goes before a message of gRPC.
    out[0] = 0
    out[1] = <uint8_t>(size >> 24)
    out[2] = <uint8_t>(size >> 16)
    out[3] = <uint8_t>(size >> 8)
    out[4] = <uint8_t>size
    return out + 5

cdef inline int message_head(uint64_t size) noexcept nogil:
    return 2 if size < 126 else 4 if size < 65536 else 10

cdef inline uint8_t* put_message_head(uint8_t* out, uint64_t size) noexcept nogil:
    # That of a text message in one frame.
    cdef int i, wide = message_head(size) - 2
    out[0] = 0x81
    out[1] = <uint8_t>(size if wide == 0 else 126 if wide == 2 else 127)
    for i in range(wide):
        out[2 + i] = <uint8_t>(size >> 8 * (wide - 1 - i))
    return out + 2 + wide

# All calls of a reply, and all arguments of the latest, or of any, of *count* tokens.
cdef bytes listed_calls(Form form, Stamp* s, int64_t tokens, uint32_t calls)
cdef bytes whole_call(Form form, Stamp* s, int64_t count)
cdef bytes whole_text(Form form, uint64_t reply, int64_t number, int64_t count)
