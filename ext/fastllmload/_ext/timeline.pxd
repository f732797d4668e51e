# Events of a response onto its timeline: kind, time and class of the stamp of each; live TTFT and ITL. Rows of events and
# the live histograms of tokens are written here and nowhere else.
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t

cimport fastllmload._ext.counters as k
cimport fastllmload._ext.recorder as r
from fastllmload._ext.calls cimport CallReader
from fastllmload._ext.cursor cimport Cursor, left
from fastllmload._ext.delta cimport EVENT_CONTENT, Classifier, Meaning, template_takes
from fastllmload._ext.errortexts cimport ErrorTexts
from fastllmload._ext.exchange cimport Exchange, exchange_reply
from fastllmload._ext.histogram cimport Hdr, hdr_record
from fastllmload._ext.http1 cimport CONTENT_SSE
from fastllmload._ext.jsonscan cimport Body
from fastllmload._ext.recorder cimport FLAG_FIRST_COALESCED, Recorder, RequestRow
from fastllmload._ext.sse cimport SseEvent, sse_rests, sse_takes_data, sse_takes_end

cdef enum:
    SAME_READ = 4           # EventRow.stamp bit

cdef struct Pending:        # the latest event of the read being fed: its class is known when the next one comes, or none
    int64_t t
    uint32_t row
    uint32_t read
    uint8_t kind
    uint8_t follows         # same read as the request's previous event
    uint8_t full
    uint8_t first           # it set t_first

@cython.final
cdef class Timeline:
    # One per worker. Not thread-safe. Every Exchange that comes in has an open row.
    cdef Recorder recorder
    cdef Classifier classifier
    cdef CallReader calls
    cdef ErrorTexts error_texts
    cdef int64_t* words             # counters.pxd; borrowed from the Protocol's shared memory
    cdef Hdr ttft, itl
    cdef int event(self, Exchange* x, SseEvent* event, Pending* p) except -1            # one event of a stream
    cdef int whole(self, Exchange* x, int64_t t, uint32_t read) except -1               # a body that was no stream
    cdef int _timed(self, Exchange* x, Meaning* m, int64_t t, uint8_t kind) except -1
    cdef int _wrong(self, Exchange* x, uint8_t error, const unsigned char* text, size_t size) except -1
    cdef int _said(self, RequestRow* row, Meaning* m) noexcept

    # Write what is pending, now that it is known whether another event came in the same read.
    cdef inline int flush(self, Exchange* x, Pending* p, bint coalesced) except -1:
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
        return self.recorder.event(p.t, p.row, p.kind, stamp | (SAME_READ if p.follows else 0), 0)

    # An event of *kind* at *t* waits for the next one of its read.
    cdef inline int wait(self, Exchange* x, Pending* p, int64_t t, uint32_t read, uint8_t kind) except -1:
        self.flush(x, p, p.full and p.read == read)
        p.full = 1
        p.t = t
        p.row = x.number
        p.follows = x.row.events > 0 and x.event_read == read
        p.read = read
        x.event_read = read
        p.kind = kind
        p.first = 0
        x.row.events += 1
        self.words[k.W_EVENTS] += 1
        return 0

    # Text on the content timeline behind its first token.
    cdef inline int content(self, Exchange* x, const unsigned char* text, uint32_t size, int64_t t) except -1:
        cdef RequestRow* row = x.row
        row.text_bytes += size
        if self.recorder.text_on:
            self.recorder.write_text(x.number, text, size)
        if x.keep:
            exchange_reply(x, text, size)
        if row.phase == r.PHASE_MEASURE:
            hdr_record(&self.itl, 0 if t == row.t_last else t - row.t_last)         # 0, of one read, is placed by the compiler
        row.t_last = t
        row.content_events += 1
        self.words[k.W_CONTENT_EVENTS] += 1
        return 0

    # Like events: each is whole in *c*, one line of data, and equals the stream's template in all but its text. What this
    # takes, sse_next(), classify() and event() would take in the same way; it stops where one of them has to look.
    cdef inline int like(self, Exchange* x, Cursor* c, uint32_t read, Pending* p) except -1:
        cdef RequestRow* row = x.row
        cdef int64_t t
        cdef Cursor at
        cdef Body text
        if (x.content != CONTENT_SSE or row.t_first == 0 or x.template.kind != EVENT_CONTENT
                or not x.template.one_line or not sse_rests(&x.sse)):
            return 0
        t = x.read_t if x.read_t >= row.t_headers else row.t_headers
        while True:
            at = c[0]
            if not (sse_takes_data(&at) and template_takes(&x.template, &at, &text)):
                return 0
            if <size_t>(at.at - c.at) > x.sse.limit or not sse_takes_end(&at):
                return 0
            c.at = at.at
            self.classifier.by_template += 1
            self.wait(x, p, t, read, EVENT_CONTENT)
            self.content(x, text.at, <uint32_t>text.size, t)
