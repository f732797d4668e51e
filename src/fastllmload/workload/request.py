"""One request of a workload: read from a data set, or composed of parts as conversation and code completion supply it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from fastllmload.documents.plan import WorkloadDescription
from fastllmload.errors import InputError
from fastllmload.workload.tokenizers.tokenizer import Tokenizer

Content = str | list[int] | list[dict[str, Any]]
BATCH = 256  # composed requests that are made and counted at once


def field_error(text: str) -> InputError:
    """The error for an entry of a data set or trace; *text*: which one, what is wrong."""
    return InputError("dataset-field-invalid", text)


@dataclass(frozen=True)
class DatasetRequest:
    """One request: *content* is a prompt, token ids or messages; *output_tokens* None: not in the data set.

    *extra*: body fields of this request alone. *where*: line or number in the file, for messages. *protocol*: the wire
    protocol of its body; None: any.
    """

    where: str
    content: Content
    output_tokens: int | None = None
    name: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    input_tokens: int | None = None  # as stated in the file; a tokenizer's count has precedence
    protocol: str | None = None

    def tokens(self, tokenizer: Tokenizer | None) -> int:
        """Tokens of the prompt or of the messages' texts under *tokenizer*; without one the file's count, else 0."""
        if not isinstance(self.content, str) and all(isinstance(one, int) for one in self.content):
            return len(self.content)
        if tokenizer is None:
            return self.input_tokens or 0
        parts = [self.content] if isinstance(self.content, str) else texts(self.content)
        return sum(tokenizer.count(text) for text in parts)


def texts(messages: Sequence[Any]) -> Iterator[str]:
    """All texts of *messages*, including those in content parts."""
    for message in messages:
        content = message.get("content")
        if isinstance(content, str):
            yield content
        elif isinstance(content, list):
            yield from (
                part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)
            )


@dataclass(frozen=True)
class ComposedPrompt:
    """*target*: tokens that the prompt should have; *shared*: those of *part*, which other requests have too."""

    content: Content
    target: int
    input_tokens: int
    output_tokens: int
    shared: int = 0
    part: int = 0


class ComposedSource(Protocol):
    """A sequence of requests without end, the same for the same seed."""

    def batches(self) -> Iterator[list[ComposedPrompt]]: ...

    def describe(self, found: WorkloadDescription, requests: int) -> WorkloadDescription:
        """*found* with facts of the first *requests*: distribution, generated or file."""

    def deviations(self) -> list[str]:
        """Deviations from the standard workload, one sentence each."""
