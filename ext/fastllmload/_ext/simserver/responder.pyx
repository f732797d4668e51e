"""Replies. One method call composes at most a few events in one scratch buffer and hands them to the socket at once.

A fault is a small deviation of the normal path, kept where the bytes are made: `instead` holds those that take the
reply's place, `strike` those that happen before one token, `put_token` and `put_tail` those that change events.
"""

import gzip

from libc.stdint cimport int32_t, uint16_t
from libc.string cimport memcpy, memset

from fastllmload._ext.bytes.digits cimport put_number
from fastllmload._ext.http.frames cimport CODE_INTERNAL, FF_END_HEADERS, FT_CONTINUATION, FT_RST_STREAM
from fastllmload._ext.sim.sequence cimport DRAW_WORD, draw
from fastllmload._ext.simserver.connection cimport FILLER_FIELDS, FILLER_LETTERS, SENT_FAILED, Sent, carrier_of
from fastllmload._ext.sim.fault cimport (
    FAULT_ABORT, FAULT_BAD_JSON, FAULT_CLOSE, FAULT_CLOSE_BEFORE_RESPONSE, FAULT_CLOSE_FRAME, FAULT_FRAGMENTS, FAULT_COALESCE, FAULT_COMMENTS,
    FAULT_CONTENT_LENGTH, FAULT_CR, FAULT_CRLF, FAULT_DEEP_JSON, FAULT_DRIP, FAULT_EMPTY, FAULT_EMPTY_TEXT,
    FAULT_ENDLESS_HEAD, FAULT_ERROR_EVENT, FAULT_GZIP, FAULT_HTML, FAULT_HUGE_EVENT, FAULT_HUGE_LINE, FAULT_MULTI_TOKEN,
    FAULT_NEVER, FAULT_NONE, FAULT_NO_BODY, FAULT_NO_DONE, FAULT_NO_USAGE, FAULT_REASONING, FAULT_RESET, FAULT_RESET_STREAM, FAULT_SLOW_HEAD,
    FAULT_CUT_MESSAGE, FAULT_GOAWAY, FAULT_STALL, FAULT_STATUS, FAULT_STRAY_FRAME, FAULT_TLS_ALERT, FAULT_TLS_GARBAGE, FAULT_TOOL_CALLS, FAULT_UNTIL_CLOSE, FAULT_WHITESPACE_FIRST, MIDDLE,
)
from fastllmload._ext.simbody.calls cimport CALL_ROOM, put_call
from fastllmload._ext.simbody.form cimport (
    AT_CALLS, AT_DOCUMENT, AT_DONE, AT_ERROR, AT_FINISH, AT_LAST, AT_OPENING, AT_TOKEN, AT_USAGE, BLOCK_CALL, BLOCK_NONE,
    BLOCK_REASONING, FRAMED_CHUNKS, FRAMED_GRPC, FRAMED_MESSAGES, END_CR, END_CRLF, END_LF, ENDED_ABORT, ENDED_CALLS, EVENT_SLACK, WORD, WORD_LONGEST, WORDS, Form, Piece,
    Stamp, has, listed_calls, put, put_chunk_size, put_message_head, put_prefix, raw_event, spell,
)
from fastllmload._ext.simbody.template cimport (
    NUMBER_CACHED, NUMBER_COMPLETION, NUMBER_EVAL_NS, NUMBER_LOAD_NS, NUMBER_PROMPT_EVAL_NS, NUMBER_TOTAL_NS, SAYS_USAGE,
)
from fastllmload._ext.simserver.streams cimport Streams
from fastllmload._ext.simserver.truth cimport Truth
from fastllmload._ext.simserver.writer cimport CALL_FAILED, CALL_INTERNAL, CALL_OK, COMPLETE, CUT, GARBAGE, GOING, LEFT_OUT, RESET, SILENT
from fastllmload._ext.simserver.upgrade cimport close_of
from fastllmload._ext.system.clock cimport mono_ns
from fastllmload._ext.tls.session cimport tls_read

from fastllmload._ext.http.block import response_block
from fastllmload._ext.simserver.writer import FAILURE, page_head

# EventKind of delta.pxd, of which only the numbers are needed here; a test holds them together.
KINDS = {"other": 0, "role": 1, "whitespace": 2, "content": 3, "reasoning": 4, "tool": 5, "usage": 7, "finish": 8, "error": 9,
         "done": 10, "bad": 11}
cdef enum:
    KIND_OTHER = 0
    KIND_ROLE = 1
    KIND_WHITESPACE = 2
    KIND_CONTENT = 3
    KIND_REASONING = 4
    KIND_TOOL = 5
    KIND_USAGE = 7
    KIND_FINISH = 8
    KIND_ERROR = 9
    KIND_DONE = 10
    KIND_BAD = 11
    HEAD_ROOM = 1024
    MS = 1_000_000

cdef bytes DOCUMENT_HEAD = b"HTTP/1.1 200 OK\r\nserver: fastllmload-simulator\r\ncontent-type: application/json\r\n"
cdef bytes DOCUMENT_BLOCK = response_block(DOCUMENT_HEAD)
cdef bytes FORGED = b"\x17\x03\x03\x00\x20" + bytes(32)                # a record of no key
cdef bytes HTML = b"<!doctype html><html><head><title>Welcome</title></head><body>It works.</body></html>\n"
cdef bytes ZIPPED = gzip.compress(b'data: {"choices":[{"index":0,"delta":{"content":"zipped"}}]}\n\ndata: [DONE]\n\n', mtime=0)
cdef class Responder(Writer):
    """Writes replies for *connections*; *coalesce*: tokens per write; *early_head*: the head leaves before the first token."""

    def __init__(self, connections: Streams, truth: Truth, forms: list, coalesce: int, early_head: bool):
        super().__init__(connections, truth)
        self.forms = forms
        self.coalesce = coalesce
        self.early_head = early_head

    cdef Outcome begin(self, Connection* c, int64_t now) except? LOST:
        cdef uint8_t fault = c.reply.fault
        c.reply.fault_at = -1
        c.reply.coalesce = self.coalesce
        c.truth.status = 200
        self.frame(c)
        if fault == FAULT_NONE:
            return self.opening(c) if self.early_head and c.reply.stream else GOING
        if fault == FAULT_COALESCE:
            c.reply.coalesce = <int>max(c.reply.fault_arg, <uint32_t>1)
        elif fault == FAULT_MULTI_TOKEN:
            c.reply.coalesce = c.reply.fault_arg = <int>max(min(c.reply.fault_arg, <uint32_t>256), <uint32_t>1)
        elif fault == FAULT_EMPTY_TEXT:
            c.reply.fault_arg = max(c.reply.fault_arg, <uint32_t>1)
        elif fault == FAULT_DRIP:
            c.drip_ns = max(<int64_t>c.reply.fault_arg, <int64_t>1) * MS
        elif fault == FAULT_TOOL_CALLS:
            c.reply.fault_arg = max(c.reply.fault_arg, <uint32_t>1)
            if not has(<Form>self.forms[c.reply.form], AT_TOKEN + BLOCK_CALL):
                c.reply.fault = FAULT_NONE
        elif fault == FAULT_ABORT:
            return self.give_up(c)
        elif fault == FAULT_NO_USAGE:
            c.reply.stamp.says &= ~SAYS_USAGE
        elif fault == FAULT_REASONING and c.reply.fault_arg == <uint32_t>MIDDLE:
            c.reply.fault_arg = <uint32_t>(c.sequence.output_tokens // 2)
        elif fault == FAULT_SLOW_HEAD:
            c.reply.fault_at = 0
        elif fault == FAULT_CLOSE_FRAME:
            c.reply.fault_at = c.sequence.output_tokens // 2
        elif fault == FAULT_FRAGMENTS:
            return GOING
        elif fault in (FAULT_RESET, FAULT_CLOSE, FAULT_ERROR_EVENT, FAULT_BAD_JSON) or fault >= FAULT_TLS_ALERT:
            c.reply.fault_at = <int>min(c.reply.fault_arg, <uint32_t>(c.sequence.output_tokens // 2))
        elif fault in (FAULT_STALL, FAULT_HUGE_EVENT, FAULT_DEEP_JSON, FAULT_HUGE_LINE):
            c.reply.fault_at = c.sequence.output_tokens // 2
        else:
            return self.instead(c)
        return GOING

    cdef Outcome give_up(self, Connection* c) except? LOST:
        # The engine makes no more tokens than it gives away.
        c.sequence.output_tokens = <int>min(c.reply.fault_arg, <uint32_t>(c.sequence.output_tokens // 2))
        c.reply.ending = ENDED_ABORT
        if c.sequence.output_tokens:
            return GOING
        return self.finish(c) if c.reply.stream else self.document(c, 0)

    cdef int frame(self, Connection* c) except -1:
        cdef uint8_t fault = c.reply.fault
        spell(&c.reply.stamp)
        c.reply.stamp.line_ends = (<Form>self.forms[c.reply.form]).line_ends
        c.reply.stamp.padded = fault == FAULT_CONTENT_LENGTH
        c.reply.stamp.line_end = END_CRLF if fault == FAULT_CRLF else END_LF
        if fault == FAULT_CR and c.reply.stamp.line_ends > 1:       # a line of JSON ends in LF
            c.reply.stamp.line_end = END_CR
        c.reply.stamp.chunked = c.reply.stream and c.carrier == NULL and fault not in (FAULT_UNTIL_CLOSE, FAULT_CONTENT_LENGTH)
        if fault == FAULT_UNTIL_CLOSE and c.carrier == NULL or c.reply.stream and c.reply.old_client:
            c.reply.stamp.chunked = False
            c.reply.close_after = True
        if c.messages:
            c.reply.stamp.chunked = FRAMED_MESSAGES
            c.reply.stamp.padded = c.reply.close_after = False
            c.reply.head_sent = True
        if (<Form>self.forms[c.reply.form]).calls:
            c.reply.stamp.chunked = FRAMED_GRPC
            c.reply.head_sent = c.answered
            if fault == FAULT_ERROR_EVENT and not has(<Form>self.forms[c.reply.form], AT_ERROR):
                self.set_trailers(c, CALL_FAILED, CALL_INTERNAL)
            elif fault not in (FAULT_NO_DONE, FAULT_NO_BODY, FAULT_HTML, FAULT_GZIP):
                self.set_trailers(c, CALL_OK, 0)
        return 0

    cdef Outcome instead(self, Connection* c) except? LOST:
        # What is not listed here changes nothing before the first token.
        cdef Outcome outcome = self.instead_of_all(c)
        return CUT if outcome == COMPLETE and c.messages and c.reply.fault in (FAULT_NO_BODY, FAULT_HTML, FAULT_GZIP) else outcome

    cdef Outcome instead_of_all(self, Connection* c) except? LOST:
        cdef Form form = <Form>self.forms[c.reply.form]
        cdef uint8_t fault = c.reply.fault
        if fault == FAULT_NEVER:
            c.truth.status = 0
            return SILENT
        if fault == FAULT_CLOSE_BEFORE_RESPONSE:
            c.truth.status = 0
            return CUT
        if fault == FAULT_STATUS and form.calls:
            return self.refuse_call(c, c.reply.fault_arg, FAILURE)
        if fault == FAULT_STATUS:
            c.truth.status = <uint16_t>c.reply.fault_arg
            extra = "retry-after: 1\r\n" if c.reply.fault_arg == 429 else ""
            text = form.error(c.reply.fault_arg)
            return self.page(c, page_head(c.reply.fault_arg, "application/json", len(text), extra), text)
        if fault == FAULT_NO_BODY:
            return self.page(c, page_head(200, form.stream_type.decode(), 0), b"")
        if fault == FAULT_HTML:
            return self.page(c, page_head(200, "text/html", len(HTML)), HTML)
        if fault == FAULT_GZIP:
            head = page_head(200, form.stream_type.decode(), len(ZIPPED), "content-encoding: gzip\r\n")
            return self.page(c, head, ZIPPED)
        if fault == FAULT_ENDLESS_HEAD:
            c.filler = FILLER_FIELDS
            c.filler_left = (<uint64_t>c.reply.fault_arg + 63) // 64 * 64
            size = len(form.stream_head) if c.carrier == NULL else 0
            if self.connections.queue(c, form.stream_head, size) or self.connections.flush(c, 0) == SENT_FAILED:
                return LOST
            return CUT
        if fault == FAULT_EMPTY:
            c.sequence.output_tokens = 0
            return self.finish(c) if c.reply.stream else self.document(c, 0)
        return GOING

    cdef uint8_t* put_head(self, Connection* c, uint8_t* out) except NULL:
        cdef bytes head = (<Form>self.forms[c.reply.form]).stream_head
        c.reply.head_sent = True
        if c.carrier != NULL:
            self.set_head(c, (<Form>self.forms[c.reply.form]).stream_block,
                          self.stream_size(c) if c.reply.fault == FAULT_CONTENT_LENGTH else -1)
            return out
        out = put(out, <const char*>head, len(head))
        if c.reply.stamp.chunked:
            out = put(out, b"transfer-encoding: chunked\r\n", 28)
        elif c.reply.fault == FAULT_CONTENT_LENGTH:
            out = put(out, b"content-length: ", 16)
            out = put(put_number(out, self.stream_size(c)), b"\r\n", 2)
        if c.reply.close_after:
            out = put(out, b"connection: close\r\n", 19)
        return put(put(out, c.reply.said, c.reply.said_size), b"\r\n", 2)

    cdef int64_t stream_size(self, Connection* c) except -1:
        # A rehearsal: the whole stream is composed, event by event, after the head.
        cdef Form form = <Form>self.forms[c.reply.form]
        cdef uint8_t* start = self.scratch + HEAD_ROOM
        cdef Stamp stamp = c.reply.stamp
        cdef int32_t sent = c.reply.sent
        cdef int64_t i
        cdef int64_t size = form.events(AT_TOKEN + BLOCK_NONE, start, &c.reply.stamp, NULL, 0) - start
        cdef uint8_t kind = 0
        for i in range(c.sequence.output_tokens):
            size += self.put_token(c, form, start, i, &kind) - start
        c.reply.sent = c.sequence.output_tokens
        size += self.put_tail(c, start) - start
        c.reply.sent = sent
        c.reply.stamp = stamp
        return size

    cdef Outcome opening(self, Connection* c) except? LOST:
        # The head, and the first event unless the head goes early; in one write.
        cdef Form form = <Form>self.forms[c.reply.form]
        cdef uint8_t* out
        cdef int64_t at = 0
        cdef bint begins = has(form, AT_TOKEN + BLOCK_NONE)
        cdef bint starts = begins and (c.sequence.produced > 0 or c.sequence.output_tokens == 0)
        self.ensure(HEAD_ROOM + self.room(c, form, 1, c.sequence.output_tokens))
        out = self.scratch
        if not c.reply.head_sent:
            out = self.put_head(c, out)
        if starts:
            c.reply.stamp.number[NUMBER_CACHED] = c.sequence.cached_tokens
            out = form.events(AT_TOKEN + BLOCK_NONE, out, &c.reply.stamp, NULL, 0)
        c.reply.opened = starts or not begins
        if (out > self.scratch or c.head != NULL) and self.write(c, self.scratch, out, &at) == LOST:
            return LOST
        if starts:
            self.log(c, at, KIND_ROLE)
        return GOING

    cdef size_t room(self, Connection* c, Form form, int64_t tokens, int64_t before) noexcept:
        # Bytes that the events of *tokens* tokens need at most, after *before*, and the end of the stream after them.
        cdef size_t each = form.token_room + EVENT_SLACK + WORD_LONGEST + (CALL_ROOM if c.reply.fault == FAULT_TOOL_CALLS else 0)
        cdef size_t repeated = form.growth * <size_t>(before + tokens)
        return <size_t>tokens * (each + repeated) + form.room + repeated

    cdef Outcome progress(self, Connection* c, int64_t now) except? LOST:
        cdef Outcome outcome
        if c.sequence.produced == 0:
            return GOING
        if c.sequence.whole:
            return self.document(c, now) if c.sequence.delivered else GOING
        if not c.reply.opened and self.opening(c) == LOST:
            return LOST
        if 0 <= c.reply.fault_at < c.sequence.produced and c.reply.fault != FAULT_SLOW_HEAD:
            if self.burst(c, c.reply.fault_at, True) == LOST:
                return LOST
            outcome = self.strike(c, now)
            c.reply.fault_at = -1
            if outcome != GOING:
                return outcome
        if self.burst(c, c.sequence.produced, c.sequence.delivered) == LOST:
            return LOST
        return self.finish(c) if c.sequence.delivered else GOING

    cdef Outcome burst(self, Connection* c, int64_t upto, bint all) except? LOST:
        cdef Form form = <Form>self.forms[c.reply.form]
        cdef uint8_t[256] kinds
        cdef uint8_t* out
        cdef int64_t at = 0
        cdef int i, n
        while c.reply.sent < upto:
            n = <int>min(<int64_t>min(c.reply.coalesce, 256), upto - c.reply.sent)
            if n < c.reply.coalesce and not all:
                break
            self.ensure(self.room(c, form, n, c.reply.sent))
            out = self.scratch
            for i in range(n):
                out = self.put_token(c, form, out, c.reply.sent + i, &kinds[i])
            if self.write(c, self.scratch, out, &at) == LOST:
                return LOST
            if c.reply.sent == 0:
                c.truth.t_first = at
            for i in range(n):
                self.log(c, at, kinds[i])
            c.reply.sent += n
            self.tokens += <uint64_t>n
        return GOING

    cdef uint8_t* put_token(self, Connection* c, Form form, uint8_t* out, int64_t index, uint8_t* kind) except NULL:
        cdef uint64_t number = draw(c.reply.stamp.id, <uint64_t>index, DRAW_WORD) % WORDS
        cdef const uint8_t* text = WORD[number].at
        cdef size_t size = WORD[number].size
        if index == 0:                              # a reply starts without a space
            text += 1
            size -= 1
        kind[0] = KIND_CONTENT
        c.reply.stamp.number[NUMBER_COMPLETION] = index + 1
        c.reply.stamp.tokens = 1
        if has(form, AT_LAST) and index + 1 == c.sequence.output_tokens and c.reply.fault != FAULT_NO_DONE:
            c.reply.stamp.last = 1 + c.reply.ending
        if c.reply.fault == FAULT_COMMENTS:
            out = put(out, b"\x89\x00", 2) if c.messages else raw_event(out, &c.reply.stamp, form.comment, len(form.comment))
        elif c.reply.fault == FAULT_WHITESPACE_FIRST and index < c.reply.fault_arg:
            kind[0] = KIND_WHITESPACE
            return form.content(out, &c.reply.stamp, <const uint8_t*><const char*>form.blank, <size_t>len(form.blank))
        elif c.reply.fault == FAULT_REASONING and index < c.reply.fault_arg and has(form, AT_TOKEN + BLOCK_REASONING):
            kind[0] = KIND_REASONING
            return form.reasoning(out, &c.reply.stamp, text, size)
        elif c.reply.fault == FAULT_TOOL_CALLS:
            if has(form, AT_OPENING + BLOCK_CALL) or index < c.reply.fault_arg:
                kind[0] = KIND_TOOL
            return put_call(form, out, &c.reply.stamp, index, c.sequence.output_tokens, c.reply.fault_arg)
        elif c.reply.fault == FAULT_MULTI_TOKEN or c.reply.fault == FAULT_EMPTY_TEXT:
            return self.put_tokens(c, form, out, index)
        return form.content(out, &c.reply.stamp, text, size)

    cdef uint8_t* put_tokens(self, Connection* c, Form form, uint8_t* out, int64_t index) noexcept:
        # The words of all tokens since the last event with text, when this one has some; else an event without (empty_text) or
        # none at all (multi_token).
        cdef uint8_t[256 * WORD_LONGEST] text
        cdef uint8_t* end = text
        cdef bint several = c.reply.fault == FAULT_MULTI_TOKEN
        cdef int64_t each, arg = c.reply.fault_arg
        cdef bint last = index + 1 == c.sequence.output_tokens
        cdef Piece word
        if several and (index + 1) % arg and not last:
            return out
        if not several and (index + 1) % arg == 0:
            return form.content(out, &c.reply.stamp, b"", 0)
        each = index - index % arg if several else index - (index > 0 and index % arg == 0)
        if several:
            c.reply.stamp.tokens = index + 1 - each
        while each <= index:
            word = WORD[draw(c.reply.stamp.id, <uint64_t>each, DRAW_WORD) % WORDS]
            end = put(end, word.at + (each == 0), word.size - (each == 0))
            each += 1
        return form.content(out, &c.reply.stamp, text, <size_t>(end - text))

    cdef Outcome strike(self, Connection* c, int64_t now) except? LOST:
        cdef Form form = <Form>self.forms[c.reply.form]
        cdef uint8_t fault = c.reply.fault
        if fault == FAULT_STALL:
            c.out_due = now + <int64_t>c.reply.fault_arg * MS
            return GOING
        if fault == FAULT_RESET:
            return RESET
        if fault == FAULT_CLOSE:
            return CUT
        if fault == FAULT_CLOSE_FRAME:
            frame = close_of(c.reply.fault_arg)
            return LOST if self.connections.send(c, frame, <size_t>len(frame)) == SENT_FAILED else CUT
        if FAULT_TLS_ALERT <= fault <= FAULT_TLS_GARBAGE:
            return self.break_records(c)
        if FAULT_RESET_STREAM <= fault <= FAULT_STRAY_FRAME:
            return self.break_frames(c)
        if fault == FAULT_CUT_MESSAGE:
            return self.cut_message(c)
        if fault == FAULT_BAD_JSON:
            return self.odd_event(c, form.broken_line, KIND_BAD)
        if fault == FAULT_DEEP_JSON:
            depth = c.reply.fault_arg
            return self.odd_event(c, form.deep_open + b"[" * depth + b"]" * depth + form.deep_close, KIND_BAD)
        if fault == FAULT_HUGE_EVENT:
            return self.huge_event(c)
        if fault == FAULT_HUGE_LINE:
            return self.huge_line(c)
        return self.fail(c)                                 # FAULT_ERROR_EVENT

    cdef Outcome break_records(self, Connection* c) except? LOST:
        cdef Connection* k = carrier_of(c)
        k.abrupt = True
        if c.reply.fault == FAULT_TLS_ALERT:        # what does not decrypt is answered with one: bad_record_mac
            tls_read(k.tls, FORGED, len(FORGED), self.scratch)
            return LOST if self.connections.send_records(k) == SENT_FAILED else CUT
        if c.reply.fault == FAULT_TLS_GARBAGE and self.connections.send_raw(k, GARBAGE, len(GARBAGE)) == SENT_FAILED:
            return LOST
        return CUT

    cdef Outcome break_frames(self, Connection* c) except? LOST:
        cdef Connection* k = c.carrier
        cdef Sent sent
        if c.reply.fault == FAULT_GOAWAY:
            return LEFT_OUT
        c.reply.ended = True
        if c.reply.fault == FAULT_RESET_STREAM:
            sent = self.connections.put_code(k, FT_RST_STREAM, c.stream, CODE_INTERNAL)
            return LOST if sent == SENT_FAILED else COMPLETE
        if c.reply.fault == FAULT_STRAY_FRAME:
            sent = self.connections.put(k, FT_CONTINUATION, FF_END_HEADERS, c.stream, NULL, 0)
        else:
            sent = self.connections.put_large(c)
        return LOST if sent == SENT_FAILED else CUT

    cdef Outcome fail(self, Connection* c) except? LOST:
        cdef Form form = <Form>self.forms[c.reply.form]
        cdef int64_t at = 0
        self.ensure(form.room)
        end = form.events(AT_ERROR, self.scratch, &c.reply.stamp, NULL, 0)
        if end > self.scratch and self.write(c, self.scratch, end, &at) == LOST:
            return LOST
        self.log(c, at if at else mono_ns(), KIND_ERROR)
        return self.finish(c)

    cdef Outcome odd_event(self, Connection* c, bytes text, uint8_t kind) except? LOST:
        cdef int64_t at = 0
        self.ensure(len(text) + EVENT_SLACK)
        end = raw_event(self.scratch, &c.reply.stamp, text, len(text))
        if self.write(c, self.scratch, end, &at) == LOST:
            return LOST
        self.log(c, at, kind)
        return GOING

    cdef Outcome cut_message(self, Connection* c) except? LOST:
        # A message that has less than its prefix says, and the end of the call.
        cdef bytes half = (<Form>self.forms[c.reply.form]).broken_line
        cdef int64_t at = 0
        c.reply.last = True
        end = put(put_prefix(self.scratch, 2 * <uint64_t>len(half)), <const char*>half, <size_t>len(half))
        if self.write(c, self.scratch, end, &at) == LOST:
            return LOST
        self.log(c, at, KIND_BAD)
        return COMPLETE

    cdef Outcome huge_event(self, Connection* c) except? LOST:
        cdef Form form = <Form>self.forms[c.reply.form]
        cdef size_t size = c.reply.fault_arg
        cdef int64_t at = 0
        cdef size_t room = self.room(c, form, 1, c.reply.sent) + size
        self.ensure(room + size)
        memset(self.scratch + room, c'a', size)
        end = form.content(self.scratch, &c.reply.stamp, self.scratch + room, size)
        if self.write(c, self.scratch, end, &at) == LOST:
            return LOST
        self.log(c, at, KIND_CONTENT)
        return GOING

    cdef Outcome huge_line(self, Connection* c) except? LOST:
        cdef bytes opening = (<Form>self.forms[c.reply.form]).huge_open
        cdef uint8_t* out = self.scratch
        cdef int64_t at = 0
        c.filler_left = (<uint64_t>c.reply.fault_arg + 63) // 64 * 64
        if c.reply.stamp.chunked == FRAMED_CHUNKS:
            out = put_chunk_size(out, c.filler_left + <uint64_t>len(opening))
        elif c.reply.stamp.chunked == FRAMED_GRPC:
            out = put_prefix(out, c.filler_left)
        elif c.reply.stamp.chunked:
            out = put_message_head(out, c.filler_left + <uint64_t>len(opening))
        out = put(out, <const char*>opening, len(opening))
        if self.connections.queue(c, self.scratch, <size_t>(out - self.scratch)):
            return LOST
        c.filler = FILLER_LETTERS
        return LOST if self.connections.flush(c, mono_ns()) == SENT_FAILED else CUT

    cdef void count(self, Connection* c, Form form) noexcept:
        # What the reply says of itself, and the truth log with it: its durations end when this is composed.
        cdef int64_t now = mono_ns()
        cdef int64_t* number = c.reply.stamp.number
        number[NUMBER_COMPLETION] = c.reply.sent
        number[NUMBER_CACHED] = c.sequence.cached_tokens
        number[NUMBER_TOTAL_NS] = now - c.sequence.t_arrival
        number[NUMBER_LOAD_NS] = c.reply.load_ns
        if c.sequence.t_first:
            number[NUMBER_PROMPT_EVAL_NS] = c.sequence.t_first - c.sequence.t_admitted
            number[NUMBER_EVAL_NS] = now - c.sequence.t_first
        if form.timed:
            c.truth.total_ns, c.truth.load_ns = number[NUMBER_TOTAL_NS], number[NUMBER_LOAD_NS]
            c.truth.prompt_eval_ns, c.truth.eval_ns = number[NUMBER_PROMPT_EVAL_NS], number[NUMBER_EVAL_NS]

    cdef uint8_t* put_tail(self, Connection* c, uint8_t* out) noexcept:
        cdef Form form = <Form>self.forms[c.reply.form]
        cdef bint called = c.reply.fault == FAULT_TOOL_CALLS and has(form, AT_FINISH + ENDED_CALLS)
        if c.reply.fault == FAULT_ERROR_EVENT:
            out = form.events(AT_DONE, out, &c.reply.stamp, NULL, 0)
        elif c.reply.fault != FAULT_NO_DONE:
            self.count(c, form)
            out = form.finish(out, &c.reply.stamp, ENDED_CALLS if called else c.reply.ending)
        return put(out, b"0\r\n\r\n", 5) if c.reply.stamp.chunked == FRAMED_CHUNKS else out

    cdef Outcome finish(self, Connection* c) except? LOST:
        cdef Form form = <Form>self.forms[c.reply.form]
        cdef int64_t at = 0
        cdef uint8_t* end
        if not c.reply.opened and self.opening(c) == LOST:
            return LOST
        self.ensure(self.room(c, form, 1 + c.reply.stamp.tokens, c.reply.sent))       # it may have the ids of the last event
        end = self.put_tail(c, self.scratch)
        c.reply.last = not c.more or c.reply.fault == FAULT_NO_DONE
        if end > self.scratch and self.write(c, self.scratch, end, &at) == LOST:
            return LOST
        if c.reply.fault == FAULT_NO_DONE:
            return CUT if c.messages else COMPLETE
        if c.reply.fault != FAULT_ERROR_EVENT:
            self.log(c, at, KIND_FINISH)
            if has(form, AT_USAGE) and c.reply.stamp.says & SAYS_USAGE:
                self.log(c, at, KIND_USAGE)
        if has(form, AT_DONE):
            self.log(c, at, KIND_DONE)
        return COMPLETE

    cdef Outcome document(self, Connection* c, int64_t now) except? LOST:
        cdef Form form = <Form>self.forms[c.reply.form]
        cdef int64_t tokens = c.sequence.output_tokens
        cdef uint8_t* body
        cdef uint8_t* end
        cdef uint8_t* head
        cdef uint8_t* at
        cdef bytes calls = b""
        if c.reply.fault == FAULT_TOOL_CALLS:
            calls = listed_calls(form, &c.reply.stamp, tokens, c.reply.fault_arg)
        self.ensure(HEAD_ROOM + form.room + form.text_room * <size_t>tokens + <size_t>len(calls))
        body = self.scratch + HEAD_ROOM
        c.reply.sent = <int>tokens
        self.count(c, form)
        if c.reply.fault == FAULT_ERROR_EVENT:
            end = put(body, <const char*>form.error_body, len(form.error_body))
        elif calls:
            end = form.plain(AT_CALLS, body, &c.reply.stamp, <const uint8_t*><const char*>calls, <size_t>len(calls))
        else:
            end = form.plain(AT_DOCUMENT + c.reply.ending, body, &c.reply.stamp, NULL, 0)
        if c.reply.fault == FAULT_BAD_JSON:
            end -= 3
        if c.carrier != NULL:
            if not c.answered:
                self.set_head(c, form.stream_block if form.calls else DOCUMENT_BLOCK, -1 if form.calls else end - body)
            return self.send_document(c, body, end, now)
        at = head = self.scratch
        at = put(at, <const char*>DOCUMENT_HEAD, len(DOCUMENT_HEAD))
        if c.reply.fault != FAULT_UNTIL_CLOSE:
            at = put(put_number(put(at, b"content-length: ", 16), end - body), b"\r\n", 2)
        if c.reply.close_after:
            at = put(at, b"connection: close\r\n", 19)
        at = put(put(at, c.reply.said, c.reply.said_size), b"\r\n", 2)
        memcpy(body - (at - head), head, <size_t>(at - head))
        return self.send_document(c, body - (at - head), end, now)

    cdef Outcome send_document(self, Connection* c, uint8_t* start, uint8_t* end, int64_t now) except? LOST:
        cdef uint8_t* middle = start + (end - start) // 2
        cdef int64_t at = 0
        if c.reply.fault in (FAULT_RESET, FAULT_CLOSE, FAULT_STALL) or c.reply.fault >= FAULT_TLS_ALERT:
            if self.write(c, start, middle, &at) == LOST:
                return LOST
            if c.reply.fault != FAULT_STALL:
                return self.strike(c, now)
            c.out_due = mono_ns() + <int64_t>c.reply.fault_arg * MS
            start = middle
        c.reply.last = not c.more
        if self.write(c, start, end, &at) == LOST:
            return LOST
        c.truth.t_first = at
        self.tokens += <uint64_t>c.reply.sent
        self.log(c, at, KIND_TOOL if c.reply.fault == FAULT_TOOL_CALLS else KIND_CONTENT)
        return COMPLETE
