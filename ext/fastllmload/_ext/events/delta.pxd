# What one event means: C scan for the shapes that servers send, msgspec for everything else. Both must agree
# always.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp

from fastllmload._ext.bytes.cursor cimport Cursor, left, over
from fastllmload._ext.bytes.jsonscan cimport StringSpan, json_string, to_special
from fastllmload._ext.events.dialect cimport DURATIONS, Dialect, DialectTable
from fastllmload._ext.events.facts cimport Facts
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
    uint8_t calls               # it says something of tool calls, if only an id; may accompany text
    int32_t prompt_tokens       # -1: not in this event
    int32_t completion_tokens
    int32_t reasoning_tokens
    int32_t cached_tokens
    int32_t listed_tokens       # length of token_ids, else of logprobs; -1: neither is there
    int64_t[DURATIONS] server_ns    # Ollama's own, at the places of Duration; 0: not said
    # The text's JSON string body, still escaped, valid UTF-8; NULL if none. Of a tool call: its arguments,
    # else its name. Borrowed from the event, or from the classifier until its next call.
    const unsigned char* text
    uint32_t text_size

cdef struct Recalled:           # what events before this one said, where its meaning depends on them
    uint32_t characters         # of the content so far
    int32_t uncached_tokens     # -1: not said
    int32_t cached_tokens
    int32_t written_tokens

cdef enum:
    PREFIX_LONGEST = 768        # bytes; longer events are scanned
    SUFFIX_LONGEST = 512

cdef struct Template:           # per stream: the bytes before and after the text of the last scanned event
    uint8_t* bytes              # prefix, then suffix; owned, NULL until learned, or lent by who has room for the longest
    uint16_t prefix             # bytes up to and with the opening quote; 0: nothing learned
    uint16_t suffix             # bytes from the closing quote on, without the digits of the numbers
    uint8_t kind                # EVENT_CONTENT or EVENT_REASONING: the text field that the template is for
    uint8_t one_line            # no line end in either: what equals it is the data of one line
    uint8_t numbers             # in the suffix, which may differ from event to event: completion_tokens and a COUNTER
    uint8_t completion          # which of them is completion_tokens; *numbers* or more: none
    uint16_t[2] before          # bytes of the suffix before each of them
    int32_t prompt_tokens       # what else the event said; -1: nothing
    int32_t reasoning_tokens
    int32_t cached_tokens
    int32_t listed_tokens
    Recalled recalled           # of the stream

cdef void template_reset(Template* t) noexcept nogil     # forget, keep memory
cdef void template_free(Template* t) noexcept nogil
# The suffix of a template with numbers; the cursor stands at the text's closing quote.
cdef bint template_takes_numbers(Template* t, Cursor* c, int32_t* completion_tokens) noexcept nogil

# Takes an event that equals the template in all but its numbers and its text, which is not empty and becomes *text*; behind
# it anything may stand. *completion_tokens*: -1 if the template has none. False, and nothing is taken, for all else.
cdef inline bint template_takes(Template* t, Cursor* c, StringSpan* text, int32_t* completion_tokens) noexcept nogil:
    cdef Cursor at
    if t.prefix == 0 or left(c) < <size_t>t.prefix + t.suffix or memcmp(c.at, t.bytes, t.prefix) != 0:
        return False
    over(&at, c.at + t.prefix, left(c) - t.prefix)
    text.at = at.at
    to_special(&at)
    if at.at < at.end and at.at[0] == c'"':         # as most texts are: nothing escaped, all ASCII
        text.size = <size_t>(at.at - text.at)
    else:
        at.at = text.at
        if not json_string(&at, text):
            return False
        at.at -= 1
    if text.size == 0:
        return False
    completion_tokens[0] = -1
    if t.numbers:
        if not template_takes_numbers(t, &at, completion_tokens):
            return False
        c.at = at.at
        return True
    if left(&at) < t.suffix or memcmp(at.at, t.bytes + t.prefix, t.suffix) != 0:
        return False
    c.at = at.at + t.suffix
    return True

cdef inline bint template_counts(const Template* t) noexcept nogil:      # its events say completion_tokens
    return t.completion < t.numbers

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
    cdef int classify(self, uint8_t dialect, Template* t, const unsigned char* data, size_t size, Meaning* m) except -1
    # A whole non-streaming response body: kind is CONTENT/WHITESPACE/TOOL/REASONING/REFUSAL/OTHER/ERROR/BAD,
    # with finish and usage.
    cdef int classify_body(self, uint8_t dialect, const unsigned char* data, size_t size, Meaning* m) except -1

    # *t* is NULL for a whole body.
    cdef bint _scan(self, const unsigned char* data, size_t size, const DialectTable* d, Template* t, Facts* f,
                    Meaning* m) noexcept
    cdef int _decode(self, const unsigned char* data, size_t size, uint8_t dialect, Template* t, Meaning* m) except -1
