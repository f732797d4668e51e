"""What one event means.

Three ways to the same answer; `Meaning.decoder` says which one was taken.

1. *template*: the event equals the stream's previous one in every byte but those of its text, of token ids and counts, and
   of numbers that say nothing. Then its structure is the same, hence valid. Where the text is all of it since the stream
   began, it is compared with the previous one's, and what is new begins where that ended.
2. *scan*: one strict pass in C (facts.pyx). It gives up on what is unusual.
3. *msgspec*: a tree, walked in Python (tree.pyx). It decides all the rest, and everything under
   `strict`.

What is said is judged in one place, `judge`, by this table (spec/metrics 3.2). The first line that applies
gives the kind.

    the dialect's sentinel ([DONE]), blanks around it allowed             DONE
    nothing, or blanks alone: a `data:` line without data                 OTHER
    not JSON, not an object, or one without choices, usage, error,
      object and id                                                       BAD
    error: an object, or anything that is not null, false, 0 or empty     ERROR; nothing else is looked at
    object: "error", or a type that tells of an error                     ERROR; likewise
    choices, its entry, what carries the text, a text field, role,
      finish_reason, index or tool_calls of another type than OpenAI's    BAD
    content (or a completion's text), not only whitespace                 CONTENT
    a tool call (or function_call) with a name or arguments               TOOL
    content that is only whitespace (str.isspace)                         WHITESPACE
    reasoning_content or reasoning not empty                              REASONING
    refusal not empty                                                     REFUSAL
    token ids that are the answer, in an event without a key of content   CONTENT, without text
    finish_reason not empty                                               FINISH
    role not empty                                                        ROLE
    a choice, or an Ollama object: an empty delta                         EMPTY
    an empty text                                                         EMPTY
    usage with a count                                                    USAGE
    anything else: no choices, index > 0                                  OTHER

Ollama's events (docs/api.md of Ollama) have the same kinds. What carries the text is `message` (chat) or
`response` (generate); `thinking` is reasoning, `done_reason` a finish_reason that counts when `done` is true,
`eval_count`, `prompt_eval_count` and `prompt_eval_cached_count` are usage. `done` without text and without a
reason is DONE, and there is no [DONE].

Other protocols' events are read by the same table, with the keys that their dialects give (tests/ext/dialects.py): a choice
is then any object of a list of which one is timed, or the event itself. Three things are put right first (`recall`): content
that is all of it since the stream began, content that is a token's name, and prompt tokens that leave out those of a cache.
The `event:` name of a server-sent event has no part in it: servers that send one say the same as `type` in the data, which
other transports have too.

finish_reason and usage are reported with any kind but ERROR and BAD. null is as good as absent, and of
equal keys the last one counts. Of several choices the first whose index is 0 (or absent) counts; if there is
none, nothing of them does. A token count that is not an integer from 0 to 2,147,483,647 is absent. Text that is
not UTF-8 is read with U+FFFD in place of what is wrong, as server-sent events demand, and so is an unpaired
surrogate. An integer of more than 4,300 digits, or nesting beyond Python's recursion limit, makes an event
BAD. The kind of a whole body is never DONE, FINISH, USAGE, ROLE or EMPTY, but OTHER.

How many tokens an event carries follows from cumulative usage (timeline.pyx), or by a list with one item per token:
`token_ids` of the choice, else its `logprobs`, which Ollama has at the top. Anything but a list counts as absent.
"""

import msgspec

from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memchr, memcpy, memset

from fastllmload._ext.bytes.carry cimport CARRY_KEEP, carry_add, carry_free, carry_reset
from fastllmload._ext.bytes.jsonscan cimport blank_text, json_blanks, json_number, json_short, json_word
from fastllmload._ext.bytes.schema cimport written_free
from fastllmload._ext.events.dialect cimport (
    ANSWER_IDS, CALLS_EVENT, COMPLETION_TOKENS, COUNTER, EVENT_TOKENS, FINISH_NONE, REASONING_TOKENS, TOKEN_ID, TOKEN_IDS,
)
from fastllmload._ext.events.facts cimport Place, facts_clear, facts_scan
from fastllmload._ext.events.message cimport message_read
from fastllmload._ext.system.static_assert cimport FLL_STATIC_ASSERT

cdef extern from *:
    """
    #include <string.h>
    /* memcmp() == 0, without a call where the pieces are short, as most between two slots are. */
    static inline int fll_same(const unsigned char *a, const unsigned char *b, size_t size) {
        unsigned long long first[2], last[2];
        if (size < 8 || size > 16)
            return memcmp(a, b, size) == 0;
        memcpy(&first[0], a, 8);
        memcpy(&first[1], b, 8);
        memcpy(&last[0], a + size - 8, 8);
        memcpy(&last[1], b + size - 8, 8);
        return first[0] == first[1] && last[0] == last[1];
    }
    """
    bint fll_same(const unsigned char* a, const unsigned char* b, size_t size) noexcept nogil

cdef object STRING = msgspec.json.Decoder(str)


cdef void template_reset(Template* t) noexcept nogil:
    template_forget(t)
    recalled_clear(&t.recalled)
    if t.slots != NULL:
        carry_reset(&t.slots.text.bytes, &t.slots.text.size, &t.slots.text.cap)
        carry_reset(&t.slots.ids.bytes, &t.slots.ids.size, &t.slots.ids.cap)


cdef inline void template_forget(Template* t) noexcept nogil:
    t.plain = t.repeats = 0
    t.prefix = t.suffix = 0


cdef inline void recalled_clear(Recalled* r) noexcept nogil:
    r.characters = 0
    r.uncached_tokens = r.cached_tokens = r.written_tokens = -1
    r.lane = 0
    r.listed = False


cdef void template_free(Template* t) noexcept nogil:
    free(t.bytes)
    t.bytes = NULL
    template_forget(t)
    if t.slots != NULL:
        carry_free(&t.slots.text.bytes, &t.slots.text.size, &t.slots.text.cap)
        carry_free(&t.slots.ids.bytes, &t.slots.ids.size, &t.slots.ids.cap)
        free(t.slots)
        t.slots = NULL


cdef size_t template_held(const Template* t) noexcept nogil:
    if t.slots == NULL:
        return 0
    return ((t.slots.text.cap if t.slots.text.cap > CARRY_KEEP else 0)
            + (t.slots.ids.cap if t.slots.ids.cap > CARRY_KEEP else 0))


cdef bint template_read(Template* t, const unsigned char* data, size_t size, Meaning* m) noexcept nogil:
    cdef Cursor c
    cdef Alike said
    over(&c, data, size)
    said.completion_tokens = said.reasoning_tokens = said.listed_tokens = -1
    if not template_takes(t, &c, &said) or c.at != c.end:
        return False
    if t.repeats:
        template_grows(t, &said)
    say(m, t.kind, DECODED_BY_TEMPLATE)
    m.has_usage = t.has_usage
    m.prompt_tokens = t.prompt_tokens
    m.completion_tokens = said.completion_tokens
    m.reasoning_tokens = said.reasoning_tokens
    m.cached_tokens = t.cached_tokens
    m.listed_tokens = said.listed_tokens
    if t.kind == EVENT_CONTENT and said.text.size and blank_text(said.text.at, said.text.size):
        m.kind = EVENT_WHITESPACE
    m.text = said.text.at
    m.text_size = <uint32_t>said.text.size
    return True


cdef bint template_takes_slots(Template* t, Cursor* c, Alike* said) noexcept nogil:
    cdef Cursor at = c[0]
    cdef const uint8_t* literal = t.bytes
    cdef size_t piece
    cdef int i
    if t.prefix == 0:
        return False
    said.text = said.ids = StringSpan(NULL, 0, False)
    said.completion_tokens = said.reasoning_tokens = said.listed_tokens = -1
    for i in range(t.slots.count):
        piece = t.slots.before[i] - <size_t>(literal - t.bytes)
        if left(&at) < piece or not fll_same(at.at, literal, piece):
            return False
        at.at += piece
        literal += piece
        if not takes_slot(t, <Slot>t.slots.kinds[i], &at, said):
            return False
    piece = <size_t>t.prefix + t.suffix - <size_t>(literal - t.bytes)
    if left(&at) < piece or memcmp(at.at, literal, piece) != 0:
        return False
    if t.slots.so_far and t.repeats != says_all(said.listed_tokens, said.completion_tokens):
        return False
    if said.text.size == 0 and said.listed_tokens <= 0:
        return False
    if said.listed_tokens < 0:
        said.listed_tokens = t.listed_tokens
    c.at = at.at + piece
    return True


cdef const unsigned char* quote_after_escapes(const unsigned char* text, const unsigned char* end) noexcept nogil:
    cdef Cursor c
    cdef StringSpan body
    over(&c, text, <size_t>(end - text))
    return c.at - 1 if json_string(&c, &body) and body.size else NULL


cdef inline bint says_all(int32_t token_ids, int32_t completion_tokens) noexcept nogil:
    # Of an event whose text may be all of it since the stream began: whether it is. One that lists fewer tokens is not.
    return not 0 <= token_ids < completion_tokens


cdef inline bint takes_slot(Template* t, Slot slot, Cursor* c, Alike* said) noexcept nogil:
    cdef const unsigned char* quote
    cdef StringSpan word
    cdef int32_t count
    if slot == SLOT_TEXT:
        if t.repeats and not (t.slots.text.count == t.recalled.characters and takes_repeated(&t.slots.text, c)):
            return False
        said.text.at = c.at
        to_special(c)
        said.text.escaped = c.at == c.end or c.at[0] != c'"' or c.at == said.text.at
        if said.text.escaped:
            quote = quote_after_escapes(said.text.at, c.end)
            if quote == NULL:
                return False
            c.at = quote
        said.text.size = <size_t>(c.at - said.text.at)
        return True
    if slot == SLOT_NUMBER:
        return takes_number(c)
    if slot == SLOT_COMPLETION:
        return takes_count(c, &said.completion_tokens)
    if slot == SLOT_REASONING:
        return takes_count(c, &said.reasoning_tokens)
    if slot == SLOT_WORD:
        word.at = c.at
        to_special(c)
        if c.at < c.end and c.at[0] == c'"':
            return True
        c.at = word.at
        if not json_string(c, &word):
            return False
        c.at -= 1
        return True
    if slot == SLOT_IDS:
        return takes_ids(t, c, said)
    count = 1
    if not (takes_number(c) if slot == SLOT_TOKEN else takes_count(c, &count)):
        return False
    said.listed_tokens = max(said.listed_tokens, count)
    return True


cdef inline bint takes_number(Cursor* c) noexcept nogil:
    return json_short(c) or json_number(c)


cdef inline bint takes_repeated(const Repeated* known, Cursor* c) noexcept nogil:
    if left(c) < known.size or memcmp(c.at, known.bytes, known.size) != 0:
        return False
    c.at += known.size
    return True


cdef inline bint takes_count(Cursor* c, int32_t* count) noexcept nogil:
    # An integer of at most nine digits, as JSON writes it.
    cdef const unsigned char* start = c.at
    count[0] = 0
    while c.at < c.end and c'0' <= c.at[0] <= c'9' and c.at - start < 10:
        count[0] = count[0] * 10 + (c.at[0] - c'0') if c.at - start < 9 else 0
        c.at += 1
    return 1 <= c.at - start <= 9 and (start[0] != c'0' or c.at - start == 1)


cdef inline bint takes_ids(const Template* t, Cursor* c, Alike* said) noexcept nogil:
    # A blank may follow a comma.
    said.id_count = 0
    if not json_word(c, b"[", 1):
        return False
    if t.repeats and t.slots.ids.size:
        if not takes_repeated(&t.slots.ids, c):
            return False
        said.id_count = t.slots.ids.count
    said.ids.at = c.at
    while c.at < c.end and c.at[0] != c']':
        if said.id_count:
            if not json_word(c, b",", 1):
                return False
            c.at += c.at < c.end and c.at[0] == c' '
        if not takes_number(c):
            return False
        said.id_count += 1
    said.ids.size = <size_t>(c.at - said.ids.at)
    said.listed_tokens = max(said.listed_tokens, <int32_t>said.id_count)
    return json_word(c, b"]", 1)


cdef void template_grows(Template* t, const Alike* said) noexcept nogil:
    t.recalled.characters += characters_of(&said.text) if said.text.escaped else <uint32_t>said.text.size
    if not grow(&t.slots.text, &said.text, t.recalled.characters) or not grow(&t.slots.ids, &said.ids, said.id_count):
        template_forget(t)          # without memory the stream is scanned


cdef inline bint grow(Repeated* known, const StringSpan* more, uint32_t count) noexcept nogil:
    known.count = count
    return carry_add(&known.bytes, &known.size, &known.cap, more.at, more.size) == 0


cdef void template_learn(Template* t, const unsigned char* data, size_t size, Meaning* m, const Facts* f) noexcept nogil:
    # Only of an event that says one text, or ids in place of it: another text of the same kind then changes nothing else, and
    # another number is another number.
    cdef const Place* place
    cdef const unsigned char* at = data
    cdef StringSpan text = StringSpan(NULL, 0, False)
    cdef StringSpan ids = StringSpan(NULL, 0, False)
    cdef Slots found
    cdef Slots* slots
    cdef size_t used = 0
    cdef int i
    FLL_STATIC_ASSERT(TEMPLATE_LONGEST <= 65535)    # Template.prefix, suffix; Slots.before
    template_forget(t)
    if t.bytes == NULL:
        t.bytes = <uint8_t*>malloc(TEMPLATE_LONGEST)
    if t.bytes == NULL or f.place_count > PLACES_MOST:
        return                      # without a template the stream is scanned
    found.count = 0
    for i in range(f.place_count):
        place = &f.places[i]
        if place.at == place.end:
            continue                # an empty text stays empty
        if not keep_literal(t, &used, at, place.at):
            return
        at = place.end
        found.before[found.count] = <uint16_t>used
        found.kinds[found.count] = slot_of(place)
        if found.kinds[found.count] == SLOT_TEXT:
            text = StringSpan(place.at, <size_t>(at - place.at), False)
        elif found.kinds[found.count] == SLOT_IDS:
            ids = StringSpan(place.at + 1, <size_t>(at - place.at) - 2, False)
        found.count += 1
    if not keep_literal(t, &used, at, data + size):
        return
    t.plain = found.count == 1 and text.size and not f.so_far and not m.has_usage and m.listed_tokens < 0
    if not t.plain:
        if t.slots == NULL:
            t.slots = <Slots*>calloc(1, sizeof(Slots))
        if t.slots == NULL:
            return
        slots = t.slots
        slots.count = found.count
        slots.so_far = f.so_far
        slots.kinds = found.kinds
        slots.before = found.before
        slots.text.size = slots.ids.size = 0
        t.repeats = f.so_far and says_all(f.token_ids, f.completion_tokens)
        if t.repeats and not (grow(&slots.text, &text, t.recalled.characters)
                              and grow(&slots.ids, &ids, <uint32_t>max(f.token_ids, 0))):
            return
    t.kind = EVENT_REASONING if m.kind == EVENT_REASONING else EVENT_CONTENT
    t.one_line = t.kind == EVENT_CONTENT and memchr(data, c'\n', size) == NULL and memchr(data, c'\r', size) == NULL
    t.has_usage = m.has_usage
    t.prompt_tokens = m.prompt_tokens
    t.cached_tokens = m.cached_tokens
    t.listed_tokens = m.listed_tokens
    t.prefix = found.before[0]
    t.suffix = <uint16_t>used - t.prefix


cdef inline bint keep_literal(Template* t, size_t* used, const unsigned char* at, const unsigned char* end) noexcept nogil:
    cdef size_t size = <size_t>(end - at)
    if used[0] + size > TEMPLATE_LONGEST:
        return False
    memcpy(t.bytes + used[0], at, size)
    used[0] += size
    return True


cdef uint8_t slot_of(const Place* place) noexcept nogil:
    if place.field == COMPLETION_TOKENS:
        return SLOT_COMPLETION
    if place.field == REASONING_TOKENS:
        return SLOT_REASONING
    if place.field == TOKEN_IDS or place.field == ANSWER_IDS:
        return SLOT_IDS
    if place.field == TOKEN_ID:
        return SLOT_TOKEN
    if place.field == EVENT_TOKENS:
        return SLOT_TOKENS
    if place.field == COUNTER:
        return SLOT_WORD if (place.at - 1)[0] == c'"' else SLOT_NUMBER
    return SLOT_TEXT


cdef inline bint one_text(const Facts* f, const DialectTable* d, const Meaning* m) noexcept nogil:
    cdef int i
    if m.kind != EVENT_CONTENT and m.kind != EVENT_WHITESPACE and m.kind != EVENT_REASONING:
        return False
    if m.finish != FINISH_NONE or m.done or f.tool or f.calls:
        return False
    for i in range(DURATIONS):
        if m.server_ns[i] != 0:
            return False
    if d.sums and (f.uncached_tokens >= 0 or f.cached_tokens >= 0 or f.written_tokens >= 0):
        return False
    return ((f.content.size > 0) + (f.reasoning_content.size > 0) + (f.reasoning.size > 0)
            + (f.refusal.size > 0)) == (m.text != NULL)


cdef inline void say(Meaning* m, uint8_t kind, uint8_t decoder) noexcept nogil:
    memset(m, 0, sizeof(Meaning))
    m.kind = kind
    m.decoder = decoder
    m.prompt_tokens = m.completion_tokens = m.reasoning_tokens = m.cached_tokens = m.listed_tokens = -1


cdef bint is_blank(const unsigned char* data, size_t size) noexcept nogil:
    cdef Cursor c
    over(&c, data, size)
    json_blanks(&c)
    return c.at == c.end


cdef bint is_sentinel(const DialectTable* d, const unsigned char* data, size_t size) noexcept nogil:
    cdef Cursor c
    over(&c, data, size)
    json_blanks(&c)
    if not json_word(&c, <const char*>d.sentinel, d.sentinel_size):
        return False
    json_blanks(&c)
    return c.at == c.end


cdef void recall(Recalled* r, Facts* f, const Slots* known, const DialectTable* d) noexcept nogil:
    """What *f* says by itself, of what it says together with the events before it. *known*: content of these; NULL: it is not kept."""
    if f.lane and r.lane and f.lane != r.lane:
        facts_clear(f, d, False)
        f.known = True
        f.choice = False
        return
    r.lane = f.lane if r.lane == 0 else r.lane
    if f.so_far and says_all(f.token_ids, f.completion_tokens):
        if known != NULL and begins_with(&f.content, &known.text) and known.text.count == r.characters:
            f.content.at += known.text.size
            f.content.size -= known.text.size
        else:
            skip_characters(&f.content, r.characters)
        r.characters += characters_of(&f.content)
    if f.special:
        f.content.size = 0
    if f.whole_ids >= 0 and not r.listed:
        f.token_ids = f.whole_ids
        f.answer_ids = True
    r.listed |= f.token_ids > 0
    if f.uncached_tokens < 0 and f.cached_tokens < 0 and f.written_tokens < 0:
        return
    r.uncached_tokens = f.uncached_tokens if f.uncached_tokens >= 0 else r.uncached_tokens
    r.cached_tokens = f.cached_tokens if f.cached_tokens >= 0 else r.cached_tokens
    r.written_tokens = f.written_tokens if f.written_tokens >= 0 else r.written_tokens
    if r.uncached_tokens >= 0:
        f.prompt_tokens = <int32_t>min(<int64_t>r.uncached_tokens + max(r.cached_tokens, 0) + max(r.written_tokens, 0),
                                       <int64_t>0x7FFFFFFF)


cdef void recall_in(Template* t, Facts* f, const DialectTable* d) noexcept nogil:
    """*t*: the stream; NULL: the event is a whole body."""
    cdef Recalled none
    if t != NULL:
        recall(&t.recalled, f, t.slots if t.repeats else NULL, d)
    else:
        recalled_clear(&none)
        recall(&none, f, NULL, d)


cdef inline bint begins_with(const StringSpan* body, const Repeated* known) noexcept nogil:
    return body.size >= known.size and known.size and memcmp(body.at, known.bytes, known.size) == 0


cdef inline void to_character(Cursor* c) noexcept nogil:
    # Behind one character of the body of a string: one byte or an escape, and the bytes that continue it.
    cdef bint high
    if c.at[0] != c'\\':
        c.at += 1
        while c.at < c.end and c.at[0] & 0xC0 == 0x80:
            c.at += 1
    elif c.at[1] != c'u':
        c.at += 2
    else:                           # D800 to DBFF is the first half of one
        high = c.at[2] | 0x20 == c'd' and (c.at[3] == c'8' or c.at[3] == c'9' or c.at[3] | 0x20 == c'a' or c.at[3] | 0x20 == c'b')
        c.at += 12 if high else 6


cdef uint32_t characters_of(const StringSpan* body) noexcept nogil:
    cdef Cursor c
    cdef uint32_t found = 0
    over(&c, body.at, body.size)
    while c.at < c.end:
        to_character(&c)
        found += 1
    return found


cdef void skip_characters(StringSpan* body, uint32_t count) noexcept nogil:
    cdef Cursor c
    over(&c, body.at, body.size)
    while count and c.at < c.end:
        to_character(&c)
        count -= 1
    body.at, body.size = c.at, left(&c)


cdef void judge(Facts* f, const DialectTable* d, uint8_t calls, uint8_t decoder, Meaning* m) noexcept nogil:
    """The table of this module's docstring, from the line about `error` on."""
    say(m, EVENT_OTHER, decoder)
    if f.error or not f.known:
        m.kind = EVENT_ERROR if f.error else EVENT_BAD
        return
    m.prompt_tokens = f.prompt_tokens
    m.completion_tokens = f.completion_tokens
    m.reasoning_tokens = f.reasoning_tokens
    m.cached_tokens = f.cached_tokens
    m.has_usage = (f.prompt_tokens >= 0 or f.completion_tokens >= 0 or f.reasoning_tokens >= 0
                   or f.cached_tokens >= 0)
    m.done = f.done
    FLL_STATIC_ASSERT(sizeof(m.server_ns) == sizeof(f.server_ns))
    memcpy(m.server_ns, f.server_ns, sizeof(m.server_ns))
    if f.index == 0:
        m.calls = f.calls or (f.tool and calls == CALLS_EVENT)
        m.listed_tokens = f.token_ids if f.token_ids >= 0 else f.logprobs
        if f.done or not d.says_done:
            m.finish = f.detail if f.detail != FINISH_NONE else f.finish
        if judge_text(f, m):
            return
    if m.finish != FINISH_NONE:
        m.kind = EVENT_FINISH
    elif m.done and f.token_ids <= 0:
        m.kind = EVENT_DONE
    elif f.index == 0 and f.role:
        m.kind = EVENT_ROLE
    elif f.index == 0 and (f.choice or has_text_key(f)):
        m.kind = EVENT_EMPTY
    elif m.has_usage:
        m.kind = EVENT_USAGE


cdef inline bint has_text_key(Facts* f) noexcept nogil:
    return (f.content.at != NULL or f.reasoning.at != NULL or f.reasoning_content.at != NULL or f.refusal.at != NULL)


cdef bint judge_text(Facts* f, Meaning* m) noexcept nogil:
    cdef StringSpan* text
    cdef bint blank = f.content.size > 0 and blank_text(f.content.at, f.content.size)
    if f.content.size > 0 and not (blank and f.tool):
        m.kind = EVENT_WHITESPACE if blank else EVENT_CONTENT
        text = &f.content
    elif f.tool:
        m.kind = EVENT_TOOL
        text = &f.arguments if f.arguments.size > 0 else &f.name
    elif f.reasoning_content.size > 0 or f.reasoning.size > 0:
        m.kind = EVENT_REASONING
        text = &f.reasoning_content if f.reasoning_content.size > 0 else &f.reasoning
    elif f.refusal.size > 0:
        m.kind = EVENT_REFUSAL
        text = &f.refusal
    elif f.answer_ids and f.token_ids > 0 and f.content.at == NULL:
        m.kind = EVENT_CONTENT
        return True
    else:
        return False
    if text.size > 0:
        m.text = text.at
        m.text_size = <uint32_t>text.size
    return True


cdef class Classifier:
    """Meanings of the events of *dialect*, and of others that are added; *strict*: msgspec on every event.

    ``classify_bytes`` and ``classify_body_bytes`` are for tests and for callers outside the hot path, on *dialect*: a dict of
    the fields of `Meaning`, numbers as in `records.layout`, ``text`` as escaped bytes or None.
    """

    def __init__(self, Dialect dialect not None, bint strict=False):
        self.dialects = []
        self.strict = strict
        self._tree = EventTree()
        template_reset(&self._template)
        self.add(dialect)

    def __dealloc__(self):
        template_free(&self._template)
        written_free(&self._text)

    def add(self, Dialect dialect not None) -> int:
        """The number of *dialect*, which is added unless it is there."""
        for number, known in enumerate(self.dialects):
            if known is dialect:
                return number
        FLL_STATIC_ASSERT(DIALECTS_MOST <= 256)     # Exchange.dialect
        if len(self.dialects) == DIALECTS_MOST:
            raise OverflowError(f"more than {DIALECTS_MOST} dialects: enlarge DIALECTS_MOST")
        self.dialects.append(dialect)
        self.tables[len(self.dialects) - 1] = &dialect.table
        return len(self.dialects) - 1

    cdef int classify(self, uint8_t dialect, Template* t, const unsigned char* data, size_t size, Meaning* m) except -1:
        cdef Facts f
        cdef const DialectTable* d = self.tables[dialect]
        if not self.strict and template_read(t, data, size, m):
            self.by_template += 1
            return 0
        if d.sentinel_size:
            if is_sentinel(d, data, size):
                self.by_scan += 1
                say(m, EVENT_DONE, DECODED_BY_SCAN)
                return 0
            if is_blank(data, size):
                self.by_scan += 1
                say(m, EVENT_OTHER, DECODED_BY_SCAN)
                return 0
        if self._scan(data, size, d, t, &f, m):
            if one_text(&f, d, m):
                template_learn(t, data, size, m, &f)
            return 0
        return self._decode(data, size, dialect, t, m)

    cdef int classify_message(self, uint8_t dialect, Template* t, const unsigned char* data, size_t size, Meaning* m) except -1:
        cdef Facts f
        cdef const DialectTable* d = self.tables[dialect]
        self.by_scan += 1
        facts_clear(&f, d, False)
        if not message_read(&f, d, data, size, &self._text):
            say(m, EVENT_BAD, DECODED_BY_SCAN)
            return 0
        if d.recalls:
            recall_in(t, &f, d)
        judge(&f, d, d.calls[0], DECODED_BY_SCAN, m)
        if m.text == NULL:
            m.text = f.word.at
            m.text_size = <uint32_t>f.word.size
        return 0

    cdef int classify_body(self, uint8_t dialect, const unsigned char* data, size_t size, Meaning* m) except -1:
        cdef Facts f
        if not self._scan(data, size, self.tables[dialect], NULL, &f, m):
            self._decode(data, size, dialect, NULL, m)
        if (m.kind == EVENT_USAGE or m.kind == EVENT_FINISH or m.kind == EVENT_ROLE or m.kind == EVENT_DONE
                or m.kind == EVENT_EMPTY):
            m.kind = EVENT_OTHER
        return 0

    cdef bint _scan(self, const unsigned char* data, size_t size, const DialectTable* d, Template* t, Facts* f,
                    Meaning* m) noexcept:
        cdef bint whole = t == NULL
        facts_clear(f, d, whole)
        if self.strict or not facts_scan(f, d, whole, data, size):
            return False
        self.by_scan += 1
        if d.recalls:
            recall_in(t, f, d)
        judge(f, d, d.calls[whole], DECODED_BY_SCAN, m)
        return True

    cdef int _decode(self, const unsigned char* data, size_t size, uint8_t dialect, Template* t, Meaning* m) except -1:
        cdef Facts f
        cdef bint whole = t == NULL
        cdef const DialectTable* d = self.tables[dialect]
        self.by_msgspec += 1
        facts_clear(&f, d, whole)
        if not self._tree.read(data, size, <Dialect>self.dialects[dialect], whole, &f):
            say(m, EVENT_BAD, DECODED_BY_MSGSPEC)
            return 0
        if d.recalls:
            recall_in(t, &f, d)
        judge(&f, d, d.calls[whole], DECODED_BY_MSGSPEC, m)
        return 0

    def classify_bytes(self, const unsigned char[::1] data not None):
        """Meaning of one event. The object is one stream: templates are learned from call to call."""
        cdef Meaning m
        if self.tables[0].message:
            self.classify_message(0, &self._template, &data[0] if len(data) else NULL, <size_t>len(data), &m)
        else:
            self.classify(0, &self._template, &data[0] if len(data) else NULL, <size_t>len(data), &m)
        return as_dict(&m)

    def classify_body_bytes(self, const unsigned char[::1] data not None):
        """Meaning of a whole response body."""
        cdef Meaning m
        self.classify_body(0, &data[0] if len(data) else NULL, <size_t>len(data), &m)
        return as_dict(&m)

    def text_of(self, const unsigned char[::1] data not None):
        """The text that an event carries, or None."""
        escaped = self.classify_bytes(data)["text"]
        return None if escaped is None else expand_text(escaped)

    def tally(self, list events not None):
        """How many of *events*, one stream, have each kind. No object is made per event."""
        cdef Meaning m
        cdef bytes data
        cdef uint64_t[EVENT_KINDS] found
        memset(found, 0, sizeof(found))
        for data in events:
            self.classify(0, &self._template, data, <size_t>len(data), &m)
            found[m.kind] += 1
        return list(found)

    def forget(self):
        """The next event of classify_bytes begins another stream."""
        template_reset(&self._template)


cdef dict as_dict(Meaning* m):
    cdef int i
    return {
        "kind": m.kind,
        "finish": m.finish,
        "decoder": m.decoder,
        "has_usage": bool(m.has_usage),
        "prompt_tokens": m.prompt_tokens,
        "completion_tokens": m.completion_tokens,
        "reasoning_tokens": m.reasoning_tokens,
        "cached_tokens": m.cached_tokens,
        "listed_tokens": m.listed_tokens,
        "done": bool(m.done),
        "calls": bool(m.calls),
        "server_ns": [m.server_ns[i] for i in range(DURATIONS)],
        "text": None if m.text == NULL else m.text[:m.text_size],
    }


def expand_text(bytes escaped not None) -> str:
    """The string whose JSON form, without its quotes, is *escaped*: what `Meaning.text` and text.bin hold.

    ValueError when it is not the inside of a JSON string.
    """
    try:
        return STRING.decode(b'"%s"' % escaped)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"not the inside of a JSON string: {error}") from error
