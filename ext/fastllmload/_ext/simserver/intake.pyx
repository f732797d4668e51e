"""What a request asks for. Null mode looks for three fields by their bytes; otherwise msgspec decodes the body."""

from libc.math cimport log
from libc.stdint cimport uint16_t
from libc.string cimport memcmp, memcpy, memset

from fastllmload._ext.http.request cimport same
from fastllmload._ext.sim.prompt cimport Prompt, prompt_read
from fastllmload._ext.sim.sequence cimport DRAW_ID, DRAW_LENGTH, draw, uniform
from fastllmload._ext.simbody.form cimport ASKED_MOST, ENDED_LENGTH, ENDED_STOP
from fastllmload._ext.simbody.template cimport NUMBER_PROMPT, SAYS_COUNTED, SAYS_IDS, SAYS_LOGPROBS, SAYS_USAGE
from fastllmload._ext.sim.fault cimport (
    FAULT_CLOSE_FRAME, FAULT_COMMENTS, FAULT_CONTENT_LENGTH, FAULT_CR, FAULT_CRLF, FAULT_CUT_MESSAGE, FAULT_DEEP_JSON, FAULT_EMPTY_TEXT,
    FAULT_FRAGMENTS, FAULT_HUGE_EVENT, FAULT_NO_HTTP2, FAULT_NONE, FAULT_NO_USAGE, FAULT_REASONING, FAULT_RESET_STREAM, FAULT_STRAY_FRAME, FAULT_TLS_ALERT, FAULT_TLS_GARBAGE,
    FAULT_TOOL_CALLS, FAULT_UNTIL_CLOSE, FAULT_WHITESPACE_FIRST,
)
from fastllmload._ext.system.syscall cimport memmem

from fastllmload._ext.sim.fault import parse
from fastllmload._ext.simbody.form import NOT_STORED as _NOT_STORED
from fastllmload._ext.simbody.message import MessageForm

# Faults that have no meaning where an event is a message, and where it has no text.
_NOT_OF_CALLS = frozenset((
    FAULT_COMMENTS, FAULT_CONTENT_LENGTH, FAULT_CR, FAULT_CRLF, FAULT_DEEP_JSON, FAULT_NO_USAGE, FAULT_REASONING, FAULT_TOOL_CALLS,
    FAULT_UNTIL_CLOSE,
))
_OF_TEXTS = frozenset((FAULT_EMPTY_TEXT, FAULT_HUGE_EVENT, FAULT_WHITESPACE_FIRST))
cdef enum:
    MODELS = 12000              # names, by API, that are kept apart


cdef const uint8_t* value_of(const uint8_t* body, size_t size, Piece name) noexcept nogil:
    # First byte of the value after `"name":`, or NULL. Text that looks like the field fools it: null mode only.
    cdef const uint8_t* end = body + size
    cdef const uint8_t* at = NULL
    if name.size:
        at = <const uint8_t*>memmem(body, size, name.at, name.size)
    if at == NULL:
        return NULL
    at += name.size
    while at < end and (at[0] == c' ' or at[0] == c':'):
        at += 1
    return at if at < end else NULL


cdef int64_t number_at(const uint8_t* at, const uint8_t* end) noexcept nogil:
    cdef int64_t value = 0
    while at < end and c'0' <= at[0] <= c'9' and value < 10_000_000:
        value = value * 10 + (at[0] - c'0')
        at += 1
    return value


cdef tuple names(object paths):
    return (paths,) if isinstance(paths, str) else paths


cdef class Intake:
    """*settings* has the attributes seed, null, any_model, secured (by TLS), model, models, chunk_bytes, default_max_tokens, max_model_len,
    eos_mean_tokens, prefix_block; *apis* are pairs of a SimulatedApi and its decoder, which gives an `Asked` of body bytes or
    raises ValueError."""

    def __init__(self, settings: object, faults: Faults, apis: list, forms: list):
        self.seed = settings.seed
        self.null = settings.null
        self.any_model = settings.any_model
        self.secured = settings.secured
        self.model = settings.model
        self.models = settings.models
        self.chunk_bytes = settings.chunk_bytes
        self.default_max_tokens = settings.default_max_tokens
        self.max_model_len = settings.max_model_len
        self.eos_mean = settings.eos_mean_tokens
        self.block = settings.prefix_block
        self.faults = faults
        self.apis = apis
        self.count = len(apis)
        if self.count > APIS or max([len(api.keys.tokens) for api, _ in apis]) > LENGTHS:
            raise OverflowError(f"more than {APIS} APIs, or {LENGTHS} keys for an output length: enlarge APIS or LENGTHS")
        self.forms = forms
        self.form_numbers = {}
        self.keep = []
        paths = [api.path for api, _ in apis]
        for number, (api, _) in enumerate(self.apis):
            self.routes[number].other = <int>paths.index(api.path, number + 1) if api.path in paths[number + 1:] else -1
            sign = api.recognised_by or names(api.keys.prompt)[0]
            self.null_keys[number].recognised_by = self.kept(sign.encode()) if api.framing == "grpc" else self.quoted(sign)
            self.null_keys[number].stream = self.quoted(api.keys.stream)
            self.null_keys[number].usage = self.quoted(api.keys.usage)
            self.null_keys[number].stream_default = api.stream_default
            self.null_keys[number].output_tokens = api.output_tokens
            self.null_keys[number].lengths = len(api.keys.tokens)
            for i, path in enumerate(api.keys.tokens):
                self.null_keys[number].length[<int>i] = self.quoted(path)
            head, named, tail = api.path.lower().partition("$model")
            self.routes[number].head = self.kept(head.encode())
            self.routes[number].tail = self.kept(tail.encode())
            self.routes[number].named = bool(named)
            self.routes[number].socket = api.framing == "websocket"
            self.routes[number].calls = api.framing == "grpc"
            self.routes[number].root = 1 + head.find("/", 1) or len(head)
            self.form(number, self.model)

    cdef Piece quoted(self, str path):
        # The last key of a path with its quotes; empty for none.
        return self.kept(b'"%s"' % path.rpartition(".")[2].encode() if path else b"")

    cdef Piece kept(self, bytes text):
        cdef Piece piece
        self.keep.append(text)
        piece.at = <const uint8_t*><const char*>text
        piece.size = <size_t>len(text)
        return piece

    cdef int route(self, Text path) noexcept:
        cdef Route* route
        cdef size_t i
        for i in range(self.count):
            route = &self.routes[i]
            if not route.named and same(path, <const char*>route.head.at, route.head.size):
                return <int>i
            if route.named and path.size > route.head.size + route.tail.size and same(
                Text(path.at, route.head.size), <const char*>route.head.at, route.head.size
            ) and same(
                Text(path.at + path.size - route.tail.size, route.tail.size), <const char*>route.tail.at, route.tail.size
            ):
                return <int>i
        return -1

    cdef int spoken(self, int number, const uint8_t* body, size_t size) noexcept:
        # The first whose field the body has, else the first.
        cdef int each = number
        while each >= 0 and value_of(body, size, self.null_keys[each].recognised_by) == NULL:
            each = self.routes[each].other
        return each if each >= 0 else number

    cdef int socket(self, int number) noexcept:
        while number >= 0 and not self.routes[number].socket:
            number = self.routes[number].other
        return number

    cdef str named(self, int number, Text path):
        # The model's name in a path.
        cdef Route* route = &self.routes[number]
        return (<char*>path.at)[route.head.size: path.size - route.tail.size].decode("latin-1")

    cdef int relative(self, Request* r) noexcept:
        cdef Route* route
        cdef size_t i
        for i in range(self.count):
            route = &self.routes[i]
            if r.calls and route.calls or r.target.size > route.root and memcmp(r.target.at, route.head.at, route.root) == 0:
                return <int>i
        return 0

    cdef int form(self, int number, str model) except -1:
        found = self.form_numbers.get((number, model))
        if found is None:
            found = len(self.forms)
            self.forms.append((MessageForm if self.routes[number].calls else Form)(self.apis[number][0], model, self.chunk_bytes))
            self.form_numbers[number, model] = found
        return found

    cdef bint refuse(self, int status, str kind, str message) except? False:
        self.refusal = (status, kind, message)
        return False

    cdef bint read(self, Connection* c, Request* r, int number, const uint8_t* body, size_t size) except? False:
        memset(&c.reply, 0, sizeof(c.reply))
        number = self.spoken(number, body, size)
        self.store = None
        c.reply.stamp.id = draw(self.seed, c.sequence.serial, DRAW_ID)
        c.reply.old_client = r.minor_version == 0
        c.reply.close_after = not r.keep_alive
        c.reply.form = <uint16_t>number
        if not (self.read_null(c, number, body, size) if self.null and not self.routes[number].calls else self.read_json(c, r, number, body, size)):
            return False
        c.reply.stamp.number[NUMBER_PROMPT] = c.sequence.prompt_tokens
        c.sequence.whole = not c.reply.stream
        self.prompt_tokens += <uint64_t>c.sequence.prompt_tokens
        if not self.fault_of(c, r):
            return False
        if self.store is not None:
            self.store(c.reply.stamp.id, c.sequence.output_tokens, c.reply.fault_arg if c.reply.fault == FAULT_TOOL_CALLS else 0)
        return True

    cdef bint fault_of(self, Connection* c, Request* r) except? False:
        if r.fault.size:
            text = (<char*>r.fault.at)[: r.fault.size].decode("latin-1")
            try:
                c.reply.fault, c.reply.fault_arg = parse(text)
            except ValueError as error:
                return self.refuse(400, "BadRequestError", f"X-Fault: {error}")
            if c.reply.fault >= FAULT_NO_HTTP2:
                return self.refuse(400, "BadRequestError", f"X-Fault: {text} is for connections: use --fault")
            if FAULT_TLS_ALERT <= c.reply.fault <= FAULT_TLS_GARBAGE and not self.secured:
                return self.refuse(400, "BadRequestError", f"X-Fault: {text} is for TLS: use --tls-cert")
            if FAULT_RESET_STREAM <= c.reply.fault <= FAULT_STRAY_FRAME and c.carrier == NULL:
                return self.refuse(400, "BadRequestError", f"X-Fault: {text} is for HTTP/2")
        else:
            c.reply.fault = self.faults.of(c.sequence.serial, &c.reply.fault_arg)
            if FAULT_RESET_STREAM <= c.reply.fault <= FAULT_STRAY_FRAME and c.carrier == NULL:
                c.reply.fault = FAULT_NONE
        if FAULT_CLOSE_FRAME <= c.reply.fault <= FAULT_FRAGMENTS and not c.messages:
            c.reply.fault = FAULT_NONE
        form = <Form>self.forms[c.reply.form]
        if form.calls and (c.reply.fault in _NOT_OF_CALLS or c.reply.fault in _OF_TEXTS and not form.texts):
            c.reply.fault = FAULT_NONE
        if c.reply.fault == FAULT_CUT_MESSAGE and not form.calls:
            c.reply.fault = FAULT_NONE
        return True

    cdef bint read_null(self, Connection* c, int number, const uint8_t* body, size_t size) except? False:
        cdef NullKeys* keys = &self.null_keys[number]
        cdef const uint8_t* at = value_of(body, size, keys.stream)
        cdef int64_t tokens = keys.output_tokens
        cdef int i
        c.reply.stream = at[0] == c't' if at != NULL else keys.stream_default
        at = NULL
        for i in range(keys.lengths):
            if at == NULL:
                at = value_of(body, size, keys.length[i])
        if at != NULL and tokens == 0:
            tokens = number_at(at, body + size)
        at = value_of(body, size, keys.usage)
        if at != NULL and at[0] == c't' or not c.reply.stream or keys.usage.size == 0:
            c.reply.stamp.says = SAYS_USAGE
        c.reply.ending = ENDED_LENGTH
        c.sequence.priority = 0
        c.sequence.output_tokens = <int>(tokens if tokens else 1)
        c.sequence.prompt_tokens = <int>(size // 5 + 1)
        return True

    cdef bint read_json(self, Connection* c, Request* r, int number, const uint8_t* body, size_t size) except? False:
        cdef Prompt prompt
        api, decode = self.apis[number]
        try:
            asked = decode((<char*>body)[:size])
        except LookupError as error:
            return self.refuse(400, _NOT_STORED, error.args[0])
        except ValueError as error:
            return self.refuse(400, "BadRequestError", f"the body cannot be read: {error}")
        name = self.named(number, r.target) if self.routes[number].named else asked.model
        if name is not None and not self.any_model and name not in self.models:
            return self.refuse(404, "NotFoundError", api.missing.replace("$model", name))
        if asked.loads:
            return self.refuse(200, "application/json", asked.loads)
        text = bytes(asked.prompt)
        if not text:
            return self.refuse(400, "BadRequestError", f"the body has no {' or '.join(names(api.keys.prompt))}")
        prompt_read(&prompt, text, len(text), self.block, &c.sequence)
        if not api.messages and prompt.strings > 1 or asked.n is not None and asked.n != 1:
            return self.refuse(400, "BadRequestError", "one prompt and n=1 are served; send one request for each reply")
        if prompt.strings == 0 and (api.messages or prompt.numbers == 0):
            return self.refuse(400, "BadRequestError", f"{' or '.join(names(api.keys.prompt))} has no text")
        model = self.model if name is None else name
        if len(self.forms) >= MODELS and (number, model) not in self.form_numbers:
            return self.refuse(404, "NotFoundError", f"more than {MODELS // 2} model names were used")
        c.reply.form = self.form(number, model)
        c.reply.stream = asked.stream
        if asked.usage or not asked.stream:
            c.reply.stamp.says = SAYS_USAGE
        if asked.stream:
            c.reply.stamp.says |= ((SAYS_COUNTED if asked.usage and asked.counted else 0) | (SAYS_IDS if asked.ids else 0)
                                   | (SAYS_LOGPROBS if asked.logprobs else 0))
        if asked.request_id:
            ident = asked.request_id.encode()[:ASKED_MOST]
            c.reply.stamp.asked_size = <uint8_t>len(ident)
            memcpy(c.reply.stamp.asked, <const char*>ident, len(ident))
        c.sequence.priority = r.priority if r.has_priority else asked.priority
        self.store = asked.keep
        return self.lengths(c, asked)

    cdef bint lengths(self, Connection* c, object asked) except? False:
        most = asked.tokens
        if most is None:
            most = self.default_max_tokens
            most = max(1, min(most, self.max_model_len - c.sequence.prompt_tokens))
        if most < 1:
            return self.refuse(400, "BadRequestError", f"max_tokens must be at least 1, got {most}")
        if c.sequence.prompt_tokens + most > self.max_model_len:
            return self.refuse(400, "BadRequestError", (
                f"This model's maximum context length is {self.max_model_len} tokens. However, you requested {most} output"
                f" tokens and your prompt contains {c.sequence.prompt_tokens} input tokens."))
        c.sequence.output_tokens = <int>self.output_length(c, most, asked.min_tokens, asked.ignore_eos)
        c.reply.ending = ENDED_LENGTH if c.sequence.output_tokens == most else ENDED_STOP
        return True

    cdef int64_t output_length(self, Connection* c, int64_t most, int64_t least, bint ignore_eos) noexcept:
        # Without ignore_eos the end comes at a drawn place: geometric with the profile's mean, cut at max_tokens.
        cdef double chance
        cdef int64_t length
        if ignore_eos or self.eos_mean <= 0.0:
            return most
        chance = 1.0 - uniform(draw(self.seed, c.sequence.serial, DRAW_LENGTH))
        length = 1 + <int64_t>(-log(chance) * self.eos_mean)
        return min(most, max(length, least))
