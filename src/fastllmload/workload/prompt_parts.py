"""Requests whose prompt is composed of parts, as conversation and code completion supply them to a plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from fastllmload.workload.dataset import Content

BATCH = 256  # requests that are made and counted at once


@dataclass(frozen=True)
class ComposedPrompt:
    """One request. *target*: tokens that the prompt should have; *input_tokens*: those it has; *shared*: tokens of
    a part that other requests have too; *part*: number of that part.
    """

    content: Content
    target: int
    input_tokens: int
    output_tokens: int
    shared: int = 0
    part: int = 0


class ComposedSource(Protocol):
    """A sequence of requests without end, the same for the same seed."""

    def batches(self) -> Iterator[list[ComposedPrompt]]: ...

    def describe(self, requests: int) -> dict[str, Any]:
        """Facts of the first *requests* for plan.json: distribution, generated or file."""

    def deviations(self) -> list[str]:
        """Deviations from the standard workload, one sentence each."""
