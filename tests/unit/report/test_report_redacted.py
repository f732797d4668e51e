"""What `--redact` leaves out: in no form of any test's report, and of no run at its limit, a number that tells the
capacity; and every form says that something was left out.
"""

from __future__ import annotations

import copy
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from refusals import raises_code
from synthetic_run import ORIGIN_NS, Shape, draw_requests, duration_phase, write_manifest, write_workers

from fastllmload.cli.commands.report import FORMS, text_of
from fastllmload.documents.redaction import withheld
from fastllmload.metrics.public import measure
from fastllmload.procedure.tests import NAMES
from fastllmload.records.run import load
from fastllmload.report.documents.subject import subject_of
from fastllmload.report.text.numbers import count, quantity

pytestmark = pytest.mark.slow

RATE, CAPACITY, SLOTS, ASKED, BLOCKS, IN_CLASS = 23.7, 43.9, 67, 137, 608, 89
SOURCE = f"{SLOTS} slots of {BLOCKS} blocks, nineteen ms each"
SECRETS = (RATE, CAPACITY, SLOTS, ASKED, BLOCKS, IN_CLASS)
COMMAND = ["fastllmload", "procedure", "ITS", "--rate", f"{RATE}", f"--num-requests={ASKED}", "-n", f"{ASKED}",
           f"-c{SLOTS}", "--simulate", f"set.kv_blocks={BLOCKS}", "--max", f"{SLOTS}", "--quick"]  # fmt: skip
MEASURED = ("counts", "completed", "total_input_tokens", "total_output_tokens", "request_throughput",
            "output_throughput", "total_token_throughput")  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of requests at a rate, as a level of a procedure has it."""
    folder = tmp_path_factory.mktemp("level")
    write_workers(folder, draw_requests(5, Shape(requests=ASKED)))
    write_manifest(folder, phases=[duration_phase(ORIGIN_NS, 2.0)])
    found = load(folder)
    asked = {"rate": RATE, "concurrency": None, "num_requests": ASKED, "duration": 2.0, "timeout": 600.0}
    planned = {"name": "poisson", "rate": RATE, "stream": f"42/rate/{RATE}/0/arrivals"}
    exact = {"checked": ASKED, "exact": ASKED, "prompts": ASKED, "share": 1.0}
    made = {
        **measure(found),
        "status": "done",
        "command": COMMAND,
        "config": {"load": asked, "target": {"simulate": [["set.kv_blocks", str(BLOCKS)]]}},
        "plan": {
            "classes": ["short", "long", "code"],
            "requests": ASKED,
            "description": {"load": {"loop": "open", "arrivals": planned}, "workload": {"name": "w", "exact": exact}},
            "warmup": {"requests": 0, "description": {"load": {"arrivals": planned}}},
        },
        "certificate": {
            "verdict": "suspect", "planned_rate": RATE, "offered_rate": RATE, "events": ASKED, "peak_requests_per_s": RATE,
            "workers": [{"cpu_share": 0.1, "connections_max": SLOTS}], "arrival_tests": {"sends": {"gaps": ASKED}},
            "reasons": [{"severity": "note", "text": f"{ASKED} requests are too few", "value": ASKED}],
        },
        "environment": {"engine": {"name": "e", "max_batch_size": SLOTS}},
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(made))
    return folder


def procedure(place: Path, test: str, run: Path) -> Path:
    """A finished test's folder with figures of every kind where its tables, texts and parameters have them."""
    level = place / "levels" / f"000-{SLOTS}-slots"
    level.parent.mkdir(parents=True)
    level.symlink_to(run)
    limit = f"level 3 ({RATE} per second): the client was the limit; it decides nothing"
    unmet = {"id": "IETF-1", "level": "MUST", "state": "false", "remedy": "run for longer"}
    reason = f"mixed, {RATE} per second: the smallest class has {IN_CLASS} requests"
    document = {
        "schema_version": 1, "procedure": test, "status": "done", "section": "5", "title": "A Test", "quick": False,
        "command": [word.replace("ITS", test) for word in COMMAND], "started_utc": "2026-01-01T00:00:00Z",
        "manifest": {"declarations": {"sut.model.name": "m"}, "workload": "w", "urls": []},
        "parameters": {
            "test": {"capacity": CAPACITY, "capacity_source": SOURCE, "levels": [0.5], "requests": ASKED,
                     "request_count": ASKED, "slots": SLOTS, "initial": SLOTS, "maximum": SLOTS, "duration_s": 2.0},
            "run": {"load": {"rate": RATE, "concurrency": SLOTS, "num_requests": ASKED},
                    "target": {"simulate": [["set.kv_blocks", str(BLOCKS)], ["set.max_running", str(SLOTS)]]}},
        },
        "levels": [{"number": 0, "name": f"{SLOTS} slots", "load": float(SLOTS), "output_tok_s": RATE, "req_s": RATE,
                    "ttft_p99_ms": 1.5, "certificate": "valid", "folder": f"levels/000-{SLOTS}-slots"}],
        "findings": {"capacity": {"req_s": CAPACITY}, "max_concurrency": SLOTS, "rate": RATE,
                     "requests": IN_CLASS if test == "ttft" else {"short": IN_CLASS},
                     "request_count": ASKED, "throughput_tok_s": {"off": CAPACITY},
                     "levels": ASKED if test in ("throughput", "tradeoff", "capacity") else
                               [{"share": 0.5, "load": RATE, "requests": ASKED, "samples": ASKED}],
                     "starvation": {"short": 22 / IN_CLASS}, "success_rate": 1.0},
        "tables": [
            {"id": "classes", "title": "Per-Class Latency", "columns": ["Class", "Count", "TTFT P50 (ms)", "n"],
             "rows": [["short", IN_CLASS, 8.5, float(ASKED)]], "notes": [f"a P99 is from {ASKED} requests"]},
            {"id": "shape", "title": "Results", "columns": ["Metric", f"50% ({RATE} r/s)"],
             "rows": [["Samples", ASKED], ["Requests that qualify", float(ASKED)], ["Starvation", 22 / IN_CLASS],
                      ["P50 (ms)", 9.25]], "notes": []},
            {"id": "levels", "title": "Levels", "columns": ["Level", "Output (tok/s)"], "rows": [[SLOTS, CAPACITY]],
             "notes": []},
        ],
        "plots": [{"kind": "line", "title": f"capacity {CAPACITY}"}],
        "sentences": [f"Knee point: {CAPACITY} requests/s", f"the last had {ASKED} samples"],
        "warnings": [limit, f"levels {SLOTS}, {SLOTS}: the client was the limit", f"P99 is from {IN_CLASS} requests",
                     f"the pass has {SOURCE}"],
        "deviations": [f"{ASKED} TTFT samples: fewer than needed (P99 1,000)"],
        "compliance": {"verdict": "not compliant", "unmet": [{**unmet, "reason": reason}],
                       "beside": [{**unmet, "reason": f"{ASKED} of {ASKED} completions in 3.0 s"}],
                       "deviations": [f"the client was the limit (level mixed, {SLOTS} slots)"]},
    }  # fmt: skip
    (place / "procedure.json").write_text(json.dumps(document))
    return place


def numbers(found: Any) -> Iterator[float]:
    if isinstance(found, dict):
        for value in found.values():
            yield from numbers(value)
    elif isinstance(found, (int, float)) and not isinstance(found, bool) and found >= 20:
        yield found


def seen(shown: str, run: Path) -> set[str]:
    """The numbers in *shown* that reveal the load or are counts, in any format."""
    document = json.loads((run / "run.json").read_text())
    sensitive = {*SECRETS, *numbers({name: document[name] for name in MEASURED})}
    texts = {text for n in sensitive for text in (f"{n}", f"{n:g}", f"{n:.2f}", count(n), quantity(n))}
    wanted = texts - {"100", "1,000", "10,000", "1000", "10000"}
    return {text for text in wanted if re.search(rf"(?<![\d.,-]){re.escape(text)}(?![\d]|[.,]\d)", shown)}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("test", NAMES)
def test_no_form_of_any_test_has_a_number_that_reveals_the_capacity(
    test: str, form: str, run: Path, tmp_path: Path
) -> None:
    place = procedure(tmp_path / "p", test, run)
    shown = text_of(subject_of(place, redacted=True), form)
    if form == "html":
        shown = re.sub(r"<[^>]*>", " ", re.sub(r"<(script|style).*?</\1>", "", shown, flags=re.S))
    assert seen(shown, run) == set()
    assert SOURCE not in shown and "nineteen ms" not in shown
    assert "withheld" in shown.lower() and ("reveal the capacity" in shown or "are the capacity" in shown)
    assert "w i t h h e l d" not in shown and "withheldwithheld" not in shown


@pytest.mark.parametrize("form", [form for form in FORMS if form != "html"])
def test_without_redact_the_numbers_are_present(form: str, run: Path, tmp_path: Path) -> None:
    """The check above can fail: without --redact every form has such numbers."""
    assert seen(text_of(subject_of(procedure(tmp_path / "p", "itl", run)), form), run)


def test_the_page_of_a_test_of_capacity_says_that_its_levels_are_withheld(run: Path, tmp_path: Path) -> None:
    shown = text_of(subject_of(procedure(tmp_path / "p", "throughput", run), redacted=True), "html")
    assert "Withheld (IETF 7.1): results and levels" in shown
    assert re.search(r"<dt>Levels</dt>\s*<dd>withheld</dd>", shown) and "the order measured" not in shown
    assert re.search(r"<dt>Command</dt>\s*<dd>withheld</dd>", shown)


CLOSED = {"concurrency": SLOTS, "rate": None, "num_requests": ASKED}
AT_ONCE = {"rate": None}
OF_RUNS = [form for form in FORMS if form != "html"]


@pytest.mark.parametrize("form", OF_RUNS)
@pytest.mark.parametrize("asked", [CLOSED, AT_ONCE, {"max_concurrency": SLOTS}, "a level of a search"])
def test_no_form_of_a_run_at_capacity_has_one(form: str, asked: Any, run: Path, tmp_path: Path) -> None:
    """In a closed loop the number in flight over the mean latency is the throughput."""
    if isinstance(asked, str):
        (tmp_path / "search.json").write_text("{}")
    place = tmp_path / "levels" / "000"
    place.mkdir(parents=True)
    for file in run.iterdir():
        (place / file.name).symlink_to(file)
    document = json.loads((run / "run.json").read_text())
    if isinstance(asked, dict):
        document["config"]["load"].update(asked)
        if asked is CLOSED:
            document["plan"]["description"]["load"] = {"loop": "closed", "arrivals": None, "concurrency": SLOTS}
        if asked is AT_ONCE:
            document["plan"]["description"]["load"]["arrivals"]["rate"] = "inf"
    (place / "run.json").unlink()
    (place / "run.json").write_text(json.dumps(document))
    shown = text_of(subject_of(place, redacted=True), form)
    assert seen(shown, run) == set()
    assert "reveal the capacity" in " ".join(shown.split())


@pytest.mark.parametrize("limit", [False, True])
def test_a_figure_with_a_withheld_count_is_not_called_unmeasured(limit: bool, run: Path, tmp_path: Path) -> None:
    """Round trip, excess over objectives, figures that an Ollama server reports."""
    place = tmp_path / "r"
    shutil.copytree(run, place)
    document = json.loads((run / "run.json").read_text())
    document["metrics"]["rtt_ms"] = {"unit": "ms", "n": 40, "p50": 0.1687, "p95": 0.3}
    document["metrics"]["server_gen_tok_s"] = {"unit": "tok/s", "n": 77, "p50": 173.25}
    missed = {"unit": "ms", "n": 12, "p50": 33.25, "max": 44.5}
    document["slo"] = {"objectives": [{"objective": "ttft", "limit": 100.0, "unit": "ms", "excess": missed}]}
    if limit:
        document["config"]["load"] |= {"rate": None, "concurrency": SLOTS}
    (place / "run.json").write_text(json.dumps(document))
    subject = subject_of(place, redacted=True)
    full = text_of(subject, "full")
    assert f"P50 0.1687 ms of {'withheld' if limit else '40'} connects" in full
    assert "33.25 ms" in full and "44.50 ms" in full
    assert "by the server:" in text_of(subject, "asiai")


def test_a_run_at_a_declared_rate_keeps_load_and_throughput(run: Path) -> None:
    shown = text_of(subject_of(run, redacted=True), "full")
    assert quantity(RATE) in shown and str(ASKED) in shown and str(BLOCKS) not in shown
    assert "names of hosts" in shown and "reveal the capacity" not in shown
    with raises_code("redaction-unsupported", "--redact", "--as"):
        text_of(subject_of(run, redacted=True), "html")


def test_redaction_does_not_modify_its_input(run: Path, tmp_path: Path) -> None:
    for path in (run / "run.json", procedure(tmp_path / "p", "itl", run) / "procedure.json"):
        document = json.loads(path.read_text())
        kept = copy.deepcopy(document)
        withheld(document, limit=True)
        assert document == kept
