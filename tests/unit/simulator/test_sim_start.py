"""An engine that does not come up: one sentence where the host or somebody on it is the reason, no bug of ours."""

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
        ("kill -9 $$", HostLimitError, "was killed by signal 9 while it started: nothing was measured"),
        ("kill -11 $$", InternalError, "did not start: nothing on stderr"),
        ("exec sleep 60", HostLimitError, "was not ready within 0.2 s: something holds it up"),
        ("echo broken >&2; exit 1", InternalError, "did not start: broken"),
    ],
)
def test_an_engine_that_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, kind: type[Exception], words: str
) -> None:
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(process.sys, "executable", str(program))
    monkeypatch.setattr(process, "READY_TIMEOUT_S", 0.2 if "sleep" in script else 30.0)
    with pytest.raises(kind, match=words):
        process.SimulatorProcess(SimulatorOptions()).__enter__()


def test_signals_are_as_they_were_where_nothing_could_be_served(tmp_path: Path) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with raises_code("output-not-writable"):
        serve(SimulatorOptions(port=0, truth=str(tmp_path / "none" / "log")), ready=lambda url: None)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
