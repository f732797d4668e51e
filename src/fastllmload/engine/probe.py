"""Questions to a server before the clock: which models, and does it answer with tokens?"""

from __future__ import annotations

from typing import Any

from fastllmload._ext.delta import Classifier
from fastllmload._ext.ndjson import NdjsonParser
from fastllmload._ext.sse import SseParser
from fastllmload.engine.contact import LARGEST_ANSWER, Contact, one_line
from fastllmload.engine.offers import context_limit, listing, offered_models, shown_list
from fastllmload.errors import InputError, TargetError
from fastllmload.report.outlet import Redact

PROBE_TOKENS = 4
STREAMS = ("text/event-stream", "application/x-ndjson")
PROBE_IDS = (1, 2, 3, 4)  # every vocabulary has them
ERROR_KIND = 9
CONTENT_KINDS = (2, 3, 4, 5, 6)  # delta.EventKind: whitespace, content, reasoning, tool call, refusal


class Probe(Contact):
    """The checks of one URL. *context_limit*: what its list says of the model last asked for, tokens; *served*: of a
    class's own server, the model that it is asked for.
    """

    context_limit: int | None = None
    served: str | None = None

    def model(self, wanted: str | None) -> str:
        """The model to name: *wanted* if the server offers it or offers no list, the only one offered if none is
        wanted.
        """
        path = self.endpoint.models_path(self.base.path)
        status, _, body = self.exchange("GET", path, None)
        self._refuse_unauthorised(status)
        offered = offered_models(body) if status == 200 else None
        self.context_limit = None if offered is None else context_limit(body, wanted or offered[0])
        if offered is None:
            if wanted is None:
                raise InputError(f"{self.base.shown} does not list its models (GET {path}: {status}); name one with -m")
            return wanted
        if wanted is None:
            if len(offered) == 1:
                return offered[0]
            raise InputError(f"{self.base.shown} offers {shown_list(offered)}; choose one with -m")
        if wanted not in offered and f"{wanted}:latest" not in offered:  # Ollama's tag may be left out
            raise InputError(f"-m {wanted!r} is not offered by {self.base.shown}; it offers {shown_list(offered)}")
        return wanted

    def status(self, most_s: float) -> int:
        """What HTTP status the model list has. TargetError when nobody answers within *most_s*."""
        self.reach([])
        return self.exchange("GET", self.endpoint.models_path(self.base.path), None, most_s)[0]

    def card(self, model: str) -> dict[str, Any]:
        """What the server's list says of *model*; empty when it has no list, or not that model."""
        status, _, body = self.exchange("GET", self.endpoint.models_path(self.base.path), None)
        listed = listing(body) if status == 200 else None
        names = (model, f"{model}:latest")
        return next((one for one in listed[1] if one.get(listed[0]) in names), {}) if listed is not None else {}

    def say(self, model: str, prompt: str, tokens: int) -> None:
        """One request outside of any run. TargetError when it is refused."""
        body = self.endpoint.encode_body(model, self.settings.workload, prompt, tokens)
        status, _, content = self.exchange("POST", self.path, body)
        self._refuse_unauthorised(status)
        if status != 200:
            said = excerpt(content, self.redact)
            raise TargetError(f"{self.base.shown} answers POST {self.path} with {status}: {said}")

    def _refuse_unauthorised(self, status: int) -> None:
        if status in (401, 403):
            wrong = "the API key was refused; give another in OPENAI_API_KEY or with --api-key"
            given = wrong if self.key is not None else "it asks for an API key; set OPENAI_API_KEY"
            raise TargetError(f"{self.base.shown} answers {status}: {given}")

    def answer(self, model: str, notes: list[str]) -> bool | None:
        """Send one short real request. True when usage came with it; remarks go to *notes*."""
        workload = self.settings.workload
        ids = workload.prompt_form in ("ids", "native") and self.endpoint.name == "openai-completions"
        prompt = PROBE_IDS if ids else "Say hello."
        body = self.endpoint.encode_body(model, workload, prompt, PROBE_TOKENS)
        status, content_type, content = self.exchange("POST", self.path, body)
        self._refuse_unauthorised(status)
        if status == 429:
            notes.append(f"{self.base.shown} answered the probe with 429: it may refuse some of the load")
            return None
        if status != 200:
            raise TargetError(
                f"{self.base.shown} answers POST {self.path} with {status}: {excerpt(content, self.redact)}; "
                f"{status_advice(status)}"
            )
        kinds, texts, usage = meanings(content, content_type, self.endpoint.dialect)
        if "text/html" in content_type or not content:
            raise TargetError(
                f"{self.base.shown} answers POST {self.path} with 200 but {'no body' if not content else 'a web page'}: "
                f"does this URL speak {self.endpoint.name}?"
            )
        if ERROR_KIND in kinds:
            wrong = texts[kinds.index(ERROR_KIND)]
            raise TargetError(f"{self.base.shown} answers with an error inside a 200: {excerpt(wrong, self.redact)}")
        notes += [remark for remark in self.endpoint.remarks(workload) if remark not in notes]
        if workload.streaming and not any(stream in content_type for stream in STREAMS):
            notes.append(
                f"{self.base.shown} answers a streaming request with {content_type or 'no content type'}, not a stream"
            )
        if not any(kind in CONTENT_KINDS for kind in kinds):
            notes.append(f"the probe of {self.base.shown} got an answer without a token")
        return usage


def status_advice(status: int) -> str:
    """What to look at when a probe is answered with *status*."""
    if 300 <= status < 400:
        return "redirects are not followed; give in --url where it leads"
    if status >= 500:
        return "is it well, or still loading its model? its own log says why"
    return "is the endpoint type right, and does the server take these fields?"


def meanings(content: bytes, content_type: str, dialect: int) -> tuple[list[int], list[bytes], bool]:
    """Kinds of the events of an answer, what they say, and whether usage was among them."""
    classifier = Classifier(dialect)
    if "text/event-stream" in content_type:
        events = SseParser(limit=LARGEST_ANSWER).feed(content)
        texts = [b"event: error data: " * (name == b"error") + data for name, data, _, _ in events]
        found = [classifier.classify_bytes(data) for _, data, _, _ in events]
        for meaning, (name, _, _, _) in zip(found, events, strict=True):
            if name == b"error":
                meaning["kind"] = ERROR_KIND
    elif "application/x-ndjson" in content_type:
        lines = NdjsonParser(limit=LARGEST_ANSWER)
        texts = [data for _, data, _, _ in lines.feed(content) + lines.eof()]
        found = [classifier.classify_bytes(data) for data in texts]
    else:
        texts = [content]
        found = [classifier.classify_body_bytes(content)]
    return [int(meaning["kind"]) for meaning in found], texts, any(meaning["has_usage"] for meaning in found)


def excerpt(content: bytes, redact: Redact, size: int = 200) -> str:
    """One line of what a server said; redacted before it is cut, so that no part of a secret is left at the cut."""
    return one_line(redact(content.decode(errors="replace")), size) or "an empty body"
