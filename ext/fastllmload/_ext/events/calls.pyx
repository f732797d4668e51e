"""Tool calls and thoughts of one reply.

A streamed call comes in fragments: the first has its id and name, all of them pieces of its arguments, and an index or a key
says whose they are. A fragment is an item of the dialect's list of calls; where it has no such list, the event itself, and
each item of a list of parts. Rules for what servers also do: a fragment without an index continues the latest call unless it
has an id of its own or a name; another id under the same index is another call; an id or a name that is said again is not
added twice; every call of a whole message, and each of Ollama's, is one of its own. What was streamed is the inside of JSON
strings, so pieces are joined as they came. How they go back is the request's form (plan/toolturn.pyx). Thoughts, where the
dialect says that a later request repeats them (SIGNATURE), come in the same way and are a list of their own. The id of the
reply is kept where a later request may name it.

What the C walk below cannot read (an escape in a name, half a surrogate pair) is read by msgspec, written again and walked
again. Only events that say something of these come here, and only of replies that another turn repeats.
"""

from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy, memmove, memset

from fastllmload._ext.bytes.carry cimport carry_reset
from fastllmload._ext.bytes.cursor cimport over
from fastllmload._ext.bytes.jsonfind cimport json_member
from fastllmload._ext.bytes.jsonscan cimport StringSpan, json_blanks, json_count, json_peek, json_skip, json_string, json_take
from fastllmload._ext.events.dialect cimport (
    ARGUMENTS, CALL_ID, CALL_INDEX, CALL_KEY, CALLS, CALLS_EVENT, CALLS_NONE, CHOICES, INDEX, NAME, NODE_KEYS_MOST, OBJECT, PARTS,
    REASONING, RESPONSE_ID, SEALED, SIGNATURE, TABLE, Key, Variant, key_of,
)
from fastllmload._ext.events.facts cimport variant_of
from fastllmload._ext.system.static_assert cimport FLL_STATIC_ASSERT

cdef struct Fragment:           # what a piece of a call says; sizes are 0 for what it does not
    bint has_index
    int32_t index
    StringSpan key
    StringSpan id
    StringSpan name
    StringSpan arguments
    StringSpan signature
    bint value                  # *arguments* is a JSON value
    bint thought                # a piece of a thought
    bint sealed

cdef struct Walk:               # through one event
    const DialectTable* d
    Calls* calls                # what is found is added here; NULL: the event is only tried
    bint of_event               # CALLS_EVENT
    bint alone                  # every fragment is a call of its own
    bint no_memory              # a call was left out


cdef void text_reset(Text* t) noexcept nogil:
    carry_reset(&t.at, &t.size, &t.cap)


cdef void calls_clear(Calls* calls) noexcept nogil:
    cdef uint32_t i
    for i in range(calls.count):
        text_reset(&calls.items[i].key)
        text_reset(&calls.items[i].id)
        text_reset(&calls.items[i].name)
        text_reset(&calls.items[i].arguments)
        text_reset(&calls.items[i].signature)
        calls.items[i].value = calls.items[i].sealed = 0
    calls.count = 0
    text_reset(&calls.response)
    if calls.thoughts != NULL:
        calls_clear(calls.thoughts)


cdef void calls_free(Calls* calls) noexcept nogil:
    cdef uint32_t i
    if calls == NULL:
        return
    for i in range(calls.cap):
        text_free(&calls.items[i].key)
        text_free(&calls.items[i].id)
        text_free(&calls.items[i].name)
        text_free(&calls.items[i].arguments)
        text_free(&calls.items[i].signature)
    calls_free(calls.thoughts)
    text_free(&calls.response)
    free(calls.items)
    free(calls)


cdef bint text_is(Text* t, StringSpan* body) noexcept nogil:
    return t.size == body.size and memcmp(t.at, body.at, t.size) == 0


cdef Call* add_call(Calls* calls, int32_t index) noexcept nogil:
    """A new one after all whose index is not higher; NULL: no memory."""
    cdef uint32_t place = calls.count
    cdef uint32_t cap = calls.cap * 2 if calls.cap else 4
    cdef Call* grown
    cdef Call spare
    if calls.count == calls.cap:
        grown = <Call*>realloc(calls.items, cap * sizeof(Call))
        if grown == NULL:
            return NULL
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


cdef Call* call_of(Calls* calls, Fragment* f, bint alone) noexcept nogil:
    """Whose fragment it is; *alone*: every entry is a call of its own. NULL: no memory."""
    cdef Call* call = NULL
    cdef uint32_t i = calls.count
    cdef int32_t next_index = calls.items[calls.count - 1].index + 1 if calls.count else 0
    if alone or (not f.has_index and not calls.count):
        return add_call(calls, next_index)
    while f.key.size and i:
        i -= 1
        if text_is(&calls.items[i].key, &f.key):
            return &calls.items[i]
    i = calls.count
    if not f.has_index:
        call = &calls.items[calls.count - 1]
        return add_call(calls, next_index) if (f.id.size and not text_is(&call.id, &f.id)) or (f.name.size and not f.id.size) else call
    while i:
        i -= 1
        if calls.items[i].index == f.index:
            call = &calls.items[i]
            break
    if call == NULL or (f.id.size and call.id.size and not text_is(&call.id, &f.id)):
        return add_call(calls, f.index)
    return call


cdef inline bint text_grows(Text* t, StringSpan* body) noexcept nogil:
    return body.size == 0 or carry_add(&t.at, &t.size, &t.cap, body.at, body.size) >= 0


cdef bint note(Calls* calls, Fragment* f, bint alone) noexcept nogil:
    """False: no memory."""
    cdef Call* call
    if f.thought and calls.thoughts == NULL:
        calls.thoughts = <Calls*>calloc(1, sizeof(Calls))
        if calls.thoughts == NULL:
            return False
    call = call_of(calls.thoughts if f.thought else calls, f, alone)
    if call == NULL:
        return False
    if not call.key.size and not text_grows(&call.key, &f.key):
        return False
    if not call.id.size and not text_grows(&call.id, &f.id):
        return False
    if not text_is(&call.name, &f.name) and not text_grows(&call.name, &f.name):
        return False
    if f.signature.size:
        text_reset(&call.signature)     # the last one counts
        if not text_grows(&call.signature, &f.signature):
            return False
    call.sealed |= f.sealed
    call.value |= f.value and f.arguments.size > 0
    return text_grows(&call.arguments, &f.arguments)


# -- one event, by the tables of its dialect: False where msgspec has to write it again -----------------------------------


cdef bint object_said(Walk* w, Cursor* c, int node, int depth, Fragment* f) noexcept nogil:
    """What an object says of the call that *f* is a piece of, and of those in its lists."""
    cdef StringSpan name
    cdef uint64_t seen = 0
    cdef const Key* key
    cdef const Variant* variant
    FLL_STATIC_ASSERT(NODE_KEYS_MOST <= 8 * sizeof(seen))
    if not json_take(c, c'{'):
        return json_skip(c, depth)      # of another type: it says nothing
    if w.d.nodes[node].type_key != NULL:
        if not variant_of(w.d, c, node, depth, &variant):
            return False
        node = node if variant == NULL else variant.node
    if json_take(c, c'}'):
        return True
    while True:
        if not (json_take(c, c'"') and json_string(c, &name) and json_take(c, c':')) or name.escaped:
            return False
        key = key_of(&w.d.keys[w.d.nodes[node].first], w.d.nodes[node].count, &name)
        if key == NULL:
            if not json_skip(c, depth):
                return False
        elif seen >> key.bit & 1 or not value_said(w, c, key, depth, f):
            return False
        else:
            seen |= <uint64_t>1 << key.bit
        if json_take(c, c'}'):
            return True
        if not json_take(c, c','):
            return False


cdef bint value_said(Walk* w, Cursor* c, const Key* key, int depth, Fragment* f) noexcept nogil:
    if key.field == OBJECT or key.field == TABLE:
        json_blanks(c)
        return object_said(w, c, key.child, depth + 1, f)
    if key.field == CALLS or key.field == PARTS:
        return list_said(w, c, key, depth)
    if key.field == CHOICES:
        return choices_said(w, c, key, depth, f)
    if key.field == CALL_INDEX:
        return index_said(c, depth, f)
    if key.field == CALL_KEY:
        return text_said(c, depth, &f.key)
    if key.field == CALL_ID:
        return text_said(c, depth, &f.id)
    if key.field == SIGNATURE:
        f.thought = True
        return text_said(c, depth, &f.signature)
    if key.field == SEALED or (key.field == REASONING and w.d.thoughts):
        f.thought = True
        f.sealed = key.field == SEALED
        return text_said(c, depth, &f.arguments)
    if key.field == NAME:
        return text_said(c, depth, &f.name)
    if key.field == RESPONSE_ID:
        return response_said(w, c, depth)
    if key.field == ARGUMENTS:
        f.value = json_peek(c) != c'"' and json_peek(c) != c'n'
        return value_span(c, depth, &f.arguments) if f.value else text_said(c, depth, &f.arguments)
    return json_skip(c, depth)


cdef bint index_said(Cursor* c, int depth, Fragment* f) noexcept nogil:
    cdef Cursor at = c[0]
    f.has_index = json_count(&at, &f.index)
    return json_skip(c, depth)


cdef bint response_said(Walk* w, Cursor* c, int depth) noexcept nogil:
    cdef StringSpan id = StringSpan(NULL, 0, False)
    if not text_said(c, depth, &id):
        return False
    if w.calls != NULL and id.size:
        text_reset(&w.calls.response)
        w.no_memory |= not text_grows(&w.calls.response, &id)
    return True


cdef bint text_said(Cursor* c, int depth, StringSpan* body) noexcept nogil:
    """The inside of a string; of another type it is as if absent."""
    return json_string(c, body) if json_take(c, c'"') else json_skip(c, depth)


cdef bint value_span(Cursor* c, int depth, StringSpan* body) noexcept nogil:
    json_blanks(c)
    body.at = c.at
    if not json_skip(c, depth):
        return False
    body.size = <size_t>(c.at - body.at)
    return True


cdef bint list_said(Walk* w, Cursor* c, const Key* key, int depth) noexcept nogil:
    """Each item is a piece of a call, or a whole one."""
    cdef Fragment f
    cdef bint is_object
    if not json_take(c, c'['):
        return json_skip(c, depth)
    if json_take(c, c']'):
        return True
    while True:
        memset(&f, 0, sizeof(Fragment))
        is_object = json_peek(c) == c'{'
        if not object_said(w, c, key.child, depth + 2, &f):
            return False
        if w.calls != NULL and is_object and (key.field == CALLS or (w.of_event and says_call(&f))):
            w.no_memory |= not note(w.calls, &f, w.alone)
        if json_take(c, c']'):
            return True
        if not json_take(c, c','):
            return False


cdef inline bint says_call(Fragment* f) noexcept nogil:
    return f.name.size > 0 or f.arguments.size > 0 or f.thought


cdef bint choices_said(Walk* w, Cursor* c, const Key* key, int depth, Fragment* f) noexcept nogil:
    """Of the first item whose index is 0, or not said."""
    cdef Cursor item
    cdef bint found = False
    if not json_take(c, c'['):
        return json_skip(c, depth)
    if json_take(c, c']'):
        return True
    while True:
        json_blanks(c)
        item = c[0]
        if not json_skip(c, depth + 1):
            return False
        item.end = c.at
        if not found and is_timed(w.d, &item, key.child):
            found = True
            if not object_said(w, &item, key.child, depth + 2, f):
                return False
        if json_take(c, c']'):
            return True
        if not json_take(c, c','):
            return False


cdef bint is_timed(const DialectTable* d, Cursor* choice, int node) noexcept nogil:
    cdef const Key* key = &d.keys[d.nodes[node].first]
    cdef const Key* end = key + d.nodes[node].count
    cdef Cursor index
    cdef int32_t number
    while key < end and key.field != INDEX:
        key += 1
    if key == end:
        return True
    if not json_member(choice, <const char*>key.name, key.size, &index):
        return True                 # who reads it finds out why
    return index.at == NULL or (json_count(&index, &number) and number == 0)


cdef class CallReader:
    """Reads events for the tool calls and thoughts in them."""

    def __cinit__(self):
        self._tree = EventTree()

    cdef int read(self, Calls** calls, const unsigned char* data, size_t size, const DialectTable* d, bint whole) except -1:
        cdef Walk walk
        cdef Cursor event
        cdef bytes anew
        over(&event, data, size)
        if calls[0] == NULL:
            calls[0] = <Calls*>calloc(1, sizeof(Calls))
            if calls[0] == NULL:
                raise MemoryError("tool calls")
        walk.d = d
        walk.no_memory = False
        walk.of_event = d.calls[whole] == CALLS_EVENT
        walk.alone = whole or not d.fragments
        if not read_event(&walk, &event, d.roots[whole], NULL):
            anew = self._tree.anew(data, size)
            over(&event, anew, <size_t>len(anew))
            if not read_event(&walk, &event, d.roots[whole], NULL):
                return 0            # the classifier has found no call in it either, or it is nested beyond use
        read_event(&walk, &event, d.roots[whole], calls[0])
        if walk.no_memory:
            raise MemoryError("tool calls")
        return 0


cdef bint read_event(Walk* w, Cursor* event, int root, Calls* calls) noexcept nogil:
    """*event* is left as it is, for it is read twice: tried, and then added to *calls*, so that it is added once or not at all."""
    cdef Cursor c = event[0]
    cdef Fragment f
    memset(&f, 0, sizeof(Fragment))
    w.calls = calls
    if not object_said(w, &c, root, 1, &f) or json_peek(&c) != -1:
        return False
    if calls != NULL and w.of_event and says_call(&f):
        w.no_memory |= not note(calls, &f, w.alone)
    return True


cdef bytes text_bytes(Text* t):
    return t.at[:t.size] if t.size else b""


cdef list calls_said(Calls* calls):
    """(id, name, arguments) of each, as these came: for tests."""
    said = []
    for i in range(calls.count if calls != NULL else 0):
        said.append((text_bytes(&calls.items[i].id), text_bytes(&calls.items[i].name), text_bytes(&calls.items[i].arguments)))
    return said


cdef class CallList:
    """Calls of one reply, for tests and previews: of the events of *dialect*, or of its *whole* answers."""

    def __init__(self, Dialect dialect not None, bint whole=False):
        if dialect.table.calls[whole] == CALLS_NONE:
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
