"""MLflow and Weights & Biases get parameters, figures and documents. Modules of the test record how they are called."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from real_run import real_run
from refusals import says

from fastllmload.cli.main import main
from fastllmload.records.run import load


class FakeMlflow(ModuleType):
    def __init__(self) -> None:
        super().__init__("mlflow")
        self.uri, self.experiment, self.tags = "default", "", {}
        self.params: list[dict[str, str]] = []
        self.metrics: list[dict[str, float]] = []
        self.artifacts: list[str] = []

    def set_tracking_uri(self, uri: str) -> None:
        self.uri = uri

    def get_tracking_uri(self) -> str:
        return self.uri

    def set_experiment(self, name: str) -> None:
        if self.uri == "broken":
            raise RuntimeError("no such place\nTraceback")
        self.experiment = name

    @contextlib.contextmanager
    def start_run(self, run_name: str, tags: dict[str, str]) -> Iterator[Any]:
        self.tags = tags
        yield SimpleNamespace(info=SimpleNamespace(run_id="abc"))

    def log_params(self, found: dict[str, str]) -> None:
        self.params.append(found)

    def log_metrics(self, found: dict[str, float]) -> None:
        self.metrics.append(found)

    def log_artifact(self, path: str) -> None:
        self.artifacts.append(Path(path).name)


class FakeWandb(ModuleType):
    def __init__(self) -> None:
        super().__init__("wandb")
        self.asked: dict[str, Any] = {}
        self.summary: dict[str, float] = {}
        self.files: list[str] = []
        self.finished = False

    def init(self, **asked: Any) -> Any:
        self.asked = asked
        return SimpleNamespace(id="x1", dir="here", url="http://there", summary=self.summary, log_artifact=lambda each: None,
                               finish=lambda: setattr(self, "finished", True))  # fmt: skip

    def Artifact(self, name: str, type: str) -> Any:
        return SimpleNamespace(add_file=lambda path: self.files.append(Path(path).name))


@pytest.fixture
def words() -> list[str]:
    return ["export", str(real_run()), "--format"]


def test_mlflow(words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    fake = FakeMlflow()
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    assert main([*words, "mlflow", "--to", "http://tracker"]) == 0
    assert "abc" in capsys.readouterr().out and fake.experiment == "fastllmload"
    params, metrics = ({k: v for part in each for k, v in part.items()} for each in (fake.params, fake.metrics))
    document = load(real_run()).document
    ttft = document.metric("ttft")
    assert metrics["ttft.p50"] == ttft.p50 and metrics["counts.ok"] == document.counts.ok
    assert metrics["req_s"] == document.metric("req_s").value
    assert params["workload.name"] == document.config.workload.name and all(len(part) <= 100 for part in fake.params)
    assert fake.tags["fastllmload.run_id"] == document.run_id and "run.json" in fake.artifacts
    fake.artifacts.clear()
    assert main([*words, "mlflow", "--redact"]) == 0
    assert fake.artifacts == [] and "127.0.0.1" not in json.dumps([fake.params[-1], fake.tags])
    capsys.readouterr()
    assert main([*words, "mlflow", "--to", "broken"]) == 2
    assert says(capsys.readouterr().err, "tracker-refused", "no such place")


def test_wandb(
    words: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Offline into a folder; to a project where one is named."""
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    assert main([*words, "wandb", "-o", str(tmp_path)]) == 0
    assert (fake.asked["mode"], fake.asked["dir"], fake.asked["project"]) == ("offline", str(tmp_path), "fastllmload")
    assert fake.summary["ttft.p99"] == load(real_run()).document.metric("ttft").p99
    assert "report.html" in fake.files and fake.finished and capsys.readouterr().out.strip() == "here"
    assert main([*words, "wandb", "--to", "team/load"]) == 0
    assert (fake.asked["entity"], fake.asked["project"], fake.asked["mode"]) == ("team", "load", None)
    assert capsys.readouterr().out.strip() == "http://there"


@pytest.mark.parametrize("name", ["mlflow", "wandb"])
def test_a_missing_library(
    name: str, words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    assert main([*words, name]) == 2
    assert says(capsys.readouterr().err, "package-missing", f"`{name}`")
