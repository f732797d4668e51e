"""`fastllmload compat TOOL …`: translates another tool's command line and runs it."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from fastllmload.cli import argv
from fastllmload.cli.compat.foreign_command import KINDS
from fastllmload.cli.compat.translate import Translation, tool_names, translations
from fastllmload.cli.group import current_redactor
from fastllmload.cli.streams import naming_output
from fastllmload.errors import InputError
from fastllmload.report.terminal.outlet import on_screen

OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")


def start(words: tuple[str, ...], url: str | None, dry_run: bool, anyway: bool) -> int:
    if not words:
        raise InputError(
            "usage",
            f"compat needs the other tool's command: one of {', '.join(tool_names())}, for example "
            "fastllmload compat vllm bench serve --model NAME",
        )
    every = translations(words, server=url)
    redact = current_redactor()
    secrets = [secret for found in every for command in found.commands for secret in argv.secrets_of(command)]
    secrets += [secret for found in every for secret in found.secrets]
    for secret in secrets:
        redact.add(secret)
    argv.hide(secrets)
    for path, text in ((path, text) for found in every for path, text in found.files.items()):
        with naming_output(f"the file {path}"):
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_text(text, encoding="utf-8")
    for line in report_lines(every):
        click.echo(on_screen(redact(line)), file=sys.stdout if dry_run else sys.stderr)
    if dry_run:
        return 0
    changed = dict.fromkeys(
        (lack.option, found.title) for found in every for lack in found.lacks if lack.kind == "changes"
    )
    if changed and not anyway:
        raise InputError(
            "compat-load-differs",
            f"{', '.join(option for option, _ in changed)} of {', '.join(dict.fromkeys(title for _, title in changed))} "
            "would change the load and has no counterpart; leave it out, or add --anyway after compat to run the rest",
        )
    return max(execute(found) for found in every)


def execute(found: Translation) -> int:
    """Run the commands of *found*, and write the result file that it asks for."""
    os.environ.update(found.environment)
    if found.save is None:
        return max(run(command, found) for command in found.commands)
    folder = free_folder()
    code = run([*found.commands[0], "--output", str(folder)], found)
    if (folder / "run.json").exists():
        click.echo(f"saved      {save(folder, found.save)}", err=True)
    return code


def free_folder() -> Path:
    """Below runs/, by the time; with a number if one of this second is there."""
    base = Path("runs") / f"compat-{time.strftime('%Y%m%d-%H%M%S')}"
    numbered = (base.with_name(f"{base.name}-{number}") for number in itertools.count(2))
    return next(path for path in itertools.chain([base], numbered) if not path.exists())


def save(folder: Path, asked: Mapping[str, str]) -> Path:
    """Write the result file that vLLM would write, and return its path."""
    from fastllmload.cli.commands.export import percentiles_of
    from fastllmload.export.vllm_result import USUAL, encode, vllm_result
    from fastllmload.records.run import load

    metrics = asked["metrics"].split(",") if "metrics" in asked else USUAL
    result = vllm_result(load(folder), percentiles_of(asked.get("percentiles", "99")), metrics, "detailed" in asked)
    cap = result["max_concurrency"]
    named = f"{result['label'] or asked['backend']}-{result['request_rate']}qps" + (f"-concurrency{cap}" if cap else "")
    name = asked.get("filename") or f"{named}-{str(result['model_id']).rpartition('/')[2]}-{result['date']}.json"
    path = Path(asked.get("dir", ".")) / name
    with naming_output(f"--result-dir {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab" if "append" in asked else "wb") as file:
            file.write(encode(result))
    return path


def report_lines(every: Sequence[Translation]) -> Iterator[str]:
    """The equivalent commands, the files that they read, what has no counterpart, and what is defined differently."""
    for found in every:
        for command in found.commands:
            yield shlex.join(["fastllmload", *(command[1:] if command[0] == "run" else command)])
        yield from (f"written    {path}" for path in found.files)
    lacks = dict.fromkeys(lack for found in every for lack in found.lacks)
    for lack in sorted(lacks, key=lambda lack: list(KINDS).index(lack.kind), reverse=True):
        yield f"  {lack.option}: {KINDS[lack.kind]}: {lack.why}"
    yield from dict.fromkeys(f"  note: {line}" for found in every for line in found.differs)


def run(command: list[str], found: Translation) -> int:
    """Run *command* of ours. InputError with what was typed for the options that it names."""
    from fastllmload.cli.main import fastllmload

    outer = click.get_current_context()
    assert outer.parent is not None
    try:
        with fastllmload.make_context("fastllmload", command, obj=outer.obj) as context:
            return int(fastllmload.invoke(context) or 0)
    except InputError as problem:
        raise type(problem)(problem.code, as_typed(problem.message, found)) from None


def as_typed(message: str, found: Translation) -> str:
    """*message* about options of ours, with what was typed for each of them."""
    named = dict.fromkeys(OPTION.findall(message))
    origins = [f"{name} is {', '.join(found.origins[name])}" for name in named if found.origins.get(name)]
    return f"{message} (in the command of {found.title}: {'; '.join(origins)})" if origins else message


compat = click.Command(
    "compat",
    callback=start,
    help="Run another tool's command line, pasted as it is: fastllmload compat vllm bench serve --model NAME ...\n\n"
    f"Tools: {', '.join(tool_names())}. Prints the equivalent command and all that has no counterpart, then runs it, unless "
    "something that changes the load has none. Options of compat itself come before the tool's name.",
    params=[
        click.Option(["--url"], metavar="URL", help="The server, in place of the one that the command names."),
        click.Option(
            ["--print", "--dry-run", "dry_run"], is_flag=True, help="Prints the equivalent command and does not run it."
        ),
        click.Option(
            ["--anyway"], is_flag=True, help="Runs although something without a counterpart changes the load."
        ),
        click.Argument(["words"], nargs=-1, type=click.UNPROCESSED, metavar="TOOL ARGUMENTS..."),
    ],
    context_settings={"help_option_names": ["-h", "--help"], "allow_interspersed_args": False},
)
