# A turn of a conversation after a reply that called tools or had thoughts: these go into the history, and what answers a call
# names it.
from libc.stdint cimport uint32_t, uint8_t

from fastllmload._ext.bytes.cursor cimport Cursor
from fastllmload._ext.events.calls cimport Calls, Text

cdef enum Slot:             # what is written between the fixed bytes of a template
    SLOT_END
    SLOT_TEXT               # what was said, as the inside of a string
    SLOT_SAID               # what carries it
    SLOT_CALLS
    SLOT_ANSWERS
    SLOT_ID
    SLOT_NAME
    SLOT_ARGUMENTS          # as the inside of a string
    SLOT_OBJECT             # the same as an object
    SLOT_ANSWER             # as the inside of a string
    SLOT_SIGNATURE          # likewise, of a thought

cdef enum:
    PIECES_MOST = 6         # of a template
    NAMES_MOST = 2          # keys that a tool's name can have

cdef struct Fixed:          # bytes of a template; owned by ToolTurns.keep
    const char* at
    size_t size

cdef struct Piece:
    Fixed fixed
    uint8_t slot            # Slot, after these bytes

cdef struct Template:
    Piece[PIECES_MOST] pieces
    int count               # 0: there is no such template

cdef struct Part:           # a call, or the answer to one, as endpoint/turns.py describes it
    Template written
    Template unnamed
    Fixed id
    Fixed[NAMES_MOST] names
    Fixed inside
    Fixed[2] mark           # key, and its value with quotes

cdef struct Walk:           # over the calls of a turn, or over the answers
    const Part* part
    Cursor at               # before the next item
    bint first              # before the bracket of their list
    bint begun              # the next item that is none of them ends the walk

cdef class ToolTurns:
    # One per class of requests whose protocol has tool calls.
    cdef list keep
    cdef Template turn
    cdef Template said
    cdef Fixed silent
    cdef Template alone         # the turn of a reply without calls
    cdef Template thought
    cdef Template sealed
    cdef Template stored        # the end of a body that names the reply before
    cdef Part call
    cdef Part answer
    # A turn of *reply* and *calls*, with their thoughts, each call with an answer without content.
    cdef int add_reply(self, Text* out, const unsigned char* reply, size_t size, Calls* calls, uint32_t turn) except -1
    # *own*, messages of a turn that begins with the assistant's own, in which the reply's text goes to *hole*. True: they are
    # in *out*, with the calls that were made and the thoughts; False: they call no tool in a way that can be read.
    cdef bint add_turn(self, Text* out, const unsigned char* own, size_t own_size, size_t hole, const unsigned char* reply,
                       size_t size, Calls* calls, uint32_t turn, bint stored=*) except? False
    # *own*, to the end of its body, of a turn after a reply that the server has: answers to its calls, and its id.
    cdef int add_stored(self, Text* out, const unsigned char* own, size_t own_size, size_t hole, Calls* calls, uint32_t turn) except -1
    cdef bint _find(self, const unsigned char* own, size_t own_size, size_t hole, Walk* planned, Cursor* span,
                    Walk* answers) noexcept nogil
    cdef int _add_said(self, Text* out, const unsigned char* reply, size_t size, const Calls* thoughts) except -1
    cdef bint _has_hole(self, const unsigned char* own, size_t own_size, size_t hole) noexcept nogil
    cdef int _fixed(self, Fixed* fixed, str text) except -1
    cdef int _template(self, Template* t, str text) except -1
    cdef int _part(self, Part* part, described) except -1
