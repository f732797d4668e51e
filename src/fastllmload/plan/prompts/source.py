"""What a plan takes its requests from: a `PromptSource` for each kind of workload, and what their descriptions share."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from fastllmload import settings as asked
from fastllmload.documents.plan import ExactPrompts, WorkloadDescription
from fastllmload.endpoint import Endpoint
from fastllmload.plan.bodies import Bodies
from fastllmload.plan.standard import deviations
from fastllmload.workload.synthetic import Quota
from fastllmload.workload.tokenizers.tokenizer import SPECIAL_TOKENS, Tokenizer

Numbers = npt.NDArray[np.int64]


class PromptSource(Protocol):
    """The requests of one workload in one phase, drawn from the seed and written as bodies until there are enough."""

    @property
    def instants(self) -> Numbers | None:
        """int64 ns, ascending: recorded instants of the requests, or of the sessions; None where none are recorded."""

    def write(self, path: Path, quota: Quota, endpoint: Endpoint, model: str, by_starts: bool) -> Bodies:
        """Write bodies until *quota* is met; *by_starts*: its requests are conversations, where there are any."""

    def describe(self) -> WorkloadDescription:
        """The workload as plan.json describes it; `deviations` lists differences from the standard one."""


Origin = int | str  # seed of a phase's requests


def described(
    workload: asked.Workload, tokenizer: Tokenizer | None, isl: str, osl: str, prompt: str
) -> WorkloadDescription:
    """What every source states. The tokenizer without its library's version: equal prompts have the same digest under
    another one.
    """
    return WorkloadDescription(
        name=workload.name,
        isl=isl,
        osl=osl,
        tokenizer=workload.tokenizer,
        tokenizer_facts=None if tokenizer is None else replace(tokenizer.facts(), version=None),
        special_tokens=SPECIAL_TOKENS,
        counting=workload.counting,
        prompt=prompt,
        prompt_form=workload.prompt_form,
        prefix_len=workload.prefix_len,
        num_prefixes=workload.num_prefixes,
        deviations=deviations(workload),
    )


def exactness(checked: int, exact: int, prompts: int) -> ExactPrompts:
    """`share` of the *checked* prompts that have their drawn length; None without a tokenizer."""
    return ExactPrompts(prompts=prompts, checked=checked, exact=exact, share=exact / checked if checked else None)


def sharing(bodies: Bodies, repeated: int) -> tuple[float, float]:
    """Shares of all prompt tokens: those of other prompts too, those that an unlimited prefix cache finds (*repeated*)."""
    tokens = int(bodies.input_tokens.sum()) or 1
    return int(bodies.shared.sum()) / tokens, repeated / tokens
