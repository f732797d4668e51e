"""Several models or adapters in one plan: which request names which.

Each session, or request that stands alone, draws its model from a stream of its own (S/model; of a class
S/class/NAME/model), or has the next in turn (round-robin); lengths, instants and prompts are those of the plan with one
model.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from fastllmload.documents.plan import ModelPlan
from fastllmload.endpoint import Endpoint
from fastllmload.plan.bodies import Bodies, with_heads
from fastllmload.settings import Target

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class DrawnModels:
    """*of_request*: uint16 index into *described* of each request; empty without several models."""

    of_request: npt.NDArray[np.uint16]
    described: tuple[ModelPlan, ...] = ()


def shares(target: Target) -> list[float]:
    """The share of each of *target*'s models, by weight or by place."""
    weights = [weight for _, weight in target.models]
    if target.model_zipf is not None:
        weights = [place**-target.model_zipf for place in range(1, len(weights) + 1)]
    total = sum(weights)
    return [weight / total for weight in weights]


def draw_models(target: Target, stream: str, turns: npt.NDArray[np.void] | None, requests: int) -> Numbers:
    """Index into *target*'s models of each request; one draw for each session, in the order of the plan."""
    session = np.arange(requests) if turns is None else turns["session"].astype(np.int64)
    if target.model_order == "round-robin":
        return session % len(target.models)
    source = random.Random(stream)
    drawn = np.array([source.random() for _ in range(int(session.max(initial=-1)) + 1)])
    ends = np.cumsum(shares(target))[:-1]
    found: Numbers = np.searchsorted(ends, drawn, side="right")[session]
    return found


def name_models(
    path: Path, bodies: Bodies, target: Target, stream: str, endpoint: Endpoint
) -> tuple[Bodies, DrawnModels]:
    """*bodies*, written to *path* with the first of *target*'s models, with the drawn ones."""
    requests, turns = len(bodies.input_tokens), bodies.turns
    drawn = draw_models(target, stream, turns, requests)
    before = endpoint.before_model()
    assert before is not None  # the rules of the options refuse other protocols
    heads = [before + msgspec.json.encode(name) for name, _ in target.models]
    bodies = with_heads(path, bodies, heads, drawn)
    starts = np.ones(requests, np.bool_) if turns is None else turns["turn"] == 0
    many = len(target.models)
    counts = [np.bincount(drawn[starts], minlength=many), np.bincount(drawn, minlength=many)]
    counts += [
        np.bincount(drawn, tokens, many).astype(np.int64) for tokens in (bodies.input_tokens, bodies.output_tokens)
    ]
    described = tuple(
        ModelPlan(name=name, share=share, starts=of[0], requests=of[1], input_tokens=of[2], output_tokens=of[3])
        for (name, _), share, *of in zip(
            target.models, shares(target), *(each.tolist() for each in counts), strict=True
        )
    )
    return bodies, DrawnModels(drawn.astype(np.uint16), described)


def joined(parts: Sequence[tuple[tuple[ModelPlan, ...], int]]) -> tuple[ModelPlan, ...]:
    """The models of several classes: each class's, and its number of starts."""
    found: dict[str, ModelPlan] = {}
    total = sum(starts for _, starts in parts) or 1
    for models, starts in parts:
        for one in models:
            name, share = str(one.name), float(one.share or 0) * starts / total  # type: ignore[arg-type]
            old = found.get(
                name, ModelPlan(name=name, share=0.0, starts=0, requests=0, input_tokens=0, output_tokens=0)
            )
            counts = {each: getattr(old, each) + getattr(one, each) for each in COUNTED}
            found[name] = replace(old, share=float(old.share or 0) + share, **counts)  # type: ignore[arg-type]
    return tuple(found.values())


COUNTED = ("starts", "requests", "input_tokens", "output_tokens")
