"""A dialect: the keys of a protocol's events and what they say, its last word, its words for why an answer ended."""

from libc.string cimport memcpy, memset
from posix.strings cimport strncasecmp

from fastllmload._ext.bytes.protobuf cimport WIRE_SIZED, WIRE_VARINT
from fastllmload._ext.bytes.schema cimport Schema
from fastllmload._ext.system.static_assert cimport FLL_STATIC_ASSERT

# What servers and gateways end with, in any case (Gemini's are upper case): OpenAI, vLLM, SGLang; TGI, llama.cpp; Anthropic;
# Gemini; Mistral; Cohere; DeepSeek; Bedrock; watsonx. Whatever is none of them says nothing about failure.
cdef dict FINISHES = {
    FINISH_STOP: "stop eos eos_token end_turn stop_sequence stop_token pause_turn complete",
    FINISH_LENGTH: "length max_tokens model_length model_context_window_exceeded",
    FINISH_TOOL_CALLS: "tool_calls function_call tool_use tool_call",
    FINISH_CONTENT_FILTER: "content_filter content_filtered guardrail_intervened refusal safety recitation blocklist"
                           " prohibited_content spii image_safety",
    FINISH_FAILED: "abort aborted error error_toxic error_limit failed cancel cancelled canceled timeout overloaded"
                   " internal_error server_error network_error insufficient_system_resource malformed_function_call"
                   " unexpected_tool_call",
}

# Fields whose value is an object or a list of objects: they come with keys.
cdef frozenset NESTED = frozenset((OBJECT, TABLE, CHOICES, PARTS, CALLS, ENTRIES, TENSORS))
# What a message of protobuf can have, and whether its value is a number.
cdef dict OF_MESSAGE = {
    ANY: False, OBJECT: False, ENTRIES: False, TENSORS: False, RAW_TENSORS: False, CONTENT: False, REASONING: False, FINISH: False,
    ERROR: False, ROLE: False, TOKEN_IDS: False, ANSWER_IDS: False, WHOLE_IDS: False, PROMPT_TOKENS: True, COMPLETION_TOKENS: True,
    CACHED_TOKENS: True, REASONING_TOKENS: True, EVENT_TOKENS: True, DONE: True, LAST: True,
}
# What is said of a whole event, and so by no item of a list.
cdef frozenset OF_EVENT = frozenset((
    CHOICES, DONE, LAST, PROMPT_TOKENS, PROMPT_IDS, UNCACHED_TOKENS, CACHE_WRITTEN_TOKENS, COMPLETION_TOKENS, COUNTER,
    CACHED_TOKENS, REASONING_TOKENS, SPECIAL, DURATION, LANE,
))
# What is not said by an event alone (delta.pyx, `recall`).
cdef frozenset RECALLING = frozenset((CONTENT_SO_FAR, SPECIAL, UNCACHED_TOKENS, WHOLE_IDS, LANE))
# What differs from event to event of a stream, where the rest stays as it is (delta.pyx, `template_learn`).
cdef frozenset VARYING = frozenset((
    CONTENT, CONTENT_SO_FAR, REASONING_CONTENT, REASONING, COMPLETION_TOKENS, REASONING_TOKENS, COUNTER, TOKEN_ID, TOKEN_IDS, ANSWER_IDS,
    EVENT_TOKENS,
))
# What the reader of tool calls reads, and no other.
cdef frozenset OF_CALL = frozenset((CALL_INDEX, CALL_KEY, CALL_ID))


cdef class Dialect:
    """*event*, *body*: the keys of a streamed event, and of a whole answer: name -> Field, or (Field, keys of the object or of
    the list's items), or (TYPE, word -> keys), or (DURATION, Duration). What a word of TYPE tells may also be ERROR or LAST,
    or either of these with keys: (LAST, keys).

    *sentinel*: the data of an event that says nothing but the end. *fragments*: streamed tool calls come in fragments; else
    every entry is a call. *ends_with_body*: a stream has no last word but the end of the response. *words*: words for why an
    answer ended (FinishReason) besides those of FINISHES. *message*: events are messages of gRPC with these fields; an event is
    one whether streamed or not.
    """

    def __init__(self, dict event not None, dict body not None, *, bytes sentinel=b"", bint fragments=False,
                 bint ends_with_body=False, dict words=None, Schema message=None):
        cdef DialectTable* d = &self.table
        FLL_STATIC_ASSERT(NODES_MOST <= 256)        # Key.child, Variant.node
        FLL_STATIC_ASSERT(KEYS_MOST <= 65536)       # Node.first
        FLL_STATIC_ASSERT(VARIANTS_MOST <= 65535)   # Node.variant, Node.variants
        FLL_STATIC_ASSERT(NAME_LONGEST <= 255)      # the sizes of names
        FLL_STATIC_ASSERT(SENTINEL_LONGEST <= 255)
        memset(d, 0, sizeof(DialectTable))
        self.keep = []
        if len(sentinel) > SENTINEL_LONGEST:
            raise ValueError(f"a last event of {len(sentinel)} bytes; at most {SENTINEL_LONGEST} are possible")
        trees = []
        for whole, keys in enumerate((event, body)):
            check(keys)
            tree = described(keys)
            trees.append(tree)
            d.roots[whole] = <uint8_t>self._node(tree, {})
            d.single[whole] = not holds(tree, CHOICES) and not holds(tree, TYPE)
            d.calls[whole] = calls_of(tree)
            d.recalls |= bool(set(_fields(tree)) & RECALLING)
        self.trees = tuple(trees)
        memcpy(d.sentinel, <const char*>sentinel, len(sentinel))
        d.sentinel_size = <uint8_t>len(sentinel)
        d.fragments = fragments
        d.sums = holds(trees[0], UNCACHED_TOKENS)
        d.says_done = holds(trees[0], DONE)
        d.thoughts = holds(trees[0], SIGNATURE)
        d.needs_end[0], d.needs_end[1] = not ends_with_body, d.says_done
        if message is not None:
            self._number(d.roots[0], self.trees[0], message.tree)
            d.message = True
        for reason, names in FINISHES.items():
            for name in names.split():
                self._word(name, reason)
        for name, reason in (words or {}).items():
            self._word(name, reason)

    cdef const unsigned char* _kept(self, str name, uint8_t* size) except NULL:
        text = name.encode()
        if len(text) > NAME_LONGEST:
            raise ValueError(f"a name of {len(text)} bytes; at most {NAME_LONGEST} are possible")
        self.keep.append(text)
        size[0] = <uint8_t>len(text)
        return text

    cdef int _node(self, dict tree, dict known) except -1:
        """The node of *tree*, which is added with what is in it unless it is *known*."""
        cdef DialectTable* d = &self.table
        cdef int node = d.node_count
        cdef int first = d.key_count
        cdef Key* key
        if id(tree) in known:
            return known[id(tree)]
        if node == NODES_MOST or first + len(tree) > KEYS_MOST or len(tree) > NODE_KEYS_MOST:
            raise OverflowError("the dialect has too many keys: enlarge NODES_MOST, KEYS_MOST or NODE_KEYS_MOST")
        known[id(tree)] = node
        d.node_count += 1
        d.key_count += <int>len(tree)
        d.nodes[node].first = <uint16_t>first
        d.nodes[node].count = <uint16_t>len(tree)
        d.nodes[node].of_event = <uint16_t>sum([field not in OF_CALL for field, _ in tree.values()])
        for place, name in enumerate(sorted(tree, key=lambda name: tree[name][0] in OF_CALL)):
            field, more = tree[name]
            key = &d.keys[first + place]
            key.name = self._kept(name, &key.size)
            key.field = <uint8_t>field
            key.bit = <uint8_t>place
            key.aside = field == ANY or field == TYPE
            key.varies = field in VARYING
            if field == TYPE:
                d.nodes[node].type_key = key
                self._variants(node, more, known)
            else:
                key.child = <uint8_t>(self._node(more, known) if field in NESTED else more)
        return node

    cdef int _variants(self, int node, dict variants, dict known) except -1:
        """What the words of the TYPE of *node* tell."""
        cdef DialectTable* d = &self.table
        cdef int first = d.variant_count
        cdef Variant* variant
        if first + len(variants) > VARIANTS_MOST:
            raise OverflowError(f"more than {VARIANTS_MOST} words of TYPE: enlarge VARIANTS_MOST")
        d.variant_count += <int>len(variants)
        d.nodes[node].variant = <uint16_t>first
        d.nodes[node].variants = <uint16_t>len(variants)
        for place, (word, (field, keys)) in enumerate(variants.items()):
            variant = &d.variants[first + place]
            variant.name = self._kept(word, &variant.size)
            variant.node = <uint8_t>self._node(keys, known)
            variant.error = field == ERROR
            variant.last = field == LAST
        return 0

    cdef int _number(self, int node, dict tree, dict fields) except -1:
        """The numbers of the keys of *node*, which are those of *tree*, in a message of *fields*."""
        cdef DialectTable* d = &self.table
        cdef Key* key
        for place, name in enumerate(sorted(tree, key=lambda name: tree[name][0] in OF_CALL)):
            field, more = tree[name]
            key = &d.keys[d.nodes[node].first + place]
            if field not in OF_MESSAGE or name not in fields:
                raise ValueError(f"a message has no {name} that is {Field(field).name}")
            number, kind, inside = fields[name]
            key.number = <uint16_t>number
            key.wire = <uint8_t>(WIRE_VARINT if OF_MESSAGE[field] else WIRE_SIZED)
            d.nodes[node].zeros |= field == CACHED_TOKENS or field == REASONING_TOKENS
            if field == ENTRIES or field == TENSORS:        # found by name
                inside = {one: (0, kind, inside) for one in more}
            if field in NESTED:
                self._number(key.child, more, inside)
        return 0

    cdef int _word(self, str name, int reason) except -1:
        cdef Word* word = &self.table.words[self.table.word_count]
        if self.table.word_count == WORDS_MOST:
            raise OverflowError(f"more than {WORDS_MOST} words for why an answer ended: enlarge WORDS_MOST")
        word.name = self._kept(name, &word.size)
        if reason not in FinishReason.__members__.values():
            raise ValueError(f"the word {name} cannot be {reason!r}, which is not a FinishReason")
        word.reason = <uint8_t>reason
        self.table.word_count += 1
        return 0


cdef tuple parted(what):
    """(Field, what came with it) of a value of a description."""
    return what if isinstance(what, tuple) else (ANY, what) if isinstance(what, dict) else (what, None)


cdef int check(dict keys, frozenset outside=frozenset(), bint top=True, bint choice=False) except -1:
    """ValueError for a description that the readers could not follow: *outside* fields may not be in it; *top*: it is of the
    event itself; *choice*: of an object of CHOICES.
    """
    types = 0
    for name, what in keys.items():
        field, more = parted(what)
        if field not in Field.__members__.values():
            raise ValueError(f"the key {name} cannot be {field!r}, which is not a Field")
        if field in outside or (field in (ERROR, ERROR_WORD, LANE) and not top) or (field == INDEX and not choice):
            raise ValueError(f"the key {name} cannot be {Field(field).name} where it stands")
        if not isinstance(more, dict if field == TYPE or field in NESTED else int if field == DURATION else type(None)):
            raise ValueError(f"the key {name} cannot be {Field(field).name} with {more!r}")
        if field == DURATION and not 0 <= more < DURATIONS:
            raise ValueError(f"the key {name} cannot be the duration {more}; there are {DURATIONS}")
        if field == TYPE:
            types += 1
            for typed in more.values():
                field, inside = parted(typed)
                if field not in (ANY, ERROR, LAST) or field in outside or (field == ERROR and not top):
                    raise ValueError(f"a word of {name} cannot tell {Field(field).name}")
                check(inside or {}, outside | {TYPE}, top, choice)
        elif field in NESTED:
            inside = OF_EVENT if field in (CHOICES, PARTS, CALLS) else frozenset()
            check(more, (outside - {TYPE}) | inside, False, field == CHOICES)
    if types > 1:
        raise ValueError("an object has one TYPE at the most")
    return 0


cdef dict described(dict keys):
    """*keys* with (Field, child or place) for each name; of a TYPE with word -> (Field, all keys that its object has then)."""
    found = {}
    typed = None
    for name, what in keys.items():
        field, more = parted(what)
        if field == TYPE:
            typed = name, more
        found[name] = (field, described(more) if field in NESTED else more or 0)
    if typed is not None:
        name, words = typed
        known = {**found, name: (ANY, 0)}
        variants = {}
        for word, what in words.items():
            field, more = parted(what)
            variants[word] = (field, {**known, **described(more)} if more else known)
        found[name] = (TYPE, variants)
    return found


cdef bint holds(dict tree, int field) except? False:
    return field in set(_fields(tree))


def _fields(dict tree):
    """Every field of a described *tree*, at any depth."""
    for kind, more in tree.values():
        yield kind
        if kind == TYPE:
            for _, keys in more.values():
                yield from _fields(keys)
        elif kind in NESTED:
            yield from _fields(more)


cdef uint8_t calls_of(dict tree) except 255:
    found = set(_fields(tree))
    if CALLS in found:
        return CALLS_LIST
    return CALLS_EVENT if found & OF_CALL else CALLS_NONE


cdef uint8_t finish_of(const DialectTable* d, const StringSpan* word) noexcept nogil:
    cdef int i
    if word.size == 0:
        return FINISH_NONE
    for i in range(d.word_count):
        if d.words[i].size == word.size and strncasecmp(<char*>d.words[i].name, <char*>word.at, word.size) == 0:
            return d.words[i].reason
    return FINISH_OTHER


cdef uint64_t lane_of(const StringSpan* word) noexcept nogil:
    # FNV-1a of 64 bits.
    cdef uint64_t number = 0xCBF29CE484222325
    cdef size_t i
    if word.size == 0:
        return 0
    for i in range(word.size):
        number = (number ^ word.at[i]) * <uint64_t>0x100000001B3
    return number
