# cython: cdivision=True
"""Bytes of Ollama's chat and generate as its server writes them. Each object has a time of its own; a count or a
duration of 0 is left out, as Ollama leaves it out.
"""

import msgspec

from libc.stdint cimport uint64_t
from libc.string cimport memcpy
from libc.time cimport time_t, tm

from fastllmload._ext.bytes.digits cimport put_number
from fastllmload._ext.sim.sequence cimport DRAW_WORD, draw
from fastllmload._ext.simbody.form cimport (
    ENDED_LENGTH, ENDED_STOP, END_CRLF, EVENT_SLACK, FORM_OLLAMA_CHAT, WORD, WORD_LONGEST, WORDS, put, put_chunk_size,
    put_line_end, put_piece,
)
from fastllmload._ext.system.clock cimport real_ns

cdef extern from "<time.h>" nogil:
    tm* gmtime_r(const time_t* seconds, tm* result)
    size_t strftime(char* out, size_t most, const char* form, const tm* when)

cdef enum:
    SECOND_BYTES = 19           # YYYY-MM-DDTHH:MM:SS
    NUMBER_BYTES = 20           # of a padded duration: a declared Content-Length must hold whatever it says

cdef bytes TIME = b"0000-00-00T00:00:00.000000000Z"


cdef class OllamaForm(Form):
    """*kind*: FORM_OLLAMA_CHAT or FORM_OLLAMA_GENERATE. Events are not padded: Ollama has no field for it."""

    def fill(self, chunk_bytes: int) -> None:
        opening = b'{"model":%s,"created_at":"%s",' % (msgspec.json.encode(self.model), TIME)
        self.opening = self.keep_piece(opening)
        self.time_at = opening.index(TIME)
        if self.kind == FORM_OLLAMA_CHAT:
            text, thought = b'"message":{"role":"assistant","content":"', b'","thinking":"'
            after, silent = b'"}', b'"message":{"role":"assistant","content":""}'
        else:
            text, thought, after, silent = b'"response":"', b'","thinking":"', b'"', b'"response":""'
        self.content_open = self.keep_piece(text)
        self.reasoning_open = self.keep_piece(text + thought)
        self.content_close = self.reasoning_close = self.keep_piece(after + b',"done":false}')
        self.silent = self.keep_piece(silent)
        self.document_opening = self.keep_piece(opening + text)
        self.document_ends[ENDED_STOP] = self.keep_piece(after)
        self.document_time_at = self.time_at
        self.event_size = self.opening.size + self.reasoning_open.size + self.content_close.size + WORD_LONGEST + EVENT_SLACK
        self.speaks(b"application/x-ndjson")
        self.failure = b'{"error":"simulated failure"}'
        self.error_line = self.failure
        self.broken_line = b'{"model":"simulated","message":{"role":"assistant","content":" bro'
        self.deep_open, self.deep_close, self.huge_open = b'{"message":', b"}", b'{"message":"'
        self.comment = b""

    cdef void stamp_time(self, uint8_t* at) noexcept:
        cdef int64_t now = real_ns()
        cdef time_t second = <time_t>(now // 1_000_000_000)
        cdef int64_t rest = now % 1_000_000_000
        cdef tm when
        cdef int i
        if second != self.second:
            gmtime_r(&second, &when)
            strftime(self.clock, sizeof(self.clock), b"%Y-%m-%dT%H:%M:%S", &when)
            self.second = second
        memcpy(at, self.clock, SECOND_BYTES)
        for i in range(9):
            at[SECOND_BYTES + 9 - i] = <uint8_t>(48 + rest % 10)
            rest //= 10

    cdef uint8_t* event(self, uint8_t* out, Stamp* s, Piece before, const uint8_t* text, size_t size, Piece after) noexcept:
        cdef uint8_t* start
        cdef size_t all = self.opening.size + before.size + size + after.size + (2 if s.line_end == END_CRLF else 1)
        if s.chunked:
            out = put_chunk_size(out, all)
        start = out
        out = put_piece(out, self.opening)
        self.stamp_time(start + self.time_at)
        out = put_line_end(put_piece(put(put_piece(out, before), text, size), after), s)
        return put(out, b"\r\n", 2) if s.chunked else out

    cdef uint8_t* tail(self, uint8_t* out, Stamp* s, int ending, bint with_usage, Usage* u) noexcept:
        cdef uint8_t[512] text
        cdef Piece fields
        fields.at = text
        fields.size = <size_t>(self.last_fields(text, s, ending, with_usage, u) - text)
        return self.event(out, s, self.silent, fields.at, fields.size, self.nothing)

    cdef uint8_t* last_fields(self, uint8_t* out, Stamp* s, int ending, bint with_usage, Usage* u) noexcept:
        out = put(out, b',"done":true,"done_reason":"', 28)
        if ending == ENDED_STOP:
            out = put(out, b'stop"', 5)
        else:
            out = put(out, b'length"', 7) if ending == ENDED_LENGTH else put(out, b'abort"', 6)
        out = put_field(out, b',"total_duration":', 18, u.total_ns, s)
        out = put_field(out, b',"load_duration":', 17, u.load_ns, s)
        if with_usage:
            out = put_field(out, b',"prompt_eval_count":', 21, u.prompt, s)
            out = put_field(out, b',"prompt_eval_cached_count":', 28, u.cached, s)
        out = put_field(out, b',"prompt_eval_duration":', 24, u.prompt_eval_ns, s)
        if with_usage:
            out = put_field(out, b',"eval_count":', 14, u.completion, s)
        out = put_field(out, b',"eval_duration":', 17, u.eval_ns, s)
        return put(out, b"}", 1)

    cdef size_t document_size(self, int64_t tokens) noexcept:
        return self.document_opening.size + <size_t>tokens * WORD_LONGEST + 1024

    cdef uint8_t* document(self, uint8_t* out, Stamp* s, uint64_t seed, int64_t tokens, int ending, Usage* u,
                           bint with_usage) noexcept:
        cdef uint8_t* start = out
        cdef int64_t i
        cdef Piece word
        out = put_piece(out, self.document_opening)
        self.stamp_time(start + self.document_time_at)
        for i in range(tokens):
            word = WORD[draw(seed, <uint64_t>i, DRAW_WORD) % WORDS]
            out = put(out, word.at + (1 if i == 0 else 0), word.size - (1 if i == 0 else 0))
        return self.last_fields(put_piece(out, self.document_ends[ENDED_STOP]), s, ending, with_usage, u)


cdef inline uint8_t* put_field(uint8_t* out, const char* name, size_t size, int64_t value, Stamp* s) noexcept nogil:
    # A stream with a Content-Length has declared it before its durations were known: blanks in front of the number
    # keep it.
    cdef uint8_t* start
    if value <= 0 and not s.padded:
        return out
    out = start = put(out, name, size)
    if s.padded:
        while out < start + NUMBER_BYTES:
            out[0] = 32
            out += 1
        out = start + NUMBER_BYTES - digits(value if value > 0 else 0)
    return put_number(out, value if value > 0 else 0)


cdef inline int digits(int64_t value) noexcept nogil:
    cdef int n = 1
    while value >= 10:
        value //= 10
        n += 1
    return n
