"""Packages import in one direction only, from settings to plan, records, metrics, report and engine; so do the rooms of
compiled modules, in which a cimport counts as an import.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SRC, EXT = ROOT / "src" / "fastllmload", ROOT / "ext" / "fastllmload"
CIMPORT = re.compile(r"^\s*(?:from (fastllmload[\w.]*) c?import (.*)|c?import (fastllmload[\w.]+))", re.M)
# A strict order: a package may import from those before it, never from one after it.
ORDER = (
    "quantities",
    "_ext.system",
    "_ext.bytes",
    "_ext.http",
    "_ext.tls",
    "_ext.events",
    "_ext.record",
    "_ext.receive",
    "_ext.plan",
    "_ext.send",
    "_ext.measure",
    "_ext.tap",
    "_ext.sim",
    "_ext.simbody",
    "_ext.simserver",
    "_ext",
    "arrays",
    "errors",
    "files",
    "host",
    "redact",
    "settings",
    "documents",
    "statistics",
    "arrivals",
    "declarations",
    "endpoint",
    "simulator",
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
    "overhead",
    "procedure",
    "cli",
    "api",
    "__init__",
    "__main__",
)
RANK = {package: rank for rank, package in enumerate(ORDER)}


def module_of(path: Path) -> str:
    """`plan.build` of src/fastllmload/plan/build.py; a package's name for its __init__.py; the same of ext/."""
    parts = path.relative_to(SRC if path.is_relative_to(SRC) else EXT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


@cache
def modules() -> dict[str, list[Path]]:
    """A compiled module has one or two files: what its .pxd cimports, it cimports."""
    found: dict[str, list[Path]] = {}
    for path in (*SRC.rglob("*.py"), *EXT.rglob("*.p[yx][xd]")):
        found.setdefault(module_of(path), []).append(path)
    return found


def imported(module: str) -> Iterator[str]:
    """Our modules that *module* imports, without `fastllmload.`; includes imports in functions and under TYPE_CHECKING."""
    for path in modules()[module]:
        text = path.read_text(encoding="utf-8")
        yield from imports_of(path, text) if path.suffix == ".py" else cimports_of(text)


def cimports_of(text: str) -> Iterator[str]:
    for module, names, alone in CIMPORT.findall(text):
        yield from (own(f"{module}.{name.split()[0]}") for name in names.split(",")) if module else [own(alone)]


def imports_of(path: Path, text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
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
    while name and name not in modules():
        name = name.rpartition(".")[0]
    return name or "__init__"


def package_of(module: str) -> str:
    """The first part of its name; of a compiled module its room."""
    return ".".join(module.split(".")[: 2 if module.startswith("_ext.") else 1])


def test_every_package_is_in_the_order() -> None:
    assert {package_of(module) for module in modules()} == set(ORDER)


@pytest.mark.parametrize("package", ORDER)
def test_a_package_imports_only_from_those_before_it(package: str) -> None:
    against = [
        f"{module} imports {found}"
        for module in modules()
        if package_of(module) == package
        for found in imported(module)
        if RANK[package_of(found)] > RANK[package]
    ]
    # `__init__` is imported for the version only.
    assert [line for line in against if not line.endswith("imports __init__")] == []


def test_no_two_modules_import_each_other() -> None:
    """Imports inside functions count too: neither module could be read or replaced without the other."""
    graph = {module: set(imported(module)) - {module, "__init__"} for module in modules()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(f"these import each other: {' <- '.join(error.args[1])}") from None


RENDERERS = ("report.render", "report.html")
PRODUCERS = (
    "report.blocks",
    "report.charts",
    "report.documents",
    "report.run_page",
    "report.series",
    "report.text",
    "compare.report",
)
JOINS = "report.documents.forms"  # chooses the renderer of each form


def inside(module: str, rooms: tuple[str, ...]) -> bool:
    return any(module == room or module.startswith(f"{room}.") for room in rooms)


def test_what_produces_a_report_knows_no_renderer() -> None:
    produce = [module for module in modules() if inside(module, PRODUCERS) and module != JOINS]
    assert len(produce) > 40
    assert [(each, found) for each in produce for found in imported(each) if inside(found, RENDERERS)] == []


def test_a_renderer_knows_no_run() -> None:
    render = [module for module in modules() if inside(module, RENDERERS)]
    of_runs = ("documents", "records", "metrics", "certificate", "settings", "plan", "compare", "engine")
    assert len(render) > 5
    assert [(each, found) for each in render for found in imported(each) if package_of(found) in of_runs] == []
