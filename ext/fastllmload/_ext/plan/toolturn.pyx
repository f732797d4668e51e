"""Turns after a reply that called tools.

A history with calls that nothing answers is refused by servers, and so is an answer to a call that was not made. So what a
plan holds for the turn is fitted to what was really called. The planned calls of the assistant's message are replaced by the
real ones, the first by the first and so on; a message of role `tool` answers the real call in the place of the planned one
that its tool_call_id names. Planned calls beyond the real ones stay, as their answers do. Real calls that no message of the
turn answers get an answer without content, after the turn's own.
"""

from libc.stdint cimport int32_t
from libc.string cimport memcmp

from fastllmload._ext.bytes.cursor cimport Cursor, over
from fastllmload._ext.bytes.jsonfind cimport json_item, json_member
from fastllmload._ext.bytes.jsonscan cimport json_skip
from fastllmload._ext.events.calls cimport Call, call_id_write, calls_write, text_add


cdef inline int upto(Text* out, const unsigned char** from_, const unsigned char* at) except -1:
    """What stands before *at* and was not written yet."""
    text_add(out, from_[0], <size_t>(at - from_[0]))
    from_[0] = at
    return 0


cdef int add_content(Text* out, const unsigned char* reply, size_t size, Calls* calls) except -1:
    """A value: null where nothing was said; Ollama knows only texts there."""
    if size == 0 and not calls.as_objects:
        return text_add(out, b"null", 4)
    text_add(out, b'"', 1)
    text_add(out, reply, size)
    return text_add(out, b'"', 1)


cdef int add_missing_answers(Text* out, Calls* calls, uint32_t turn) except -1:
    cdef uint32_t i
    for i in range(calls.count):
        if calls.items[i].answered:
            continue
        text_add(out, b',{"role":"tool"', 15)
        if calls.as_objects:
            text_add(out, b',"tool_name":"', 14)
            text_add(out, calls.items[i].name.at, calls.items[i].name.size)
            text_add(out, b'"', 1)
        if not calls.as_objects or calls.items[i].id.size:
            text_add(out, b',"tool_call_id":"', 17)
            call_id_write(calls, i, turn, out)
            text_add(out, b'"', 1)
        text_add(out, b',"content":""}', 14)
    return 0


cdef int unanswered(Calls* calls) noexcept:
    cdef uint32_t i
    for i in range(calls.count):
        calls.items[i].answered = 0
    return 0


cdef int called_reply(Text* out, bytes before, bytes behind, const unsigned char* reply, size_t size, Calls* calls,
                      uint32_t turn) except -1:
    text_add(out, <const char*>before, <size_t>len(before) - 1)     # up to the quote of the content
    add_content(out, reply, size, calls)
    text_add(out, b',"tool_calls":[', 15)
    calls_write(calls, turn, out)
    text_add(out, b"]}", 2)
    unanswered(calls)
    add_missing_answers(out, calls, turn)
    return text_add(out, <const char*>behind + 2, <size_t>len(behind) - 2)


cdef bint is_text(Cursor* value, const char* text, size_t size) noexcept nogil:
    """Whether *value* is that string; *text* has its quotes."""
    return value.at != NULL and <size_t>(value.end - value.at) == size and memcmp(value.at, text, size) == 0


cdef int32_t place_of(Cursor* planned, Cursor* name, int32_t ordinal) noexcept nogil:
    """Which of the *planned* calls has the id *name*; *ordinal* when none has, or an answer names none."""
    cdef Cursor c = planned[0]
    cdef Cursor call, id
    cdef int32_t place = 0
    while name.at != NULL and json_item(&c, place == 0, &call) == 1:
        if json_member(&call, b"id", 2, &id) and is_text(&id, <const char*>name.at, <size_t>(name.end - name.at)):
            return place
        place += 1
    return ordinal


cdef int add_calls(Text* out, Cursor* planned, Calls* calls, uint32_t turn) except -1:
    """The array: real calls, then planned ones beyond their number."""
    cdef Cursor c = planned[0]
    cdef Cursor call
    cdef uint32_t place = 0
    text_add(out, b"[", 1)
    calls_write(calls, turn, out)
    while json_item(&c, place == 0, &call) == 1:
        if place >= calls.count:
            text_add(out, b",", 1)
            text_add(out, call.at, <size_t>(call.end - call.at))
        place += 1
    return text_add(out, b"]", 1)


cdef int add_answer(Text* out, const unsigned char** from_, Cursor* message, Calls* calls, int32_t place, uint32_t turn) except -1:
    """*message* with the id and name of call *place*, where it has such."""
    cdef Cursor id, name
    cdef Call* call = &calls.items[place]
    json_member(message, b"tool_call_id", 12, &id)
    json_member(message, b"tool_name", 9, &name)
    if name.at == NULL:
        json_member(message, b"name", 4, &name)
    call.answered = 1
    if id.at != NULL and (name.at == NULL or id.at < name.at):
        add_id(out, from_, &id, calls, place, turn)
        id.at = NULL
    if name.at != NULL:
        upto(out, from_, name.at)
        text_add(out, b'"', 1)
        text_add(out, call.name.at, call.name.size)
        text_add(out, b'"', 1)
        from_[0] = name.end
    if id.at != NULL:
        add_id(out, from_, &id, calls, place, turn)
    return upto(out, from_, message.end)


cdef int add_id(Text* out, const unsigned char** from_, Cursor* id, Calls* calls, int32_t place, uint32_t turn) except -1:
    upto(out, from_, id.at)
    text_add(out, b'"', 1)
    call_id_write(calls, <uint32_t>place, turn, out)
    text_add(out, b'"', 1)
    from_[0] = id.end
    return 0


cdef bint comma(Cursor* c) noexcept nogil:
    if c.at >= c.end or c.at[0] != c',':
        return False
    c.at += 1
    return True


cdef bint next_message(Cursor* c, Cursor* message) noexcept nogil:
    """The object at *c*, which is after it then."""
    cdef Cursor nothing
    message.at = c.at
    if not json_skip(c, 1):
        return False
    message.end = c.at
    return json_member(message, b"role", 4, &nothing)


cdef bint called_turn(Text* out, const unsigned char* own, size_t own_size, size_t hole, const unsigned char* reply,
                      size_t size, Calls* calls, uint32_t turn) except? False:
    cdef Cursor c, message, planned, role, id
    cdef const unsigned char* from_ = own
    cdef int32_t place, ordinal = 0
    over(&c, own, own_size)
    if not next_message(&c, &message) or not json_member(&message, b"tool_calls", 10, &planned):
        return False
    if planned.at == NULL or planned.at < own + hole:
        return False
    unanswered(calls)
    upto(out, &from_, own + hole - 1)
    add_content(out, reply, size, calls)
    from_ = own + hole + 1
    upto(out, &from_, planned.at)
    add_calls(out, &planned, calls, turn)
    from_ = planned.end
    while True:
        upto(out, &from_, message.end)
        if not comma(&c) or not next_message(&c, &message) or not json_member(&message, b"role", 4, &role):
            break
        if not is_text(&role, b'"tool"', 6):
            break
        if not json_member(&message, b"tool_call_id", 12, &id):
            break
        place = place_of(&planned, &id, ordinal)
        ordinal += 1
        if <uint32_t>place < calls.count:
            add_answer(out, &from_, &message, calls, place, turn)
    add_missing_answers(out, calls, turn)
    text_add(out, from_, <size_t>(own + own_size - from_))
    return True
