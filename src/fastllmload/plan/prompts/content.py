"""Content of a phase: the requests of a workload, written as bodies until there are enough.

`plan.prompts.synthetic`, `plan.prompts.composed` and `plan.prompts.dataset` have one kind of content each.
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
    """A wire protocol of fastllmload.endpoint, as a plan uses it."""

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
        """The trace with their instants; None for other workloads."""

    def write(self, path: Path, quota: Quota, endpoint: Endpoint, model: str) -> tuple[Bodies, Kinds]:
        """Write bodies until *quota* is met; returns them and the class of each."""

    def describe(self) -> dict[str, Any]:
        """The workload as plan.json describes it; `deviations` lists differences from the standard one."""


def described(workload: asked.Workload, tokenizer: Tokenizer | None, isl: str, osl: str, prompt: str) -> dict[str, Any]:
    """Description that all contents have in common."""
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
    """Its facts without the library's version, so that equal prompts have the same digest under another version."""
    return {name: fact for name, fact in tokenizer.facts().items() if name != "version"}


def exactness(checked: int, exact: int, prompts: int) -> dict[str, Any]:
    """`share` of the *checked* prompts that have their drawn length; None without a tokenizer."""
    return {"prompts": prompts, "checked": checked, "exact": exact, "share": exact / checked if checked else None}


def sharing(bodies: Bodies, repeated: int) -> dict[str, Any]:
    """Shares of all prompt tokens: those that other prompts have too, and those at the beginning of an earlier prompt of the
    plan, which an unlimited prefix cache finds (*repeated* tokens) if each request is prefilled before the next arrives.
    """
    tokens = int(bodies.input_tokens.sum()) or 1
    return {"shared_token_share": int(bodies.shared.sum()) / tokens, "prefix_hit_rate": repeated / tokens}


def file_of(workload: asked.Workload) -> Path:
    """The file that *workload* reads. InputError when it names none."""
    if workload.dataset_path is None:
        raise InputError("option-missing", f"--workload {workload.name} is read from a file; add --dataset-path FILE")
    return Path(workload.dataset_path)
