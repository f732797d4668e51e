"""Events that are protobuf messages.

An object of the dialect is a message, its keys are found by their numbers. What a later event of JSON would say with null, a
message leaves out: a count of cached or reasoning tokens that is not there is 0, as protobuf has it. Of equal fields the last one
counts. A field of another wire type than its Field needs is one that is not known. Maps (ENTRIES) and KServe's tensors (TENSORS)
have names, which are the keys of their object.

Text comes as it is, and is handed on as the inside of a JSON string: mostly the same bytes.
"""

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from fastllmload._ext.bytes.cursor cimport Cursor, left, over
from fastllmload._ext.bytes.jsonscan cimport StringSpan, to_special
from fastllmload._ext.bytes.protobuf cimport (
    WIRE_SIZED, WIRE_VARINT, packed_count, sized_read, tag_read, value_skip, varint,
)
from fastllmload._ext.bytes.schema cimport written_grow
from fastllmload._ext.events.dialect cimport (
    ANSWER_IDS, CACHED_TOKENS, COMPLETION_TOKENS, CONTENT, DONE, ENTRIES, ERROR, EVENT_TOKENS, FINISH, LAST, OBJECT, PROMPT_TOKENS,
    RAW_TENSORS, REASONING, REASONING_TOKENS, ROLE, TENSORS, TOKEN_IDS, WHOLE_IDS, Key, finish_of, key_of,
)

cdef enum:
    DEPTH_MOST = 8              # messages inside each other, of those that matter
    TENSORS_MOST = 16           # of an event; more are not looked at
    ESCAPED = 6                 # bytes at most that a byte takes inside a JSON string

ctypedef const Key* KeyPointer

cdef struct Tensors:            # of an event: which keys they are, and where their contents lie
    int count
    int raw_count
    KeyPointer[TENSORS_MOST] keys
    Cursor[TENSORS_MOST] raw


cdef bint message_read(Facts* f, const DialectTable* d, const unsigned char* data, size_t size, Written* text) except? False:
    cdef Cursor c
    over(&c, data, size)
    f.known = True
    text.size = 0
    return fields(f, d, &c, d.roots[0], text, 0)


cdef bint fields(Facts* f, const DialectTable* d, Cursor* c, int node, Written* text, int depth) except? False:
    cdef uint32_t number
    cdef uint8_t wire
    cdef const Key* key
    cdef Tensors tensors
    tensors.count = tensors.raw_count = 0
    if d.nodes[node].zeros:
        zeros(f, d, node)
    while c.at < c.end:
        if not tag_read(c, &number, &wire):
            return False
        key = key_numbered(&d.keys[d.nodes[node].first], d.nodes[node].count, number)
        if key == NULL or wire != key.wire and not (wire == WIRE_VARINT and is_list(key.field)):
            if not value_skip(c, wire):
                return False
        elif wire == WIRE_VARINT:
            if not number_value(f, c, key.field):
                return False
        elif not sized_value(f, d, c, key, &tensors, text, depth):
            return False
    if tensors.raw_count:
        return raw_tensors(f, d, &tensors, text)
    return True


cdef inline const Key* key_numbered(const Key* key, int count, uint32_t number) noexcept nogil:
    cdef const Key* end = key + count
    while key < end:
        if key.number == number:
            return key
        key += 1
    return NULL


cdef inline bint is_list(uint8_t field) noexcept nogil:
    return field == TOKEN_IDS or field == ANSWER_IDS or field == WHOLE_IDS


cdef void zeros(Facts* f, const DialectTable* d, int node) noexcept nogil:
    """Counts that are 0 where they are left out."""
    cdef const Key* key = &d.keys[d.nodes[node].first]
    cdef const Key* end = key + d.nodes[node].count
    while key < end:
        if key.field == CACHED_TOKENS:
            f.cached_tokens = 0
        elif key.field == REASONING_TOKENS:
            f.reasoning_tokens = 0
        key += 1


cdef bint number_value(Facts* f, Cursor* c, uint8_t field) noexcept nogil:
    cdef uint64_t value
    cdef int32_t count
    if not varint(c, &value):
        return False
    count = <int32_t>value if value <= <uint64_t>INT32_MAX else -1
    if field == PROMPT_TOKENS:
        f.prompt_tokens = count
    elif field == COMPLETION_TOKENS:
        f.completion_tokens = count
    elif field == CACHED_TOKENS:
        f.cached_tokens = count
    elif field == REASONING_TOKENS:
        f.reasoning_tokens = count
    elif field == EVENT_TOKENS:
        f.token_ids = max(f.token_ids, count)
    elif field == DONE or field == LAST:
        f.done = value != 0
    elif is_list(field):
        ids(f, field, 1)
    return True


cdef inline void ids(Facts* f, uint8_t field, int64_t count) noexcept nogil:
    cdef int32_t more = <int32_t>min(count, <int64_t>0x7FFFFF)
    if field == WHOLE_IDS:
        f.whole_ids = max(f.whole_ids, 0) + more
        return
    f.answer_ids |= field == ANSWER_IDS
    f.token_ids = max(f.token_ids, 0) + more


cdef bint sized_value(Facts* f, const DialectTable* d, Cursor* c, const Key* key, Tensors* tensors, Written* text,
                      int depth) except? False:
    cdef Cursor inside
    cdef int64_t count
    if not sized_read(c, &inside):
        return False
    if key.field == OBJECT:
        return depth < DEPTH_MOST and fields(f, d, &inside, key.child, text, depth + 1)
    if is_list(key.field):
        count = packed_count(&inside)
        if count < 0:
            return False
        ids(f, key.field, count)
        return True
    if key.field == ENTRIES:
        return depth < DEPTH_MOST and entry(f, d, &inside, key, text, depth + 1)
    if key.field == TENSORS:
        return tensor(f, d, &inside, key, tensors, text)
    if key.field == RAW_TENSORS:
        if tensors.raw_count < TENSORS_MOST:
            tensors.raw[tensors.raw_count] = inside
            tensors.raw_count += 1
        return True
    return text_value(f, d, &inside, key.field, text)


cdef bint text_value(Facts* f, const DialectTable* d, Cursor* value, uint8_t field, Written* text) except? False:
    cdef StringSpan word
    word.at = value.at
    word.size = left(value)
    word.escaped = False
    if field == CONTENT:
        escaped(value, text, &f.content)
    elif field == REASONING:
        escaped(value, text, &f.reasoning)
    elif field == FINISH:
        f.finish = finish_of(d, &word)
        f.word = word
    elif field == ERROR:
        f.error |= word.size > 0
        f.word = word
    elif field == ROLE:
        f.role = word.size > 0
    return True


cdef bint entry(Facts* f, const DialectTable* d, Cursor* c, const Key* map, Written* text, int depth) except? False:
    """An entry of a map: a key (1) and a value (2), which is a message."""
    cdef uint32_t number
    cdef uint8_t wire
    cdef Cursor name, inside
    cdef StringSpan word
    cdef const Key* key = NULL
    cdef bint said = False
    over(&name, NULL, 0)
    while c.at < c.end:
        if not tag_read(c, &number, &wire):
            return False
        if wire == WIRE_SIZED and number <= 2:
            if not sized_read(c, &inside):
                return False
            if number == 1:
                name = inside
            else:
                said = True
        elif not value_skip(c, wire):
            return False
        if number == 2 and said:
            word.at = name.at
            word.size = left(&name)
            key = key_of(&d.keys[d.nodes[map.child].first], d.nodes[map.child].count, &word)
            if key != NULL and key.field == OBJECT and not fields(f, d, &inside, key.child, text, depth):
                return False
    return True


# -- tensors ----------------------------------------------------------------------------------------------------------
# Of a KServe tensor the first element counts: an answer has one. Its name is field 1, and its contents, if they do not lie in
# raw_output_contents, are field 5: numbers in lists by their type, texts in list 8.


cdef bint tensor(Facts* f, const DialectTable* d, Cursor* c, const Key* list, Tensors* tensors, Written* text) except? False:
    cdef uint32_t number
    cdef uint8_t wire
    cdef Cursor inside, contents
    cdef StringSpan name
    cdef const Key* key = NULL
    over(&contents, NULL, 0)
    name.at, name.size = NULL, 0
    while c.at < c.end:
        if not tag_read(c, &number, &wire):
            return False
        if wire != WIRE_SIZED or (number != 1 and number != 5):
            if not value_skip(c, wire):
                return False
            continue
        if not sized_read(c, &inside):
            return False
        if number == 1:
            name.at, name.size = inside.at, left(&inside)
        else:
            contents = inside
    if name.size:
        key = key_of(&d.keys[d.nodes[list.child].first], d.nodes[list.child].count, &name)
    if tensors.count < TENSORS_MOST:
        tensors.keys[tensors.count] = key
        tensors.count += 1
    return key == NULL or contents.at == NULL or listed(f, d, &contents, key.field, text)


cdef bint listed(Facts* f, const DialectTable* d, Cursor* c, uint8_t field, Written* text) except? False:
    """The first element of contents that lie in lists."""
    cdef uint32_t number
    cdef uint8_t wire
    cdef Cursor inside
    while c.at < c.end:
        if not tag_read(c, &number, &wire):
            return False
        if wire == WIRE_SIZED and number == 8:
            return sized_read(c, &inside) and text_value(f, d, &inside, field, text)
        if wire == WIRE_SIZED:
            return sized_read(c, &inside) and (inside.at == inside.end or number_value(f, &inside, field))
        if wire == WIRE_VARINT:
            return number_value(f, c, field)
        if not value_skip(c, wire):
            return False
    return True


cdef bint raw_tensors(Facts* f, const DialectTable* d, Tensors* tensors, Written* text) except? False:
    """The same from raw contents, in the order of the tensors: before each text its size, in four bytes; all little-endian."""
    cdef int i
    cdef uint8_t field
    cdef uint32_t size
    cdef Cursor* c
    cdef Cursor inside
    for i in range(min(tensors.count, tensors.raw_count)):
        if tensors.keys[i] == NULL:
            continue
        field = tensors.keys[i].field
        c = &tensors.raw[i]
        if field == CONTENT or field == REASONING or field == FINISH or field == ERROR or field == ROLE:
            if left(c) == 0:
                continue
            if left(c) < 4:
                return False
            memcpy(&size, c.at, 4)
            if size > left(c) - 4:
                return False
            over(&inside, c.at + 4, size)
            text_value(f, d, &inside, field, text)
        elif left(c) >= 1:
            raw_number(f, c, field)
    return True


cdef void raw_number(Facts* f, Cursor* c, uint8_t field) noexcept nogil:
    """A number of one to eight bytes, as a count is written."""
    cdef unsigned char[10] text
    cdef uint64_t value = 0
    cdef Cursor again
    cdef int size = 0
    memcpy(&value, c.at, left(c) if left(c) <= 8 else 4)
    while value >= 0x80:
        text[size] = <unsigned char>(value & 0x7F | 0x80)
        value >>= 7
        size += 1
    text[size] = <unsigned char>value
    over(&again, text, size + 1)
    number_value(f, &again, field)


# -- text -------------------------------------------------------------------------------------------------------------


cdef int escaped(Cursor* value, Written* text, StringSpan* body) except -1:
    """The inside of a JSON string that says *value*; U+FFFD for bytes that are not UTF-8."""
    cdef Cursor c = value[0]
    cdef const unsigned char* plain
    body.at = value.at
    body.size = left(value)
    body.escaped = False
    to_special(&c)
    if c.at == c.end:
        return 0
    written_grow(text, ESCAPED * left(value))
    body.at = text.at + text.size
    c = value[0]
    while c.at < c.end:
        plain = c.at
        to_special(&c)
        memcpy(text.at + text.size, plain, <size_t>(c.at - plain))
        text.size += <size_t>(c.at - plain)
        if c.at < c.end:
            body.escaped |= c.at[0] < 0x80
            text.size += character(&c, text.at + text.size)
    body.size = <size_t>(text.at + text.size - body.at)
    return 0


cdef size_t character(Cursor* c, unsigned char* out) noexcept nogil:
    """One that needs more than its byte; the bytes written."""
    cdef unsigned char byte = c.at[0]
    cdef int size, i
    c.at += 1
    if byte == c'"' or byte == c'\\':
        out[0] = c'\\'
        out[1] = byte
        return 2
    if byte == c'\n' or byte == c'\r' or byte == c'\t':
        out[0] = c'\\'
        out[1] = c'n' if byte == c'\n' else c'r' if byte == c'\r' else c't'
        return 2
    if byte < 0x20:
        memcpy(out, b"\\u00", 4)
        out[4] = c'0' + (byte >> 4)
        out[5] = c'0' + (byte & 15) if byte & 15 < 10 else c'a' + (byte & 15) - 10
        return 6
    if byte == 0x7F:
        out[0] = byte
        return 1
    size = utf8_more(byte, c)
    if size < 0:
        memcpy(out, b"\xef\xbf\xbd", 3)
        return 3
    out[0] = byte
    for i in range(size):
        out[1 + i] = c.at[i]
    c.at += size
    return 1 + size


cdef int utf8_more(unsigned char lead, const Cursor* c) noexcept nogil:
    """Bytes of a sequence after its first, if they are there and right (table 3-7 of the Unicode standard); else -1."""
    cdef int size = 1 if 0xC2 <= lead <= 0xDF else 2 if 0xE0 <= lead <= 0xEF else 3 if 0xF0 <= lead <= 0xF4 else -1
    cdef int i
    if size < 0 or c.end - c.at < size:
        return -1
    if lead == 0xE0 and c.at[0] < 0xA0 or lead == 0xED and c.at[0] > 0x9F or lead == 0xF0 and c.at[0] < 0x90:
        return -1
    if lead == 0xF4 and c.at[0] > 0x8F:
        return -1
    for i in range(size):
        if not 0x80 <= c.at[i] <= 0xBF:
            return -1
    return size
