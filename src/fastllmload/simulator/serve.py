"""Builds the simulated engine from its options and serves until it is stopped."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import socket
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

from fastllmload import __version__
from fastllmload._ext.sim.cadence import Cadence, Flood, Lockstep, Spread
from fastllmload._ext.sim.engine import Batching
from fastllmload._ext.sim.fault import CONNECTION_FAULTS, Faults
from fastllmload._ext.simserver.intake import Intake
from fastllmload._ext.simserver.responder import Responder
from fastllmload._ext.simserver.server import Server
from fastllmload._ext.simserver.streams import Streams
from fastllmload._ext.simserver.truth import Truth
from fastllmload._ext.simserver.writer import SAID_MOST
from fastllmload._ext.tls.session import TlsContext
from fastllmload.endpoint import ENDPOINTS
from fastllmload.endpoint.simulated import SimulatedApi
from fastllmload.errors import HostLimitError, InputError
from fastllmload.files import writable
from fastllmload.simulator.body import decoder
from fastllmload.simulator.controls import DIALECTS, Controls
from fastllmload.simulator.pages import Pages
from fastllmload.simulator.profile import Profile, SimulatorOptions, resolve
from fastllmload.simulator.tls import tls_context
from fastllmload.simulator.visits import Visits

BACKLOG = 4096
TOKEN_MOST, LINE_MORE = 32, 4  # bytes of a token with its line's own; of another line without name and value
PR_SET_PDEATHSIG = 1
SO_TIMESTAMPNS = 35
MS = 1_000_000
APIS = tuple(api for endpoint in ENDPOINTS.values() for api in endpoint.simulated)


def serve(options: SimulatorOptions, ready: Callable[[str], None], apis: tuple[SimulatedApi, ...] = APIS) -> int:
    """Listens, calls *ready* with the URL, serves *apis* until SIGTERM, SIGINT or SIGHUP. Returns the exit code."""
    profile = resolve(options)
    context = tls_context(options)  # one for all processes, so that each continues the sessions of the others
    if options.die_with_parent is not None:
        die_with(options.die_with_parent)
    pin(options.cpu)
    raise_open_files()
    first = listen(options)
    sockets = [first] + [listen(options, first.getsockname()[1]) for _ in range(options.processes - 1)]
    # Signals wait from here on, so that one that comes before a server is ready is not lost.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1})
    children = [fork_server(options, profile, sockets, number, apis, context) for number in range(1, options.processes)]
    try:
        server = build(options, profile, first, 0, apis, context)
        ready(url_of(options, first))
        server.run()
    except InputError:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)  # nothing was served: the caller continues as before
        raise
    finally:
        failed = stop_children(children)
        for one in sockets:
            one.close()
        if options.unix_socket is not None:
            os.unlink(options.unix_socket)
    return 70 if failed else 0


def build(
    options: SimulatorOptions,
    profile: Profile,
    listener: socket.socket,
    number: int,
    apis: tuple[SimulatedApi, ...],
    context: TlsContext | None,
) -> Server:
    """One process's server. *number* is its place among the processes that share the port."""
    try:
        of_connections = tuple(fault for fault in options.faults if fault.partition(":")[0] in CONNECTION_FAULTS)
        connection_faults = Faults(options.seed, of_connections)
        faults = Faults(options.seed, tuple(fault for fault in options.faults if fault not in of_connections))
    except ValueError as error:
        raise InputError("simulator-option-invalid", str(error)) from None
    path = truth_path(options, number)
    try:
        truth = open_truth(path)
    except OSError as error:
        raise InputError("output-not-writable", f"the truth log {path} cannot be written: {error.strerror}") from None
    if truth.on:
        listener.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)  # accepted sockets inherit it
    forms: list[object] = []
    intake = Intake(intake_settings(options, profile), faults, [(api, decoder(api)) for api in apis], forms)
    connections = Streams(context, options.http2_streams, options.http2_window)
    responder = Responder(connections, truth, forms, options.coalesce, options.early_head)
    visits = visits_of(options, number)
    models = (options.model, *options.more_models)
    pages = Pages(apis, models, profile.max_model_len, int(time.time()), options.any_model)
    cadence = cadence_of(options, profile)
    controls = controls_of(options, profile)
    return Server(
        listener.fileno(),
        cadence,
        truth,
        intake,
        responder,
        connections,
        pages,
        options.api_key,
        connection_faults,
        visits,
        controls,
    )


def visits_of(options: SimulatorOptions, number: int) -> Visits | None:
    """Of process *number*; None where nothing is noted of requests."""
    if not options.logged and options.session_token is None and not options.backends:
        return None
    names = [f"backend-{number * options.backends + each}" for each in range(options.backends)]
    longest = max((len(name) for name in names), default=0)
    said = len(options.session_token or "") + TOKEN_MOST + (len(options.backend_header) + longest + LINE_MORE)
    if said > SAID_MOST:
        raise InputError(
            "simulator-option-invalid", "the names of session_token and backend_header are too long together"
        )
    backends = (options.backend_header, names) if names else None
    return Visits(options.logged, options.session_token, backends, options.routed_by)


def controls_of(options: SimulatorOptions, profile: Profile) -> Controls:
    if options.control not in DIALECTS:
        raise InputError(
            "simulator-option-invalid", f"control {options.control!r} must be one of {', '.join(DIALECTS)}"
        )
    engine = {name: getattr(profile, name) for name in profile.__struct_fields__}
    return Controls(options.control, {"version": __version__, "model": options.model, "seed": options.seed, **engine})


def open_truth(path: str | None) -> Truth:
    """OSError with a reason where nothing can be written to *path*, also for a pipe without a reader."""
    if path is None:
        return Truth(None)
    first = writable(Path(path))
    try:
        return Truth(path)
    finally:
        os.close(first)  # only now: a pipe's reader would see its end in between


def truth_path(options: SimulatorOptions, number: int) -> str | None:
    """The truth log of process *number*: the path, then PATH.1, PATH.2 and so on; a device has no such neighbours."""
    if options.truth is None or number == 0 or Path(options.truth).is_char_device():
        return options.truth
    return f"{options.truth}.{number}"


def intake_settings(options: SimulatorOptions, profile: Profile) -> SimpleNamespace:
    return SimpleNamespace(
        seed=options.seed,
        null=options.null,
        any_model=options.any_model,
        secured=options.secured,
        model=options.model,
        models=frozenset((options.model, *options.more_models)),
        chunk_bytes=options.chunk_bytes,
        default_max_tokens=profile.default_max_tokens,
        max_model_len=profile.max_model_len,
        eos_mean_tokens=profile.eos_mean_tokens,
        prefix_block=profile.block_size if profile.prefix_cache and profile.cadence == "batching" else 0,
    )


def cadence_of(options: SimulatorOptions, profile: Profile) -> Cadence:
    if profile.cadence == "batching":
        return Batching(profile, options.seed)
    ttft, itl = int(profile.ttft_ms * MS), int(profile.itl_ms * MS)
    if profile.cadence == "flood" or (profile.cadence != "batching" and itl == 0 and ttft == 0):
        return Flood(options.coalesce)
    if profile.cadence == "lockstep":
        if itl == 0:
            raise InputError(
                "simulator-option-invalid", "phase lockstep needs an itl_ms above 0: its steps are so far apart"
            )
        return Lockstep(ttft, itl)
    return Spread(options.seed, ttft, itl)


def listen(options: SimulatorOptions, port: int | None = None) -> socket.socket:
    """A listening socket. Accepted sockets inherit TCP_NODELAY and the congestion control that are set here."""
    try:
        return listen_unix(options.unix_socket) if options.unix_socket is not None else listen_tcp(options, port)
    except OSError as error:
        where = options.unix_socket or f"{options.host}:{options.port if port is None else port}"
        raise InputError(
            "listen-failed", f"the simulator cannot listen on {where}: {error.strerror or error}"
        ) from None


def listen_unix(path: str) -> socket.socket:
    one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        if has_no_owner(path):
            os.unlink(path)
        one.bind(path)
        one.listen(BACKLOG)
    except OSError:
        one.close()
        raise
    return one


def has_no_owner(path: str) -> bool:
    """Whether *path* is a socket without a listener, because its server was killed."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trial:
        try:
            trial.connect(path)
        except ConnectionRefusedError:  # also of a plain file, which is not ours to remove
            return stat.S_ISSOCK(os.stat(path).st_mode)
        except OSError:
            return False
    return False


def listen_tcp(options: SimulatorOptions, port: int | None) -> socket.socket:
    wanted = options.port if port is None else port
    family, kind, proto, _, address = socket.getaddrinfo(
        options.host, wanted, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    one = socket.socket(family, kind | socket.SOCK_NONBLOCK, proto)
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if options.processes > 1:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            # BBR arms a kernel timer for each socket that paces; a simulator has no network to be fair to.
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
        except (PermissionError, FileNotFoundError):
            sys.stderr.write("note: congestion control reno is not allowed here; the host's default stays\n")
        one.bind(address)
        one.listen(BACKLOG)
    except OSError:
        one.close()
        raise
    return one


def url_of(options: SimulatorOptions, listener: socket.socket) -> str:
    if options.unix_socket is not None:
        return f"unix:{options.unix_socket}"
    host, port = listener.getsockname()[:2]
    scheme = "https" if options.secured else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def pin(cpu: int | None) -> None:
    if cpu is None:
        return
    try:
        os.sched_setaffinity(0, {cpu})
    except OSError as error:
        raise InputError("cpu-unavailable", f"the simulator cannot run on CPU {cpu}: {error.strerror}") from None


def raise_open_files() -> None:
    """As many descriptors as the host allows: one for each connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def die_with(parent: int) -> None:
    """SIGTERM comes when the parent (more exactly: the thread that made us) ends; ends now when it has already."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0):
        raise HostLimitError("system-call-refused", f"prctl failed: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:
        raise SystemExit(0)


def fork_server(
    options: SimulatorOptions,
    profile: Profile,
    sockets: list[socket.socket],
    number: int,
    apis: tuple[SimulatedApi, ...],
    context: TlsContext | None,
) -> int:
    """A process of its own that serves *sockets[number]*; returns its process id."""
    parent = os.getpid()
    child = os.fork()
    if child:
        return child
    code = 70
    try:
        die_with(parent)
        for other, one in enumerate(sockets):
            if other != number:
                one.close()
        server = build(options, profile, sockets[number], number, apis, context)
        server.run()
        code = 0
    finally:
        os._exit(code)


def stop_children(children: list[int]) -> bool:
    """Ends the processes that we made and waits for them; True when one of them failed."""
    for child in children:
        os.kill(child, signal.SIGTERM)
    return any(os.waitpid(child, 0)[1] != 0 for child in children)
