"""After the clock: merge the workers' files, measure, judge, write run.json, choose the exit code."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastllmload.engine.recording.folder import Folder
from fastllmload.engine.workers.assignment import RunPhase
from fastllmload.errors import HostLimitError
from fastllmload.plan.plan import FOLLOWS
from fastllmload.records.run import DONE

OBJECTIVE_MISSED, HOST_LIMIT, TARGET_FAILED, INTERRUPTED, OWN_FAULT = 1, 2, 3, 4, 70


@dataclass
class RunStatus:
    """What befell a run on its way. *killed*: workers that a signal ended; *crashed*: workers that failed by
    themselves; *engine_killed*, *engine_crashed*: the simulated engine did; *deserted*: the target went away before
    anything was measured.
    """

    interrupted: bool = False
    disk_full: bool = False
    killed: int = 0
    crashed: int = 0
    engine_killed: bool = False
    engine_crashed: bool = False
    deserted: bool = False

    @property
    def status(self) -> str:
        """run.json "status"."""
        if self.interrupted:
            return "interrupted"
        lost = self.killed or self.crashed or self.engine_killed or self.engine_crashed or self.deserted
        return "partial" if self.disk_full or lost else DONE


def finalize(folder: Folder, phases: Sequence[RunPhase], run_status: RunStatus) -> dict[str, Any]:
    """The whole run.json, written. Where the disk has no room for merged files the workers' own stay, and are read."""
    from fastllmload.certificate.judge import judge
    from fastllmload.compliance.evidence import of_run
    from fastllmload.compliance.verdict import compliance_of
    from fastllmload.metrics.run.measure import measure
    from fastllmload.records.error_texts import read_texts
    from fastllmload.records.integrity import inventory
    from fastllmload.records.merge import merge_workers
    from fastllmload.records.run import load
    from fastllmload.report.documents.files import write_reports
    from fastllmload.telemetry.summary import added

    drop_empty(folder)
    folder.manifest["error_texts"] = read_texts(folder.path)
    try:
        merge_workers(folder.path, planned_phases(folder, phases), tap=folder.manifest.get("tap"))
    except HostLimitError as problem:
        run_status.disk_full = True
        folder.manifest["incidents"].append(str(problem))
        for part in folder.path.glob("*.part"):
            part.unlink()
    folder.manifest["disk_full"] = run_status.disk_full
    folder.manifest["files"] = inventory(folder.path)
    run = replace(load(folder.path), manifest=folder.manifest, incomplete=run_status.status != DONE)
    folder.manifest.update(measure(run))
    folder.manifest.update(added(run, folder.manifest))
    folder.manifest["certificate"] = judge(run)
    folder.manifest["status"] = run_status.status
    folder.save()  # what was measured is safe before anybody judges how
    folder.manifest["compliance"] = compliance_of(of_run(run))
    folder.save()
    problems = write_reports(run, folder.manifest)
    if problems:
        folder.manifest["incidents"].extend(problems)
        folder.save()
    return folder.manifest


def drop_empty(folder: Folder) -> None:
    """A worker that died before it made its files has left nothing to merge; its last words are in the incidents."""
    for rows in (folder.path / "workers").iterdir():
        if rows.is_dir() and not ((rows / "requests.npy").exists() and (rows / "tokens.npy").exists()):
            shutil.rmtree(rows)


def planned_phases(folder: Folder, phases: Sequence[RunPhase]) -> list[Any]:
    """Open-loop phases that began: their requests that were never dispatched get a row too."""
    from fastllmload.records.merge import PlannedPhase

    start = {entry["name"]: entry["start_ns"] for entry in folder.manifest["phases"]}
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


def all_left_by_plan(document: dict[str, Any]) -> bool:
    """Whether nobody was there for an answer any more, as was asked for: no failure of the target."""
    left = (document.get("users") or {}).get("left_by_plan", 0)
    return bool(left) and left == (document.get("counts") or {}).get("dispatched")


def exit_code(document: dict[str, Any], run_status: RunStatus, strict: bool) -> int:
    """Of a run that came to its report. Reasons: docs/decisions/006-exit-codes.md."""
    if run_status.interrupted:
        return INTERRUPTED
    if run_status.crashed or run_status.engine_crashed:
        return OWN_FAULT
    if run_status.disk_full or run_status.killed or run_status.engine_killed:
        return HOST_LIMIT
    if not document.get("completed") and not all_left_by_plan(document):
        return TARGET_FAILED
    if strict and document["certificate"]["verdict"] != "valid":
        return OBJECTIVE_MISSED
    return 0
