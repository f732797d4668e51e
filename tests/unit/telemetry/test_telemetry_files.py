"""telemetry.npy and telemetry.json: what is written is read, at every moment and after any end."""

import json
import math
import os
import resource
import signal
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest
from refusals import raises_code

from fastllmload.telemetry import log as logs
from fastllmload.telemetry import series as telemetry
from fastllmload.telemetry.files import Index, SourceEntry
from fastllmload.telemetry.log import TelemetryLog
from fastllmload.telemetry.sampler import Sampler
from fastllmload.telemetry.sensors.sensor import COUNTER, Key, Reading, SensorError

RUNNING = Key("running", "vllm:num_requests_running", "requests")
TOKENS = Key("generation_tokens", "vllm:generation_tokens_total", "tokens", COUNTER)


def new_log(folder, sources=1):
    return TelemetryLog(folder, Index(sources=[SourceEntry(f"source {number}", "server") for number in range(sources)]))


def test_rows_come_back_as_series(tmp_path):
    log = new_log(tmp_path)
    log.add(0, 100, 200, [Reading(RUNNING, 3.0), Reading(TOKENS, 10.0)])
    log.add(0, 300, 500, [Reading(RUNNING, 4.0), Reading(TOKENS, 30.0)])
    found = telemetry.load(tmp_path)  # during the run
    assert not found.ended
    running = found.first("running")
    assert running.t_before.tolist() == [100, 300] and running.t_after.tolist() == [200, 500]
    assert running.t_ns.tolist() == [150, 400] and running.value.tolist() == [3.0, 4.0]
    assert (running.source_name, running.origin, running.unit, running.kind) == (
        "vllm:num_requests_running", "source 0", "requests", "gauge")  # fmt: skip
    log.close(whole=True)
    assert telemetry.load(tmp_path).ended


def test_reads_at_which_a_part_began_again_come_back(tmp_path):
    log = new_log(tmp_path)
    for t, restarted in ((100, False), (300, True), (500, False)):
        log.add(0, t, t + 10, [Reading(RUNNING, 3.0), Reading(TOKENS, 10.0, restarted=restarted)])
        found = telemetry.load(tmp_path)  # during the run
        assert found.first("generation_tokens").restarts_ns.tolist() == ([] if t < 300 else [305])
    assert found.first("running").restarts_ns.tolist() == []
    log.close(whole=True)


def test_numpy_reads_the_file_by_itself(tmp_path):
    log = new_log(tmp_path)
    log.add(0, 1, 2, [Reading(RUNNING, 3.0)])
    rows = np.load(tmp_path / "telemetry.npy")
    assert rows["value"].tolist() == [3.0] and rows["t_after"].tolist() == [2]
    log.close(whole=True)


def test_a_failed_read_is_a_gap_and_never_zero(tmp_path):
    log = new_log(tmp_path, sources=2)
    log.add(0, 1, 2, [Reading(RUNNING, 3.0), Reading(TOKENS, 1.0)])
    log.add(1, 1, 2, [Reading(RUNNING, 8.0)])
    log.fail(0, 3, 4, "HTTP status 500", [Reading(TOKENS, 2.0)])
    log.add(0, 5, 6, [Reading(RUNNING, 5.0)])  # a name that is left out has no row, which is not a failure
    log.close(whole=True)
    found = telemetry.load(tmp_path)
    mine, other = found.named("running")
    np.testing.assert_equal(mine.value, [3.0, math.nan, 5.0])
    assert mine.t_before.tolist() == [1, 3, 5] and other.value.tolist() == [8.0]
    assert found.first("generation_tokens").value.tolist() == [1.0, 2.0]
    assert (found.sources[0].n, found.sources[0].n_failed, found.sources[0].problems) == (
        3,
        1,
        {"HTTP status 500": 1},
    )


def test_a_reading_with_an_instant_of_its_own_keeps_it(tmp_path):
    log = new_log(tmp_path)
    log.add(0, 100, 200, [Reading(RUNNING, 1.0, 50), Reading(RUNNING, 2.0, 40)])
    log.close(whole=True)
    series = telemetry.load(tmp_path).first("running")
    assert series.t_ns.tolist() == [40, 50] and series.value.tolist() == [2.0, 1.0]


def test_label_sets_are_series_of_their_own(tmp_path):
    log = new_log(tmp_path)
    log.add(0, 1, 2, [Reading(RUNNING._replace(labels="a"), 1.0), Reading(RUNNING._replace(labels="b"), 2.0)])
    log.close(whole=True)
    assert [(series.labels, series.value.tolist()) for series in telemetry.load(tmp_path).series] == [
        ("a", [1.0]),
        ("b", [2.0]),
    ]


def test_series_without_end_are_refused_and_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "MOST_SERIES", 3)
    log = new_log(tmp_path)
    for number in range(5):
        log.add(0, 1, 2, [Reading(RUNNING._replace(labels=str(number)), 1.0)])
    log.close(whole=True)
    assert len(telemetry.load(tmp_path).series) == 3
    assert json.loads((tmp_path / "telemetry.json").read_text())["series_refused"] == 2


def test_a_run_without_telemetry_has_none(tmp_path):
    found = telemetry.load(tmp_path)
    assert found.series == () and found.first("running") is None


def test_a_full_disk_ends_the_writing_and_nothing_else(tmp_path):
    program = textwrap.dedent("""
        import resource, signal, sys
        from pathlib import Path
        from fastllmload.telemetry.files import Index, SourceEntry
        from fastllmload.telemetry.log import TelemetryLog
        from fastllmload.telemetry.sensors.sensor import Key, Reading
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
        log = TelemetryLog(Path(sys.argv[1]), Index(sources=[SourceEntry("s", "server")]))
        for n in range(200):
            log.add(0, n, n, [Reading(Key("a", "b", "c"), float(n))])
        log.close(True)
        print(log.index.disk_full)
    """)
    done = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr
    values = telemetry.load(tmp_path).first("a").value
    assert 0 < len(values) < 200 and values.tolist() == list(range(len(values)))
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 2000


def test_a_killed_process_leaves_what_it_saw(tmp_path):
    program = textwrap.dedent("""
        import sys, time
        from pathlib import Path
        from fastllmload.telemetry.files import Index, SourceEntry
        from fastllmload.telemetry.log import TelemetryLog
        from fastllmload.telemetry.sensors.sensor import Key, Reading
        log = TelemetryLog(Path(sys.argv[1]), Index(sources=[SourceEntry("s", "server")]))
        for n in range(10**9):
            log.add(0, n, n, [Reading(Key("a", "b", "c"), float(n))])
            if n == 500:
                print("there", flush=True)
    """)
    child = subprocess.Popen([sys.executable, "-c", program, tmp_path], stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"there\n"
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()
    values = telemetry.load(tmp_path).first("a").value
    assert len(values) > 500 and values.tolist() == list(range(len(values)))


@pytest.mark.parametrize("cut", [0, 5, 200, -1])
def test_a_truncated_file_is_read_or_has_a_sentence(tmp_path, cut):
    log = new_log(tmp_path)
    log.add(0, 1, 2, [Reading(RUNNING, 3.0), Reading(RUNNING, 4.0)])
    log.close(whole=True)
    path = tmp_path / "telemetry.npy"
    path.write_bytes(path.read_bytes()[:cut])
    if cut == -1:
        assert telemetry.load(tmp_path).first("running").value.tolist() == [3.0]
    else:
        with raises_code("run-file-damaged", "telemetry.npy", "truncated"):
            telemetry.load(tmp_path)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", ("run-file-damaged", "telemetry index")),
        ('{"version": 99}', ("schema-version", "version 99", "reads 1")),
        (
            '{"series": [{"name":"a","source_name":"b","source":3,"unit":"","kind":"gauge"}]}',
            ("run-file-damaged", "a source that"),
        ),
    ],
)
def test_a_wrong_index_has_a_sentence(tmp_path, text, sentence):
    new_log(tmp_path).close(whole=True)
    (tmp_path / "telemetry.json").write_text(text)
    with raises_code(*sentence):
        telemetry.load(tmp_path)


# -- the sampler ------------------------------------------------------------------------------------------------------


class Counting:
    """A sensor that says how often it was asked; *trouble* is raised by every second read."""

    def __init__(self, trouble=None):
        self.origin, self.asked, self.trouble, self.closed = "counting", 0, trouble, 0

    def read(self):
        self.asked += 1
        if self.trouble is not None and self.asked % 2 == 0:
            raise self.trouble
        return [Reading(RUNNING, float(self.asked))]

    def close(self):
        self.closed += 1


class Stuck(Counting):
    """Its second read takes until it is let go."""

    def __init__(self):
        super().__init__()
        self.go = threading.Event()

    def read(self):
        if self.asked == 1:
            self.go.wait(10)
        return super().read()


def test_every_source_is_asked_at_the_start_and_at_the_end(tmp_path):
    log, sensor = new_log(tmp_path), Counting()
    sampler = Sampler([sensor], log, interval_s=100.0)
    sampler.start()
    assert sampler.stop() and sensor.asked == 2 and sensor.closed == 1
    log.close(whole=True)
    assert telemetry.load(tmp_path).first("running").value.tolist() == [1.0, 2.0]


def test_failures_are_counted_and_the_next_read_succeeds(tmp_path):
    log, sensor = new_log(tmp_path), Counting(SensorError("no luck"))
    sampler = Sampler([sensor], log, interval_s=0.005)
    sampler.start()
    while sensor.asked < 6:
        threading.Event().wait(0.005)
    assert sampler.stop()
    log.close(whole=True)
    entry = telemetry.load(tmp_path).sources[0]
    assert entry.n == sensor.asked and entry.n_failed == sensor.asked // 2 == entry.problems["no luck"]


def test_a_source_that_hangs_delays_no_other_and_its_ticks_are_counted(tmp_path):
    log, stuck, other = new_log(tmp_path, sources=2), Stuck(), Counting()
    sampler = Sampler([stuck, other], log, interval_s=0.01)
    sampler.start()
    while other.asked < 20:
        threading.Event().wait(0.005)
    assert stuck.asked == 1
    stuck.go.set()
    assert sampler.stop()
    log.close(whole=True)
    assert telemetry.load(tmp_path).sources[0].n_skipped > 0


def test_a_fault_of_ours_is_not_called_an_end(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(threading, "excepthook", seen.append)
    log = new_log(tmp_path)
    sampler = Sampler([Counting(ZeroDivisionError())], log, interval_s=100.0)
    sampler.start()
    assert not sampler.stop() and seen[0].exc_type is ZeroDivisionError
    log.close(whole=False)
