"""A run in MLflow or Weights & Biases: its settings as parameters, its figures as metrics, its documents as artifacts.

Names are dotted, as `ttft.p99` and `load.rate`: a slash would be a folder in MLflow's store, where a metric is a file.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastllmload.documents.fields import known
from fastllmload.documents.run import RunDocument
from fastllmload.documents.write import values
from fastllmload.errors import InputError
from fastllmload.records.run import Run

STATISTICS = ("value", "mean", "std", "min", "max", "p50", "p75", "p90", "p95", "p99", "p999")
DOCUMENTS = ("run.json", "report.html", "report.md", "latency.hlog")
PROJECT = "fastllmload"
LONGEST = 500  # characters of a parameter's value, MLflow's older limit
AT_ONCE = 100  # parameters, and
METRICS_AT_ONCE = 1000  # metrics of a message to MLflow


@dataclass(frozen=True)
class TrackedRun:
    """*files*: documents of the run folder; none of a redacted run, as they have names of hosts."""

    name: str
    parameters: dict[str, str]
    metrics: dict[str, float]
    tags: dict[str, str]
    files: list[Path]


def tracked(run: Run, redacted: bool = False) -> TrackedRun:
    document = run.document
    certificate = document.certificate
    tags = {
        "fastllmload.version": document.tool.version,
        "fastllmload.run_id": document.run_id,
        "fastllmload.status": document.status,
        "fastllmload.certificate": None if certificate is None else certificate.verdict,
        "fastllmload.plan.digest": document.plan.digest,
        "model": known_text(document.target.model),
        **{f"metadata.{name}": str(value) for name, value in (document.metadata or {}).items()},
    }
    return TrackedRun(
        name=run.directory.resolve().name,
        parameters={name: str(value)[:LONGEST] for name, value in settings_of("", values(document.config))},
        metrics=dict(figures_of(document)),
        tags={name: value for name, value in tags.items() if value},
        files=[] if redacted else [path for name in DOCUMENTS if (path := run.directory / name).is_file()],
    )


def known_text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def settings_of(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Settings that have a value, by dotted name."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from settings_of(f"{name}.{key}" if name else str(key), inner)
    elif value not in (None, "", [], ()):
        yield name, value


def figures_of(document: RunDocument) -> Iterator[tuple[str, float]]:
    for name, metric in (document.metrics or {}).items():
        for statistic in STATISTICS if metric is not None else ():
            found = known(metric.statistic(statistic)) if metric is not None else None
            if found is not None:
                yield (name if statistic == "value" else f"{name}.{statistic}"), float(found)
    counts = {name: known(getattr(document.counts, name)) for name in ("ok", "failed", "input_tokens", "output_tokens")}
    yield from ((f"counts.{name}", float(value)) for name, value in counts.items() if value is not None)
    goodput = known(document.request_goodput)
    if goodput is not None:
        yield "request_goodput", float(goodput)


def library(name: str) -> Any:
    """The package of a tracker. InputError where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise InputError(
            "package-missing",
            f"--format {name} needs the package {name}, which is not installed; install fastllmload with the extra `{name}`",
        ) from None


def to_mlflow(found: TrackedRun, uri: str | None) -> str:
    """Log into the tracking server or folder *uri*, else where MLFLOW_TRACKING_URI says; the id of the run there."""
    mlflow = library("mlflow")
    with stating("mlflow", uri):
        if uri is not None:
            mlflow.set_tracking_uri(uri)
        mlflow.set_experiment(PROJECT)
        with mlflow.start_run(run_name=found.name, tags=found.tags) as run:
            for part in parts(found.parameters, AT_ONCE):
                mlflow.log_params(part)
            for figures in parts(found.metrics, METRICS_AT_ONCE):
                mlflow.log_metrics(figures)
            for path in found.files:
                mlflow.log_artifact(str(path))
            return f"run {run.info.run_id} in {mlflow.get_tracking_uri()}"


def to_wandb(found: TrackedRun, project: str | None, folder: Path | None) -> str:
    """Log to *project* (ENTITY/PROJECT or PROJECT), or without it offline into *folder*; where it is now."""
    wandb = library("wandb")
    entity, _, name = (project or PROJECT).rpartition("/")
    with stating("wandb", project):
        run = wandb.init(
            project=name,
            entity=entity or None,
            name=found.name,
            config=found.parameters | {f"tag.{key}": value for key, value in found.tags.items()},
            dir=None if folder is None else str(folder),
            mode="offline" if project is None else None,
        )
        run.summary.update(found.metrics)
        if found.files:
            artifact = wandb.Artifact(name=f"fastllmload-{run.id}", type="run")
            for path in found.files:
                artifact.add_file(str(path))
            run.log_artifact(artifact)
        place = str(run.dir if project is None else run.url)
        run.finish()
        return place


@contextmanager
def stating(name: str, place: str | None) -> Iterator[None]:
    """InputError with one sentence for whatever the library of a tracker raises."""
    try:
        yield
    except Exception as problem:  # noqa: BLE001 - each library has exceptions of its own
        at = f" at {place}" if place else ""
        first = next(iter(str(problem).strip().splitlines()), type(problem).__name__)
        raise InputError("tracker-refused", f"{name}{at} did not take the run: {first}") from None


def parts(found: Mapping[str, Any], most: int) -> Iterator[dict[str, Any]]:
    items = list(found.items())
    yield from (dict(items[at : at + most]) for at in range(0, len(items), most))
