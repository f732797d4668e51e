"""One request and its response, sans-IO.

Theory of operation. A transport opens an exchange (`open`), feeds every read with its time stamp (`feed`), reports the
end of the connection (`eof`) or its own failure (`fail`). The states go X_IDLE -> X_HEAD -> X_BODY -> X_IDLE; a stream
whose [DONE] came before the end of its message waits in X_TAIL: the request has ended, the connection is not free yet.

The class of a stamp depends on what follows in the same read: only the last event of a read has the time of the read's
newest segment, every earlier one has it as an upper bound. So each event waits in `Pending` until the next one, or the
end of the read, decides.

Events on the content timeline (metrics.md 3.2) are recorded as EVENT_CONTENT, EVENT_TOOL: whitespace behind the first
content token is content, whitespace before it stays EVENT_WHITESPACE.
"""

from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

cimport fastllmload._ext.counters as k
cimport fastllmload._ext.recorder as r
from fastllmload._ext.cursor cimport left, over
from fastllmload._ext.delta cimport (
    EVENT_BAD,
    EVENT_CONTENT,
    EVENT_DONE,
    EVENT_ERROR,
    EVENT_REASONING,
    EVENT_REFUSAL,
    EVENT_TOOL,
    EVENT_WHITESPACE,
    FINISH_CONTENT_FILTER,
    FINISH_NONE,
    FINISH_OTHER,
    template_free,
    template_reset,
)
from fastllmload._ext.facts cimport NS_EVAL, NS_LOAD, NS_PROMPT_EVAL, NS_TOTAL
from fastllmload._ext.histogram cimport HDR_WORDS, hdr_record
from fastllmload._ext.http1 cimport (
    BODY_END,
    BODY_ERROR,
    BODY_NEED,
    BODY_SPAN,
    CONTENT_JSON,
    CONTENT_NDJSON,
    CONTENT_SSE,
    HEAD_OK,
    BodyStep,
    Framing,
    body_begin,
    body_eof,
    body_next,
    head_size,
)
from fastllmload._ext.ndjson cimport ndjson_eof, ndjson_free, ndjson_init, ndjson_next, ndjson_reset
from fastllmload._ext.recorder cimport FLAG_CLAMPED, FLAG_DONE, FLAG_FIRST_COALESCED, FLAG_STREAM, FLAG_TOOL, FLAG_USAGE
from fastllmload._ext.sse cimport SSE_EVENT, SSE_TOO_LONG, SseStep, sse_free, sse_init, sse_next, sse_reset

cdef enum:
    MAX_HEAD = 65536            # a longer response head is refused
    KEPT = 65536                # memory an idle exchange may keep for partial heads and bodies
    MAX_ERROR_BODY = 65536      # of a failed response's body this much is looked at, the rest is skipped
    SAME_READ = 4               # EventRow.stamp bit


cdef void exchange_init(Exchange* x, size_t max_event) noexcept nogil:
    memset(x, 0, sizeof(Exchange))
    sse_init(&x.sse, max_event)
    ndjson_init(&x.ndjson, max_event)


cdef void exchange_free(Exchange* x) noexcept nogil:
    sse_free(&x.sse)
    ndjson_free(&x.ndjson)
    template_free(&x.template)
    free(x.held)
    free(x.reply)
    x.held = x.reply = NULL


cdef class Protocol:
    """Parsers' settings and sinks of one worker.

    *shared* is the worker's shared memory (int64, length counters.WORDS + counters.HISTOGRAMS * HDR_WORDS).
    """

    def __init__(self, Recorder recorder, Classifier classifier, int64_t[::1] shared, size_t max_event, size_t max_body):
        if shared.shape[0] < k.WORDS + k.HISTOGRAMS * HDR_WORDS:
            raise ValueError(f"shared memory has {shared.shape[0]} words, {k.WORDS + k.HISTOGRAMS * HDR_WORDS} are needed")
        self.recorder = recorder
        self.classifier = classifier
        self.head = HeadReader()
        self.shared = shared
        self.words = &shared[0]
        self.ttft.counts = self.words + k.WORDS + k.H_TTFT * HDR_WORDS
        self.itl.counts = self.words + k.WORDS + k.H_ITL * HDR_WORDS
        self.e2e.counts = self.words + k.WORDS + k.H_E2E * HDR_WORDS
        self.max_event = max_event
        self.max_body = max_body

    cdef int open(self, Exchange* x) except -1:
        x.state = X_HEAD
        x.content = 0
        x.bad_events = 0
        x.error_events = 0
        x.refusals = 0
        x.held_size = 0
        x.reply_size = 0
        x.keep = 0
        x.read_t = 0
        x.event_read = 0
        x.floor_t = 0
        if x.held_cap > KEPT:
            free(x.held)
            x.held = NULL
            x.held_cap = 0
        template_reset(&x.template)
        return 0

    cdef Verdict feed(self, Exchange* x, const unsigned char* data, size_t size, int64_t t, uint8_t stamp_class,
                      int64_t user_t) except *:
        """Bytes of one read: its stamp *t* (ns), the stamp's class, and when user space had it."""
        cdef Cursor c
        cdef Verdict verdict = V_MORE
        if x.state == X_IDLE:
            return V_CLOSE
        over(&c, data, size)
        self.reads += 1
        if x.row != NULL:
            x.floor_t = x.read_t if x.read_t else x.row.t_submit
            if t < x.floor_t:       # the offset to CLOCK_REALTIME jitters by nanoseconds; on loopback an answer can also
                if x.read_t == 0:   # be stamped before the send() that asked for it has returned
                    x.row.flags |= FLAG_CLAMPED
                    self.words[k.W_CLAMPED] += 1
                t = x.floor_t
            x.row.reads += 1
            x.row.bytes_received += size
        x.read_t = t
        x.read_class = stamp_class
        while x.state == X_HEAD and left(&c) and verdict == V_MORE:
            verdict = self._head(x, &c, t, user_t)
        if verdict == V_MORE and (x.state == X_BODY or x.state == X_TAIL):
            verdict = self._body(x, &c, t, user_t)
        return verdict

    cdef Verdict _head(self, Exchange* x, Cursor* c, int64_t t, int64_t user_t) except *:
        cdef const unsigned char* head = c.at
        cdef size_t before = x.held_size
        cdef size_t size
        if before:
            self._hold(x, c.at, min(left(c), <size_t>MAX_HEAD + 1 - before))
            head = x.held
            size = head_size(head, x.held_size, before)
        else:
            size = head_size(head, left(c), 0)
        if size == 0:
            if not before:
                self._hold(x, c.at, min(left(c), <size_t>MAX_HEAD + 1))
            c.at = c.end
            if x.held_size > MAX_HEAD:
                self.fail(x, r.STATUS_PROTOCOL_ERROR, r.ERROR_HEAD_TOO_LARGE, t, user_t)
                return V_CLOSE
            return V_MORE
        c.at += size - before
        x.held_size = 0
        if size > MAX_HEAD:
            self.fail(x, r.STATUS_PROTOCOL_ERROR, r.ERROR_HEAD_TOO_LARGE, t, user_t)
            return V_CLOSE
        if self.head.read(head, size) != HEAD_OK or self.head.upgrade:
            self.fail(x, r.STATUS_PROTOCOL_ERROR, r.ERROR_BAD_HEAD, t, user_t)
            return V_CLOSE
        if self.head.status < 200:
            return V_MORE           # 100 Continue, 103 Early Hints: the real head follows
        return self._response(x, t, user_t)

    cdef Verdict _response(self, Exchange* x, int64_t t, int64_t user_t) except *:
        """The final head is read: remember what it says and make the body's parsers ready."""
        cdef RequestRow* row = x.row
        row.t_headers = t
        row.http_status = <uint16_t>self.head.status
        row.retry_after_ms = self.head.retry_after_ms
        x.keep_alive = self.head.keep_alive
        x.content = <uint8_t>self.head.content
        x.state = X_BODY
        body_begin(&x.body, <Framing>self.head.framing, self.head.length)
        if self.head.encoded:
            self.fail(x, r.STATUS_PROTOCOL_ERROR, r.ERROR_ENCODED_BODY, t, user_t)
            return V_CLOSE
        if self._streams(x):
            row.flags |= FLAG_STREAM
            sse_reset(&x.sse)
            ndjson_reset(&x.ndjson)
        return V_MORE

    cdef bint _streams(self, Exchange* x) noexcept:
        return x.row.http_status < 300 and (x.content == CONTENT_SSE or x.content == CONTENT_NDJSON)

    cdef Verdict _body(self, Exchange* x, Cursor* c, int64_t t, int64_t user_t) except *:
        cdef Cursor span
        cdef Pending pending
        cdef BodyStep step
        pending.full = 0
        while True:
            step = body_next(&x.body, c, &span)
            if step != BODY_SPAN:
                break
            if x.row != NULL and self._payload(x, &span, user_t, &pending) != 0:
                self._flush(x, &pending, False)
                self.fail(x, r.STATUS_PROTOCOL_ERROR, r.ERROR_EVENT_TOO_LARGE, t, user_t)
                return V_CLOSE
        self._flush(x, &pending, False)
        if step == BODY_NEED:
            if x.row != NULL and x.row.flags & FLAG_DONE:
                self._finish(x, t, user_t)
                x.state = X_TAIL
            return V_MORE
        if step == BODY_ERROR:
            self.fail(x, r.STATUS_PROTOCOL_ERROR, r.ERROR_BAD_CHUNK, t, user_t)
            return V_CLOSE
        if x.row != NULL:
            self._last_line(x, user_t)
            self._finish(x, t, user_t)
        x.state = X_IDLE
        return V_REUSE if x.keep_alive and not left(c) else V_CLOSE

    cdef int _payload(self, Exchange* x, Cursor* span, int64_t user_t, Pending* p) except -1:
        """Payload bytes of one span; 1 when an event or a body passed its limit."""
        cdef SseEvent event
        cdef SseStep step
        cdef size_t limit
        if not x.row.flags & FLAG_STREAM:
            limit = self.max_body if x.row.http_status < 300 else <size_t>MAX_ERROR_BODY
            if x.held_size + left(span) > limit:
                if x.row.http_status < 300:
                    return 1
                span.end = span.at + (limit - x.held_size)
            self._hold(x, span.at, left(span))
            return 0
        if x.content == CONTENT_SSE:
            x.sse.stamp = x.read_t
            x.sse.read = self.reads
        else:
            x.ndjson.stamp = x.read_t
            x.ndjson.read = self.reads
        while True:
            step = sse_next(&x.sse, span, &event) if x.content == CONTENT_SSE else ndjson_next(&x.ndjson, span, &event)
            if step != SSE_EVENT:
                return step == SSE_TOO_LONG
            self._event(x, &event, user_t, p)

    cdef int _last_line(self, Exchange* x, int64_t user_t) except -1:
        """The message is over: a last NDJSON line needs no newline."""
        cdef Pending pending
        cdef SseEvent event
        pending.full = 0
        if x.content == CONTENT_NDJSON and x.row.flags & FLAG_STREAM and ndjson_eof(&x.ndjson, &event) == SSE_EVENT:
            self._event(x, &event, user_t, &pending)
            self._flush(x, &pending, False)
        return 0

    cdef int _event(self, Exchange* x, SseEvent* event, int64_t user_t, Pending* p) except -1:
        cdef Meaning m
        cdef RequestRow* row = x.row
        cdef int64_t t = event.stamp if event.stamp >= row.t_headers else row.t_headers
        if row.flags & FLAG_DONE:
            return 0                # nothing behind [DONE] belongs to the stream
        self.classifier.classify(&x.template, event.data, event.size, &m)
        self._flush(x, p, p.full and p.read == event.read)
        p.full = 1
        p.t = t
        p.row = x.number
        p.follows = row.events > 0 and x.event_read == event.read
        p.read = event.read
        x.event_read = event.read
        p.kind = m.kind
        p.first = 0
        row.events += 1
        self.words[k.W_EVENTS] += 1
        if m.kind == EVENT_CONTENT or m.kind == EVENT_TOOL or m.kind == EVENT_REASONING:
            self._timed(x, &m, t, m.kind)
            p.first = row.content_events == 1 and m.kind != EVENT_REASONING
        elif m.kind == EVENT_WHITESPACE:
            if row.t_first != 0:
                p.kind = EVENT_CONTENT
            self._timed(x, &m, t, p.kind)
        elif m.kind == EVENT_REFUSAL:
            x.refusals = 1
            self._timed(x, &m, t, m.kind)
        elif m.kind == EVENT_ERROR:
            x.error_events = 1
        elif m.kind == EVENT_BAD:
            x.bad_events = 1
        elif m.kind == EVENT_DONE:
            row.flags |= FLAG_DONE
        if m.finish != FINISH_NONE:
            row.finish = m.finish
        if m.has_usage:
            self._usage(row, &m)
        if m.done:
            self._ollama_done(row, &m)
        return 0

    cdef int _ollama_done(self, RequestRow* row, Meaning* m) noexcept:
        row.flags |= FLAG_DONE
        row.server_total_ns = m.server_ns[NS_TOTAL]
        row.server_load_ns = m.server_ns[NS_LOAD]
        row.server_prompt_eval_ns = m.server_ns[NS_PROMPT_EVAL]
        row.server_eval_ns = m.server_ns[NS_EVAL]
        return 0

    cdef int _usage(self, RequestRow* row, Meaning* m) noexcept:
        row.flags |= FLAG_USAGE
        if m.prompt_tokens >= 0:
            row.prompt_tokens = m.prompt_tokens
        if m.completion_tokens >= 0:
            row.completion_tokens = m.completion_tokens
        if m.reasoning_tokens >= 0:
            row.reasoning_tokens = m.reasoning_tokens
        if m.cached_tokens >= 0:
            row.cached_tokens = m.cached_tokens
        return 0

    cdef int _timed(self, Exchange* x, Meaning* m, int64_t t, uint8_t kind) except -1:
        """An event that carries generated tokens."""
        cdef RequestRow* row = x.row
        if row.t_any == 0:
            row.t_any = t
        row.text_bytes += m.text_size
        if self.recorder.text_on and m.text != NULL and kind != EVENT_REASONING:
            self.recorder.write_text(x.number, m.text, m.text_size)
        if x.keep and m.text != NULL and (kind == EVENT_CONTENT or kind == EVENT_WHITESPACE):
            self._keep(x, m.text, m.text_size)
        if kind == EVENT_REASONING:
            row.reasoning_events += 1
        elif kind == EVENT_WHITESPACE:
            row.leading_events += 1
        elif kind != EVENT_REFUSAL:
            if row.t_first == 0:
                row.t_first = t
                row.t_first_floor = x.floor_t
                if row.phase == r.PHASE_MEASURE:
                    hdr_record(&self.ttft, t - row.t_submit)
            elif row.phase == r.PHASE_MEASURE:
                hdr_record(&self.itl, t - row.t_last)
            row.t_last = t
            row.content_events += 1
            self.words[k.W_CONTENT_EVENTS] += 1
            if kind == EVENT_TOOL:
                row.flags |= FLAG_TOOL
        return 0

    cdef int _flush(self, Exchange* x, Pending* p, bint coalesced) except -1:
        """Write the waiting event, now that it is known whether another one came in the same read."""
        cdef uint8_t stamp
        if not p.full:
            return 0
        p.full = 0
        stamp = x.read_class
        if coalesced:
            stamp = r.STAMP_COALESCED
            x.row.coalesced_events += 1
            self.words[k.W_COALESCED] += 1
        if p.first:
            x.row.stamps = stamp
            if coalesced:
                x.row.flags |= FLAG_FIRST_COALESCED
        self.recorder.event(p.t, p.row, p.kind, stamp | (SAME_READ if p.follows else 0), 0)
        return 0

    cdef int _whole(self, Exchange* x, int64_t t, int64_t user_t) except -1:
        """A complete body that was not a stream: its tokens all arrive with its last byte."""
        cdef Meaning m
        cdef RequestRow* row = x.row
        cdef Pending p
        if row.http_status >= 300 or x.held_size == 0 or x.content != CONTENT_JSON:
            return 0
        self.classifier.classify_body(x.held, x.held_size, &m)
        row.events = 1
        self.words[k.W_EVENTS] += 1
        if m.finish != FINISH_NONE:
            row.finish = m.finish
        if m.has_usage:
            self._usage(row, &m)
        if m.done:
            self._ollama_done(row, &m)
        if m.kind == EVENT_CONTENT or m.kind == EVENT_TOOL or m.kind == EVENT_WHITESPACE or m.kind == EVENT_REASONING:
            self._timed(x, &m, t, m.kind)
        x.refusals = m.kind == EVENT_REFUSAL
        x.error_events = m.kind == EVENT_ERROR
        x.bad_events = m.kind == EVENT_BAD
        p.full = 1
        p.t = t
        p.row = x.number
        p.read = self.reads
        p.kind = m.kind
        p.follows = 0
        p.first = row.content_events > 0
        return self._flush(x, &p, False)

    cdef int _finish(self, Exchange* x, int64_t t, int64_t user_t) except -1:
        """The response ended by its own framing, or with [DONE]: decide the status (metrics.md 3.5)."""
        cdef RequestRow* row = x.row
        cdef uint8_t status = r.STATUS_OK
        cdef uint8_t error = r.ERROR_NONE
        cdef bint streamed = row.flags & FLAG_STREAM
        row.comments = x.sse.comments if streamed else 0
        if not streamed:
            self._whole(x, t, user_t)
        if row.http_status == 429:
            status, error = r.STATUS_RATE_LIMITED, r.ERROR_HTTP_STATUS
        elif row.http_status >= 300:
            status, error = r.STATUS_HTTP_ERROR, r.ERROR_HTTP_STATUS
        elif x.error_events:
            status, error = r.STATUS_STREAM_ERROR, r.ERROR_EVENT
        elif x.bad_events:
            status, error = r.STATUS_PROTOCOL_ERROR, r.ERROR_BAD_EVENT
        elif not streamed and x.held_size == 0:
            status = r.STATUS_EMPTY
        elif not streamed and x.content != CONTENT_JSON:
            status, error = r.STATUS_PROTOCOL_ERROR, r.ERROR_UNEXPECTED_CONTENT_TYPE
        elif row.finish == FINISH_CONTENT_FILTER or (x.refusals and row.content_events == 0):
            status = r.STATUS_REFUSED
        elif row.finish == FINISH_OTHER or (
            (streamed or self.classifier.says_done()) and row.finish == FINISH_NONE and not row.flags & FLAG_DONE
        ):
            status, error = r.STATUS_TRUNCATED, r.ERROR_NO_DONE
        elif row.content_events == 0:
            status = r.STATUS_EMPTY
        return self._end(x, status, error, t, user_t)

    cdef int _end(self, Exchange* x, uint8_t status, uint8_t error, int64_t t, int64_t user_t) except -1:
        cdef RequestRow* row = x.row
        row.status = status
        row.error = error
        row.t_end = t
        row.t_end_user = user_t
        self.last_ok = status == r.STATUS_OK
        self.last_left = error == r.ERROR_CLIENT_CANCELLED or error == r.ERROR_CLIENT_ABANDONED
        self.last_t = t
        if status == r.STATUS_OK and row.phase == r.PHASE_MEASURE:
            hdr_record(&self.e2e, row.t_last - row.t_submit)
        self.words[k.W_ENDED] += 1
        if not self.last_left:
            self.words[k.W_OK if status == r.STATUS_OK else k.W_FAILED] += 1
        self.words[k.W_STATUS0 + status] += 1
        self.words[k.W_ERROR0 + error] += 1
        x.row = NULL
        return self.recorder.end_row(x.chunk)

    cdef int fail(self, Exchange* x, uint8_t status, uint8_t error, int64_t t, int64_t user_t) except -1:
        """The transport's or the framing's failure; a request that has ended already is left as it is."""
        x.state = X_IDLE
        if x.row == NULL:
            return 0
        if x.row.flags & FLAG_STREAM:
            x.row.comments = x.sse.comments
        return self._end(x, status, error, t, user_t)

    cdef Verdict eof(self, Exchange* x, int64_t t, int64_t user_t, int error_number) except *:
        """The peer closed (0) or the connection broke (errno)."""
        cdef RequestRow* row = x.row
        if row == NULL:
            x.state = X_IDLE
            return V_CLOSE
        row.error_number = error_number
        if t < x.read_t:
            t = x.read_t
        if row.bytes_received == 0:
            self.fail(x, r.STATUS_CONNECTION_ERROR,
                      r.ERROR_REUSED_CONNECTION_LOST if x.reused else r.ERROR_CLOSED_BEFORE_RESPONSE, t, user_t)
        elif error_number != 0:
            self.fail(x, r.STATUS_CONNECTION_ERROR, r.ERROR_RESET, t, user_t)
        elif x.state == X_HEAD:
            self.fail(x, r.STATUS_CONNECTION_ERROR, r.ERROR_CLOSED_IN_BODY, t, user_t)
        elif body_eof(&x.body) == BODY_END or row.finish != FINISH_NONE:
            self._last_line(x, user_t)
            self._finish(x, t, user_t)
        else:
            self.fail(x, r.STATUS_TRUNCATED, r.ERROR_CLOSED_IN_BODY, t, user_t)
        x.state = X_IDLE
        return V_CLOSE

    cdef int _hold(self, Exchange* x, const unsigned char* data, size_t size) except -1:
        """Keep bytes of a partial head or of a body until the rest is there. Callers bound the size."""
        cdef size_t need = x.held_size + size
        cdef size_t cap = x.held_cap if x.held_cap else 1024
        cdef unsigned char* grown
        if need > x.held_cap:
            while cap < need:
                cap *= 2
            grown = <unsigned char*>realloc(x.held, cap)
            if grown == NULL:
                raise MemoryError(f"{cap} bytes for a partial response")
            x.held = grown
            x.held_cap = cap
        memcpy(x.held + x.held_size, data, size)
        x.held_size = need
        return 0

    cdef int _keep(self, Exchange* x, const unsigned char* text, size_t size) except -1:
        """Keep the answer's text for the next turn."""
        cdef size_t cap = x.reply_cap if x.reply_cap else 1024
        cdef unsigned char* grown
        if x.reply_size + size > x.reply_cap:
            while cap < x.reply_size + size:
                cap *= 2
            grown = <unsigned char*>realloc(x.reply, cap)
            if grown == NULL:
                raise MemoryError(f"{cap} bytes for a reply")
            x.reply = grown
            x.reply_cap = cap
        memcpy(x.reply + x.reply_size, text, size)
        x.reply_size += size
        return 0


cdef class Conversation:
    """Exchanges of one connection without a transport: for tests, and for replaying captured bytes.

    Times are CLOCK_MONOTONIC-like ns chosen by the caller; verdicts are 0 read on, 1 reuse, 2 close.
    """

    cdef Exchange x
    cdef Protocol protocol

    def __cinit__(self, Protocol protocol not None):
        exchange_init(&self.x, protocol.max_event)
        self.protocol = protocol

    def __dealloc__(self):
        exchange_free(&self.x)

    def open(self, int64_t t_submit, bint reused=False) -> int:
        """Begin a request handed over at *t_submit*; returns its row number."""
        self.x.row = self.protocol.recorder.open_row(&self.x.number, &self.x.chunk)
        if self.x.row == NULL:
            raise OSError("disk full")
        self.x.row.t_sched = self.x.row.t_dispatch = self.x.row.t_submit_start = self.x.row.t_submit = t_submit
        self.x.row.prompt_tokens = self.x.row.completion_tokens = -1
        self.x.row.reasoning_tokens = self.x.row.cached_tokens = -1
        self.x.row.phase = r.PHASE_MEASURE
        self.x.row.status = r.STATUS_IN_FLIGHT
        self.x.reused = reused
        self.protocol.open(&self.x)
        return self.x.number

    def feed(self, const unsigned char[::1] data not None, int64_t t, uint8_t stamp_class=1) -> int:
        if data.shape[0] == 0:
            return V_MORE
        return self.protocol.feed(&self.x, &data[0], data.shape[0], t, stamp_class, t)

    def eof(self, int64_t t, int error_number=0) -> int:
        return self.protocol.eof(&self.x, t, t, error_number)

    @property
    def ended(self) -> bool:
        return self.x.row == NULL
