"""The container files, the compose file, the Kubernetes Jobs and the Ray cluster over SSH under examples/ are valid."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from unit.repository.linters import ROOT, linter, passes

import fastllmload
from fastllmload.cli.options.reading import read_settings
from fastllmload.cli.options.sources import from_table
from fastllmload.cli.options.table import OPTIONS
from fastllmload.redact import Redactor

EXAMPLES = ROOT / "examples"
KUBERNETES = EXAMPLES / "kubernetes"
RESOURCES = sorted(path for path in (KUBERNETES / "base").glob("*.yaml") if path.stem != "kustomization")


IMAGES = ("Containerfile", "Containerfile.ray")


@pytest.mark.parametrize("name", IMAGES)
def test_hadolint(name: str) -> None:
    passes(linter("hadolint"), EXAMPLES / name)


@pytest.mark.parametrize("name", IMAGES)
def test_the_image_is_built_in_two_stages_and_runs_without_privileges(name: str) -> None:
    text = (EXAMPLES / name).read_text()
    stages = re.split(r"^FROM ", text, flags=re.MULTILINE)[1:]
    assert len(stages) == 2 and "apt-get" not in stages[1]
    user = re.search(r"^USER (\d+)$", stages[1], re.MULTILINE)
    assert user is not None and int(user[1]) > 0
    assert f"fastllmload=={fastllmload.__version__}" in stages[1]


@pytest.mark.parametrize("name", IMAGES)
def test_the_build_gets_what_the_package_needs(name: str) -> None:
    """The ignore file lets in sources only; each name in it exists."""
    lines = (EXAMPLES / f"{name}.dockerignore").read_text().splitlines()
    admitted = [line.removeprefix("!") for line in lines if line.startswith("!")]
    assert lines[0] == "*" and {"ext", "src", "setup.py", "pyproject.toml", "README.md", "LICENSE"} <= set(admitted)
    assert all((ROOT / name).exists() for name in admitted)


@pytest.mark.slow
def test_compose_schema() -> None:
    passes(linter("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", EXAMPLES / "compose.yaml")


@pytest.mark.slow
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


def test_the_rayjob_has_a_host_per_node_and_the_key_in_a_file_of_its_head() -> None:
    text = (KUBERNETES / "ray" / "rayjob.yaml").read_text()
    head, _, hosts = text.partition("workerGroupSpecs:")
    known = {flag for option in OPTIONS for flag in (option.flag, *option.aliases)}
    asked = re.findall(r"^ +(--[a-z-]+)", head, re.MULTILINE)
    assert {"--ray", "--hosts", "--url", "--api-key-file"} <= set(asked) <= known
    assert "hostNetwork: true" in hosts and "podAntiAffinity" in hosts and "kubernetes.io/hostname" in hosts
    assert "secretName" in head and "secret" not in hosts and "OPENAI_API_KEY" not in text
    assert "authOptions: {mode: token}" in head
    asked_hosts, replicas = re.search(r"--hosts=(\d+)", head), re.search(r"replicas: (\d+)", hosts)
    assert asked_hosts is not None and replicas is not None and asked_hosts[1] == replicas[1]


def test_the_config_of_the_ray_cluster_is_that_of_a_run(tmp_path: Path) -> None:
    table = tomllib.loads((EXAMPLES / "ray-vm" / "run.toml").read_text())
    (tmp_path / "key").write_text("sk-0")
    settings, secret = read_settings(
        from_table({**table, "api-key-file": str(tmp_path / "key")}, "", ""), {}, Redactor([])
    )
    assert (settings.hosts.address, settings.hosts.hosts) == ("auto", 3) and secret is not None


def test_the_token_of_the_ray_cluster_is_in_no_argument(tmp_path: Path) -> None:
    """A program in the place of ssh records its arguments, and what it gets on its standard input."""
    fake = tmp_path / "ssh"
    fake.write_text(
        "#!/bin/sh\n"
        f'printf "%s\\n" "$*" >> {tmp_path}/arguments\n'
        f"case $* in *auth_token) cat >> {tmp_path}/tokens; echo >> {tmp_path}/tokens ;; esac\n"
    )
    fake.chmod(0o755)
    command = [EXAMPLES / "ray-vm" / "cluster", "up", "10.0.0.1", "10.0.0.2"]
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 0, done.stderr
    first, second = (tmp_path / "tokens").read_text().split()
    arguments = (tmp_path / "arguments").read_text()
    assert first == second and len(first) == 64 and first not in arguments + done.stdout + done.stderr
    assert arguments.count("ray start --head") == arguments.count("ray start --address=10.0.0.1:6379") == 1


@pytest.mark.parametrize(
    "path", [EXAMPLES / "compose.yaml", *RESOURCES, *KUBERNETES.glob("*/*.yaml")], ids=lambda path: path.name
)
def test_options_exist(path: Path) -> None:
    known = {flag for option in OPTIONS for flag in (option.flag, *option.aliases)} | {"--host", "--port"}
    lines = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")]
    asked = re.findall(r"(?:- |, |\[|value: )(--[a-z-]+)", "\n".join(lines))
    assert set(asked) <= known, sorted(set(asked) - known)
