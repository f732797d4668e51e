"""Hot functions of the parsers stay free of the interpreter, and the tool that says so can fail."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "annotate_budget.py"
SLOW = """# The first line carries the module's own set-up in its score.
cdef int quick(int n) noexcept nogil:
    return n + 1

cdef int slow(
    object items,
) except -1:
    cdef int total = 0
    for item in items:
        total += item
    return total

def after(x):
    return [x]
"""


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("annotate_budget", TOOL)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MODULES = ["measure/deadlines", "events/delta", "http/response", "events/ndjson", "events/sse", "measure/tokenline"]


@pytest.mark.parametrize("module", MODULES)
def test_hot_functions_score_zero(tool: ModuleType, module: str) -> None:
    """No line of a listed function interacts with Python."""
    assert list(tool.HOT) == MODULES
    assert tool.breaches(tool.SOURCES / f"{module}.pyx", tool.HOT[module]) == []


def test_a_python_loop_in_a_hot_function_is_a_breach(tool: ModuleType, tmp_path: Path) -> None:
    """The score is read from the right lines: those of the function, not of its neighbours."""
    source = tmp_path / "probe.pyx"
    source.write_text(SLOW, encoding="utf-8")
    found = tool.breaches(source, ("quick", "slow"))
    assert any("probe.pyx:9: slow scores" in line for line in found)
    assert not any("quick" in line or "after" in line or "[x]" in line for line in found)


def test_a_listed_function_that_is_gone_is_a_breach(tool: ModuleType, tmp_path: Path) -> None:
    """A renamed function does not leave the budget silently."""
    source = tmp_path / "probe.pyx"
    source.write_text(SLOW, encoding="utf-8")
    (found,) = tool.breaches(source, ("vanished",))
    assert "vanished is listed as hot but is not there" in found
