"""Protobuf messages from JSON and back: requests are made as JSON, with names of fields, and written as messages before they are sent.
The simulated engine reads them back.

A message has its size before it, which is known when it is written: it then moves up by as many bytes as its size takes.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, realloc, strtod
from libc.string cimport memcmp, memcpy, memmove

from fastllmload._ext.bytes.cursor cimport left, over
from fastllmload._ext.bytes.digits cimport put_number
from fastllmload._ext.bytes.jsonscan cimport (
    StringSpan, json_blanks, json_number, json_peek, json_string, json_take, json_word,
)
from fastllmload._ext.bytes.protobuf cimport (
    VARINT_LONGEST, WIRE_FIXED32, WIRE_FIXED64, WIRE_SIZED, WIRE_VARINT, sized_read, tag_read, value_skip, varint,
)

cdef enum:
    DIGITS_MOST = 40            # bytes of a number


cdef void written_free(Written* out) noexcept nogil:
    free(out.at)
    out.at = NULL
    out.size = out.cap = 0


cdef int written_grow(Written* out, size_t size) except -1:
    cdef size_t cap = out.cap if out.cap else 1024
    cdef unsigned char* grown
    if out.size + size <= out.cap:
        return 0
    while cap < out.size + size:
        cap *= 2
    grown = <unsigned char*>realloc(out.at, cap)
    if grown == NULL:
        raise MemoryError(f"{cap} bytes for a message")
    out.at = grown
    out.cap = cap
    return 0


cdef int put(Written* out, const void* data, size_t size) except -1:
    written_grow(out, size)
    memcpy(out.at + out.size, data, size)
    out.size += size
    return 0


cdef int put_varint(Written* out, uint64_t value) except -1:
    written_grow(out, VARINT_LONGEST)
    while value >= 0x80:
        out.at[out.size] = <unsigned char>(value & 0x7F | 0x80)
        out.size += 1
        value >>= 7
    out.at[out.size] = <unsigned char>value
    out.size += 1
    return 0


cdef int put_tag(Written* out, uint32_t number, int wire) except -1:
    return put_varint(out, <uint64_t>number << 3 | <uint64_t>wire)


cdef int put_size(Written* out, size_t begin) except -1:
    """The size of what stands from *begin* on, before it."""
    cdef size_t size = out.size - begin
    cdef size_t end
    put_varint(out, size)
    end = out.size - begin - size       # bytes of the number
    written_grow(out, end)
    memcpy(out.at + out.size, out.at + begin + size, end)
    memmove(out.at + begin + end, out.at + begin, size)
    memcpy(out.at + begin, out.at + out.size, end)
    return 0


cdef uint32_t hex_read(const unsigned char* at) noexcept nogil:
    cdef uint32_t value = 0
    cdef int i
    for i in range(4):
        value = value << 4 | ((at[i] & 15) + (9 if at[i] > c'9' else 0))
    return value


cdef int put_character(Written* out, uint32_t code) except -1:
    cdef unsigned char[4] text
    cdef size_t size
    if code < 0x80:
        text[0] = <unsigned char>code
        size = 1
    elif code < 0x800:
        text[0] = <unsigned char>(0xC0 | code >> 6)
        size = 2
    elif code < 0x10000:
        text[0] = <unsigned char>(0xE0 | code >> 12)
        size = 3
    else:
        text[0] = <unsigned char>(0xF0 | code >> 18)
        size = 4
    if size > 1:
        text[size - 1] = <unsigned char>(0x80 | code & 0x3F)
    if size > 2:
        text[size - 2] = <unsigned char>(0x80 | code >> 6 & 0x3F)
    if size > 3:
        text[1] = <unsigned char>(0x80 | code >> 12 & 0x3F)
    return put(out, text, size)


cdef int put_text(Written* out, const StringSpan* body) except -1:
    """The text whose JSON form is *body*, which json_string() has checked."""
    cdef const unsigned char* at = body.at
    cdef const unsigned char* end = body.at + body.size
    cdef const unsigned char* plain
    cdef uint32_t code
    if not body.escaped:
        return put(out, body.at, body.size)
    while at < end:
        plain = at
        while at < end and at[0] != c'\\':
            at += 1
        put(out, plain, <size_t>(at - plain))
        if at == end:
            return 0
        if at[1] != c'u':
            code = at[1]
            code = (10 if code == c'n' else 9 if code == c't' else 13 if code == c'r' else 8 if code == c'b' else 12 if code == c'f'
                    else code)
            at += 2
        else:
            code = hex_read(at + 2)
            at += 6
            if 0xD800 <= code < 0xDC00:         # the first of two
                code = 0x10000 + ((code - 0xD800) << 10) + (hex_read(at + 2) - 0xDC00)
                at += 6
        put_character(out, code)
    return 0


cdef class Schema:
    """*tree*: the fields of the message, name -> (number, Kind) or (number, tree of a message inside) or (number, Kind.MAP, tree
    of the values).
    """

    def __init__(self, dict tree not None):
        self.keep = []
        self.tree = described(tree)
        self._node(self.tree)

    def __dealloc__(self):
        written_free(&self.scratch)

    cdef int _node(self, dict tree) except -1:
        cdef int node = self.node_count
        cdef int first = self.field_count
        cdef SchemaField* field
        if node == SCHEMA_NODES_MOST or first + len(tree) > SCHEMA_FIELDS_MOST:
            raise OverflowError("the message has too many fields: enlarge SCHEMA_NODES_MOST or SCHEMA_FIELDS_MOST")
        self.node_count += 1
        self.field_count += <int>len(tree)
        self.nodes[node].first = <uint16_t>first
        self.nodes[node].count = <uint16_t>len(tree)
        for place, (name, (number, kind, inside)) in enumerate(tree.items()):
            text = name.encode()
            self.keep.append(text)
            field = &self.fields[first + place]
            field.name = text
            field.size = <uint8_t>len(text)
            field.number = <uint16_t>number
            field.kind = <uint8_t>kind
            field.child = <uint8_t>self._node(inside) if inside is not None else 0
        return node

    cdef bint write(self, Cursor* json, Written* out, Cursor* wrong) except? False:
        over(wrong, json.at, 0)
        return message(self, json, 0, out, wrong, 0) and json_peek(json) == -1

    def encode(self, bytes json not None) -> bytes:
        """ValueError names what the message lacks."""
        cdef Cursor c
        cdef Cursor wrong
        over(&c, <const unsigned char*>json, len(json))
        self.scratch.size = 0
        if not self.write(&c, &self.scratch, &wrong):
            raise ValueError(wrong.at[:left(&wrong)].decode())
        return self.scratch.at[:self.scratch.size] if self.scratch.size else b""

    def encode_all(self, const unsigned char[::1] bodies not None, const uint64_t[::1] ends not None) -> tuple:
        """Messages of many JSON *bodies*, which end at *ends*: their bytes, and where they end, as bytes of uint64."""
        cdef Cursor c
        cdef Cursor wrong
        cdef uint64_t begin = 0
        cdef Py_ssize_t i
        found = bytearray(8 * len(ends))
        cdef uint64_t[::1] places = memoryview(found).cast("Q") if len(ends) else None
        self.scratch.size = 0
        for i in range(ends.shape[0]):
            over(&c, &bodies[0] + begin, <size_t>(ends[i] - begin))
            if not self.write(&c, &self.scratch, &wrong):
                raise ValueError(wrong.at[:left(&wrong)].decode())
            places[i] = self.scratch.size
            begin = ends[i]
        return self.scratch.at[:self.scratch.size] if self.scratch.size else b"", found

    def decode(self, bytes message not None) -> bytes:
        """*message* as JSON. Fields that are not known and maps are left out; a field that comes again is said again. ValueError: it
        is no such message."""
        cdef Cursor c
        over(&c, <const unsigned char*>message, len(message))
        self.scratch.size = 0
        if not members(self, &c, 0, &self.scratch, 0):
            raise ValueError("it is not a message, or one of another type")
        return self.scratch.at[:self.scratch.size]


def with_prefix(bytes message not None) -> bytes:
    """A message of gRPC."""
    return b"\0" + len(message).to_bytes(4, "big") + message


def text_field(int number, bytes text not None) -> bytes:
    """A field of at most 127 bytes."""
    return bytes((number << 3 | WIRE_SIZED, len(text))) + text


cdef dict described(dict tree):
    """*tree* with (number, Kind, tree or None) for each name."""
    found = {}
    for name, (number, *what) in tree.items():
        if isinstance(what[0], dict):
            found[name] = (number, MESSAGE, described(what[0]))
        else:
            found[name] = (number, what[0], described(what[1]) if what[0] == MAP else None)
    return found


cdef bint message(Schema s, Cursor* c, int node, Written* out, Cursor* wrong, int depth) except? False:
    """The members of a JSON object as fields."""
    cdef StringSpan name
    cdef const SchemaField* field
    if depth == SCHEMA_DEPTH or not json_take(c, c'{'):
        return False
    if json_take(c, c'}'):
        return True
    while True:
        if not (json_take(c, c'"') and json_string(c, &name) and json_take(c, c':')):
            return False
        over(wrong, name.at, name.size)
        field = field_named(s, node, &name)
        if field == NULL or not values(s, c, field, out, wrong, depth):
            return False
        if json_take(c, c'}'):
            return True
        if not json_take(c, c','):
            return False


cdef const SchemaField* field_named(Schema s, int node, const StringSpan* name) noexcept:
    cdef const SchemaField* field = &s.fields[s.nodes[node].first]
    cdef const SchemaField* end = field + s.nodes[node].count
    while field < end:
        if field.size == name.size and memcmp(field.name, name.at, name.size) == 0:
            return field
        field += 1
    return NULL


cdef bint values(Schema s, Cursor* c, const SchemaField* field, Written* out, Cursor* wrong, int depth) except? False:
    """The value of a field, or a list of them."""
    cdef size_t begin = 0
    cdef bint packed = field.kind <= DOUBLE
    if json_peek(c) == c'n':
        return json_word(c, b"null", 4)
    if field.kind == MAP:
        return entries(s, c, field, out, wrong, depth)
    if json_peek(c) != c'[':
        return value(s, c, field, out, wrong, depth, True)
    c.at += 1
    if json_take(c, c']'):
        return True
    if packed:
        put_tag(out, field.number, WIRE_SIZED)
        begin = out.size
    while True:
        if not value(s, c, field, out, wrong, depth, not packed):
            return False
        if json_take(c, c']'):
            break
        if not json_take(c, c','):
            return False
    if packed:
        put_size(out, begin)
    return True


cdef bint value(Schema s, Cursor* c, const SchemaField* field, Written* out, Cursor* wrong, int depth, bint tagged) except? False:
    cdef StringSpan body
    cdef size_t begin
    cdef bint said
    if field.kind == TEXT:
        if not json_take(c, c'"') or not json_string(c, &body):
            return False
        put_tag(out, field.number, WIRE_SIZED)
        begin = out.size
        put_text(out, &body)
        put_size(out, begin)
        return True
    if field.kind == MESSAGE:
        put_tag(out, field.number, WIRE_SIZED)
        begin = out.size
        if not message(s, c, field.child, out, wrong, depth + 1):
            return False
        put_size(out, begin)
        return True
    json_blanks(c)
    if field.kind == BOOL:
        said = json_word(c, b"true", 4)
        if not said and not json_word(c, b"false", 5):
            return False
        if tagged:
            put_tag(out, field.number, WIRE_VARINT)
        put_varint(out, said)
        return True
    return number(c, field, out, tagged)


cdef bint number(Cursor* c, const SchemaField* field, Written* out, bint tagged) except? False:
    cdef char[DIGITS_MOST + 1] text
    cdef const unsigned char* begin = c.at
    cdef size_t size, i
    cdef bint minus
    cdef uint64_t whole = 0
    cdef double real
    cdef float single
    if not json_number(c):
        return False
    size = <size_t>(c.at - begin)
    if size > DIGITS_MOST:
        return False
    if field.kind == INTEGER:
        minus = begin[0] == c'-'
        if size > 18:
            return False
        for i in range(minus, size):
            if not c'0' <= begin[i] <= c'9':
                return False
            whole = whole * 10 + (begin[i] - c'0')
        if tagged:
            put_tag(out, field.number, WIRE_VARINT)
        put_varint(out, <uint64_t>0 - whole if minus else whole)
        return True
    memcpy(text, begin, size)
    text[size] = 0
    real = strtod(text, NULL)
    if field.kind == FLOAT:
        single = <float>real
        if tagged:
            put_tag(out, field.number, WIRE_FIXED32)
        put(out, &single, sizeof(single))       # little-endian, as all hosts that this runs on
    else:
        if tagged:
            put_tag(out, field.number, WIRE_FIXED64)
        put(out, &real, sizeof(real))
    return True


cdef bint entries(Schema s, Cursor* c, const SchemaField* field, Written* out, Cursor* wrong, int depth) except? False:
    """The members of a JSON object as entries of a map: messages of a key (1) and a value (2)."""
    cdef StringSpan name
    cdef size_t entry, begin
    if not json_take(c, c'{'):
        return False
    if json_take(c, c'}'):
        return True
    while True:
        if not (json_take(c, c'"') and json_string(c, &name) and json_take(c, c':')):
            return False
        put_tag(out, field.number, WIRE_SIZED)
        entry = out.size
        put_tag(out, 1, WIRE_SIZED)
        begin = out.size
        put_text(out, &name)
        put_size(out, begin)
        put_tag(out, 2, WIRE_SIZED)
        begin = out.size
        if not message(s, c, field.child, out, wrong, depth + 1):
            return False
        put_size(out, begin)
        put_size(out, entry)
        if json_take(c, c'}'):
            return True
        if not json_take(c, c','):
            return False


# -- from messages to JSON --------------------------------------------------------------------------------------------


cdef bint members(Schema s, Cursor* c, int node, Written* out, int depth) except? False:
    """The fields of a message as a JSON object."""
    cdef uint32_t number
    cdef uint8_t wire
    cdef const SchemaField* field
    cdef bint more = False
    put(out, b"{", 1)
    while c.at < c.end:
        if not tag_read(c, &number, &wire):
            return False
        field = field_numbered(s, node, number)
        if field == NULL or field.kind == MAP:
            if not value_skip(c, wire):
                return False
            continue
        put(out, b",\"" if more else b"\"", 1 + more)
        put(out, field.name, field.size)
        put(out, b"\":", 2)
        more = True
        if not said(s, c, field, wire, out, depth):
            return False
    put(out, b"}", 1)
    return True


cdef const SchemaField* field_numbered(Schema s, int node, uint32_t number) noexcept:
    cdef const SchemaField* field = &s.fields[s.nodes[node].first]
    cdef const SchemaField* end = field + s.nodes[node].count
    while field < end:
        if field.number == number:
            return field
        field += 1
    return NULL


cdef bint said(Schema s, Cursor* c, const SchemaField* field, uint8_t wire, Written* out, int depth) except? False:
    """The value of a field."""
    cdef Cursor inside
    cdef bint more = False
    if wire != WIRE_SIZED:
        return field.kind <= DOUBLE and one_number(c, field, wire, out)
    if not sized_read(c, &inside):
        return False
    if field.kind == MESSAGE:
        return depth < SCHEMA_DEPTH and members(s, &inside, field.child, out, depth + 1)
    if field.kind == TEXT:
        quoted(&inside, out)
        return True
    wire = WIRE_FIXED32 if field.kind == FLOAT else WIRE_FIXED64 if field.kind == DOUBLE else WIRE_VARINT
    put(out, b"[", 1)
    while inside.at < inside.end:
        if more:
            put(out, b",", 1)
        more = True
        if not one_number(&inside, field, wire, out):
            return False
    put(out, b"]", 1)
    return True


cdef bint one_number(Cursor* c, const SchemaField* field, uint8_t wire, Written* out) except? False:
    cdef uint64_t whole
    cdef float single
    cdef double real
    written_grow(out, DIGITS_MOST)
    if wire == WIRE_VARINT and field.kind <= INTEGER:
        if not varint(c, &whole):
            return False
        if field.kind == BOOL:
            put(out, b"true" if whole else b"false", 4 if whole else 5)
        elif <int64_t>whole < 0:
            put(out, b"-", 1)
            out.size = <size_t>(put_number(out.at + out.size, <int64_t>(<uint64_t>0 - whole)) - out.at)
        else:
            out.size = <size_t>(put_number(out.at + out.size, <int64_t>whole) - out.at)
        return True
    if wire == WIRE_FIXED32 and field.kind == FLOAT and left(c) >= 4:
        memcpy(&single, c.at, 4)
        real = single
        c.at += 4
    elif wire == WIRE_FIXED64 and field.kind == DOUBLE and left(c) >= 8:
        memcpy(&real, c.at, 8)
        c.at += 8
    else:
        return False
    if real - real != 0:                # JSON has no such number
        put(out, b"null", 4)
        return True
    out.size += <size_t>snprintf(<char*>out.at + out.size, DIGITS_MOST, b"%.17g", real)
    return True


cdef int quoted(Cursor* text, Written* out) except -1:
    """A text as JSON; what is not UTF-8 stays as it is."""
    cdef const unsigned char* plain
    cdef unsigned char byte
    put(out, b"\"", 1)
    while text.at < text.end:
        plain = text.at
        while text.at < text.end and text.at[0] >= 0x20 and text.at[0] != c'"' and text.at[0] != c'\\':
            text.at += 1
        put(out, plain, <size_t>(text.at - plain))
        if text.at == text.end:
            break
        byte = text.at[0]
        text.at += 1
        if byte >= 0x20:
            put(out, b"\\", 1)
            put(out, &byte, 1)
            continue
        written_grow(out, DIGITS_MOST)
        out.size += <size_t>snprintf(<char*>out.at + out.size, DIGITS_MOST, b"\\u%04x", <unsigned int>byte)
    return put(out, b"\"", 1)
