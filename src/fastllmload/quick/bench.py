"""`fastllmload quick`: asiai's benchmark protocol, one short run per engine, and a table if there are several engines.

Few requests of each prompt type, one at a time, at temperature 0. It does not measure load; the methodology's tests are
`fastllmload procedure`. Prompts repeat, as asiai specifies: if the engine caches prefixes, the TTFT of later runs is that of
a cached prompt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from fastllmload.documents.run import RunDocument
from fastllmload.engine.preflight.addresses import parse_base
from fastllmload.engine.preflight.probe import ServerProbe
from fastllmload.engine.run import execute
from fastllmload.engine.simulated_target import simulated_target
from fastllmload.errors import TargetError
from fastllmload.experiment.level.settings import changed
from fastllmload.metrics.levels.asiai import ProtocolBlock
from fastllmload.report.blocks import Block, Facts, Paragraph, Table
from fastllmload.report.documents import asiai
from fastllmload.report.documents.subject import subject_of
from fastllmload.report.render import text
from fastllmload.report.terminal.outlet import Outlet, Redact, Writable
from fastllmload.report.terminal.snapshot import Snapshot
from fastllmload.report.terminal.view import Ui, make_ui
from fastllmload.report.text.verdict import verdict
from fastllmload.settings import Load, RunSettings, Secret
from fastllmload.workload.dataset import read_dataset

PROMPTS = Path(__file__).with_name("prompts.jsonl")
RUNS = 3
WARMUP_PROMPT, WARMUP_TOKENS = "Hello", 1
CARD = {"sut.model.format": "format", "sut.model.quantization": "quantization_level"}  # declaration: Ollama's key


def prompt_types() -> list[str]:
    """The classes of the prompts, in the order in which they are sent."""
    return read_dataset("custom", PROMPTS, None).classes()


def as_run(asked: RunSettings, runs: int) -> RunSettings:
    """Settings of one engine's run: every prompt type in turn, *runs* times. Target, client and output are as *asked*."""
    load = Load(
        concurrency=1,
        num_requests=runs * len(prompt_types()),
        warmup_requests=0,  # `warmup` sends the protocol's own before
        timeout=asked.load.timeout,
        grace=asked.load.grace,
    )
    labels = (("profile", "quick"), *(pair for pair in asked.output.metadata if pair[0] != "profile"))
    workload = {"name": "custom", "dataset_path": str(PROMPTS), "temperature": 0.0, "ignore_eos": False}
    kept = changed(asked, workload=workload, client={"workers": 1}, output={"metadata": labels})
    return msgspec.structs.replace(kept, load=load)


def engines(asked: RunSettings) -> list[RunSettings]:
    """Settings of one run per URL, each with its own folder; without URL, of one run of the simulated engine."""
    urls = asked.target.urls
    if len(urls) < 2:
        return [asked]
    return [
        changed(asked, target={"urls": (url,)}, output={"directory": folder_of(asked.output.directory, number)})
        for number, url in enumerate(urls, 1)
    ]


def folder_of(directory: str | None, number: int) -> str | None:
    return None if directory is None else str(Path(directory) / f"engine-{number}")


def warm_up(settings: RunSettings, url: str, secret: Secret | None, redact: Redact) -> RunSettings:
    """Send the request. Returns the settings with the model's name, and with format and quantization from the server's
    model card if the user has not declared them. TargetError if the server cannot be reached or does not answer.
    """
    key = None if secret is None else secret.reveal()
    probe = ServerProbe(settings, parse_base(url, settings.target.unix_socket), key, redact)
    probe.reach([])
    model = probe.model(settings.target.model)
    probe.send_once(model, WARMUP_PROMPT, WARMUP_TOKENS)
    declared = (*settings.output.declare, *from_card(probe.model_entry(model), dict(settings.output.declare)))
    return changed(settings, target={"model": model}, output={"declare": declared})


def from_card(card: Mapping[str, Any], declared: Mapping[str, str]) -> list[tuple[str, str]]:
    """Declarations from the model's *card* that the user has not made."""
    details = card.get("details")
    if not isinstance(details, Mapping):
        return []
    found = {name: details.get(key) for name, key in CARD.items() if name not in declared}
    return [(name, value) for name, value in found.items() if isinstance(value, str) and value]


INTERRUPTED = 4
WARMED_UP = f"warm-up: one request {WARMUP_PROMPT!r} with max_tokens {WARMUP_TOKENS}, sent"


@dataclass
class BlockView:
    """Forwards everything to *view* except the closing summary, which the block replaces."""

    view: Ui
    folder: Path | None = None
    document: RunDocument = field(default_factory=RunDocument)

    def banner(self, lines: Sequence[str]) -> None:
        """Prints the protocol's own warm-up, which is sent before the run, in place of the run's line."""
        kept = [line for line in lines if not line.startswith("warm-up:")]
        self.view.banner(kept if len(kept) == len(lines) else [*kept, WARMED_UP])

    def phase(self, name: str, planned: int | None, seconds: float | None) -> None:
        self.view.phase(name, planned, seconds)

    def due(self, t: float) -> bool:
        return self.view.due(t)

    def update(self, snapshot: Snapshot) -> None:
        self.view.update(snapshot)

    def message(self, text: str) -> None:
        self.view.message(text)

    def finish(self, document: RunDocument, folder: str | None = None) -> None:
        self.document, self.folder = document, None if folder is None else Path(folder)

    def close(self) -> None:
        self.view.close()


def bench(asked: RunSettings, secret: Secret | None, runs: int, stream: Writable, redact: Redact) -> int:
    """Run all engines; the largest of their exit codes. An engine that cannot be reached is left out, which is printed."""
    outlet, codes, measured = Outlet(stream, redact), [0], []
    each = engines(asked)

    def show(blocks: Iterable[Block]) -> None:
        outlet.write("\n" + text.render(blocks))
        outlet.flush()

    for settings in each:
        try:
            code, view = one_engine(settings, secret, runs, stream, redact)
        except TargetError as problem:
            if len(each) == 1:
                raise
            outlet.write(f"left out: {problem}\n")
            codes.append(problem.exit_code)
            continue
        codes.append(code)
        if view.folder is not None:
            measured.append((settings, asiai.figures(subject_of(view.folder))))
            show(closing(view))
        if code == INTERRUPTED:
            break
    if len(measured) > 1:
        show([side_by_side(measured)])
    return max(codes)


def one_engine(
    settings: RunSettings, secret: Secret | None, runs: int, stream: Writable, redact: Redact
) -> tuple[int, BlockView]:
    """Warm up and run. Returns (exit code, view with the run's folder and document)."""
    view = BlockView(make_ui(settings.output.ui, stream, redact))
    with simulated_target(settings.target) as (urls, simulator):
        prepared = warm_up(as_run(settings, runs), urls[0], secret, redact)
        return execute(prepared, secret, view, simulator), view


def closing(view: BlockView) -> Iterator[Block]:
    """The block, the verdict on the client, and the run's folder."""
    assert view.folder is not None
    yield from asiai.blocks(subject_of(view.folder))
    yield verdict(view.document)
    yield Paragraph("One request at a time says nothing about load.")
    yield Facts([("run", str(view.folder))])


def side_by_side(measured: Sequence[tuple[RunSettings, ProtocolBlock]]) -> Table:
    """One row per engine, with its power."""
    columns = ["Engine", "tok/s median", "Mean", "Std dev", "TTFT median (ms)", "Power (W)", "tok/s per W", "Failed"]
    rows = [
        [settings.target.urls[0], found.gen_tok_s.median, found.gen_tok_s.mean, found.gen_tok_s.pooled_std,
         found.ttft_ms.median, found.power_w, found.tok_s_per_w, found.n_failed]
        for settings, found in measured
    ]  # fmt: skip
    return Table("Engines", columns, rows)
