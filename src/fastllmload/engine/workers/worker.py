"""A worker process: one event loop, one reactor, the phases of its spec, which is a line of JSON on stdin.

From then on it communicates with the supervisor through its shared memory only (`ext/fastllmload/_ext/record/counters.pxd`).
Ends by itself after the last phase, on ABORT, and when its parent is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import itertools
import os
import signal
import ssl
import sys
import time
from pathlib import Path
from typing import cast

import msgspec
import numpy as np
import uvloop

from fastllmload._ext.events.delta import Classifier
from fastllmload._ext.plan.bodies import Bodies
from fastllmload._ext.plan.pacer import Pacer
from fastllmload._ext.receive.protocol import Protocol
from fastllmload._ext.record import counters as k
from fastllmload._ext.record.recorder import Recorder
from fastllmload._ext.send.identity import Identity
from fastllmload._ext.send.loop import LoopConnection
from fastllmload._ext.send.reactor import Reactor
from fastllmload._ext.system.wire import warm_up_kernel_stamps
from fastllmload._ext.tls.session import TlsContext, settings_of
from fastllmload.endpoint import resolve_endpoint
from fastllmload.endpoint.identity import compiled, token_of
from fastllmload.engine.recording.row_writer import put_texts
from fastllmload.engine.upgrade import accept_of, new_key, upgrade_fields
from fastllmload.engine.workers.memory import page_faults, touch, warm_code, warm_heap, warm_objects
from fastllmload.engine.workers.routing import (
    conversations,
    partition_size,
    routed,
    slot_pools,
    slot_requests,
    slot_starts,
)
from fastllmload.engine.workers.spec import PhaseSpec, TargetSpec, WorkerSpec
from fastllmload.plan.plan import BODIES, Plan
from fastllmload.records.error_texts import answered_text, encode_texts
from fastllmload.records.shared_memory import SharedWords
from fastllmload.redact import Redactor

TICK_S = 0.01  # between checks of commands and counters; the loop gets a turn only every 40 ms while the reactor waits
POLL_S = 0.002  # while no clock runs
CONNECTING_S = 5.0  # for connections before the clock starts; slower ones delay their request
TOUCHED = slice(511, None, 512)  # one word of each page of shared memory, none of which the supervisor writes
SETTLED_NS = 100_000_000  # after this time no page should be accessed for the first time
SAMPLE_NS = 200_000_000  # CPU, RSS and GC counts go to shared memory this often
PR_SET_PDEATHSIG = 1
PR_SET_TIMERSLACK = 29


class Worker:
    """Runs the phases of *spec*; `run()` returns the exit status."""

    def __init__(self, spec: WorkerSpec, loop: asyncio.AbstractEventLoop) -> None:
        self.spec = spec
        self.loop = loop
        self.words = SharedWords(spec.words_memory).words
        self.words[TOUCHED] += 0  # faults in every page of the histograms before a clock runs
        self.recorder = Recorder(memory=spec.rows_memory, text=spec.record_text)
        endpoints = [resolve_endpoint(name) for name in spec.protocols]
        dialects = [endpoint.dialect for endpoint in endpoints]
        tags = [endpoint.id_tag for endpoint in endpoints]
        classifier = Classifier(dialects[0], strict=spec.strict_decode)
        protocol = Protocol(self.recorder, classifier, self.words, spec.max_event_bytes, 4 * spec.max_event_bytes)
        self.error_texts = protocol.error_texts
        self.texts_passed = 0  # versions of error_texts, and names of backends
        self.texts_version = 0
        self.redact = Redactor(spec.secrets)
        self.pacer = Pacer(budget=spec.spin_budget)
        kernel = spec.timestamps != "user"
        self.stamp_keeper = warm_up_kernel_stamps() if kernel else None
        self.reactor = Reactor(
            protocol,
            self.pacer,
            run_id=spec.run_id.encode(),
            worker=spec.worker,
            workers=spec.workers,
            timeout_ns=spec.timeout_ns,
            kernel_stamps=self.stamp_keeper is not None,
            fresh_connections=spec.fresh_connections,
            sources=[("inet6" if ":" in address else "inet", address) for address in spec.source_addresses],
        )
        over_asyncio = spec.transport == "asyncio"
        self.secured = any(target.tls for target in spec.targets)
        if self.secured:
            self.reactor.use_tls(tls_context(spec))
        self.plans = {phase.number: Plan.open(Path(phase.plan_dir)) for phase in spec.phases}
        key = new_key()
        own = [target.head_prefix for target in spec.targets]
        heads = [[head.encode("latin-1") for head in each] for each in spec.class_heads or [own]]
        for target, *of_classes in zip(spec.targets, *heads, strict=True):
            name = (target.server_name or "").encode("idna") if target.tls else None
            accept = accept_of(key).encode() if spec.websocket else None
            asked = of_classes[0]
            if spec.websocket:  # with the head of any class that the target serves
                asked = next(filter(None, of_classes)) + upgrade_fields(key).encode()
            self.reactor.add_target(
                target.family,
                target.address,
                target.port,
                asked,
                over_asyncio,
                target.weight,
                name,
                spec.http2_streams,
                accept,
                tags[0],
            )
        for number, each in enumerate(heads[1:], 1):
            self.reactor.add_class(each, classifier.add(dialects[number]), tags[number])
        if spec.session is not None:
            classes = self.plans[spec.phases[-1].number].classes
            self.reactor.use_identity(Identity(**compiled(spec.session, classes), ends_fd=spec.ends_fd))
        token = None if spec.session is None or spec.session.token is None else token_of(spec.session.token)
        path = () if token is None else token.answered_path
        protocol.want(
            field_name(None if token is None or path else token.answered), field_name(spec.backend_header),
            [name.encode() for name in path] or None,
        )  # fmt: skip
        self.backends = protocol.backends
        self.backend_names: list[str] = []
        self.reactor.set_connector(self.connect, self.loop.call_soon)
        self.connecting: set[asyncio.Task[None]] = set()
        self.sources = itertools.cycle(spec.source_addresses) if spec.source_addresses else None
        self.gc_runs = 0
        self.settled_faults: int | None = None  # page faults up to the phase's first 100 ms; None before
        self.terminated = False  # by a signal, not by the supervisor's command
        self.kept: list[bytes] = []  # keeps the interpreter's memory, see warm_objects
        self.resume: asyncio.Handle | None = None  # the call of the reactor after the turn of the event loop
        # Opened before the clock starts: a load that uses the last file descriptor must not end its worker.
        self.statm = os.open("/proc/self/statm", os.O_RDONLY)
        self.bodies = {number: Bodies(plan.bodies, plan.directory / BODIES) for number, plan in self.plans.items()}
        gc.callbacks.append(self._count_collection)

    def _count_collection(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self.gc_runs += 1

    # -- connections that the event loop owns -------------------------------------------------------------------------

    def connect(self, target: int, number: int, generation: int) -> LoopConnection:
        connection = LoopConnection(self.reactor, number, generation)
        task = self.loop.create_task(self._connect(self.spec.targets[target], connection))
        self.connecting.add(task)
        task.add_done_callback(self.connecting.discard)
        return connection

    async def _connect(self, target: TargetSpec, connection: LoopConnection) -> None:
        protocol = cast(asyncio.BufferedProtocol, connection)
        try:
            if target.family == "unix":
                await self.loop.create_unix_connection(lambda: protocol, target.address)
            else:
                source = None if self.sources is None else (next(self.sources), 0)
                await self.loop.create_connection(lambda: protocol, target.address, target.port, local_addr=source)
        except OSError as error:
            connection.connect_failed(error.errno or 0)
        except Exception as error:  # noqa: BLE001 - as in _on_ready
            self.reactor.fail(error)

    # -- phases -------------------------------------------------------------------------------------------------------

    def _on_ready(self) -> None:
        """Run the reactor. An exception is a bug; the event loop would only log it, so it is stored and ends the run."""
        try:
            self.reactor.on_ready()
        except BaseException as error:  # noqa: BLE001 - no caller would see it
            self.reactor.fail(error)
            self.loop.remove_reader(self.reactor.fileno())
            return
        if self.reactor.resumes and self.resume is None:
            # The loop gets one turn, without a wait: it must be the reactor that waits for data (transport.pyx).
            self.resume = self.loop.call_soon(self._on_resume)

    def _on_resume(self) -> None:
        self.resume = None
        if self.reactor.failure is None:
            self._on_ready()

    def _raise_failure(self) -> None:
        """Raise the exception of an event loop callback, which ends the run with its traceback."""
        if self.reactor.failure is not None:
            raise self.reactor.failure

    async def run(self) -> int:
        self.loop.add_reader(self.reactor.fileno(), self._on_ready)
        try:
            for phase in self.spec.phases:
                if not await self._phase(phase):
                    break
        finally:
            self.reactor.cancel_all()
            self.reactor.close_connections()
            self.loop.remove_reader(self.reactor.fileno())
            if self.resume is not None:
                self.resume.cancel()
            self.recorder.close()
            os.close(self.statm)
        if not self.terminated:
            self.words[k.W_STATE] = k.FINISHED
        return 0

    async def _phase(self, phase: PhaseSpec) -> bool:
        """Run one phase, from its plan to the end of its last request; False when the run is over."""
        while self.words[k.W_PHASE] < phase.number:
            if self.words[k.W_COMMAND] != k.RUN:
                return False
            await asyncio.sleep(POLL_S)
        self._load(phase, self.plans[phase.number])
        for array in self.plans[phase.number].arrays:
            touch(array)
        ahead = self._connections_ahead(phase)
        warm_code()
        warm_heap(ahead)
        self.kept = warm_objects(ahead)
        self.reactor.preconnect(ahead)
        until = time.monotonic() + CONNECTING_S
        while self.reactor.connecting and time.monotonic() < until:
            if self.words[k.W_COMMAND] != k.RUN:
                return False
            await asyncio.sleep(POLL_S)
            if self.secured:
                self.reactor.preconnect(ahead)  # a few handshakes at a time
        self.words[k.W_STATE] = k.READY
        while not (start := int(self.words[k.W_START_NS])):
            if self.words[k.W_COMMAND] != k.RUN:
                return False
            self._raise_failure()
            self.reactor.tick()
            await asyncio.sleep(POLL_S)
        continues = await self._clock(phase, start)
        self.words[k.W_PHASE_DONE] = phase.number + 1
        self.words[k.W_STATE] = k.PHASE_ENDED
        return continues

    def _connections_ahead(self, phase: PhaseSpec) -> int:
        """Connections to open before the clock starts; for a closed loop at most this worker's slots."""
        if phase.mode != "closed":
            return phase.initial_connections
        slots = min(phase.concurrency, phase.num_requests) if phase.num_requests else phase.concurrency
        return min(phase.initial_connections, partition_size(slots, self.spec.worker, self.spec.workers))

    def _load(self, phase: PhaseSpec, plan: Plan) -> None:
        spec = self.spec
        closed = phase.mode == "closed"
        limit = slots = own = 0
        closings = pool_arrays = None
        pools = slot_pools(plan, spec.worker, spec.workers)
        cap, most_waiting = (
            each and max(1, partition_size(each, spec.worker, spec.workers))
            for each in (phase.max_concurrency, phase.max_prefill)
        )
        if plan.closed_classes:
            schedule = (np.empty(0, np.int64) if plan.t_start is None else plan.t_start)[spec.worker :: spec.workers]
            closed = pools is not None
            if pools is None:
                schedule = np.ascontiguousarray(schedule)
            else:
                schedule, pool_arrays = pools.schedule(schedule)
                closings = pools.closes_ns if pools.change else None
        elif closed:
            changes = plan.slot_changes
            most = phase.num_requests if phase.num_requests and changes is None else phase.concurrency
            slots = min(phase.concurrency, most)
            limit = slot_requests(phase.num_requests, slots, spec.worker, spec.workers)
            own = partition_size(slots, spec.worker, spec.workers)
            schedule = slot_starts(plan, spec.worker, spec.workers, slots)
            if changes is not None:
                schedule, closings = changes.of_worker(spec.worker, spec.workers)
            closed = own > 0  # a worker without slots runs an open loop without releases, which ends at once
        else:
            assert plan.t_start is not None
            schedule = np.ascontiguousarray(plan.t_start[spec.worker :: spec.workers])
        self.reactor.load(
            phase=phase.phase_code,
            phase_number=phase.number,
            schedule=schedule,
            body_offset=plan.body_offset,
            bodies=plan.bodies,
            input_tokens=plan.input_tokens,
            output_tokens=plan.output_tokens,
            request_class=plan.request_class,
            closed=closed,
            limit=limit,
            cap=cap,
            most_waiting=most_waiting,
            client=plan.client,
            target=routed(plan, spec.class_targets),
            slots=slots,
            closings=closings,
            own=own,
            pools=pool_arrays,
            mixed=bool(plan.closed_classes) and phase.mode == "open",
            own_first=bool(plan.description.begun_classes),
            near=self.bodies[phase.number],
            **conversations(plan, spec.worker, spec.workers, slots, self.bodies[phase.number]),
        )

    async def _clock(self, phase: PhaseSpec, start: int) -> bool:
        """Run the load: no garbage collection, no I/O except the load's, no messages."""
        reactor, words = self.reactor, self.words
        gc.collect()
        gc.freeze()
        gc.disable()
        before = self.gc_runs
        self.settled_faults = None
        words[k.W_STATE] = k.RUNNING
        reactor.start_at(start, phase.stop_sending_ns)
        drain_until = shift = 0
        continues = True
        sample_at = time.monotonic_ns() + SAMPLE_NS
        while not reactor.finished:
            await asyncio.sleep(TICK_S)
            self._raise_failure()
            now = time.monotonic_ns()
            if self.settled_faults is None and now >= start + SETTLED_NS:
                self.settled_faults = page_faults()
            if now >= sample_at:
                sample_at = now + SAMPLE_NS
                self._sample(before)
                if self._texts() != self.texts_passed:
                    self._pass_texts()
            if words[k.W_CLOCK_SHIFT] != shift:
                shift = int(words[k.W_CLOCK_SHIFT])
                reactor.shift(shift)
            if self.recorder.full and not reactor.sending_over:
                reactor.drain()  # what cannot be recorded must not be sent
            command = words[k.W_COMMAND]
            if command == k.ABORT:
                reactor.cancel_all()
                continues = False
            elif command == k.DRAIN and not reactor.sending_over:
                reactor.drain()
            if reactor.sending_over and not drain_until:
                words[k.W_STATE] = k.DRAINING
                drain_until = now + phase.drain_ns if phase.drain_ns else 1 << 62
            if drain_until and now > drain_until:
                reactor.cancel_all()
        reactor.rest()
        self._sample(before)
        if self._texts():
            self._pass_texts()
        gc.enable()
        gc.unfreeze()
        return continues

    def _texts(self) -> int:
        """Grows with each text of a failure and each name of a backend."""
        return self.error_texts.versions + (0 if self.backends is None else self.backends.count)

    def _pass_texts(self) -> None:
        """Pass the texts of failures, and names of backends, to the row writer. Without memory for them these texts are
        lost, not the run.
        """
        self.texts_passed = self._texts()
        self.texts_version += 1
        if self.backends is not None:
            self.backend_names += [
                answered_text(name, self.redact) for name in self.backends.taken(len(self.backend_names))
            ]
        taken = self.error_texts.taken()
        texts = encode_texts(taken, self.error_texts.left_out, self.redact, self.backend_names)
        with contextlib.suppress(OSError):
            put_texts(self.spec.texts_memory, self.texts_version, texts)

    def _sample(self, gc_before: int) -> None:
        used = time.process_time_ns()
        self.words[k.W_CPU_NS] = used
        self.words[k.W_GC_RUNS] = self.gc_runs - gc_before
        self.words[k.W_PAGE_FAULTS] = 0 if self.settled_faults is None else page_faults() - self.settled_faults
        if self.recorder.full:
            self.words[k.W_DISK_FULL] = 1
        resident = int(os.pread(self.statm, 128, 0).split()[1])
        self.words[k.W_RSS_BYTES] = resident * os.sysconf("SC_PAGE_SIZE")


def field_name(name: str | None) -> bytes | None:
    """*name* as a wanted field of heads."""
    return None if name is None else name.lower().encode("latin-1")


def tls_context(spec: WorkerSpec) -> TlsContext:
    """With the host's trust store unless *cacert* is given; *insecure* disables verification. Else as the interpreter's."""
    return TlsContext(
        cert=spec.cert,
        key=spec.key,
        cacert=spec.cacert,
        verify=not spec.insecure,
        protocols=("h2" if spec.http2_streams else "http/1.1",),
        resume=spec.tls_resume,
        **settings_of(ssl.create_default_context()),
    )


def live_and_die_with_parent(parent: int) -> None:
    """Get SIGTERM when the supervisor dies for any reason; no timer slack; ignore SIGINT, which the supervisor handles."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    libc.prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if os.getppid() != parent:
        raise SystemExit("the supervisor is gone")


def main() -> int:
    spec = msgspec.json.decode(sys.stdin.buffer.readline(), type=WorkerSpec)
    live_and_die_with_parent(spec.supervisor_pid)
    if spec.pin_cpu is not None:
        os.sched_setaffinity(0, {spec.pin_cpu})
    loop = uvloop.new_event_loop()
    asyncio.set_event_loop(loop)
    worker = Worker(spec, loop)

    def terminate() -> None:
        worker.terminated = True
        worker.words[k.W_COMMAND] = k.ABORT

    loop.add_signal_handler(signal.SIGTERM, terminate)
    try:
        code = loop.run_until_complete(worker.run())
    except BaseException:
        worker.words[k.W_STATE] = k.FAILED
        raise
    finally:
        loop.close()
    if worker.terminated:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)  # after requests in flight are recorded; the parent sees the signal
    return code


if __name__ == "__main__":
    sys.exit(main())
