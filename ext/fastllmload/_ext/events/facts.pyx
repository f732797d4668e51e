# One strict pass over an event. An object whose keys matter has a Node; a key that matters there has a Field, which says how its
# value is read. Every other value is checked and skipped. Where a word of an object tells which keys matter (TYPE), that word
# is looked for first, from a copy of the cursor: it costs little where it comes first, and is right where it does not.
#
# The scan gives up (and msgspec decides) wherever it would have to think: a key with an escape, a key that matters twice, two
# texts of a kind, an unexpected type under a key that matters, more than one choice, too deep, too long a number, invalid
# UTF-8, invalid JSON. So it never says that an event is bad.
from libc.stdint cimport uint64_t
from libc.string cimport memcmp, memset

from fastllmload._ext.bytes.cursor cimport over
from fastllmload._ext.bytes.jsonscan cimport (
    JSON_DEPTH, json_count, json_digits, json_number, json_peek, json_short, json_skip, json_string, json_take, json_word,
)
from fastllmload._ext.events.dialect cimport (
    ANSWER_IDS, ARGUMENTS, CACHE_WRITTEN_TOKENS, CACHED_TOKENS, CALLS, CHOICES, COMPLETION_TOKENS, CONTENT, CONTENT_SO_FAR,
    COUNTER, DONE, DURATION, ERROR, ERROR_WORD, EVENT_TOKENS, FINISH, FINISH_DETAIL, INDEX, LANE, LAST, LOGPROBS, NAME,
    NODE_KEYS_MOST,
    OBJECT, PARTS, PROMPT_IDS, PROMPT_TOKENS, REASONING, REASONING_CONTENT, REASONING_TOKENS, REFUSAL, RESPONSE_ID, ROLE, SEALED,
    SIGNATURE, SPECIAL, TABLE, TOKEN_ID, TOKEN_IDS, UNCACHED_TOKENS, Key, finish_of, key_of, lane_of,
)
from fastllmload._ext.system.static_assert cimport FLL_STATIC_ASSERT

cdef enum:
    DURATION_DIGITS = 18


cdef void facts_clear(Facts* f, const DialectTable* d, bint whole) noexcept nogil:
    memset(f, 0, sizeof(Facts))
    f.choice = d.single[whole]
    f.token_ids = f.logprobs = f.whole_ids = -1
    f.prompt_tokens = f.completion_tokens = f.reasoning_tokens = f.cached_tokens = -1
    f.uncached_tokens = f.written_tokens = -1


cdef bint facts_scan(Facts* f, const DialectTable* d, bint whole, const unsigned char* data, size_t size) noexcept nogil:
    cdef Cursor c
    over(&c, data, size)
    return json_take(&c, c'{') and members(f, d, &c, d.roots[whole], 1) and json_peek(&c) == -1


cdef bint members(Facts* f, const DialectTable* d, Cursor* c, int node, int depth) noexcept nogil:
    # The members of an object after its opening brace, up to and with its closing one.
    cdef StringSpan name
    cdef uint64_t seen = 0
    cdef const Key* key
    cdef const Variant* variant
    FLL_STATIC_ASSERT(NODE_KEYS_MOST <= 8 * sizeof(seen))
    if d.nodes[node].type_key != NULL:
        if not variant_of(d, c, node, depth, &variant):
            return False
        if variant != NULL:
            node = variant.node
            f.error |= variant.error
            f.done |= variant.last
    if json_take(c, c'}'):
        return True
    while True:
        if not (json_take(c, c'"') and json_string(c, &name) and json_take(c, c':')) or name.escaped:
            return False
        key = key_of(&d.keys[d.nodes[node].first], d.nodes[node].of_event, &name)
        if key == NULL:
            if not json_skip(c, depth):
                return False
        else:
            if seen >> key.bit & 1 or not value(f, d, c, key, depth):
                return False
            f.known |= depth == 1 and key.field != COUNTER and key.field != RESPONSE_ID
            seen |= <uint64_t>1 << key.bit
        if json_take(c, c'}'):
            return True
        if not json_take(c, c','):
            return False


cdef bint variant_of(const DialectTable* d, const Cursor* c, int node, int depth, const Variant** found) noexcept nogil:
    cdef Cursor at = c[0]
    cdef StringSpan name
    cdef const Key* key = d.nodes[node].type_key
    found[0] = NULL
    if json_peek(&at) == c'}':
        return True
    while True:
        if not (json_take(&at, c'"') and json_string(&at, &name) and json_take(&at, c':')) or name.escaped:
            return False
        if key.size == name.size and memcmp(key.name, name.at, name.size) == 0:
            return variant_named(d, &at, node, found)
        if not json_skip(&at, depth):
            return False
        if not json_take(&at, c','):
            return True             # the object ends, or is invalid: who reads it finds that out


cdef bint variant_named(const DialectTable* d, Cursor* c, int node, const Variant** found) noexcept nogil:
    cdef StringSpan word
    cdef const Variant* variant = &d.variants[d.nodes[node].variant]
    cdef const Variant* end = variant + d.nodes[node].variants
    if json_peek(c) == c'n':
        return json_word(c, b"null", 4)
    if not json_take(c, c'"') or not json_string(c, &word) or word.escaped:
        return False
    while variant < end:
        if variant.size == word.size and memcmp(variant.name, word.at, word.size) == 0:
            found[0] = variant
            return True
        variant += 1
    return True


cdef bint value(Facts* f, const DialectTable* d, Cursor* c, const Key* key, int depth) noexcept nogil:
    # The value of a key that matters. null is as good as absent, but a key at the top is known by its name alone.
    cdef const unsigned char* start
    cdef int byte = json_peek(c)
    if byte == c'n':
        return json_word(c, b"null", 4)
    if key.aside:
        return json_skip(c, depth)
    start = c.at
    if byte == c'"':
        c.at += 1
        if not string(f, d, c, key.field):
            return False
        if key.varies:
            place(f, start + 1, c.at - 1, key.field)
        return True
    if byte == c'{' and depth < JSON_DEPTH:
        return object_value(f, d, c, key, depth)
    if byte == c'[' and depth < JSON_DEPTH:
        if not array_value(f, d, c, key, depth):
            return False
    elif not number(f, c, key):
        return False
    if key.varies:
        place(f, start, c.at, key.field)
    return True


cdef inline void place(Facts* f, const unsigned char* at, const unsigned char* end, uint8_t field) noexcept nogil:
    if f.place_count < PLACES_MOST:
        f.places[f.place_count] = Place(at, end, field)
    f.place_count = min(f.place_count, PLACES_MOST) + 1


cdef bint string(Facts* f, const DialectTable* d, Cursor* c, uint8_t field) noexcept nogil:
    # After the opening quote of the value.
    cdef StringSpan body
    if not json_string(c, &body):
        return False
    if field == CONTENT:
        return text(&f.content, &body)
    if field == REASONING_CONTENT:
        return text(&f.reasoning_content, &body)
    if field == REASONING:
        return text(&f.reasoning, &body)
    if field == REFUSAL:
        return text(&f.refusal, &body)
    if field == ROLE:
        f.role = body.size > 0
    elif field == ERROR:
        f.error |= body.size > 0
    elif field == ERROR_WORD:
        f.error |= body.size == 5 and memcmp(body.at, b"error", 5) == 0
        return not body.escaped
    elif field == FINISH:
        f.finish = finish_of(d, &body)
        return not body.escaped
    elif field == NAME:
        first(f, &f.name, &body)
    elif field == ARGUMENTS:
        first(f, &f.arguments, &body)
    elif field == FINISH_DETAIL:
        f.detail = finish_of(d, &body)
        return not body.escaped
    elif field == LAST:
        f.done = True
    elif field == LANE:
        f.lane = lane_of(&body)
        return not body.escaped
    elif field == CONTENT_SO_FAR:
        f.so_far = True
        return text(&f.content, &body)
    elif field == SIGNATURE or field == SEALED or field == RESPONSE_ID:
        f.calls = True
    else:
        return field == COUNTER
    return True


cdef inline bint text(StringSpan* slot, const StringSpan* body) noexcept nogil:
    # msgspec joins two texts.
    if slot.size and body.size:
        return False
    if slot.size == 0:
        slot[0] = body[0]
    return True


cdef inline void first(Facts* f, StringSpan* slot, StringSpan* body) noexcept nogil:
    f.tool |= body.size > 0
    if slot.size == 0:
        slot[0] = body[0]


cdef bint object_value(Facts* f, const DialectTable* d, Cursor* c, const Key* key, int depth) noexcept nogil:
    if key.field == ERROR:
        f.error = True
        return json_skip(c, depth)
    if key.field == LAST:
        f.done = True
        return json_skip(c, depth)
    if key.field != OBJECT and key.field != TABLE:
        return False
    c.at += 1
    return members(f, d, c, key.child, depth + 1)


cdef bint array_value(Facts* f, const DialectTable* d, Cursor* c, const Key* key, int depth) noexcept nogil:
    cdef uint8_t field = key.field
    if field == CHOICES or field == CALLS or field == PARTS:
        return depth + 1 < JSON_DEPTH and objects(f, d, c, key, depth)
    if field == TOKEN_IDS:
        return items(c, depth, &f.token_ids)
    if field == LOGPROBS:
        return items(c, depth, &f.logprobs)
    if field == PROMPT_IDS:
        return items(c, depth, &f.prompt_tokens)
    if field == ANSWER_IDS:
        f.answer_ids = True
        return items(c, depth, &f.token_ids)
    return False


cdef bint objects(Facts* f, const DialectTable* d, Cursor* c, const Key* key, int depth) noexcept nogil:
    c.at += 1
    if json_take(c, c']'):
        return True
    f.calls |= key.field == CALLS
    f.choice |= key.field == CHOICES
    while True:
        if not json_take(c, c'{') or not members(f, d, c, key.child, depth + 2):
            return False
        if json_take(c, c']'):
            return True
        if key.field == CHOICES or not json_take(c, c','):
            return False            # of several choices, msgspec finds the one that is timed


cdef bint items(Cursor* c, int depth, int32_t* count) noexcept nogil:
    # The length of an array, whatever its items are; the cursor stands at its bracket. Of two lists the longer one counts.
    cdef int32_t n = 0
    c.at += 1
    if not json_take(c, c']'):
        while True:
            if not json_short(c) and not json_skip(c, depth + 1):
                return False
            n += 1
            if json_take(c, c']'):
                break
            if not json_take(c, c','):
                return False
    count[0] = max(count[0], n)
    return True


cdef bint flag(Cursor* c, uint8_t* said) noexcept nogil:
    said[0] = json_word(c, b"true", 4)
    return said[0] or json_word(c, b"false", 5)


cdef bint number(Facts* f, Cursor* c, const Key* key) noexcept nogil:
    # A number, true or false; the cursor stands at its first byte.
    cdef uint8_t field = key.field
    cdef int32_t total
    if field == INDEX:
        return json_count(c, &f.index)
    if field == PROMPT_TOKENS:
        return json_count(c, &f.prompt_tokens)
    if field == COMPLETION_TOKENS:
        return json_count(c, &f.completion_tokens)
    if field == COUNTER:
        return json_number(c)
    if field == CACHED_TOKENS:
        return json_count(c, &f.cached_tokens)
    if field == REASONING_TOKENS:
        return json_count(c, &f.reasoning_tokens)
    if field == DONE:
        return flag(c, &f.done)
    if field == DURATION:
        return json_digits(c, &f.server_ns[key.child], DURATION_DIGITS)
    if field == UNCACHED_TOKENS:
        return json_count(c, &f.uncached_tokens)
    if field == CACHE_WRITTEN_TOKENS:
        return json_count(c, &f.written_tokens)
    if field == SPECIAL:
        return flag(c, &f.special)
    if field == TOKEN_ID:
        f.token_ids = max(f.token_ids, 1)
        return json_number(c)
    if field == EVENT_TOKENS:
        if not json_count(c, &total):
            return False
        f.token_ids = max(f.token_ids, total)
        return True
    return False
