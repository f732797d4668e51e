"""Parsers from the text of one option to its value. The text of a ValueError completes "--option text ..."."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from urllib.parse import urlsplit

from fastllmload import quantities
from fastllmload.endpoint import template
from fastllmload.endpoint.identity import OWN_HEADERS, body_path, pieces
from fastllmload.errors import InputError, InvalidValue
from fastllmload.files import read_text
from fastllmload.redact import labelled
from fastllmload.settings import CONTROL_VERBS
from fastllmload.workload import user_behavior
from fastllmload.workload.content.image_sets import read_images

FRAMING_HEADERS = frozenset(  # of answers: they decide how these are read (http/headlike.pyx)
    ("connection", "content-encoding", "content-length", "content-type", "proxy-connection", "retry-after",
     "transfer-encoding", "upgrade")
)  # fmt: skip
TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110 5.6.2
LABEL = re.compile(r"[\w.-]{1,64}", re.ASCII)  # of a metrics page
METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


def known(value: float | None, code: str, what: str) -> float:
    """*value*, or ValueError with *what* where the text could not be parsed."""
    if value is None:
        raise InvalidValue(code, what)
    return value


def bounded(
    read: Callable[[str], float | None], code: str, what: str, holds: Callable[[float], bool]
) -> Callable[[str], float]:
    """A parser of the quantities that *read* gives and that meet *holds*; of any other text it says *what* it is not."""

    def parse(text: str) -> float:
        value = read(text)
        if value is None or not holds(value):
            raise InvalidValue(code, what)
        return value

    return parse


def counts_from(least: int, what: str) -> Callable[[str], int]:
    """A parser of whole numbers."""
    parse = bounded(quantities.number, "count-invalid", what, lambda value: value >= least and value == int(value))
    return lambda text: int(parse(text))


def count_between(least: int, most: int, why: str = "") -> Callable[[str], int]:
    """A parser of whole numbers within bounds; *why*: a clause with the reason of the bounds."""

    def parse(text: str) -> int:
        found = count(text)
        if not least <= found <= most:
            raise InvalidValue("value-out-of-range", f"is out of range; {why}write {least} to {most}")
        return found

    return parse


def checked(read: Callable[[str], object]) -> Callable[[str], str]:
    """A parser that returns the text once *read* has accepted it."""

    def parse(text: str) -> str:
        read(text)
        return text

    return parse


count = counts_from(1, "is not a whole number above 0; write for example 100, 1k or 2.5k")
count_from_zero = counts_from(0, "is not a whole number; write for example 0, 100 or 1k")
positive = bounded(quantities.number, "number-invalid", "is not a number above 0", lambda value: value > 0)
# Factor of a trace's speed; outside of these bounds the replayed instants are meaningless.
speed = bounded(
    quantities.number, "number-invalid", "is not a speed of a trace; write a factor from 0.001 to 1000000",
    lambda value: 1e-3 <= value <= 1e6,
)  # fmt: skip
exponent = bounded(
    quantities.number, "number-invalid", "is not an exponent; write a number from 0 to 10 such as 1.5",
    lambda value: 0 <= value <= 10,
)  # fmt: skip
share = bounded(
    quantities.share, "share-invalid", "is not a share; write a number from 0 to below 1 such as 0.1 or 10%",
    lambda value: 0 <= value < 1,
)  # fmt: skip
part = bounded(
    quantities.share, "share-invalid", "is not a share; write a number from 0 to 1 such as 0.8 or 80%",
    lambda value: 0 <= value <= 1,
)  # fmt: skip
seconds = bounded(
    quantities.duration, "time-invalid", "is not a time above 0; write for example 200ms, 30s, 5m, 1h or 1d",
    lambda value: value > 0,
)  # fmt: skip
moment = bounded(
    quantities.duration, "time-invalid", "is not a time from 0; write for example 0, 200ms, 30s, 5m, 1h or 1d",
    lambda value: value >= 0,
)  # fmt: skip
milliseconds = bounded(
    lambda text: quantities.duration(text, "ms"), "time-invalid",
    "is not a time above 0; write milliseconds such as 50, or 50ms, 0.05s", lambda value: value > 0,
)  # fmt: skip
# A share of a capacity, which may be more than all of it.
factor = bounded(
    quantities.share, "share-invalid", "is not a share above 0; write for example 0.8 or 80%", lambda value: value > 0
)
token_rate = bounded(
    quantities.token_rate, "number-invalid", "is not a speed above 0; write tokens per second such as 20 or 20tok/s",
    lambda value: value > 0,
)  # fmt: skip
interval = bounded(
    quantities.duration, "time-invalid", "is not a sampling interval; write a time from 100ms to 1h",
    lambda value: 0.1 <= value <= 3600,
)  # fmt: skip
pause, cancel_after = checked(user_behavior.read_pause), checked(user_behavior.read_cancel_after)
slow_readers, abandon = checked(user_behavior.read_slow_readers), checked(user_behavior.read_abandon)


SESSION_TRACES = (
    "weka", "agentic-mooncake", "dynamo", "otel", "tracelab", "dag", "sglang-agentic", "bailian", "applied-compute", "graph",
)  # fmt: skip
TRACES = ("azure", "burstgpt", "mooncake", "trace", *SESSION_TRACES)
DATASETS = ("sharegpt", "custom", "text", "aiperf", "batch", "csv", "hf")
STANDARD = ("synthetic-uniform", "synthetic-skewed", "conversation", "code-completion", "long-context")
FAIRNESS = ("fairness", "fairness-short", "fairness-long")
ALIKE = 0.75  # of a name and a text that has a typing error
MOST_MODELS = 10_000
MATCHER = r'\s*[a-zA-Z_]\w*\s*(?:=|!=|=~|!~)\s*"(?:[^"\\\n]|\\.)*"\s*'
MATCHERS = re.compile(rf"{MATCHER}(?:,{MATCHER})*")
LENGTH_BOUNDS = (
    "min-input",
    "max-input",
    "min-output",
    "max-output",
    "min-total",
    "max-total",
)  # of entries of a data set
COLUMN_ROLES = ("prompt", "answer", "output_tokens", "class")  # of a data set
RANDOM = "random"  # vLLM's name of its drawn lengths
CURVES = ("ramp", "exponential", "steps", "spikes", "day", "series")


def rate(text: str) -> float:
    """Requests per second above 0; `inf` sends all at once."""
    what = (
        "is not a rate; write requests per second above 0 such as 0.05, 500, 1k, or inf to send all at once,"
        " or a rate that changes such as ramp:10,100"
    )
    value = math.inf if text.strip().lower() == "inf" else known(quantities.number(text), "rate-invalid", what)
    if value <= 0:
        raise InvalidValue("rate-invalid", what)
    return value


def rate_series(text: str) -> str:
    return f"series:{path(text)}"


def rate_or_curve(text: str) -> dict[str, object]:
    """A rate, or a shape such as `ramp:10,100` that is read when the run's length is known."""
    if text.partition(":")[0].strip().lower() in CURVES:
        return {"load.rate_curve": text.strip()}
    return {"load.rate": rate(text)}


def count_or_curve(text: str) -> dict[str, object]:
    """A number of slots, or a shape such as `ramp:1,512`."""
    if text.partition(":")[0].strip().lower() in CURVES:
        return {"load.concurrency_curve": text.strip()}
    return {"load.concurrency": count(text)}


def turns(text: str) -> str:
    return user_behavior.read_turns(text) or "all"


def images(text: str) -> str:
    """`512x512`, `1024x768:3` or shares of several such sets: what each prompt has."""
    try:
        return str(read_images(text))
    except ValueError:
        raise InvalidValue(
            "image-invalid",
            "is not a set of images; write WIDTHxHEIGHT or WIDTHxHEIGHT:COUNT such as 512x512:2, with sides up to 16384, "
            "several with + and a share of the prompts for each as in 256x256@0.7,256x256+1280x720@0.3",
        ) from None


def warmup(text: str) -> dict[str, object]:
    """`100` requests, `10000tok` tokens, `30s`, joined by commas; an amount that is not named is 0."""
    fields: dict[str, object] = {"load.warmup_requests": 0, "load.warmup_tokens": 0}
    for part in text.replace(" ", "").split(","):
        tokens, requests = quantities.tokens(part.lower()), quantities.number(part)
        time = quantities.duration(part, plain=False)
        if tokens is not None and tokens == int(tokens) >= 0:
            fields["load.warmup_tokens"] = int(tokens)
        elif time is not None and time > 0:
            fields["load.warmup_seconds"] = time
        elif requests is not None and requests == int(requests) >= 0:
            fields["load.warmup_requests"] = int(requests)
        else:
            raise InvalidValue(
                "warmup-invalid", "is not a warm-up; write requests (100), tokens (10000tok) or a time (30s)"
            )
    return fields


def lengths(text: str) -> str:
    """The spec itself, once the workload has accepted it."""
    from fastllmload.workload.lengths import FORMS, parse_lengths

    try:
        parse_lengths(text, "")
    except InputError as error:
        why = error.message.partition("in tokens: ")[2]
        raise InvalidValue(
            "length-invalid", f"is not a length; give {FORMS} in tokens" + (f": {why}" if why != "" else "")
        ) from None
    return text


def longest_waits(text: str) -> str:
    from fastllmload.workload.graph import read_longest_waits

    read_longest_waits(text)
    return text


def session_start(text: str) -> str:
    from fastllmload.workload.underway import read_start

    read_start(text)
    return text


SCHEMES = {"http": "http", "https": "https", "ws": "http", "wss": "https"}


HOST_AND_PORT = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):\d{1,5}(/\S*)?")


def without_scheme(text: str) -> bool:
    """Whether *text* is HOST:PORT, maybe with a path: a URL of http."""
    return HOST_AND_PORT.fullmatch(text) is not None


def is_url(text: str) -> bool:
    return without_scheme(text) or text.startswith(tuple(f"{scheme}://" for scheme in SCHEMES))


def url(text: str) -> str:
    """A URL of http or https; ws and wss are other names of theirs, for the same port."""
    if without_scheme(text):
        text = f"http://{text}"
    if not text.isprintable() or " " in text:
        raise InvalidValue("url-invalid", "has a blank or a control character, which no URL has; write a blank as %20")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise InvalidValue("url-invalid", f"is not a URL ({error}); write for example http://localhost:8000") from None
    if parts.scheme == "unix":
        raise InvalidValue("url-invalid", f"is a socket, not a port; write --unix-socket {parts.path or 'PATH'}")
    if "://" not in text:
        raise InvalidValue("url-invalid", "has no scheme; write for example http://localhost:8000")
    scheme = SCHEMES.get(parts.scheme)
    if scheme is None:
        raise InvalidValue("url-invalid", f"has the scheme {parts.scheme!r}, and only http and https are supported")
    if parts.hostname is None or parts.hostname == "" or port == 0:
        raise InvalidValue("url-invalid", "names no host and port; write for example http://localhost:8000")
    if not parts.path.isascii():
        raise InvalidValue("url-invalid", "has letters beyond ASCII in its path; write é as %C3%A9")
    if "@" in parts.netloc:
        raise InvalidValue(
            "url-invalid", "carries a user name or password; send them with -H 'Authorization: ...' instead"
        )
    if parts.query != "" or parts.fragment != "":
        raise InvalidValue("url-invalid", "has a query or fragment; write only scheme, host, port and path")
    return scheme + text[len(parts.scheme) :].rstrip("/")


def page(text: str) -> str:
    """URL of a metrics page, with a label or without; the path is /metrics if the text has none."""
    label, rest = labelled(text)
    if label is not None and LABEL.fullmatch(label) is None:
        raise InvalidValue(
            "value-invalid", f"has the label {label!r}; a label is letters, digits, dots, - and _, such as prefill=URL"
        )
    store = "prometheus+" if rest.startswith("prometheus+") else ""
    found = url(rest.removeprefix(store))
    address = f"{store}{found}" if store or urlsplit(found).path != "" else f"{found}/metrics"
    return address if label is None else f"{label}={address}"


def matchers(text: str) -> str:
    """Label matchers of PromQL: `namespace="llm",pod=~"vllm-.*"`."""
    if MATCHERS.fullmatch(text) is None:
        raise InvalidValue("value-invalid", 'is not a list of label matchers; write NAME="VALUE",NAME=~"REGEX"')
    return text


def metric(text: str) -> str:
    if METRIC.fullmatch(text) is None:
        raise InvalidValue(
            "value-invalid", "is not a Prometheus metric name; write for example vllm:num_requests_swapped"
        )
    return text


def listen(text: str) -> str:
    """`PORT`, `HOST:PORT` or `[IPv6]:PORT` as host:port."""
    host, _, port = text.strip().rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not port.isdecimal() or not 1 <= int(port) <= 65535 or (":" in bare) != host.startswith("["):
        raise InvalidValue(
            "value-invalid", "is not an address to listen on; write PORT or HOST:PORT such as 9400 or 0.0.0.0:9400"
        )
    return f"{host or '127.0.0.1'}:{int(port)}"


def ray_address(text: str) -> str:
    """`auto`, `local`, or host:port of a cluster's head."""
    host, _, port = text.rpartition(":")
    if text in ("auto", "local"):
        return text
    if host == "" or "/" in host or " " in text or not port.isdecimal() or not 1 <= int(port) <= 65535:
        raise InvalidValue(
            "value-invalid",
            "is not an address of Ray; write HOST:PORT of the head such as 10.0.0.1:6379, auto or local",
        )
    return text


def header(text: str) -> tuple[str, str]:
    """`Name: value`, valid for a request as it is."""
    name, colon, value = text.partition(":")
    value = value.strip()
    if colon == "" or TOKEN.fullmatch(name.strip()) is None:
        raise InvalidValue("header-invalid", "is not a header; write 'Name: value'")
    if any(ord(letter) < 32 or ord(letter) == 127 or ord(letter) > 255 for letter in value):
        raise InvalidValue("header-invalid", "holds a character that no header may carry; use printable Latin-1")
    return name.strip(), value


def session_header(text: str) -> tuple[str, str]:
    """`Name: template` of a header that names the session."""
    name, value = header(text)
    if name.lower() in OWN_HEADERS:
        raise InvalidValue("header-reserved", "names a header that is set for every request; choose another one")
    return name, _template(value)


def session_field(text: str) -> tuple[str, str]:
    """`path.of.field: template` of a body."""
    name, colon, value = text.partition(":")
    if colon == "" or any(part.strip() == "" for part in name.split(".")):
        raise InvalidValue("session-template-invalid", "is not a field with its template; write 'FIELD: TEMPLATE'")
    return name.strip(), _template(value.strip())


def read_header(name: str) -> str:
    """The name of a header of answers whose value is noted."""
    if TOKEN.fullmatch(name) is None:
        raise InvalidValue("header-name-invalid", "is not the name of a header; write a NAME such as x-served-by")
    if name.lower() in FRAMING_HEADERS:
        raise InvalidValue("header-name-invalid", "says how an answer is read, and names nothing; give another header")
    return name


def session_token(text: str) -> str:
    names = text.split("=")
    paths = [body_path(name) for name in names]
    if len(names) > 2 or not all(
        all(path) if path else TOKEN.fullmatch(name) for name, path in zip(names, paths, strict=True)
    ):
        raise InvalidValue(
            "session-token-invalid",
            "is not the name of a header or body:FIELD, a path with dots; write NAME, or NAME=OTHER to send it back there",
        )
    if names[0].lower() in FRAMING_HEADERS:
        raise InvalidValue("session-token-invalid", "takes a header that says how an answer is read; give another one")
    return text


def session_end(text: str) -> str:
    """`METHOD URL`, with POST where no method is given."""
    try:
        method, url = request(text)
    except ValueError:
        raise InvalidValue(
            "session-end-invalid",
            "is not a request; write METHOD URL, such as 'POST /finish_session?session_id={session}'",
        ) from None
    return f"{method} {_template(url)}"


def request(text: str) -> tuple[str, str]:
    """The method, POST where none is given, and the URL or path of `METHOD URL`; ValueError where the text is not that."""
    method, blank, url = text.partition(" ")
    if blank == "":
        method, url = "POST", text
    url = url.strip()
    if not method.isalpha() or not url.startswith(("/", "http://", "https://")) or " " in url or not url.isascii():
        raise ValueError(text)
    return method.upper(), url


def between(text: str) -> str:
    """A verb, or `METHOD URL`, with POST where no method is given."""
    if text in CONTROL_VERBS:
        return text
    try:
        method, url = request(text)
    except ValueError:
        raise InvalidValue(
            "between-invalid",
            f"is neither {', '.join(CONTROL_VERBS)} nor a request; write METHOD URL, such as 'POST http://HOST/PATH'",
        ) from None
    return f"{method} {url}"


def _template(text: str) -> str:
    try:
        pieces(text)
    except ValueError as problem:
        raise InvalidValue("session-template-invalid", f"cannot be filled: {problem}") from None
    return text


def pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if equals == "" or name.strip() == "":
        raise InvalidValue("value-invalid", "is not a label; write NAME=VALUE")
    return name.strip(), value.strip()


def models(text: str) -> tuple[tuple[str, float], ...]:
    """`A=5,B=3,C`, or a file of such entries, one a line: names with weights, 1 where none is given."""
    entries, named = text.split(","), {}
    if "," not in text and "=" not in text and Path(text).is_file():
        try:
            entries = [line for line in read_text(text).splitlines() if line.strip() and not line.startswith("#")]
        except (OSError, UnicodeDecodeError) as problem:
            raise InvalidValue("file-unreadable", f"cannot be read: {problem}") from None
    for place, entry in enumerate(entries, 1):
        name, equals, share = (part.strip() for part in (entry.rpartition("=") if "=" in entry else (entry, "", "")))
        weight = quantities.number(share) if equals else 1.0
        if not name or weight is None or not 0 < weight < math.inf:
            raise InvalidValue(
                "models-invalid",
                f"has the entry {entry.strip()!r} (number {place}); write NAME or NAME=WEIGHT, above 0",
            )
        if name in named:
            raise InvalidValue("models-invalid", f"names {name!r} twice; keep one")
        named[name] = weight
    if not 0 < len(named) <= MOST_MODELS:
        raise InvalidValue("models-invalid", f"names {len(named):,} models; write 1 to {MOST_MODELS:,}")
    return tuple(named.items())


def hook(text: str) -> tuple[str, str]:
    name, equals, command = text.partition("=")
    if equals == "" or name.strip() == "" or command.strip() == "":
        raise InvalidValue(
            "value-invalid",
            "is not a hook with its command; write NAME=COMMAND, such as restart='systemctl restart vllm'",
        )
    return name.strip(), command.strip()


def axis(text: str) -> tuple[str, str]:
    """An option of `--vary` and the text of its values, not yet split."""
    if "=" not in text or text.startswith("="):
        raise InvalidValue("value-invalid", "names no option with its values; write NAME=V1,V2, such as rate=10,20,40")
    return pair(text)


def objective(text: str) -> tuple[str, float]:
    """`ttft:200`, `2/itl:60`, `fluidity:0.9`: name, with its class of requests, and limit in the metric's unit."""
    from fastllmload.metrics.objectives.objective import read_objective

    return read_objective(text)


def prefill_deadline(text: str) -> tuple[tuple[float, float], ...]:
    """`100`, or `256:80,4096:400`: (input tokens, ms) pairs, one of them a constant."""
    if ":" not in text:
        return ((0, milliseconds(text)),)
    pairs = []
    for part in text.split(","):
        tokens, _, limit = part.partition(":")
        try:
            pairs.append((float(count_from_zero(tokens)), milliseconds(limit)))
        except ValueError:
            raise InvalidValue(
                "time-invalid", "is not a deadline; write milliseconds (100) or INPUT_TOKENS:MS pairs (256:80,4096:400)"
            ) from None
    if len({tokens for tokens, _ in pairs}) != len(pairs):
        raise InvalidValue("time-invalid", "names a length twice; write INPUT_TOKENS:MS pairs such as 256:80,4096:400")
    return tuple(sorted(pairs))


def cpus(text: str) -> tuple[int, ...]:
    """`0,2-3`: numbers of CPUs, one per worker."""
    chosen: list[int] = []
    for part in text.replace(" ", "").split(","):
        low, dash, high = part.partition("-")
        if not low.isdecimal() or (dash != "" and not high.isdecimal()):
            raise InvalidValue("value-invalid", "is not a list of CPUs; write for example 0,2-3")
        if len(high or low) > 4:  # a typing error must not fill the memory
            raise InvalidValue(
                "value-invalid", f"names {high or low}, which is beyond any machine; write for example 0,2-3"
            )
        chosen += range(int(low), int(high if dash != "" else low) + 1)
    if len(set(chosen)) != len(chosen) or not chosen:
        raise InvalidValue("value-invalid", "names a CPU twice or none; write for example 0,2-3")
    return tuple(chosen)


def gpus(text: str) -> tuple[int, ...]:
    try:
        return cpus(text)
    except ValueError:
        raise InvalidValue("value-invalid", "is not a list of different GPUs; write for example 0,2-3") from None


SHOWN_METRICS = ("ttft", "ttft_any", "ttft_sched", "tpot", "tpot_any", "itl", "e2e", "e2e_sched")
SHOWN_PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9)


def percentile_metrics(text: str) -> tuple[str, ...]:
    """`ttft,tpot,itl,e2el`, as vLLM names them too."""
    named = one_of(*SHOWN_METRICS, also={"e2el": "e2e"})
    return tuple(dict.fromkeys(named(name.strip()) for name in text.split(",")))


def metric_percentiles(text: str) -> tuple[float, ...]:
    found = [quantities.number(part.strip()) for part in text.split(",")]
    chosen = tuple(q for q in SHOWN_PERCENTILES if q in found)
    if not set(found) <= set(chosen):
        raise InvalidValue(
            "value-invalid",
            "is not a list of percentiles of run.json; write some of 50,90,95,99,99.9; export --format vllm has any others",
        )
    return chosen


def workers(text: str) -> int | None:
    return None if text == "auto" else count(text)


probability = bounded(
    quantities.share, "share-invalid", "is not a probability; write a number above 0 to 1 such as 0.9 or 90%",
    lambda value: 0 < value <= 1,
)  # fmt: skip


def top_k(text: str) -> int:
    return -1 if text.strip() == "-1" else count(text)


def penalty(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not -2 <= value <= 2:
        raise InvalidValue("number-invalid", "is not a penalty; write a number from -2 to 2 such as 0.5")
    return value


def range_ratio(text: str) -> tuple[float, float]:
    """The share of input and of output lengths: one for both, or `{"input": 0.3, "output": 0}`."""
    if not text.lstrip().startswith("{"):
        return share(text), share(text)
    import json

    found = json.loads(json_object(text))
    if found.keys() != {"input", "output"}:
        raise InvalidValue(
            "share-invalid", 'does not have the two keys; write for example \'{"input": 0.3, "output": 0}\''
        )
    return share(str(found["input"])), share(str(found["output"]))


def port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise InvalidValue("value-out-of-range", "is not a port; write a number from 1 to 65535 such as 8000")
    return int(text)


def temperature(text: str) -> float | None:
    """A number of 0 or more; `none` leaves the field out of the request."""
    if text == "none":
        return None
    value = known(
        quantities.number(text), "number-invalid", "is not a temperature; write a number such as 0 or 0.7, or none"
    )
    if value < 0:
        raise InvalidValue("number-invalid", "is below 0; write a number such as 0 or 0.7, or none")
    return value


def json_object(text: str) -> str:
    import json

    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidValue(
            "json-invalid", f"is not JSON ({error}); write an object such as '{{\"top_k\": 5}}'"
        ) from None
    if not isinstance(value, dict):
        raise InvalidValue("json-invalid", "is JSON but not an object; write for example '{\"top_k\": 5}'")
    return text


def columns(text: str) -> tuple[tuple[str, str], ...]:
    """`ROLE=COLUMN,...`, each of COLUMN_ROLES at most once, or a column's name alone: that of the prompts."""
    found: dict[str, str] = {}
    for entry in text.split(","):
        role, _, name = (part.strip() for part in (entry if "=" in entry else f"prompt={entry}").partition("="))
        if role not in COLUMN_ROLES or not name or role in found:
            raise InvalidValue(
                "value-invalid",
                f"has the entry {entry.strip()!r}; write {', '.join(f'{one}=COLUMN' for one in COLUMN_ROLES)}, each once",
            )
        found[role] = name
    return tuple(found.items())


def length_bounds(text: str) -> tuple[tuple[str, int], ...]:
    """`BOUND=TOKENS,...`, each of LENGTH_BOUNDS at most once."""
    found: dict[str, int] = {}
    for entry in text.split(","):
        bound, _, tokens = (part.strip() for part in entry.partition("="))
        if bound not in LENGTH_BOUNDS or not tokens or bound in found:
            raise InvalidValue(
                "value-invalid",
                f"has the entry {entry.strip()!r}; write {', '.join(f'{one}=TOKENS' for one in LENGTH_BOUNDS)}, each once",
            )
        found[bound] = count(tokens)
    for of in ("input", "output", "total"):
        least, most = found.get(f"min-{of}", 0), found.get(f"max-{of}")
        if most is not None and least > most:
            raise InvalidValue("value-invalid", f"has min-{of} {least} above max-{of} {most}; exchange them")
    return tuple(found.items())


def prompt(text: str) -> dict[str, object]:
    """A prompt, or `@FILE` that has it; of the workload `text`."""
    found = text
    if text.startswith("@"):
        try:
            found = read_text(text[1:])
        except (OSError, UnicodeError) as problem:
            raise InvalidValue("file-unreadable", f"cannot be read: {problem}; write @FILE or the prompt") from None
    if not found.strip():
        raise InvalidValue("option-value-missing", "is an empty prompt; write its text")
    return {"workload.name": "text", "workload.prompt": found}


def path(text: str) -> str:
    if text == "":
        raise InvalidValue("option-value-missing", "is empty; write a path")
    return text


def url_path(text: str) -> str:
    if not text.startswith("/") or any(ord(letter) <= 32 for letter in text):
        raise InvalidValue(
            "url-invalid",
            "is not a path of the server; write for example /v1/chat/completions (--endpoint-type chooses the protocol)",
        )
    return text


def text(value: str) -> str:
    if value == "":
        raise InvalidValue("option-value-missing", "is empty")
    return value


def one_of(*names: str, also: dict[str, str] | None = None, of_files: str = "") -> Callable[[str], str]:
    """A parser that accepts *names*, and the alternative spellings *also* for some of them. The refusal of a path says
    *of_files*.
    """
    meanings = {**{name: name for name in names}, **(also or {})}

    def parse(value: str) -> str:
        if value not in meanings:
            hint = f"; {of_files}" if of_files and re.search(r"[/.]", value) else nearest(value, meanings)
            raise InvalidValue("choice-unknown", f"is not one of {', '.join(names)}{hint}")
        return meanings[value]

    return parse


def endpoint_type(*names: str, also: dict[str, str]) -> Callable[[str], str]:
    """A parser of a protocol's name, and of the name of a file that describes an endpoint, which it reads."""
    named = one_of(*names, also=also)

    def parse(value: str) -> str:
        if template.is_file(value):
            return template.read(value)
        try:
            return named(value)
        except InvalidValue as problem:
            raise InvalidValue(problem.code, f"{problem.problem}; FILE.toml describes another") from None

    return parse


def nearest(value: str, names: Iterable[str]) -> str:
    """`; did you mean X?`, or nothing when no name is *value* with a typing error."""
    from difflib import get_close_matches

    near = get_close_matches(value, [name for name in names if name[:1] == value[:1]], n=1, cutoff=ALIKE)
    return f"; did you mean {near[0]}?" if near else ""


def arrival(text: str) -> str:
    """`onoff` may carry its periods, which are checked later; `ramp` is Poisson with a rising rate."""
    one_of("poisson", "constant", "uniform", "gamma", "bursty", "onoff", "ramp", "trace")(text.partition(":")[0])
    return text
