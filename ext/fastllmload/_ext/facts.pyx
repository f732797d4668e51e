# cython: language_level=3str
# One strict pass over an event. An object whose keys matter has a Level; a key that matters there has a Field, which says
# how its value is read. Every other value is checked and skipped.
#
# The scan gives up (and msgspec decides) wherever it would have to think: a key with an escape, a key that matters twice,
# an unexpected type under a key that matters, more than one choice, too deep, too long a number, invalid UTF-8, invalid
# JSON. So it never says that an event is bad.
from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.string cimport memcmp, memset

from fastllmload._ext.cursor cimport Cursor, left, over
from fastllmload._ext.jsonscan cimport (
    JSON_DEPTH,
    Body,
    json_count,
    json_peek,
    json_skip,
    json_string,
    json_take,
    json_word,
)

from fastllmload._ext.delta cimport (
    FINISH_CONTENT_FILTER,
    FINISH_LENGTH,
    FINISH_NONE,
    FINISH_OTHER,
    FINISH_STOP,
    FINISH_TOOL_CALLS,
)

cdef enum Level:
    IN_EVENT = 0
    IN_CHOICE = 1
    IN_CARRIER = 2              # delta or message
    IN_TOOL_CALL = 3
    IN_FUNCTION = 4
    IN_USAGE = 5
    IN_PROMPT_DETAILS = 6
    IN_COMPLETION_DETAILS = 7
    LEVELS = 8

cdef enum Field:
    F_NONE = 0                  # not ours: check and skip
    F_ID = 1
    F_OBJECT = 2
    F_CHOICES = 3
    F_USAGE = 4
    F_ERROR = 5
    F_INDEX = 6
    F_FINISH = 7
    F_DELTA = 8
    F_MESSAGE = 9
    F_TEXT = 10
    F_ROLE = 11
    F_CONTENT = 12
    F_REASONING_CONTENT = 13
    F_REASONING = 14
    F_REFUSAL = 15
    F_TOOL_CALLS = 16
    F_FUNCTION = 17             # of a tool call, or the older function_call of a delta
    F_NAME = 18
    F_ARGUMENTS = 19
    F_PROMPT_TOKENS = 20
    F_COMPLETION_TOKENS = 21
    F_PROMPT_DETAILS = 22
    F_COMPLETION_DETAILS = 23
    F_CACHED_TOKENS = 24
    F_REASONING_TOKENS = 25

cdef struct Key:
    const unsigned char* name   # a literal
    uint8_t size
    uint8_t field

cdef enum:
    KEYS = 8                    # per level at most

cdef Key[LEVELS][KEYS] TABLE
cdef int[LEVELS] KEYS_OF        # how many of them a level has


cdef int add(int level, bytes name, int field) except -1:
    cdef Key* key = &TABLE[level][KEYS_OF[level]]
    key.name = name             # interned with the module's constants: lives as long as the module
    key.size = <uint8_t>len(name)
    key.field = <uint8_t>field
    KEYS_OF[level] += 1
    return 0


cdef list NAMES = []            # keeps the bytes objects behind Key.name


cdef int fill() except -1:
    for level, field, name in (
        (IN_EVENT, F_ID, b"id"), (IN_EVENT, F_OBJECT, b"object"), (IN_EVENT, F_CHOICES, b"choices"),
        (IN_EVENT, F_USAGE, b"usage"), (IN_EVENT, F_ERROR, b"error"),
        (IN_CHOICE, F_INDEX, b"index"), (IN_CHOICE, F_FINISH, b"finish_reason"), (IN_CHOICE, F_DELTA, b"delta"),
        (IN_CHOICE, F_MESSAGE, b"message"), (IN_CHOICE, F_TEXT, b"text"),
        (IN_CARRIER, F_ROLE, b"role"), (IN_CARRIER, F_CONTENT, b"content"), (IN_CARRIER, F_REASONING, b"reasoning"),
        (IN_CARRIER, F_REASONING_CONTENT, b"reasoning_content"), (IN_CARRIER, F_REFUSAL, b"refusal"),
        (IN_CARRIER, F_TOOL_CALLS, b"tool_calls"), (IN_CARRIER, F_FUNCTION, b"function_call"),
        (IN_TOOL_CALL, F_FUNCTION, b"function"),
        (IN_FUNCTION, F_NAME, b"name"), (IN_FUNCTION, F_ARGUMENTS, b"arguments"),
        (IN_USAGE, F_PROMPT_TOKENS, b"prompt_tokens"), (IN_USAGE, F_COMPLETION_TOKENS, b"completion_tokens"),
        (IN_USAGE, F_PROMPT_DETAILS, b"prompt_tokens_details"),
        (IN_USAGE, F_COMPLETION_DETAILS, b"completion_tokens_details"),
        (IN_PROMPT_DETAILS, F_CACHED_TOKENS, b"cached_tokens"),
        (IN_COMPLETION_DETAILS, F_REASONING_TOKENS, b"reasoning_tokens"),
    ):
        NAMES.append(name)
        add(level, name, field)
    return 0


fill()


cdef void facts_clear(Facts* f, uint8_t carrier) noexcept nogil:
    memset(f, 0, sizeof(Facts))
    f.carrier = carrier
    f.prompt_tokens = f.completion_tokens = f.reasoning_tokens = f.cached_tokens = -1


cdef bint facts_scan(Facts* f, const unsigned char* data, size_t size) noexcept nogil:
    cdef Cursor c
    over(&c, data, size)
    return json_take(&c, c'{') and members(f, &c, IN_EVENT, 1) and json_peek(&c) == -1


cdef bint members(Facts* f, Cursor* c, int level, int depth) noexcept nogil:
    # The members of an object behind its opening brace, up to and with its closing one.
    cdef Body key
    cdef uint32_t seen = 0
    cdef int field
    if json_take(c, c'}'):
        return True
    while True:
        if not (json_take(c, c'"') and json_string(c, &key) and json_take(c, c':')) or key.escaped:
            return False
        field = field_of(level, &key)
        if field == F_NONE:
            if not json_skip(c, depth):
                return False
        elif seen >> field & 1 or not value(f, c, field, depth):
            return False
        seen |= <uint32_t>1 << field
        if json_take(c, c'}'):
            return True
        if not json_take(c, c','):
            return False


cdef inline int field_of(int level, Body* key) noexcept nogil:
    cdef int i
    cdef Key* k
    for i in range(KEYS_OF[level]):
        k = &TABLE[level][i]
        if k.size == key.size and memcmp(k.name, key.at, key.size) == 0:
            return k.field
    return F_NONE


cdef bint value(Facts* f, Cursor* c, int field, int depth) noexcept nogil:
    # The value of a key that matters. null is as good as absent, but a key at the top is known by its name alone.
    cdef int byte = json_peek(c)
    f.known |= field <= F_ERROR
    if byte == c'n':
        return json_word(c, b"null", 4)
    if field == F_ID or (field == F_DELTA and f.carrier != CARRIED_BY_DELTA) or (
            field == F_MESSAGE and f.carrier != CARRIED_BY_MESSAGE) or (field == F_TEXT and f.carrier != CARRIED_BY_TEXT):
        return json_skip(c, depth)
    if byte == c'"':
        c.at += 1
        return string(f, c, field)
    if byte == c'{' and depth < JSON_DEPTH:
        return object_value(f, c, field, depth)
    if byte == c'[' and depth < JSON_DEPTH:
        return array_value(f, c, field, depth)
    return number(f, c, field)


cdef bint string(Facts* f, Cursor* c, int field) noexcept nogil:
    # Behind the opening quote of the value.
    cdef Body body
    if not json_string(c, &body):
        return False
    if field == F_CONTENT or field == F_TEXT:
        f.content = body
    elif field == F_REASONING_CONTENT:
        f.reasoning_content = body
    elif field == F_REASONING:
        f.reasoning = body
    elif field == F_REFUSAL:
        f.refusal = body
    elif field == F_ROLE:
        f.role = body.size > 0
    elif field == F_ERROR:
        f.error |= body.size > 0
    elif field == F_OBJECT:
        f.error |= body.size == 5 and memcmp(body.at, b"error", 5) == 0
        return not body.escaped
    elif field == F_FINISH:
        f.finish = finish_of(body.at, body.size)
        return not body.escaped
    elif field == F_NAME:
        first(f, &f.name, &body)
    elif field == F_ARGUMENTS:
        first(f, &f.arguments, &body)
    else:
        return False
    return True


cdef inline void first(Facts* f, Body* slot, Body* body) noexcept nogil:
    f.tool |= body.size > 0
    if slot.size == 0:
        slot[0] = body[0]


cdef bint object_value(Facts* f, Cursor* c, int field, int depth) noexcept nogil:
    cdef int level
    if field == F_ERROR:
        f.error = True
        return json_skip(c, depth)
    if field == F_DELTA or field == F_MESSAGE:
        level = IN_CARRIER
    elif field == F_FUNCTION:
        level = IN_FUNCTION
    elif field == F_USAGE:
        level = IN_USAGE
    elif field == F_PROMPT_DETAILS:
        level = IN_PROMPT_DETAILS
    elif field == F_COMPLETION_DETAILS:
        level = IN_COMPLETION_DETAILS
    else:
        return False
    c.at += 1
    return members(f, c, level, depth + 1)


cdef bint array_value(Facts* f, Cursor* c, int field, int depth) noexcept nogil:
    cdef int level = IN_CHOICE if field == F_CHOICES else IN_TOOL_CALL
    if field != F_CHOICES and field != F_TOOL_CALLS or depth + 1 >= JSON_DEPTH:
        return False
    c.at += 1
    if json_take(c, c']'):
        return True
    while True:
        if not json_take(c, c'{') or not members(f, c, level, depth + 2):
            return False
        if json_take(c, c']'):
            return True
        if field == F_CHOICES or not json_take(c, c','):
            return False            # of several choices, msgspec finds the one that is timed


cdef bint number(Facts* f, Cursor* c, int field) noexcept nogil:
    if field == F_INDEX:
        return json_count(c, &f.index)
    if field == F_PROMPT_TOKENS:
        return json_count(c, &f.prompt_tokens)
    if field == F_COMPLETION_TOKENS:
        return json_count(c, &f.completion_tokens)
    if field == F_CACHED_TOKENS:
        return json_count(c, &f.cached_tokens)
    if field == F_REASONING_TOKENS:
        return json_count(c, &f.reasoning_tokens)
    return False


cdef inline bint named(const unsigned char* name, size_t size, const char* other, size_t other_size) noexcept nogil:
    return size == other_size and memcmp(name, other, size) == 0


cdef uint8_t finish_of(const unsigned char* name, size_t size) noexcept nogil:
    # Behind OpenAI's own values, the names that TGI, SGLang's native form and gateways to Anthropic give the same things.
    if size == 0:
        return FINISH_NONE
    if (named(name, size, b"stop", 4) or named(name, size, b"eos_token", 9) or named(name, size, b"stop_sequence", 13)
            or named(name, size, b"end_turn", 8)):
        return FINISH_STOP
    if named(name, size, b"length", 6) or named(name, size, b"max_tokens", 10):
        return FINISH_LENGTH
    if (named(name, size, b"tool_calls", 10) or named(name, size, b"function_call", 13)
            or named(name, size, b"tool_use", 8)):
        return FINISH_TOOL_CALLS
    if named(name, size, b"content_filter", 14):
        return FINISH_CONTENT_FILTER
    return FINISH_OTHER
