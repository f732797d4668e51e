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

cdef class Box:
    pass
"""


INLINE = """cdef class Box:
    cdef list held
    cdef inline int boxed(self, int n) except -1:
        self.held.append(n)
        return 0
"""


def loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("annotate_budget", TOOL)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tool() -> ModuleType:
    return loaded()


def hot_modules() -> list[str]:
    return list(loaded().HOT)


@pytest.mark.parametrize("module", hot_modules())
def test_hot_functions_do_not_call_the_interpreter(tool: ModuleType, module: str) -> None:
    """No line of a listed function interacts with Python."""
    assert tool.breaches(module, tool.HOT[module]) == []


def test_what_every_event_runs_through_is_listed(tool: ModuleType) -> None:
    """The modules between the poll and the rows of events; per-request work (share, slots, talk) is not among them."""
    assert {"send/reactor", "send/transport", "receive/protocol", "receive/timeline", "record/recorder"} <= set(
        tool.HOT
    )


@pytest.fixture
def probe(tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The tool in a project whose only module is `probe`."""
    room = tmp_path / "ext" / "fastllmload" / "_ext" / "room"
    room.mkdir(parents=True)
    (room / "probe.pyx").write_text(SLOW, encoding="utf-8")
    (room / "probe.pxd").write_text(INLINE, encoding="utf-8")
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    monkeypatch.setattr(tool, "SOURCES", room.parent)
    return tool


def test_a_python_loop_in_a_hot_function_is_a_breach(probe: ModuleType) -> None:
    """Calls are counted at the right lines: those of the function, not of its neighbours, nor the trace of its exception."""
    found = probe.breaches("room/probe", "quick slow")
    assert any(line.startswith("room/probe.pyx:9: slow calls ") for line in found)
    assert not any("quick" in line or "after" in line or "[x]" in line or ":5:" in line for line in found)


def test_inline_functions_are_read_too(probe: ModuleType) -> None:
    """They are in the .pxd file, and may hold the lock."""
    (found,) = probe.breaches("room/probe", "boxed")
    assert found.startswith("room/probe.pxd:4: boxed calls ")


def test_a_listed_function_that_is_gone_is_a_breach(probe: ModuleType) -> None:
    """A renamed function does not leave the budget silently."""
    (found,) = probe.breaches("room/probe", "vanished")
    assert "vanished is listed as hot but is not there" in found
