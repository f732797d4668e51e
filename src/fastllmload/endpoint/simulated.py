"""How the simulated engine serves an endpoint: where a request says what, and templates of what is answered.

A template is JSON with slots:

* `$model`; `$id`: 16 hex digits; `$created`: Unix seconds; `$time`: RFC 3339, of the event;
* `$text`: of the event, without quotes; of a tool call a JSON value; `$whole_text`: of the block or reply so far, in
  *finish* its content; `$thought`: all reasoning; `$whole_call`: the call's arguments; `$calls`: a call_entry for each call;
* token ids with commas: `$ids` of the event, in *finish* of the last one; `$whole_ids`; `$tokens`: the number of `$ids`;
* `$logprobs`: `logprob` for each token of the event;
* numbers of tokens: `$prompt`, `$completion`, `$total`, `$cached`, `$uncached` (of the prompt), `$reasoning`;
* `$request_id`: that of the client;
* durations: `$total_ns`, `$load_ns`, `$prompt_eval_ns`, `$eval_ns`;
* places from 0: `$sequence` of the event, `$index` of the block, `$call` of the tool call (`$call_hex`: 4 digits);
* `$finish`: one of `words`, which may have slots; `$padding`; `$tool`: the name of the tool that is called.

`error` has `$code`, `$type`, `$message`; pages have `$model`, `$models` (an `entry` for each), `$created`,
`$max_model_len`, `$now`, `$later`, `$version`, and over gRPC `$served`: whether field 1 of the request names a model that is
served.

Of gRPC (`framing`), a template has the names of `reply`, a number that is 0 is left out, and there are no conditions;
`$raw_text`, `$raw_whole_text` have their size before them in four bytes, `$raw_prompt`, `$raw_completion`, `$raw_tokens` are
numbers of four bytes. `read` gives the JSON of a request's message.

`load_answer` has `$asked` (the model's name or null), `$now`, `$reason`.

`$<condition:text$>` is left out unless all conditions hold: `usage`, `ids`, `logprobs` (asked for), `counted` (usage is
asked for in every event), `thought` (a stream had reasoning), `silent` (it ends without content), one of them with `!`
(not so), or the number that ends the text (it is not 0).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fastllmload._ext.bytes.schema import Schema
from fastllmload.endpoint.turns import ToolTurn


@dataclass(frozen=True)
class Event:
    """An event with a name: the `event:` line of server-sent events."""

    name: str
    text: str


Events = str | Event | tuple[str | Event, ...]  # "" and (): none


@dataclass(frozen=True)
class RequestKeys:
    """Paths into the JSON of a request, as `options.num_predict`. "": there is none."""

    prompt: str | tuple[str, ...]  # the last that is given counts
    before: str = ""  # more of the prompt, in front of it: a system prompt
    tokens: tuple[str, ...] = ()  # output length; the last that is given counts
    stream: str = ""
    usage: str = ""  # "": usage is always said
    counted: str = ""
    ids: str = ""
    logprobs: str = ""
    min_tokens: str = ""
    ignore_eos: str = ""
    n: str = ""
    priority: str = ""
    keep_alive: str = ""
    request_id: str = ""
    previous: str = ""  # the id of the reply that it continues
    store: str = ""  # whether the reply can be continued


@dataclass(frozen=True)
class SimulatedPage:
    """A page besides the replies: a list of models, a version, a health check."""

    path: str
    text: str
    method: str = "GET"
    content_type: str = "application/json"
    message: Schema | None = None  # gRPC: the text is one
    entry: str = ""  # of each model; `$models` in the text are all of them


@dataclass(frozen=True)
class SimulatedApi:
    """One path of the simulated engine.

    *finish*, *usage* and *done* end a stream, in this order. Where a protocol has blocks, reasoning, content and each tool
    call begin and end with events. A call with a *call_start* is streamed in pieces, of which *call* is one; else *call* is
    all of it.
    """

    path: str  # may contain $model
    keys: RequestKeys
    content: Events
    document: Events
    error: str | Event
    error_event: Events = ()  # in a stream, if it differs from the body
    error_types: Mapping[int, str] = field(default_factory=dict)  # $type of a status
    finish: Events = ()
    words: tuple[str, ...] = ("stop", "length", "abort", "tool_calls")  # for why it ended; the last may be left out
    start: Events = ()
    usage: Events = ()  # if it is asked for
    done: Events = ()
    last: Events = ()  # content of the last token, if it differs
    content_start: Events = ()
    content_stop: Events = ()
    reasoning: Events = ()
    reasoning_start: Events = ()
    reasoning_stop: Events = ()
    call: Events = ()
    call_start: Events = ()
    call_stop: Events = ()
    calls: str = ""  # the document of a reply that calls tools; $text: a call_entry for each of them
    call_entry: str = ""
    object_arguments: bool = False  # arguments of calls are objects, not texts
    logprob: str = ""  # of one token, $word
    recognised_by: str = (
        ""  # a field of its requests that those of other APIs with its path lack; "": that of the prompt
    )
    packed: str = ""  # a field whose text is JSON of its own
    framing: str = "sse"  # ndjson: a line for each event; websocket, grpc: a message
    read: Callable[[bytes], bytes] | None = None
    reply: Schema | None = None
    padding: str = ""  # a field of $fill that makes content events longer
    messages: bool = False  # the prompt is messages; else a text or token ids
    stream_default: bool = False
    output_tokens: int = 0  # of every reply; 0: as the request says
    unlimited: bool = False  # an output length below 1 means no limit
    answered_calls: ToolTurn | None = None  # refuses messages with such calls that are not answered
    signs_thoughts: bool = False  # as `$id-$reasoning`, and refuses blocks of thinking that it has not signed so
    not_stored: str = ""  # the error for a reply that cannot be continued
    model_tag: str = ""  # a model's name may end in it
    missing: str = "The model `$model` does not exist."
    load_answer: str = ""  # to a request without a prompt, which loads the model
    pages: tuple[SimulatedPage, ...] = ()
    broken: str = '{"text":"bro'  # events of faults: cut JSON; before many brackets; before a line without an end
    deep: str = '{"text":'
    huge: str = ""
