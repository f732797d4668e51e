"""What a phase sends: the requests that a workload names, written as bodies until there are enough.

`plan.prompts.synthetic`, `plan.prompts.composed` and `plan.prompts.dataset` hold one kind of content each.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fastllmload import settings as asked
from fastllmload.errors import InputError
from fastllmload.plan.bodies import Bodies
from fastllmload.plan.conversations.turn_template import TurnTemplate
from fastllmload.plan.standard import deviations
from fastllmload.workload.synthetic import Quota
from fastllmload.workload.tokenizers.tokenizer import SPECIAL_TOKENS, Tokenizer
from fastllmload.workload.trace import Trace

Kinds = npt.NDArray[np.uint16]


class BodyPieces(Protocol):
    """body = before + prompt as JSON + middle[0] + N + middle[1] + N … + tail, N = output tokens."""

    @property
    def before(self) -> bytes: ...

    @property
    def middle(self) -> Sequence[bytes]: ...

    @property
    def tail(self) -> bytes: ...

    def encode(self, prompt: Any, tokens: int) -> bytes: ...


class Endpoint(Protocol):
    """A wire protocol of fastllmload.endpoint, as far as a plan needs it."""

    @property
    def name(self) -> str: ...

    @property
    def joint(self) -> TurnTemplate: ...

    def body_pieces(self, model: str, workload: asked.Workload) -> BodyPieces: ...

    def messages_pieces(self, model: str, workload: asked.Workload) -> BodyPieces: ...


class Content(Protocol):
    """The requests of one workload."""

    @property
    def trace(self) -> Trace | None:
        """The trace whose instants they have; None for a workload that has none."""

    def write(self, path: Path, quota: Quota, endpoint: Endpoint, model: str) -> tuple[Bodies, Kinds]:
        """Bodies until *quota* is met, and the class of each."""

    def describe(self) -> dict[str, Any]:
        """What plan.json says of the workload; `deviations` lists where it is not the standard one."""


def described(workload: asked.Workload, tokenizer: Tokenizer | None, isl: str, osl: str, prompt: str) -> dict[str, Any]:
    """What all contents say of themselves."""
    return {
        "name": workload.name,
        "isl": isl,
        "osl": osl,
        "tokenizer": workload.tokenizer,
        "tokenizer_facts": None if tokenizer is None else facts_of(tokenizer),
        "special_tokens": SPECIAL_TOKENS,
        "counting": workload.counting,
        "prompt": prompt,
        "prompt_form": workload.prompt_form,
        "prefix_len": workload.prefix_len,
        "num_prefixes": workload.num_prefixes,
        "deviations": deviations(workload),
    }


def facts_of(tokenizer: Tokenizer) -> dict[str, Any]:
    """Its facts without the library's version: the same prompts have the same digest under the next one."""
    return {name: fact for name, fact in tokenizer.facts().items() if name != "version"}


def exactness(checked: int, exact: int, prompts: int) -> dict[str, Any]:
    """`share` of the *checked* prompts that have as many tokens as they should; None where there is no tokenizer."""
    return {"prompts": prompts, "checked": checked, "exact": exact, "share": exact / checked if checked else None}


def sharing(bodies: Bodies, repeated: int) -> dict[str, Any]:
    """Share of all prompt tokens that others have too, and of those that an earlier prompt of the plan began with: what an
    endless prefix cache finds (*repeated* tokens), if a request is prefilled before the next one comes.
    """
    tokens = int(bodies.input_tokens.sum()) or 1
    return {"shared_token_share": int(bodies.shared.sum()) / tokens, "prefix_hit_rate": repeated / tokens}


def file_of(workload: asked.Workload) -> Path:
    """The file that *workload* reads. InputError when none is named."""
    if workload.dataset_path is None:
        raise InputError(f"--workload {workload.name} is read from a file; add --dataset-path FILE")
    return Path(workload.dataset_path)
