"""What a request asks for. Null mode looks for three fields by their bytes; otherwise msgspec decodes the body."""

from libc.math cimport log
from libc.stdint cimport uint16_t
from libc.string cimport memset

from fastllmload._ext.sim.prompt cimport Prompt, prompt_read
from fastllmload._ext.sim.sequence cimport DRAW_ID, DRAW_LENGTH, draw, uniform
from fastllmload._ext.simbody.form cimport (
    ENDED_LENGTH, ENDED_STOP, FORM_CHAT, FORM_KINDS, FORM_OLLAMA_CHAT, LISTS_IDS, LISTS_LOGPROBS, of_ollama,
)
from fastllmload._ext.simserver.syscall cimport memmem

from fastllmload._ext.simserver.fault import parse
from fastllmload._ext.simbody.form import Form
from fastllmload._ext.simbody.ollama import OllamaForm

cdef enum:
    MODELS = 1000               # names that --any-model keeps apart


cdef const uint8_t* value_of(const uint8_t* body, size_t size, const char* name, size_t name_size) noexcept nogil:
    # First byte of the value behind `"name":`, or NULL. Text that looks like the field fools it: null mode only.
    cdef const uint8_t* end = body + size
    cdef const uint8_t* at = <const uint8_t*>memmem(body, size, name, name_size)
    if at == NULL:
        return NULL
    at += name_size
    while at < end and (at[0] == 32 or at[0] == 58):
        at += 1
    return at if at < end else NULL


cdef int64_t number_at(const uint8_t* at, const uint8_t* end) noexcept nogil:
    cdef int64_t value = 0
    while at < end and 48 <= at[0] <= 57 and value < 10_000_000:
        value = value * 10 + (at[0] - 48)
        at += 1
    return value


cdef class Intake:
    """*settings* has the attributes seed, null, any_model, model, chunk_bytes, default_max_tokens, max_model_len,
    eos_mean_tokens, prefix_block; each of *decoders*, for OpenAI and for Ollama, gives a RequestBody of body bytes or raises
    ValueError."""

    def __init__(self, settings: object, faults: Faults, decoders: tuple, forms: list):
        self.seed = settings.seed
        self.null = settings.null
        self.any_model = settings.any_model
        self.model = settings.model
        self.chunk_bytes = settings.chunk_bytes
        self.default_max_tokens = settings.default_max_tokens
        self.max_model_len = settings.max_model_len
        self.eos_mean = settings.eos_mean_tokens
        self.block = settings.prefix_block
        self.faults = faults
        self.decoders = decoders
        self.forms = forms
        self.form_numbers = {}
        for kind in range(FORM_KINDS):
            self.form(kind, self.model)     # each at the number of its kind

    cdef int form(self, int kind, str model) except -1:
        number = self.form_numbers.get((kind, model))
        if number is None:
            number = len(self.forms)
            make = OllamaForm if of_ollama(kind) else Form
            self.forms.append(make(kind, model, self.chunk_bytes))
            self.form_numbers[kind, model] = number
        return number

    cdef bint refuse(self, int status, str kind, str message) except? False:
        self.refusal = (status, kind, message)
        return False

    cdef bint read(self, Connection* c, Request* r, int kind, const uint8_t* body, size_t size) except? False:
        memset(&c.reply, 0, sizeof(c.reply))
        c.reply.stamp.id = draw(self.seed, c.sequence.serial, DRAW_ID)
        c.reply.old_client = r.minor_version == 0
        c.reply.close_after = not r.keep_alive
        c.reply.stamp.ndjson = of_ollama(kind)
        if not (self.read_null(c, kind, body, size) if self.null else self.read_json(c, r, kind, body, size)):
            return False
        self.prompt_tokens += <uint64_t>c.sequence.prompt_tokens
        return self.fault_of(c, r)

    cdef bint fault_of(self, Connection* c, Request* r) except? False:
        if r.fault.size:
            try:
                c.reply.fault, c.reply.fault_arg = parse((<char*>r.fault.at)[: r.fault.size].decode("latin-1"))
            except ValueError as error:
                return self.refuse(400, "BadRequestError", f"X-Fault: {error}")
        else:
            c.reply.fault = self.faults.of(c.sequence.serial, &c.reply.fault_arg)
        return True

    cdef bint read_null(self, Connection* c, int kind, const uint8_t* body, size_t size) except? False:
        cdef const uint8_t* at = value_of(body, size, b'"stream"', 8)
        cdef int64_t tokens = 0
        c.reply.stream = at[0] == 116 if at != NULL else of_ollama(kind)
        at = value_of(body, size, b'"max_tokens"', 12)
        if at == NULL and of_ollama(kind):
            at = value_of(body, size, b'"num_predict"', 13)
        elif at == NULL:
            at = value_of(body, size, b'"max_completion_tokens"', 23)
        if at != NULL:
            tokens = number_at(at, body + size)
        at = value_of(body, size, b'"include_usage"', 15)
        c.reply.with_usage = at != NULL and at[0] == 116 or not c.reply.stream or of_ollama(kind)
        c.reply.form = <uint16_t>kind
        c.reply.ending = ENDED_LENGTH
        c.sequence.whole = not c.reply.stream
        c.sequence.priority = 0
        c.sequence.output_tokens = <int>(tokens if tokens else 1)
        c.sequence.prompt_tokens = <int>(size // 5 + 1)
        return True

    cdef bint read_json(self, Connection* c, Request* r, int kind, const uint8_t* body, size_t size) except? False:
        cdef Prompt prompt
        cdef bint ollama = of_ollama(kind)
        cdef bint chat = kind == FORM_CHAT or kind == FORM_OLLAMA_CHAT
        try:
            asked = self.decoders[ollama]((<char*>body)[:size])
        except ValueError as error:
            return self.refuse(400, "BadRequestError", f"the body cannot be read: {error}")
        if asked.model != self.model and not self.any_model and asked.model is not None:
            missing = f"model '{asked.model}' not found" if ollama else f"The model `{asked.model}` does not exist."
            return self.refuse(404, "NotFoundError", missing)
        raw = asked.messages if chat else asked.prompt
        text = bytes(raw)
        if asked.loads:
            return self.refuse(200, "application/json", asked.loads)
        if not text:
            return self.refuse(400, "BadRequestError", f"the body has no {'messages' if chat else 'prompt'}")
        prompt_read(&prompt, text, len(text), self.block, &c.sequence)
        if not chat and prompt.strings > 1 or asked.n is not None and asked.n != 1:
            return self.refuse(400, "BadRequestError", "one prompt and n=1 are served; send one request for each reply")
        if prompt.strings == 0 and (chat or prompt.numbers == 0):
            return self.refuse(400, "BadRequestError", f"{'messages' if chat else 'prompt'} has no text")
        model = self.model if asked.model is None else asked.model
        if len(self.forms) >= MODELS and (kind, model) not in self.form_numbers:
            return self.refuse(404, "NotFoundError", f"more than {MODELS // 2} model names were used")
        c.reply.form = self.form(kind, model)
        c.reply.stream = asked.stream is True
        options = asked.stream_options
        c.reply.with_usage = not c.reply.stream or options is not None and options.include_usage is True
        c.reply.stamp.counted = (c.reply.stream and not ollama and c.reply.with_usage
                                 and options is not None and options.continuous_usage_stats is True)
        if c.reply.stream and not ollama:
            c.reply.stamp.lists = (LISTS_IDS if asked.return_token_ids is True else 0) | (LISTS_LOGPROBS if asked.logprobs else 0)
        c.reply.stamp.prompt = c.sequence.prompt_tokens
        c.sequence.whole = not c.reply.stream
        c.sequence.priority = r.priority if r.has_priority else asked.priority
        return self.lengths(c, asked, kind)

    cdef bint lengths(self, Connection* c, object asked, int kind) except? False:
        most = asked.max_completion_tokens if asked.max_completion_tokens is not None else asked.max_tokens
        if most is None:
            most = self.default_max_tokens
            most = max(1, min(most, self.max_model_len - c.sequence.prompt_tokens))
        if most < 1:
            return self.refuse(400, "BadRequestError", f"max_tokens must be at least 1, got {most}")
        if c.sequence.prompt_tokens + most > self.max_model_len:
            return self.refuse(400, "BadRequestError", (
                f"This model's maximum context length is {self.max_model_len} tokens. However, you requested {most} output"
                f" tokens and your prompt contains {c.sequence.prompt_tokens} input tokens."))
        c.sequence.output_tokens = <int>self.output_length(c, most, asked.min_tokens, asked.ignore_eos is True)
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
