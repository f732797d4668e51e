# One strict pass over an event. An object whose keys matter has a Level; a key that matters there has a
# Field, which says how its value is read. Every other value is checked and skipped.
#
# Ollama's events have levels of their own, from the top on.
#
# The scan gives up (and msgspec decides) wherever it would have to think: a key with an escape, a key that
# matters twice, an unexpected type under a key that matters, more than one choice, too deep, too long a
# number, invalid UTF-8, invalid JSON. So it never says that an event is bad.
from libc.stdint cimport uint64_t
from libc.string cimport memcmp, memset
from posix.strings cimport strncasecmp

from fastllmload._ext.bytes.cursor cimport over
from fastllmload._ext.bytes.jsonscan cimport (
    JSON_DEPTH, json_count, json_digits, json_peek, json_skip, json_string, json_take, json_word,
)
from fastllmload._ext.system.static_assert cimport FLL_STATIC_ASSERT

cdef enum Level:
    IN_EVENT = 0
    IN_CHOICE = 1
    IN_CARRIER = 2              # delta or message
    IN_TOOL_CALL = 3
    IN_FUNCTION = 4
    IN_USAGE = 5
    IN_PROMPT_DETAILS = 6
    IN_COMPLETION_DETAILS = 7
    IN_LOGPROBS = 8
    IN_OLLAMA_CHAT = 9          # Ollama's levels in the order of its carriers
    IN_OLLAMA_GENERATE = 10
    IN_OLLAMA_MESSAGE = 11
    LEVELS = 12

cdef enum Field:
    F_NONE = 0                  # not ours: check and skip
    F_ID = 1
    F_OBJECT = 2
    F_CHOICES = 3
    F_USAGE = 4
    F_ERROR = 5
    F_INDEX = 6
    F_FINISH = 7
    F_DELTA = 8                 # this and the next two in the order of Carrier
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
    F_TOTAL_TOKENS = 26
    F_TOKEN_IDS = 27
    F_LOGPROBS = 28
    F_LOGPROB_LIST = 29         # one item per token
    F_DONE = 30                 # Ollama's own; the rest of its keys mean what a field above means
    F_OLLAMA_MESSAGE = 31
    F_DURATION = 32             # this and the next three in the order of server_ns
    F_LAST_DURATION = 35
    FIELDS                      # how many: always the last

cdef struct Key:
    const unsigned char* name   # a literal
    uint8_t size
    uint8_t field

cdef enum:
    KEYS = 16                   # per level at most
    DURATION_DIGITS = 18

cdef Key[LEVELS][KEYS] TABLE
cdef int[LEVELS] KEYS_OF        # how many of them a level has


cdef list NAMES = []            # keeps the bytes objects behind Key.name


cdef int add(int level, dict fields) except -1:
    cdef Key* key
    cdef bytes name
    for name, field in fields.items():
        if KEYS_OF[level] == KEYS:
            raise OverflowError(f"level {level} has more than {KEYS} keys: enlarge KEYS")
        NAMES.append(name)
        key = &TABLE[level][KEYS_OF[level]]
        key.name = name
        key.size = <uint8_t>len(name)
        key.field = <uint8_t>field
        KEYS_OF[level] += 1
    return 0


cdef int fill() except -1:
    FLL_STATIC_ASSERT(F_LAST_DURATION - F_DURATION + 1 == DURATIONS)
    add(IN_EVENT, {b"id": F_ID, b"object": F_OBJECT, b"choices": F_CHOICES})
    add(IN_EVENT, {b"usage": F_USAGE, b"error": F_ERROR})
    add(IN_CHOICE, {b"index": F_INDEX, b"finish_reason": F_FINISH, b"logprobs": F_LOGPROBS, b"token_ids": F_TOKEN_IDS})
    add(IN_LOGPROBS, {b"content": F_LOGPROB_LIST, b"tokens": F_LOGPROB_LIST})
    add(IN_CHOICE, {b"delta": F_DELTA, b"message": F_MESSAGE, b"text": F_TEXT})
    add(IN_CARRIER, {b"content": F_CONTENT, b"role": F_ROLE, b"refusal": F_REFUSAL})
    add(IN_CARRIER, {b"reasoning_content": F_REASONING_CONTENT, b"reasoning": F_REASONING})
    add(IN_CARRIER, {b"tool_calls": F_TOOL_CALLS, b"function_call": F_FUNCTION})
    add(IN_TOOL_CALL, {b"function": F_FUNCTION})
    add(IN_FUNCTION, {b"name": F_NAME, b"arguments": F_ARGUMENTS})
    add(IN_USAGE, {b"prompt_tokens": F_PROMPT_TOKENS, b"completion_tokens": F_COMPLETION_TOKENS})
    add(IN_USAGE, {b"total_tokens": F_TOTAL_TOKENS})
    add(IN_USAGE, {b"prompt_tokens_details": F_PROMPT_DETAILS})
    add(IN_USAGE, {b"completion_tokens_details": F_COMPLETION_DETAILS})
    add(IN_PROMPT_DETAILS, {b"cached_tokens": F_CACHED_TOKENS})
    add(IN_COMPLETION_DETAILS, {b"reasoning_tokens": F_REASONING_TOKENS})
    for level in (IN_OLLAMA_CHAT, IN_OLLAMA_GENERATE):
        add(level, {b"model": F_ID, b"error": F_ERROR, b"done": F_DONE, b"done_reason": F_FINISH})
        add(level, {b"prompt_eval_count": F_PROMPT_TOKENS, b"eval_count": F_COMPLETION_TOKENS})
        add(level, {b"prompt_eval_cached_count": F_CACHED_TOKENS})
        add(level, {b"total_duration": F_DURATION + NS_TOTAL, b"load_duration": F_DURATION + NS_LOAD})
        add(level, {b"prompt_eval_duration": F_DURATION + NS_PROMPT_EVAL})
        add(level, {b"eval_duration": F_DURATION + NS_EVAL, b"logprobs": F_LOGPROB_LIST})
    add(IN_OLLAMA_CHAT, {b"message": F_OLLAMA_MESSAGE})
    add(IN_OLLAMA_GENERATE, {b"response": F_CONTENT, b"thinking": F_REASONING})
    add(IN_OLLAMA_MESSAGE, {b"content": F_CONTENT, b"thinking": F_REASONING, b"role": F_ROLE})
    add(IN_OLLAMA_MESSAGE, {b"tool_calls": F_TOOL_CALLS})
    return 0

# What servers and gateways end with, in any case (Gemini's are upper case): OpenAI, vLLM, SGLang; TGI, llama.cpp; Anthropic;
# Gemini; Mistral; Cohere; DeepSeek; Bedrock; watsonx. Whatever is none of them says nothing about failure.
cdef dict FINISHES = {
    FINISH_STOP: b"stop eos eos_token end_turn stop_sequence stop_token pause_turn complete",
    FINISH_LENGTH: b"length max_tokens model_length model_context_window_exceeded",
    FINISH_TOOL_CALLS: b"tool_calls function_call tool_use tool_call",
    FINISH_CONTENT_FILTER: b"content_filter content_filtered guardrail_intervened refusal safety recitation blocklist"
                           b" prohibited_content spii image_safety",
    FINISH_FAILED: b"abort aborted error error_toxic error_limit failed cancel cancelled canceled timeout overloaded"
                   b" internal_error server_error network_error insufficient_system_resource malformed_function_call"
                   b" unexpected_tool_call",
}

cdef enum:
    WORDS_MOST = 64

cdef Key[WORDS_MOST] WORDS          # *field*: FinishReason
cdef int WORD_COUNT = 0


cdef int fill_words() except -1:
    global WORD_COUNT
    cdef bytes word
    for reason, words in FINISHES.items():
        for word in words.split():
            if WORD_COUNT == WORDS_MOST:
                raise OverflowError(f"more than {WORDS_MOST} finish words: enlarge WORDS_MOST")
            NAMES.append(word)
            WORDS[WORD_COUNT].name = word
            WORDS[WORD_COUNT].size = <uint8_t>len(word)
            WORDS[WORD_COUNT].field = <uint8_t>reason
            WORD_COUNT += 1
    return 0


fill()
fill_words()


cdef void facts_clear(Facts* f, uint8_t carrier) noexcept nogil:
    memset(f, 0, sizeof(Facts))
    f.carrier = carrier
    f.choice = carrier >= CARRIED_BY_OLLAMA_CHAT
    f.token_ids = f.logprobs = -1
    f.prompt_tokens = f.completion_tokens = f.reasoning_tokens = f.cached_tokens = -1


cdef bint facts_scan(Facts* f, const unsigned char* data, size_t size) noexcept nogil:
    cdef Cursor c
    cdef int level = IN_EVENT
    over(&c, data, size)
    if f.carrier >= CARRIED_BY_OLLAMA_CHAT:
        level = IN_OLLAMA_CHAT + f.carrier - CARRIED_BY_OLLAMA_CHAT
    return json_take(&c, c'{') and members(f, &c, level, 1) and json_peek(&c) == -1


cdef bint members(Facts* f, Cursor* c, int level, int depth) noexcept nogil:
    # The members of an object after its opening brace, up to and with its closing one.
    cdef StringSpan key
    cdef uint64_t seen = 0
    cdef int field
    FLL_STATIC_ASSERT(FIELDS <= 8 * sizeof(seen))
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
        f.known |= depth == 1 and field != F_NONE
        seen |= <uint64_t>1 << field
        if json_take(c, c'}'):
            return True
        if not json_take(c, c','):
            return False


cdef inline int field_of(int level, StringSpan* key) noexcept nogil:
    cdef int i
    cdef Key* k
    for i in range(KEYS_OF[level]):
        k = &TABLE[level][i]
        if k.size == key.size and memcmp(k.name, key.at, key.size) == 0:
            return k.field
    return F_NONE


cdef bint value(Facts* f, Cursor* c, int field, int depth) noexcept nogil:
    # The value of a key that matters. null is as good as absent, but a key at the top is known by its name
    # alone.
    cdef int byte = json_peek(c)
    if byte == c'n':
        return json_word(c, b"null", 4)
    if field == F_DONE:
        return flag(f, c)
    if field == F_ID or (F_DELTA <= field <= F_TEXT and field != F_DELTA + f.carrier):
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
    # After the opening quote of the value.
    cdef StringSpan body
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
        f.error |= named(&body, b"error", 5)
        return not body.escaped
    elif field == F_FINISH:
        f.finish = done_reason_of(&body) if f.carrier >= CARRIED_BY_OLLAMA_CHAT else finish_of(&body)
        return not body.escaped
    elif field == F_NAME:
        first(f, &f.name, &body)
    elif field == F_ARGUMENTS:
        first(f, &f.arguments, &body)
    else:
        return False
    return True


cdef inline void first(Facts* f, StringSpan* slot, StringSpan* body) noexcept nogil:
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
    elif field == F_OLLAMA_MESSAGE:
        level = IN_OLLAMA_MESSAGE
    elif field == F_FUNCTION:
        level = IN_FUNCTION
    elif field == F_USAGE:
        level = IN_USAGE
    elif field == F_PROMPT_DETAILS:
        level = IN_PROMPT_DETAILS
    elif field == F_COMPLETION_DETAILS:
        level = IN_COMPLETION_DETAILS
    elif field == F_LOGPROBS:
        level = IN_LOGPROBS
    else:
        return False
    c.at += 1
    return members(f, c, level, depth + 1)


cdef bint array_value(Facts* f, Cursor* c, int field, int depth) noexcept nogil:
    cdef int level = IN_CHOICE if field == F_CHOICES else IN_TOOL_CALL
    if field == F_TOKEN_IDS:
        return items(c, depth, &f.token_ids)
    if field == F_LOGPROB_LIST:
        return items(c, depth, &f.logprobs)
    if field != F_CHOICES and field != F_TOOL_CALLS or depth + 1 >= JSON_DEPTH:
        return False
    c.at += 1
    if json_take(c, c']'):
        return True
    f.calls |= field == F_TOOL_CALLS
    f.choice |= field == F_CHOICES
    while True:
        if not json_take(c, c'{') or not members(f, c, level, depth + 2):
            return False
        if json_take(c, c']'):
            return True
        if field == F_CHOICES or not json_take(c, c','):
            return False            # of several choices, msgspec finds the one that is timed


cdef bint items(Cursor* c, int depth, int32_t* count) noexcept nogil:
    # The length of an array, whatever its items are; the cursor stands at its bracket.
    count[0] = 0
    c.at += 1
    if json_take(c, c']'):
        return True
    while json_skip(c, depth + 1):
        count[0] += 1
        if json_take(c, c']'):
            return True
        if not json_take(c, c','):
            return False
    return False


cdef bint flag(Facts* f, Cursor* c) noexcept nogil:
    f.done = json_word(c, b"true", 4)
    return f.done or json_word(c, b"false", 5)


cdef bint number(Facts* f, Cursor* c, int field) noexcept nogil:
    # The cursor stands at its first byte.
    cdef int32_t total
    if field == F_INDEX:
        return json_count(c, &f.index)
    if field == F_PROMPT_TOKENS:
        return json_count(c, &f.prompt_tokens)
    if field == F_COMPLETION_TOKENS:
        f.completion_at = c.at
        return json_count(c, &f.completion_tokens)
    if field == F_TOTAL_TOKENS:
        f.total_at = c.at
        return json_count(c, &total)
    if field == F_CACHED_TOKENS:
        return json_count(c, &f.cached_tokens)
    if field == F_REASONING_TOKENS:
        return json_count(c, &f.reasoning_tokens)
    if F_DURATION <= field <= F_LAST_DURATION:
        return json_digits(c, &f.server_ns[field - F_DURATION], DURATION_DIGITS)
    return False


cdef inline bint named(StringSpan* name, const char* other, size_t size) noexcept nogil:
    return name.size == size and memcmp(name.at, other, size) == 0


cdef uint8_t finish_of(StringSpan* name) noexcept nogil:
    cdef int i
    if name.size == 0:
        return FINISH_NONE
    for i in range(WORD_COUNT):
        if WORDS[i].size == name.size and strncasecmp(<char*>WORDS[i].name, <char*>name.at, name.size) == 0:
            return WORDS[i].field
    return FINISH_OTHER


cdef uint8_t done_reason_of(StringSpan* name) noexcept nogil:
    # Ollama's words; it says stop also after a tool call.
    if named(name, b"load", 4):
        return FINISH_LOAD
    return FINISH_UNLOAD if named(name, b"unload", 6) else finish_of(name)
