"""click commands that take the options of a run, made from the table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain, zip_longest

import click

from fastllmload.cli.options.parsers import is_url
from fastllmload.cli.options.table import OPTIONS, SECTIONS, RunOption

TARGETS = "targets"  # argument: URLs without --url


class RunCommand(click.Command):
    """A command with all options of a run and help in sections; `--goodput` and labels take several words.

    *params*: its own parameters; *own*: its own options of the same kind as those of a run, by section of the help;
    *refused*: parameters of a run that it does not accept, which the help leaves out.
    """

    def __init__(
        self,
        name: str,
        callback: Callable[..., int],
        *,
        help: str,
        params: Iterable[click.Parameter] = (),
        own: Mapping[str, Sequence[RunOption]] | None = None,
        refused: Collection[str] = (),
    ) -> None:
        self.own_params, self.own, self.refused = list(params), own or {}, refused
        options = (*chain(*self.own.values()), *OPTIONS)
        arguments = [parameter for parameter in self.own_params if isinstance(parameter, click.Argument)]
        targets = click.Argument([TARGETS], nargs=-1, metavar="[URL]...")
        super().__init__(
            name,
            callback=callback,
            help=help,
            params=[*self.own_params, *map(click_option, options), *([] if arguments else [targets])],
            context_settings={"help_option_names": ["-h", "--help"]},
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, one_flag_per_word(args))
        named = ctx.params.pop(TARGETS, ())
        for word in named:
            if not is_url(word):
                raise click.UsageError(
                    f"{word!r} is neither an option nor a URL; options begin with --, a target is http://HOST:PORT", ctx
                )
        if named:
            ctx.params["url"] = (*named, *ctx.params["url"])
        return rest

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        listed = [parameter for parameter in self.own_params if isinstance(parameter, click.Option)]
        records = [record for option in listed if (record := option.get_help_record(ctx)) is not None]
        if records:
            with formatter.section((self.name or "").capitalize()):
                formatter.write_dl(records)
        for section, own in self.own.items():
            if own:
                with formatter.section(section):
                    formatter.write_dl([(f"{option.flag} {option.metavar}".strip(), option.help) for option in own])
        for section, options in SECTIONS.items():
            accepted = [option for option in options if option.parameter not in self.refused]
            if accepted:
                with formatter.section(section):
                    formatter.write_dl([(_left(option), _right(option)) for option in accepted])


def click_option(option: RunOption) -> click.Option:
    """Values stay text; they are parsed later in the same way for the command line and a config file."""
    if option.parse is None:
        flags = ["/".join(filter(None, pair)) for pair in zip_longest(option.flags, option.off_flags)]
        return click.Option([*flags, option.parameter], default=None, is_flag=True)
    return click.Option(
        [*option.flags, option.parameter], type=str, multiple=option.multiple, metavar=option.metavar, help=option.help
    )


WORD_FLAGS = frozenset(flag for option in OPTIONS if option.words for flag in option.flags)


def one_flag_per_word(arguments: list[str]) -> list[str]:
    """`--goodput ttft:200 tpot:50` becomes `--goodput ttft:200 --goodput tpot:50`, up to a word that begins with -."""
    spread: list[str] = []
    flag: str | None = None
    for position, argument in enumerate(arguments):
        if argument == "--":
            return spread + arguments[position:]
        if argument.startswith("-"):
            name = argument.partition("=")[0]
            flag = name if name in WORD_FLAGS else None
            if flag is None or flag != argument:
                spread.append(argument)  # --goodput=ttft:200, or another option
            elif position + 1 == len(arguments) or arguments[position + 1].startswith("-"):
                raise click.BadOptionUsage(flag, f"Option {flag!r} requires an argument.")
        elif flag is None:
            spread.append(argument)
        else:
            spread += [flag, argument]
    return spread


def _left(option: RunOption) -> str:
    flags = [flag for flag in option.flags if not flag.startswith("--")] + [option.flag]
    text = ", ".join(flags)
    if option.off_flag is not None:
        return f"{text} / {option.off_flag}"
    return f"{text} {option.metavar}".strip()


def _right(option: RunOption) -> str:
    return option.help if not option.aliases else f"{option.help} [also {' '.join(option.aliases)}]"
