"""The ten tests of the IETF draft, section 5; spec/procedures 5.1 to 5.10 restates each as an algorithm."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastllmload.procedure.procedure_test import ProcedureTest

NAMES = (
    "ttft",
    "throughput",
    "tradeoff",
    "itl",
    "capacity",
    "fairness",
    "prefix-cache",
    "memory-pressure",
    "long-context",
    "guardrail",
)


def test_named(name: str) -> ProcedureTest:
    """The test *name* of NAMES."""
    found: ProcedureTest = importlib.import_module(f"{__name__}.{name.replace('-', '_')}").TEST
    return found
