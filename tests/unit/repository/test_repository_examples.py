"""The container file, the compose file and the Kubernetes Job under examples/ are valid."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from unit.repository.linters import ROOT, linter, passes

import fastllmload
from fastllmload.cli.options.table import OPTIONS

EXAMPLES = ROOT / "examples"
KUBERNETES = EXAMPLES / "kubernetes"
RESOURCES = sorted(path for path in (KUBERNETES / "base").glob("*.yaml") if path.stem != "kustomization")


def test_hadolint() -> None:
    passes(linter("hadolint"), EXAMPLES / "Containerfile")


def test_the_image_is_built_in_two_stages_and_runs_without_privileges() -> None:
    text = (EXAMPLES / "Containerfile").read_text()
    stages = re.split(r"^FROM ", text, flags=re.MULTILINE)[1:]
    assert len(stages) == 2 and "apt-get" not in stages[1]
    user = re.search(r"^USER (\d+)$", stages[1], re.MULTILINE)
    assert user is not None and int(user[1]) > 0
    assert f"fastllmload=={fastllmload.__version__}" in stages[1]


def test_the_build_gets_what_the_package_needs() -> None:
    """The ignore file lets in sources only; each name in it exists."""
    lines = (EXAMPLES / "Containerfile.dockerignore").read_text().splitlines()
    admitted = [line.removeprefix("!") for line in lines if line.startswith("!")]
    assert lines[0] == "*" and {"ext", "src", "setup.py", "pyproject.toml", "README.md", "LICENSE"} <= set(admitted)
    assert all((ROOT / name).exists() for name in admitted)


def test_compose_schema() -> None:
    passes(linter("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", EXAMPLES / "compose.yaml")


def test_kubernetes_schemas() -> None:
    for path in RESOURCES:
        passes(linter("kubernetes-validate"), "--strict", path)


@pytest.mark.parametrize("folder", ["base", "tap"])
def test_kustomize_builds(folder: str, tmp_path: Path) -> None:
    """The Job with and without the packet ring; only the one with it asks for the capability."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    built = subprocess.run(["kubectl", "kustomize", KUBERNETES / folder], capture_output=True, text=True, timeout=60)
    assert built.returncode == 0, built.stderr
    assert ("NET_RAW" in built.stdout) == ("--timestamps=tap" in built.stdout) == (folder == "tap")
    assert "kind: Job" in built.stdout and "kind: PersistentVolumeClaim" in built.stdout


@pytest.mark.parametrize(
    "path", [EXAMPLES / "compose.yaml", *RESOURCES, *KUBERNETES.glob("*/*.yaml")], ids=lambda path: path.name
)
def test_options_exist(path: Path) -> None:
    known = {flag for option in OPTIONS for flag in (option.flag, *option.aliases)} | {"--host", "--port"}
    lines = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")]
    asked = re.findall(r"(?:- |, |\[|value: )(--[a-z-]+)", "\n".join(lines))
    assert set(asked) <= known, sorted(set(asked) - known)
