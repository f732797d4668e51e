"""`compare`: compares two sides of runs, with gates, or several systems."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fastllmload.cli.group import current_redactor
from fastllmload.cli.streams import naming_output
from fastllmload.errors import InputError
from fastllmload.files import write_named

if TYPE_CHECKING:
    from fastllmload.compare.side import Side

GATE_MODES = ("significant", "proven", "measured")
TESTS = ("auto", "welch", "paired", "mann-whitney")
NARROWEST = 80
AGAINST = "fastllmload.compare.against"


class CompareCommand(click.Command):
    """A command whose `--against` takes all runs up to the next option; each `--against` begins another side."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        sides: list[list[str]] = []
        rest: list[str] = []
        taking = False
        for argument in args:
            if argument == "--against":
                sides.append([])
                taking = True
            elif taking and not argument.startswith("-"):
                sides[-1].append(argument)
            else:
                taking = False
                rest.append(argument)
        ctx.meta[AGAINST] = sides
        return super().parse_args(ctx, rest)


@click.command("compare", cls=CompareCommand)
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@click.option("--against", metavar="RUN...", help="Runs of the other side; repeatable, each for one more side.")
@click.option(
    "--figure",
    "figures",
    multiple=True,
    metavar="NAME",
    help="Figure to compare instead of the usual ones, repeatable.",
)
@click.option(
    "--test", type=click.Choice(TESTS), default="auto", show_default=True, help="Test for several runs a side."
)
@click.option(
    "--fail-if", "gates", multiple=True, metavar="RULE", help='Gate, such as "p99_ttft_ms > +5%"; repeatable.'
)
@click.option(
    "--gate",
    "mode",
    type=click.Choice(GATE_MODES),
    default="significant",
    show_default=True,
    help="When a gate fails: measured beyond the limit and significant; proven beyond it; measured only.",
)
@click.option(
    "--undecided",
    type=click.Choice(("fail", "pass")),
    default="fail",
    show_default=True,
    help="Outcome of a gate whose limit is exceeded, if the runs are too short to tell that from chance.",
)
@click.option("--different-workload", is_flag=True, help="Compares although the requests differ.")
@click.option(
    "--systems", is_flag=True, help="Compares two sides as systems, as three or more are (IETF 6): checklist, claims."
)
@click.option("--strict", is_flag=True, help="Exit code 1 also when a client's certificate is not valid.")
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path), metavar="FILE", help="Writes the comparison as JSON."
)
@click.option(
    "--markdown",
    "markdown_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Writes it as Markdown, for a review.",
)
@click.option(
    "-o",
    "--html",
    "html_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Writes it as one page with plots.",
)
def compare(runs: tuple[str, ...], against: str | None, **options: Any) -> int:
    """Compare runs: each figure's difference with interval, test and effect size.

    \b
    compare A B                                   one run a side
    compare A1 A2 A3 --against B1 B2 B3           several: the run is the unit
    compare old=DIR --against new=DIR             folders of runs, with names
    compare x=DIR --against y=DIR --against z=DIR three systems
    compare A result.json                         a result file of another tool

    A result file is of vLLM (--save-result), AIPerf or GuideLLM.
    Refuses runs of different workloads. Exit code 1 when a --fail-if rule holds.
    """
    sides = read_sides(list(runs), click.get_current_context().meta[AGAINST])
    if options.pop("systems") or len(sides) > 2:
        return compare_many(sides, **options)
    return compare_two(sides[0], sides[1], **options)


def read_sides(runs: list[str], against: list[list[str]]) -> list[Side]:
    """The sides, each with a name of its own. InputError unless there are at least two."""
    from fastllmload.compare.side import distinct_names, read_side

    if not against and len(runs) == 2:
        against, runs = [[runs[1]]], runs[:1]
    if not against or not all(against):
        raise InputError(
            "comparison-one-sided", "a comparison needs two sides: compare A B, or compare A1 A2 --against B1 B2"
        )
    return distinct_names([read_side(side) for side in (runs, *against)])


def compare_two(
    base: Side,
    new: Side,
    figures: Sequence[str],
    test: str,
    gates: Sequence[str],
    mode: str,
    undecided: str,
    different_workload: bool,
    strict: bool,
    json_file: Path | None,
    markdown_file: Path | None,
    html_file: Path | None,
) -> int:
    from fastllmload.compare.comparison import compare as compared
    from fastllmload.compare.gate import FAILED, UNDECIDED, judge_gates, parse_gate
    from fastllmload.compare.report.blocks import for_markdown, for_terminal
    from fastllmload.compare.report.json import document
    from fastllmload.report.render import markdown, text

    rules = [parse_gate(gate) for gate in gates]
    found = compared(base, new, list(figures), test, different_workload, [rule.figure for rule in rules])
    results = judge_gates(rules, found, mode)
    width = width_of_terminal()
    click.echo("\n".join(text.lines(for_terminal(found, results, width), width)))
    write(json_file, "--json", lambda: json_text(document(found, results)))
    write(markdown_file, "--markdown", lambda: markdown.render(for_markdown(found, results)))
    if html_file is not None:
        from fastllmload.compare.report.page import page
        from fastllmload.report.html.page import render

        write(html_file, "--html", lambda: current_redactor()(render(page(found, results))))
    outcomes = {result.outcome for result in results}
    doubtful = any(run.verdict != "valid" for side in (base, new) for run in side.runs)
    return int(FAILED in outcomes or (UNDECIDED in outcomes and undecided == "fail") or (strict and doubtful))


def compare_many(
    sides: list[Side],
    figures: Sequence[str],
    test: str,
    gates: Sequence[str],
    different_workload: bool,
    strict: bool,
    json_file: Path | None,
    markdown_file: Path | None,
    html_file: Path | None,
    **_: Any,
) -> int:
    from fastllmload.compare.report.json import systems_document
    from fastllmload.compare.report.systems import for_markdown, for_terminal
    from fastllmload.compare.systems import compare_systems
    from fastllmload.report.render import markdown, text

    if html_file is not None:
        raise InputError("options-conflict", "--html shows two sides without --systems; leave one of the two out")
    if gates:
        raise InputError("options-conflict", "--fail-if compares two sides without --systems; leave one of the two out")
    found = compare_systems(sides, list(figures), test, different_workload)
    click.echo("\n".join(text.lines(for_terminal(found), width_of_terminal())))
    write(json_file, "--json", lambda: json_text(systems_document(found)))
    write(markdown_file, "--markdown", lambda: markdown.render(for_markdown(found)))
    return int(strict and any(run.verdict != "valid" for side in sides for run in side.runs))


def width_of_terminal() -> int:
    return max(NARROWEST, shutil.get_terminal_size((NARROWEST, 24)).columns)


def json_text(found: dict[str, Any]) -> str:
    import msgspec

    return msgspec.json.format(msgspec.json.encode(found), indent=1).decode() + "\n"


def write(path: Path | None, option: str, text: Callable[[], str]) -> None:
    if path is not None:
        with naming_output(f"{option} {path}"):
            write_named(path, text())
