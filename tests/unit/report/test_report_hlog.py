"""The interval log holds each value once, in the second of its event, as other tools read it; all its intervals are
together the histogram of the run.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden_file import same_as_golden
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader
from refusals import raises_code
from synthetic_run import ORIGIN_NS, Shape, draw_requests, duration_phase, write_manifest, write_workers

from fastllmload._ext.record import histogram
from fastllmload.certificate.monitor import HICCUP_INTERVALS, Intervals
from fastllmload.documents.run import Environment
from fastllmload.metrics.request.durations import NULL, dispatch_lag, e2e, ttft, ttft_any
from fastllmload.metrics.run.window import populations, window_of
from fastllmload.metrics.tokens.counts import count_tokens
from fastllmload.metrics.tokens.itl import pooled
from fastllmload.metrics.tokens.times import token_times
from fastllmload.records.run import Run, load
from fastllmload.report.documents import hlog, seconds
from fastllmload.report.documents.hlog import write_log

pytestmark = pytest.mark.slow

SECOND = 1_000_000_000
JAR = Path(os.environ.get("FASTLLMLOAD_HDRHISTOGRAM_JAR", "/usr/share/java/hdrhistogram.jar"))


def folder(path: Path, shape: Shape, seconds_: float = 3.0, seed: int = 3) -> Run:
    write_workers(path, draw_requests(seed, shape), text=shape.text)
    write_manifest(path, phases=[duration_phase(ORIGIN_NS, seconds_)])
    return load(path)


def whole(values: np.ndarray) -> np.ndarray:
    words = histogram.empty()
    histogram.record_many(words, np.ascontiguousarray(values[values != NULL], np.int64))
    return words


def expected(run: Run) -> dict[str, np.ndarray]:
    """Histograms of the whole run, from the functions that run.json is made with."""
    chosen = populations(run, window_of(run))
    ok, tokens = run.rows[chosen.latency], count_tokens(run)
    gaps = pooled(run, chosen.latency, tokens, token_times(run, chosen.submitted, tokens))
    found = {
        "ttft": ttft(ok),
        "ttft_any": ttft_any(ok),
        "e2e": e2e(ok),
        "lag": dispatch_lag(run.rows[chosen.submitted]),
        gaps.name: gaps.gaps.ns,
    }
    return {tag: whole(values) for tag, values in found.items()}


def merged(run: Run) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    for each in seconds.seconds(run):
        histogram.add(found.setdefault(each.tag, histogram.empty()), each.words)
    return found


SHAPES = {
    "tokens": Shape(requests=150),
    "chunks": Shape(requests=150, tokens_per_event=4, say_tokens=True),
    "long": Shape(requests=90, rate=0.9),  # more seconds than are held in memory at once
}


@pytest.mark.parametrize("name", SHAPES)
def test_the_sum_of_all_seconds_is_the_run(tmp_path: Path, name: str) -> None:
    run = folder(tmp_path, SHAPES[name], 100.0 if name == "long" else 3.0)
    found, whole_run = merged(run), expected(run)
    assert found.keys() == whole_run.keys() == {"ttft", "ttft_any", "e2e", "lag", "tbc" if name == "chunks" else "itl"}
    for tag, words in whole_run.items():
        assert (found[tag] == words).all(), tag


def test_without_reasoning_there_is_one_kind_of_first_token(tmp_path: Path) -> None:
    run = folder(tmp_path, SHAPES["tokens"])
    run.rows["reasoning_events"] = 0
    assert {each.tag for each in seconds.seconds(run)} == {"ttft", "e2e", "lag", "itl"}


def test_a_value_is_in_the_second_of_its_event(tmp_path: Path) -> None:
    run = folder(tmp_path, SHAPES["tokens"])
    rows = run.rows[populations(run, window_of(run)).latency]
    for each in seconds.seconds(run):
        column = {"ttft": "t_first", "ttft_any": "t_any", "e2e": "t_last"}.get(each.tag)
        if column is not None:
            inside = (rows[column] >= each.begin_ns) & (rows[column] < each.end_ns)
            assert each.words[histogram.TOTAL] == inside.sum()
            assert (each.begin_ns - ORIGIN_NS) % SECOND == 0


def test_intervals_are_ordered_by_time(tmp_path: Path) -> None:
    run = folder(tmp_path, SHAPES["long"], 100.0)
    begins = [each.begin_ns for each in seconds.seconds(run)]
    assert begins == sorted(begins)
    assert begins[-1] - begins[0] > seconds.AT_ONCE * SECOND


def test_seconds_without_a_value_take_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events may be months apart (a suspended host); only a span of centuries is refused."""
    run = folder(tmp_path, SHAPES["tokens"])
    looks = []
    monkeypatch.setattr(seconds, "block", lambda sources, begin: looks.append(begin) or [])
    list(seconds.seconds(run))
    near = len(looks)
    late = np.flatnonzero(populations(run, window_of(run)).latency)[-1]
    run.rows["t_last"][late] += 300 * 86_400 * SECOND
    list(seconds.seconds(run))
    assert len(looks) == near + near + 1 and looks[-1] - looks[-2] > 299 * 86_400 * SECOND
    run.rows["t_last"][late] = 2**63 - 1
    with raises_code("run-file-damaged", "span 292 years"):
        list(seconds.seconds(run))


@pytest.mark.parametrize("offset_ns", [10**19, -(10**20), 10**40])
def test_an_invalid_start_date_is_one_sentence(tmp_path: Path, offset_ns: int) -> None:
    run = folder(tmp_path, SHAPES["tokens"])
    run = run.changed(environment=Environment(clock_offset_ns=offset_ns * 1_000))
    with raises_code("run-file-damaged", "valid date", "run.json"):
        write_log(run, io.StringIO())


def test_the_host_has_its_own_intervals(tmp_path: Path) -> None:
    """The intervals of the supervisor sum to the histogram of the meter."""
    run = folder(tmp_path, SHAPES["tokens"])
    words = histogram.empty()
    taken = Intervals(words, ORIGIN_NS)
    for second in range(3):
        histogram.record_many(words, np.arange(1, 400, dtype=np.int64) * 1_000 * (second + 1))
        assert taken.due(ORIGIN_NS + (second + 1) * SECOND)
        taken.take(ORIGIN_NS + (second + 1) * SECOND)
    np.save(tmp_path / HICCUP_INTERVALS, taken.records())
    found = [each for each in seconds.seconds(run) if each.tag == "hiccup"]
    assert [each.begin_ns for each in found] == [ORIGIN_NS + k * SECOND for k in range(3)]
    assert (sum(each.words[: histogram.COUNTS] for each in found) == words[: histogram.COUNTS]).all()
    assert [each.words[histogram.TOTAL] for each in found] == [399] * 3


def read_back(path: Path) -> tuple[dict[str, Any], list[float], float]:
    reader = HistogramLogReader(str(path), HdrHistogram(1, histogram.HIGHEST, histogram.DIGITS))
    found: dict[str, Any] = {}
    starts = []
    while (each := reader.get_next_interval_histogram()) is not None:
        tag = found.setdefault(each.get_tag(), HdrHistogram(1, histogram.HIGHEST, histogram.DIGITS))
        tag.add(each)
        starts.append(each.get_start_time_stamp())
    reader.close()
    return found, starts, reader.get_start_time_sec()


def test_hdrh_reads_the_same_histograms(tmp_path: Path) -> None:
    run = folder(tmp_path, SHAPES["tokens"])
    run = run.changed(environment=Environment(clock_offset_ns=1_700_000_000 * SECOND - ORIGIN_NS))
    hlog.write(run)
    found, starts, start_time = read_back(tmp_path / hlog.NAME)
    assert start_time == 1_700_000_000
    assert starts[0] >= 1_700_000_000_000
    for tag, words in expected(run).items():
        assert found[tag].get_total_count() == words[histogram.TOTAL]
        for percent in (0.0, 50.0, 90.0, 99.0, 100.0):
            assert found[tag].get_value_at_percentile(percent) == histogram.percentile(words, percent / 100)


def test_logs_of_two_runs_merge(tmp_path: Path) -> None:
    both: list[Run] = []
    for number in range(2):
        (tmp_path / str(number)).mkdir()
        both.append(folder(tmp_path / str(number), SHAPES["tokens"], seed=number))
        hlog.write(both[-1])
    read = [read_back(run.directory / hlog.NAME)[0] for run in both]
    read[0]["ttft"].add(read[1]["ttft"])
    together = whole(np.concatenate([ttft(run.rows[populations(run, window_of(run)).latency]) for run in both]))
    assert read[0]["ttft"].get_total_count() == together[histogram.TOTAL]
    assert read[0]["ttft"].get_value_at_percentile(99.0) == histogram.percentile(together, 0.99)


@pytest.mark.skipif(
    not JAR.exists() or shutil.which("java") is None,
    reason="no Java, or no hdrhistogram.jar (Debian: apt-get install libhdrhistogram-java)",
)
def test_the_java_tool_reads_it(tmp_path: Path) -> None:
    run = folder(tmp_path, SHAPES["tokens"])
    hlog.write(run)
    command = ["java", "-cp", str(JAR), "org.HdrHistogram.HistogramLogProcessor", "-i", str(tmp_path / hlog.NAME)]
    for tag, words in expected(run).items():
        said = subprocess.run([*command, "-tag", tag], capture_output=True, text=True, check=True, timeout=60).stdout
        assert f"Total count    = {words[histogram.TOTAL]:>12}" in said


def test_a_run_without_a_request_has_a_log_without_an_interval(tmp_path: Path) -> None:
    run = folder(tmp_path, Shape(requests=0))
    stream = io.StringIO()
    hlog.write_log(run, stream)
    assert stream.getvalue().splitlines()[-1] == hlog.LEGEND


def test_the_lines(tmp_path: Path) -> None:
    """Byte for byte, with the payload decoded, as its compression depends on the library."""
    run = folder(tmp_path, Shape(requests=12, rate=6.0))
    run = run.changed(environment=Environment(clock_offset_ns=1_700_000_000 * SECOND - ORIGIN_NS))
    stream = io.StringIO()
    hlog.write_log(run, stream)
    same_as_golden("exports/latency.hlog.txt", "".join(map(decoded, stream.getvalue().splitlines(keepends=True))))


def decoded(line: str) -> str:
    if not line.startswith("Tag="):
        return line
    head, _, payload = line.rstrip("\n").rpartition(",")
    found = HdrHistogram.decode(payload)
    counts = {item.value_iterated_to: item.count_at_value_iterated_to for item in found.get_recorded_iterator()}
    return f"{head},{counts}\n"
