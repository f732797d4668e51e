"""Start, stop, failure and death of the simulator's process, and its command line."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from refusals import raises_code
from sim_client import ask, request

from fastllmload.errors import InputError
from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions

pytestmark = pytest.mark.slow


def gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"


def test_it_starts_serves_and_stops() -> None:
    process = SimulatorProcess(SimulatorOptions(null=True))
    with process:
        pid = process.pid
        assert process.url == f"http://127.0.0.1:{process.port}"
        assert ask(process.port, request()).status == 200
    assert gone(pid) and process.stop() == 0
    with raises_code("internal-error", "not running"):
        process.pid  # noqa: B018


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_it_with_exit_code_0(number: int) -> None:
    with SimulatorProcess(SimulatorOptions(null=True)) as process:
        os.kill(process.pid, number)
        assert process.stop() == 0


def test_the_socket_of_a_killed_simulator_is_taken_over(tmp_path: Path) -> None:
    """One that is served, and a file that is not a socket, are not."""
    path = tmp_path / "engine.sock"
    first = SimulatorProcess(SimulatorOptions(null=True, unix_socket=str(path))).start()
    with pytest.raises(InputError, match="Address already in.*listen-failed"):
        SimulatorProcess(SimulatorOptions(unix_socket=str(path))).start()
    os.kill(first.pid, signal.SIGKILL)
    while first.ending() is None:
        time.sleep(0.01)
    assert path.is_socket()
    with SimulatorProcess(SimulatorOptions(null=True, unix_socket=str(path))) as second:
        assert second.url == f"unix:{path}"
    path.write_text("not ours")
    with pytest.raises(InputError, match="Address already in.*listen-failed"):
        SimulatorProcess(SimulatorOptions(unix_socket=str(path))).start()
    assert path.read_text() == "not ours"


def test_a_taken_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"127.0.0.1:{port}: Address already.*listen-failed"):
            SimulatorProcess(SimulatorOptions(port=port)).start()


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (SimulatorOptions(profile="nope"), "'nope' does not"),
        (SimulatorOptions(faults=("nope:0.5",)), "called 'nope'"),
        (SimulatorOptions(faults=("reset:0.7", "close:0.7")), "add up to 1.4"),
        (SimulatorOptions(phase="lockstep", itl_ms=0.0, ttft_ms=1.0), "itl_ms above 0"),
        (SimulatorOptions(truth="/nowhere/at/all"), "/nowhere/at/all"),
        (SimulatorOptions(cpu=4000), "CPU 4000"),
    ],
)
def test_options_that_cannot_be_served_are_the_users_mistake(options: SimulatorOptions, word: str) -> None:
    with pytest.raises(InputError) as error:
        SimulatorProcess(options).start()
    assert word in str(error.value)


def test_it_dies_with_its_parent() -> None:
    code = (
        "import os\n"
        "from fastllmload.simulator.process import SimulatorProcess\n"
        "from fastllmload.simulator.profile import SimulatorOptions\n"
        "one = SimulatorProcess(SimulatorOptions(null=True, processes=2)).start()\n"
        "print(one.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    deadline = time.monotonic() + 10
    while not gone(int(done.stdout)):
        assert time.monotonic() < deadline, "the simulator outlived its parent by 10 s"
        time.sleep(0.01)


def test_it_runs_on_the_cpu_asked_for() -> None:
    cpu = max(os.sched_getaffinity(0))
    with SimulatorProcess(SimulatorOptions(null=True, cpu=cpu)) as process:
        assert os.sched_getaffinity(process.pid) == {cpu}


def test_the_command_line_names_faults_and_options() -> None:
    run = [sys.executable, "-m", "fastllmload.simulator"]
    listed = subprocess.run([*run, "--list-faults"], capture_output=True, text=True, check=True).stdout
    assert "reset" in listed and "whitespace_first" in listed
    helped = subprocess.run([*run, "--help"], capture_output=True, text=True, check=True).stdout
    assert "--truth FILE" in helped and "small-gpu" in helped
    wrong = subprocess.run([*run, "--set", "nonsense"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2 and "has no '='" in wrong.stderr


def test_the_engine_shares_our_session_and_not_our_process_group() -> None:
    """A session of its own would be a scheduling group of its own (docs/decisions/02-processes.md); our group would get
    our Ctrl-C.
    """
    with SimulatorProcess(SimulatorOptions()) as server:
        assert server._child is not None
        pid = server._child.pid
        assert os.getsid(pid) == os.getsid(0)
        assert os.getpgid(pid) == pid != os.getpgid(0)
