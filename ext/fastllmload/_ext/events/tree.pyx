"""An event as a tree of dicts and lists, walked with every type checked."""

import re

import msgspec

from libc.stdint cimport int64_t

from fastllmload._ext.events.facts cimport (
    CARRIED_BY_DELTA, CARRIED_BY_OLLAMA_CHAT, CARRIED_BY_TEXT, DURATIONS, done_reason_of, finish_of,
)

cdef int32_t COUNT_HIGHEST = 0x7FFFFFFF
cdef int64_t DURATION_HIGHEST = 10**18 - 1

cdef object PAIR_OR_SURROGATE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
cdef object OBJECT_OF_RAW = msgspec.json.Decoder(dict[str, msgspec.Raw])
cdef object ARRAY_OF_RAW = msgspec.json.Decoder(list[msgspec.Raw])
cdef frozenset KNOWN = frozenset({"id", "object", "choices", "usage", "error"})
cdef tuple OLLAMA_DURATIONS = ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration")
cdef frozenset OLLAMA_BOTH = frozenset({
    "model", "error", "done", "done_reason", "prompt_eval_count", "prompt_eval_cached_count", "eval_count", "logprobs",
    *OLLAMA_DURATIONS,
})
cdef frozenset OLLAMA_CHAT = OLLAMA_BOTH | {"message"}
cdef frozenset OLLAMA_GENERATE = OLLAMA_BOTH | {"response", "thinking"}


class _NoEvent(ValueError):
    """Valid JSON that does not have the shape of an event. It never leaves this module."""


cdef class EventTree:
    """One per classifier: the decoder, and the bytes that the last event's facts point into."""

    def __cinit__(self):
        self._decoder = msgspec.json.Decoder(float_hook=float)      # 1e999 is valid JSON: infinity, no error
        self._data = b""
        self._keep = []

    cdef bint read(self, const unsigned char* data, size_t size, Facts* f) except? False:
        self._keep.clear()
        self._data = data[:size]
        try:
            self._event(need(dict, self._tree()), f)
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

    cdef int _event(self, dict event, Facts* f) except -1:
        error = event.get("error")
        if f.carrier >= CARRIED_BY_OLLAMA_CHAT:
            return self._ollama(event, f)
        f.known = not KNOWN.isdisjoint(event)
        f.error = event.get("object") == "error" or isinstance(error, dict) or bool(error)
        if f.error:
            return 0
        for number, entry in enumerate(need(list, event.get("choices"))):
            choice = need(dict, entry)
            if index_of(choice.get("index")) == 0:
                f.choice = True
                self._choice(number, choice, f)
                break
        usage_of(event.get("usage"), f)
        return 0

    cdef int _ollama(self, dict event, Facts* f) except -1:
        cdef bytes reason
        cdef StringSpan name
        cdef int i
        chat = f.carrier == CARRIED_BY_OLLAMA_CHAT
        error = event.get("error")
        f.known = not (OLLAMA_CHAT if chat else OLLAMA_GENERATE).isdisjoint(event)
        f.error = isinstance(error, dict) or bool(error)
        if f.error:
            return 0
        f.done = need(bool, event.get("done"))
        reason = need(str, event.get("done_reason")).encode()
        name.at = reason
        name.size = <size_t>len(reason)
        f.finish = done_reason_of(&name)
        f.prompt_tokens = tokens(event, "prompt_eval_count")
        f.cached_tokens = tokens(event, "prompt_eval_cached_count")
        f.completion_tokens = tokens(event, "eval_count")
        f.logprobs = length_of(event.get("logprobs"))
        for i in range(DURATIONS):
            f.server_ns[i] = duration(event.get(OLLAMA_DURATIONS[i]))
        if not chat:
            self._text((), event, "response", &f.content)
            return self._text((), event, "thinking", &f.reasoning)
        message = need(dict, event.get("message"))
        f.role = need(str, message.get("role")) != ""
        self._text(("message",), message, "content", &f.content)
        self._text(("message",), message, "thinking", &f.reasoning)
        for i, call in enumerate(need(list, message.get("tool_calls"))):
            f.calls = True
            path = ("message", "tool_calls", i, "function")
            self._tool(path, need(dict, need(dict, call).get("function")), f)
        return 0

    cdef int _choice(self, int number, dict choice, Facts* f) except -1:
        cdef bytes finish = need(str, choice.get("finish_reason")).encode()
        cdef StringSpan name
        name.at = finish
        name.size = <size_t>len(finish)
        f.finish = finish_of(&name)
        f.token_ids = length_of(choice.get("token_ids"))
        f.logprobs = logprobs_of(choice.get("logprobs"))
        if f.carrier == CARRIED_BY_TEXT:
            return self._text(("choices", number), choice, "text", &f.content)
        key = "delta" if f.carrier == CARRIED_BY_DELTA else "message"
        return self._carried(("choices", number, key), need(dict, choice.get(key)), f)

    cdef int _carried(self, tuple path, dict carrier, Facts* f) except -1:
        f.role = need(str, carrier.get("role")) != ""
        self._text(path, carrier, "content", &f.content)
        self._text(path, carrier, "reasoning_content", &f.reasoning_content)
        self._text(path, carrier, "reasoning", &f.reasoning)
        self._text(path, carrier, "refusal", &f.refusal)
        for key, value in carrier.items():      # in the order of the text, as the scan sees them
            if key == "function_call":
                self._tool(path + (key,), need(dict, value), f)
            elif key == "tool_calls":
                for i, call in enumerate(need(list, value)):
                    f.calls = True
                    self._tool(path + (key, i, "function"), need(dict, need(dict, call).get("function")), f)
        return 0

    cdef int _text(self, tuple path, dict carrier, str key, StringSpan* body) except -1:
        return self._body(path + (key,), need(str, carrier.get(key)), body)

    cdef int _tool(self, tuple path, dict function, Facts* f) except -1:
        cdef str name = need(str, function.get("name"))
        arguments = function.get("arguments")       # a string; an object on some servers, which has no body
        cdef str text = "" if isinstance(arguments, dict) else need(str, arguments)
        f.tool = f.tool or name != "" or bool(arguments)
        if f.name.size == 0:
            self._body(path + ("name",), name, &f.name)
        if f.arguments.size == 0:
            self._body(path + ("arguments",), text, &f.arguments)
        return 0

    cdef int _body(self, tuple path, str text, StringSpan* body) except -1:
        """The escaped form of the string at *path*; without a backslash anywhere, the string itself."""
        cdef bytes escaped
        if not text:
            return 0
        if b"\\" in self._data:
            raw = self._data
            for step in path:
                raw = (OBJECT_OF_RAW if isinstance(step, str) else ARRAY_OF_RAW).decode(raw)[step]
            escaped = bytes(raw)[1:-1]
        else:
            escaped = text.encode()
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


cdef object index_of(value):
    """A choice's index; _NoEvent unless it is an integer from 0."""
    if value is None:
        return 0
    if type(value) is not int or value < 0:
        raise _NoEvent
    return value


cdef int32_t length_of(items) except? -2:
    return <int32_t>len(items) if isinstance(items, list) else -1


cdef int32_t logprobs_of(logprobs) except? -2:
    """Tokens that chat's `content` or a completion's `tokens` lists; -1 when there is no list."""
    if not isinstance(logprobs, dict):
        return -1
    return max(length_of(logprobs.get("content")), length_of(logprobs.get("tokens")))


cdef int usage_of(usage, Facts* f) except -1:
    if not isinstance(usage, dict):
        return 0
    f.prompt_tokens = tokens(usage, "prompt_tokens")
    f.completion_tokens = tokens(usage, "completion_tokens")
    f.cached_tokens = tokens(usage.get("prompt_tokens_details"), "cached_tokens")
    f.reasoning_tokens = tokens(usage.get("completion_tokens_details"), "reasoning_tokens")
    return 0


cdef int32_t tokens(counts, str name) except? -2:
    cdef object count = counts.get(name) if isinstance(counts, dict) else None
    if type(count) is int and 0 <= count <= COUNT_HIGHEST:
        return count
    return -1


cdef int64_t duration(value) except -1:
    """Nanoseconds; 0 unless *value* is an integer from 0 that can be meant."""
    return value if type(value) is int and 0 <= value <= DURATION_HIGHEST else 0
