# cython: cdivision=True
"""Events of replies that call tools."""

import msgspec

from libc.stdint cimport uint64_t

from fastllmload._ext.sim.sequence cimport DRAW_WORD, draw
from fastllmload._ext.simbody.form cimport (
    AT_OPENING, AT_TOKEN, BLOCK_CALL, BLOCK_NONE, CALL_WHOLE, WORD, WORDS, Piece, has, whole_text,
)
from fastllmload._ext.simbody.template cimport NUMBER_CALL

from fastllmload._ext.simbody.form import block, pieces


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
        first, past = block(number, tokens, many)
        text = msgspec.json.encode(pieces(s.id, number, past - first)[index - first])
        if index == first:
            place = AT_OPENING + BLOCK_CALL
            out = form.enter(out, s, BLOCK_NONE)
            s.block = BLOCK_CALL
    else:
        text = whole_text(form, s.id, number, CALL_WHOLE)
    s.number[NUMBER_CALL] = number
    return form.events(place, out, s, <const uint8_t*><const char*>text, <size_t>len(text))
