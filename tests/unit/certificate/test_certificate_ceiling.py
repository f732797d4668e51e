"""The calibration is stored per host, survives damage, and is measured with a real worker."""

import os
import sys
from pathlib import Path

import pytest
from refusals import raises_code

from fastllmload.certificate.calibration import calibrate, drive, wait_for_run
from fastllmload.certificate.ceiling import (
    Ceiling,
    calibration_path,
    host_key,
    read_all,
    store_ceiling,
    stored_ceiling,
)
from fastllmload.certificate.monitor import CpuTicks, Watch, cpu_ticks, steal_share
from fastllmload.simulator.profile import SimulatorOptions

pytestmark = pytest.mark.slow

REFUSING = "import sys; print('fastllmload: no CPU', file=sys.stderr); sys.exit(2)"
HANGING = """
import pathlib, signal, sys, time
def end(*_):
    time.sleep(0.5)
    pathlib.Path(sys.argv[1]).touch()
    sys.exit(4)
signal.signal(signal.SIGTERM, end)
time.sleep(600)
"""
OURS = Ceiling(events_per_s=120_000.0, requests_per_s=9_000.0)


def test_a_stored_ceiling_is_read_back_and_others_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "calibration.json"
    assert stored_ceiling(path) is None
    store_ceiling(OURS, path)
    other = path.read_text().replace(host_key(), "elsewhere")
    path.write_text(other)
    assert stored_ceiling(path) is None
    faster = Ceiling(events_per_s=1.0, requests_per_s=2.0)
    store_ceiling(faster, path)
    assert stored_ceiling(path) == faster
    assert read_all(path)["elsewhere"] == OURS
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("content", ["", "{", '{"a": 1}', "[]"])
def test_a_damaged_cache_is_ignored(tmp_path: Path, content: str) -> None:
    path = tmp_path / "calibration.json"
    path.write_text(content)
    assert stored_ceiling(path) is None
    store_ceiling(OURS, path)
    assert stored_ceiling(path) == OURS


@pytest.mark.parametrize("entry", ['{"events_per_s": 0, "requests_per_s": 0}', '{"events_per_s": "x"}', "null", "[1]"])
def test_invalid_entries_are_ignored_and_others_are_kept(tmp_path: Path, entry: str) -> None:
    """A ceiling of 0 would cause a division by zero."""
    path = tmp_path / "calibration.json"
    store_ceiling(OURS, path)
    path.write_text(path.read_text().replace("{", f'{{"elsewhere": {entry},', 1))
    assert stored_ceiling(path) == OURS
    path.write_text(f'{{"{host_key()}": {entry}}}')
    assert stored_ceiling(path) is None


def test_an_unwritable_folder_is_reported_before_the_calibration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fastllmload" / "calibration.json").mkdir(parents=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with raises_code("calibration-not-stored", "calibration.json", "a folder"):
        next(calibrate())


def test_a_host_that_is_too_slow_is_not_an_internal_error() -> None:
    with raises_code("calibration-failed", "no CPU") as found:
        wait_for_run([sys.executable, "-c", REFUSING])
    assert "fastllmload:" not in str(found.value)


def test_a_run_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """SIGTERM ends it: it has cleaned up when the wait returns."""
    monkeypatch.setattr("fastllmload.certificate.calibration.RUN_TIMEOUT_S", 2)
    cleared = tmp_path / "cleared"
    with raises_code("calibration-failed", "within 2 s"):
        wait_for_run([sys.executable, "-c", HANGING, str(cleared)])
    assert cleared.exists()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with raises_code("calibration-not-stored", "XDG_CACHE_HOME"):
        store_ceiling(OURS, tmp_path / "file" / "calibration.json")


def test_the_cache_folder_is_the_users() -> None:
    assert calibration_path({"XDG_CACHE_HOME": "/caches"}) == Path("/caches/fastllmload/calibration.json")
    assert calibration_path({}) == Path.home() / ".cache" / "fastllmload" / "calibration.json"


def test_a_real_worker_is_measured() -> None:
    """A short closed loop against the null server: work and CPU of one worker, both above 0."""
    cpus = sorted(os.sched_getaffinity(0))
    events, requests = drive(SimulatorOptions(null=True, cpu=cpus[0]), cpus[-1], ["-c", "8", "-d", "1s", "--osl", "1"])
    assert events >= requests > 100


def test_stolen_time_is_a_share_of_all_time(tmp_path: Path) -> None:
    """Columns user nice system idle iowait irq softirq steal guest guest_nice; guest time is part of user."""
    stat = tmp_path / "stat"
    stat.write_text("cpu  10 0 10 60 0 0 0 20 7 0\ncpu0 1 2 3\n")
    assert cpu_ticks(stat) == CpuTicks(total=100, steal=20)
    assert steal_share(CpuTicks(0, 0), CpuTicks(100, 20)) == 0.2
    assert steal_share(CpuTicks(5, 1), CpuTicks(5, 1)) is None
    assert cpu_ticks().total > 0


def test_a_watch_that_was_not_started_writes_nothing(tmp_path: Path) -> None:
    assert Watch([]).stop(tmp_path) is None
    assert list(tmp_path.iterdir()) == []
