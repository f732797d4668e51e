"""Probes a server before the clock starts: which models does it offer, and does it answer with tokens?"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import msgspec

from fastllmload._ext.events.grpc import status_text
from fastllmload.endpoint.body import extra_fields
from fastllmload.endpoint.endpoint import named
from fastllmload.engine.preflight import answers, other_types, routing
from fastllmload.engine.preflight.answers import CONTENT_KINDS, ERROR_KIND, NEITHER, TOKEN_IDS, USAGE
from fastllmload.engine.preflight.calls import (
    INTERNAL,
    PERMISSION_DENIED,
    UNAUTHENTICATED,
    UNAVAILABLE,
    UNIMPLEMENTED,
    UNKNOWN,
    models_listed,
    stated_model,
)
from fastllmload.engine.preflight.client import CUT, NoAnswer, ServerConnection, one_line
from fastllmload.errors import InputError, TargetError, coded
from fastllmload.report.terminal.outlet import Redact
from fastllmload.settings import Workload

PROBE_TOKENS = 4
TRIES, PAUSE_S = 5, 0.2  # for a server that fails now and then
AT_LEAST = re.compile(r"min_(?:\w+_)?tokens")  # fields of --extra-body that max_tokens may not be below
BUDGET = re.compile(r"(?:\w+_)?budget(?:_tokens)?")  # fields that max_tokens must be above
Found = TypeVar("Found")
STREAMS = ("sse", "ndjson", "grpc")
PROBE_IDS = (1, 2, 3, 4)  # exist in every vocabulary
UNKNOWN_FIELD = (400, 404, 415, 422, 501)  # statuses of servers that refuse a field
OPTION = "--continuous-usage"
AGAIN = (UNKNOWN, INTERNAL, UNAVAILABLE)


class ServerProbe(ServerConnection):
    """*context_limit*: tokens, of the model last requested; *served*: the model of a class's own server.
    *way*: the way of requesting token counts in events that this server supports; *known*: that of an earlier server.
    """

    context_limit: int | None = None
    served: str | None = None
    unlisted: tuple[str, ...] = ()  # remarks on a model that is requested although the list does not contain it
    asked_tokens = PROBE_TOKENS
    asked_model = ""
    answer_s = 0.0
    way: str | None = None
    known: str | None = None

    def model(self, wanted: str | None) -> str:
        """The model to request: *wanted* if the server offers it or has no list, the only one offered if none is wanted."""
        path = self.endpoint.models_path(self.base.path)
        call = self.endpoint.call
        if call is not None and call.model_method is not None:
            return self._stated_model(wanted, call.model_method, call.context_field)
        if call is not None and call.list_method is not None:
            offered, listed_by = models_listed(self, call.list_method), f"POST {call.list_method}"
        elif path is None:
            if wanted is None:
                raise InputError("model-missing", f"{self.endpoint.name} has no list of models; name one with -m")
            return wanted
        else:
            status, body = self._listed(path)
            if status == 401 or wanted is None:  # a list may be forbidden where requests are not
                self._refuse_unauthorised(status, body)
            offered, listed_by = (
                answers.offered_models(body) if status == 200 else None,
                f"{self.endpoint.lists_by} {path}: {status}",
            )
            self.context_limit = None if offered is None else answers.context_limit(body, wanted or offered[0])
        if offered is None:
            if wanted is None:
                problem = f"{self.base.public_url} does not list its models ({listed_by}); name one with -m"
                raise InputError("model-missing", problem)
            return wanted
        if wanted is None:
            if len(offered) == 1:
                return offered[0]
            several = f"{self.base.public_url} offers {answers.quoted_list(offered)}; choose one with -m"
            raise InputError("model-ambiguous", several)
        listed = {*offered, *(name.removesuffix(":latest") for name in offered)}  # Ollama's tag may be left out
        absent = [name for name in dict.fromkeys((wanted, *dict(self.settings.target.models))) if name not in listed]
        if absent:
            more = f" (nor {len(absent) - 1:,} more of --models)" if len(absent) > 1 else ""
            shown = answers.quoted_list(offered)
            problem = f"-m {absent[0]!r}{more} is not offered by {self.base.public_url}; it offers {shown}"
            if self.settings.target.model_check:
                advice = "--no-model-check sends a name that is not listed, such as an alias"
                raise InputError("model-not-offered", f"{problem}; {advice}")
            self.unlisted = (coded("model-not-offered", one_line(problem, 400)),)
        return wanted

    def _stated_model(self, wanted: str | None, method: str, context_field: int) -> str:
        """The model to name: *wanted*, or the one that the server tells of. No request has its name."""
        served, self.context_limit = stated_model(self, method, context_field)
        if wanted is None and not served:
            raise InputError(
                "model-missing", f"{self.base.public_url} does not tell its model (POST {method}); name one with -m"
            )
        return wanted or served

    def _listed(self, path: str) -> tuple[int, bytes]:
        """(status, body) of the list of models; repeated while the server fails, for servers that fail now and then."""

        def ask() -> tuple[int, bytes]:
            status, body = self._list(path)
            if status >= 500:
                raise ProbeFailed(status, body)
            return status, body

        try:
            return self._retried(ask, f"{self.endpoint.lists_by} {path}", [])
        except ProbeFailed as problem:  # some servers have no list and answer 500 or 501
            return problem.status, problem.body

    def _list(self, path: str, most_s: float | None = None) -> tuple[int, bytes]:
        by = self.endpoint.lists_by
        status, _, body = self.exchange(by, path, b"{}" if by == "POST" else None, most_s)
        return status, body

    def _retried(self, ask: Callable[[], Found], what: str, notes: list[str], tries: int = TRIES) -> Found:
        """The result of *ask*, called up to *tries* times; failures before a success are added to *notes*."""
        failures: list[str] = []
        while True:
            try:
                found = ask()
                break
            except (NoAnswer, RequestRefused):
                raise
            except TargetError as problem:
                failures.append(problem.message)
                if len(failures) == tries:
                    raise
                time.sleep(PAUSE_S)
        if failures:
            times = "once" if len(failures) == 1 else f"{len(failures)} times"
            failed = f"the probe {what} failed {times} before it was answered: {failures[-1]}"
            notes.append(coded("probe-repeated", failed))
        return found

    def status(self, most_s: float) -> int:
        """HTTP status of the model list, or of the root. TargetError without an answer within *most_s*."""
        self.reach([])
        path = self.endpoint.models_path(self.base.path)
        return self.exchange("GET", "/", None, most_s)[0] if path is None else self._list(path, most_s)[0]

    def model_entry(self, model: str) -> dict[str, Any]:
        """The entry of *model* in the server's list; empty without a list or entry."""
        path = self.endpoint.models_path(self.base.path)
        status, body = (0, b"") if path is None else self._list(path)
        listed = answers.model_list(body) if status == 200 else None
        names = (model, f"{model}:latest")
        return next((one for one in listed[1] if one.get(listed[0]) in names), {}) if listed is not None else {}

    def send_once(self, model: str, prompt: str, tokens: int) -> None:
        """Send one request outside of any run. TargetError when it is refused."""
        body = self.endpoint.encode_body(model, self.settings.workload, prompt, tokens)
        self.path = named(self.path, model)
        status, _, content = self._ask(body)
        self._refuse_unauthorised(status, content)
        if self.endpoint.call is not None and status == 200:
            self._refuse_call()
        if status != 200:
            text = excerpt(content, self.redact)
            raise TargetError("request-refused", self._answers(f"with {status}: {text}"))

    def cached_tokens(self, model: str, prompt: Any, tokens: int) -> int | None:
        """Send *prompt*, a text or token ids, outside of any run: how many of its tokens the server had cached; None: it
        does not say. TargetError when it is refused.
        """
        form = "words" if isinstance(prompt, str) else "ids"
        workload = msgspec.structs.replace(self.settings.workload, prompt_form=form)
        body = self.endpoint.encode_body(model, workload, prompt, tokens)
        status, content_type, content = self._ask(body)
        if status != 200:
            raise TargetError("request-refused", self._answers(f"with {status}: {excerpt(content, self.redact)}"))
        return answers.parse_answer(content, content_type, self.endpoint.dialect)[2].cached

    def _ask(self, body: bytes) -> tuple[int, str, bytes]:
        self.asked_body = body
        if self.endpoint.call is not None:
            body = self.endpoint.call.framed(body, f"fastllmload-probe-{uuid.uuid4().hex}".encode())
        return self.exchange("POST", self.path, body)

    def _refuse_call(self) -> None:
        """InputError for a call that ended with another status than 0, or with none."""
        said = self.header("grpc-status")
        if said == "0":
            return
        if not said:
            missing = "with 200 but without a grpc-status: does it speak gRPC, or does a proxy drop the trailers?"
            raise TargetError("answer-broken", self._answers(missing))
        message = self.redact(str(self.fields.get("grpc-message", "")))
        self._refuse_unauthorised({UNAUTHENTICATED: 401, PERMISSION_DENIED: 403}.get(int(said), 0), message.encode())
        words = one_line(status_text(int(said), message.encode()).decode())
        advice = f"; {other_types.by_method(self)}" if int(said) == UNIMPLEMENTED else ""
        failed = TargetError if int(said) in AGAIN else RequestRefused
        raise failed(
            "server-error" if int(said) in AGAIN else "request-refused", self._answers(f"with {words}{advice}")
        )

    def _answers(self, what: str) -> str:
        return f"{self.base.public_url} answers POST {self.path} {what}"

    def _refuse_unauthorised(self, status: int, body: bytes) -> None:
        if status not in (401, 403):
            return
        reason = "it requires an API key" if self.key is None else "the API key was refused"
        if status == 403 and body.strip():  # what is switched off, or too much for a key, has this status too
            reason = excerpt(body, self.redact)
        variable = self.endpoint.key_variable
        remedy = f"set {variable}" if self.key is None else f"give another key in {variable} or with --api-key"
        raise RequestRefused("unauthorized", f"{self.base.public_url} answers {status}: {reason}; {remedy}")

    def answer(self, model: str, notes: list[str]) -> bool | None:
        """Send one short request, without fields that are refused. Whether usage was reported; remarks go to *notes*."""
        add_notes(notes, *self.unlisted)
        self.asked_model = model
        answer, ways, tries = None, self._ways(self.settings.workload), TRIES
        for way in ways:
            if answer is not None and (way == NEITHER or answer.reports_without_field):
                break
            if way != NEITHER and tries < TRIES:
                continue  # a server that failed with one field is not sent another
            ask = partial(self._answer, model, notes, way)
            try:
                answer = self._retried(ask, f"POST {self.path}", notes, tries - (way != ways[-1]))
            except FieldRefused:
                continue
            except (NoAnswer, RequestRefused):
                raise
            except TargetError:
                if way == ways[-1]:
                    raise
                tries = 1  # next without the field: some servers answer 500 to an unknown field
                continue
            if answer.usage is None:
                self.way = None
                break
            if way != NEITHER and answer.reports(way):
                self.way = way
                break
        return None if answer is None else answer.usage

    def _ways(self, workload: Workload) -> list[str]:
        """Ways to request token counts in events, in the order of trial. InputError when the given way cannot be used."""
        obstacles = {way: next(iter(self._obstacles(workload, way)), None) for way in (USAGE, TOKEN_IDS)}
        asked = workload.continuous_usage
        if asked in obstacles:
            if obstacles[asked] is not None:
                raise InputError(
                    "continuous-usage-unsupported", f"{OPTION} {asked} cannot be used: {obstacles[asked]}; leave it out"
                )
            return [asked]
        wanted = () if asked == NEITHER else (USAGE, TOKEN_IDS) if self.known is None else (self.known,)
        free = [way for way in wanted if obstacles.get(way, "") is None]
        self.way = NEITHER if free else None
        return [*free, NEITHER]

    def _obstacles(self, workload: Workload, way: str) -> Iterator[str]:
        field = self.endpoint.counted_by.get(way)
        if field is None:
            yield f"{self.endpoint.name} has no field for it"
        if not workload.streaming:
            yield "answers are not streamed"
        if field in extra_fields(workload.extra_body):
            yield f"--extra-body sets {field}"

    def _answer(self, model: str, notes: list[str], way: str) -> answers.ProbeAnswer:
        workload = msgspec.structs.replace(self.settings.workload, continuous_usage=way)
        ids = self.endpoint.form(workload) == "ids" or not self.endpoint.takes("text")
        prompt: Any = PROBE_IDS if ids else "Say hello."
        workload = msgspec.structs.replace(workload, prompt_form="ids" if ids else "words")
        self.asked_tokens = probe_tokens(workload)
        body = self.endpoint.encode_body(model, workload, prompt, self.asked_tokens)
        begun = time.perf_counter()
        status, content_type, content = self._ask(body)
        self.answer_s = time.perf_counter() - begun
        self._refuse_unauthorised(status, content)
        if status == 429:
            limited = f"{self.base.public_url} answered the probe with 429: it may refuse some of the load"
            add_notes(notes, coded("rate-limited", limited))
            return answers.ProbeAnswer(None)
        if status != 200:
            self._refuse_status(status, content, way)
        if self.endpoint.call is not None and answers.body_format(content_type) == "grpc":
            self._refuse_call()
        kinds, texts, answer = answers.parse_answer(content, content_type, self.endpoint.dialect)
        if self.cut and not answer.ended:  # a run counts an answer that had ended
            raise TargetError(
                "answer-broken", f"{self.base.public_url} did not answer POST {self.path} properly: {CUT}"
            )
        self._refuse_content(content, content_type, kinds, texts)
        if self.settings.workload.continuous_usage == way != NEITHER and not answer.reports(way):
            what = "usage" if way == USAGE else "token ids"
            raise RequestRefused(
                "continuous-usage-unsupported",
                f"{OPTION} {way} was given, but the events of {self.base.public_url} do not report their {what}; "
                "leave it out",
            )
        add_notes(notes, *self.endpoint.remarks(workload), *routing.absent_names(self, texts))
        if not self.endpoint.tokens:
            return answer
        if workload.streaming and answers.body_format(content_type) not in STREAMS:
            kind = one_line(content_type) or "no content type"
            unstreamed = f"{self.base.public_url} answers a streaming request with {kind}, not a stream"
            add_notes(notes, coded("answer-not-streamed", unstreamed))
        if not any(kind in CONTENT_KINDS for kind in kinds):
            empty = f"the probe of {self.base.public_url} got an answer without a token"
            add_notes(notes, coded("answer-without-token", empty))
        return answer

    def _refuse_status(self, status: int, content: bytes, way: str) -> None:
        if way != NEITHER and status in UNKNOWN_FIELD and self.settings.workload.continuous_usage == "auto":
            raise FieldRefused(
                "continuous-usage-unsupported", f"{self.base.public_url} does not accept the field of {OPTION} {way}"
            )
        failed = TargetError if status >= 500 else RequestRefused
        advice = other_types.by_status(self, status, content, self.asked_model) or self._status_advice(status)
        answered = self._answers(f"with {status}: {excerpt(content, self.redact)}; {advice}")
        raise failed(refusal_code(status), answered)

    def _refuse_content(self, content: bytes, content_type: str, kinds: list[int], texts: list[bytes]) -> None:
        speaks = f"does this URL speak {self.endpoint.name}?"
        if answers.is_web_page(content, content_type):
            raise TargetError("answer-not-understood", self._answers(f"with 200 but a web page: {speaks}"))
        if not content:
            raise TargetError("answer-not-understood", self._answers(f"with 200 but no body: {speaks}"))
        if ERROR_KIND in kinds:
            wrong = texts[kinds.index(ERROR_KIND)]
            raise TargetError(
                "error-in-answer",
                f"{self.base.public_url} answers with an error inside a 200: {excerpt(wrong, self.redact)}",
            )
        own = any(re.search(sign, content, re.DOTALL) for sign in self.endpoint.signs)
        if not own and (self.endpoint.signs or not any(kind in CONTENT_KINDS for kind in kinds)):
            self._refuse_another_protocol(content)
        self._refuse_unreadable(content, content_type, kinds)

    def _refuse_another_protocol(self, content: bytes) -> None:
        """RequestRefused for a valid answer in another protocol than the one of --endpoint-type."""
        for name, option in answers.another_protocol(content, self.endpoint.name):
            if option:
                remedy = f"give --endpoint-type {option}"
            else:
                remedy = f"no --endpoint-type reads that here; choose a path of {self.endpoint.name} with --endpoint"
            answered = self._answers(f"in the form of {name}, not of {self.endpoint.name}; {remedy}")
            raise RequestRefused("answer-not-understood", answered)

    def _refuse_unreadable(self, content: bytes, content_type: str, kinds: list[int]) -> None:
        """TargetError for an answer that a run would count as failed whatever its text."""
        refused = answers.refused_head(self.head)
        if refused is not None:
            answered = self._answers(f"with a head that a run refuses (bad_head): {one_line(self.redact(refused))}")
            raise TargetError("answer-head-refused", answered)
        encoding = self.header("Content-Encoding")
        if answers.is_encoded(encoding):
            unasked = f"in Content-Encoding {encoding}, though none was requested; turn compression off there"
            raise TargetError("answer-compressed", self._answers(unasked))
        wrong = answers.unreadable(content_type, kinds, self.endpoint)
        if wrong is not None:
            what = f"{one_line(self.redact(wrong))}: {excerpt(content, self.redact)}"
            answered = self._answers(f"with 200 but {what}; does this URL speak {self.endpoint.name}?")
            raise TargetError("answer-not-understood", answered)

    def _status_advice(self, status: int) -> str:
        if status == 101:
            return (
                f"it wants to speak {self.header('Upgrade') or 'something else'} here; give a path that answers in HTTP"
            )
        if 300 <= status < 400:
            where = self.header("Location")
            return f"redirects are not followed; give the new location in --url{where and f' ({where})'}"
        if status >= 500:
            return "has it failed, or is it still loading its model? see its own log"
        return "is the endpoint type right, and does the server take these fields?"


class RequestRefused(TargetError):
    """An answer that a repetition would not change."""


class FieldRefused(RequestRefused):
    """The server refused a field that can be left out."""


class ProbeFailed(TargetError):
    def __init__(self, status: int, body: bytes) -> None:
        super().__init__("server-error", f"it answered {status}")
        self.status = status
        self.body = body


def refusal_code(status: int) -> str:
    if status >= 500:
        return "server-error"
    return "target-redirects" if 300 <= status < 400 else "request-refused"


def probe_tokens(workload: Workload) -> int:
    """Output tokens of a probe: PROBE_TOKENS, or what fields of --extra-body require, up to a fixed --osl."""
    asked = [PROBE_TOKENS]

    def visit(value: Any) -> None:
        for name, inner in value.items() if isinstance(value, dict) else ():
            if isinstance(inner, dict):
                visit(inner)
            elif isinstance(inner, int) and not isinstance(inner, bool):
                if AT_LEAST.fullmatch(name):
                    asked.append(inner)
                elif BUDGET.fullmatch(name):
                    asked.append(inner + PROBE_TOKENS)

    visit(extra_fields(workload.extra_body))
    most = int(workload.osl) if workload.osl is not None and workload.osl.isdecimal() else max(asked)
    return max(PROBE_TOKENS, min(max(asked), most))


def add_notes(notes: list[str], *remarks: str) -> None:
    notes += [remark for remark in remarks if remark not in notes]


def excerpt(content: bytes, redact: Redact, size: int = 200) -> str:
    """One line of a server's text; redacted before it is shortened, so that no part of a secret remains at the end."""
    return one_line(redact(content.decode(errors="replace")), size) or "an empty body"
