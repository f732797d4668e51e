"""Events onto the timeline of their request (spec/metrics 3.2).

The kernel gives a read the stamp of the newest segment that it returned. So the last event of a read has its own time, and
an earlier one has an upper bound, with a lower bound that the transport knows (`Arrival.low`). Such events are *unsettled*
until the transport says whether one segment brought all of them, which makes the stamp exact again, or how early they may
have come at the most (`settle`). They lie one after the other in the window of event rows, where they are put right.

Events on the content timeline are recorded as EVENT_CONTENT, EVENT_TOOL: whitespace after the first content token is
content, whitespace before it stays EVENT_WHITESPACE.

How many tokens an event carries is recorded where the server says it (spec/metrics 3.4): the growth of its cumulative
`usage.completion_tokens`, as long as every event with text has said it; else the length of `token_ids`, else of `logprobs`.
An event without text (an empty delta, a finish_reason) that carries tokens so, such as half a character or the end-of-sequence
token, is an arrival of the same kind as the text before it. A finish_reason with the first usage of a stream is none: it may
be the total.
"""

from libc.string cimport memcmp

from fastllmload._ext.events.delta cimport (
    EVENT_BAD, EVENT_DONE, EVENT_EMPTY, EVENT_ERROR, EVENT_FINISH, EVENT_OTHER, EVENT_REASONING, EVENT_REFUSAL,
    EVENT_ROLE, EVENT_TOOL, EVENT_WHITESPACE, is_text,
)
from fastllmload._ext.events.dialect cimport (
    FINISH_FAILED, FINISH_NONE, FINISH_OTHER, NS_EVAL, NS_LOAD, NS_PROMPT_EVAL, NS_TOTAL,
)
from fastllmload._ext.http.response cimport CONTENT_GRPC, CONTENT_JSON
from fastllmload._ext.receive.exchange cimport answers, exchange_hold
from fastllmload._ext.record.histogram cimport HDR_WORDS
from fastllmload._ext.record.recorder cimport FLAG_DONE, FLAG_TOOL, FLAG_USAGE


cdef inline bint may_be_token(uint8_t kind, RequestRow* row) noexcept nogil:
    # Some servers say the role in every event.
    return row.finish == FINISH_NONE and (kind == EVENT_EMPTY or kind == EVENT_FINISH or (kind == EVENT_ROLE and row.t_any))


cdef class Timeline:
    """Where events go. *words*: the worker's shared memory; it must outlive the object, which the Protocol sees to."""

    def __init__(self, Recorder recorder not None, Classifier classifier not None, ErrorTexts error_texts not None,
                 int64_t[::1] words not None):
        self.recorder = recorder
        self.classifier = classifier
        self.calls = CallReader()
        self.error_texts = error_texts
        self.words = &words[0]
        self.ttft.counts = self.words + k.WORDS + k.H_TTFT * HDR_WORDS
        self.ttft_any.counts = self.words + k.WORDS + k.H_TTFT_ANY * HDR_WORDS
        self.itl.counts = self.words + k.WORDS + k.H_ITL * HDR_WORDS

    cdef int event(self, Exchange* x, SseEvent* event) except -1:
        cdef Meaning m
        cdef uint8_t kind, extra = 0
        cdef uint16_t tokens = 0
        cdef RequestRow* row = x.row
        cdef int64_t t = event.arrival.t if event.arrival.t >= row.t_headers else row.t_headers
        if row.flags & FLAG_DONE:
            return 0                # nothing after [DONE] belongs to the stream
        if x.content == CONTENT_GRPC:
            self.classifier.classify_message(x.dialect, &x.template, event.data, event.size, &m)
        else:
            self.classifier.classify(x.dialect, &x.template, event.data, event.size, &m)
        if event.name_size == 5 and memcmp(event.name, b"error", 5) == 0:
            m.kind = EVENT_ERROR    # whatever its data are: a server's own words, often no JSON
        elif m.kind == EVENT_BAD and event.name_size == 4 and memcmp(event.name, b"ping", 4) == 0:
            m.kind = EVENT_OTHER    # a gateway keeps the connection open; its data say nothing
        kind = EVENT_CONTENT if m.kind == EVENT_WHITESPACE and row.t_first != 0 else m.kind
        if is_text(kind):
            tokens = self.tokens_of(x, m.completion_tokens, m.listed_tokens)
        elif may_be_token(kind, row):
            if m.completion_tokens > 0 and (x.counted or kind == EVENT_EMPTY):
                tokens = self.tokens_of(x, m.completion_tokens, m.listed_tokens)
            elif m.listed_tokens > 0:
                tokens = <uint16_t>min(m.listed_tokens, <int32_t>r.TOKENS_MOST)
            if tokens != 0 and tokens != r.TOKENS_NONE:
                extra = WITHOUT_TEXT
                kind = EVENT_CONTENT if row.t_first else EVENT_REASONING if row.reasoning_events else EVENT_WHITESPACE
        x.counted |= m.completion_tokens >= 0
        self.put(x, &event.arrival, t, event.offset, kind, tokens, extra)
        if kind == EVENT_CONTENT or kind == EVENT_TOOL or kind == EVENT_REASONING or kind == EVENT_WHITESPACE:
            self._timed(x, &m, t, kind)
        elif m.kind == EVENT_REFUSAL:
            x.refusals = 1
            self._timed(x, &m, t, m.kind)
        elif m.kind == EVENT_ERROR:
            if x.content == CONTENT_GRPC:
                self._wrong(x, r.ERROR_EVENT, m.text, m.text_size)
            else:
                self._wrong(x, r.ERROR_EVENT, event.data, event.size)
        elif m.kind == EVENT_BAD:
            if x.content == CONTENT_GRPC:
                self._wrong(x, r.ERROR_BAD_EVENT, b"no message of this protocol", 27)
            else:
                self._wrong(x, r.ERROR_BAD_EVENT, event.data, event.size)
        elif m.kind == EVENT_DONE:
            row.flags |= FLAG_DONE
        if m.finish == FINISH_OTHER or m.finish == FINISH_FAILED:
            x.held_size = 0         # of a stream nothing else is held: its last words, should these be
            if x.content == CONTENT_GRPC:
                exchange_hold(x, m.text, m.text_size)
            else:
                exchange_hold(x, event.data, event.size)
        if x.keep and (m.calls or (m.kind == EVENT_REASONING and self.classifier.tables[x.dialect].thoughts)):
            self.calls.read(&x.calls, event.data, event.size, self.classifier.tables[x.dialect], False)
        self._said(row, &m)
        return 0

    cdef int _wrong(self, Exchange* x, uint8_t error, const unsigned char* text, size_t size) except -1:
        """An event that fails its request: the first one's words are kept."""
        if not x.error_events and not x.bad_events and x.row.phase == r.PHASE_MEASURE:
            self.error_texts.note(x.row.http_status, error, text, size)
        if error == r.ERROR_EVENT:
            x.error_events = 1
        else:
            x.bad_events = 1
        return 0

    cdef int _said(self, RequestRow* row, Meaning* m) noexcept:
        """What the event says apart from text: why the answer ended, usage, a server's own times."""
        if m.finish != FINISH_NONE:
            row.finish = m.finish
        if m.has_usage:
            row.flags |= FLAG_USAGE
            row_usage(row, m.prompt_tokens, m.completion_tokens, m.reasoning_tokens, m.cached_tokens)
        if m.done:
            row.flags |= FLAG_DONE
            row.server_total_ns = m.server_ns[<int>NS_TOTAL]
            row.server_load_ns = m.server_ns[<int>NS_LOAD]
            row.server_prompt_eval_ns = m.server_ns[<int>NS_PROMPT_EVAL]
            row.server_eval_ns = m.server_ns[<int>NS_EVAL]
        return 0

    cdef int _timed(self, Exchange* x, Meaning* m, int64_t t, uint8_t kind) except -1:
        """An event that carries generated tokens."""
        cdef RequestRow* row = x.row
        if row.t_any == 0:
            row.t_any = t
            self.words[k.W_WAITING] -= 1
            if row.phase == r.PHASE_MEASURE:
                hdr_record(&self.ttft_any, t - row.t_submit)
        if row.t_first != 0 and kind == EVENT_CONTENT:
            return self.content(x, m.text, m.text_size, t)
        if row.t_first == 0:        # of an answer that is all reasoning, the last of it
            row.t_last = t
        row.text_bytes += m.text_size
        if self.recorder.text_on and m.text != NULL and kind != EVENT_REASONING:
            self.recorder.write_text(x.number, m.text, m.text_size)
        if x.keep and m.text != NULL and (kind == EVENT_CONTENT or kind == EVENT_WHITESPACE):
            exchange_reply(x, m.text, m.text_size)
        if kind == EVENT_REASONING:
            if row.reasoning_events == 0 and row.phase == r.PHASE_MEASURE:
                self.words[k.W_REASONED] += 1
            row.reasoning_events += 1
        elif kind == EVENT_WHITESPACE:
            row.leading_events += 1
        elif kind != EVENT_REFUSAL:
            if row.t_first == 0:
                row.t_first = t
                if row.phase == r.PHASE_MEASURE:
                    hdr_record(&self.ttft, t - row.t_submit)
            else:
                if row.phase == r.PHASE_MEASURE:
                    hdr_record(&self.itl, t - row.t_last)
                row.t_last = t
            row.content_events += 1
            self.words[k.W_CONTENT_EVENTS] += 1
            if kind == EVENT_TOOL:
                row.flags |= FLAG_TOOL
        return 0

    cdef int whole(self, Exchange* x, int64_t t) except -1:
        """A complete body that was not a stream: its tokens all arrive with its last byte."""
        cdef Meaning m
        cdef RequestRow* row = x.row
        if not answers(row.http_status) or x.held_size == 0 or x.content != CONTENT_JSON:
            return 0
        self.classifier.classify_body(x.dialect, x.held, x.held_size, &m)
        self._said(row, &m)
        if m.kind == EVENT_CONTENT or m.kind == EVENT_TOOL or m.kind == EVENT_WHITESPACE or m.kind == EVENT_REASONING:
            self._timed(x, &m, t, m.kind)
        if m.calls and x.keep:
            self.calls.read(&x.calls, x.held, x.held_size, self.classifier.tables[x.dialect], True)
        x.refusals = m.kind == EVENT_REFUSAL
        if m.kind == EVENT_ERROR:
            self._wrong(x, r.ERROR_EVENT, x.held, x.held_size)
        elif m.kind == EVENT_BAD:
            self._wrong(x, r.ERROR_BAD_EVENT, x.held, x.held_size)
        return self.put(x, x.now, t, x.now.end, m.kind, 0)

    cdef bint like_message(self, Exchange* x, Cursor* c, uint32_t offset) except -1:
        cdef Cursor at = c[0]
        cdef Alike said
        if x.row.t_first == 0 or not x.template.one_line or not template_takes(&x.template, &at, &said) or at.at != at.end:
            return False
        self.alike(x, &said, x.now.t, offset)
        return True

    cdef int like_lines(self, Exchange* x, Cursor* c) except -1:
        cdef RequestRow* row = x.row
        cdef Cursor at
        cdef Alike said
        if row.t_first == 0 or not x.template.one_line or x.ndjson.line_size or x.ndjson.dead:
            return 0
        while left(c):
            at = c[0]
            if not template_takes(&x.template, &at, &said):
                return 0
            at.at += left(&at) > 0 and at.at[0] == c'\r'
            if <size_t>(at.at - c.at) > x.ndjson.limit or left(&at) == 0 or at.at[0] != c'\n':
                return 0
            c.at = at.at + 1
            self.alike(x, &said, max(x.now.t, row.t_headers), arrived_with(x.now, c.at))
        return 0

    cdef int settle(self, bint one_segment, int64_t low) noexcept:
        cdef EventRow* at = self.mark
        cdef EventRow* end = self.recorder.slot
        if not one_segment:
            self.words[k.W_COALESCED] += self.unsettled
        self.unsettled = 0
        if self.recorder.events.current == NULL or end == NULL:
            return 0                # the disk is full
        if self.marked != self.recorder.events.current:
            at = <EventRow*>self.recorder.events.current.base       # a new window was begun: those before it stay bounded
        while at < end:
            if at.stamp & STAMP_CLASS == r.STAMP_COALESCED:
                if one_segment:
                    at.stamp = (at.stamp & ~<uint8_t>STAMP_CLASS) | r.STAMP_KERNEL
                    at.bracket_ns = 0
                elif low < at.t_ns:         # else *low* is contradicted by the kernel's stamp: nothing is known from it
                    at.bracket_ns = min(at.bracket_ns, bracket_of(at.t_ns, low))
            at += 1
        return 0
