"""An engine that does not come up: one sentence where the host or another process is the reason, and not a bug."""

import signal
from pathlib import Path

import pytest
from refusals import raises_code

from fastllmload.errors import HostLimitError, InternalError
from fastllmload.simulator import process
from fastllmload.simulator.profile import SimulatorOptions
from fastllmload.simulator.serve import serve


@pytest.mark.parametrize(
    ("script", "kind", "words"),
    [
        ("kill -9 $$", HostLimitError, ("simulator-killed", "signal 9")),
        ("kill -11 $$", InternalError, ("internal-error", "nothing on stderr")),
        ("exec sleep 60", HostLimitError, ("simulator-stalled", "within 0.2 s")),
        ("echo broken >&2; exit 1", InternalError, ("internal-error", ": broken")),
    ],
)
def test_an_engine_that_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, kind: type[Exception], words: tuple[str, ...]
) -> None:
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(process.sys, "executable", str(program))
    monkeypatch.setattr(process, "READY_TIMEOUT_S", 0.2 if "sleep" in script else 30.0)
    with raises_code(*words) as caught:
        process.SimulatorProcess(SimulatorOptions()).__enter__()
    assert isinstance(caught.value, kind)


def test_signals_are_as_they_were_where_nothing_could_be_served(tmp_path: Path) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with raises_code("output-not-writable", "truth log"):
        serve(SimulatorOptions(port=0, truth=str(tmp_path / "none" / "log")), ready=lambda url: None)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
