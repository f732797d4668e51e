"""The keys of `--declare`: facts that only the tester knows, what each key means, which test needs it, what to type.

The table is `declarations.toml`. What a run records by itself (workload, seeds, load, protocol, topology) is a fact, not
a declaration; a caller that knows such facts may add them to the mapping of declarations, so that conditions hold.
"""

from __future__ import annotations

import difflib
import functools
import math
import re
import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import Any, Literal

import msgspec

from fastllmload.settings import RunSettings

NUMBERS = {"whole": re.compile(r"[+-]?[0-9]{1,18}"), "real": re.compile(r"[+-]?[0-9]{1,18}(\.[0-9]{1,18})?")}
NEAR = 0.85  # similarity to a known key from which an unknown one is taken for a typing error
MUST_CLASS = ("MUST", "MUST NOT", "REQUIRED")
SHOULD_CLASS = ("SHOULD", "RECOMMENDED")


DATASETS = ("sharegpt", "csv", "hf", "dataset")
CUSTOM = ("custom", "batch", "jsonl")
TRACES = (
    "trace", "mooncake", "azure", "burstgpt", "weka", "agentic-mooncake", "dynamo", "otel", "tracelab", "dag",
    "sglang-agentic", "bailian", "applied-compute", "graph",
)  # fmt: skip
SYNTHETIC = ("synthetic-uniform", "synthetic-skewed")
STANDARD = (*SYNTHETIC, "conversation", "code-completion", "long-context")  # IETF 4.3.2
SKEWED = ("synthetic-skewed", "fairness", "fairness-short", "fairness-long")  # drawn from it, by class (IETF 5.6)


class Declaration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One key of `--declare`. *levels*: strongest first. *tests*: names of procedures, "comparison" or "every".

    *number*: the value is a "whole" or a "real" number, from *least* to *most*; its *unit* may follow it. *when*: other
    keys, with the values under which this key is needed; "" means "not declared".
    """

    key: str
    explanation: str
    levels: tuple[str, ...]
    tests: tuple[str, ...]
    example: str
    values: tuple[str, ...] = ()
    number: Literal["", "whole", "real"] = ""
    least: float = -math.inf
    most: float = math.inf
    unit: str = ""
    when: dict[str, tuple[str, ...]] = {}
    simulated: str | None = None
    option: str | None = None

    @property
    def remedy(self) -> str:
        """What to type: `--declare`, and the option of a run that means the same."""
        quoted = f'"{self.key}={self.example}"' if " " in self.example else f"{self.key}={self.example}"
        others = [value for value in self.values if value != self.example]
        text = f"--declare {quoted}" + (f" (or {', '.join(others)})" if others else "")
        return text if self.option is None else f"{text}, or {self.option}"

    @property
    def numbers(self) -> str:
        """The numbers that may be declared: `a whole number from 1 on`, `a number from 0 to 1`."""
        kind = "a whole number" if self.number == "whole" else "a number"
        if math.isfinite(self.most):
            return f"{kind} from {self.least:g} to {self.most:g}"
        return f"{kind} from {self.least:g} on" if math.isfinite(self.least) else kind

    def is_number(self, value: str) -> bool:
        figure = value.strip().removesuffix(self.unit).strip()
        return NUMBERS[self.number].fullmatch(figure) is not None and self.least <= float(figure) <= self.most

    def asked_by(self, test: str) -> bool:
        """Whether *test* (a procedure's name; "" for a plain run) needs this declaration at all."""
        return "every" in self.tests or test in self.tests

    def asked_given(self, known: Mapping[str, str]) -> bool:
        return all(known.get(key, "") in values for key, values in self.when.items())


def workload_kind(name: str) -> str:
    """standard (IETF 4.3.2), dataset, trace or custom, which decides what must be declared; "" for no name."""
    if name in STANDARD or name in SKEWED or not name:
        return "standard" if name else ""
    return "dataset" if name in DATASETS else "trace" if name in TRACES else "custom"


@functools.cache
def all_declarations() -> list[Declaration]:
    """All declarations, in the order in which a user is asked for them."""
    text = resources.files(__package__).joinpath("declarations.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text)["declaration"], list[Declaration])


@functools.cache
def by_key() -> dict[str, Declaration]:
    return {declaration.key: declaration for declaration in all_declarations()}


def missing(declared: Mapping[str, str], test: str) -> list[Declaration]:
    """Declarations that *test* needs and that *declared*, which may hold the facts of `facts_of` too, lacks."""
    name = declared.get("workload.name", declared.get("workload.kind", ""))
    kind = workload_kind(name)
    file = declared.get("workload.file", "yes" if kind in ("dataset", "custom") else "no")
    known = {**declared, "workload.kind": kind, "workload.file": "no" if kind == "trace" else file}
    return [
        declaration
        for declaration in all_declarations()
        if declaration.levels[0] in MUST_CLASS
        and declaration.asked_by(test)
        and declaration.asked_given(known)
        and not declared.get(declaration.key, "").strip()
    ]


def facts_of(settings: RunSettings) -> dict[str, str]:
    """Facts that the settings contain and that conditions of declarations are evaluated on."""
    workload = settings.workload
    facts = {
        "workload.name": workload.name,
        "workload.file": "no" if workload.dataset_path is None else "yes",
        "workload.uniform": "yes" if workload.name == "synthetic-uniform" else "no",
        "workload.tools": "yes" if '"tools"' in (workload.extra_body or "") else "no",
    }
    return facts | ({"token_counting.option": "B"} if workload.counting == "B" else {})


def declaration_problems(declared: Mapping[str, str]) -> list[str]:
    """One sentence for every declared value that is not allowed, and for every unknown key that resembles a known one."""
    known = by_key()
    found = []
    for key, value in declared.items():
        near = difflib.get_close_matches(key, known, 1, NEAR)
        if key in known and known[key].values and value not in known[key].values:
            found.append(f"--declare {key}={value!r} is none of {', '.join(known[key].values)}")
        elif key in known and known[key].number and not known[key].is_number(value):
            one = known[key]
            found.append(f"--declare {key}={value!r} is not {one.numbers}; write for example {one.example}")
        elif key not in known and near:
            found.append(f"--declare {key}={value!r} declares nothing; did you mean {near[0]}?")
    return found


def simulated_declarations() -> dict[str, str]:
    """Declarations of the simulated engine, which the user does not have to give."""
    return {d.key: d.simulated for d in all_declarations() if d.simulated is not None}


def strings(found: Any) -> dict[str, str]:
    if not isinstance(found, dict):
        return {}
    return {str(key): str(value) for key, value in found.items() if str(value).strip()}
