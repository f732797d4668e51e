"""The token estimate, declared: a run of letters is one token per started 18 letters, with the space before it; a run of
digits one per started 3; punctuation one per started 2; a run of line ends or of further white space one; any other
character one. So each of the words that synthetic prompts are made of (single tokens of cl100k_base, at most 18 letters)
counts as what it is; on other text the estimate is rough. A chat message adds 3 tokens for its template. Token ids are counted exactly. Blocks are hashed over the same tokens, so equal beginnings of
two prompts share their full blocks."""

from libc.stdint cimport int32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from fastllmload._ext.sim.sequence cimport mix

cdef enum Kind:
    NOTHING = 0
    LETTER = 1
    DIGIT = 2
    SPACE = 3
    LINE = 4
    OTHER = 5
    INSIDE = 6                  # continuation byte of a character
    PUNCTUATION = 7

cdef enum:
    LETTERS = 18                # in one token at most

cdef uint8_t[256] KIND


def _fill() -> None:
    for byte in range(256):
        if byte >= 0xC0:
            KIND[byte] = OTHER
        elif byte >= 0x80:
            KIND[byte] = INSIDE
        else:
            text = chr(byte)
            KIND[byte] = LETTER if text.isalpha() else DIGIT if text.isdigit() else SPACE if text == " " else PUNCTUATION


_fill()


def count(raw: bytes, block: int = 0) -> tuple[int, list[int]]:
    """(tokens, block hashes) of the raw JSON of a `prompt` or `messages` value."""
    cdef Prompt p
    cdef Sequence s
    memset(&s, 0, sizeof(Sequence))
    prompt_read(&p, raw, len(raw), block, &s)
    hashes = [s.hashes[i] for i in range(s.hash_count)]
    free(s.hashes)
    free(s.nodes)
    return s.prompt_tokens, hashes


cdef int add_hash(Sequence* s, uint64_t word) except -1:
    cdef uint32_t cap
    cdef void* grown
    if s.hash_count == s.hash_cap:
        cap = s.hash_cap * 2 if s.hash_cap else 32
        grown = realloc(s.hashes, cap * sizeof(uint64_t))
        if grown == NULL:
            raise MemoryError(f"no memory for {cap} block hashes")
        s.hashes = <uint64_t*>grown
        grown = realloc(s.nodes, cap * sizeof(s.nodes[0]))
        if grown == NULL:
            raise MemoryError(f"no memory for {cap} block numbers")
        s.nodes = <int32_t*>grown
        s.hash_cap = cap
    s.hashes[s.hash_count] = word
    s.hash_count += 1
    return 0


cdef inline int token(Prompt* p, Sequence* s) except -1:
    # A token begins: the block before it is complete when its size divides the count so far.
    if p.block and p.tokens and p.tokens % p.block == 0:
        add_hash(s, mix(p.hash))
    p.tokens += 1
    return 0


cdef inline int character(Prompt* p, uint8_t kind, uint8_t byte, Sequence* s) except -1:
    if kind == LETTER:
        if p.kind != LETTER:
            if not (p.kind == SPACE and p.run == 1):        # a single space belongs to the word after it
                token(p, s)
            p.run = 0
        elif p.run % LETTERS == 0:
            token(p, s)
    elif kind == DIGIT:
        if p.kind != DIGIT or p.run % 3 == 0:
            token(p, s)
    elif kind == PUNCTUATION:
        if p.kind != PUNCTUATION or p.run % 2 == 0:
            token(p, s)
    elif kind == OTHER:
        token(p, s)
    elif kind != INSIDE and p.kind != kind:
        token(p, s)
    p.run = 1 if p.kind != kind else p.run + 1
    if kind != INSIDE:
        p.kind = kind
    p.hash = (p.hash ^ byte) * 0x100000001B3ULL
    return 0


cdef const uint8_t* string(Prompt* p, const uint8_t* at, const uint8_t* end, Sequence* s) except NULL:
    # *at* is after the opening quote; returns the place after the closing one.
    cdef uint8_t escaped
    p.kind = NOTHING
    p.run = 0
    while at < end and at[0] != 34:
        if at[0] == 92 and at + 1 < end:
            escaped = at[1]
            if escaped == 117:                              # \uXXXX
                character(p, OTHER, at[5] if at + 5 < end else 0, s)
                at += 6
                continue
            character(p, LINE if escaped == 110 else PUNCTUATION, escaped, s)
            at += 2
            continue
        character(p, KIND[at[0]], at[0], s)
        at += 1
    return at + 1


cdef const uint8_t* skip_string(const uint8_t* at, const uint8_t* end) noexcept nogil:
    while at < end and at[0] != 34:
        at += 2 if at[0] == 92 else 1
    return at + 1


cdef bint is_key(const uint8_t* at, const uint8_t* end) noexcept nogil:
    # *at* is after a closing quote.
    while at < end and at[0] in (32, 9, 10, 13):
        at += 1
    return at < end and at[0] == 58


cdef int prompt_read(Prompt* p, const uint8_t* raw, size_t size, uint32_t block, Sequence* s) except -1:
    cdef const uint8_t* at = raw
    cdef const uint8_t* end = raw + size
    cdef const uint8_t* past
    cdef int depth = 0
    cdef uint64_t number, part
    memset(p, 0, sizeof(Prompt))
    p.hash = 0xCBF29CE484222325ULL
    p.block = block
    s.hash_count = 0
    while at < end:
        if at[0] == 34:
            past = skip_string(at + 1, end)
            if not is_key(past, end):
                string(p, at + 1, end, s)
                p.strings += 1
            at = past
            continue
        if 48 <= at[0] <= 57:
            number = 0
            while at < end and 48 <= at[0] <= 57:
                number = number * 10 + (at[0] - 48)
                at += 1
            token(p, s)
            p.numbers += 1
            p.hash = mix(p.hash ^ number)
            continue
        if at[0] == 123:
            if depth == 1:
                p.messages += 1
                for part in range(3):
                    token(p, s)
                    p.hash = mix(p.hash ^ part)             # blocks that end between them differ
        if at[0] == 91 or at[0] == 123:
            depth += 1
        elif at[0] == 93 or at[0] == 125:
            depth -= 1
        at += 1
    if p.block and p.tokens and p.tokens % p.block == 0:
        add_hash(s, mix(p.hash))
    s.prompt_tokens = <int>(p.tokens if p.tokens else 1)
    return 0
