"""A click group that imports its commands on first use and has a default command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

import click

from fastllmload.cli.options.parsers import is_url, nearest
from fastllmload.redact import Redactor

WIDTH = 100  # of help, at most


@dataclass(frozen=True)
class LazyCommand:
    """What makes a command, or where it is defined (`module:attribute`), and a short summary of it."""

    source: str | Callable[[], click.Command]
    summary: str

    def load(self) -> click.Command:
        if not isinstance(self.source, str):
            return self.source()
        module, _, attribute = self.source.partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command


class LazyGroup(click.Group):
    """Without a command name, all arguments go to the *default* command, if any. *noun*: what a command is."""

    def __init__(
        self, name: str, table: dict[str, LazyCommand], help: str, default: str | None = None, noun: str = "command"
    ) -> None:
        super().__init__(
            name, help=help, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": WIDTH}
        )
        self.table = table
        self.default = default
        self.noun = noun

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return self.table[cmd_name].load() if cmd_name in self.table else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.table:
            near = nearest(args[0], self.table) or f"; {self.noun}s are {', '.join(self.table)}"
            raise click.UsageError(f"{args[0]!r} is not a {self.noun} of {ctx.command_path}{near}", ctx)
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = {flag for parameter in self.get_params(ctx) for flag in parameter.opts}
        if self.default is None:
            if not args:
                raise click.UsageError(f"{ctx.info_name} needs a {self.noun}: {', '.join(self.table)}", ctx)
        elif not args or is_url(args[0]) or (args[0].startswith("-") and args[0] not in own):
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section(f"{self.noun}s".capitalize()):
            formatter.write_dl([(name, command.summary) for name, command in self.table.items()])

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands, then the options of the default command, which the group accepts as its own."""
        if self.default is None:
            return super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)
        self.table[self.default].load().format_options(ctx, formatter)
        records = [
            record for parameter in self.get_params(ctx) if (record := parameter.get_help_record(ctx)) is not None
        ]
        with formatter.section("Other"):
            formatter.write_dl(records)


def current_redactor() -> Redactor:
    found = click.get_current_context().find_object(Redactor)
    assert found is not None  # main() gives it to the outermost context
    return found
