"""What `import fastllmload` offers to do: run, load, compare, search, and plan without sending.

Options are those of the command line, with `_` for `-`: `rate=20, duration="5m", goodput={"ttft": 200}`. Times are seconds
or strings with a unit, repeatable options take a list, labels and objectives a dict, switches True or False.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

# `X as X`: for `fastllmload/__init__.py`, whose `__all__` has what is public
from fastllmload.compare.comparison import Comparison as Comparison
from fastllmload.errors import FastLLMLoadError as FastLLMLoadError
from fastllmload.errors import HostLimitError as HostLimitError
from fastllmload.errors import InputError as InputError
from fastllmload.errors import InternalError as InternalError
from fastllmload.errors import Interrupted as Interrupted
from fastllmload.errors import RunFolderError as RunFolderError
from fastllmload.errors import TargetError as TargetError
from fastllmload.plan.archive import load_plan as load_plan
from fastllmload.plan.archive import save_plan as save_plan
from fastllmload.plan.plan import Plan as Plan
from fastllmload.records.run import Run as Run
from fastllmload.redact import Redactor

if TYPE_CHECKING:
    from fastllmload.documents.run import RunDocument
    from fastllmload.documents.search import Answer, SearchDocument
    from fastllmload.report.terminal.view import Ui
    from fastllmload.settings import RunSettings, Secret

RunPath = str | os.PathLike[str]


def run(settings: RunSettings | None = None, /, **options: object) -> Run:
    """Do one run, wait until it ends and return it, as `load` does.

    *options* are those of `fastllmload run`: `run(url="http://host:8000/v1", rate=20, duration=300, goodput={"ttft": 200,
    "tpot": 50})`. *settings* replaces all of them except `api_key`. Nothing is printed
    unless `ui` is "plain" or "live". Without a target, the simulated engine is used. May be called inside a running event
    loop (a notebook).

    InputError: a wrong option or a limit of this host; TargetError: the target could not be reached; Interrupted: Ctrl-C
    before the first request. A run that was interrupted later is returned with `incomplete` set.
    """
    from fastllmload.engine.run import execute

    redact = Redactor([])
    wanted, secret = _settings_and_key(settings, options, redact)
    view = FolderRecorder(_view(wanted.output.ui, redact))
    execute(wanted, secret, cast("Ui", view))
    return load(view.folder)


def read_settings(**options: object) -> RunSettings:
    """The settings that `run` uses for *options*, parsed and checked, without the API key. InputError.

    `run(settings)` and `build_plan(folder, settings)` take them. Of values that are replaced in them, only load and workload
    are checked again, for contradictions.
    """

    return _settings_and_key(None, options, Redactor([]))[0]


def load(directory: RunPath) -> Run:
    """Read the run in folder *directory*. `rows` (one per request) and `events` (one per token event) are mapped, not
    copied.

    `metrics`, `certificate` and the rest of run.json are in `manifest`; for a run that was killed they are computed now.
    RunFolderError when the folder is not a run folder, is truncated, or has another schema version.
    """
    from fastllmload.records import run as folder
    from fastllmload.report.documents.subject import figures_of, lacks_figures

    found = folder.load(directory)
    return found.with_document(figures_of(found)) if lacks_figures(found.document) else found


def build_plan(directory: RunPath, settings: RunSettings | None = None, /, **options: object) -> Plan:
    """Build the plan of a run's measured phase in folder *directory* and open it; nothing is sent.

    *options* are those of `fastllmload plan`, or *settings* replaces them; a target needs `model=`, as no server is asked.
    InputError for options of which no plan can be made, HostLimitError for a full disk.
    """
    from fastllmload.cli.commands.plan import build_in

    wanted, _ = _settings_and_key(settings, options, Redactor([]))
    if wanted.output.plan is not None:
        raise InputError("option-not-applicable", "plan names a finished plan; open it with fastllmload.load_plan")
    return build_in(Path(directory), wanted)


def compare(
    base: RunPath | Run | Sequence[RunPath | Run],
    new: RunPath | Run | Sequence[RunPath | Run],
    *,
    figures: Sequence[str] = (),
    test: str = "auto",
    different_workload: bool = False,
) -> Comparison:
    """Compare two sides, each one run or several of the same configuration: each figure's difference with a 95 % interval,
    test and effect size.

    *figures* such as "p99_ttft_ms" replace the usual ones; *test* for several runs a side: auto, welch, paired or
    mann-whitney. InputError when the runs had different workloads, unless *different_workload*, and for unknown figures.
    """
    from fastllmload.compare.between import TESTS
    from fastllmload.compare.comparison import compare as compared
    from fastllmload.compare.side import distinct_names, read_side

    if test not in TESTS:
        raise InputError("choice-unknown", f"test {test!r} does not exist; use one of {', '.join(TESTS)}")
    first, second = distinct_names([read_side(_folders(side)) for side in (base, new)])
    return compared(first, second, figures, test, different_workload)


def search(**options: object) -> SearchResult:
    """Find the highest rate or concurrency at which objectives hold.

    *options* are those of `fastllmload search`: `search(url=..., minimum=1, max=64, goodput={"ttft": 500})`. The same
    call with the same `output` continues a search that was stopped. Nothing is printed unless *ui* is given ("plain").

    InputError, TargetError and Interrupted as for `run`; what was measured before is kept in the folder.
    """
    from fastllmload.cli.commands.search import GENERAL, OWN, read_search
    from fastllmload.cli.options.sources import from_table
    from fastllmload.experiment.console import Console
    from fastllmload.search.run import run_search

    own = (*OWN, *GENERAL)
    redact = Redactor([])
    given = from_table({"ui": "none", **_given(options)}, "", "", own)
    found = read_search(given, redact)
    silent = found.settings.output.ui == "none"
    console = Console(redact, quiet=silent, warnings=not silent)
    run_search(found.settings, found.secret, found.parameters, found.terms, console)
    return SearchResult.open(found.terms.folder)


@dataclass(frozen=True)
class SearchResult:
    """The answer of a search, from search.json in *directory*. Levels are requests/s, or requests in flight."""

    directory: Path
    document: Mapping[str, Any]

    @classmethod
    def open(cls, directory: RunPath) -> SearchResult:
        """Read the search in folder *directory*, also one that did not finish. InputError when it is not a search's."""
        from fastllmload.documents.search import SearchDocument
        from fastllmload.experiment.journal import read_stored
        from fastllmload.search.report import JSON

        folder = Path(directory)
        return cls(folder, read_stored(folder, SearchDocument, JSON)[0])

    @cached_property
    def _found(self) -> SearchDocument:
        from fastllmload.documents.procedure import experiment_document
        from fastllmload.documents.search import SearchDocument

        return experiment_document(self.document, SearchDocument)

    @property
    def _answer(self) -> Answer:
        from fastllmload.documents.search import Answer

        return self._found.answer or Answer()

    @property
    def level(self) -> float | None:
        """The highest level that holds; None when none was found."""
        return self._answer.level

    @property
    def low(self) -> float | None:
        """Lower end of the interval of the highest level that holds; None when it is open."""
        return self._answer.low

    @property
    def high(self) -> float | None:
        """Upper end of that interval; None when it is open: no level failed."""
        return self._answer.high

    @property
    def levels(self) -> list[dict[str, Any]]:
        """The levels that were measured, ascending: `level`, `decision`, `reason`, `seconds`, `figures`."""
        from fastllmload.documents.write import plain

        return [plain(decision) for decision in self._found.decisions]

    @property
    def warnings(self) -> list[str]:
        """What the reader of the answer should know, one sentence each."""
        return list(self._found.warnings)

    def __repr__(self) -> str:
        """One line: folder, end, answer."""
        return f"<SearchResult {self.directory} {self._found.status}, level {self.level}, {self.low} to {self.high}>"


def _settings_and_key(
    settings: RunSettings | None, options: Mapping[str, object], redact: Redactor
) -> tuple[RunSettings, Secret | None]:
    """From *options*, or *settings* with the API key of *options* or of the environment."""
    from msgspec.structs import replace

    from fastllmload.cli.options import reading
    from fastllmload.cli.options.rules import validate_traffic
    from fastllmload.cli.options.sources import from_table

    given = _given(options)
    if settings is None:
        return reading.read_settings(from_table({"ui": "none", **given}, "", ""), os.environ, redact)
    if given.keys() - {"api_key"}:
        raise InputError("options-conflict", f"settings and {min(given.keys() - {'api_key'})} are both given; give one")
    _, secret = reading.read_settings(from_table(given, "", ""), os.environ, redact, complete=False)
    if not settings.classes and settings.output.plan is None:
        validate_traffic(settings)
    if settings.output.ui == "auto":  # the default of the settings, which is meant for a terminal
        settings = replace(settings, output=replace(settings.output, ui="none"))
    return settings, secret


def _given(options: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in options.items() if value is not None}


def _folders(side: RunPath | Run | Sequence[RunPath | Run]) -> list[str]:
    if isinstance(side, str | os.PathLike | Run):
        return _folders([side])
    return [str(one.directory) if isinstance(one, Run) else os.fspath(one) for one in side]


def _view(mode: str, redact: Redactor) -> Ui:
    from fastllmload.report.terminal.view import make_ui

    return make_ui(mode, io.StringIO() if mode == "none" else sys.stdout, redact)


class FolderRecorder:
    """A view that records the folder of the run; all other calls go to *view*."""

    def __init__(self, view: Ui) -> None:
        self._view = view
        self.folder = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._view, name)

    def finish(self, document: RunDocument, folder: str | None = None) -> None:
        assert folder is not None  # the engine always passes it
        self.folder = folder
        self._view.finish(document, folder)
