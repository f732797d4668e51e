"""Tool calls of one reply.

A streamed call comes in fragments: the first has its id and name, all of them pieces of its arguments, and `index` says
whose they are. Rules for what servers also do: a fragment without an index continues the latest call unless it has
an id of its own or a name; another id under the same index is another call; an id or a name that is said again is not added
twice; every call of a whole message, and each of Ollama's, is one of its own. What was streamed is the inside of JSON
strings, so pieces are joined as they came. Arguments that are an object go back as one to Ollama, and as its text to others,
whose requests know only texts.

What the C walk below cannot read (an escape in a name, half a surrogate pair) is read by msgspec, written again and walked
again. Only events that say something of calls come here, and only of replies that another turn repeats.
"""

from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy, memmove, memset

from fastllmload._ext.bytes.carry cimport carry_reset
from fastllmload._ext.bytes.cursor cimport over
from fastllmload._ext.bytes.jsonfind cimport json_item, json_member
from fastllmload._ext.bytes.jsonscan cimport StringSpan, json_count, json_string, json_take

cdef struct Fragment:           # what one entry of tool_calls says; at is NULL for what it does not
    bint has_index
    int32_t index
    StringSpan id
    StringSpan name
    StringSpan arguments
    bint value                  # *arguments* is a JSON value


cdef void text_reset(Text* t) noexcept nogil:
    carry_reset(&t.at, &t.size, &t.cap)


cdef void calls_clear(Calls* calls) noexcept nogil:
    cdef uint32_t i
    for i in range(calls.count):
        text_reset(&calls.items[i].id)
        text_reset(&calls.items[i].name)
        text_reset(&calls.items[i].arguments)
        calls.items[i].value = 0
    calls.count = 0


cdef void calls_free(Calls* calls) noexcept nogil:
    cdef uint32_t i
    if calls == NULL:
        return
    for i in range(calls.cap):
        text_free(&calls.items[i].id)
        text_free(&calls.items[i].name)
        text_free(&calls.items[i].arguments)
    free(calls.items)
    free(calls)


cdef bint text_is(Text* t, StringSpan* body) noexcept nogil:
    return t.size == body.size and memcmp(t.at, body.at, t.size) == 0


cdef Call* add_call(Calls* calls, int32_t index) except NULL:
    """A new one behind all whose index is not higher."""
    cdef uint32_t place = calls.count
    cdef uint32_t cap = calls.cap * 2 if calls.cap else 4
    cdef Call* grown
    cdef Call spare
    if calls.count == calls.cap:
        grown = <Call*>realloc(calls.items, cap * sizeof(Call))
        if grown == NULL:
            raise MemoryError(f"{cap} tool calls")
        memset(&grown[calls.cap], 0, (cap - calls.cap) * sizeof(Call))
        calls.items, calls.cap = grown, cap
    while place and calls.items[place - 1].index > index:
        place -= 1
    memcpy(&spare, &calls.items[calls.count], sizeof(Call))
    memmove(&calls.items[place + 1], &calls.items[place], (calls.count - place) * sizeof(Call))
    memcpy(&calls.items[place], &spare, sizeof(Call))
    calls.count += 1
    calls.items[place].index = index
    return &calls.items[place]


cdef Call* call_of(Calls* calls, Fragment* f, bint alone) except NULL:
    """Whose fragment it is; *alone*: every entry is a call of its own."""
    cdef Call* call = NULL
    cdef uint32_t i = calls.count
    cdef int32_t behind = calls.items[calls.count - 1].index + 1 if calls.count else 0
    if alone or (not f.has_index and not calls.count):
        return add_call(calls, behind)
    if not f.has_index:
        call = &calls.items[calls.count - 1]
        return add_call(calls, behind) if (f.id.size and not text_is(&call.id, &f.id)) or (f.name.size and not f.id.size) else call
    while i:
        i -= 1
        if calls.items[i].index == f.index:
            call = &calls.items[i]
            break
    if call == NULL or (f.id.size and call.id.size and not text_is(&call.id, &f.id)):
        return add_call(calls, f.index)
    return call


cdef int note(Calls* calls, Fragment* f, bint alone) except -1:
    cdef Call* call = call_of(calls, f, alone)
    if f.id.size and not call.id.size:
        text_add(&call.id, f.id.at, f.id.size)
    if f.name.size and not text_is(&call.name, &f.name):
        text_add(&call.name, f.name.at, f.name.size)
    if f.arguments.size:
        call.value |= f.value
        text_add(&call.arguments, f.arguments.at, f.arguments.size)
    return 0


cdef bint text_member(Cursor* object, const char* name, size_t size, StringSpan* body) noexcept nogil:
    """Its inside; size 0 where it is not a text."""
    cdef Cursor value
    memset(body, 0, sizeof(StringSpan))
    if not json_member(object, name, size, &value):
        return False
    return value.at == NULL or not json_take(&value, c'"') or json_string(&value, body)


cdef bint read_fragment(Cursor* entry, Fragment* f) noexcept nogil:
    cdef Cursor value, function
    memset(f, 0, sizeof(Fragment))
    if not json_member(entry, b"index", 5, &value) or not text_member(entry, b"id", 2, &f.id):
        return False
    f.has_index = value.at != NULL and json_count(&value, &f.index)
    if not json_member(entry, b"function", 8, &function):
        return False
    if function.at == NULL:
        return True
    if not text_member(&function, b"name", 4, &f.name) or not json_member(&function, b"arguments", 9, &value):
        return False
    if value.at != NULL and value.at[0] == c'"':
        return text_member(&function, b"arguments", 9, &f.arguments)
    f.value = value.at != NULL
    f.arguments.at = value.at
    f.arguments.size = <size_t>(value.end - value.at)
    return True


cdef int choice_of(Cursor* choices, Cursor* found) noexcept nogil:
    """The first item whose index is 0, or not said. 0: there is none; -1: unreadable."""
    cdef Cursor index
    cdef int32_t number = 0
    cdef int step
    cdef bint first = True
    while True:
        step = json_item(choices, first, found)
        if step != 1:
            return step
        first = False
        if not json_member(found, b"index", 5, &index):
            return -1
        if index.at == NULL or (json_count(&index, &number) and number == 0):
            return 1


cdef bint list_of(Cursor* event, const DialectTable* d, bint whole, Cursor* entries) noexcept nogil:
    """The list of tool calls; at is NULL where there is none. False: unreadable."""
    cdef Cursor place = event[0]
    cdef Cursor choices
    cdef int i, found
    entries.at = NULL
    for i in range(d.step_count[whole]):
        if not json_member(&place, <const char*>d.steps[whole][i].name, d.steps[whole][i].size, entries):
            return False
        if entries.at == NULL:
            return True
        if d.steps[whole][i].choices:
            choices = entries[0]
            entries.at = NULL
            found = choice_of(&choices, &place)
            if found != 1:
                return found == 0
        else:
            place = entries[0]
    return True


cdef bint readable(Cursor* entries) noexcept nogil:
    """The whole list, before any of it is noted: an event is read once or not at all."""
    cdef Cursor c = entries[0]
    cdef Cursor entry
    cdef Fragment f
    cdef int step = 1
    cdef bint first = True
    while step == 1:
        step = json_item(&c, first, &entry)
        first = False
        if step == 1 and not read_fragment(&entry, &f):
            return False
    return step == 0


cdef class CallReader:
    """Reads events for the tool calls in them."""

    def __cinit__(self):
        self._tree = EventTree()

    cdef int read(self, Calls** calls, const unsigned char* data, size_t size, const DialectTable* d, bint whole) except -1:
        cdef Cursor event, entries
        cdef bytes anew
        over(&event, data, size)
        if calls[0] == NULL:
            calls[0] = <Calls*>calloc(1, sizeof(Calls))
            if calls[0] == NULL:
                raise MemoryError("tool calls")
        calls[0].as_objects = d.object_arguments
        if not (list_of(&event, d, whole, &entries) and (entries.at == NULL or readable(&entries))):
            anew = self._tree.anew(data, size)
            over(&event, anew, <size_t>len(anew))
            if not (list_of(&event, d, whole, &entries) and (entries.at == NULL or readable(&entries))):
                return 0            # the classifier has found no call in it either, or it is nested beyond use
        return note_all(calls[0], &entries, whole or not d.fragments)


cdef int note_all(Calls* calls, Cursor* entries, bint alone) except -1:
    cdef Cursor entry
    cdef Fragment f
    cdef bint first = True
    while entries.at != NULL and json_item(entries, first, &entry) == 1:
        first = False
        read_fragment(&entry, &f)
        note(calls, &f, alone)
    return 0


# -- as they are repeated ---------------------------------------------------------------------------------------------


cdef int call_id_write(Calls* calls, uint32_t place, uint32_t turn, Text* out) except -1:
    # Nine letters and digits: some chat templates take nothing else.
    cdef char[32] made
    if calls.items[place].id.size:
        return text_add(out, calls.items[place].id.at, calls.items[place].id.size)
    return text_add(out, made, <size_t>snprintf(made, sizeof(made), b"c%04xp%03x", turn & 0xFFFF, place & 0xFFF))


cdef int calls_write(Calls* calls, uint32_t turn, Text* out) except -1:
    cdef uint32_t i
    cdef Call* call
    for i in range(calls.count):
        call = &calls.items[i]
        text_add(out, b",{" if i else b"{", 2 if i else 1)
        if not calls.as_objects:
            text_add(out, b'"id":"', 6)
            call_id_write(calls, i, turn, out)
            text_add(out, b'","type":"function",', 20)
        elif call.id.size:
            text_add(out, b'"id":"', 6)
            text_add(out, call.id.at, call.id.size)
            text_add(out, b'",', 2)
        text_add(out, b'"function":{"name":"', 20)
        text_add(out, call.name.at, call.name.size)
        text_add(out, b'","arguments":', 14)
        arguments_write(call, calls.as_objects, out)
        text_add(out, b"}}", 2)
    return 0


cdef int arguments_write(Call* call, bint as_object, Text* out) except -1:
    if as_object and call.value:
        return text_add(out, call.arguments.at, call.arguments.size)
    if as_object and not call.arguments.size:
        return text_add(out, b"{}", 2)
    text_add(out, b'"', 1)
    if call.value:
        escaped_write(call.arguments.at, call.arguments.size, out)
    else:
        text_add(out, call.arguments.at, call.arguments.size)
    return text_add(out, b'"', 1)


cdef int escaped_write(const unsigned char* at, size_t size, Text* out) except -1:
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


cdef class CallList:
    """Calls of one reply, for tests and previews: of the events of *dialect*, or of its *whole* answers."""

    def __init__(self, Dialect dialect not None, bint whole=False):
        if not dialect.table.step_count[whole]:
            raise ValueError("answers of this dialect carry no tool calls")
        self.dialect = dialect
        self.whole = whole
        self.reader = CallReader()

    def __dealloc__(self):
        calls_free(self.calls)

    def read(self, bytes event not None) -> None:
        """Add what *event* says of calls."""
        self.reader.read(&self.calls, event, <size_t>len(event), &self.dialect.table, self.whole)

    def clear(self) -> None:
        """The next event is of another reply."""
        if self.calls != NULL:
            calls_clear(self.calls)

    def written(self, uint32_t turn=0) -> bytes:
        """The array tool_calls of the assistant's message that repeats them."""
        cdef Text out
        memset(&out, 0, sizeof(out))
        try:
            text_add(&out, b"[", 1)
            if self.calls != NULL:
                calls_write(self.calls, turn, &out)
            text_add(&out, b"]", 1)
            return out.at[:out.size]
        finally:
            text_free(&out)
