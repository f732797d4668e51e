"""The calibration is remembered per host, survives damage, and is measured with a real worker."""

import os
from pathlib import Path

import pytest

from fastllmload.certificate.calibrate import drive
from fastllmload.certificate.ceiling import (
    Ceiling,
    calibration_path,
    host_key,
    read_all,
    store_ceiling,
    stored_ceiling,
)
from fastllmload.certificate.watch import CpuTicks, Watch, cpu_ticks, steal_share
from fastllmload.errors import HostLimitError
from fastllmload.simulator.profile import SimulatorOptions

OURS = Ceiling(events_per_s=120_000.0, requests_per_s=9_000.0)


def test_it_comes_back_and_leaves_others_alone(tmp_path: Path) -> None:
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
def test_a_damaged_cache_is_no_cache(tmp_path: Path, content: str) -> None:
    path = tmp_path / "calibration.json"
    path.write_text(content)
    assert stored_ceiling(path) is None
    store_ceiling(OURS, path)
    assert stored_ceiling(path) == OURS


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HostLimitError, match="XDG_CACHE_HOME"):
        store_ceiling(OURS, tmp_path / "file" / "calibration.json")


def test_the_cache_folder_is_the_users() -> None:
    assert calibration_path({"XDG_CACHE_HOME": "/caches"}) == Path("/caches/fastllmload/calibration.json")
    assert calibration_path({}) == Path.home() / ".cache" / "fastllmload" / "calibration.json"


def test_a_real_worker_is_measured() -> None:
    """A short closed loop against the null server: work and CPU of one worker, both above 0."""
    cpus = sorted(os.sched_getaffinity(0))
    found = drive(SimulatorOptions(null=True, cpu=cpus[0]), cpus[-1], ["-c", "8", "-d", "1s", "--osl", "1"])
    assert found.requests > 100
    assert found.events >= found.requests
    assert 0 < found.cpu_s < 2


def test_stolen_time_is_a_share_of_all_time(tmp_path: Path) -> None:
    """Columns user nice system idle iowait irq softirq steal guest guest_nice; guest time is inside user already."""
    stat = tmp_path / "stat"
    stat.write_text("cpu  10 0 10 60 0 0 0 20 7 0\ncpu0 1 2 3\n")
    assert cpu_ticks(stat) == CpuTicks(total=100, steal=20)
    assert steal_share(CpuTicks(0, 0), CpuTicks(100, 20)) == 0.2
    assert steal_share(CpuTicks(5, 1), CpuTicks(5, 1)) is None
    assert cpu_ticks().total > 0


def test_a_watch_that_never_started_says_nothing(tmp_path: Path) -> None:
    assert Watch([]).stop(tmp_path) == {}
    assert list(tmp_path.iterdir()) == []
