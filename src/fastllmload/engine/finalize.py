"""After the clock: merge the workers' files, measure, judge, write run.json, choose the exit code."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from fastllmload.documents.run import Phase, RunDocument
from fastllmload.engine.recording.folder import Folder
from fastllmload.engine.run_plans import RunPhase
from fastllmload.errors import HostLimitError
from fastllmload.plan.plan import FOLLOWS
from fastllmload.records.integrity import EVENTS, ROWS
from fastllmload.records.run import DONE
from fastllmload.settings import RunSettings

if TYPE_CHECKING:
    from fastllmload.engine.hosts.kept.events import Ask
    from fastllmload.records.merge import PlannedPhase

OBJECTIVE_MISSED, HOST_LIMIT, TARGET_FAILED, INTERRUPTED, OWN_FAULT = 1, 2, 3, 4, 70


@dataclass
class RunStatus:
    """How a run ended. *killed*: workers that a signal ended; *crashed*: workers that failed by themselves;
    *engine_killed*, *engine_crashed*: the same for the simulated engine; *target_lost*: the target stopped taking
    connections before the measurement; *not_prepared*: a server did not do what `--between` asks.
    """

    interrupted: bool = False
    disk_full: bool = False
    killed: int = 0
    crashed: int = 0
    engine_killed: bool = False
    engine_crashed: bool = False
    target_lost: bool = False
    not_prepared: bool = False

    @property
    def status(self) -> str:
        if self.interrupted:
            return "interrupted"
        failed = self.killed or self.crashed or self.engine_killed or self.engine_crashed or self.target_lost
        failed = failed or self.not_prepared
        return "partial" if self.disk_full or failed else DONE


def finalize(folder: Folder, phases: Sequence[RunPhase], run_status: RunStatus, ask: Ask | None = None) -> RunDocument:
    """Complete run.json, save it and return it. On a full disk the workers' files are kept and read instead of merged.
    *ask*: asks hosts about their events, where these stay there (`engine.hosts.kept.events`).
    """
    from fastllmload.certificate.judge import judged
    from fastllmload.certificate.monitor import join_watches
    from fastllmload.compliance.evidence import of_run
    from fastllmload.compliance.verdict import compliance_of
    from fastllmload.engine.hosts.kept.events import gather
    from fastllmload.metrics.run.measure import measure
    from fastllmload.records.error_texts import read_texts, with_backends
    from fastllmload.records.hosts import incomplete, read_clocks, with_clocks
    from fastllmload.records.integrity import inventory
    from fastllmload.records.merge import merge_workers
    from fastllmload.records.run import load
    from fastllmload.records.tap_times import Taps, with_taps
    from fastllmload.report.documents.forms import write_reports
    from fastllmload.report.text.tokens import has_tokens
    from fastllmload.telemetry.summary import added

    if ask is None:
        remove_empty_workers(folder)
    hosts = with_clocks(folder.path, folder.document.hosts)
    names = with_backends(folder.path, folder.document.backend_names)
    folder.update(error_texts=read_texts(folder.path), backend_names=names, hosts=hosts)
    if hosts:
        for each in incomplete(folder.path, hosts):
            folder.incident("host-file-cut", each)
        join_watches(folder.path, hosts, read_clocks(folder.path, hosts))
        if len(sources := {host.timestamps for host in hosts}) == 1 and (source := sources.pop()) is not None:
            folder.update(config=with_timestamps(folder.document.config, source))  # of `auto`
    planned = planned_phases(folder.document.phases, phases)
    taps: Taps = {}
    try:
        if ask is None:
            merge_workers(folder.path, planned, taps=taps, hosts=hosts)
        else:
            run_status.killed += gather(folder, planned, run_status.status != DONE, ask)
    except HostLimitError as problem:
        run_status.disk_full = True
        folder.incident(problem.code, problem.message)
        for part in folder.path.glob("*.part"):
            part.unlink()
    folder.document = with_taps(folder.document, taps)
    folder.update(disk_full=run_status.disk_full, files=inventory(folder.path))
    run = replace(load(folder.path), incomplete=run_status.status != DONE)
    run = run.with_document(measure(run.with_document(folder.document)))
    run = run.with_document(added(run))
    run = run.with_document(judged(run)).changed(status=run_status.status)
    folder.document = run.document
    folder.save()  # the measurements are saved before the compliance checks run
    if has_tokens(run.document):  # what the draft is about
        run = run.changed(compliance=compliance_of(of_run(run)))
    folder.document = run.document
    folder.save()
    if problems := write_reports(run):
        folder.update(incidents=(*folder.document.incidents, *problems))
        folder.save()
    return folder.document


def with_timestamps(config: RunSettings, source: str) -> RunSettings:
    return msgspec.structs.replace(config, client=msgspec.structs.replace(config.client, timestamps=source))


def remove_empty_workers(folder: Folder) -> None:
    """Remove folders of workers that died before they created their files; the incidents contain their last message. Of a
    worker on another host the rows may have been copied without the events.
    """
    needed = (ROWS,) if folder.document.hosts else (ROWS, EVENTS)
    for worker in (folder.path / "workers").iterdir():
        if worker.name.isdecimal() and not all((worker / name).exists() for name in needed):
            shutil.rmtree(worker)


def planned_phases(begun: Sequence[Phase], phases: Sequence[RunPhase]) -> list[PlannedPhase]:
    """Those of the open-loop *phases* that have *begun* (`phases` of run.json): requests of them that were never dispatched
    get a row too.
    """
    from fastllmload.records.merge import PlannedPhase

    start = {phase.name: phase.start_ns for phase in begun}
    return [
        PlannedPhase(
            phase.code,
            np.where(phase.plan.t_sched < 0, FOLLOWS, phase.plan.t_sched + start[phase.name]),
            phase.plan.input_tokens,
            phase.plan.output_tokens,
            phase.plan.request_class,
            None if phase.plan.turns is None else phase.plan.turns["session"],
        )
        for phase in phases
        if phase.plan.t_sched is not None and phase.name in start
    ]


def all_left_by_plan(document: RunDocument) -> bool:
    """Whether the simulated users cancelled all requests, as configured: this is not a failure of the target."""
    left = None if document.users is None else document.users.left_by_plan
    return bool(left) and left == document.counts.dispatched


def exit_code(document: RunDocument, run_status: RunStatus, strict: bool) -> int:
    """Exit code of a run that has a report. All cases: docs/running.md."""
    if run_status.interrupted:
        return INTERRUPTED
    if run_status.crashed or run_status.engine_crashed:
        return OWN_FAULT
    if run_status.disk_full or run_status.killed or run_status.engine_killed:
        return HOST_LIMIT
    if not document.completed and not all_left_by_plan(document):
        return TARGET_FAILED
    if strict and (document.certificate is None or document.certificate.verdict != "valid"):
        return OBJECTIVE_MISSED
    return 0
