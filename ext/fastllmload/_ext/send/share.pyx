"""A worker's share of the plan of a phase.

Without conversations release i of worker w is request w + i * workers. In a closed loop of *slots* each round of that many requests
is dealt again, so that every slot has as many as any other, however many of them a worker has. A request goes to target number request modulo
targets, or to the one that the plan's routing gives it where classes have targets of their own. With conversations *numbers*
says which requests the releases are (first turns), and a conversation stays at the target where it began. Where slots begin at
instants of their own, in the middle of sessions, slot s begins with the s-th of these, and a pool is repeated without them. The bytes of a request are three pieces that are sent in one system call: the head of its class and
target, the lines that only it has, and its body, none of them copied.
"""

from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove, memset

cimport fastllmload._ext.record.recorder as r
from fastllmload._ext.bytes.digits cimport put_number
from fastllmload._ext.bytes.schema cimport PREFIX
from fastllmload._ext.receive.messages cimport MASK_KEY, MESSAGE_HEADER, put_text_header
from fastllmload._ext.send.connection cimport FIELDS, LINES, Head, of_many
from fastllmload._ext.send.identity cimport Who
from fastllmload._ext.system.static_assert cimport FLL_STATIC_ASSERT
from fastllmload._ext.system.wire cimport iovec

cdef enum:
    DIGITS = 20                 # of the largest number of 64 bits
    FIELD_NAME = 23             # bytes of "X-Fastllmload-Request: "


cdef inline uint8_t* put_text(uint8_t* at, const char* text, size_t size) noexcept nogil:
    memcpy(at, text, size)
    return at + size


cdef uint8_t* lines_of(Share share, uint8_t* at, uint32_t request, size_t size) noexcept:
    """The lines of HTTP/1.1 that only this request has, and the end of its head."""
    FLL_STATIC_ASSERT(NAME_LONGEST + DIGITS + 18 + DIGITS + 4 <= LINES)
    at = put_number(put_text(at, share.name, share.name_size), request)
    at = put_number(put_text(at, b"\r\nContent-Length: ", 18), <int64_t>size)
    return put_text(at, b"\r\n\r\n", 4)


cdef uint8_t* fields(Share share, uint8_t* at, uint32_t request, size_t size) noexcept:
    """The same as fields of HTTP/2 that no table takes up (RFC 7541 6.2.2, 6.2.3): names and values with their sizes before them."""
    cdef uint8_t* sized
    FLL_STATIC_ASSERT(NAME_LONGEST + DIGITS < 127)
    sized = put_text(at, b"\x10\x15x-fastllmload-request", 23)
    at = put_number(put_text(sized + 1, share.name + FIELD_NAME, share.name_size - FIELD_NAME), request)
    sized[0] = <uint8_t>(at - sized - 1)
    sized = put_text(at, b"\x0f\x0d", 2)               # content-length, number 28 of the static table
    at = put_number(sized + 1, <int64_t>size)
    sized[0] = <uint8_t>(at - sized - 1)
    return at


cdef uint8_t* envelope(Share share, uint8_t* lines, uint32_t request, size_t size) noexcept:
    """What a request over WebSocket has of its own: the frame's header, and the first field of its JSON, in place of the body's
    bracket. The name of the request is where the API has room for a caller's words.
    """
    cdef uint8_t[LINES] own
    cdef uint8_t* end
    cdef size_t own_size
    FLL_STATIC_ASSERT(MESSAGE_HEADER + MASK_KEY + 30 + NAME_LONGEST - FIELD_NAME + DIGITS <= LINES)
    end = put_text(own, b'{"metadata":{"request_id":"', 27)
    end = put_number(put_text(end, share.name + FIELD_NAME, share.name_size - FIELD_NAME), request)
    end = put_text(end, b'"},', 3)
    own_size = <size_t>(end - own)
    return put_text(put_text_header(lines, own_size + size - 1), <const char*>own, own_size)
cdef uint8_t* call_opening(Share share, uint8_t* at, uint32_t request, uint8_t tag, size_t size) noexcept:
    """What comes before a message of *size* bytes: gRPC's prefix, and the field with the request's id."""
    cdef uint8_t* field = at + PREFIX
    cdef uint8_t* end = put_number(put_text(field + 2, share.name + FIELD_NAME, share.name_size - FIELD_NAME), request)
    FLL_STATIC_ASSERT(24 + 2 * (NAME_LONGEST + DIGITS) + 3 + DIGITS + PREFIX + 2 <= FIELDS)
    field[0] = tag
    field[1] = <uint8_t>(end - field - 2)
    size += <size_t>(end - field)
    at[0] = 0
    at[1] = <uint8_t>(size >> 24)
    at[2] = <uint8_t>(size >> 16)
    at[3] = <uint8_t>(size >> 8)
    at[4] = <uint8_t>size
    return end


cdef class Share:
    """*run_id* is in each request's X-Fastllmload-Request."""

    def __init__(self, bytes run_id not None, uint32_t worker, uint32_t workers):
        self.run_id = run_id
        self.worker = worker
        self.workers = workers
        self.head_classes = 1

    def __dealloc__(self):
        cdef uint32_t i
        for i in range(self.head_classes * self.target_count):
            free(self.heads[i].text)
        free(self.heads)

    cdef int begin(self, uint8_t phase, int phase_number) except -1:
        cdef bytes name = b"X-Fastllmload-Request: %b-%d-" % (self.run_id, phase_number)
        if len(name) > NAME_LONGEST:
            raise ValueError(f"run id {self.run_id!r} is too long for a request head")
        self.phase = phase
        self.name_size = len(name)
        memcpy(self.name, <const char*>name, self.name_size)
        if self.identity is not None:
            self.identity.begin_phase(self.name + FIELD_NAME, self.name_size - FIELD_NAME)
        return 0

    cdef int add_target(self, bytes head, uint8_t dialect, uint8_t id_tag) except -1:
        cdef Head* grown
        if self.head_classes > 1:
            raise ValueError("targets come before the heads of classes")
        grown = <Head*>realloc(self.heads, (self.target_count + 1) * sizeof(Head))
        if grown == NULL:
            raise MemoryError("request heads")
        self.heads = grown
        self.heads[self.target_count].text = NULL
        self.target_count += 1
        return self._set_head(self.target_count - 1, head, dialect, id_tag)

    cdef int add_class(self, list heads, uint8_t dialect, uint8_t id_tag) except -1:
        cdef Py_ssize_t i, first = self.head_classes * self.target_count
        cdef Head* grown = <Head*>realloc(self.heads, (first + self.target_count) * sizeof(Head))
        if grown == NULL:
            raise MemoryError("request heads")
        self.heads = grown
        memset(&self.heads[first], 0, self.target_count * sizeof(Head))
        self.head_classes += 1
        for i in range(<Py_ssize_t>self.target_count):
            self._set_head(first + i, heads[i], dialect, id_tag)
        return 0

    cdef int _set_head(self, Py_ssize_t place, bytes head, uint8_t dialect, uint8_t id_tag) except -1:
        cdef Head* h = &self.heads[place]
        h.dialect = dialect
        h.id_tag = id_tag
        h.size = len(head)
        h.text = <char*>malloc(max(h.size, <size_t>1))
        if h.text == NULL:
            raise MemoryError("request head")
        memcpy(h.text, <const char*>head, h.size)
        return 0

    cdef uint32_t numbered(self, uint64_t release) noexcept:
        cdef uint64_t count
        if self.talks is None:
            if self.own == 0:
                return <uint32_t>(self.worker + release * self.workers)
            return <uint32_t>(release // self.own * self.slots + self.worker + release % self.own * self.workers)
        count = <uint64_t>self.numbers.shape[0]
        if self.own_first and release >= count:
            release -= self.own
            count -= self.own
            return <uint32_t>(self.numbers[self.own + release % count] + release // count * self.plan_size)
        return <uint32_t>(self.numbers[release % count] + release // count * self.plan_size)

    cdef int fill(self, RequestRow* row, uint32_t request) noexcept:
        cdef uint32_t planned = request % self.plan_size
        row.request = request
        row.session = request
        row.url = <uint16_t>(request % self.target_count)
        if self.talks is not None:
            row.session = self.talks.turns[planned].session + request // self.plan_size * self.talks.sessions
            row.turn = self.talks.turns[planned].turn
            row.url = <uint16_t>(row.session % self.target_count)
        if self.target is not None:
            row.url = self.target[planned]
        row.input_target = <uint32_t>self.input_tokens[planned]
        row.output_target = <uint32_t>self.output_tokens[planned]
        row.request_class = self.request_class[planned]
        row.prompt_tokens = row.completion_tokens = row.reasoning_tokens = row.cached_tokens = -1
        row.retry_after_ms = -1
        row.worker = <uint16_t>self.worker
        row.phase = self.phase
        row.status = r.STATUS_IN_FLIGHT
        return 0

    cdef int compose(self, RequestStream* s) except -1:
        cdef iovec* pieces = &of_many(s).pieces[0] if s.many else &s.connection.pieces[0]
        cdef char* lines = &of_many(s).lines[0] if s.many else &s.connection.lines[0]
        cdef Talk* talk = s.talk
        cdef uint32_t planned = s.request % self.plan_size
        cdef uint64_t at = self.body_offset[planned]
        cdef uint64_t size = self.body_offset[planned + 1] - at
        cdef uint32_t of_class = self.request_class[planned]
        cdef Head* head
        cdef uint8_t* at_line
        cdef uint8_t* opened
        cdef size_t opened_size
        cdef iovec* opening
        cdef bint bracketed = False         # what comes before the body has its bracket
        cdef bint stitched = talk != NULL and talk.size > 0
        if of_class >= self.head_classes:
            of_class = 0
        head = &self.heads[of_class * self.target_count + s.connection.target]
        if stitched:                        # or gathered from pieces, and then the offsets were of these
            size = talk.size
        s.x.dialect = head.dialect
        if self.identity is not None:
            lines = <char*>self._own_lines(s)
        at_line = <uint8_t*>lines
        if s.many:
            opening = &of_many(s).opening
            if head.id_tag:
                at_line = call_opening(self, at_line, s.request, head.id_tag, size)
            elif self.identity is not None:
                at_line = self.identity.put_opening(at_line)
            opening.iov_base = lines
            opening.iov_len = <size_t>(at_line - <uint8_t*>lines)
            bracketed = opening.iov_len > 0 and not head.id_tag
            lines = <char*>at_line
            at_line = fields(self, at_line, s.request, size + opening.iov_len - bracketed)
            if self.identity is not None:
                at_line = self.identity.put_fields(at_line)
        elif head.size == 0:
            at_line = envelope(self, at_line, s.request, size)
            bracketed = True
        elif self.identity is None:
            at_line = lines_of(self, at_line, s.request, size)
        else:
            at_line = self.identity.put_lines(at_line)
            opened = at_line + LINES        # moved when the line with its size is there
            opened_size = <size_t>(self.identity.put_opening(opened) - opened)
            bracketed = opened_size > 0
            at_line = lines_of(self, at_line, s.request, size + opened_size - bracketed)
            memmove(at_line, opened, opened_size)
            at_line += opened_size
        pieces[0].iov_base = head.text
        pieces[0].iov_len = head.size
        pieces[1].iov_base = lines
        pieces[1].iov_len = <size_t>(at_line - <uint8_t*>lines)
        pieces[2].iov_base = <void*>talk.body if stitched else <void*>(&self.bodies[0] + at)
        pieces[2].iov_len = size
        if bracketed:
            pieces[2].iov_base = <uint8_t*>pieces[2].iov_base + 1
            pieces[2].iov_len -= 1
        s.connection.piece = 0
        return 0

    cdef uint8_t* _own_lines(self, RequestStream* s) except NULL:
        self._name(s.request, s.slot)
        if self.chain is not None:
            self.identity.name_chain()
        return self.identity.begin(s, FIELDS)

    cdef int _name(self, uint32_t request, int32_t slot) noexcept:
        cdef Who* who = &self.identity.who
        cdef uint32_t planned = request % self.plan_size
        who.request = who.session = request
        who.turn = 0
        who.last = True
        if self.talks is not None:
            who.session = self.talks.turns[planned].session + request // self.plan_size * self.talks.sessions
            who.turn = self.talks.turns[planned].turn
            who.last = not self.talks.follows(planned)
        who.of_class = self.request_class[planned]
        who.user = -1 if slot < 0 else self.worker + <int64_t>slot * self.workers
        who.chain, who.parent = 0, -1
        if self.chain is not None:
            who.chain, who.parent = self.chain[planned], self.parent[planned]
            who.last = self.place[planned] < 0
            who.turn = <uint32_t>(-1 - self.place[planned] if who.last else self.place[planned])
        return 0

    cdef int answered(self, RequestStream* s, bint goes_on) except -1:
        self._name(s.request, s.slot)
        return self.identity.answered(s.x.token, s.x.token_size, goes_on and not (self.chain is not None and self.identity.who.last))

    cdef int over(self, uint32_t request, bint goes_on) except -1:
        cdef uint32_t target, planned = request % self.plan_size
        if self.identity is None or self.identity.ends_fd < 0 or (goes_on and self.chain is None):
            return 0
        self._name(request, -1)
        target = self.target[planned] if self.target is not None else self.identity.who.session % self.target_count
        if self.chain is None:
            return self.identity.over(target)
        return 0 if goes_on and not self.identity.who.last else self.identity.chain_over(target, not goes_on)
