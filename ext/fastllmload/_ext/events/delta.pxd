# What one event means: C scan for the shapes that servers send, msgspec for everything else. Both must agree
# always.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp

from fastllmload._ext.bytes.cursor cimport Cursor, left, over
from fastllmload._ext.bytes.jsonscan cimport StringSpan, json_string, to_special
from fastllmload._ext.bytes.schema cimport Written
from fastllmload._ext.events.dialect cimport DURATIONS, Dialect, DialectTable
from fastllmload._ext.events.facts cimport PLACES_MOST, Facts
from fastllmload._ext.events.tree cimport EventTree

cdef enum EventKind:            # primary meaning of an event; the same numbers are in tokens.npy
    EVENT_OTHER = 0             # valid, but nothing in it is timed (no choice, index > 0)
    EVENT_ROLE = 1
    EVENT_WHITESPACE = 2        # text that is only whitespace
    EVENT_CONTENT = 3
    EVENT_REASONING = 4
    EVENT_TOOL = 5              # tool-call name or arguments fragment
    EVENT_REFUSAL = 6
    EVENT_USAGE = 7             # usage without text
    EVENT_FINISH = 8            # finish_reason without text
    EVENT_ERROR = 9             # an error object
    EVENT_DONE = 10             # [DONE]; Ollama: done is true without a reason
    EVENT_BAD = 11              # not JSON, or JSON that does not have the shape of an event
    EVENT_EMPTY = 12            # a choice without text: it may be a token whose text is still to come
    EVENT_KINDS                 # how many: always the last

cdef enum Decoder:              # which path decided; counted in the certificate
    DECODED_BY_TEMPLATE = 0
    DECODED_BY_SCAN = 1
    DECODED_BY_MSGSPEC = 2

cdef struct Meaning:
    uint8_t kind                # EventKind
    uint8_t finish              # FinishReason of dialect.pxd; may accompany text
    uint8_t decoder             # Decoder
    uint8_t has_usage
    uint8_t done                # this event ends the stream
    uint8_t calls               # it says something of tool calls, if only an id, of thoughts, or the answer's id; may accompany text
    int32_t prompt_tokens       # -1: not in this event
    int32_t completion_tokens
    int32_t reasoning_tokens
    int32_t cached_tokens
    int32_t listed_tokens       # length of token_ids, else of logprobs; -1: neither is there
    int64_t[DURATIONS] server_ns    # Ollama's own, at the places of Duration; 0: not said
    # The text's JSON string body, still escaped, valid UTF-8; NULL if none. Of a tool call: its arguments,
    # else its name. Of a message without text: the words of an error, or for why the answer ended, as they came.
    # Borrowed from the event, or from the classifier until its next call.
    const unsigned char* text
    uint32_t text_size

cdef struct Recalled:           # what events before this one said, where its meaning depends on them
    uint64_t lane               # of the stream (`lane_of`); 0: no event said one
    uint32_t characters         # of the content so far
    int32_t uncached_tokens     # -1: not said
    int32_t cached_tokens
    int32_t written_tokens
    uint8_t listed              # an event listed TOKEN_IDS

cdef enum:
    TEMPLATE_LONGEST = 1280     # bytes of an event without what differs; longer events are scanned

cdef enum Slot:                 # what may differ from event to event
    SLOT_TEXT = 0
    SLOT_NUMBER = 1             # it says nothing, and neither does a word
    SLOT_WORD = 2
    SLOT_COMPLETION = 3         # completion_tokens
    SLOT_REASONING = 4          # reasoning_tokens
    SLOT_TOKEN = 5              # any number: the event is one token
    SLOT_TOKENS = 6             # how many tokens the event is
    SLOT_IDS = 7                # a list of numbers, one for each token

cdef struct Repeated:           # what an event says again of those before it, as they wrote it
    unsigned char* bytes        # owned (carry.pxd)
    size_t size
    size_t cap
    uint32_t count              # of characters, of tokens

cdef struct Slots:              # of a template that has more of them than its text
    uint8_t count
    uint8_t so_far              # the text may be all of it since the stream began
    uint8_t[PLACES_MOST] kinds  # Slot
    uint16_t[PLACES_MOST] before        # bytes of the template in front of each
    Repeated text               # while the template repeats: content of the last event
    Repeated ids                # likewise, the inside of its list

cdef struct Template:           # per stream: what the last scanned event says besides what may differ
    uint8_t* bytes              # owned, NULL until learned, or lent by who has room for the longest
    uint16_t prefix             # bytes in front of the first slot
    uint16_t suffix             # bytes after it; without both, nothing is learned
    uint8_t plain               # the text is the only slot, and says all that the event does
    uint8_t kind                # EVENT_CONTENT or EVENT_REASONING: the text field that the template is for
    uint8_t one_line            # of content, without a line end in *bytes*: what equals it is the data of one line
    uint8_t has_usage
    uint8_t repeats             # the text is all of it since the stream began, and so are the ids
    int32_t prompt_tokens       # what else the event said; -1: nothing
    int32_t cached_tokens
    int32_t listed_tokens
    Recalled recalled           # of the stream
    Slots* slots                # owned; NULL until there was more than a text

cdef struct Alike:              # what an event that equals its template says by itself
    StringSpan text             # what is new of it; not empty, unless the event has ids in place of a text
    StringSpan ids              # of a template that repeats: those that are new
    uint32_t id_count           # with those that are not new
    int32_t completion_tokens   # -1: not said
    int32_t reasoning_tokens
    int32_t listed_tokens

cdef void template_reset(Template* t) noexcept nogil     # forget, keep memory
cdef void template_free(Template* t) noexcept nogil
cdef size_t template_held(const Template* t) noexcept nogil     # bytes of large buffers, which template_reset gives back
cdef bint template_takes_slots(Template* t, Cursor* c, Alike* said) noexcept nogil
# An event was taken whose text so far is known from now on.
cdef void template_grows(Template* t, const Alike* said) noexcept nogil

# The closing quote of a string that is not empty; NULL: it is empty, not valid, or has none.
cdef const unsigned char* quote_after_escapes(const unsigned char* text, const unsigned char* end) noexcept nogil
cdef inline const unsigned char* quote_after(const unsigned char* text, const unsigned char* end) noexcept nogil:
    cdef Cursor at
    over(&at, text, <size_t>(end - text))
    to_special(&at)
    if at.at < at.end and at.at[0] == c'"' and at.at > text:        # as most texts are: nothing escaped, all ASCII
        return at.at
    return quote_after_escapes(text, end)

# Takes an event that equals the template in all but its slots; anything may stand after it. False, and nothing is taken, for
# all else. Of a plain template only *text* is said. Who keeps what was taken calls template_grows where the template repeats.
cdef inline bint template_takes(Template* t, Cursor* c, Alike* said) noexcept nogil:
    cdef Cursor all_of
    cdef const unsigned char* text
    cdef const unsigned char* quote
    if not t.plain:
        all_of = c[0]               # a copy, so that *c* may stay in registers
        if not template_takes_slots(t, &all_of, said):
            return False
        c.at = all_of.at
        return True
    if left(c) < <size_t>t.prefix + t.suffix or memcmp(c.at, t.bytes, t.prefix) != 0:
        return False
    text = c.at + t.prefix
    quote = quote_after(text, c.end)
    if quote == NULL or <size_t>(c.end - quote) < t.suffix or memcmp(quote, t.bytes + t.prefix, t.suffix) != 0:
        return False
    said.text.at = text
    said.text.size = <size_t>(quote - text)
    c.at = quote + t.suffix
    return True

cdef inline bint is_text(uint8_t kind) noexcept nogil:          # of an event that carries generated text
    return (kind == EVENT_CONTENT or kind == EVENT_REASONING or kind == EVENT_TOOL or kind == EVENT_WHITESPACE
            or kind == EVENT_REFUSAL)

cdef enum:
    DIALECTS_MOST = 64

ctypedef const DialectTable* TablePointer

cdef class Classifier:
    # One per worker, for streams of several dialects, which it numbers. classify() never raises for any bytes: what is not an
    # event is EVENT_BAD.
    cdef readonly list dialects         # by number; that of classify_bytes is 0
    cdef TablePointer[DIALECTS_MOST] tables             # of these; borrowed
    cdef readonly bint strict           # --decode strict: msgspec on every event
    cdef public uint64_t by_template
    cdef public uint64_t by_scan
    cdef public uint64_t by_msgspec
    cdef EventTree _tree
    cdef Template _template             # of classify_bytes; the hot path brings its own
    cdef Written _text                  # of the latest message, where its bytes are not JSON's; owned
    cdef int classify(self, uint8_t dialect, Template* t, const unsigned char* data, size_t size, Meaning* m) except -1
    # An event that is a protobuf message, of a dialect of those.
    cdef int classify_message(self, uint8_t dialect, Template* t, const unsigned char* data, size_t size, Meaning* m) except -1
    # A whole non-streaming response body: kind is CONTENT/WHITESPACE/TOOL/REASONING/REFUSAL/OTHER/ERROR/BAD,
    # with finish and usage.
    cdef int classify_body(self, uint8_t dialect, const unsigned char* data, size_t size, Meaning* m) except -1

    # *t* is NULL for a whole body.
    cdef bint _scan(self, const unsigned char* data, size_t size, const DialectTable* d, Template* t, Facts* f,
                    Meaning* m) noexcept
    cdef int _decode(self, const unsigned char* data, size_t size, uint8_t dialect, Template* t, Meaning* m) except -1
