"""Reports and exports of a run over many hosts show each host and can leave one out; those of one host are as before."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from made_hosts import MS, MadeHost, MadeRun, later
from msgspec.structs import replace
from refusals import says
from synthetic_run import Shape, draw_requests, write_manifest, write_workers

from fastllmload.cli import main as entry
from fastllmload.documents.read import convert
from fastllmload.documents.run import RunDocument
from fastllmload.records.merge import merge_workers
from fastllmload.records.run import RowNames, load
from fastllmload.report.documents.hosts import MOST_HOSTS, host_table, interface_table
from fastllmload.report.render.terminal import screen_lines
from fastllmload.report.terminal.summary import summary

pytestmark = pytest.mark.slow

SICK = 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three hosts; host 2 sent 20 ms late."""
    made = MadeRun(
        tmp_path_factory.mktemp("hosts"),
        (MadeHost((0,)), MadeHost((1, 2), ahead_ns=-7_000_000_000_000), MadeHost((3,), ahead_ns=3_000_000_000)),
    )
    for request in made.of(3):
        later(request, 20 * MS, "t_dispatch")
    made.write(environment={"host": "driver-1"}, incidents=["host node-2 (10.0.0.2) was slow"])
    made.conclude()
    return made.folder


Call = Callable[..., str]


@pytest.fixture(autouse=True)
def _own_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((sys, "excepthook"), (sys, "unraisablehook"), (entry.threading, "excepthook")):
        monkeypatch.setattr(module, name, getattr(module, name))


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> Call:
    """Standard output of a command; of one that is refused, standard error."""

    def call(*words: object, refused: bool = False) -> str:
        code = entry.main([str(word) for word in words])
        said = capsys.readouterr()
        assert code == (2 if refused else 0), said.err
        return said.err if refused else said.out

    return call


@pytest.mark.parametrize("form", ["terminal", "markdown", "full", "html"])
def test_every_host_is_shown_with_its_verdict(folder: Path, shown: Call, form: str) -> None:
    text = shown("report", folder, "--as", form)
    for number, word in enumerate(("valid", "valid", "invalid")):
        lines = [line for line in text.replace("<tr>", "\n<tr>").splitlines() if f"node-{number}" in line]
        assert any(word in line and (number == 2 or "invalid" not in line) for line in lines), lines
    assert "host 2 (node-2):" in " ".join(text.split())


def test_the_clock_of_several_hosts_is_not_a_single_one(folder: Path, shown: Call) -> None:
    bound_ns = max(host.clock.bound_ns for host in load(folder).document.hosts if host.clock is not None)  # type: ignore[type-var]
    (line,) = [line for line in shown("report", folder, "--as", "full").splitlines() if line.startswith("| Clock |")]
    assert "CLOCK_MONOTONIC of each host" in line and f"at most {bound_ns / 1e3:.4g} us" in line


def test_a_run_of_one_host_has_no_such_part(tmp_path: Path, shown: Call) -> None:
    one_host(tmp_path)
    assert host_table(load(tmp_path).document) is None
    for form in ("markdown", "full", "html"):
        assert "Hosts" not in shown("report", tmp_path, "--as", form)
    assert "\nhost " not in shown("report", tmp_path)
    assert "host" not in json.loads(shown("export", tmp_path).splitlines()[0])


def one_host(folder: Path) -> None:
    write_workers(folder, draw_requests(3, Shape(requests=50)), 2)
    write_manifest(folder)
    merge_workers(folder)


def many_hosts() -> RunDocument:
    """A hundred valid ones, but 77 is invalid, 5 suspect, and 40 sent latest of the valid ones."""
    verdicts = {77: "invalid", 5: "suspect"}
    hosts = [
        {"host": k, "name": f"node-{k}", "workers": [k], "status": "ended",
         "certificate": {"verdict": verdicts.get(k, "valid"),
                         "schedule_lag_us": {"n": 9, "p99": 900.0 if k == 40 else 10.0 + k}}}
        for k in range(100)
    ]  # fmt: skip
    return convert({"hosts": hosts}, RunDocument)


def rest_of(text: str) -> tuple[str, ...]:
    """How many hosts are not shown, with their verdicts and their largest P99 of lags."""
    found = re.search(r"(\d+) more hosts in run.json: ([^;]+); lag P99 at most ([\d.]+ us)", text)
    assert found is not None, text
    return found.groups()


def test_many_hosts_are_shown_from_the_worst_on() -> None:
    lines = [line.text for line in screen_lines(summary(many_hosts()))]
    mine = [line for line in lines if line.startswith("host ")]
    assert len(mine) == MOST_HOSTS and [line.split()[1] for line in mine[:4]] == ["77", "5", "40", "99"]
    assert rest_of(" ".join(" ".join(lines).split())) == ("84", "84 valid", "96.00 us")


def test_a_table_of_many_hosts_has_the_worst_and_a_sentence_about_the_others() -> None:
    table = host_table(many_hosts())
    assert table is not None and len(table.rows) == MOST_HOSTS
    assert [row[0] for row in table.rows[:3]] == ["77 node-77", "5 node-5", "40 node-40"]
    assert len(table.notes) == 1 and rest_of(table.notes[0]) == ("84", "84 valid", "96.00 us")


def test_a_host_is_shown_with_the_codes_of_its_reasons() -> None:
    """Of more than two the first, without notes."""
    reasons = [("schedule_lag", "invalid"), ("rate", "invalid"), ("gc", "suspect"), ("coalesced", "note")]
    found = [{"code": code, "severity": severity} for code, severity in reasons]
    hosts = [
        {"host": n, "status": status, "certificate": {"verdict": "invalid", "reasons": found[:many]}}
        for n, (status, many) in enumerate([("ended", 1), ("lost", 4)])
    ]
    table = host_table(convert({"hosts": hosts}, RunDocument))
    assert table is not None and [row[-1] for row in table.rows] == [
        "invalid [schedule_lag]", "invalid (lost) [schedule_lag, rate and 1 more]",
    ]  # fmt: skip


def test_interfaces_are_listed_from_the_worst_on() -> None:
    """Of each host, or of the only one."""
    quiet = {"name": "lo", "rx_bytes": 1_500_000, "tx_bytes": 0, "rx_packets": 9, "tx_packets": 1, "rx_errors": 0,
             "rx_dropped": 0, "tx_errors": 0, "tx_dropped": 0}  # fmt: skip
    full = {**quiet, "name": "eth0", "speed_bits_per_s": 10**10, "peak_tx_bytes_per_s": 10**9, "rx_dropped": 3}
    table = interface_table(convert({"watch": {"interfaces": [quiet, full]}}, RunDocument))
    assert table is not None and table.rows == [
        ["eth0", "10.00", "1.500", "0", "10", "3", "1,000", "80.0 %"],
        ["lo", "n/a", "1.500", "0", "10", "0", "n/a", "n/a"],
    ]
    hosts = [{"host": k, "name": f"node-{k}", "watch": {"interfaces": [full if k == 7 else quiet]}} for k in range(20)]
    table = interface_table(convert({"hosts": hosts}, RunDocument))
    assert table is not None and table.rows[0][:2] == ["7 node-7", "eth0"] and len(table.rows) == MOST_HOSTS
    assert len(table.notes) == 1 and table.notes[0].startswith("4 more")
    assert interface_table(convert({}, RunDocument)) is None


def test_names_of_hosts_are_redacted(folder: Path, shown: Call) -> None:
    for form in ("terminal", "markdown", "full", "json"):
        text = shown("report", folder, "--as", form, "--redact")
        assert "node-" not in text and "10.0.0." not in text and "host-2" in text
    document = json.loads(shown("report", folder, "--as", "json", "--redact"))
    assert [(host["name"], host["address"]) for host in document["hosts"]] == [(f"host-{k}",) * 2 for k in range(3)]
    assert document["hosts"][1]["certificate"]["verdict"] == "valid"


def test_rows_have_their_host(folder: Path, shown: Call) -> None:
    rows = [json.loads(line) for line in shown("export", folder).splitlines()]
    names = {0: "node-0", 1: "node-1", 2: "node-1", 3: "node-2"}
    assert all(row["host"] == names[row["worker"]] for row in rows) and len(rows) > 600
    cells = list(csv.DictReader(io.StringIO(shown("export", folder, "--format", "csv"))))
    assert [cell["host"] for cell in cells] == [row["host"] for row in rows]
    redacted = [json.loads(line) for line in shown("export", folder, "--redact").splitlines()]
    assert {row["host"] for row in redacted} == {"host-0", "host-1", "host-2"}


def test_hosts_of_one_name_are_numbers(folder: Path) -> None:
    run = load(folder)
    first, *others = run.document.hosts
    run = run.changed(hosts=(replace(first, name="node-1"), *others))
    assert RowNames(run.document).host_names() == [0, 1, "node-2"]


@pytest.mark.parametrize("form", ["terminal", "markdown", "full", "minimum", "html", "json", "blog", "asiai"])
def test_a_report_without_a_host_says_so(folder: Path, shown: Call, form: str) -> None:
    """In every form; the files of the folder stay as they are."""
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    text = shown("report", folder, "--as", form, "--exclude-host", "node-2")
    if form == "json":
        document, run = json.loads(text), load(folder)
        assert document["excluded_hosts"] == [SICK] and document["certificate"]["verdict"] == "suspect"
        assert document["counts"]["planned"] == int((run.rows["worker"] < 3).sum()) < len(run.rows)
        assert document["hosts"][SICK]["certificate"]["verdict"] == "invalid"
    else:
        assert "WITHOUT host 2 (node-2)" in text
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_hosts_are_excluded_by_name_or_number(folder: Path, shown: Call) -> None:
    documents = [
        json.loads(shown("report", folder, "--as", "json", "--exclude-host", name)) for name in ("node-2", "2")
    ]
    assert documents[0] == documents[1]
    text = shown("report", folder, "--exclude-host", "node-9", refused=True)
    assert says(text, "host-unknown", "node-9", "node-0")
    every = [word for k in range(3) for word in ("--exclude-host", k)]
    assert says(shown("report", folder, *every, refused=True), "hosts-all-excluded")


def test_a_run_of_one_host_excludes_none(tmp_path: Path, shown: Call) -> None:
    one_host(tmp_path)
    assert says(shown("report", tmp_path, "--exclude-host", "0", refused=True), "host-unknown", "one host only")
