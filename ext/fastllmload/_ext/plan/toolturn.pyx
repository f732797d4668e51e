"""Turns after a reply that called tools, in the form that the protocol's templates give them.

A history with calls that nothing answers is refused by servers, and so is an answer to a call that was not made. So what a
plan holds for the turn is fitted to what was really called. The planned calls are replaced by the real ones, the first by the
first and so on; a planned answer answers the real call in the place of the planned one whose id it has. Planned calls beyond
the real ones stay, as their answers do. Real calls that nothing in the turn answers get an answer without content, after the
turn's own. Thoughts are in front of what was said, in their order.
"""

import re

from libc.stdint cimport int32_t
from libc.stdio cimport snprintf
from libc.string cimport memcmp, memset

from fastllmload._ext.bytes.cursor cimport over
from fastllmload._ext.bytes.jsonfind cimport json_item, json_member
from fastllmload._ext.bytes.jsonscan cimport json_skip
from fastllmload._ext.events.calls cimport Call, CallList, text_add, text_free

import msgspec

cdef dict SLOTS = {
    "text": SLOT_TEXT, "said": SLOT_SAID, "calls": SLOT_CALLS, "answers": SLOT_ANSWERS, "id": SLOT_ID, "name": SLOT_NAME,
    "arguments": SLOT_ARGUMENTS, "object": SLOT_OBJECT, "answer": SLOT_ANSWER, "signature": SLOT_SIGNATURE,
}


cdef inline int add_fixed(Text* out, const Fixed* fixed) except -1:
    return text_add(out, fixed.at, fixed.size)


cdef inline int upto(Text* out, const unsigned char** from_, const unsigned char* at) except -1:
    """What stands before *at* and was not written yet."""
    text_add(out, from_[0], <size_t>(at - from_[0]))
    from_[0] = at
    return 0


# -- what was called --------------------------------------------------------------------------------------------------


cdef int add_id(Text* out, Calls* calls, uint32_t place, uint32_t turn) except -1:
    """Made up where the server gave none: nine letters and digits, because some chat templates take nothing else."""
    cdef char[32] made
    if calls.items[place].id.size:
        return text_add(out, calls.items[place].id.at, calls.items[place].id.size)
    return text_add(out, made, <size_t>snprintf(made, sizeof(made), b"c%04xp%03x", turn & 0xFFFF, place & 0xFFF))


cdef int add_escaped(Text* out, const unsigned char* at, size_t size) except -1:
    """A JSON value as the inside of a string: it holds no control character but white space between its parts."""
    cdef size_t i
    for i in range(size):
        if at[i] == c'"' or at[i] == c'\\':
            text_add(out, b"\\", 1)
            text_add(out, &at[i], 1)
        elif at[i] < 0x20:
            text_add(out, b" ", 1)
        else:
            text_add(out, &at[i], 1)
    return 0


cdef int add_object(Text* out, Call* call) except -1:
    """Arguments as the JSON that they are; in quotes where they came as another text."""
    cdef bytes text = call.arguments.at[:call.arguments.size] if call.arguments.size else b"{}"
    if not call.value and call.arguments.size:
        quoted = b'"' + text + b'"'
        try:
            text = msgspec.json.decode(quoted, type=str).encode()
            msgspec.json.decode(text, type=dict)
        except (ValueError, RecursionError):
            text = quoted
    return text_add(out, <const char*>text, <size_t>len(text))


cdef int add_part(Text* out, const Part* part, Calls* calls, uint32_t place, uint32_t turn) except -1:
    """Call *place*, or its answer without content."""
    cdef Call* call = &calls.items[place]
    cdef const Template* t = &part.unnamed if part.unnamed.count and not call.id.size else &part.written
    cdef int i
    for i in range(t.count):
        add_fixed(out, &t.pieces[i].fixed)
        if t.pieces[i].slot == SLOT_ID:
            add_id(out, calls, place, turn)
        elif t.pieces[i].slot == SLOT_NAME:
            text_add(out, call.name.at, call.name.size)
        elif t.pieces[i].slot == SLOT_OBJECT:
            add_object(out, call)
        elif t.pieces[i].slot == SLOT_ARGUMENTS and call.value:
            add_escaped(out, call.arguments.at, call.arguments.size)
        elif t.pieces[i].slot == SLOT_ARGUMENTS:
            text_add(out, call.arguments.at, call.arguments.size)
    return 0


cdef int add_parts(Text* out, const Part* part, Calls* calls, uint32_t turn) except -1:
    cdef uint32_t i
    for i in range(calls.count):
        if i:
            text_add(out, b",", 1)
        add_part(out, part, calls, i, turn)
    return 0


cdef int add_thought(Text* out, const Template* t, const Call* thought) except -1:
    cdef const Text* text
    cdef int i
    for i in range(t.count):
        add_fixed(out, &t.pieces[i].fixed)
        if t.pieces[i].slot != SLOT_END:
            text = &thought.signature if t.pieces[i].slot == SLOT_SIGNATURE else &thought.arguments
            text_add(out, text.at, text.size)
    return 0


# -- what a plan holds ------------------------------------------------------------------------------------------------


cdef inline bint member(Cursor* object, const Fixed* name, Cursor* value) noexcept nogil:
    return json_member(object, name.at, name.size, value)


cdef bint is_text(Cursor* value, const char* text, size_t size) noexcept nogil:
    """Whether *value* is that string; *text* has its quotes."""
    return value.at != NULL and <size_t>(value.end - value.at) == size and memcmp(value.at, text, size) == 0


cdef bint is_part(Cursor* item, const Part* part) noexcept nogil:
    cdef Cursor mark
    if not part.mark[0].size:
        return True
    return member(item, &part.mark[0], &mark) and is_text(&mark, part.mark[1].at, part.mark[1].size)


cdef bint next_part(Walk* walk, Cursor* item) noexcept nogil:
    """The next of them; False after the last."""
    while json_item(&walk.at, walk.first, item) == 1:
        walk.first = False
        if is_part(item, walk.part):
            walk.begun = True
            return True
        if walk.begun:
            break
    return False


cdef int span_of(Walk walk, Cursor* span) noexcept nogil:
    """From the first to the last of them, and how many; where there is none, the place after the bracket of their list."""
    cdef Cursor item
    cdef int many = 0
    span.at = span.end = walk.at.at + walk.first
    while next_part(&walk, &item):
        if not many:
            span.at = item.at
        span.end = item.end
        many += 1
    return many


cdef int32_t place_of(Walk planned, Cursor* name, int32_t ordinal) noexcept nogil:
    """Which of the *planned* calls has the id *name*; *ordinal* when none has, or an answer names none."""
    cdef Cursor call, id
    cdef int32_t place = 0
    while name.at != NULL and next_part(&planned, &call):
        if member(&call, &planned.part.id, &id) and is_text(&id, <const char*>name.at, <size_t>(name.end - name.at)):
            return place
        place += 1
    return ordinal


cdef int add_surplus(Text* out, Walk planned, uint32_t real) except -1:
    """*planned* calls beyond the number of *real* ones."""
    cdef Cursor call
    cdef uint32_t place = 0
    while next_part(&planned, &call):
        if place >= real:
            text_add(out, b",", 1)
            text_add(out, call.at, <size_t>(call.end - call.at))
        place += 1
    return 0


cdef int put_id(Text* out, const unsigned char** from_, Cursor* id, Calls* calls, uint32_t place, uint32_t turn) except -1:
    upto(out, from_, id.at)
    text_add(out, b'"', 1)
    add_id(out, calls, place, turn)
    text_add(out, b'"', 1)
    from_[0] = id.end
    return 0


cdef int add_answer(Text* out, const unsigned char** from_, Cursor* item, const Part* part, Calls* calls, uint32_t place,
                    uint32_t turn) except -1:
    """The planned answer *item* with the id and name of call *place*, where it has such."""
    cdef Cursor id, name
    cdef Call* call = &calls.items[place]
    cdef int i
    call.answered = 1
    name.at = NULL
    for i in range(NAMES_MOST):
        if name.at == NULL and part.names[i].size:
            member(item, &part.names[i], &name)
    member(item, &part.id, &id)
    if id.at != NULL and (name.at == NULL or id.at < name.at):
        put_id(out, from_, &id, calls, place, turn)
        id.at = NULL
    if name.at != NULL:
        upto(out, from_, name.at)
        text_add(out, b'"', 1)
        text_add(out, call.name.at, call.name.size)
        text_add(out, b'"', 1)
        from_[0] = name.end
    if id.at != NULL:
        put_id(out, from_, &id, calls, place, turn)
    return upto(out, from_, item.end)


cdef int unanswered(Calls* calls) noexcept:
    cdef uint32_t i
    for i in range(calls.count):
        calls.items[i].answered = 0
    return 0


cdef class ToolTurns:
    """Templates of a protocol's tool turns: the fields of `ToolTurn` in endpoint/turns.py. ValueError for an unknown slot.
    """

    def __init__(self, str turn not None, str said not None, str silent not None, call, answer, str alone="", str thought="",
                 str sealed="", str stored=""):
        self.keep = []
        self._template(&self.turn, turn)
        self._template(&self.said, said)
        self._fixed(&self.silent, silent)
        self._template(&self.alone, alone)
        self._template(&self.thought, thought)
        self._template(&self.sealed, sealed)
        self._template(&self.stored, stored)
        if self.said.count != 2 or self.said.pieces[0].slot != SLOT_TEXT:
            raise ValueError(f"{said!r} must have one slot, $text")
        self._part(&self.call, call)
        self._part(&self.answer, answer)

    cdef int _fixed(self, Fixed* fixed, str text) except -1:
        kept = text.encode()
        self.keep.append(kept)
        fixed.at = kept
        fixed.size = <size_t>len(kept)
        return 0

    cdef int _template(self, Template* t, str text) except -1:
        pieces = re.split(r"\$([a-z]+)", text) if text else []
        if len(pieces) > 2 * PIECES_MOST:
            raise ValueError(f"{text!r} has more than {PIECES_MOST - 1} slots: enlarge PIECES_MOST")
        t.count = <int>(len(pieces) + 1) // 2
        for place, piece in enumerate(pieces):
            if place % 2 == 0:
                self._fixed(&t.pieces[place // 2].fixed, piece)
            elif piece in SLOTS:
                t.pieces[place // 2].slot = <uint8_t>SLOTS[piece]
            else:
                raise ValueError(f"{text!r} has an unknown slot, ${piece}")
        return 0

    cdef int _part(self, Part* part, described) except -1:
        text, id, unnamed, names, inside, mark = described
        if len(names) > NAMES_MOST:
            raise ValueError(f"{names!r} are more than {NAMES_MOST} keys: enlarge NAMES_MOST")
        self._template(&part.written, text)
        self._template(&part.unnamed, unnamed)
        self._fixed(&part.id, id)
        self._fixed(&part.inside, inside)
        for place, name in enumerate(names):
            self._fixed(&part.names[place], name)
        if mark:
            self._fixed(&part.mark[0], mark[0])
            self._fixed(&part.mark[1], f'"{mark[1]}"')
        return 0

    cdef int _add_said(self, Text* out, const unsigned char* reply, size_t size, const Calls* thoughts) except -1:
        cdef uint32_t i
        for i in range(thoughts.count if thoughts != NULL else 0):
            add_thought(out, &self.sealed if thoughts.items[i].sealed else &self.thought, &thoughts.items[i])
        if size == 0:
            return add_fixed(out, &self.silent)
        add_fixed(out, &self.said.pieces[0].fixed)
        text_add(out, reply, size)
        return add_fixed(out, &self.said.pieces[1].fixed)

    cdef int add_reply(self, Text* out, const unsigned char* reply, size_t size, Calls* calls, uint32_t turn) except -1:
        cdef const Template* t = &self.turn if calls.count else &self.alone
        cdef int i
        for i in range(t.count):
            add_fixed(out, &t.pieces[i].fixed)
            if t.pieces[i].slot == SLOT_SAID:
                self._add_said(out, reply, size, calls.thoughts)
                out.size -= calls.count == 0            # the comma: nothing follows
            elif t.pieces[i].slot == SLOT_CALLS:
                add_parts(out, &self.call, calls, turn)
            elif t.pieces[i].slot == SLOT_ANSWERS:
                add_parts(out, &self.answer, calls, turn)
        return 0

    cdef bint _has_hole(self, const unsigned char* own, size_t own_size, size_t hole) noexcept nogil:
        """Whether what carries the reply's text is around *hole*."""
        cdef Fixed before = self.said.pieces[0].fixed
        cdef Fixed closing = self.said.pieces[1].fixed
        if hole < before.size or hole + closing.size > own_size:
            return False
        return memcmp(own + hole - before.size, before.at, before.size) == 0 and memcmp(own + hole, closing.at, closing.size) == 0

    cdef bint _find(self, const unsigned char* own, size_t own_size, size_t hole, Walk* planned, Cursor* span,
                    Walk* answers) noexcept nogil:
        """The *planned* calls of *own*, with their *span*, and the answers to them. False: there are none such."""
        cdef Cursor message
        memset(planned, 0, sizeof(Walk))
        memset(answers, 0, sizeof(Walk))
        planned.part, answers.part = &self.call, &self.answer
        over(&planned.at, own, own_size)
        message.at = own
        if not json_skip(&planned.at, 1) or not self._has_hole(own, own_size, hole):
            return False
        message.end = planned.at.at
        if self.call.inside.size:
            planned.first = True
            if not member(&message, &self.call.inside, &planned.at) or planned.at.at == NULL:
                return False
        if span_of(planned[0], span) == 0 and self.call.mark[0].size:
            return False
        if span.at < own + hole + self.said.pieces[1].fixed.size:
            return False
        answers.at.at = message.end if self.call.inside.size else span.end
        answers.at.end = own + own_size
        if self.answer.inside.size:
            answers.first = True
            if json_item(&answers.at, False, &message) != 1 or not member(&message, &self.answer.inside, &answers.at):
                return False
            return answers.at.at != NULL and span_of(answers[0], &message) > 0
        answers.begun = True
        return True

    cdef bint add_turn(self, Text* out, const unsigned char* own, size_t own_size, size_t hole, const unsigned char* reply,
                       size_t size, Calls* calls, uint32_t turn, bint stored=False) except? False:
        cdef Walk planned, answers
        cdef Cursor span, item, id
        cdef const unsigned char* from_ = own
        cdef size_t begin = out.size
        cdef int32_t place, ordinal = 0
        cdef uint32_t i
        if not (self._find(own, own_size, hole, &planned, &span, &answers) if calls.count else self._has_hole(own, own_size, hole)):
            return False
        if not stored:
            upto(out, &from_, own + hole - self.said.pieces[0].fixed.size)
            self._add_said(out, reply, size, calls.thoughts)
            from_ = own + hole + self.said.pieces[1].fixed.size
            if calls.count == 0:
                upto(out, &from_, own + own_size)
                return True
            upto(out, &from_, span.at)
            add_parts(out, &self.call, calls, turn)
        add_surplus(out, planned, calls.count)
        from_ = span.end
        upto(out, &from_, answers.at.at)
        unanswered(calls)
        while next_part(&answers, &item) and member(&item, &self.answer.id, &id):
            place = place_of(planned, &id, ordinal)
            ordinal += 1
            if <uint32_t>place < calls.count:
                add_answer(out, &from_, &item, &self.answer, calls, <uint32_t>place, turn)
            upto(out, &from_, item.end)
        for i in range(calls.count):
            if not calls.items[i].answered:
                text_add(out, b",", 1)
                add_part(out, &self.answer, calls, i, turn)
        text_add(out, from_, <size_t>(own + own_size - from_))
        if stored:
            out.at[begin] = c' '        # the comma: nothing is before it
        return True

    cdef int add_stored(self, Text* out, const unsigned char* own, size_t own_size, size_t hole, Calls* calls, uint32_t turn) except -1:
        cdef bint called = calls != NULL and calls.count
        cdef size_t after
        if not (hole and called and self.add_turn(out, own, own_size, hole, NULL, 0, calls, turn, True)):
            if called:
                add_parts(out, &self.answer, calls, turn)
                text_add(out, b",", 1)
            after = hole + self.said.pieces[1].fixed.size if hole and self._has_hole(own, own_size, hole) else 0
            text_add(out, own + after, own_size - after)
        out.size -= 1                   # the brace at the end, which the template has
        add_fixed(out, &self.stored.pieces[0].fixed)
        if calls != NULL:
            text_add(out, calls.response.at, calls.response.size)
        return add_fixed(out, &self.stored.pieces[1].fixed)

    def written(self, CallList calls not None, uint32_t turn=0) -> bytes:
        """*calls* as the history repeats them, as items of an array: for tests and previews."""
        cdef Text out
        memset(&out, 0, sizeof(out))
        try:
            if calls.calls != NULL:
                add_parts(&out, &self.call, calls.calls, turn)
            return out.at[:out.size] if out.size else b""
        finally:
            text_free(&out)
