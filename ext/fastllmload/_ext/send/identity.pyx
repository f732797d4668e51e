"""Session identity: header lines and JSON fields whose values differ by request, rendered from templates.

A template is compiled once, to pieces of text and numbers; a request's are written one after the other into memory of its stream.
What a request lacks (a parent, a token) leaves out every template that needs it.
"""

import time

import msgspec

from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memmove
from posix.unistd cimport write

from fastllmload._ext.bytes.digits cimport put_number
from fastllmload._ext.system.clock cimport mono_ns

from fastllmload._ext.http.block import sized

PARTS = ("text", "session", "parent", "root", "turn", "class", "user", "final", "request", "token")

cdef enum:
    ID_MOST = 64 + 2 * 22       # bytes of an id: its prefix, and two numbers with what stands before them
    TELLING_NS = 5_000_000_000
    PIPE_BUF = 4096             # bytes that a pipe takes whole or not at all
    SIZES = 8                   # bytes of a value's size (RFC 7541 5.1)


cdef inline uint8_t* put_text(uint8_t* at, const void* text, size_t size) noexcept nogil:
    memcpy(at, text, size)
    return at + size


cdef uint8_t* set_size(uint8_t* at, uint8_t* end) noexcept nogil:
    """The value between *at* + 1 and *end* gets its size before it."""
    cdef size_t size = <size_t>(end - at) - 1
    cdef size_t rest = size - 127
    cdef uint8_t[SIZES] more
    cdef size_t count = 0
    if size < 127:
        at[0] = <uint8_t>size
        return end
    at[0] = 127
    while rest >= 128:
        more[count] = <uint8_t>(rest % 128 | 128)
        rest //= 128
        count += 1
    more[count] = <uint8_t>rest
    count += 1
    memmove(at + 1 + count, at + 1, size)
    memcpy(at + 1, more, count)
    return end + count


cdef bytes json_of(bytes text):
    """The value of a header as a string of JSON."""
    return msgspec.json.encode(text.decode("latin-1"))


cdef bytes line_of(bytes value):
    """A string or number of JSON as the value of a header; empty where no header can have it."""
    if value[:1] != b'"':
        return value
    try:
        text = msgspec.json.decode(value, type=str).encode()
    except msgspec.DecodeError:
        return b""
    return b"" if min(text, default=0) < 32 or 127 in text or text != text.strip() else text


cdef class Identity:
    """*headers*: (name, parts), *fields*: parts of JSON as text, each with a comma at its end; a part is its number in PARTS and, of
    a text, that. *classes*: names for headers and, escaped, for JSON. *token*: a header or field has the latest token, which came
    in a header or *from_body* and goes into a header or *in_body*. *end*: parts of the URL that ends a session, which *ends_fd* gets
    in a line after the number of the target and a blank.
    """

    def __init__(self, list headers, list fields, list classes, *, list end=None, bint own_children=True,
                 bint token=False, bint from_body=False, bint in_body=False, int ends_fd=-1):
        cdef uint32_t i, number = 0
        cdef Template* t
        names = [name for name, _ in classes] + [escaped for _, escaped in classes]
        units = [parts for _, parts in headers] + fields + [[] if end is None else end]
        self.literals = b""
        self.own_children = own_children
        self.tokens = {} if token else None
        self.from_body, self.in_body = from_body, in_body
        self.named = {}
        self.token = b""
        self.unsent = bytearray()
        self.ends_fd = ends_fd
        self.header_count, self.field_count, self.class_count = <uint32_t>len(headers), <uint32_t>len(fields), <uint32_t>len(classes)
        self.templates = <Template*>calloc(len(units) + 1, sizeof(Template))
        self.pieces = <Piece*>calloc(sum(map(len, units)) + 1, sizeof(Piece))
        self.classes = <Piece*>calloc(len(names), sizeof(Piece))
        if self.templates == NULL or self.pieces == NULL or self.classes == NULL:
            raise MemoryError("session identity")
        self.longest_class = max([len(name) for name in names])
        self.most = SIZES
        for i in range(<uint32_t>len(names)):
            self.classes[i] = self._keep(names[i])
        for i in range(<uint32_t>len(units)):
            t = &self.templates[i]
            if i < self.header_count:
                name = headers[i][0]
                t.name = self._keep(name + b": ")
                t.block = self._keep(b"\x10" + sized(name.lower()))
            t.first = number
            for part, text in units[i]:
                self.pieces[number] = self._keep(text, part)
                if part == PART_CLASS and i >= self.header_count:
                    self.pieces[number].at = self.class_count
                t.of_children |= part == PART_PARENT
                t.of_last |= part == PART_FINAL
                t.of_token |= part == PART_TOKEN
                number += 1
            t.count = number - t.first
        self.text = <const uint8_t*><const char*>self.literals

    def __dealloc__(self):
        free(self.templates)
        free(self.pieces)
        free(self.classes)

    cdef Piece _keep(self, bytes text, uint32_t part=PART_TEXT):
        cdef Piece piece
        piece.part = part
        piece.at = <uint32_t>len(self.literals) if part == PART_TEXT else 0
        piece.size = <uint32_t>len(text)
        self.literals += text
        self.most += piece.size + SIZES if part == PART_TEXT else self.longest_class if part == PART_CLASS else ID_MOST
        return piece

    cdef int begin_phase(self, const char* prefix, size_t size) except -1:
        self.prefix = prefix
        self.prefix_size = size
        self.named.clear()
        if self.tokens is not None:
            self.tokens.clear()
        return 0

    cdef uint8_t* begin(self, RequestStream* s, size_t room) except NULL:
        cdef size_t size = self.most + room
        cdef unsigned char* grown
        if self.tokens is not None:
            self.token = self.tokens.get((self.who.session, self.who.chain), b"")
            size += <size_t>len(self.token)
        if size > s.own_cap:
            grown = <unsigned char*>realloc(s.own, size)
            if grown == NULL:
                raise MemoryError("the head of a request")
            s.own = grown
            s.own_cap = size
        return s.own

    cdef uint8_t* put_lines(self, uint8_t* at) noexcept:
        cdef uint32_t i
        cdef Template* t
        for i in range(self.header_count):
            t = &self.templates[i]
            if not self._left_out(t):
                at = self._put(put_text(at, self.text + t.name.at, t.name.size), t)
                at = put_text(at, b"\r\n", 2)
        return at

    cdef uint8_t* put_fields(self, uint8_t* at) noexcept:
        cdef uint32_t i
        cdef Template* t
        for i in range(self.header_count):
            t = &self.templates[i]
            if not self._left_out(t):
                at = put_text(at, self.text + t.block.at, t.block.size)
                at = set_size(at, self._put(at + 1, t))
        return at

    cdef uint8_t* put_opening(self, uint8_t* at) noexcept:
        cdef uint32_t i
        cdef uint8_t* begin = at
        for i in range(self.header_count, self.header_count + self.field_count):
            if not self._left_out(&self.templates[i]):
                if at == begin:
                    at = put_text(at, b"{", 1)
                at = self._put(at, &self.templates[i])
        return at

    cdef int answered(self, const unsigned char* token, size_t size, bint goes_on) except -1:
        if self.tokens is None:
            return 0
        key = (self.who.session, self.who.chain)
        if not goes_on:
            self.tokens.pop(key, None)
        elif size:
            text = token[:size]
            if self.from_body != self.in_body:
                text = json_of(text) if self.in_body else line_of(text)
            if text:
                self.tokens[key] = text
        return 0

    cdef int over(self, uint32_t target) except -1:
        cdef uint8_t* begin
        cdef uint8_t* end
        if self.ends_fd < 0 or (self.who.chain > 0 and not self.own_children):
            return 0
        begin = <uint8_t*>malloc(self.most)
        if begin == NULL:
            raise MemoryError("the end of a session")
        end = self._put(begin, &self.templates[self.header_count + self.field_count])
        self.unsent += b"%d %b\n" % (target, (<char*>begin)[:end - begin])
        free(begin)
        return self.tell()

    cdef int name_chain(self) except -1:
        if self.ends_fd >= 0:
            self.named.setdefault(self.who.session, {})[self.who.chain] = None
        return 0

    cdef int chain_over(self, uint32_t target, bint all_of_them) except -1:
        cdef dict agents = self.named.get(self.who.session, {})
        if all_of_them:
            self.named.pop(self.who.session, None)
            for chain in agents if self.own_children else [0] if agents else []:
                self.who.chain = chain
                self.over(target)
        elif self.own_children and self.who.chain in agents:
            del agents[self.who.chain]
            self.over(target)
        return 0

    cdef int tell(self) except -1:
        cdef Py_ssize_t sent
        while self.unsent:
            sent = write(self.ends_fd, <const char*>self.unsent, <size_t>min(len(self.unsent), PIPE_BUF))
            if sent <= 0:
                return 0
            del self.unsent[:sent]
        return 0

    cdef int tell_all(self) except -1:
        cdef int64_t until = mono_ns() + TELLING_NS
        self.tell()
        while self.unsent and mono_ns() < until:
            time.sleep(0.001)
            self.tell()
        return 0

    cdef bint _left_out(self, const Template* t) noexcept:
        return ((t.of_children and (self.who.parent < 0 or not self.own_children)) or (t.of_last and not self.who.last)
                or (t.of_token and not self.token))

    cdef uint8_t* _put(self, uint8_t* at, const Template* t) noexcept:
        cdef uint32_t i
        cdef Piece* p
        for i in range(t.first, t.first + t.count):
            p = &self.pieces[i]
            if p.part == PART_TEXT:
                at = put_text(at, self.text + p.at, p.size)
            elif p.part == PART_SESSION:
                at = self._put_session(at, self.who.chain)
            elif p.part == PART_PARENT:
                at = self._put_session(at, self.who.parent)
            elif p.part == PART_ROOT:
                at = self._put_session(at, 0)
            elif p.part == PART_TURN:
                at = put_number(at, self.who.turn)
            elif p.part == PART_CLASS:
                p = &self.classes[p.at + (self.who.of_class if self.who.of_class < self.class_count else 0)]
                at = put_text(at, self.text + p.at, p.size)
            elif p.part == PART_USER:
                at = put_text(put_text(at, self.prefix, self.prefix_size), b"u", 1)
                at = put_number(at, self.who.user if self.who.user >= 0 else self.who.session)
            elif p.part == PART_FINAL:
                at = put_text(at, b"true", 4)
            elif p.part == PART_REQUEST:
                at = put_number(put_text(at, self.prefix, self.prefix_size), self.who.request)
            else:
                at = put_text(at, <const char*>self.token, <size_t>len(self.token))
        return at

    cdef uint8_t* _put_session(self, uint8_t* at, int32_t chain) noexcept:
        at = put_text(put_text(at, self.prefix, self.prefix_size), b"s", 1)
        at = put_number(at, self.who.session)
        if chain > 0 and self.own_children:
            at = put_number(put_text(at, b"-", 1), chain)
        return at

    def rendered(self, dict who, bytes prefix, bytes token=b"") -> tuple[bytes, bytes, bytes]:
        """Lines of HTTP/1.1, fields of HTTP/2 and the opening of a body: for tests and previews."""
        cdef Who of
        cdef uint8_t* end
        cdef uint8_t* room = <uint8_t*>calloc(1, self.most + len(token) + 1)
        if room == NULL:
            raise MemoryError("session identity")
        of = who
        self.who = of
        self.prefix, self.prefix_size = <const char*>prefix, <size_t>len(prefix)
        self.token = token
        try:
            end = self.put_lines(room)
            lines = (<char*>room)[:end - room]
            end = self.put_fields(room)
            fields = (<char*>room)[:end - room]
            end = self.put_opening(room)
            return lines, fields, (<char*>room)[:end - room]
        finally:
            free(room)
            self.prefix = NULL
            self.prefix_size = 0
