# cython: cdivision=True
"""Bytes of chat completions and completions as vLLM writes them: events of a stream, and whole documents."""

import msgspec

from fastllmload._ext.bytes.digits cimport put_number
from fastllmload._ext.sim.sequence cimport DRAW_WORD, draw

# Each word with its leading space is one token of cl100k_base, so a client that counts tokens of the text agrees with us.
_WORDS = (
    " the of and to in is that for it as was with be by on not he his but at are this have from or had an they which one"
    " you were her all she there would their we him been has when who will more no if out so said what up its about into"
    " than them can only other new some could"
).split()
assert len(_WORDS) == WORDS, len(_WORDS)
_KEPT = [b" " + word.encode() for word in _WORDS]
ERROR_JSON = b'{"error":{"message":"simulated failure","type":"InternalServerError","param":null,"code":500}}'
REASONS = (b"stop", b"length", b"abort")       # by Ending
cdef enum:
    LIST_ROOM = 32_768          # of 256 tokens
    FIRST_ID = 1000             # of the words' ids
_PAD = b',"obfuscation":""'         # the field that OpenAI itself pads its events with


def words() -> list[str]:
    """The vocabulary, in the order of the words' numbers."""
    return [word.decode() for word in _KEPT]


def _fill() -> None:
    for number, word in enumerate(_KEPT):
        WORD[number].at = <const uint8_t*><const char*>word
        WORD[number].size = len(word)


_fill()


cdef inline void patch(uint8_t* base, size_t id_at, size_t created_at, Stamp* s) noexcept nogil:
    # 16 hex digits and 10 decimal ones, at places that hold zeros.
    cdef const char* hexadecimal = b"0123456789abcdef"
    cdef int64_t created = s.created
    cdef int i
    for i in range(16):
        base[id_at + i] = <uint8_t>hexadecimal[(s.id >> (60 - 4 * i)) & 15]
    for i in range(10):
        base[created_at + 9 - i] = <uint8_t>(48 + created % 10)
        created //= 10


cdef uint8_t* raw_event(uint8_t* out, Stamp* s, const uint8_t* text, size_t size) noexcept nogil:
    if s.chunked:
        out = put_chunk_size(out, size + line_end_size(s))
    out = put_line_end(put(out, text, size), s)
    return put(out, b"\r\n", 2) if s.chunked else out


cdef class Form:
    """*kind*: FormKind. *chunk_bytes*: content events are padded to about that many bytes (their `data:` line with a word of average length)."""

    def __init__(self, kind: int, model: str, chunk_bytes: int = 0):
        self.kind = kind
        self.chat = kind == FORM_CHAT
        self.reasons = kind != FORM_COMPLETIONS
        self.model = model
        self.keep = []
        self.nothing = self.keep_piece(b"")
        self.fill(chunk_bytes)

    def fill(self, chunk_bytes: int) -> None:
        chat = self.chat
        name = msgspec.json.encode(self.model)
        kind = b"chat.completion" if chat else b"text_completion"
        start = b'{"id":"%s-%s","object":"%s%s","created":%s,"model":%s,"choices":['
        ident = b"chatcmpl" if chat else b"cmpl"
        stream = start % (ident, b"0" * 16, kind, b".chunk" if chat else b"", b"0" * 10, name)
        document = start % (ident, b"0" * 16, kind, b"", b"0" * 10, name)
        self.opening = self.keep_piece(b"data: " + stream)
        self.id_at = 6 + len(b'{"id":"-' + ident)
        self.created_at = 6 + stream.index(b'"created":') + 10
        self.document_id_at = self.id_at - 6
        self.document_created_at = document.index(b'"created":') + 10
        self.events_of(chunk_bytes)
        self.documents_of(document)
        self.speaks(b"text/event-stream; charset=utf-8")
        self.failure = ERROR_JSON
        self.error_line = b"data: " + ERROR_JSON
        self.broken_line = b'data: {"id":"chatcmpl-0","choices":[{"index":0,"delta":{"content":" bro'
        self.deep_open, self.deep_close, self.huge_open = b'data: {"choices":', b"}", b"data: "
        self.comment = b": ping"

    def speaks(self, stream_type: bytes) -> None:
        self.stream_type = stream_type
        self.stream_head = b"HTTP/1.1 200 OK\r\nserver: fastllmload-simulator\r\ncontent-type: %s\r\n" % stream_type

    def events_of(self, chunk_bytes: int) -> None:
        text = b'{"index":0,"delta":{"%s":"' if self.chat else b'{"index":0,"text":"'
        after = b'"},"logprobs":null,"finish_reason":%s}]' if self.chat else b'","logprobs":null,"finish_reason":%s}]'
        empty = b'{"index":0,"delta":{},"logprobs":null,"finish_reason":"%s"}]}'
        if not self.chat:
            empty = b'{"index":0,"text":"","logprobs":null,"finish_reason":"%s"}]}'
        content = text % b"content" if self.chat else text
        thought = text % b"reasoning_content" if self.chat else text
        plain = self.opening.size + len(content) + 5 + len(after % b"null") + 3
        room = chunk_bytes - plain - len(_PAD)
        pad = b',"obfuscation":"' + b"x" * room + b'"' if room > 0 else b""
        self.content_open = self.keep_piece(content)
        self.content_close = self.keep_piece(after % b"null" + pad + b"}")
        split = after.index(b"null")
        self.to_logprobs, self.to_ids = self.keep_piece(after[:split]), self.keep_piece(b',"finish_reason":null')
        self.to_end = self.keep_piece(b"}]}")       # what has lists is not padded
        self.reasoning_open = self.keep_piece(thought)
        self.reasoning_close = self.content_close
        role = b'{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}'
        self.role = self.keep_piece(role)
        for ending, reason in enumerate(REASONS):
            self.finishes[ending] = self.keep_piece(empty % reason)
        self.done = self.keep_piece(b"data: [DONE]")
        self.event_size = self.opening.size + self.reasoning_open.size + self.content_close.size + WORD_LONGEST + EVENT_SLACK

    def documents_of(self, document: bytes) -> None:
        text = b'{"index":0,"message":{"role":"assistant","content":"' if self.chat else b'{"index":0,"text":"'
        after = b'"},"logprobs":null,"finish_reason":"%s"}]' if self.chat else b'","logprobs":null,"finish_reason":"%s"}]'
        self.document_opening = self.keep_piece(document + text)
        for ending, reason in enumerate(REASONS):
            self.document_ends[ending] = self.keep_piece(after % reason)

    cdef Piece keep_piece(self, bytes text):
        cdef Piece piece
        self.keep.append(text)
        piece.at = <const uint8_t*><const char*>text
        piece.size = len(text)
        return piece

    cdef uint8_t* event(self, uint8_t* out, Stamp* s, Piece before, const uint8_t* text, size_t size, Piece after) noexcept:
        cdef uint8_t* start
        cdef uint8_t[128] said
        cdef size_t more = put_running_usage(said, s) - said if s.counted else 0
        cdef size_t all = self.opening.size + before.size + size + after.size + more + line_end_size(s)
        if s.chunked:
            out = put_chunk_size(out, all)
        start = out
        out = put_piece(out, self.opening)
        patch(start, self.id_at, self.created_at, s)
        out = put_piece(put(put_piece(out, before), text, size), after)
        if more:                                            # before the closing brace
            out = put(put(out - 1, said, more), b"}", 1)
        out = put_line_end(out, s)
        return put(out, b"\r\n", 2) if s.chunked else out

    cdef uint8_t* content(self, uint8_t* out, Stamp* s, const uint8_t* text, size_t size) noexcept:
        if s.lists:
            return self.listed(out, s, self.content_open, text, size)
        return self.event(out, s, self.content_open, text, size, self.content_close)

    cdef uint8_t* reasoning(self, uint8_t* out, Stamp* s, const uint8_t* text, size_t size) noexcept:
        if s.lists:
            return self.listed(out, s, self.reasoning_open, text, size)
        return self.event(out, s, self.reasoning_open, text, size, self.reasoning_close)

    cdef uint8_t* listed(self, uint8_t* out, Stamp* s, Piece before, const uint8_t* text, size_t size) noexcept:
        # An event whose tokens are listed between the pieces of its end.
        cdef uint8_t[LIST_ROOM] close
        cdef uint8_t* end = put_piece(close, self.to_logprobs)
        cdef Piece after
        if s.lists & LISTS_LOGPROBS:
            end = put_logprobs(end, s, self.chat)
        else:
            end = put(end, b"null", 4)
        end = put_piece(end, self.to_ids)
        if s.lists & LISTS_IDS:
            end = put_ids(end, s)
        after.at = close
        after.size = <size_t>(put_piece(end, self.to_end) - close)
        return self.event(out, s, before, text, size, after)

    cdef uint8_t* with_piece(self, uint8_t* out, Stamp* s, Piece piece) noexcept:
        return self.event(out, s, piece, self.nothing.at, 0, self.nothing)

    cdef uint8_t* tail(self, uint8_t* out, Stamp* s, int ending, bint with_usage, Usage* u) noexcept:
        out = self.with_piece(out, s, self.finishes[ending])
        if with_usage:
            out = self.usage(out, s, u)
        return raw_event(out, s, self.done.at, self.done.size)

    cdef uint8_t* usage(self, uint8_t* out, Stamp* s, Usage* u) noexcept:
        cdef uint8_t[256] text
        cdef Piece piece
        piece.at = text
        text[0] = 93                                        # the closing bracket of "choices":[
        piece.size = <size_t>(put_usage(&text[1], u) - text)
        s.counted = 0
        return self.event(out, s, piece, self.nothing.at, 0, self.nothing)

    cdef size_t document_size(self, int64_t tokens) noexcept:
        return self.document_opening.size + <size_t>tokens * WORD_LONGEST + self.document_ends[ENDED_LENGTH].size + 512

    cdef uint8_t* document(self, uint8_t* out, Stamp* s, uint64_t seed, int64_t tokens, int ending, Usage* u,
                           bint with_usage) noexcept:
        cdef uint8_t* start = out
        cdef int64_t i
        cdef Piece word
        out = put_piece(out, self.document_opening)
        patch(start, self.document_id_at, self.document_created_at, s)
        for i in range(tokens):
            word = WORD[draw(seed, <uint64_t>i, DRAW_WORD) % WORDS]
            out = put(out, word.at + (1 if i == 0 else 0), word.size - (1 if i == 0 else 0))
        out = put_piece(out, self.document_ends[ending])
        return put_usage(out, u) if with_usage else put(out, b"}", 1)


cdef inline uint64_t word_of(Stamp* s, int64_t k) noexcept nogil:
    # Number of the word of an event's token *k*.
    return draw(s.id, <uint64_t>(s.completion - s.tokens + k), DRAW_WORD) % WORDS


cdef uint8_t* put_ids(uint8_t* out, Stamp* s) noexcept nogil:
    cdef int64_t k
    out = put(out, b',"token_ids":[', 14)
    for k in range(s.tokens):
        out = put(out, b",", k > 0)
        out = put_number(out, FIRST_ID + <int64_t>word_of(s, k))
    return put(out, b"]", 1)


cdef uint8_t* put_logprobs(uint8_t* out, Stamp* s, bint chat) noexcept nogil:
    cdef int64_t k
    cdef Piece word
    out = put(out, b'{"content":[', 12) if chat else put(out, b'{"tokens":[', 11)
    for k in range(s.tokens):
        word = WORD[word_of(s, k)]
        out = put(out, b",", k > 0)
        out = put(out, b'{"token":"', 10) if chat else put(out, b'"', 1)
        out = put_piece(out, word)
        out = put(out, b'","logprob":-0.5,"bytes":null,"top_logprobs":[]}', 48) if chat else put(out, b'"', 1)
    return put(out, b"]}", 2)


cdef uint8_t* put_counts(uint8_t* out, int64_t prompt, int64_t completion) noexcept nogil:
    # The beginning of a usage object.
    out = put(out, b',"usage":{"prompt_tokens":', 26)
    out = put_number(out, prompt)
    out = put(out, b',"total_tokens":', 16)
    out = put_number(out, prompt + completion)
    out = put(out, b',"completion_tokens":', 21)
    return put_number(out, completion)


cdef uint8_t* put_running_usage(uint8_t* out, Stamp* s) noexcept nogil:
    return put(put_counts(out, s.prompt, s.completion), b"}", 1)


cdef uint8_t* put_usage(uint8_t* out, Usage* u) noexcept nogil:
    out = put_counts(out, u.prompt, u.completion)
    out = put(out, b',"prompt_tokens_details":{"cached_tokens":', 42)
    out = put_number(out, u.cached)
    return put(out, b"}}}", 3)
