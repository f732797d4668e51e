# cython: cdivision=True
"""Messages of gRPC from templates: JSON with the names of a Schema's fields, compiled into pieces of protobuf and the slots between.

What has its size before it (a message, a packed list, a text with slots) begins with SLOT_OPEN and ends with SLOT_CLOSE. There is
room for a size of one byte; what is longer moves up when it ends. A number that is 0 is left out, as protobuf has it.
"""

import re

import msgspec

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove

from fastllmload._ext.bytes.protobuf cimport WIRE_SIZED, WIRE_VARINT
from fastllmload._ext.bytes.schema cimport BOOL, INTEGER, MAP, MESSAGE, PREFIX, SCHEMA_DEPTH, TEXT
from fastllmload._ext.simbody.form cimport AT_DOCUMENT, AT_FINISH, AT_USAGE, Stamp, Step, id_of, put, put_prefix, put_words
from fastllmload._ext.simbody.template cimport (
    NOWHERE, NUMBER_CACHED, NUMBER_COMPLETION, NUMBER_PROMPT, NUMBER_SEQUENCE, NUMBERS, SLOT_CLOSE, SLOT_IDS,
    SLOT_NONE, SLOT_OPEN, SLOT_RAW, SLOT_REQUEST_ID, SLOT_TEXT, SLOT_TOKENS, SLOT_TOTAL, SLOT_UNCACHED, SLOT_WHOLE_IDS,
    SLOT_WHOLE_TEXT, VARIANTS,
)

from fastllmload._ext.bytes.schema import with_prefix
from fastllmload._ext.simbody.template import filled, slots

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\$[a-z_]+')
_SLOT = re.compile(r"\$([a-z_]+)")
ctypedef uint8_t* Place


cdef class MessageForm(Form):
    """*api* has the Schema of its replies."""

    def __init__(self, api: object, model: str, chunk_bytes: int = 0):
        super().__init__(api, model, 0)
        self.blank = b"\n\n"
        self.calls = True
        self.texts = "text" in str(api.content)
        self.broken_line = b"\x0a\x7f\x0a\x02"      # field 1 with 127 bytes, of which two are there
        self.huge_open = b""

    def error(self, status: int, kind: str = "", message: str = "simulated failure") -> bytes:
        """A message that says an error; none where only the status says it."""
        return with_prefix(self.api.reply.encode(filled(self.api.error, {"message": message}))) if self.api.error else b""

    cdef int compile(self, int place, list events, dict fixed) except -1:
        cdef size_t* growth = &self.text_room if place >= AT_DOCUMENT and place < AT_USAGE else &self.growth
        cdef size_t most = self.program(&self.programs[place][0], [self.steps(event, fixed) for event in events], growth)
        cdef int variant
        for variant in range(1, VARIANTS):
            self.programs[place][variant] = self.programs[place][0]
        if place < AT_FINISH:
            self.token_room += most
        else:
            self.room += most
        return 0

    def steps(self, event: str, fixed: dict[str, bytes]) -> list[tuple[bytes, list[int], int, bool]]:
        """Of a template, as `parsed` gives them of JSON."""
        text = _SLOT.sub(lambda slot: fixed[slot[1]].decode() if slot[1] in fixed else slot[0], event)
        said = msgspec.json.decode(_TOKEN.sub(lambda one: one[0] if one[0][0] == '"' else f'"{one[0]}"', text))
        found = [(b"", SLOT_NONE, False)]
        for part in fields(self.api.reply.tree, said):
            piece, slot, optional = found[-1]
            if isinstance(part, bytes):
                if slot == SLOT_NONE:
                    found[-1] = (piece + part, slot, optional)
                else:
                    found.append((part, SLOT_NONE, False))
                continue
            tag, slot, optional = part
            if found[-1][1] != SLOT_NONE or optional:
                found.append((tag, slot, optional))
            else:
                found[-1] = (found[-1][0] + tag, slot, optional)
        kept = [one for one in found if one[0] or one[1] != SLOT_NONE] or found
        return [(piece, [NOWHERE] * 3, slot, optional) for piece, slot, optional in kept]

    cdef uint8_t* events(self, int place, uint8_t* out, Stamp* s, const uint8_t* text, size_t size) noexcept:
        cdef const Step* step = self.programs[place][0].steps
        cdef const Step* end = step + self.programs[place][0].count
        cdef Place[SCHEMA_DEPTH] open
        cdef uint8_t* start = NULL
        cdef int64_t value
        cdef int depth = 0
        while step < end:
            if start == NULL:
                start = out
                out += PREFIX
            if step.optional:
                value = number_of(s, step.slot)
                if value > 0:
                    out = put_varint(put(out, step.piece.at, step.piece.size), <uint64_t>value)
            else:
                out = put(out, step.piece.at, step.piece.size)
                if step.slot == SLOT_OPEN:
                    open[depth] = out
                    depth += 1
                    out += 1
                elif step.slot == SLOT_CLOSE:
                    depth -= 1
                    out = sized_before(open[depth], out)
                elif step.slot == SLOT_TEXT:
                    out = put(out, text, size)
                elif step.slot != SLOT_NONE:
                    out = put_slot(step.slot, out, s, text, size)
            if step.last:
                put_prefix(start, <uint64_t>(out - start - PREFIX))
                start = NULL
                s.number[NUMBER_SEQUENCE] += 1
            step += 1
        return out

    cdef uint8_t* plain(self, int place, uint8_t* out, Stamp* s, const uint8_t* text, size_t size) noexcept:
        return self.events(place, out, s, text, size)


cdef inline int64_t number_of(Stamp* s, int slot) noexcept nogil:
    if slot < NUMBERS:
        return s.number[slot]
    if slot == SLOT_TOTAL:
        return s.number[NUMBER_PROMPT] + s.number[NUMBER_COMPLETION]
    if slot == SLOT_UNCACHED:
        return s.number[NUMBER_PROMPT] - s.number[NUMBER_CACHED]
    return s.tokens


cdef inline uint8_t* put_varint(uint8_t* out, uint64_t value) noexcept nogil:
    while value >= 0x80:
        out[0] = <uint8_t>(value | 0x80)
        out += 1
        value >>= 7
    out[0] = <uint8_t>value
    return out + 1


cdef inline uint8_t* sized_before(uint8_t* start, uint8_t* end) noexcept nogil:
    # The size of what follows *start*, where there is room for one byte.
    cdef size_t size = <size_t>(end - start) - 1
    cdef int more = 0
    while size >> 7 * (more + 1):
        more += 1
    if more:
        memmove(start + 1 + more, start + 1, size)
    put_varint(start, size)
    return end + more


cdef uint8_t* put_ids(uint8_t* out, Stamp* s, int64_t first) noexcept nogil:
    cdef int64_t token
    for token in range(max(first, <int64_t>0), s.number[NUMBER_COMPLETION]):
        out = put_varint(out, <uint64_t>id_of(s, token))
    return out


cdef uint8_t* put_slot(int slot, uint8_t* out, Stamp* s, const uint8_t* text, size_t size) noexcept nogil:
    cdef uint8_t* start = out
    cdef uint32_t number
    if slot == SLOT_IDS:
        return put_ids(out, s, s.number[NUMBER_COMPLETION] - s.tokens)
    if slot == SLOT_WHOLE_IDS:
        return put_ids(out, s, s.first)
    if slot == SLOT_REQUEST_ID:
        return put(out, s.asked, s.asked_size)
    if slot == SLOT_WHOLE_TEXT:
        return put_words(out, s, s.first, s.number[NUMBER_COMPLETION])
    if not slot & SLOT_RAW:
        return put_varint(out, <uint64_t>max(number_of(s, slot), <int64_t>0))
    if slot == SLOT_RAW + SLOT_TEXT:
        out = put(out + 4, text, size)
    elif slot == SLOT_RAW + SLOT_WHOLE_TEXT:
        out = put_words(out + 4, s, s.first, s.number[NUMBER_COMPLETION])
    else:
        out += 4
    number = <uint32_t>(out - start - 4) if out > start + 4 or is_text(slot) else <uint32_t>max(number_of(s, slot - SLOT_RAW), <int64_t>0)
    memcpy(start, &number, 4)           # little-endian, as all hosts that this runs on
    return out


cdef inline bint is_text(int slot) noexcept nogil:
    return slot == SLOT_RAW + SLOT_TEXT or slot == SLOT_RAW + SLOT_WHOLE_TEXT


# -- compiling: the fields of a message as bytes, and (bytes before it, slot, whether it is left out at 0) ---------------

OPEN = (b"", SLOT_OPEN, False)
CLOSE = (b"", SLOT_CLOSE, False)


def fields(tree: dict, said: dict) -> list:
    found = []
    for name, value in said.items():
        number, kind, inside = tree[name]
        sized_tag, whole_tag = varint(number << 3 | WIRE_SIZED), varint(number << 3 | WIRE_VARINT)
        if kind == MAP:
            for key, each in value.items():
                found += [sized_tag, *within([varint(1 << 3 | WIRE_SIZED), *within([key.encode()]), varint(2 << 3 | WIRE_SIZED),
                                              *within(fields(inside, each))])]
        elif kind == MESSAGE:
            for each in value if isinstance(value, list) else [value]:
                found += [sized_tag, *within(fields(inside, each))]
        elif kind == TEXT:
            for each in value if isinstance(value, list) else [value]:
                found += [sized_tag, *within(text_parts(each))]
        elif isinstance(value, list):
            found += [sized_tag, *within([(b"", slots()[each[1:]], False) if isinstance(each, str) else varint(each) for each in value])]
        elif isinstance(value, str):
            found.append((whole_tag, slots()[value[1:]], True))
        elif kind != BOOL and kind != INTEGER:
            raise ValueError(f"the template has a number in {name}, which is not an integer")
        elif value:
            found.append(whole_tag + varint(int(value)))
    return found


def text_parts(text: str) -> list:
    parts = _SLOT.split(text)
    return [(b"", slots()[part], False) if number % 2 else part.encode() for number, part in enumerate(parts) if part]


def within(parts: list) -> list:
    """*parts* with their size before them."""
    if all(isinstance(part, bytes) for part in parts):
        return [varint(sum(map(len, parts))) + b"".join(parts)]
    return [OPEN, *parts, CLOSE]


def varint(value: int) -> bytes:
    made = bytearray()
    while value >= 0x80:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)
