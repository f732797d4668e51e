"""Determines which requests an objective of a request class applies to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastllmload.errors import InputError
from fastllmload.metrics.objectives.objective import Objective

Mask = npt.NDArray[np.bool_]


def class_number(name: str, manifest: Mapping[str, Any]) -> int | None:
    """Number of a class in rows, from its name in the plan or from the number itself; None when there is no such
    class.
    """
    names = list(manifest.get("plan", {}).get("classes") or ())
    if name in names:
        return names.index(name)
    return int(name) if name.isdecimal() else None


def class_name(number: int, manifest: Mapping[str, Any]) -> str:
    """Name of the class in the plan, else its number."""
    names = manifest.get("plan", {}).get("classes") or ()
    return str(names[number]) if number < len(names) else str(number)


def refuse_unknown(asked: Iterable[tuple[str, float]], names: Sequence[str], numbers: Iterable[int]) -> None:
    """InputError for an objective of a class that the plan does not have: all requests would meet it.

    *names* of the plan's classes, and *numbers* of the classes of its requests.
    """
    known = {*names, *map(str, numbers)}
    for name, limit in asked:
        head, slash, _ = name.rpartition("/")
        if slash and head not in known:
            remedy = f"its classes are {', '.join(names)}" if names else "it has no classes, so leave the class out"
            raise InputError(
                f"--goodput {name}:{limit:g} is for a class {head!r} that this run does not have; {remedy}"
            )


def subject(
    asked: Objective, all_asked: Sequence[Objective], request_class: npt.NDArray[Any], manifest: Mapping[str, Any]
) -> Mask:
    """Which requests *asked* applies to: those of its class; without one, those whose class has no limit of its own for the
    same metric."""
    if asked.request_class is not None:
        number = class_number(asked.request_class, manifest)
        return np.full(len(request_class), False) if number is None else request_class == number
    own = [class_number(each.request_class, manifest) for each in all_asked
           if each.metric == asked.metric and each.request_class is not None]  # fmt: skip
    return ~np.isin(request_class, [number for number in own if number is not None])
