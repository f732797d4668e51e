"""Responses, from the bytes of reads to the status of their request.

Theory of operation. A transport opens an exchange (`exchange_open`, `Framing.open`), feeds every read with its time stamp (`feed`),
reports the end of the connection (`eof`) or its own failure (`fail`). The framing finds heads and payloads; the events in
these are found here and go to the `Timeline` one by one. A response that ends, by its own framing or with [DONE], gets its
status here (spec/metrics 3.5), and its exchange is put into `ended`, from which the caller takes it.
"""

from libc.stdint cimport INT32_MAX, int32_t
from libc.string cimport memset, strlen

cimport fastllmload._ext.record.counters as k
cimport fastllmload._ext.record.recorder as r
from fastllmload._ext.bytes.carry cimport CARRY_KEEP, carry_total
from fastllmload._ext.bytes.cursor cimport Cursor, left, over
from fastllmload._ext.bytes.jsonfind cimport json_member
from fastllmload._ext.events.calls cimport calls_said
from fastllmload._ext.events.dialect cimport FINISH_CONTENT_FILTER, FINISH_FAILED, FINISH_NONE, FINISH_OTHER
from fastllmload._ext.events.grpc cimport GRPC_BROKEN, GRPC_COMPRESSED, GRPC_MESSAGE, GrpcStep, grpc_next, grpc_reset, grpc_rests, status_text
from fastllmload._ext.events.ndjson cimport ndjson_eof, ndjson_next, ndjson_reset
from fastllmload._ext.events.sse cimport SSE_EVENT, SSE_TOO_LONG, SseEvent, SseStep, arrived_with, sse_next, sse_reset
from fastllmload._ext.http.response cimport CONTENT_GRPC, CONTENT_JSON, CONTENT_NDJSON, CONTENT_OTHER, CONTENT_SSE
from fastllmload._ext.receive.exchange cimport (
    V_CLOSE, V_MORE, V_RAISED, V_REPLY, V_REUSE, End, answers, ended_add, ended_take, exchange_free, exchange_give_back, exchange_held, exchange_hold,
    exchange_init, exchange_open, exchange_token, left_by_user,
)
from fastllmload._ext.receive.framing cimport (
    FRAME_END, FRAME_ERROR, FRAME_FAILED, FRAME_HEAD, FRAME_MORE, FRAME_PAYLOAD, FRAME_TRAILERS, FRAME_UPGRADED, IN_IDLE,
    IN_MESSAGES, FrameStep, incoming_free,
)
from fastllmload._ext.receive.http1 cimport Http1
from fastllmload._ext.receive.http2 cimport http2_begin
from fastllmload._ext.receive.messages cimport has_replies, socket_new
from fastllmload._ext.receive.multiplex cimport CODE_CANCEL
from fastllmload._ext.record.histogram cimport HDR_WORDS, hdr_record
from fastllmload._ext.record.recorder cimport FLAG_CLAMPED, FLAG_DONE, FLAG_STREAM, RequestRow
from fastllmload._ext.system.life cimport LIFE_REQUEST, life_ends
from fastllmload._ext.system.static_assert cimport FLL_STATIC_ASSERT

cdef enum:
    LONGEST_TOKEN = 4096        # bytes of a session's token in a body: a longer value is none
    READ_NS = 50_000            # at most between the end of a read in the kernel and its stamp by the process, if not stopped
    LARGE = 1 << 20             # buffers from here on go back to the kernel as soon as they are free
    MAX_ERROR_BODY = 65536      # of a failed response's body this much is looked at, the rest is skipped


cdef int64_t MAX_HELD = 512 << 20           # of a worker

cdef extern from "<malloc.h>" nogil:
    int M_MMAP_THRESHOLD
    int mallopt(int param, int value)


cdef inline int64_t arrives(Protocol self, Incoming* n, const unsigned char* data, size_t size, int64_t t, int64_t low,
                            uint8_t stamp_class) noexcept:
    """A read has come: its stamp, which becomes that of what it brings."""
    cdef Exchange* x = n.x
    cdef int64_t floor
    self.reads += 1
    if x.row != NULL:
        floor = n.now.t if n.now.t else x.row.t_submit
        if t < floor:           # the offset to CLOCK_REALTIME jitters by nanoseconds; on loopback an answer can also
            if n.now.t == 0:    # be stamped before the send() that asked for it has returned
                x.row.flags |= FLAG_CLAMPED
                self.words[k.W_CLAMPED] += 1
            t = floor
        # What comes later in the stream came later; but a stamp of the process was taken a little after its read.
        low = max(low, floor if n.now.stamp_class == r.STAMP_KERNEL or n.now.t == 0 else floor - READ_NS)
        x.row.reads += 1
        x.row.bytes_received += size
    stamped(self, n, data, size, t, low, stamp_class)
    return t


cdef inline void stamped(Protocol self, Incoming* n, const unsigned char* data, size_t size, int64_t t, int64_t low,
                         uint8_t stamp_class) noexcept:
    n.now.t = t
    n.now.low = low
    n.now.read = self.reads
    n.now.origin = n.now.end - <uint32_t><size_t>data
    n.now.end += <uint32_t>size
    n.now.stamp_class = stamp_class


cdef class Protocol:
    """Parsers' settings and sinks of one worker.

    *shared* is the worker's shared memory (int64, length counters.WORDS + counters.HISTOGRAMS * HDR_WORDS).
    """

    def __init__(self, Recorder recorder, Classifier classifier, int64_t[::1] shared, size_t max_event, size_t max_body,
                 int64_t max_held=MAX_HELD):
        FLL_STATIC_ASSERT(k.W_STATUS0 + r.STATUSES <= k.W_ERROR0)
        FLL_STATIC_ASSERT(k.W_ERROR0 + r.ERROR_CLASSES <= k.W_FAILED_AT0)
        FLL_STATIC_ASSERT(k.W_FAILED_AT0 + k.LAST_URL < k.WORDS)
        if shared.shape[0] < k.WORDS + k.HISTOGRAMS * HDR_WORDS:
            raise ValueError(f"shared memory has {shared.shape[0]} words, {k.WORDS + k.HISTOGRAMS * HDR_WORDS} are needed")
        self.recorder = recorder
        self.classifier = classifier
        self.error_texts = ErrorTexts()
        self.timeline = Timeline(recorder, classifier, self.error_texts, shared)
        self.framing = Http1()
        self.http2 = Http2()
        self.websocket = WebSocket(max_event)
        self.shared = shared
        self.words = &shared[0]
        self.e2e.counts = self.words + k.WORDS + k.H_E2E * HDR_WORDS
        self.max_event = max_event
        self.max_body = max_body
        self.max_held = max_held
        # Without this, glibc serves the next large buffers from its heap, which it gives back when it likes.
        mallopt(M_MMAP_THRESHOLD, LARGE)

    def want(self, bytes token=None, bytes backend=None, list path=None) -> None:
        """Fields of heads, in lower case: of the token of a session, and of the name of the backend. They may be one. *path*: names
        of members that lead to the token in the JSON of bodies.
        """
        names = list(dict.fromkeys(name for name in (token, backend) if name is not None))
        (<Http1>self.framing).head.want(names)
        self.http2.heads.want(names)
        self.token_at = -1 if token is None else names.index(token)
        self.token_depth = 0 if path is None else <int>len(path)
        self.token_path = b"".join([name + b"\0" for name in path or []])
        self.backend_at = -1 if backend is None else names.index(backend)
        self.backends = None if backend is None else Backends()

    cdef Verdict feed(self, Incoming* n, const unsigned char* data, size_t size, int64_t t, int64_t low,
                      uint8_t stamp_class, int64_t user_t) except V_RAISED:
        cdef Cursor c
        cdef Frame frame
        cdef FrameStep step
        cdef Exchange* x = n.x
        cdef Verdict verdict = V_MORE
        if n.state <= IN_MESSAGES:
            return V_CLOSE if n.state == IN_IDLE else self._feed_messages(n, data, size, t, low, stamp_class, user_t)
        over(&c, data, size)
        t = arrives(self, n, data, size, t, low, stamp_class)
        while verdict == V_MORE:
            step = self.framing.next(n, &c, &frame)
            if step == FRAME_PAYLOAD:
                verdict = self._body(frame.x, &frame.span, t, user_t)
                if not left(&c) and not frame.ends:
                    break
            elif step == FRAME_MORE:
                break
            elif step == FRAME_HEAD:
                if n.socket != NULL and answers(frame.status):      # no failure, and no upgrade
                    self.fail(frame.x, r.STATUS_PROTOCOL_ERROR, r.ERROR_NOT_UPGRADED, t, user_t)
                    verdict = V_CLOSE
                else:
                    verdict = self._head(&frame, arrived_with(&n.now, c.at), t, user_t)
            elif step == FRAME_END:
                if frame.x.row != NULL:
                    self._last_line(frame.x)
                    self._finish(frame.x, t, user_t)
                verdict = V_REUSE if frame.reusable else V_CLOSE
            elif step == FRAME_UPGRADED:
                return self._upgraded(n, &frame, &c, t, user_t)
            else:
                self.fail(frame.x, r.STATUS_PROTOCOL_ERROR, frame.error, t, user_t)
                verdict = V_CLOSE
        if carry_total() > self.max_held and x.row != NULL and exchange_held(x):
            self.fail(x, r.STATUS_CONNECTION_ERROR, r.ERROR_BODY_TOO_LARGE, t, user_t)
            verdict = V_CLOSE
        if verdict == V_CLOSE:
            n.state = IN_IDLE
        return verdict

    cdef Verdict feed_streams(self, Incoming* n, const unsigned char* data, size_t size, int64_t t, int64_t low,
                              uint8_t stamp_class, int64_t user_t) except V_RAISED:
        """One stamp is that of all streams that a read brings something of. What comes later on a connection came later, whichever
        stream it is of, so bounds are the connection's.
        """
        cdef Cursor c
        cdef Frame frame
        cdef FrameStep step
        if n.state == IN_IDLE:
            return V_CLOSE
        over(&c, data, size)
        self.reads += 1
        if n.now.t:
            t = max(t, n.now.t)
            low = max(low, n.now.t if n.now.stamp_class == r.STAMP_KERNEL else n.now.t - READ_NS)
        stamped(self, n, data, size, t, low, stamp_class)
        while True:
            step = self.http2.next(n, &c, &frame)
            if step == FRAME_MORE:
                return V_MORE
            if step == FRAME_ERROR:
                n.state = IN_IDLE
                return V_CLOSE
            self._step(n, step, &frame, &c, t, user_t)

    # -- WebSocket ----------------------------------------------------------------------------------------------------

    cdef Verdict feed_upgrade(self, Incoming* n, const unsigned char* data, size_t size) except V_RAISED:
        cdef Cursor c
        cdef Frame frame
        cdef FrameStep step
        over(&c, data, size)
        n.now.end += <uint32_t>size
        step = self.framing.next(n, &c, &frame)
        return self._upgraded(n, &frame, &c, 0, 0) if step == FRAME_UPGRADED else V_MORE if step == FRAME_MORE else V_CLOSE

    cdef Verdict _upgraded(self, Incoming* n, Frame* frame, Cursor* c, int64_t t, int64_t user_t) except V_RAISED:
        """What came up to here belongs to the connection and not to the request that may wait for it."""
        cdef Exchange* x = n.x
        if not self.websocket.accepts(&frame.span):
            self.fail(x, r.STATUS_PROTOCOL_ERROR, r.ERROR_NOT_UPGRADED, t, user_t)
            n.state = IN_IDLE
            return V_CLOSE
        if x.row != NULL:
            x.row.reads = 0
            x.row.bytes_received = 0
            x.row.stream_begin = n.now.end - <uint32_t>left(c)
        n.now.t = 0
        return self._messages(n, c, t, user_t)

    cdef Verdict _feed_messages(self, Incoming* n, const unsigned char* data, size_t size, int64_t t, int64_t low,
                                uint8_t stamp_class, int64_t user_t) except V_RAISED:
        cdef Cursor c
        over(&c, data, size)
        t = arrives(self, n, data, size, t, low, stamp_class)
        return self._messages(n, &c, t, user_t)

    cdef Verdict _messages(self, Incoming* n, Cursor* c, int64_t t, int64_t user_t) except V_RAISED:
        """All frames of a read. A request ends with a message; what follows it may only be control frames."""
        cdef Exchange* x = n.x
        cdef Frame frame
        cdef FrameStep step
        cdef Verdict verdict = V_MORE
        while verdict != V_CLOSE:
            step = self.websocket.next(n, c, &frame)
            if step == FRAME_MORE:
                break
            if step == FRAME_PAYLOAD and x.row != NULL and x.row.t_submit_start:
                verdict = self._message(n, &frame.span, arrived_with(&n.now, c.at), t, user_t)
                if not left(c):
                    break
                continue
            if step == FRAME_PAYLOAD:           # it was not asked for
                frame.error, frame.code = r.ERROR_EXTRA_BYTES, 0
            if frame.error == r.ERROR_CLOSE_FRAME and x.row != NULL:
                self._cut(x, False, frame.error, t, user_t, <int>frame.code)
            self.fail(x, r.STATUS_PROTOCOL_ERROR, frame.error, t, user_t)
            verdict = V_CLOSE
        if x.row != NULL and carry_total() > self.max_held and n.socket.message_cap > CARRY_KEEP:
            self.fail(x, r.STATUS_CONNECTION_ERROR, r.ERROR_BODY_TOO_LARGE, t, user_t)
            verdict = V_CLOSE
        if verdict == V_REUSE and not self.websocket.between(n.socket):
            verdict = V_CLOSE
        if verdict == V_CLOSE:
            n.state = IN_IDLE
        return V_REPLY if verdict == V_MORE and has_replies(n.socket) else verdict

    cdef Verdict _message(self, Incoming* n, Cursor* span, uint32_t offset, int64_t t, int64_t user_t) except V_RAISED:
        """A message is an event. The protocol's last one, or an error, ends the request. After an error the protocol's last one may
        still come (`response.failed`), which is none of the next request: the connection has no other.
        """
        cdef SseEvent event
        cdef Exchange* x = n.x
        cdef RequestRow* row = x.row
        if row.t_headers == 0:
            row.t_headers = t
            row.http_status = 200           # a response over WebSocket has no status of its own
            row.flags |= FLAG_STREAM
            x.content = CONTENT_OTHER
            sse_reset(&x.sse)
        elif self.timeline.like_message(x, span, offset):
            return V_MORE
        event.data = span.at
        event.size = left(span)
        event.name = NULL
        event.name_size = 0
        event.arrival = n.now
        event.offset = offset
        self.timeline.event(x, &event)
        if x.error_events:
            self._finish(x, t, user_t)
            return V_CLOSE
        if row.flags & FLAG_DONE:
            self._finish(x, t, user_t)
            return V_REUSE
        return V_MORE

    cdef int _step(self, Incoming* n, FrameStep step, Frame* frame, Cursor* c, int64_t t, int64_t user_t) except -1:
        """What a frame is to its exchange, which has a row: after the end of its request it gets no other."""
        cdef Exchange* x = frame.x
        cdef RequestRow* row = x.row
        cdef Verdict verdict = V_MORE
        if x.read != n.now.read:
            x.read = n.now.read
            row.reads += 1
        row.bytes_received += frame.size
        if step == FRAME_PAYLOAD:
            t = max(t, row.t_headers)
            verdict = self._body(x, &frame.span, t, user_t)
        elif step == FRAME_HEAD:
            if t < row.t_submit:        # as in feed()
                row.flags |= FLAG_CLAMPED
                self.words[k.W_CLAMPED] += 1
                t = row.t_submit
            verdict = self._head(frame, arrived_with(&n.now, c.at), t, user_t)
        elif step == FRAME_END:
            t = max(t, row.t_headers)
            self._last_line(x)
            self._finish(x, t, user_t)
        elif step == FRAME_TRAILERS:
            x.grpc_status = frame.grpc_status
            if left(&frame.span):
                x.held_size = 0
                exchange_hold(x, frame.span.at, left(&frame.span))
        else:
            self._cut(x, False, frame.error, max(t, row.t_headers), user_t, <int>frame.code)
        if x.row != NULL and carry_total() > self.max_held and exchange_held(x):
            self.fail(x, r.STATUS_CONNECTION_ERROR, r.ERROR_BODY_TOO_LARGE, t, user_t)
            verdict = V_CLOSE
        if verdict == V_CLOSE:
            return self.http2.reset(n, x, CODE_CANCEL)
        return self.http2.leave(n, x) if x.row == NULL else 0

    cdef Verdict _head(self, Frame* frame, uint32_t head_end, int64_t t, int64_t user_t) except V_RAISED:
        """The final head is read: remember what it says and make the body's parsers ready."""
        cdef Exchange* x = frame.x
        x.row.head_end = head_end
        x.row.t_headers = t
        x.row.http_status = frame.status
        x.row.retry_after_ms = <int32_t>min(frame.retry_after_ms, <int64_t>INT32_MAX)
        x.content = frame.content
        if frame.wanted.count:
            self._said(x, frame.wanted)
        if frame.encoded:
            self.fail(x, r.STATUS_PROTOCOL_ERROR, r.ERROR_ENCODED_BODY, t, user_t)
            return V_CLOSE
        if self._streams(x):
            x.row.flags |= FLAG_STREAM
            sse_reset(&x.sse)
            ndjson_reset(&x.ndjson)
            grpc_reset(&x.grpc)
        return V_MORE

    cdef int _said(self, Exchange* x, Wanted* wanted) except -1:
        """What the head says of the fields that were asked for."""
        cdef Cursor* v
        if self.token_at >= 0 and left(&wanted.value[self.token_at]):
            exchange_token(x, wanted.value[self.token_at].at, left(&wanted.value[self.token_at]))
        if self.backend_at >= 0:
            v = &wanted.value[self.backend_at]
            x.row.backend = self.backends.number(v.at, left(v)) if left(v) else 0
        return 0

    cdef int _event(self, Exchange* x, SseEvent* event) except -1:
        """An event of JSON; one that is like the first with text has no token, as that one had none."""
        if self.token_depth:
            self._find_token(x, event.data, event.size)
        return self.timeline.event(x, event)

    cdef int _find_token(self, Exchange* x, const unsigned char* data, size_t size) except -1:
        """The first value at the token's path in an answer is its token, as JSON has it: a string with its quotes, or a number."""
        cdef Cursor at, value
        cdef const char* name = self.token_path
        cdef int i
        if x.token_size:
            return 0
        over(&at, data, size)
        for i in range(self.token_depth):
            if not json_member(&at, name, strlen(name), &value) or value.at == NULL:
                return 0
            at = value
            name += strlen(name) + 1
        if left(&at) <= LONGEST_TOKEN and (at.at[0] == c'"' or at.at[0] == c'-' or c'0' <= at.at[0] <= c'9'):
            return exchange_token(x, at.at, left(&at))
        return 0

    cdef bint _streams(self, Exchange* x) noexcept:
        if self.classifier.tables[x.dialect].message:
            return answers(x.row.http_status) and x.content == CONTENT_GRPC
        return answers(x.row.http_status) and (x.content == CONTENT_SSE or x.content == CONTENT_NDJSON)

    cdef Verdict _body(self, Exchange* x, Cursor* span, int64_t t, int64_t user_t) except V_RAISED:
        """Bytes of the body. Nothing after [DONE] belongs to the stream: with it the request ends, whatever its framing says later;
        but a call of gRPC ends with its trailers.
        """
        while x.row != NULL:
            self.timeline.like(x, span)
            if not left(span):
                return V_MORE
            if self._payload(x, span) != 0:
                if answers(x.row.http_status):
                    self.fail(x, r.STATUS_PROTOCOL_ERROR,
                              r.ERROR_BODY_TOO_LARGE if not x.row.flags & FLAG_STREAM
                              else r.ERROR_ENCODED_BODY if x.grpc.fault == GRPC_COMPRESSED
                              else r.ERROR_BAD_EVENT if x.grpc.fault == GRPC_BROKEN else r.ERROR_EVENT_TOO_LARGE, t, user_t)
                else:
                    self._finish(x, t, user_t)      # its status says why it failed, however long it is
                return V_CLOSE
            if x.row.flags & FLAG_DONE and x.content != CONTENT_GRPC:
                self._finish(x, t, user_t)
        return V_MORE

    cdef int _payload(self, Exchange* x, Cursor* span) except -1:
        """Payload bytes of one span, as far as the end of its next event; 1 when an event or a body, also one of a failure, passed
        its limit.
        """
        cdef SseEvent event
        cdef SseStep step
        cdef GrpcStep grpc
        cdef size_t limit
        if not x.row.flags & FLAG_STREAM:
            limit = self.max_body if answers(x.row.http_status) else <size_t>MAX_ERROR_BODY
            if x.held_size + left(span) > limit:
                if answers(x.row.http_status):
                    return 1
                if x.row.bytes_received > self.max_body:
                    return 1
                span.end = span.at + (limit - x.held_size)
            exchange_hold(x, span.at, left(span))
            span.at = span.end
            return 0
        if x.content == CONTENT_SSE:
            step = sse_next(&x.sse, span, &event)
        elif x.content == CONTENT_GRPC:
            grpc = grpc_next(&x.grpc, span, &event)
            if grpc == GRPC_MESSAGE:
                self.timeline.event(x, &event)
            return x.grpc.fault != 0
        else:
            self.timeline.like_lines(x, span)
            if not left(span):
                return 0
            step = ndjson_next(&x.ndjson, span, &event)
        if step == SSE_EVENT:
            self._event(x, &event)
        return step == SSE_TOO_LONG

    cdef int _last_line(self, Exchange* x) except -1:
        """The message is over: a last NDJSON line needs no newline."""
        cdef SseEvent event
        if x.content == CONTENT_NDJSON and x.row.flags & FLAG_STREAM and ndjson_eof(&x.ndjson, &event) == SSE_EVENT:
            self._event(x, &event)
        return 0

    cdef int _finish(self, Exchange* x, int64_t t, int64_t user_t, bint cut=False) except -1:
        """The response ended by its own framing, or with [DONE]: decide the status (spec/metrics 3.5). *cut*: with neither, but
        its finish_reason had come.
        """
        cdef RequestRow* row = x.row
        cdef uint8_t status = r.STATUS_OK
        cdef uint8_t error = r.ERROR_NONE
        cdef bint streamed = row.flags & FLAG_STREAM
        row.comments = x.sse.comments if streamed else 0
        if not streamed:
            if self.token_depth:
                self._find_token(x, x.held, x.held_size)
            self.timeline.whole(x, t)
        if row.http_status == 429:
            status, error = r.STATUS_RATE_LIMITED, r.ERROR_HTTP_STATUS
        elif not answers(row.http_status):
            status, error = r.STATUS_HTTP_ERROR, r.ERROR_HTTP_STATUS
        elif x.content == CONTENT_GRPC and streamed and (x.grpc_status != 0 or not grpc_rests(&x.grpc)):
            self._call_failed(x, &status, &error)
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
        elif row.finish == FINISH_FAILED:
            status, error = r.STATUS_STREAM_ERROR, r.ERROR_FINISH_REASON
        elif self.classifier.tables[x.dialect].needs_end[not streamed] and row.finish == FINISH_NONE and not row.flags & FLAG_DONE:
            status, error = r.STATUS_TRUNCATED, r.ERROR_NO_DONE
        elif row.content_events == 0 and row.reasoning_events == 0:
            if streamed or self.classifier.tables[x.dialect].says_done or not row.flags & FLAG_DONE:
                status = r.STATUS_EMPTY
            else:
                row.t_last = t          # a complete answer of another kind than tokens
        elif cut:
            error = r.ERROR_CUT_AFTER_END
        if (error == r.ERROR_HTTP_STATUS or error == r.ERROR_UNEXPECTED_CONTENT_TYPE) and row.phase == r.PHASE_MEASURE:
            self.error_texts.note(row.http_status, error, x.held, x.held_size)
        elif (error == r.ERROR_FINISH_REASON or row.finish == FINISH_OTHER) and row.phase == r.PHASE_MEASURE:
            self.error_texts.note_reason(row.http_status, error if status == r.STATUS_STREAM_ERROR else <uint8_t>r.ERROR_NONE,
                                         x.held, x.held_size)
        return self._end(x, status, error, t, user_t)

    cdef int _call_failed(self, Exchange* x, uint8_t* status, uint8_t* error) except -1:
        """Status and error of a call of gRPC whose trailers do not say that all is well, or which ended inside a message."""
        cdef bytes text
        status[0], error[0] = r.STATUS_STREAM_ERROR, r.ERROR_GRPC_STATUS
        if x.grpc_status < 0:
            status[0], error[0] = r.STATUS_TRUNCATED, r.ERROR_NO_GRPC_STATUS
            return 0
        if x.grpc_status == 0:
            status[0], error[0] = r.STATUS_PROTOCOL_ERROR, r.ERROR_BAD_EVENT
            return 0
        x.row.error_number = x.grpc_status
        if x.row.phase == r.PHASE_MEASURE:
            text = status_text(x.grpc_status, x.held[:x.held_size] if x.held_size else b"")
            self.error_texts.note(x.row.http_status, r.ERROR_GRPC_STATUS, text, <size_t>len(text))
        return 0

    cdef int _end(self, Exchange* x, uint8_t status, uint8_t error, int64_t t, int64_t user_t) except -1:
        cdef RequestRow* row = x.row
        row.status = status
        row.error = error
        row.t_end = t
        row.t_end_user = user_t
        x.end = End(status=status, error=error, t=t, user_t=user_t)
        if status != r.STATUS_OK and row.t_first == 0:
            row.t_last = 0
        if row.t_any == 0:
            self.words[k.W_WAITING] -= 1
        if status == r.STATUS_OK and row.phase == r.PHASE_MEASURE:
            hdr_record(&self.e2e, row.t_last - row.t_submit)
        self.words[k.W_ENDED] += 1
        if not left_by_user(&x.end):
            self.words[k.W_OK if status == r.STATUS_OK else k.W_FAILED] += 1
            if status != r.STATUS_OK:
                self.words[k.W_FAILED_AT0 + min(<int>row.url, <int>k.LAST_URL)] += 1
        self.words[k.W_STATUS0 + status] += 1
        self.words[k.W_ERROR0 + (error if status != r.STATUS_OK else 0)] += 1       # failures by their class
        x.row = NULL
        exchange_give_back(x)
        ended_add(&self.ended, x)
        life_ends(LIFE_REQUEST)
        return self.recorder.end_row(row)

    cdef int fail(self, Exchange* x, uint8_t status, uint8_t error, int64_t t, int64_t user_t) except -1:
        """The transport's or the framing's failure; a request that has ended already is left as it is."""
        if x.row == NULL:
            return 0
        if x.row.flags & FLAG_STREAM:
            x.row.comments = x.sse.comments
        return self._end(x, status, error, t, user_t)

    cdef int eof(self, Incoming* n, int64_t t, int64_t user_t, int error_number) except -1:
        """The peer closed (0) or the connection broke (errno)."""
        cdef Frame frame
        cdef Framing framing
        cdef bint complete
        if n.state == IN_IDLE:
            return 0
        if n.many == NULL:
            if n.x.row == NULL:
                return 0
            framing = self.websocket if n.state == IN_MESSAGES else self.framing
            complete = framing.eof(n, &frame) == FRAME_END and error_number == 0
            self._cut(n.x, complete, frame.error, max(t, n.now.t), user_t, error_number)
        else:
            while self.http2.eof(n, &frame) == FRAME_FAILED:
                self._cut(frame.x, False, frame.error, max(t, n.now.t), user_t, error_number)
        n.state = IN_IDLE
        return 0

    cdef int _cut(self, Exchange* x, bint complete, uint8_t error, int64_t t, int64_t user_t, int error_number) except -1:
        """The response was cut off, because of *error* if that says more than where: with HTTP/2 the *error_number* may be a code."""
        cdef RequestRow* row = x.row
        cdef bint unsaid = row.finish == FINISH_NONE or x.content == CONTENT_GRPC      # whether the answer is there whole
        row.error_number = error_number
        if not complete and error >= r.ERROR_NOT_HTTP2 and unsaid:
            return self.fail(x, r.STATUS_CONNECTION_ERROR if error == r.ERROR_GOAWAY or error == r.ERROR_STREAM_REFUSED
                             else r.STATUS_PROTOCOL_ERROR if error != r.ERROR_STREAM_RESET and error != r.ERROR_CLOSE_FRAME
                             else r.STATUS_TRUNCATED if row.t_headers else r.STATUS_CONNECTION_ERROR, error, t, user_t)
        if row.bytes_received == 0 and error != r.ERROR_BAD_HEAD and error != r.ERROR_HEAD_TOO_LARGE:
            return self.fail(x, r.STATUS_CONNECTION_ERROR,
                             r.ERROR_REUSED_CONNECTION_LOST if x.reused else r.ERROR_CLOSED_BEFORE_RESPONSE, t, user_t)
        if error_number != 0 and unsaid:
            return self.fail(x, r.STATUS_CONNECTION_ERROR, r.ERROR_RESET, t, user_t)
        if row.t_headers == 0:
            return self.fail(x, r.STATUS_CONNECTION_ERROR if error == r.ERROR_CLOSED_IN_BODY else r.STATUS_PROTOCOL_ERROR,
                             error, t, user_t)
        if not complete and unsaid:
            return self.fail(x, r.STATUS_TRUNCATED, error, t, user_t)
        # Where only the message's own end is missing, the answer is there, with its times and what was said of its usage. It makes
        # no difference by which of the two ways the connection went.
        self._last_line(x)
        return self._finish(x, t, user_t, not complete)


cdef class Conversation:
    """Exchanges of one connection without a transport: for tests, and for replaying captured bytes. *websocket*: it is upgraded.

    Times are CLOCK_MONOTONIC-like ns chosen by the caller; verdicts are 0 read on, 1 reuse, 2 close.
    """

    cdef Exchange x
    cdef Incoming n
    cdef Protocol protocol

    def __cinit__(self, Protocol protocol not None, bint websocket=False, bint http2=False):
        memset(&self.n, 0, sizeof(self.n))
        if websocket:
            self.n.socket = socket_new()
            self.n.state = IN_MESSAGES
        exchange_init(&self.x, &self.n.now, protocol.max_event)
        self.protocol = protocol
        if http2:
            http2_begin(&self.n)

    def __dealloc__(self):
        exchange_free(&self.x)
        incoming_free(&self.n)

    def open(self, int64_t t_submit, bint reused=False, bint keep=False) -> int:
        """Begin a request handed over at *t_submit*; returns its row number. *keep*: what is said is kept for another turn."""
        self.x.row = self.protocol.recorder.open_row(&self.x.number)
        if self.x.row == NULL:
            raise OSError("disk full")
        self.x.row.t_sched = self.x.row.t_dispatch = self.x.row.t_submit_start = self.x.row.t_submit = t_submit
        self.x.row.prompt_tokens = self.x.row.completion_tokens = -1
        self.x.row.reasoning_tokens = self.x.row.cached_tokens = -1
        self.x.row.phase = r.PHASE_MEASURE
        self.x.row.status = r.STATUS_IN_FLIGHT
        self.protocol.words[k.W_WAITING] += 1
        self.x.reused = reused
        exchange_open(&self.x)
        if self.n.many != NULL:
            self.protocol.http2.open(&self.n, &self.x)
        elif self.n.state == IN_MESSAGES:
            self.protocol.websocket.open(&self.n, &self.x)
        else:
            self.protocol.framing.open(&self.n, &self.x)
        self.x.row.stream_begin = self.n.now.end
        self.x.dialect = 0
        self.x.keep = keep
        return self.x.number

    def feed(self, const unsigned char[::1] data not None, int64_t t, uint8_t stamp_class=1, int64_t low=0,
             bint one_segment=False) -> int:
        """A read: *t* of its newest byte, *low* of its oldest at the earliest; *one_segment*: it came at once."""
        if data.shape[0] == 0:
            return V_MORE
        if self.n.many == NULL:
            verdict = self.protocol.feed(&self.n, &data[0], data.shape[0], t, low, stamp_class, t)
        else:
            verdict = self.protocol.feed_streams(&self.n, &data[0], data.shape[0], t, low, stamp_class, t)
        if self.protocol.timeline.unsettled:
            self.protocol.timeline.settle(one_segment, low)
        ended_take(&self.protocol.ended)
        return verdict

    def eof(self, int64_t t, int error_number=0) -> int:
        self.protocol.eof(&self.n, t, t, error_number)
        ended_take(&self.protocol.ended)
        return V_CLOSE

    def kept(self) -> tuple[bytes, list]:
        """What a later turn carries: the reply's text, escaped as it came, and its tool calls (`calls_said`)."""
        return b"" if self.x.reply == NULL else self.x.reply[:self.x.reply_size], calls_said(self.x.calls)

    @property
    def token(self) -> bytes:
        """That of the session, as the answer has it; empty: none."""
        return self.x.token[:self.x.token_size]

    @property
    def ended(self) -> bool:
        return self.x.row == NULL
