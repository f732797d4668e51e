"""An event as a tree of dicts and lists, walked with every type checked."""

import re

import msgspec

from libc.stdint cimport int64_t, uint8_t, uint64_t

from fastllmload._ext.events.dialect cimport (
    ANSWER_IDS, ARGUMENTS, CACHE_WRITTEN_TOKENS, CACHED_TOKENS, CALL_ID, CALL_INDEX, CALL_KEY, CALLS, CHOICES,
    COMPLETION_TOKENS, CONTENT, CONTENT_SO_FAR, COUNTER, DONE, DURATION, ERROR, ERROR_WORD, EVENT_TOKENS, FINISH,
    FINISH_DETAIL, INDEX, LANE, LAST, LOGPROBS, NAME, OBJECT, PARTS, PROMPT_IDS, PROMPT_TOKENS, REASONING,
    REASONING_CONTENT, REASONING_TOKENS, REFUSAL, RESPONSE_ID, ROLE, SEALED, SIGNATURE, SPECIAL, TABLE, TOKEN_ID,
    TOKEN_IDS, TYPE, UNCACHED_TOKENS, finish_of, lane_of,
)

cdef int32_t COUNT_HIGHEST = 0x7FFFFFFF
cdef int64_t DURATION_HIGHEST = 10**18 - 1

cdef object PAIR_OR_SURROGATE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
cdef object OBJECT_OF_RAW = msgspec.json.Decoder(dict[str, msgspec.Raw])
cdef object ARRAY_OF_RAW = msgspec.json.Decoder(list[msgspec.Raw])


class _NoEvent(ValueError):
    """Valid JSON that does not have the shape of an event. It never leaves this module."""


cdef class EventTree:
    """One per classifier: the decoder, and the bytes that the last event's facts point into."""

    def __cinit__(self):
        self._decoder = msgspec.json.Decoder(float_hook=float)      # 1e999 is valid JSON: infinity, no error
        self._data = b""
        self._keep = []

    cdef bint read(self, const unsigned char* data, size_t size, Dialect dialect, bint whole, Facts* f) except? False:
        self._keep.clear()
        self._data = data[:size]
        try:
            self._event(need(dict, self._tree()), <dict>dialect.trees[whole], &dialect.table, f)
        except (msgspec.DecodeError, RecursionError, _NoEvent):
            return False
        return True

    cdef bytes anew(self, const unsigned char* data, size_t size):
        self._data = data[:size]
        try:
            return msgspec.json.encode(self._tree())
        except (msgspec.DecodeError, RecursionError):
            return b"{}"            # no event: the classifier says so

    def _tree(self):
        """The JSON text in _data; if it can't be read as it stands, with what makes no character replaced."""
        try:
            return self._decoder.decode(self._data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            self._data = PAIR_OR_SURROGATE.sub(_paired, self._data.decode("utf-8", "replace").encode())
            return self._decoder.decode(self._data)

    cdef int _event(self, dict event, dict keys, const DialectTable* d, Facts* f) except -1:
        keys = keys_of_type(event, keys, f)
        for name in event:
            what = keys.get(name)
            if what is not None:
                f.known = f.known or what[0] not in (CALL_ID, CALL_INDEX, CALL_KEY, COUNTER, RESPONSE_ID)
                f.error = f.error or is_error(what[0], event[name])
                if what[0] == LANE and isinstance(event[name], str):
                    f.lane = lane(event[name].encode())
        if f.error:
            return 0                # nothing else is looked at
        return self._object((), event, keys, d, f)

    cdef int _object(self, tuple path, dict found, dict keys, const DialectTable* d, Facts* f) except -1:
        """What *found*, which lies at *path*, says: in the order of the text, as the scan sees it."""
        keys = keys_of_type(found, keys, f)
        for name, value in found.items():
            what = keys.get(name)
            if what is not None and value is not None:
                self._value(path, name, value, what[0], what[1], d, f)
        return 0

    cdef int _value(self, tuple path, str name, value, uint8_t field, more, const DialectTable* d, Facts* f) except -1:
        if field == OBJECT:
            self._object(path + (name,), need(dict, value), more, d, f)
        elif field == TABLE:
            if isinstance(value, dict):
                self._object(path + (name,), value, more, d, f)
        elif field == CHOICES:
            self._choices(path + (name,), need(list, value), more, d, f)
        elif field == CALLS or field == PARTS:
            for i, part in enumerate(need(list, value)):
                f.calls = f.calls or field == CALLS
                self._object(path + (name, i), need(dict, part), more, d, f)
        elif field == ROLE:
            f.role = need(str, value) != ""
        elif field == CONTENT:
            self._body(path, name, need(str, value), &f.content)
        elif field == CONTENT_SO_FAR:
            f.so_far = True
            self._body(path, name, need(str, value), &f.content)
        elif field == REASONING_CONTENT:
            self._body(path, name, need(str, value), &f.reasoning_content)
        elif field == REASONING:
            self._body(path, name, need(str, value), &f.reasoning)
        elif field == REFUSAL:
            self._body(path, name, need(str, value), &f.refusal)
        elif field == NAME:
            self._of_call(path, name, need(str, value), bool(value), &f.name, f)
        elif field == ARGUMENTS:        # a string; an object on some servers, which has no body
            text = "" if isinstance(value, dict) else need(str, value)
            self._of_call(path, name, text, bool(value), &f.arguments, f)
        elif field == SIGNATURE or field == SEALED or field == RESPONSE_ID:
            f.calls = f.calls or isinstance(value, str)
        elif field == FINISH:
            f.finish = reason_of(need(str, value).encode(), d)
        elif field == FINISH_DETAIL:
            f.detail = reason_of(need(str, value).encode(), d)
        elif field == LANE:
            need(str, value)        # read already
        elif field == DONE:
            f.done = need(bool, value)
        elif field == LAST:
            f.done = True
        elif field == SPECIAL:
            f.special = value is True
        elif field == PROMPT_TOKENS:
            f.prompt_tokens = tokens(value)
        elif field == PROMPT_IDS:
            f.prompt_tokens = max(f.prompt_tokens, length_of(value))
        elif field == UNCACHED_TOKENS:
            f.uncached_tokens = tokens(value)
        elif field == CACHE_WRITTEN_TOKENS:
            f.written_tokens = tokens(value)
        elif field == COMPLETION_TOKENS:
            f.completion_tokens = tokens(value)
        elif field == CACHED_TOKENS:
            f.cached_tokens = tokens(value)
        elif field == REASONING_TOKENS:
            f.reasoning_tokens = tokens(value)
        elif field == TOKEN_IDS or field == ANSWER_IDS:
            f.answer_ids = f.answer_ids or field == ANSWER_IDS
            f.token_ids = max(f.token_ids, length_of(value))
        elif field == TOKEN_ID:
            f.token_ids = max(f.token_ids, 1 if type(value) in (int, float) else -1)
        elif field == EVENT_TOKENS:
            f.token_ids = max(f.token_ids, tokens(value))
        elif field == LOGPROBS:
            f.logprobs = max(f.logprobs, length_of(value))
        elif field == DURATION:
            f.server_ns[<int>more] = duration(value)
        return 0

    cdef int _choices(self, tuple path, list entries, dict keys, const DialectTable* d, Facts* f) except -1:
        for number, entry in enumerate(entries):
            choice = need(dict, entry)
            if index_in(choice, keys) == 0:
                f.choice = True
                return self._object(path + (number,), choice, keys, d, f)
        return 0

    cdef int _of_call(self, tuple path, str name, str text, bint said, StringSpan* body, Facts* f) except -1:
        f.tool = f.tool or said
        if body.size == 0:
            self._body(path, name, text, body)
        return 0

    cdef int _body(self, tuple path, str name, str text, StringSpan* body) except -1:
        """The escaped form of the string *name* at *path*, after what *body* is; without a backslash anywhere, the string."""
        cdef bytes escaped
        if text and b"\\" in self._data:
            raw = self._data
            for step in (*path, name):
                raw = (OBJECT_OF_RAW if isinstance(step, str) else ARRAY_OF_RAW).decode(raw)[step]
            escaped = bytes(raw)[1:-1]
        else:
            escaped = text.encode()
        if body.size:
            escaped = body.at[:body.size] + escaped
        self._keep.append(escaped)
        body.at = escaped
        body.size = <size_t>len(escaped)
        return 0


def _paired(match):
    return b"\\ufffd" if match[1] else match[0]


cdef object need(type kind, value):
    """*value*, or the empty one of its kind for null; _NoEvent for another type."""
    if value is None:
        return kind()
    if type(value) is not kind:
        raise _NoEvent
    return value


cdef dict keys_of_type(dict found, dict keys, Facts* f):
    """*keys*, or all those that the object *found* has by the word of its TYPE."""
    for name, (field, variants) in keys.items():
        if field == TYPE:
            word = found.get(name)
            field, keys = variants.get(word if isinstance(word, str) else None, (TYPE, keys))
            f.error = f.error or field == ERROR
            f.done = f.done or field == LAST
            break
    return keys


cdef bint is_error(uint8_t field, value) except? True:
    if field == ERROR:
        return isinstance(value, dict) or bool(value)
    return field == ERROR_WORD and value == "error"


cdef object index_in(dict choice, dict keys):
    """Its index, 0 where it has none; _NoEvent unless that is an integer from 0."""
    for name, value in choice.items():
        what = keys.get(name)
        if what is not None and value is not None and <uint8_t>what[0] == INDEX:
            if type(value) is not int or value < 0:
                raise _NoEvent
            return value
    return 0


cdef int32_t length_of(items) except? -2:
    return <int32_t>len(items) if isinstance(items, list) else -1


cdef uint8_t reason_of(bytes word, const DialectTable* d) except? 255:
    cdef StringSpan name
    name.at = word
    name.size = <size_t>len(word)
    return finish_of(d, &name)


cdef uint64_t lane(bytes word) except? 0xFFFF:
    cdef StringSpan name
    name.at = word
    name.size = <size_t>len(word)
    return lane_of(&name)


cdef int32_t tokens(count) except? -2:
    if type(count) is int and 0 <= count <= COUNT_HIGHEST:
        return count
    return -1


cdef int64_t duration(value) except -1:
    """Nanoseconds; 0 unless *value* is an integer from 0 that can be meant."""
    return value if type(value) is int and 0 <= value <= DURATION_HIGHEST else 0
