"""Requests whose prompt is made of parts: what conversation and code completion give to a plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from fastllmload.workload.dataset import Content

BATCH = 256  # requests that are made, and counted, at once


@dataclass(frozen=True)
class ComposedPrompt:
    """One request. *target*: tokens that the prompt should have; *input_tokens*: those it has; *shared*: tokens of a
    part that other requests have too; *part*: which of those parts.
    """

    content: Content
    target: int
    input_tokens: int
    output_tokens: int
    shared: int = 0
    part: int = 0


class PromptSource(Protocol):
    """An endless sequence of requests, the same for the same seed."""

    def batches(self) -> Iterator[list[ComposedPrompt]]: ...

    def describe(self, requests: int) -> dict[str, Any]:
        """Facts for plan.json of the first *requests*: distribution, stand-in or file."""

    def deviations(self) -> list[str]:
        """Where this is not the standard workload, one sentence each."""
