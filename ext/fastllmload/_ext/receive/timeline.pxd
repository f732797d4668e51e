# Events of a response onto its timeline: kind, time and class of the stamp of each; live TTFT and ITL. Rows of events and
# the live histograms of tokens are written here and nowhere else.
cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t

cimport fastllmload._ext.record.counters as k
cimport fastllmload._ext.record.recorder as r
from fastllmload._ext.bytes.cursor cimport Cursor, left
from fastllmload._ext.events.calls cimport CallReader
from fastllmload._ext.events.delta cimport EVENT_CONTENT, Alike, Classifier, Meaning, template_grows, template_takes
from fastllmload._ext.events.sse cimport Arrival, SseEvent, arrived_with, sse_rests, sse_takes_data, sse_takes_end
from fastllmload._ext.http.response cimport CONTENT_SSE
from fastllmload._ext.receive.exchange cimport Exchange, exchange_reply
from fastllmload._ext.record.errortexts cimport ErrorTexts
from fastllmload._ext.record.histogram cimport Hdr, hdr_record
from fastllmload._ext.record.recorder cimport Chunk, EventRow, Recorder, RequestRow

cdef enum:
    STAMP_CLASS = 3         # EventRow.stamp bits: StampClass
    SAME_READ = 4           # EventRow.stamp bit: same read as the request's previous event
    WITHOUT_TEXT = 8        # EventRow.stamp bit: tokens, but no text

cdef enum:
    FRAMING = 9             # bytes that may follow in the segment of an event: its empty line, the ends of its chunk and of the body

# How far before *t* an event may have come that came at *low* or later.
cdef inline uint32_t bracket_of(int64_t t, int64_t low) noexcept nogil:
    return <uint32_t>min(max(t - low, <int64_t>0), <int64_t>r.BRACKET_OPEN)

# Usage that an event says, in tokens; a count of -1 is not in it.
cdef inline void row_usage(RequestRow* row, int32_t prompt, int32_t completion, int32_t reasoning, int32_t cached) noexcept:
    if prompt >= 0:
        row.prompt_tokens = prompt
    if completion >= 0:
        row.completion_tokens = completion
    if reasoning >= 0:
        row.reasoning_tokens = reasoning
    if cached >= 0:
        row.cached_tokens = cached

@cython.final
cdef class Timeline:
    # One per worker. Not thread-safe. Every Exchange that comes in has an open row.
    cdef Recorder recorder
    cdef Classifier classifier
    cdef CallReader calls
    cdef ErrorTexts error_texts
    cdef int64_t* words             # counters.pxd; borrowed from the Protocol's shared memory
    cdef Hdr ttft, ttft_any, itl
    cdef uint32_t unsettled         # events of the latest read that were recorded as STAMP_COALESCED
    cdef Chunk* marked              # the window of event rows that *mark* is in; borrowed, only compared
    cdef EventRow* mark             # the first of them
    cdef int event(self, Exchange* x, SseEvent* event) except -1        # one event of a stream
    cdef int whole(self, Exchange* x, int64_t t) except -1              # a body that was not a stream
    # What the transport found out about the read that was fed last: *one_segment*: the kernel got all of it at once, so the
    # stamp is the exact time of every event; else none of it came before *low*.
    cdef int settle(self, bint one_segment, int64_t low) noexcept
    cdef int _timed(self, Exchange* x, Meaning* m, int64_t t, uint8_t kind) except -1
    cdef int _wrong(self, Exchange* x, uint8_t error, const unsigned char* text, size_t size) except -1
    cdef int _said(self, RequestRow* row, Meaning* m) noexcept

    # EventRow.tokens of an event with text: the growth of *completion* since the event before, else *listed*; both are -1
    # where the event does not say them.
    cdef inline uint16_t tokens_of(self, Exchange* x, int32_t completion, int32_t listed) noexcept:
        cdef int32_t growth = -1
        if completion < 0:
            x.uncounted = True
        else:
            x.counted = True
            if not x.uncounted:
                growth = completion - x.completion
            if growth < 0 or completion == 0:       # it is not a running count
                growth = -1
                x.uncounted = True
            x.completion = completion
        if growth == 0:
            return <uint16_t>r.TOKENS_NONE
        return <uint16_t>min(growth if growth > 0 else max(listed, 0), <int32_t>r.TOKENS_MOST)

    # An event of *kind* with *tokens* at *t*, whose last byte is the connection's byte *offset*; *a*: the read that brought
    # that byte; *extra*: 0 or WITHOUT_TEXT.
    cdef inline int put(self, Exchange* x, Arrival* a, int64_t t, uint32_t offset, uint8_t kind, uint16_t tokens,
                        uint8_t extra=0) except -1:
        cdef uint8_t stamp = a.stamp_class
        cdef uint32_t bracket = 0
        cdef bint follows = x.row.events > 0 and x.event_read == a.read
        if stamp == r.STAMP_USER:
            bracket = bracket_of(t, a.low)
        # More came with it, perhaps in a later segment: the stamp is that segment's.
        elif a.end - offset > FRAMING or stamp == r.STAMP_COALESCED:
            stamp = r.STAMP_COALESCED
            bracket = bracket_of(t, a.low)
        x.event_read = a.read
        x.row.events += 1
        self.words[k.W_EVENTS] += 1
        if self.recorder.event(t, x.number, kind, stamp | extra | (SAME_READ if follows else 0), tokens, bracket, offset):
            return 0
        if stamp == r.STAMP_COALESCED and a.read == x.now.read:
            if self.unsettled == 0:
                self.marked = self.recorder.events.current
                self.mark = self.recorder.slot - 1
            self.unsettled += 1
        return 0

    # Text on the content timeline after its first token; *size* 0 where the token's text comes later.
    cdef inline int content(self, Exchange* x, const unsigned char* text, uint32_t size, int64_t t) except -1:
        cdef RequestRow* row = x.row
        row.text_bytes += size
        if self.recorder.text_on:
            self.recorder.write_text(x.number, text, size)
        if x.keep and size:
            exchange_reply(x, text, size)
        if row.phase == r.PHASE_MEASURE:
            hdr_record(&self.itl, 0 if t == row.t_last else t - row.t_last)         # 0, of one read, is placed by the compiler
        row.t_last = t
        row.content_events += 1
        self.words[k.W_CONTENT_EVENTS] += 1
        return 0

    # What a like event says besides its text; the tokens that it carries.
    cdef inline uint16_t more_than_text(self, Exchange* x, const Alike* said) noexcept:
        if x.template.repeats:
            template_grows(&x.template, said)
        if x.template.has_usage:
            row_usage(x.row, x.template.prompt_tokens, said.completion_tokens, said.reasoning_tokens, x.template.cached_tokens)
        return self.tokens_of(x, said.completion_tokens, said.listed_tokens)

    # A like event (see there) that was read from *c*.
    cdef inline int alike(self, Exchange* x, const Alike* said, int64_t t, uint32_t offset) except -1:
        cdef uint16_t tokens = 0
        self.classifier.by_template += 1
        if x.template.plain:
            x.uncounted = True
        else:
            tokens = self.more_than_text(x, said)
        self.put(x, x.now, t, offset, EVENT_CONTENT, tokens)
        return self.content(x, said.text.at, <uint32_t>said.text.size, t)

    # A message over WebSocket that is a like event, whose last byte is the connection's byte *offset*: taken, or not.
    cdef bint like_message(self, Exchange* x, Cursor* c, uint32_t offset) except -1

    # The same of NDJSON: as many lines of *c* as are whole and like events.
    cdef int like_lines(self, Exchange* x, Cursor* c) except -1

    # Like events: each is whole in *c*, one line of data, and equals the stream's template in all but text and usage. What this
    # takes, sse_next(), classify() and event() would take in the same way; it stops where one of them has to decide.
    cdef inline int like(self, Exchange* x, Cursor* c) except -1:
        cdef RequestRow* row = x.row
        cdef int64_t t
        cdef const unsigned char* newline
        cdef Cursor at
        cdef Alike said
        if x.content != CONTENT_SSE or row.t_first == 0 or not x.template.one_line or not sse_rests(&x.sse):
            return 0
        t = x.now.t if x.now.t >= row.t_headers else row.t_headers
        while left(c):
            at = c[0]
            if not (sse_takes_data(&at) and template_takes(&x.template, &at, &said)):
                return 0
            newline = at.at
            if <size_t>(at.at - c.at) > x.sse.limit or not sse_takes_end(&at):
                return 0
            c.at = at.at
            self.alike(x, &said, t, arrived_with(x.now, newline + (2 if newline[0] == c'\r' else 1)))
