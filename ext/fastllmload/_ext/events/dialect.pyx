"""A dialect: the keys of a protocol's events and what they say, its last word, its words for why an answer ended."""

from libc.string cimport memcpy, memset
from posix.strings cimport strncasecmp

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


cdef class Dialect:
    """*event*, *body*: the keys of a streamed event, and of a whole answer: name -> Field, or (Field, keys of the object or of
    the list's items), or (DURATION, Duration).

    *sentinel*: the data of an event that says nothing but the end. *repeats*: the events of a stream differ only in their
    text and their token counts. *fragments*: streamed tool calls come in fragments; else every entry is a call.
    *object_arguments*: a request that repeats a call has its arguments as an object, and calls need no ids. *words*: words
    for why an answer ended (FinishReason) besides those of FINISHES.
    """

    def __init__(self, dict event not None, dict body not None, *, bytes sentinel=b"", bint repeats=False,
                 bint fragments=False, bint object_arguments=False, dict words=None):
        cdef DialectTable* d = &self.table
        cdef int[2] used
        memset(d, 0, sizeof(DialectTable))
        self.keep = []
        used[0] = used[1] = 0
        if len(sentinel) > SENTINEL_LONGEST:
            raise ValueError(f"a last event of {len(sentinel)} bytes; at most {SENTINEL_LONGEST} are possible")
        trees = []
        for whole, keys in enumerate((event, body)):
            tree = described(keys)
            trees.append(tree)
            d.roots[whole] = self._node(tree, used)
            d.single[whole] = not holds(tree, CHOICES)
            self._steps(whole, path_to(tree, CALLS))
        self.trees = tuple(trees)
        memcpy(d.sentinel, <const char*>sentinel, len(sentinel))
        d.sentinel_size = <uint8_t>len(sentinel)
        d.repeats, d.fragments, d.object_arguments = repeats, fragments, object_arguments
        d.says_done = holds(trees[0], DONE)
        for reason, names in FINISHES.items():
            for name in names.split():
                self._word(name, reason)
        for name, reason in (words or {}).items():
            self._word(name, reason)

    cdef const unsigned char* _kept(self, str name, uint8_t* size) except NULL:
        text = name.encode()
        self.keep.append(text)
        size[0] = <uint8_t>len(text)
        return text

    cdef int _node(self, dict tree, int* used) except -1:
        """Add *tree* and what is in it; *used*: nodes and keys that are taken."""
        cdef int node = used[0]
        cdef int first = used[1]
        cdef Key* key
        if node == NODES_MOST or first + len(tree) > KEYS_MOST or len(tree) > NODE_KEYS_MOST:
            raise OverflowError("the dialect has too many keys: enlarge NODES_MOST, KEYS_MOST or NODE_KEYS_MOST")
        used[0] += 1
        used[1] += <int>len(tree)
        self.table.nodes[node].first = <uint16_t>first
        self.table.nodes[node].count = <uint16_t>len(tree)
        for place, (name, (field, more)) in enumerate(tree.items()):
            key = &self.table.keys[first + place]
            key.name = self._kept(name, &key.size)
            key.field = <uint8_t>field
            key.bit = <uint8_t>place
            key.child = <uint8_t>(self._node(more, used) if isinstance(more, dict) else more)
        return node

    cdef int _steps(self, int whole, list path) except -1:
        cdef Step* step
        if len(path) > STEPS_MOST:
            raise OverflowError(f"tool calls lie {len(path)} keys deep: enlarge STEPS_MOST")
        self.table.step_count[whole] = <uint8_t>len(path)
        for place, (name, field) in enumerate(path):
            step = &self.table.steps[whole][place]
            step.name = self._kept(name, &step.size)
            step.choices = field == CHOICES
        return 0

    cdef int _word(self, str name, int reason) except -1:
        cdef Word* word = &self.table.words[self.table.word_count]
        if self.table.word_count == WORDS_MOST:
            raise OverflowError(f"more than {WORDS_MOST} words for why an answer ended: enlarge WORDS_MOST")
        word.name = self._kept(name, &word.size)
        word.reason = <uint8_t>reason
        self.table.word_count += 1
        return 0


cdef dict described(dict keys):
    """*keys* with (Field, child or place) for each name."""
    found = {}
    for name, what in keys.items():
        field, more = what if isinstance(what, tuple) else (what, 0)
        found[name] = (field, described(more) if isinstance(more, dict) else more)
    return found


cdef bint holds(dict tree, int field) except? False:
    for kind, more in tree.values():
        if kind == field or (isinstance(more, dict) and holds(more, field)):
            return True
    return False


cdef list path_to(dict tree, int field):
    """The keys on the way to the first *field*, each with its own; empty where there is none."""
    for name, (kind, more) in tree.items():
        if kind == field:
            return [(name, kind)]
        below = path_to(more, field) if isinstance(more, dict) else []
        if below:
            return [(name, kind), *below]
    return []


cdef uint8_t finish_of(const DialectTable* d, const StringSpan* word) noexcept nogil:
    cdef int i
    if word.size == 0:
        return FINISH_NONE
    for i in range(d.word_count):
        if d.words[i].size == word.size and strncasecmp(<char*>d.words[i].name, <char*>word.at, word.size) == 0:
            return d.words[i].reason
    return FINISH_OTHER
