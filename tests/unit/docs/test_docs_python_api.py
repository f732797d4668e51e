"""What is public is what docs/python-api.md documents: the same names, typed, with docstrings, and no deep module."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import fastllmload
from fastllmload import layout, metrics, settings

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "python-api.md"
NAMESPACES = {"fastllmload": fastllmload, "layout": layout, "metrics": metrics, "settings": settings}
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def documented(namespace: str) -> list[str]:
    """Names in the first column of the tables in the section of *namespace*."""
    title = "fastllmload" if namespace == "fastllmload" else f"fastllmload.{namespace}"
    section = PAGE.read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return [name for cell in rows for name in re.findall(r"`(\w+)`", cell)]


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_the_page_has_exactly_the_public_names(namespace: str) -> None:
    names = documented(namespace)
    assert sorted(names) == sorted(set(names)), "a name is documented twice"
    assert sorted(names) == sorted(NAMESPACES[namespace].__all__)


@pytest.mark.parametrize("namespace", ["fastllmload", "metrics", "settings"])
def test_every_public_name_has_a_docstring_and_types(namespace: str) -> None:
    module = NAMESPACES[namespace]
    for name in module.__all__:
        found = getattr(module, name)
        if isinstance(found, (str, int)):
            continue
        assert inspect.getdoc(found), name
        if inspect.isfunction(found):
            signature = inspect.signature(found)
            assert signature.return_annotation is not inspect.Parameter.empty, name
            assert all(each.annotation is not each.empty for each in signature.parameters.values()), name


@pytest.mark.parametrize("page", ["README.md", "docs/python-api.md"])
def test_no_example_names_a_deep_module(page: str) -> None:
    assert re.findall(r"(?:from|import) fastllmload\.\w+", (ROOT / page).read_text()) == []


def test_the_import_loads_nothing_else() -> None:
    """Neither a module of ours nor one that takes time; the names come on first use."""
    code = (
        "import sys; before = set(sys.modules); import fastllmload; new = set(sys.modules) - before; "
        "print(sorted(name for name in new if name.partition('.')[0] in ('fastllmload', 'numpy', 'msgspec', 'typing'))); "
        "print(sorted(fastllmload.__all__) == sorted(dir(fastllmload)))"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == ["['fastllmload']", "True"]


@pytest.mark.parametrize("name", ["compare", "search"])
def test_a_package_does_not_replace_the_function_of_its_name(name: str) -> None:
    code = f"import fastllmload.{name}; from fastllmload import {name} as one; print(one.__module__)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed == "fastllmload.api\n"


def test_star_import_takes_the_public_names() -> None:
    names: dict[str, object] = {}
    exec("from fastllmload.metrics import *", names)
    assert set(metrics.__all__) <= names.keys()
    assert not any(isinstance(found, ModuleType) for name, found in names.items() if name in metrics.__all__)


@pytest.mark.slow
def test_the_examples_pass_a_strict_type_check(tmp_path: Path) -> None:
    """As a user's own code would, which has the installed package and its `py.typed`."""
    pytest.importorskip("mypy", reason="mypy comes with the extra `lint`")
    example = tmp_path / "example.py"
    example.write_text("".join(BLOCK.findall(PAGE.read_text())))
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), str(example)],
        capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout
