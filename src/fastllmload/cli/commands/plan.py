"""The `plan` commands: build, save, describe and verify a plan without sending anything."""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fastllmload.cli.group import LazyCommand, LazyGroup
from fastllmload.cli.options.reading import validate_saved_classes, validate_stored_bodies
from fastllmload.cli.run_command import RunCommand
from fastllmload.errors import InputError

if TYPE_CHECKING:
    from fastllmload.plan.plan import Plan
    from fastllmload.settings import RunSettings, Workload

SIMULATED_MODEL = "simulated"


def build_once(show: bool, sequence: Path | None, verify: Path | None, **parameters: object) -> int:
    from fastllmload.cli.commands.run import resolve_parameters

    if verify is not None:
        if show or sequence is not None or any(value not in (None, ()) for value in parameters.values()):
            raise InputError("options-conflict", "--verify checks a finished plan and takes no other option")
        return verify_file(verify)
    settings, _ = resolve_parameters(parameters)
    if settings.output.plan is not None:
        raise InputError("option-not-applicable", "--plan names a finished plan; use fastllmload plan describe FILE")
    save = settings.output.save_plan
    own = {one.name: one.urls for one in settings.classes if one.urls}
    _build(settings, None if save is None else Path(save), Views(show, sequence, own))
    return 0


def save_once(file: Path, **parameters: object) -> int:
    from fastllmload.cli.commands.run import resolve_parameters

    settings, _ = resolve_parameters(parameters)
    if settings.output.plan is not None or settings.output.save_plan is not None:
        raise InputError(
            "option-not-applicable", "--plan and --save-plan do not go with fastllmload plan save FILE; leave them out"
        )
    _build(settings, file, Views())
    return 0


@dataclass(frozen=True)
class Views:
    """Optional outputs in addition to a plan's description: charts, and a file with the sequence of its requests."""

    show: bool = False
    sequence: Path | None = None
    urls: dict[str, tuple[str, ...]] = field(default_factory=dict)  # of classes with some of their own
    trace: Workload | None = None  # of sessions, which the plan was made of

    def write(self, plan: Plan) -> None:
        if self.show:
            from fastllmload.plan.description.picture import show

            click.echo("\n" + show(plan), nl=False)
        if self.sequence is not None and self.trace is not None:
            click.echo(f"{'sequence':<14} {self.sequence}, SHA-256 {write_calls(self.trace, self.sequence)}")
        elif self.sequence is not None:
            from fastllmload.endpoint import resolve_endpoint
            from fastllmload.plan.sequence import protocols, write_sequence

            endpoints = {name: resolve_endpoint(name) for name in protocols(plan)}
            sha256 = write_sequence(plan, endpoints, self.sequence, self.urls)
            click.echo(f"{'sequence':<14} {self.sequence}, SHA-256 {sha256}")


def write_calls(trace: Workload, path: Path) -> str:
    """Write the sessions of *trace* in our own format (docs/guides/traces.md); returns the file's SHA-256."""
    from fastllmload.plan.bodies import disk_errors
    from fastllmload.plan.prompts.load import load_workload
    from fastllmload.workload.traces.call_lines import write_graph

    graph = load_workload(trace).graph
    assert graph is not None  # the plan was made of it
    with disk_errors(path, "--sequence"):
        write_graph(graph, path)
        return hashlib.sha256(path.read_bytes()).hexdigest()


def _build(settings: RunSettings, file: Path | None, views: Views) -> None:
    if file is not None or views.sequence is not None:
        validate_stored_bodies(settings, "--sequence" if file is None else "a plan's file")
    if file is not None:
        validate_saved_classes(settings)
    from fastllmload.endpoint.identity import lines
    from fastllmload.plan.archive import save_plan

    with tempfile.TemporaryDirectory(prefix="fastllmload-plan-") as folder:
        plan = build_in(Path(folder), settings)
        if file is not None:
            save_plan(plan, file)
        _show(plan, settings.load.ramp_share)
        for line in lines(settings.session):
            click.echo(f"{'sessions':<14} {line}")
        if plan.edges is not None and not settings.classes:
            views = replace(views, trace=settings.workload)
        views.write(plan)
    if file is not None:
        click.echo(f"{'saved':<14} {file}")


def build_in(folder: Path, settings: RunSettings) -> Plan:
    """Build the plan of the measured phase in *folder*. InputError for settings of which no plan can be made."""
    from fastllmload.engine.run_plans import add_seen, build
    from fastllmload.plan.build import check_context_limit

    plan = build(settings, "measure", _model(settings), folder)
    add_seen(settings, plan)
    check_context_limit(plan, settings.workload.context_limit)
    return plan


def _model(settings: RunSettings) -> str:
    """The model's name, which every body contains and which cannot be asked for without a connection."""
    if settings.target.model is not None:
        return settings.target.model
    for one in settings.classes:
        if one.urls and one.model is None:
            raise InputError(
                "model-missing",
                f"class {one.name!r} has a URL of its own and no model, and planning asks no server; add model=NAME",
            )
    if all(one.model is not None for one in settings.classes) and settings.classes:
        return str(settings.classes[0].model)
    if settings.target.urls == ():
        return dict(settings.target.simulate).get("model", SIMULATED_MODEL)
    raise InputError(
        "model-missing",
        "--model is missing: every body of a plan names it, and planning asks no server; add --model NAME",
    )


def _show(plan: Plan, ramp_share: float = 0.1) -> None:
    from fastllmload.plan.description.text import describe_as_text

    click.echo(describe_as_text(plan, ramp_share=ramp_share), nl=False)


FILE = click.Argument(["file"], type=click.Path(path_type=Path))
SHOW = click.Option(["--show"], is_flag=True, help="Draws charts of rate, gaps and lengths, and the first sessions.")
SEQUENCE = click.Option(
    ["--sequence", "--save", "sequence"],
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Writes the requests as JSON lines for --workload custom, those of a trace of sessions for --workload graph.",
)
VERIFY = click.Option(
    ["--verify"], type=click.Path(path_type=Path), metavar="FILE", help="Checks a saved plan against its digest."
)


@click.command("describe", params=[FILE, SHOW, SEQUENCE])
def describe_saved(file: Path, show: bool, sequence: Path | None) -> int:
    """Describe the plan in FILE."""
    from fastllmload.plan.archive import load_plan

    with tempfile.TemporaryDirectory(prefix="fastllmload-plan-") as folder:
        plan = load_plan(file, Path(folder))
        _show(plan)
        Views(show, sequence).write(plan)
    return 0


@click.command("verify", params=[FILE])
def verify(file: Path) -> int:
    """Check the plan in FILE: hash every member and compare with its digest."""
    return verify_file(file)


def verify_file(file: Path) -> int:
    """Check every member of the plan in *file* against its digest and print the result."""
    from fastllmload.plan.archive import load_plan

    with tempfile.TemporaryDirectory(prefix="fastllmload-plan-") as folder:
        plan = load_plan(file, Path(folder))
        click.echo(f"{file}: {plan.requests:,} requests, every digest is correct\n{plan.digest}")
    return 0


build = RunCommand(
    "build",
    build_once,
    help="Build the plan that these options of a run ask for, and describe it.",
    params=[SHOW, SEQUENCE, VERIFY],
)
save = RunCommand(
    "save",
    save_once,
    help="Build the plan and write it to FILE.",
    params=[FILE],
)
plan = LazyGroup(
    "plan",
    {
        "build": LazyCommand("fastllmload.cli.commands.plan:build", "build a plan and describe it (the default)"),
        "save": LazyCommand("fastllmload.cli.commands.plan:save", "build a plan and write it to a file"),
        "describe": LazyCommand("fastllmload.cli.commands.plan:describe_saved", "describe a saved plan"),
        "verify": LazyCommand("fastllmload.cli.commands.plan:verify", "check a saved plan against its digest"),
    },
    default="build",
    help="Plan a run without sending anything. Without a command, build.",
)
