# cython: cdivision=True
"""What the simulated engine writes for one endpoint: its templates (`endpoint/simulated.py`), compiled and filled."""

import msgspec

from cpython.bytearray cimport PyByteArray_AS_STRING
from libc.string cimport memcpy, memmove, memset
from libc.time cimport time_t, tm

from fastllmload._ext.bytes.digits cimport put_number
from fastllmload._ext.sim.sequence cimport DRAW_WORD, draw
from fastllmload._ext.simbody.template cimport (
    NUMBER_CACHED, NUMBER_CALL, NUMBER_COMPLETION, NUMBER_INDEX, NUMBER_PROMPT, NUMBER_REASONING, NUMBER_SEQUENCE, NUMBERS,
    SAYS_SILENT, SAYS_THOUGHT, SAYS_USAGE, SLOT_CALL_HEX, SLOT_CALLS, SLOT_IDS, SLOT_LINE_END, SLOT_LOGPROBS, SLOT_NONE, SLOT_RAW, SLOT_REQUEST_ID, SLOT_TEXT,
    SLOT_THOUGHT, SLOT_TOTAL, SLOT_UNCACHED, SLOT_WHOLE_CALL, SLOT_WHOLE_IDS, SLOT_WHOLE_TEXT, VARIANTS, conditions, ended, inside,
    listed, parsed, text_of,
)
from fastllmload._ext.system.clock cimport real_ns

from fastllmload._ext.http.block import response_block
from fastllmload._ext.simbody.template import filled

cdef extern from "<time.h>" nogil:
    tm* gmtime_r(const time_t* seconds, tm* result)
    size_t strftime(char* out, size_t most, const char* form, const tm* when)

# Each word with its leading space is one token of cl100k_base, so a client that counts tokens of the text agrees with us.
_WORDS = (
    " the of and to in is that for it as was with be by on not he his but at are this have from or had an they which one"
    " you were her all she there would their we him been has when who will more no if out so said what up its about into"
    " than them can only other new some could"
).split()
assert len(_WORDS) == WORDS, len(_WORDS)
_KEPT = [b" " + word.encode() for word in _WORDS]
TOOL = "lookup"                 # the tool that replies call
_FAILURE = "simulated failure"
NOT_STORED = "previous_response_not_found"
cdef enum:
    FIRST_ID = 1000             # of the words' ids
    ID_SIZE = 5                 # with the comma after it
    NUMBER_BYTES = 20           # of a padded number, with blanks in front
    SECOND_BYTES = 19           # YYYY-MM-DDTHH:MM:SS

cdef uint8_t[WORDS][16] SPACED  # what WORD points to: sixteen bytes are copied faster than as many as there are
cdef uint8_t[WORDS][8] IDS      # of each word "1000,"

cdef int64_t SECOND = 0         # that CLOCK spells; Unix seconds
cdef char[32] CLOCK


def words() -> list[str]:
    """The vocabulary, in the order of the words' numbers."""
    return [word.decode() for word in _KEPT]


def _fill() -> None:
    for number, word in enumerate(_KEPT):
        memcpy(SPACED[number], <const char*>word, len(word))
        WORD[number].at = SPACED[number]
        WORD[number].size = len(word)
        ident = b"%d," % (FIRST_ID + number)
        memcpy(IDS[number], <const char*>ident, ID_SIZE)


_fill()


cdef uint8_t* raw_event(uint8_t* out, Stamp* s, const uint8_t* text, size_t size) noexcept nogil:
    cdef uint8_t[4] ends
    cdef uint8_t* end = ends
    cdef int i
    for i in range(s.line_ends):
        end = put_line_end(end, s)
    if s.chunked == FRAMED_CHUNKS:
        out = put_chunk_size(out, size + <size_t>(end - ends))
    elif s.chunked == FRAMED_GRPC:
        out = put_prefix(out, size)
    elif s.chunked:
        out = put_message_head(out, size)
    out = put(put(out, text, size), ends, <size_t>(end - ends))
    return put(out, b"\r\n", 2) if s.chunked == FRAMED_CHUNKS else out


cdef void spell(Stamp* s) noexcept nogil:
    put_hex(s.id_text, s.id, sizeof(s.id_text))
    put_digits(s.created_text, <uint64_t>s.created, sizeof(s.created_text))


cdef void put_time(uint8_t* at) noexcept nogil:
    global SECOND
    cdef int64_t now = real_ns()
    cdef time_t second = <time_t>(now // 1_000_000_000)
    cdef tm when
    if second != SECOND:
        gmtime_r(&second, &when)
        strftime(CLOCK, sizeof(CLOCK), b"%Y-%m-%dT%H:%M:%S", &when)
        SECOND = second
    put(at, CLOCK, SECOND_BYTES)
    put_digits(at + SECOND_BYTES + 1, <uint64_t>(now % 1_000_000_000), 9)


cdef inline void put_digits(uint8_t* at, uint64_t value, int digits) noexcept nogil:
    while digits:
        digits -= 1
        at[digits] = <uint8_t>(c'0' + value % 10)
        value //= 10


cdef inline uint8_t* put_padded(uint8_t* out, int64_t value) noexcept nogil:
    cdef uint8_t[NUMBER_BYTES] digits
    cdef size_t size = <size_t>(put_number(digits, value) - digits)
    memset(out, c' ', NUMBER_BYTES - size)
    return put(out + NUMBER_BYTES - size, digits, size)


cdef inline uint64_t word_of(Stamp* s, int64_t token) noexcept nogil:
    return draw(s.id, <uint64_t>token, DRAW_WORD) % WORDS


cdef int64_t id_of(Stamp* s, int64_t token) noexcept nogil:
    return FIRST_ID + <int64_t>word_of(s, token)


cdef uint8_t* put_ids(uint8_t* out, Stamp* s, int64_t first) noexcept nogil:
    cdef uint64_t reply = s.id          # not read again after each write
    cdef uint8_t* start = out
    cdef int64_t token
    for token in range(first, s.number[NUMBER_COMPLETION]):
        memcpy(out, IDS[draw(reply, <uint64_t>token, DRAW_WORD) % WORDS], 8)
        out += ID_SIZE
    return out - (out > start)


cdef class Form:
    """*api*: a `SimulatedApi`. *chunk_bytes*: content events with a word of average length are padded to about that many bytes."""

    def __init__(self, api: object, model: str, chunk_bytes: int = 0):
        lines = api.framing == "ndjson"
        named = api.framing == "sse"
        before = "data: " if named else ""
        self.api = api
        self.model = model
        self.keep = []
        self.line_ends = 1 if lines else 2 if named else 0
        self.stream_type = (b"application/x-ndjson" if lines else b"application/grpc" if api.framing == "grpc"
                            else b"text/event-stream; charset=utf-8")
        self.stream_head = b"HTTP/1.1 200 OK\r\nserver: fastllmload-simulator\r\ncontent-type: %s\r\n" % self.stream_type
        self.stream_block = response_block(self.stream_head)
        self.comment = b": ping" if named else b""
        self.blank = b"\\n\\n"
        self.broken_line, self.huge_open = (before + api.broken).encode(), (before + api.huge).encode()
        self.deep_open, self.deep_close = (before + api.deep).encode(), b"}"
        self.error_body = self.error(500)
        start, _, end = api.logprob.encode().partition(b"$word")
        self.before_logprob = self.kept(start)
        self.after_logprob = self.kept(end)
        self.timed = "_ns" in text_of(api.finish) + text_of(api.document)
        self.compile_all(before, chunk_bytes)

    def error(self, status: int, kind: str = "InternalServerError", message: str = _FAILURE) -> bytes:
        """The body of an error; *kind*: for a status that the API has no type for."""
        kind = self.api.error_types.get(status, kind)
        template = self.api.not_stored if kind == NOT_STORED else self.api.error
        return filled(text_of(template), {"code": status, "type": kind, "message": message})

    def compile_all(self, before: str, chunk_bytes: int) -> None:
        api = self.api
        fixed = {"model": inside(self.model), "tool": TOOL.encode(), "padding": b"", "code": b"500",
                 "type": api.error_types.get(500, "InternalServerError").encode(), "message": _FAILURE.encode()}
        plain = sum(len(step[0]) for event in listed(api.content, before) for step in parsed(event, 0, fixed)) + 5 + self.line_ends
        room = chunk_bytes - plain - len(api.padding.replace("$fill", ""))
        if room > 0:
            fixed["padding"] = api.padding.replace("$fill", "x" * room).encode()
        places = [(AT_TOKEN, api.start), (AT_USAGE, api.usage), (AT_DONE, api.done), (AT_ERROR, api.error_event or api.error),
                  (AT_CALLS, api.calls), (AT_CALL_ENTRY, api.call_entry)]
        for ending, word in enumerate(api.words):
            places += [(at + ending, ended(events, word)) for at, events in
                       ((AT_FINISH, api.finish), (AT_LAST, api.last), (AT_DOCUMENT, api.document))]
        for block, name in ((BLOCK_REASONING, "reasoning"), (BLOCK_CONTENT, "content"), (BLOCK_CALL, "call")):
            for at, end in ((AT_TOKEN, ""), (AT_OPENING, "_start"), (AT_CLOSING, "_stop")):
                places.append((at + block, getattr(api, name + end)))
        for place, events in places:
            self.compile(place, listed(events, "" if unframed(place) else before), fixed)

    cdef int compile(self, int place, list events, dict fixed) except -1:
        cdef int says = conditions("".join(events))
        cdef size_t* growth = &self.text_room if unframed(place) else &self.growth
        cdef size_t most = 0
        cdef int variant
        made = {}
        for variant in range(VARIANTS):
            if variant & says not in made:
                made[variant & says] = variant
                steps = [parsed(event, variant, fixed) for event in events]
                most = max(most, self.program(&self.programs[place][variant], steps, growth))
            self.programs[place][variant] = self.programs[place][<int>made[variant & says]]
        if place < AT_FINISH:
            self.token_room += most
        else:
            self.room += most
        return 0

    cdef size_t program(self, Program* program, list events, size_t* growth) except? 0:
        # Bytes that it writes at most; *growth* becomes as large as it needs.
        cdef size_t most = 1, grows = 0
        cdef Step* step
        block = bytearray(sum(map(len, events)) * sizeof(Step))
        self.keep.append(block)
        program.steps = step = <Step*>PyByteArray_AS_STRING(block)
        program.count = <size_t>sum(map(len, events))
        for event in events:
            step.event_size = sum(len(piece) for piece, *_ in event)
            most += step.event_size + EVENT_SLACK
            for number, (piece, places, slot, optional) in enumerate(event):
                step.piece = self.kept(piece)
                step.id_at, step.created_at, step.time_at = places
                step.slot, step.optional, step.last = slot, optional, number == len(event) - 1
                most += 24 + (ASKED_MOST if slot == SLOT_REQUEST_ID else 0) + (self.before_logprob.size + self.after_logprob.size + WORD_LONGEST if slot == SLOT_LOGPROBS else 0)
                grows += WORD_LONGEST if slot in (SLOT_WHOLE_TEXT, SLOT_RAW + SLOT_WHOLE_TEXT, SLOT_THOUGHT) else 8 if slot == SLOT_WHOLE_IDS else 0
                grows += TOKEN_ROOM if slot == SLOT_WHOLE_CALL else TOKEN_ROOM + <size_t>len(self.api.call_entry) if slot == SLOT_CALLS else 0
                step += 1
        growth[0] = max(growth[0], grows)
        return most

    cdef Piece kept(self, bytes text):
        cdef Piece piece
        self.keep.append(text)
        piece.at = <const uint8_t*><const char*>text
        piece.size = len(text)
        return piece

    cdef uint8_t* events(self, int place, uint8_t* out, Stamp* s, const uint8_t* text, size_t size) noexcept:
        cdef const Step* step = self.programs[place][s.says].steps
        cdef const Step* end = step + self.programs[place][s.says].count
        cdef uint8_t* start
        cdef int i, digits = 0
        while step < end:
            if s.chunked == FRAMED_CHUNKS:      # in front of it is its size, most likely of that many digits
                digits = hex_digits(step.event_size + size + s.line_ends)
                out += digits + 2
            elif s.chunked:
                digits = message_head(step.event_size + size)
                out += digits
            start = out
            out = put_step(self, step, out, s, text, size)
            while not step.last:
                step += 1
                out = put_step(self, step, out, s, text, size)
            step += 1
            s.number[NUMBER_SEQUENCE] += 1
            for i in range(s.line_ends):
                out = put_line_end(out, s)
            if s.chunked == FRAMED_CHUNKS:
                out = framed(start, out, digits)
            elif s.chunked:
                out = message(start, out, digits)
        return out

    cdef uint8_t* plain(self, int place, uint8_t* out, Stamp* s, const uint8_t* text, size_t size) noexcept:
        cdef Program* program = &self.programs[place][s.says]
        cdef size_t i
        for i in range(program.count):
            out = put_step(self, &program.steps[i], out, s, text, size)
        return out

    cdef uint8_t* fill(self, int slot, uint8_t* out, Stamp* s) noexcept:
        cdef int64_t before = s.number[NUMBER_COMPLETION] - s.tokens
        if slot < NUMBERS:
            return put_number(out, max(s.number[slot], <int64_t>0))
        if slot == SLOT_TOTAL:
            return put_number(out, s.number[NUMBER_PROMPT] + s.number[NUMBER_COMPLETION])
        if slot == SLOT_UNCACHED:
            return put_number(out, s.number[NUMBER_PROMPT] - s.number[NUMBER_CACHED])
        if slot == SLOT_WHOLE_TEXT:
            return put_words(out, s, s.first, s.number[NUMBER_COMPLETION])
        if slot == SLOT_THOUGHT:
            return put_words(out, s, 0, s.number[NUMBER_REASONING])
        if slot == SLOT_WHOLE_CALL:
            text = whole_call(self, s, s.number[NUMBER_COMPLETION] - s.first)
            return put(out, <const char*>text, <size_t>len(text))
        if slot == SLOT_CALLS:
            text = listed_calls(self, s, s.number[NUMBER_COMPLETION], <uint32_t>s.number[NUMBER_CALL] + 1)
            return put(out, <const char*>text, <size_t>len(text))
        if slot == SLOT_LOGPROBS:
            return self.put_logprobs(out, s, before)
        if slot == SLOT_LINE_END:
            return put_line_end(out, s)
        if slot == SLOT_CALL_HEX:
            return put_hex(out, <uint64_t>s.number[NUMBER_CALL], max(hex_digits(<uint64_t>s.number[NUMBER_CALL]), 4))
        return put_ids(out, s, before if slot == SLOT_IDS else s.first)

    cdef uint8_t* put_logprobs(self, uint8_t* out, Stamp* s, int64_t first) noexcept:
        cdef int64_t token
        cdef Piece word
        for token in range(first, s.number[NUMBER_COMPLETION]):
            word = WORD[word_of(s, token)]
            out = put(out, b",", token > first)
            out = put_piece(put_piece(put_piece(out, self.before_logprob), word), self.after_logprob)
        return out

    cdef uint8_t* content(self, uint8_t* out, Stamp* s, const uint8_t* text, size_t size) noexcept:
        if s.block != BLOCK_CONTENT:
            out = self.enter(out, s, BLOCK_CONTENT)
        return self.events(AT_LAST + s.last - 1 if s.last else AT_TOKEN + BLOCK_CONTENT, out, s, text, size)

    cdef uint8_t* reasoning(self, uint8_t* out, Stamp* s, const uint8_t* text, size_t size) noexcept:
        if s.block != BLOCK_REASONING:
            out = self.enter(out, s, BLOCK_REASONING)
        s.says |= SAYS_THOUGHT
        s.number[NUMBER_REASONING] += s.tokens
        return self.events(AT_TOKEN + BLOCK_REASONING, out, s, text, size)

    cdef uint8_t* enter(self, uint8_t* out, Stamp* s, int block) noexcept:
        # Closes the open block: it ended before this event.
        s.number[NUMBER_COMPLETION] -= s.tokens
        if s.block != BLOCK_NONE:
            out = self.events(AT_CLOSING + s.block, out, s, NULL, 0)
            s.number[NUMBER_INDEX] += 1
        s.block = <uint8_t>block
        s.first = s.number[NUMBER_COMPLETION]
        if block == BLOCK_CONTENT and not s.spoken:
            s.spoken = 1 + s.first
        if block == BLOCK_REASONING or block == BLOCK_CONTENT:      # a call begins with its own text
            out = self.events(AT_OPENING + block, out, s, NULL, 0)
        s.number[NUMBER_COMPLETION] += s.tokens
        return out

    cdef uint8_t* finish(self, uint8_t* out, Stamp* s, int ending) noexcept:
        cdef int64_t tokens = s.tokens
        s.tokens = 0
        out = self.enter(out, s, BLOCK_NONE)
        s.tokens = tokens
        s.first = max(s.spoken - 1, <int64_t>0)
        s.says |= 0 if s.spoken else SAYS_SILENT
        out = self.events(AT_FINISH + ending, out, s, NULL, 0)
        if s.says & SAYS_USAGE:
            out = self.events(AT_USAGE, out, s, NULL, 0)
        return self.events(AT_DONE, out, s, NULL, 0)


cdef inline bint unframed(int place) noexcept:
    return AT_DOCUMENT <= place < AT_USAGE or place >= AT_CALLS


cdef inline uint8_t* put_step(Form form, const Step* step, uint8_t* out, Stamp* s, const uint8_t* text, size_t size) noexcept:
    if step.optional and s.number[step.slot] <= 0 and not s.padded:
        return out
    put(out, step.piece.at, step.piece.size)
    if step.id_at >= 0:
        put(out + step.id_at, s.id_text, sizeof(s.id_text))
    if step.created_at >= 0:
        put(out + step.created_at, s.created_text, sizeof(s.created_text))
    if step.time_at >= 0:
        put_time(out + step.time_at)
    out += step.piece.size
    if step.slot == SLOT_NONE:
        return out
    if step.slot == SLOT_TEXT:
        return put(out, text, size)
    if step.optional and s.padded:
        return put_padded(out, max(s.number[step.slot], <int64_t>0))
    return form.fill(step.slot, out, s)


cdef inline uint8_t* framed(uint8_t* start, uint8_t* end, int digits) noexcept nogil:
    # The event from *start* to *end* as a chunk, in front of which there is room for a size of *digits* digits.
    cdef size_t size = <size_t>(end - start)
    cdef int more = 0
    if size >> 4 * digits or not size >> 4 * (digits - 1):
        more = hex_digits(size) - digits
        memmove(start + more, start, size)
    put(put_hex(start - digits - 2, size, digits + more), b"\r\n", 2)
    return put(end + more, b"\r\n", 2)


cdef inline uint8_t* message(uint8_t* start, uint8_t* end, int head) noexcept nogil:
    # The same as a message, in front of which there is room for *head* bytes.
    cdef size_t size = <size_t>(end - start)
    cdef int more = message_head(size) - head
    if more:
        memmove(start + more, start, size)
    put_message_head(start - head, size)
    return end + more


cdef uint8_t* put_words(uint8_t* out, Stamp* s, int64_t first, int64_t past) noexcept nogil:
    cdef uint64_t number, reply = s.id
    cdef int64_t token
    if first == 0 and past > 0:
        number = word_of(s, 0)
        out = put(out, WORD[number].at + 1, WORD[number].size - 1)           # a reply starts without a space
    for token in range(max(first, <int64_t>1), past):
        number = draw(reply, <uint64_t>token, DRAW_WORD) % WORDS
        memcpy(out, SPACED[number], 16)
        out += WORD[number].size
    return out


# -- arguments of tool calls: they have what JSON inside a JSON string can hold, quotes, line ends, characters of two bytes --

# After the words of the arguments' text, in turn.
SPICE = ("", '\\"', "\\n", "é", "\\\\", "\\u00fc", "/")


cdef bytes listed_calls(Form form, Stamp* s, int64_t tokens, uint32_t calls):
    cdef bytearray entry
    cdef uint8_t* end
    many = min(<int64_t>calls, tokens)
    entries = []
    for number in range(many):
        first, past = block(number, tokens, many)
        text = whole_text(form, s.id, number, past - first if has(form, AT_OPENING + BLOCK_CALL) else CALL_WHOLE)
        entry = bytearray(form.room + <size_t>len(text))
        s.number[NUMBER_CALL] = number
        end = form.plain(AT_CALL_ENTRY, <uint8_t*><char*>entry, s, <const uint8_t*><const char*>text, <size_t>len(text))
        entries.append(bytes(entry[: end - <uint8_t*><char*>entry]))
    return b",".join(entries)


cdef bytes whole_call(Form form, Stamp* s, int64_t count):
    return whole_text(form, s.id, s.number[NUMBER_CALL], count)


cdef bytes whole_text(Form form, uint64_t reply, int64_t number, int64_t count):
    text = arguments(reply, number, count)
    return msgspec.json.encode(msgspec.json.decode(text) if form.api.object_arguments else text)


def block(number: int, tokens: int, calls: int) -> tuple[int, int]:
    """The tokens that call *number* is made of, from and up to."""
    return -(-number * tokens // calls), -(-(number + 1) * tokens // calls)


def pieces(reply: int, number: int, count: int) -> list[str]:
    """*count* pieces that make a call's arguments; the first goes with its name and is empty if others follow."""
    if count < 3:
        return ["{}"] if count == 1 else ["", "{}"]
    texts = [word(reply, number * 65536 + i) + SPICE[i % len(SPICE)] for i in range(count - 2)]
    texts[0] = '{"text":"' + texts[0]
    return ["", *texts, '"}']


cdef str word(uint64_t reply, uint64_t place):
    cdef Piece piece = WORD[draw(reply, place, DRAW_WORD) % WORDS]
    return (<const char*>piece.at)[:piece.size].decode()


def beginning(reply: int, count: int) -> str:
    """The first *count* tokens of a reply."""
    return "".join([word(reply, token) for token in range(count)])[1:]


def arguments(reply: int, number: int, count: int) -> str:
    """A call's arguments of *count* tokens: JSON."""
    return "".join(pieces(reply, number, count))
