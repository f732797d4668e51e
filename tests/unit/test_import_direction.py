"""Packages import in one direction only, from settings to plan, records, metrics, report and engine."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SRC = Path(__file__).parents[2] / "src" / "fastllmload"
# A strict order: a package may import from those before it, never from one after it.
ORDER = (
    "_ext",
    "arrays",
    "errors",
    "files",
    "host",
    "quantities",
    "redact",
    "settings",
    "documents",
    "statistics",
    "arrivals",
    "declarations",
    "simulator",
    "endpoint",
    "workload",
    "plan",
    "records",
    "metrics",
    "certificate",
    "export",
    "telemetry",
    "report",
    "compare",
    "compliance",
    "engine",
    "experiment",
    "quick",
    "search",
    "sweep",
    "procedure",
    "cli",
    "api",
    "__init__",
    "__main__",
)
RANK = {package: rank for rank, package in enumerate(ORDER)}


def module_of(path: Path) -> str:
    """`plan.build` of src/fastllmload/plan/build.py; a package's name for its __init__.py."""
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


@cache
def modules() -> dict[str, Path]:
    return {module_of(path): path for path in SRC.rglob("*.py")}


def imported(path: Path) -> Iterator[str]:
    """Our modules that *path* imports, without `fastllmload.`; includes imports in functions and under TYPE_CHECKING."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (own(alias.name) for alias in node.names if alias.name.startswith("fastllmload."))
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports relatively"
            if node.module == "fastllmload" or (node.module or "").startswith("fastllmload."):
                for alias in node.names:
                    yield own(f"{node.module}.{alias.name}")


def own(dotted: str) -> str:
    """The module in *dotted*, which may name an attribute of it."""
    name = dotted.removeprefix("fastllmload").removeprefix(".")
    while name and name not in modules() and not name.startswith("_ext"):
        name = name.rpartition(".")[0]
    return name or "__init__"


def package_of(module: str) -> str:
    return module.partition(".")[0]


def test_every_package_is_in_the_order() -> None:
    assert {package_of(module) for module in modules()} == set(ORDER)


@pytest.mark.parametrize("package", ORDER)
def test_a_package_imports_only_from_those_before_it(package: str) -> None:
    against = [
        f"{module} imports {found}"
        for module, path in modules().items()
        if package_of(module) == package
        for found in imported(path)
        if RANK[package_of(found)] > RANK[package]
    ]
    # `__init__` is imported for the version only.
    assert [line for line in against if not line.endswith("imports __init__")] == []


def test_no_two_modules_import_each_other() -> None:
    """Imports inside functions count too: neither module could be read or replaced without the other."""
    graph = {module: set(imported(path)) - {module, "__init__"} for module, path in modules().items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(f"these import each other: {' <- '.join(error.args[1])}") from None
