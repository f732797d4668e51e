"""Faults by probability (seeded by the request's arrival order) or by the request header X-Fault."""

from fastllmload._ext.sim.sequence cimport DRAW_FAULT, draw, uniform
from fastllmload.quantities import duration, number, share, size

_MIDDLE = 0xFFFFFFFF            # MIDDLE, which as a C enum would turn negative on its way to Python
# name: (number, default argument, what it does). The argument's unit is in the sentence.
CATALOGUE = {
    "split": (FAULT_SPLIT, 7, "cut every write at random bytes into pieces of at most ARG bytes"),
    "coalesce": (FAULT_COALESCE, 8, "ARG events per write"),
    "slow_head": (FAULT_SLOW_HEAD, 200, "pause for ARG ms inside the response head"),
    "stall": (FAULT_STALL, 200, "pause for ARG ms in the middle; what was due then comes as one burst"),
    "reset": (FAULT_RESET, _MIDDLE, "RST before token ARG (default: the middle)"),
    "close": (FAULT_CLOSE, _MIDDLE, "FIN before token ARG (default: the middle), the framing left open"),
    "error_event": (FAULT_ERROR_EVENT, _MIDDLE, "an error object inside the 200 stream before token ARG, then [DONE]"),
    "bad_json": (FAULT_BAD_JSON, _MIDDLE, "one event of broken JSON before token ARG"),
    "no_done": (FAULT_NO_DONE, 0, "all tokens, then neither finish nor usage nor [DONE]"),
    "status": (FAULT_STATUS, 503, "HTTP status ARG with a JSON error; 429 has Retry-After"),
    "huge_event": (FAULT_HUGE_EVENT, 1 << 20, "one event with ARG bytes of text"),
    "empty": (FAULT_EMPTY, 0, "a 200 reply without any token"),
    "no_body": (FAULT_NO_BODY, 0, "a 200 reply with Content-Length: 0"),
    "html": (FAULT_HTML, 0, "a 200 reply that is an HTML page"),
    "gzip": (FAULT_GZIP, 0, "a 200 reply with a Content-Encoding: gzip that the request does not accept"),
    "endless_head": (FAULT_ENDLESS_HEAD, 1 << 30, "ARG bytes of header fields without an end (HTTP/2: in CONTINUATION frames)"),
    "drip": (FAULT_DRIP, 1, "one byte every ARG ms"),
    "deep_json": (FAULT_DEEP_JSON, 100_000, "one event of JSON nested ARG deep"),
    "huge_line": (FAULT_HUGE_LINE, 1 << 30, "a line of ARG bytes without an end"),
    "crlf": (FAULT_CRLF, 0, "CR LF line ends"),
    "cr": (FAULT_CR, 0, "CR line ends"),
    "comments": (FAULT_COMMENTS, 0, "a comment line before every event"),
    "idle_close": (FAULT_IDLE_CLOSE, 50, "close the kept connection ARG ms after the reply"),
    "never": (FAULT_NEVER, 0, "no answer at all, the connection stays open"),
    "close_before_response": (FAULT_CLOSE_BEFORE_RESPONSE, 0, "FIN in place of an answer"),
    "no_usage": (FAULT_NO_USAGE, 0, "no usage, even if asked for"),
    "whitespace_first": (FAULT_WHITESPACE_FIRST, 1, "the first ARG tokens are white space"),
    "reasoning": (FAULT_REASONING, _MIDDLE, "tokens before ARG (default: the middle) are reasoning_content"),
    "until_close": (FAULT_UNTIL_CLOSE, 0, "neither chunked nor Content-Length: the close ends the body"),
    "content_length": (FAULT_CONTENT_LENGTH, 0, "the stream has a Content-Length in place of chunks"),
    "abort": (FAULT_ABORT, _MIDDLE, "the engine gives up before token ARG (default: the middle): finish_reason abort, usage, [DONE]"),
    "multi_token": (FAULT_MULTI_TOKEN, 4, "ARG tokens per event"),
    "empty_text": (FAULT_EMPTY_TEXT, 20, "every ARG-th token comes without text, which the next event has: half a character"),
    "tls_alert": (FAULT_TLS_ALERT, _MIDDLE, "TLS: a fatal alert before token ARG (default: the middle), then FIN"),
    "tls_truncate": (FAULT_TLS_TRUNCATE, _MIDDLE, "TLS: FIN without close_notify before token ARG (default: the middle)"),
    "tls_garbage": (FAULT_TLS_GARBAGE, _MIDDLE, "TLS: bytes that are not a record before token ARG (default: the middle), then FIN"),
    "reset_stream": (FAULT_RESET_STREAM, _MIDDLE, "HTTP/2: RST_STREAM before token ARG (default: the middle)"),
    "goaway": (FAULT_GOAWAY, _MIDDLE, "HTTP/2: GOAWAY before token ARG (default: the middle), which leaves out this reply and later ones"),
    "large_frame": (FAULT_LARGE_FRAME, _MIDDLE, "HTTP/2: a frame above the client's limit before token ARG (default: the middle), then FIN"),
    "stray_frame": (FAULT_STRAY_FRAME, _MIDDLE, "HTTP/2: CONTINUATION without HEADERS before token ARG (default: the middle), then FIN"),
    "cut_message": (FAULT_CUT_MESSAGE, _MIDDLE, "gRPC: half of a message before token ARG (default: the middle), then status 0"),
    "no_http2": (FAULT_NO_HTTP2, 0, "the connection speaks HTTP/1.1 only, and answers the preface of HTTP/2 with status 505"),
    "handshake_hang": (FAULT_HANDSHAKE_HANG, 0, "TLS: the handshake is not answered, the connection stays open"),
    "handshake_close": (FAULT_HANDSHAKE_CLOSE, 0, "TLS: FIN in place of a handshake"),
    "handshake_alert": (FAULT_HANDSHAKE_ALERT, 40, "TLS: the fatal alert number ARG in place of a handshake"),
    "handshake_garbage": (FAULT_HANDSHAKE_GARBAGE, 0, "TLS: bytes that are not a record in place of a handshake"),
    "close_frame": (FAULT_CLOSE_FRAME, 1011, "WebSocket: a close frame with code ARG before the middle token, then FIN"),
    "fragments": (FAULT_FRAGMENTS, 16, "WebSocket: messages in frames of at most ARG bytes, with pings between them"),
    "tool_calls": (FAULT_TOOL_CALLS, 1, "the reply of a chat is ARG tool calls in place of text"),
}
TLS_FAULTS = [name for name, (_, _, text) in CATALOGUE.items() if text.startswith("TLS: ")]
CONNECTION_FAULTS = [name for name, (number, _, _) in CATALOGUE.items() if number >= FAULT_NO_HTTP2]
NAMES = {number: name for name, (number, _, _) in CATALOGUE.items()}


def parse(text: str) -> tuple[int, int]:
    """(number, argument) of `NAME` or `NAME:ARG`. ValueError names what is wrong."""
    name, colon, argument = text.strip().partition(":")
    if name not in CATALOGUE:
        raise ValueError(f"no fault is called {name!r}; there are {', '.join(CATALOGUE)}")
    fault, default, what = CATALOGUE[name]
    if not colon:
        return fault, default
    value = duration(argument, "ms") if "ARG ms" in what else size(argument, True) if "ARG bytes" in what else number(argument)
    if value is None or value != int(value) or not 0 <= value < 0xFFFFFFFF:
        raise ValueError(f"the argument of fault {name!r} is {argument!r}; it must be a whole number from 0 to {0xFFFFFFFE}")
    if fault == FAULT_STATUS and not 200 <= value <= 599:
        raise ValueError(f"the argument of fault 'status' is {argument!r}; it must be an HTTP status from 200 to 599")
    if fault == FAULT_HANDSHAKE_ALERT and value > 255:
        raise ValueError(f"the argument of fault 'handshake_alert' is {argument!r}; it must be a number of an alert, 0 to 255")
    return fault, int(value)


def parse_chance(text: str) -> tuple[float, int, int]:
    """(probability, number, argument) of `NAME:SHARE` or `NAME:SHARE:ARG`."""
    name, _, rest = text.partition(":")
    chance, colon, argument = rest.partition(":")
    number, value = parse(name + colon + argument)
    probability = share(chance)
    if probability is None or not 0.0 <= probability <= 1.0:
        raise ValueError(f"the probability of fault {name!r} is {chance!r}; it must be a number from 0 to 1")
    return probability, number, value


cdef class Faults:
    """*chances*: texts `NAME:SHARE[:ARG]`; their probabilities add up to at most 1."""

    def __init__(self, seed: int, chances: tuple[str, ...]):
        cdef double upto = 0.0
        self.seed = seed
        if len(chances) > 32:
            raise ValueError(f"{len(chances)} faults were given; at most 32 fit")
        for probability, number, argument in map(parse_chance, chances):
            upto += probability
            self.upto[self.count] = upto
            self.fault[self.count] = number
            self.arg[self.count] = argument
            self.count += 1
        if upto > 1.0 + 1e-9:
            raise ValueError(f"the probabilities of all faults add up to {upto:g}; at most 1 is possible")

    cdef Fault of(self, uint64_t serial, uint32_t* arg) noexcept:
        cdef double chance
        cdef size_t i
        if self.count == 0:
            return FAULT_NONE
        chance = uniform(draw(self.seed, serial, DRAW_FAULT))
        for i in range(self.count):
            if chance < self.upto[i]:
                arg[0] = self.arg[i]
                return <Fault>self.fault[i]
        return FAULT_NONE
