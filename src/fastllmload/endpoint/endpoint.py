"""What an endpoint is: the request side of one wire protocol, as plan, preflight and workers use it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastllmload._ext.events.dialect import Dialect
from fastllmload.endpoint.body import PROMPT, BodyPieces, TurnTemplate, cut
from fastllmload.errors import InputError
from fastllmload.settings import PROMPT_FORMS, Workload


@dataclass(frozen=True)
class Endpoint:
    """*name* and *aliases* are values of --endpoint-type; *dialect* is how its events are read.

    *resource* is its path below the API's root, *models* that of the list of models, *version* that of the server's version;
    *root* joins them to the path of a base URL. *fields* gives the fields of a body after model and prompt.
    """

    name: str
    aliases: tuple[str, ...]
    dialect: Dialect
    joint: TurnTemplate  # how the turns of a conversation are joined
    resource: str
    models: str
    root: Callable[[str, str], str]
    fields: Callable[[Workload], dict[str, Any]]
    text_only: str | None = None  # why it takes no token ids, and what to use; None: it takes them
    images: bool = False
    version: str | None = None
    without_ignore_eos: str | None = None  # a sentence for the report if it has no such field

    @property
    def messages(self) -> bool:
        """Whether a body has messages; else it has a prompt."""
        return self.joint.messages

    def path(self, base_path: str) -> str:
        """Path of a request, from the path of the base URL, which may end in it."""
        return self.root(base_path, self.resource)

    def models_path(self, base_path: str) -> str:
        return self.root(without(base_path, self.resource), self.models)

    def version_path(self, base_path: str) -> str | None:
        """Path of the page that names the server's version; None for a protocol without one."""
        return None if self.version is None else self.root(without(base_path, self.resource), self.version)

    def body_pieces(self, model: str, workload: Workload) -> BodyPieces:
        """The bodies of a plan. InputError for a form of prompt that the protocol cannot carry, and a wrong --extra-body."""
        if workload.prompt_form not in PROMPT_FORMS:
            raise InputError(
                "choice-unknown", f"--prompt-form {workload.prompt_form!r} is unknown; choose {', '.join(PROMPT_FORMS)}"
            )
        if workload.prompt_form == "ids" and self.text_only is not None:
            raise InputError(
                "protocol-unsupported", f"--prompt-form ids is not supported by {self.name}: {self.text_only}"
            )
        content = {"messages": [{"role": "user", "content": PROMPT}]} if self.messages else {"prompt": PROMPT}
        return cut({"model": model, **content, **self.fields(workload)})

    def messages_pieces(self, model: str, workload: Workload) -> BodyPieces:
        """As `body_pieces`, with an array of messages in place of the prompt. InputError if the protocol has no messages."""
        if not self.messages:
            raise InputError(
                "protocol-unsupported", f"{self.name} takes no messages; use a chat endpoint, or a data set of prompts"
            )
        return cut({"model": model, "messages": PROMPT, **self.fields(workload)})

    def encode_body(self, model: str, workload: Workload, prompt: Any, tokens: int) -> bytes:
        """One body, for a request outside a plan; the same bytes that the pieces give."""
        return self.body_pieces(model, workload).encode(prompt, tokens)

    def remarks(self, workload: Workload) -> tuple[str, ...]:
        """Sentences for the report: options of the workload that the protocol cannot express."""
        return (self.without_ignore_eos,) if self.without_ignore_eos is not None and workload.ignore_eos else ()


def without(base_path: str, resource: str) -> str:
    return base_path.rstrip("/").removesuffix("/" + resource)
