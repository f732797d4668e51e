"""Builds the certificate's evidence from a run folder: selects rows and samples, and marks what is not known."""

from __future__ import annotations

import math
from dataclasses import replace

import msgspec
import numpy as np
import numpy.typing as npt

from fastllmload._ext.record.histogram import WORDS
from fastllmload.arrays import Mask, Rows, Values
from fastllmload.arrivals.choice import choose_arrivals
from fastllmload.arrivals.curve import described_curve
from fastllmload.arrivals.process import OnOff, Renewal
from fastllmload.certificate import caps, monitor, slots
from fastllmload.certificate.arrivals import EARLY_NS
from fastllmload.certificate.ceiling import Ceiling
from fastllmload.certificate.error_bounds import itl_error_ns, ttft_error_ns
from fastllmload.certificate.evidence import (
    BRACKET_CLASSES,
    BRACKET_LEAST_NS,
    LATE_NS,
    ArrivalEvidence,
    CertificateEvidence,
    HostRecord,
    MeasuredWindow,
    Sends,
    Stamps,
    Times,
    WorkerRecord,
    bracket_class,
)
from fastllmload.certificate.figures import headline_figures
from fastllmload.certificate.per_second import seconds_of, summarize
from fastllmload.certificate.usage import largest_target_share, overlapping
from fastllmload.documents.event_summary import StampCounts
from fastllmload.documents.fields import known
from fastllmload.documents.plan import LoadDescription, PlanDescription
from fastllmload.documents.run_parts.hosts import HostEntry, WatchFacts
from fastllmload.documents.write import plain
from fastllmload.errors import RunFolderError
from fastllmload.metrics.run.bounds import earliest
from fastllmload.metrics.run.success import own_failures
from fastllmload.metrics.run.window import Window, on_schedule, read_slowly, unsent, window_of
from fastllmload.metrics.tokens.timeline import stretches
from fastllmload.plan.plan import DOCUMENT, Plan, read_document
from fastllmload.records import layout
from fastllmload.records.hosts import LOST, followed_within_ns, read_clocks, read_of_host
from fastllmload.records.run import Run
from fastllmload.settings import Load
from fastllmload.statistics.hdr_sample import HdrSample

INT64 = np.dtype(np.int64)
EVENTS_AT_ONCE = 1 << 17
BATCH_NS = 1_000_000  # events of one read that came within this time were sent together
TIMED = (layout.EVENT_CONTENT, layout.EVENT_WHITESPACE, layout.EVENT_REASONING, layout.EVENT_TOOL, layout.EVENT_REFUSAL)


def from_run(run: Run, host: HostEntry | None = None) -> CertificateEvidence:
    """The evidence of the measure phase; *host*: the only one whose requests *run* has, of a run over many. RunFolderError
    when a file of the run is damaged.
    """
    window = measured_window(window_of(run))
    rows = run.rows[run.rows["phase"] == layout.MEASURE]
    facts, lacking = run.document.watch, own_failures(rows)
    per_worker = histograms(run)
    of_others = bool(run.document.excluded_hosts) or any(each.status == LOST for each in run.document.hosts)
    partial = host is not None or of_others
    released = replace(sends(run, rows, sending_window(run, rows, window)), partial=partial)
    records = worker_records(run, window, per_worker, facts)
    return CertificateEvidence(
        window=sending_window(run, rows, window),
        sends=released,
        stamps=stamps(run, window, records),
        workers=records,
        seconds=summarize(seconds_of(run, window, released, records)),
        host=host_record(run, facts, host),
        ceiling=None if facts.ceiling is None else msgspec.convert(plain(facts.ceiling), Ceiling),
        no_fd=int(np.count_nonzero(lacking["no_fd"])),
        no_port=int(np.count_nonzero(lacking["no_port"])),
        no_memory=int(np.count_nonzero(lacking["no_memory"])),
        disk_full=bool(run.document.disk_full),
        figures=headline_figures(run.document),
        plan_lead_ns=plan_lead_ns(run, rows),
        ok=answered(rows),
    )


def measured_window(window: Window | None) -> MeasuredWindow:
    """*window* with an end that does not belong to it."""
    if window is None:
        return MeasuredWindow(0, 0)
    return MeasuredWindow(window.w0_ns, window.w1_ns + window.closed, window.closed)


def answered(rows: Rows) -> int | None:
    """Requests that are ok; None where none failed: then 0 means that all simulated users left, as configured."""
    failed = (rows["status"] > layout.OK) & (rows["status"] != layout.CANCELLED)
    return int(np.count_nonzero(rows["status"] == layout.OK)) if failed.any() else None


def plan_lead_ns(run: Run, rows: Rows) -> int | None:
    """Time from the completion of the plan to the first release, the least by which the plan was ahead of the clock."""
    complete, due = run.document.plan.whole_ns, rows["t_sched"][rows["t_sched"] > 0]
    return None if complete is None or not len(due) else int(due.min()) - int(complete)


def sending_window(run: Run, rows: Rows, window: MeasuredWindow) -> MeasuredWindow:
    """The window in which releases are judged: the measurement window, or shorter where the run is bounded by count.

    A run bounded by count measures until the last request ends, long after the last release; its window ends at the last
    release. In a closed loop all ends but the last ones cause a release, so its window is the measurement window including
    the first fill.
    """
    phase, rows = run.phase("measure"), rows[on_schedule(plan_description(run), rows["request_class"])]
    planned = rows["t_sched"][rows["t_sched"] > 0]
    if (phase is not None and phase.bound == "duration") or not len(planned):
        return window
    start = int(planned.min()) if phase is None else phase.start_ns
    if arrivals_of(run).process == "closed":
        return MeasuredWindow(start, max(start, window.end_ns))
    end = int(max(planned.max(), rows["t_dispatch"].max())) + 1
    if phase is not None and phase.end_ns is not None and run.incomplete:
        end = min(end, phase.end_ns)
    return MeasuredWindow(start, max(start, end))


# -- releases ---------------------------------------------------------------------------------------------------------


def arrivals_of(run: Run) -> ArrivalEvidence:
    """The configured arrival process, from the plan where the folder has one, else from the settings."""
    phase = run.phase("measure")
    zero = 0 if phase is None else phase.start_ns
    load = plan_description(run).load
    if load.loop is not None or load.arrivals is not None:
        return described_arrivals(load, zero)
    return arrivals_of_settings(run.document.config.load, zero)


def plan_description(run: Run) -> PlanDescription:
    """The plan's description of itself; from run.json where plan.json is damaged; empty where the folder has no plan."""
    if not (run.directory / "plan" / DOCUMENT).exists():
        return PlanDescription()
    try:
        if f"plan/{DOCUMENT}" not in run.damaged:
            return read_document(run.directory / "plan").description
    except RunFolderError:
        pass  # a run without a list of its files: run.json has the same description
    return run.document.plan.description


def described_arrivals(load: LoadDescription, zero_ns: int) -> ArrivalEvidence:
    """The arrival process from the load section of a plan's description."""
    found = load.arrivals
    if found is None or found.name is None or found.rate is None:
        return ArrivalEvidence("closed", zero_ns=zero_ns)
    rate = math.inf if found.rate == "inf" else float(found.rate)
    return ArrivalEvidence(
        found.name,
        rate,
        known(found.burstiness),
        known(found.on_s),
        known(found.off_s),
        zero_ns,
        None if found.curve is None else described_curve(found.curve),
    )


def class_arrivals(run: Run, zero_ns: int) -> tuple[tuple[str, int, ArrivalEvidence], ...]:
    """Name, number and arrival process of each request class of a mixed workload; () without classes."""
    classes = plan_description(run).classes
    return tuple(
        (one.name, number, described_arrivals(one.load, zero_ns))
        for number, one in enumerate(classes)
        if one.requests and one.name is not None and one.load is not None and one.load.arrivals is not None
    )


def arrivals_of_settings(load: Load, zero_ns: int) -> ArrivalEvidence:
    if load.concurrency is not None or load.rate is None:
        return ArrivalEvidence("closed", zero_ns=zero_ns)
    rate = load.rate
    process = choose_arrivals(load.arrival, rate, load.burstiness)
    shape = process.shape if isinstance(process, Renewal) else None
    on, off = (process.on, process.off) if isinstance(process, OnOff) else (None, None)
    return ArrivalEvidence(process.name, rate, shape, on, off, zero_ns)


def sends(run: Run, rows: Rows, window: MeasuredWindow) -> Sends:
    """Releases of the measure phase ordered by t_sched; first fills, and in a mix closed loops, are kept separately."""
    arrivals, clock_ns = arrivals_of(run), int(run.clock_errors_ns(rows).max(initial=0))
    described, every = plan_description(run), rows[rows["t_dispatch"] > 0]
    of_slots = np.isin(every["request_class"], list(described.closed_classes)) | (arrivals.process == "closed")
    fill = np.zeros(len(every), np.bool_)
    if of_slots.any():
        first = int(every["t_sched"][of_slots].min())
        fill = of_slots & (every["t_sched"] <= max(arrivals.zero_ns, first) + clock_ns)
    load = run.document.config.load
    prefill = caps.spans_of_workers(run, every, caps.first_tokens(every), load.max_prefill)
    if of_slots.any() and load.max_prefill is not None:  # its lag counts from when it could be sent
        fill &= caps.held_ns(every, prefill) == 0
        every = every.copy()
        every["t_sched"] = np.where(of_slots, caps.let_go(every, prefill), every["t_sched"])
    timed = on_schedule(described, every["request_class"])
    flight = caps.spans_of_workers(run, every, caps.ends(every), load.max_concurrency)
    dispatched, fill_timed = every[timed], fill[timed]
    judged = dispatched[window.contains(dispatched["t_sched"]) & ~fill_timed]
    judged = judged[np.argsort(judged["t_sched"], kind="stable")]
    asked = slots.asked_ns(described.load, arrivals.zero_ns, window)
    missing = rows[on_schedule(described, rows["request_class"]) & unsent(rows)]
    return Sends(
        arrivals=arrivals,
        t_sched=judged["t_sched"].astype(np.int64),
        t_dispatch=judged["t_dispatch"].astype(np.int64),
        all_dispatch=dispatched["t_dispatch"].astype(np.int64),
        not_sent=int(window.contains(missing["t_sched"]).sum()),
        slots_empty=slots.empty_ns(dispatched, dispatched["t_sched"], window) / asked if asked else None,
        cap=load.max_concurrency,
        held=None if load.max_concurrency is None else caps.held_ns(judged, flight),
        prefill_cap=load.max_prefill,
        prefill_held=None if load.max_prefill is None else caps.held_ns(judged, prefill),
        first_fill=dispatched["t_dispatch"][fill_timed].astype(np.int64),
        follows=follows if (follows := not_arrived(run, judged)).any() else None,
        request_class=judged["request_class"],
        classes=class_arrivals(run, arrivals.zero_ns),
        closed=slots.closed_classes(
            described, every, every["t_sched"].astype(np.int64), fill, arrivals.zero_ns, window
        ),
        clock_ns=max(clock_ns, followed_within_ns(run.directory, run.document.hosts, too_early(judged, clock_ns))),
    )


def not_arrived(run: Run, rows: Rows) -> Mask:
    """Which *rows* follow a reply, or are the first of what is left of a session that began before time zero."""
    follows: Mask = rows["turn"] > 0
    if not run.document.plan.description.begun_classes:
        return follows
    try:
        under_way = Plan.read_record(run.directory / "plan").under_way
    except RunFolderError:
        return follows
    return follows | np.isin(rows["request"], under_way)


def too_early(rows: Rows, clock_ns: int) -> Rows:
    """Those of *rows* that were dispatched earlier than an error of the clocks of *clock_ns* explains."""
    early: Rows = rows[rows["t_dispatch"] - rows["t_sched"] < -EARLY_NS - clock_ns]
    return early


# -- receipts ---------------------------------------------------------------------------------------------------------


def stamps(run: Run, window: MeasuredWindow, workers: tuple[WorkerRecord, ...]) -> Stamps:
    """Stamp classes of the events of requests submitted in the window, and the error that each stamp allows."""
    selected = received_in(run, window)
    chosen, late_user = run.rows[selected], late_reads(run.rows[selected])
    if run.elsewhere is None:
        classes, batched, brackets = stamp_classes(run, selected, unread_times(late_user, workers))
        itl_errors = itl_error_ns(run, selected)
    else:
        found = run.elsewhere.together.stamps
        classes, batched, brackets = stamps_elsewhere(found)
        itl_errors = HdrSample(found.gap_errors)
    return Stamps(
        requested=run.document.config.client.timestamps,
        user=int(classes[0]),
        kernel=int(classes[1]),
        coalesced=int(classes[2]),
        tap=int(classes[3]),
        batched=batched,
        clamped=int(np.count_nonzero(chosen["flags"] & layout.FLAG_CLAMPED)),
        requests=len(chosen),
        ttft_error_ns=ttft_error_ns(chosen, earliest(run).first[selected]),
        itl_error_ns=itl_errors,
        late_user=late_user,
        brackets=brackets,
    )


def received_in(run: Run, window: MeasuredWindow) -> npt.NDArray[np.intp]:
    """Requests that were submitted in *window* and whose receipts are judged."""
    timely = (run.rows["phase"] == layout.MEASURE) & ~read_slowly(run.rows)  # a throttled reader is late on purpose
    if run.elsewhere is not None:  # nothing is known of the events of lost hosts
        timely &= run.rows["status"] != layout.HOST_LOST
    return np.flatnonzero(timely & window.contains(run.rows["t_submit"]))


def late_reads(rows: Rows) -> Times:
    """Rows (kernel stamp, user time) of ends that the process read more than LATE_NS late."""
    late = rows[(rows["t_end"] > 0) & (rows["t_end_user"] - rows["t_end"] > LATE_NS)]
    return np.column_stack([late["t_end"], late["t_end_user"]]).astype(np.int64)


def unread_times(late_user: Times, workers: tuple[WorkerRecord, ...]) -> Times:
    """Rows (begin, end) of late reads and of stalls of the workers: what arrived in them was not read."""
    return np.concatenate([late_user, *(one.stalls for one in workers if one.stalls is not None)])


def all_unread(run: Run) -> Times:
    """`unread_times` of all workers of *run*."""
    window = measured_window(window_of(run))
    workers = worker_records(run, window, histograms(run), run.document.watch)
    return unread_times(late_reads(run.rows[received_in(run, window)]), workers)


def stamps_elsewhere(found: StampCounts) -> tuple[Times, int, Times]:
    """The result of `stamp_classes`, of events that stayed on their hosts."""
    classes = np.array(found.classes or (0,) * (layout.STAMP_CLASS_MASK + 1), np.int64)
    brackets = np.array(found.brackets, np.int64).reshape(-1, BRACKET_CLASSES) if found.brackets else None
    return classes, found.batched, np.zeros((2, BRACKET_CLASSES), np.int64) if brackets is None else brackets


def stamp_classes(run: Run, selected: npt.NDArray[np.intp], unread: Times) -> tuple[Times, int, Times]:
    """(events by stamp class, batched events, `Stamps.brackets`), all of the events that carry text of the rows *selected*.

    Events that end a stream are left out, because they may share a read with any other event. Batched: arrived with the
    event before, in its segment, or in its read and within BATCH_NS. *unread*: rows (begin, end) of late reads and stalls.
    """
    counted = np.zeros(layout.STAMP_CLASS_MASK + 1, np.int64)
    brackets = np.zeros((2, BRACKET_CLASSES), np.int64)
    batched = 0
    wanted = np.zeros(len(run.rows), np.bool_)
    wanted[selected] = True
    per_row = np.diff(run.first_event)
    for part in stretches(run.first_event, EVENTS_AT_ONCE):
        events = slice(run.first_event[part.start], run.first_event[part.stop])
        stamp = run.event_stamp[events]
        chosen = np.repeat(wanted[part], per_row[part]) & np.isin(run.event_kind[events], TIMED)
        counted += np.bincount(stamp[chosen] & layout.STAMP_CLASS_MASK, minlength=len(counted))
        follows = chosen[1:] & chosen[:-1] & ((stamp[1:] & layout.STAMP_SAME_READ) > 0)
        t, bracket = run.event_t[events], run.events["bracket_ns"][events].astype(np.int64)
        together = t[1:] - (t[:-1] - bracket[:-1]) <= BATCH_NS
        batched += int(np.count_nonzero(follows & together))
        wide = chosen & (bracket >= BRACKET_LEAST_NS)
        spans = np.column_stack([t[wide] - bracket[wide], t[wide]])
        np.add.at(brackets, (overlapping(spans, unread).astype(np.intp), bracket_class(bracket[wide])), 1)
    return counted, batched, brackets


# -- workers and host -------------------------------------------------------------------------------------------------


def worker_records(
    run: Run, window: MeasuredWindow, per_worker: list[dict[str, Times]], facts: WatchFacts
) -> tuple[WorkerRecord, ...]:
    """One record per worker that appears in the samples, or that died according to run.json."""
    samples = run.samples
    dead = {worker.worker for worker in run.document.workers if worker.died}
    known = set() if samples is None else {int(number) for number in np.unique(samples["worker"]) if number >= 0}
    found = []
    for number in sorted(known | dead):
        stalls = worker_stalls(run, number)
        record = WorkerRecord(
            number,
            died=number in dead,
            histograms=per_worker[number] if number < len(per_worker) else {},
            stalls=None if stalls is None else stalls[:, :2],
            stall_ready=None if stalls is None else stalls[:, 2],
        )
        found.append(record if samples is None else with_samples(record, samples, window, facts))
    return tuple(found)


def worker_stalls(run: Run, number: int) -> Times | None:
    """Rows (begin, end, ready: ns) of the worker's stalls in the measure phase; None where the run did not record them."""
    stalls, phase = monitor.read_worker_stalls(run), run.phase("measure")
    if stalls is None:
        return None
    _, begin, length, ready, _ = stalls[stalls[:, 0] == number].T
    found = np.column_stack([begin, begin + length, ready])
    return found if phase is None else found[found[:, 1] > phase.start_ns]


def with_samples(record: WorkerRecord, samples: Rows, window: MeasuredWindow, facts: WatchFacts) -> WorkerRecord:
    """*record* with its samples; unchanged without any."""
    every = samples[(samples["worker"] == record.number) & (samples["rss_bytes"] > 0)]  # 0: the process had ended
    inside, around = in_window(every, window), about_window(every, window)
    if not len(inside):
        return record
    counts = {  # collections are counted from the start of the phase
        "clock_steps": int(around["clock_steps"][-1] - around["clock_steps"][0]),
        "spin_ns": int(inside["spin_ns"][-1] - inside["spin_ns"][0]),
        "gc_runs": int(inside["gc_runs"].max()),
    }
    if "page_faults" in (inside.dtype.names or ()):
        counts["page_faults"] = int(inside["page_faults"].max())
    longest = int(inside["batch_max_ns"][-1])
    return replace(
        record,
        t_ns=inside["t_ns"],
        cpu_ns=inside["cpu_ns"],
        rss_bytes=inside["rss_bytes"],
        events=inside["events"],
        released=inside["released"],
        connections_max=int(inside["connections"].max()),
        # The longest batch since the start: it counts only if it grew in the window.
        batch_max_ns=longest if longest > inside["batch_max_ns"][0] else None,
        counts=counts,
        involuntary_switches=int(inside["involuntary_switches"][-1] - inside["involuntary_switches"][0]),
        run_delay_ns=int(inside["run_delay_ns"][-1] - inside["run_delay_ns"][0]),
        fd_limit=None if (limit := known(facts.fd_limit)) is None else int(limit),
    )


def in_window(samples: Rows, window: MeasuredWindow) -> Values:
    """The samples inside the window; those around it when it is too short to hold three."""
    t = samples["t_ns"]
    begin, end = (int(np.searchsorted(t, window.start_ns)), int(np.searchsorted(t, window.end_ns, side="right")))
    if end - begin < 3:
        begin, end = max(0, begin - 1), min(len(t), end + 1)
    return samples[begin:end]


def about_window(samples: Rows, window: MeasuredWindow) -> Values:
    """The samples inside the window, the last before it and the first after it, so that the whole window is covered."""
    t = samples["t_ns"]
    begin = int(np.searchsorted(t, window.start_ns, side="right")) - 1
    end = int(np.searchsorted(t, window.end_ns)) + 1
    return samples[max(0, begin) : end]


def histograms(run: Run) -> list[dict[str, Times]]:
    """One dict of HDR histograms per worker, of the measure phase only; [] where the run did not record them."""
    found = run.array(monitor.HISTOGRAMS, INT64, (None, len(monitor.WATCHED), WORDS))
    return [] if found is None else [dict(zip(monitor.WATCHED, worker, strict=True)) for worker in found]


def throttled(run: Run, facts: WatchFacts) -> bool:
    """Whether the CPU quota of the client's cgroup caused at least a third of the time that workers waited for a processor.

    A third is enough: a thread that the quota releases then also waits for the other threads that it had stopped.
    """
    taken, samples = facts.throttled_ns, run.samples
    if not taken or samples is None or not len(samples):
        return False
    workers = [
        samples["run_delay_ns"][samples["worker"] == number] for number in np.unique(samples["worker"]) if number >= 0
    ]
    waited = sum(int(one.max()) - int(one.min()) for one in workers)
    return bool(3 * int(taken) >= waited)


def host_record(run: Run, facts: WatchFacts, host: HostEntry | None) -> HostRecord:
    """What was watched of the machine; *host*: of a run over many."""
    if host is None:
        hiccups, stalls = run.array(monitor.HICCUP, INT64, (WORDS,)), run.array(monitor.STALLS, INT64, (None, 2))
    else:
        hiccups = read_of_host(run.directory, host, monitor.HICCUP, INT64, (WORDS,))
        stalls = monitor.stalls_of_host(run.directory, host, read_clocks(run.directory, (host,)))
    sources = max(1, len(run.document.config.target.source_addresses))
    largest = largest_target_share(run)
    steal = np.array(facts.steal_samples or np.empty((0, 2)), np.int64).reshape(-1, 2)
    return HostRecord(
        hiccups=hiccups,
        stalls=np.empty((0, 2), np.int64) if stalls is None else stalls,
        steal_share=known(facts.steal_share),
        steal_t_ns=np.ascontiguousarray(steal[:, 0]),
        steal_ns=np.ascontiguousarray(steal[:, 1]),
        throttled=throttled(run, facts),
        competitors=facts.competitors,
        ports=None if largest is None or (ports := known(facts.ports)) is None else int(ports * sources / largest),
        interfaces=facts.interfaces,
    )
