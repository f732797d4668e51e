from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
import numpy.typing as npt

from fastllmload._ext.plan.bodies import Bodies
from fastllmload._ext.plan.pacer import Pacer
from fastllmload._ext.plan.talk import Talks
from fastllmload._ext.receive.protocol import Protocol
from fastllmload._ext.send.identity import Identity
from fastllmload._ext.send.loop import LoopConnection
from fastllmload._ext.tls.session import TlsContext

@final
class Reactor:
    """Drives one worker: add_target, load, preconnect, tick until all are ready, start_at, on_ready until finished."""

    pacer: Pacer
    def __init__(
        self,
        protocol: Protocol,
        pacer: Pacer,
        *,
        run_id: bytes,
        worker: int,
        workers: int,
        timeout_ns: int,
        kernel_stamps: bool,
        fresh_connections: bool,
        sources: Sequence[tuple[str, str]] = (),
    ) -> None: ...
    @property
    def failure(self) -> BaseException | None: ...
    def fail(self, error: BaseException) -> None: ...
    def fileno(self) -> int: ...
    def add_target(
        self,
        family: str,
        address: str,
        port: int,
        head: bytes,
        over_asyncio: bool,
        weight: float = 1.0,
        server_name: bytes | None = None,
        http2_streams: int = 0,
        websocket_accept: bytes | None = None,
        id_tag: int = 0,
    ) -> None: ...
    def use_tls(self, context: TlsContext) -> None: ...
    def add_class(self, heads: list[bytes], dialect: int = 0, id_tag: int = 0) -> None: ...
    def use_identity(self, identity: Identity) -> None: ...
    def set_connector(
        self, connector: Callable[[int, int, int], LoopConnection], call_soon: Callable[[Callable[[], None]], object]
    ) -> None: ...
    def turn_ended(self) -> None: ...
    def load(
        self,
        *,
        phase: int,
        phase_number: int,
        schedule: npt.NDArray[np.int64],
        body_offset: npt.NDArray[np.uint64],
        bodies: npt.NDArray[np.uint8],
        input_tokens: npt.NDArray[np.int32],
        output_tokens: npt.NDArray[np.int32],
        request_class: npt.NDArray[np.uint16],
        closed: bool,
        limit: int = 0,
        cap: int = 0,
        most_waiting: int = 0,
        reserve: int = 8,
        numbers: npt.NDArray[np.uint32] | None = None,
        talks: Talks | None = None,
        client: npt.NDArray[np.void] | None = None,
        target: npt.NDArray[np.uint16] | None = None,
        slots: int = 0,
        near: Bodies | None = None,
        chain: npt.NDArray[np.int32] | None = None,
        parent: npt.NDArray[np.int32] | None = None,
        place: npt.NDArray[np.int32] | None = None,
        closings: npt.NDArray[np.int64] | None = None,
        own: int = 0,
        pools: tuple[npt.NDArray[Any], ...] | None = None,
        mixed: bool = False,
        own_first: bool = False,
    ) -> None: ...
    def start_at(self, start: int, stop_sending_ns: int = 0) -> None: ...
    def shift(self, ns: int) -> None: ...
    def preconnect(self, count: int) -> None: ...
    def drain(self) -> None: ...
    def cancel_all(self) -> None: ...
    def rest(self) -> None: ...
    def close_connections(self) -> None: ...
    def on_ready(self) -> None: ...
    def tick(self) -> None: ...
    @property
    def in_flight(self) -> int: ...
    @property
    def connecting(self) -> int: ...
    @property
    def idle(self) -> int: ...
    @property
    def resumes(self) -> bool: ...
    @property
    def released(self) -> int: ...
    @property
    def finished(self) -> bool: ...
    @property
    def sending_over(self) -> bool: ...
