"""Write the request sequence of a plan as JSON lines, for other tools and for `--workload custom` (IETF 4.3.3).

One object per request, in the order of sending:

| field | what |
|---|---|
| `timestamp` | seconds from the start of the phase; absent in a closed loop, of a class that is one, and of later turns |
| `prompt` or `messages` | as they are sent; of a later turn only its own |
| `session`, `delay` | of conversations: which one, and seconds to think before a later turn (read back with `--turns all`) |
| `input_tokens`, `output_tokens` | as planned |
| `class` | name of the request's class; absent if there is only one |
| `target` | if classes differ in them: `endpoint_type` `path` `model` of the request's class, `url` if it has one |
| `body` | fields that differ from those of a run with default options; null: the field is absent |

Model, `stream` and `stream_options` are the replaying run's; `target` is for other tools, and a run refuses lines of
another protocol than its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import numpy as np

from fastllmload.endpoint import Endpoint, shown
from fastllmload.endpoint.body import LENGTHS, OUTPUT_TOKENS, PROMPT
from fastllmload.endpoint.endpoint import named
from fastllmload.endpoint.template import is_text
from fastllmload.errors import InputError
from fastllmload.files import writable
from fastllmload.plan.bodies import BUFFER, disk_errors
from fastllmload.plan.plan import STITCHED, Plan
from fastllmload.settings import Workload

OWN = ("model", "stream", "stream_options")  # of the replaying run


def write_sequence(
    plan: Plan, endpoints: Mapping[str, Endpoint], path: Path, urls: Mapping[str, Sequence[str]] | None = None
) -> str:
    """Write *plan*'s requests to *path*; returns the file's SHA-256. *urls*: of classes that have their own, if known.

    InputError for conversations with a planned history, HostLimitError for a full disk.
    """
    if plan.edges is not None:
        raise InputError(
            "option-not-applicable",
            "the sequence of a plan of sessions is its trace: give --workload and --dataset-path with --sequence, and no "
            "--class and no saved plan",
        )
    if plan.turns is not None and ((plan.turns["turn"] > 0) & (plan.turns["flags"] & STITCHED == 0)).any():
        raise InputError(
            "output-length-missing",
            "the sequence of a plan with --history planned cannot be written: its turns repeat the earlier ones; "
            "use --history real",
        )
    for one in protocols(plan):
        if is_text(one) and PROMPT not in endpoints[one].prompts["text"].values():
            raise InputError(
                "protocol-unsupported",
                f"the sequence of a plan for {shown(one)} cannot be written: its prompts are inside of other fields",
            )
    hasher = hashlib.sha256()
    encoder = msgspec.json.Encoder()
    by_class = [endpoints[one] for one in protocols(plan)]
    defaults = [Defaults(endpoint, streams) for endpoint, streams in zip(by_class, streamed(plan), strict=True)]
    targets = Targets(plan, by_class, urls or {})
    with disk_errors(path, "--sequence"), open(writable(path), "wb", buffering=BUFFER) as file:
        for number in range(plan.requests):
            of_class = int(plan.request_class[number]) if len(by_class) > 1 else 0
            line = encoder.encode(entry(plan, number, defaults[of_class], targets.of(number))) + b"\n"
            hasher.update(line)
            file.write(line)
    return hasher.hexdigest()


class Defaults:
    def __init__(self, endpoint: Endpoint, streaming: bool) -> None:
        self._endpoint = endpoint
        self.prompt_fields = endpoint.prompt_fields
        form = "words" if endpoint.takes("text") else "ids"
        self._workload = Workload(streaming=streaming, prompt_form=form)

    def fields(self, tokens: int) -> dict[str, Any]:
        body: dict[str, Any] = msgspec.json.decode(self._endpoint.encode_body("", self._workload, "", tokens))
        return {name: value for name, value in body.items() if name not in self.prompt_fields}


def protocols(plan: Plan) -> list[str]:
    """The protocol of each traffic class; that of the plan if it has none."""
    described = plan.description
    return [str(one.endpoint or described.endpoint) for one in described.classes or (described,)]


def streamed(plan: Plan) -> list[bool]:
    """Whether answers are asked for as streams: of each traffic class; of the plan if it has none."""
    described = plan.description
    settings = [one.settings for one in described.classes]
    return [bool(described.streaming) if one is None else one.workload.streaming for one in settings or [None]]


class Targets:
    """Targets of each class, in the fields in which classes differ: protocol, path, model, and own URLs in turn."""

    def __init__(self, plan: Plan, by_class: Sequence[Endpoint], urls: Mapping[str, Sequence[str]]) -> None:
        classes = plan.description.classes
        self._class, self._classes = plan.request_class, classes
        self._endpoints, self._paths = (
            by_class,
            [one.settings.endpoint_path if one.settings else None for one in classes],
        )
        self._urls = [urls.get(str(one.name), ()) for one in classes]
        self._streaming = streamed(plan)
        differ = len({endpoint.name for endpoint in by_class}) > 1 or any(one.own_targets for one in classes)
        differ = differ or any(path is not None for path in self._paths)
        models = {one.model for one in classes if one.requests}
        self._facts = [self._known(number, path, differ, len(models) > 1) for number, path in enumerate(self._paths)]
        self._turn = np.zeros(plan.requests, np.int64)  # index among the conversations or requests of its class
        for number in range(len(classes)):
            mine = plan.starts[plan.request_class[plan.starts] == number]
            self._turn[mine] = np.arange(len(mine))
        if plan.turns is not None and plan.requests:
            self._turn = self._turn[np.repeat(plan.starts, np.diff(np.append(plan.starts, plan.requests)))]

    def _known(self, number: int, path: str | None, differ: bool, says_model: bool) -> dict[str, Any]:
        one, found = self._classes[number], {"endpoint_type": self._endpoints[number].name}
        found["path"] = path or self._path(number)
        return (found if differ else {}) | ({"model": one.model} if says_model and one.requests else {})

    def _path(self, number: int, base_path: str = "") -> str:
        path = self._endpoints[number].path(base_path, self._streaming[number])
        return named(path, self._classes[number].model or "")

    def of(self, number: int) -> dict[str, Any]:
        """Target of request *number*; empty if classes do not differ."""
        if not self._facts:
            return {}
        of_class = int(self._class[number])
        urls = self._urls[of_class]
        facts = dict(self._facts[of_class])
        if urls:
            facts["url"] = url = urls[int(self._turn[number]) % len(urls)]
            facts["path"] = self._paths[of_class] or self._path(of_class, urlsplit(url).path)
        return facts


def entry(plan: Plan, number: int, defaults: Defaults, target: dict[str, Any]) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.json.decode(plan.body(number))
    tokens = int(plan.output_tokens[number])
    starts = plan.t_sched is not None and plan.t_sched[number] >= 0
    found: dict[str, Any] = (
        {"timestamp": int(plan.t_sched[number]) / 1e9} if starts and plan.t_sched is not None else {}
    )
    if plan.turns is not None:
        turn = plan.turns[number]
        found |= {"session": int(turn["session"])} | ({"delay": int(turn["think_ns"]) / 1e9} if turn["turn"] else {})
    found |= content(next(body.pop(name) for name in defaults.prompt_fields if name in body))
    found |= {"input_tokens": int(plan.input_tokens[number])} | ({"output_tokens": tokens} if tokens else {})
    if plan.classes:
        found["class"] = plan.classes[int(plan.request_class[number])]
    if target:
        found["target"] = target
    extra = difference(body, defaults.fields(tokens), tokens)
    return {**found, "body": extra} if extra else found


def content(prompt: Any) -> dict[str, Any]:
    """Prompt or messages; a single user message of plain text becomes the prompt, and so does a single document."""
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str):
        return {"prompt": prompt[0]}
    if not (isinstance(prompt, list) and prompt and isinstance(prompt[0], dict)):
        return {"prompt": prompt}
    if len(prompt) == 1 and prompt[0].keys() == {"role", "content"} and prompt[0]["role"] == "user":
        text = prompt[0]["content"]
        if isinstance(text, str) and text:
            return {"prompt": text}
    return {"messages": prompt}


def difference(body: dict[str, Any], default: dict[str, Any], tokens: int) -> dict[str, Any]:
    """Fields of *body* that differ from *default*, in the order of the body; None for those absent from *body*."""
    found: dict[str, Any] = {}
    for name, value in body.items():
        if name in OWN or (name in default and default[name] == value):
            continue
        found[name] = OUTPUT_TOKENS if name in LENGTHS and value == tokens else value
    absent = [name for name in default if name not in body and name not in OWN and name not in LENGTHS]
    return found | dict.fromkeys(absent)
