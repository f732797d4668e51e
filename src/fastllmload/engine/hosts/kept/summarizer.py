"""The process that concludes a host whose events stay there: `python -m fastllmload.engine.hosts.kept.summarizer`.

Settings: `SummarySpec`, a line of JSON on stdin. It merges the files of the host's workers, writes the requests, in the
driver's clock, to `hosts/<h>/summary`, and prints `MergedHost`. When a further line arrives, the driver's questions are in
`QUESTIONS`: it answers with `event_totals.npy` and `event_summary.json`, and makes the folder one that `report` opens, with
this host's figures. The workers' files stay as they are.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from fastllmload.certificate.event_summary import summarize
from fastllmload.certificate.judge import judged
from fastllmload.certificate.monitor import join_watches
from fastllmload.documents.run_parts.counts import Counts
from fastllmload.documents.run_parts.hosts import HostEntry, Tap
from fastllmload.documents.write import encoded, values
from fastllmload.engine.finalize import planned_phases
from fastllmload.engine.hosts.kept.events import Questions
from fastllmload.engine.hosts.kept.summary import DOCUMENT, QUESTIONS, MergedHost, SummarySpec
from fastllmload.engine.run_plans import MEASURE, PHASES, RunPhase
from fastllmload.errors import FastLLMLoadError
from fastllmload.metrics.run.measure import measure
from fastllmload.metrics.run.window import Window
from fastllmload.plan.plan import Plan
from fastllmload.records.error_texts import read_texts, with_backends
from fastllmload.records.event_totals import SUMMARY, TOTALS, summary_path
from fastllmload.records.hosts import read_clocks, with_clocks
from fastllmload.records.integrity import ROWS, inventory
from fastllmload.records.merge import merge_in_memory
from fastllmload.records.npy import read_array
from fastllmload.records.run import Run, read_document
from fastllmload.records.samples import SAMPLES

NICE = 10


class HostFolder:
    """The folder of an agent, with the files of its workers and the driver's run.json."""

    def __init__(self, folder: Path, host: int) -> None:
        self.folder, self.host = folder, host
        self.run: Run | None = None

    def merge(self, phases: Sequence[RunPhase]) -> MergedHost:
        """Merge the rows and events of the workers, in memory or unnamed files, and write the rows for the driver."""
        document = read_document(self.folder)
        hosts = with_clocks(self.folder, document.hosts)
        own = next(host for host in hosts if host.host == self.host)
        join_watches(self.folder, hosts, read_clocks(self.folder, hosts))
        planned = planned_phases(document.phases, phases)
        merged = merge_in_memory(self.folder, hosts, planned, own.workers)
        self.run = Run(
            directory=self.folder,
            document=document,
            rows=merged.rows,
            events=merged.events,
            first_event=merged.first_event,
            samples=read_array(self.folder / SAMPLES, shape=(None,)),
            text=merged.text,
            damaged=merged.damage,
        )
        place = summary_path(self.folder, self.host, ROWS)
        place.parent.mkdir(parents=True, exist_ok=True)
        np.save(place, merged.rows)
        joined = merged.taps.get(self.host, Tap())
        return MergedHost(events=len(merged.events), last_event_ns=self.run.last_event_ns, tap=joined)

    def answer(self, questions: Questions) -> None:
        """Write the totals and the summary for the driver, then run.json with the figures of this host."""
        assert self.run is not None
        run = replace(self.run, document=read_document(self.folder), incomplete=questions.incomplete)
        reasoned = Counts(reasoned=questions.reasoned)  # decides which figures are headlines
        names = with_backends(self.folder, run.document.backend_names)
        run = run.changed(error_texts=read_texts(self.folder), backend_names=names, counts=reasoned)
        host = next(each for each in run.document.hosts if each.host == self.host)
        window = None if questions.window is None else Window(*questions.window)
        unread = np.array(questions.unread, np.int64).reshape(-1, 2)
        totals, summary = summarize(run, host, window, unread, questions.distances)
        np.save(summary_path(self.folder, self.host, TOTALS), totals)
        summary_path(self.folder, self.host, SUMMARY).write_bytes(msgspec.json.encode(values_of(summary)))
        self._conclude(run, host)

    def _conclude(self, run: Run, host: HostEntry) -> None:
        document = run.document
        run = run.changed(
            excluded_hosts=tuple(each.host for each in document.hosts if each.host != self.host),
            workers=tuple(each for each in document.workers if each.worker in host.workers),
            tap=host.tap,
            files=inventory(self.folder),
        )
        run = run.with_document(measure(run))
        part = self.folder / f"{DOCUMENT}.part"
        part.write_bytes(encoded(judged(run)))
        part.replace(self.folder / DOCUMENT)


def received_plans(folder: Path) -> list[RunPhase]:
    """The plans in *folder*, without their bodies; the measured one stays in the record of the run."""
    found = []
    for name, code, directory in PHASES:
        if (place := folder / "plans" / directory).is_dir():
            plan = Plan.open(place, bodies=False)
            found.append(RunPhase(name, code, plan))
            if directory == MEASURE:
                plan.write_record(folder / "plan")
    return found


def values_of(summary: Any) -> Any:
    """A `HostSummary` as plain values."""
    return values(msgspec.structs.asdict(summary))


def main() -> int:
    spec = msgspec.json.decode(sys.stdin.buffer.readline(), type=SummarySpec)
    os.nice(NICE)
    folder = HostFolder(Path(spec.folder), spec.host)
    try:
        merged = folder.merge(received_plans(folder.folder))
        sys.stdout.buffer.write(msgspec.json.encode(merged) + b"\n")
        sys.stdout.buffer.flush()
        if sys.stdin.buffer.readline():
            folder.answer(msgspec.json.decode((folder.folder / QUESTIONS).read_bytes(), type=Questions))
    except FastLLMLoadError as problem:
        print(problem.message, file=sys.stderr)
        return 1
    except OSError as problem:
        print(f"{problem.filename}: {(problem.strerror or str(problem)).lower()}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
