from typing import final

import numpy as np
import numpy.typing as npt

from fastllmload._ext.events.delta import Classifier
from fastllmload._ext.record.backends import Backends
from fastllmload._ext.record.errortexts import ErrorTexts
from fastllmload._ext.record.recorder import Recorder

@final
class Protocol:
    """Parsers' settings and sinks of one worker. *max_event*, *max_body*: bytes."""

    recorder: Recorder
    classifier: Classifier
    error_texts: ErrorTexts
    backends: Backends | None
    def __init__(
        self,
        recorder: Recorder,
        classifier: Classifier,
        shared: npt.NDArray[np.int64],
        max_event: int,
        max_body: int,
        max_held: int = ...,
    ) -> None: ...
    def want(
        self, token: bytes | None = None, backend: bytes | None = None, path: list[bytes] | None = None
    ) -> None: ...

class Conversation:
    """Exchanges of one connection without a transport; times are ns; verdicts 0 read on, 1 reuse, 2 close."""

    def __init__(self, protocol: Protocol, websocket: bool = False, http2: bool = False) -> None: ...
    def open(self, t_submit: int, reused: bool = False, keep: bool = False) -> int: ...
    def feed(self, data: bytes, t: int, stamp_class: int = 1, low: int = 0, one_segment: bool = False) -> int: ...
    def eof(self, t: int, error_number: int = 0) -> int: ...
    def kept(self) -> tuple[bytes, list[tuple[bytes, bytes, bytes]]]: ...
    @property
    def token(self) -> bytes: ...
    @property
    def ended(self) -> bool: ...
