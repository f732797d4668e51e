# cython: cdivision=True
"""Replies that call tools. The arguments of a call have what JSON inside a JSON string can hold: quotes, line ends, backslashes,
characters of two bytes.
"""

import msgspec

from libc.stdint cimport uint64_t

from fastllmload._ext.sim.sequence cimport DRAW_WORD, draw
from fastllmload._ext.simbody.form cimport (
    AT_CALL_ENTRY, AT_OPENING, AT_TOKEN, BLOCK_CALL, BLOCK_NONE, WORD, WORDS, Piece, has,
)
from fastllmload._ext.simbody.template cimport NUMBER_CALL

cdef enum:
    WHOLE = 5                   # tokens that the arguments of a call have that is one event

# After the words of the arguments' text, in turn; JSON inside of JSON.
SPICE = ("", '\\"', "\\n", "é", "\\\\", "\\u00fc", "/")


cdef uint8_t* put_call(Form form, uint8_t* out, Stamp* s, int64_t index, int64_t tokens, uint32_t calls) except NULL:
    cdef bint in_pieces = has(form, AT_OPENING + BLOCK_CALL)
    cdef int64_t many = min(<int64_t>calls, tokens) if in_pieces else calls
    cdef int64_t number = index * many // tokens if in_pieces else index
    cdef int place = AT_TOKEN + BLOCK_CALL
    cdef Piece word
    if number >= many:
        word = WORD[draw(s.id, <uint64_t>index, DRAW_WORD) % WORDS]
        return form.content(out, s, word.at, word.size)
    if in_pieces:
        first, behind = block(number, tokens, many)
        text = msgspec.json.encode(pieces(s.id, number, behind - first)[index - first])
        if index == first:
            place = AT_OPENING + BLOCK_CALL
            out = form.enter(out, s, BLOCK_NONE)
            s.block = BLOCK_CALL
    else:
        text = whole_text(form, s.id, number, WHOLE)
    s.number[NUMBER_CALL] = number
    return form.events(place, out, s, <const uint8_t*><const char*>text, <size_t>len(text))


cdef bytes listed_calls(Form form, Stamp* s, int64_t tokens, uint32_t calls):
    cdef bytearray entry
    cdef uint8_t* end
    many = min(<int64_t>calls, tokens)
    entries = []
    for number in range(many):
        first, behind = block(number, tokens, many)
        text = whole_text(form, s.id, number, behind - first if has(form, AT_OPENING + BLOCK_CALL) else WHOLE)
        entry = bytearray(form.room + <size_t>len(text))
        s.number[NUMBER_CALL] = number
        end = form.plain(AT_CALL_ENTRY, <uint8_t*><char*>entry, s, <const uint8_t*><const char*>text, <size_t>len(text))
        entries.append(bytes(entry[: end - <uint8_t*><char*>entry]))
    return b",".join(entries)


cdef bytes whole_text(Form form, uint64_t reply, int64_t number, int64_t count):
    text = arguments(reply, number, count)
    return msgspec.json.encode(msgspec.json.decode(text) if form.api.object_arguments else text)


def block(number: int, tokens: int, calls: int) -> tuple[int, int]:
    """The tokens that call *number* is made of, from and up to."""
    return -(-number * tokens // calls), -(-(number + 1) * tokens // calls)


def pieces(reply: int, number: int, count: int) -> list[str]:
    """*count* pieces that make a call's arguments; the first goes with its name and is empty if others follow."""
    if count < 3:
        return ["{}"] if count == 1 else ["", "{}"]
    texts = [word(reply, number * 65536 + i) + SPICE[i % len(SPICE)] for i in range(count - 2)]
    texts[0] = '{"text":"' + texts[0]
    return ["", *texts, '"}']


cdef str word(uint64_t reply, uint64_t place):
    cdef Piece piece = WORD[draw(reply, place, DRAW_WORD) % WORDS]
    return (<const char*>piece.at)[:piece.size].decode()


def arguments(reply: int, number: int, count: int) -> str:
    """A call's arguments of *count* tokens: JSON."""
    return "".join(pieces(reply, number, count))
