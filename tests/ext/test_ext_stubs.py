"""Each compiled module has a stub with exactly its public names and signatures: mypy believes stubs, not modules."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES, STUBS = ROOT / "ext" / "fastllmload" / "_ext", ROOT / "src" / "fastllmload" / "_ext"
OWN = {"__test__", "__pyx_capi__", "__reduce_cython__", "__setstate_cython__"}


def test_the_stubs_are_those_of_the_modules() -> None:
    """stubtest imports what is built; where mypy is missing (extra `lint`) nothing is known."""
    pytest.importorskip("mypy", reason="without the extra `lint` stubs are not compared with the compiled modules")
    named = sorted(modules_of(STUBS, "*/*.pyi"))
    allowed = ["--allowlist", str(Path(__file__).with_name("stubs.txt")), "--ignore-unused-allowlist"]
    ended = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", *allowed, "--ignore-disjoint-bases", "--concise", *named],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_a_module_without_a_stub_has_nothing_for_python() -> None:
    without = modules_of(SOURCES, "*/*.pyx") - modules_of(STUBS, "*/*.pyi")
    public = {name: public_names(name) for name in without}
    assert {name: names for name, names in public.items() if names} == {}


def modules_of(folder: Path, pattern: str) -> set[str]:
    return {f"fastllmload._ext.{path.parent.name}.{path.stem}" for path in folder.glob(pattern)}


def public_names(module: str) -> set[str]:
    """What a compiled module itself defines, not what it imports."""
    found = import_module(module)
    return {
        name
        for name, value in vars(found).items()
        if not name.startswith("_") and name not in OWN and getattr(value, "__module__", None) == found.__name__
    }
