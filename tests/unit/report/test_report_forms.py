"""Every form of the report of a fixed run and a fixed procedure, byte for byte; whatever is missing is said, never a
trace.

After an intended change: FLL_GOLDEN=write python -m pytest tests/unit/report, then read the difference.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from golden_file import GOLDEN, same_as_golden
from refusals import raises_code
from synthetic_run import ORIGIN_NS, Shape, draw_requests, duration_phase, write_manifest, write_workers
from typed_documents import typed, typed_procedure

from fastllmload.documents.redaction import OTHERS, withheld
from fastllmload.metrics.public import measure
from fastllmload.records.run import load
from fastllmload.report.blocks import Table
from fastllmload.report.documents import forms, full
from fastllmload.report.documents.forms import text_of
from fastllmload.report.documents.subject import Subject, published, subject_of
from fastllmload.report.render.markdown import escaped
from fastllmload.report.render.markdown import table_lines as table_markdown
from fastllmload.report.render.text import table_lines as table_text

pytestmark = pytest.mark.slow

FOLDER = Path("runs/20261122-005638-83940c01")
TEXTS = ("markdown", "minimum", "full")
NUMBER = re.compile(r"\d[\d,.]*")
ADDED = (  # keys that run folders of the first months do not have
    *("all_reasoning", "answer_tokens", "batched_share", "bounds", "cached_prompt_share", "competitors"),
    *("continuous_usage", "cut_after_end", "drift", "empty_chunks", "figures", "finish_reasons", "hosts", "in_flight"),
    *("interfaces", "model_check", "network", "no_memory", "page_faults", "reasoned", "reasoning_tok_s"),
    *("reasoning_tokens", "reasoning_tokens_source", "seconds", "steady", "throttled_ns", "token_ids"),
    "unknown_finish",
)
TEMPLATE = """=== LLM Benchmark Report (Minimum) ===
System Identification:
- Model:
- Hardware:
- Software:
- SUT Boundary:
Test Configuration:
- Workload:
- Load Model:
- Request Count:
- Test Duration:
Key Results:
- TTFT P50:
- TTFT P99:
- TPOT P50:
- TPOT P99:
- Max Throughput:
- Throughput at P99 TTFT < 500ms:
Notes:
=== End Report ===""".splitlines()


def document(name: str = "run") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((GOLDEN / "report" / f"{name}.json").read_text())
    return found


def of_run(redacted: bool = False, **changes: Any) -> Subject:
    found = {**document(), **changes}
    return subject(found, redacted)


def subject(found: Mapping[str, Any], redacted: bool = False, folder: Path = FOLDER) -> Subject:
    made = Subject(folder, typed(found), found)
    return published(made) if redacted else made


@pytest.fixture
def procedure(tmp_path: Path) -> Path:
    """A folder with procedure.json and the run.json of its levels."""
    found = document("procedure")
    (tmp_path / "procedure.json").write_text(json.dumps(found))
    for level in found["levels"]:
        folder = tmp_path / level["folder"]
        folder.mkdir(parents=True)
        (folder / "run.json").write_text(json.dumps(document()))
    return tmp_path


# -- a run ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("redacted", [False, True])
@pytest.mark.parametrize("form", TEXTS)
def test_a_run(form: str, redacted: bool) -> None:
    same_as_golden(f"report/{form}{'-redacted' if redacted else ''}.md", text_of(of_run(redacted), form))


def test_the_minimum_report_has_the_lines_of_the_template_in_order() -> None:
    lines = text_of(of_run(), "minimum").splitlines()
    places = [next(k for k, line in enumerate(lines) if line.startswith(head)) for head in TEMPLATE]
    assert places == sorted(places)
    assert places[: TEMPLATE.index("Notes:") + 1] == list(range(TEMPLATE.index("Notes:") + 1))
    assert lines[0] == TEMPLATE[0]
    assert lines[-1] == TEMPLATE[-1]
    assert all(line.startswith("- ") for line in lines[lines.index("Notes:") + 1 : -1])


def test_the_full_report_has_the_six_sections_in_order() -> None:
    heads = [line for line in text_of(of_run(), "full").splitlines() if line.startswith("## ")]
    assert heads == [f"## {number}. {name}" for number, name in enumerate(full.SECTIONS, 1)]


@pytest.mark.parametrize("form", ["markdown", "full"])
def test_no_latency_table_without_its_sample_and_success_rate(form: str) -> None:
    """n, n_null and success rate are in or below every latency table."""
    lines = text_of(of_run(), form).splitlines()
    tables = [k for k, line in enumerate(lines) if line.startswith("| ms | n | null |")]
    assert tables
    for start in tables:
        end = next(k for k in range(start, len(lines)) if lines[k] == "")
        assert "success rate 93.8 %" in lines[end + 1]


def paths(found: Any, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in found.items():
        yield (*before, key)
        if isinstance(value, dict):
            yield from paths(value, (*before, key))


@pytest.mark.parametrize("form", TEXTS)
def test_any_part_may_be_null(form: str) -> None:
    whole = document()
    whole["metrics"] = {name: whole["metrics"][name] for name in ("ttft", "share_single", "success_rate")}
    for path in paths(whole):
        inner = whole
        for key in path[:-1]:
            inner = inner[key]
        kept = inner[path[-1]]
        inner[path[-1]] = None
        shown = text_of(subject(whole), form)
        inner[path[-1]] = kept
        assert "None" not in shown.replace("None is known", ""), path


def earlier(found: Any, lacks: Collection[str]) -> Any:
    """*found* without the keys *lacks*, at any depth."""
    if isinstance(found, dict):
        return {key: earlier(value, lacks) for key, value in found.items() if key not in lacks}
    return [earlier(value, lacks) for value in found] if isinstance(found, list) else found


@pytest.mark.parametrize("redacted", [False, True])
@pytest.mark.parametrize("form", [*TEXTS, "terminal"])
def test_a_document_of_an_earlier_version(form: str, redacted: bool) -> None:
    """It lacks the keys that were added since; every number that it shows is one of the complete document."""
    whole, older = document(), earlier(document(), ADDED)
    assert set(paths(whole)) - set(paths(older))
    shown, lacking = (text_of(subject(each, redacted), form) for each in (whole, older))
    assert len(NUMBER.findall(lacking)) > 30 and "None" not in lacking.replace("None is known", "")
    assert set(NUMBER.findall(lacking)) <= set(NUMBER.findall(shown))


@pytest.mark.parametrize("form", TEXTS)
def test_a_run_without_data(form: str) -> None:
    shown = text_of(subject({"schema_version": 1, "status": "killed"}), form)
    assert "INCOMPLETE (killed)" in shown
    assert "None" not in shown.replace("None is known", "")


def test_an_incomplete_run_is_named_first() -> None:
    lines = text_of(of_run(status="interrupted"), "markdown").splitlines()
    assert lines[2].startswith("> **INCOMPLETE (interrupted)**")


def test_a_cold_start_is_reported_before_any_figure() -> None:
    """spec/procedures 0.8."""
    metrics = {**document()["metrics"], "cold_start_latency": {"unit": "ms", "value": 8123.4}}
    cold = of_run(declarations={"cold_start": "yes"}, metrics=metrics)
    lines = text_of(cold, "markdown").splitlines()
    assert lines[2].startswith("> **COLD START (first token after 8,123 ms)**")
    assert "COLD START" not in text_of(of_run(), "markdown")


def test_a_closed_loop_that_changes() -> None:
    found = document()
    slots = {"loop": "closed", "arrivals": None, "concurrency": 64, "concurrency_changes": "ramp:1,64"}
    found["plan"]["description"]["load"] = slots
    found["config"]["load"].update(rate=None, concurrency=64)
    assert "- Load Model: closed-loop ramp:1,64 in flight" in text_of(subject(found), "minimum")


def test_a_closed_loop() -> None:
    found = document()
    found["plan"]["description"]["load"] = {"loop": "closed", "arrivals": None, "concurrency": 64}
    found["config"]["load"].update(rate=None, concurrency=64)
    assert "- Load Model: closed-loop 64 in flight" in text_of(subject(found), "minimum")
    assert "| Output (tok/s) | withheld |" in text_of(subject(found, True), "full")


def test_report_md_is_what_the_form_prints(tmp_path: Path) -> None:
    write_workers(tmp_path, draw_requests(3, Shape(requests=20)))
    (tmp_path / "run.json").write_text(json.dumps(document()))
    run = load(tmp_path)
    forms.write_markdown(run)
    assert (tmp_path / "report.md").read_text() == text_of(subject_of(tmp_path), "markdown")


# -- forms that read the rows -----------------------------------------------------------------------------------------


@pytest.fixture
def rows(tmp_path: Path) -> Subject:
    """A measured folder of synthetic requests in three classes."""
    write_workers(tmp_path, draw_requests(3, Shape(requests=120)))
    write_manifest(tmp_path, phases=[duration_phase(ORIGIN_NS, 2.0)])
    run = load(tmp_path)
    asked = {"plan": {"classes": ["short", "long", "code"]}, "declarations": {"sut.model.name": "m"}}
    (tmp_path / "run.json").write_text(json.dumps({**measure(run), **asked}))
    return subject_of(tmp_path)


def test_the_blog_s_table(rows: Subject) -> None:
    same_as_golden("report/blog.txt", text_of(rows, "blog"))


def test_asiai_s_block(rows: Subject) -> None:
    same_as_golden("report/asiai.txt", text_of(rows, "asiai"))


def test_json_is_the_document(rows: Subject) -> None:
    assert json.loads(text_of(rows, "json")) == rows.json


def test_html_is_a_page_of_a_run_alone(rows: Subject, procedure: Path) -> None:
    assert text_of(rows, "html").startswith("<!doctype html>")
    with raises_code("redaction-unsupported", "--as"):
        text_of(replace(rows, redacted=True), "html")


# -- a procedure ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("redacted", [False, True])
@pytest.mark.parametrize("form", TEXTS)
def test_a_procedure(procedure: Path, form: str, redacted: bool) -> None:
    shown = text_of(subject_of(procedure, redacted), form).replace(str(procedure), "FOLDER")
    same_as_golden(f"report/procedure-{form}{'-redacted' if redacted else ''}.md", shown)


def test_latencies_are_those_of_the_sustained_level(procedure: Path) -> None:
    """Not those of a level with more throughput that the client limited or that is above the answer."""
    level = subject_of(procedure).level
    assert level is not None
    assert level.folder.name == "02"


def test_a_procedure_without_a_level(tmp_path: Path) -> None:
    found = {**document("procedure"), "levels": [], "findings": {}, "tables": [], "status": "interrupted"}
    (tmp_path / "procedure.json").write_text(json.dumps(found))
    for form in TEXTS:
        shown = text_of(subject_of(tmp_path), form)
        assert "INCOMPLETE (interrupted)" in shown
    with raises_code("run-not-begun", "no finished level"):
        text_of(subject_of(tmp_path), "blog")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{", ("run-file-damaged", "procedure.json", "not JSON")),
        (b"[]", ("run-file-damaged", "procedure.json", "not a JSON object")),
        (
            b'{"schema_version": 99, "procedure": "ttft"}',
            ("schema-version", "procedure.json", "schema_version 99", "reads 1"),
        ),
    ],
)
def test_a_broken_procedure_is_one_sentence(tmp_path: Path, content: bytes, words: tuple[str, ...]) -> None:
    (tmp_path / "procedure.json").write_bytes(content)
    with raises_code(*words):
        subject_of(tmp_path)


# -- what is withheld -------------------------------------------------------------------------------------------------

NAMES = ("gpu-17", "example.test", "10.1.2.3", "bench-07", "alice", "/home")


@pytest.mark.parametrize("form", [*TEXTS, "json"])
def test_a_redacted_report_has_no_names(form: str, procedure: Path) -> None:
    for subject in (of_run(True), subject_of(procedure, True)):
        shown = text_of(subject, form).replace(str(procedure), "")
        assert [name for name in NAMES if name in shown] == []


def test_without_redact_names_are_present() -> None:
    shown = text_of(of_run(), "json")
    assert [name for name in NAMES if name not in shown] == []


@pytest.mark.parametrize("form", [*TEXTS, "json"])
def test_no_capacity_is_left_of_a_test_of_capacity(form: str, procedure: Path) -> None:
    figures = ("2,847", "2847", "14.25", "4,670", "31.4")
    plain_text = text_of(subject_of(procedure), form)
    assert any(figure in plain_text for figure in figures)
    assert [figure for figure in figures if figure in text_of(subject_of(procedure, True), form)] == []


def test_a_timeout_is_a_setting_and_not_a_count() -> None:
    """A timeout in seconds does not reveal the capacity; the number of requests that timed out does."""
    found = document()
    found["config"]["load"]["timeout"], found["counts"]["timeout"] = 90.0, 17
    kept = withheld(found, limit=True)
    assert "| Request time-out | 90 s |" in text_of(Subject(FOLDER, typed(kept), kept, True), "full")
    assert kept["counts"]["timeout"] == kept["counts"]["planned"] == "withheld"


def test_other_tests_keep_their_tables_except_capacity() -> None:
    found = {**document("procedure"), "procedure": "itl"}
    found["tables"] = [
        {"id": "itl", "title": "ITL Results", "reveals": "nothing"},
        {"id": "capacity", "title": "Capacity", "reveals": "load"},
    ]  # fmt: skip
    found["sentences"] = ["gaps are pooled with option direct", "Knee point: 14 requests/s"]
    found["public"] = found["sentences"][:1]
    found["findings"] = {"capacity": {"req_s": 14.0}, "option": ["direct"]}
    kept = withheld(found)
    assert [table["id"] for table in kept["tables"]] == ["itl"]
    assert kept["sentences"] == ["gaps are pooled with option direct"]
    assert kept["findings"] == {"capacity": {"req_s": "withheld"}, "option": ["direct"]}


def test_a_procedure_of_an_earlier_version_keeps_no_table_and_no_sentence() -> None:
    """It does not declare what they reveal."""
    found = {**document("procedure"), "procedure": "itl", "tables": [{"id": "itl", "title": "ITL Results"}]}
    kept = withheld({**found, "sentences": ["gaps are pooled with option direct"]})
    assert kept["tables"] == [] and kept["sentences"] == []


# -- tables -----------------------------------------------------------------------------------------------------------


def test_nothing_in_a_cell_breaks_the_table_or_becomes_markup() -> None:
    evil = "a|b\n<script>alert(1)</script> *x* `y` [z](http://h) _u_ t_sched"
    lines = list(table_markdown(Table("", ["n"], [[evil]])))
    assert len(lines) == 4
    assert "<script>" not in lines[-1]
    assert escaped("t_sched") == "t_sched"
    assert escaped("_u_") == "\\_u\\_"


def test_numbers_are_right_aligned() -> None:
    table = Table("T", ["name", "n", "text"], [["a", 1, "x"], ["bb", 1234.5, None]], ["note"])
    assert list(table_text(table)) == ["T", "name      n  text", "a         1  x", "bb    1,234  n/a", "note"]
    assert list(table_markdown(table))[4] == "| --- | ---: | --- |"


def test_levels_by_share_of_capacity_do_not_reveal_it() -> None:
    """50 % of the capacity is 15 r/s: the load is withheld everywhere, also in names of other levels."""
    found = {
        **document("procedure"),
        "procedure": "itl",
        "command": ["fastllmload", "procedure", "itl", "--capacity=31"],
    }
    found["parameters"] = {"test": {"capacity": 31.0, "requests": 200}}
    found["tables"] = [
        {"id": "itl", "title": "ITL Results", "columns": ["Metric", "50% (15.5 r/s)"],
         "public_columns": ["Metric", "50%"], "rows": [["Samples", 1500], ["P50", 12.0]], "reveals": "nothing",
         "row_reveals": ["load", "nothing"], "notes": ["P99 is of 1500 gaps"]},
        {"id": "guardrail-throughput", "title": "Throughput", "columns": ["Max"], "rows": [[31.0]], "reveals": "load"},
    ]  # fmt: skip
    found["sentences"] = ["mixed load 15.5 requests/s, 50% of 31 (measured)"]
    found["findings"] = {"levels": [{"share": 0.5, "load": 15.5}], "rate": 15.5, "throughput_req_s": {"baseline": 31.0}}
    found["warnings"] = ["level 3 (15.5 per second): the client was the limit; it decides nothing about the system"]
    found["compliance"] = {
        "verdict": "not compliant",
        "deviations": ["the client was the limit (level input, 31 slots)"],
    }
    kept = json.dumps(withheld(found))
    assert "15.5" not in kept and "31" not in kept
    assert "12.0" in kept and '"50%"' in kept and "200" not in kept and "1500" not in kept


@pytest.mark.parametrize("words", [["--hook", "restart=ssh gpu-7 reboot"], ["--hook=restart=ssh gpu-7 reboot"]])
def test_nothing_of_a_hook_is_left_but_that_there_was_one(words: list[str]) -> None:
    """Hosts can be in hook commands, in their output, and in the sentence about a failed hook."""
    found = withheld({
        "procedure": "guardrail", "command": ["fastllmload", "procedure", "guardrail", *words, "--quick"],
        "steps": [{"name": "restart", "how": "command", "output": "gpu-7 is down"}], "findings": {},
        "warnings": ["cut short: --hook restart='ssh gpu-7 \\'now\\'' ended with status 3"],
        "server_log": {"gpu-7": [0, 1]},
    })  # fmt: skip
    assert "gpu-7" not in json.dumps(found)
    assert "--hook" in found["command"][3] and found["command"][-1] == "--quick"
    assert found["steps"][0]["name"] == "restart" and found["warnings"] == [OTHERS]


def test_addresses_of_the_client_are_redacted() -> None:
    asked = {"target": {"urls": ["http://gpu-7:8000/v1"], "source_addresses": ["10.1.2.3"]}}
    found = withheld(
        {"config": asked, "incidents": ["10.1.2.3 has no port left"], "command": ["--source-address=10.1.2.3"]}
    )
    assert "10.1.2.3" not in json.dumps(found)


@pytest.mark.parametrize("form", ["full", "blog", "asiai", "minimum"])
def test_a_quick_test_is_marked_in_every_form(rows: Subject, procedure: Path, form: str) -> None:
    found = {**document("procedure"), "quick": True, "deviations": ["--quick: durations are below"]}
    both = ["--quick scales the test down", *found["deviations"]]
    found["compliance"] = {**(found.get("compliance") or {}), "deviations": both}
    shown = text_of(Subject(procedure, typed_procedure(found), found, best=rows.folder), form)
    assert "quick" in shown.lower()
    assert not ("--quick: durations" in shown and "--quick scales" in shown)


@pytest.mark.parametrize("form", ["full", "blog", "asiai"])
def test_an_interrupted_run_is_marked_in_every_form(rows: Subject, form: str) -> None:
    assert "INCOMPLETE (running)" in text_of(subject({**rows.json, "status": "running"}, folder=rows.folder), form)


def doubtful(rows: Subject) -> Subject:
    """A run with a growing queue and with unfinished requests."""
    flight = {"first_half": 12.0, "second_half": 30.0, "p": 1e-4, "growing": True}
    cut = {
        "unfinished_bounds": {
            "p50": {"low": 5200.0, "high": None},
            "p99": {"low": 4129.0, "high": None},
            "p90": {"low": 3000.0, "high": 3100.0},
        },
        "with_unfinished": {"n": 656, "n_unfinished": 217},
    }
    names = ("ttft", "ttft_dispatch", "e2e")
    metrics = {**rows.json["metrics"], **{name: {**rows.json["metrics"][name], **cut} for name in names}}
    steadiness = {**rows.json["steadiness"], "in_flight": flight}
    return subject({**rows.json, "metrics": metrics, "steadiness": steadiness}, folder=rows.folder)


@pytest.mark.parametrize("form", ["full", "blog", "asiai", "minimum", "markdown", "html"])
def test_every_form_reports_doubts(rows: Subject, form: str) -> None:
    text = text_of(doubtful(rows), form)
    assert "queue was growing: 12.00 requests" in text and "window, 30.00 in" in text
    assert "217 of 656 requests " in text
    assert "queue was growing" not in text_of(rows, form)


def test_short_reports_have_bounds_in_place_of_figures(rows: Subject) -> None:
    subject = doubtful(rows)
    assert "- TTFT P99: >=4,129 ms\n" in text_of(subject, "minimum")
    row = next(line for line in text_of(subject, "blog").splitlines() if line.startswith("Time to First Token"))
    assert ">=4,129" in row and "3,000-3,100" in row
    block = text_of(subject, "asiai")
    assert "217 of 656 requests" in block and "lower bounds" in block and "too low" not in block
    total = next(line for line in block.splitlines() if line.startswith("Total duration"))
    assert ">=5,200 ms median" in total


@pytest.mark.parametrize("test", ["capacity", "itl"])
def test_requirements_without_a_key_word_are_listed_without_capacity(test: str) -> None:
    """In any test, completions over a known time are a throughput."""
    found = {**document("procedure"), "procedure": test, "findings": {}}
    beside = {"id": "IETF-5.5.3-f", "level": "DEFINITION", "state": "false", "remedy": "run it for longer"}
    reasons = ("331 completions of 2 in 3.0 s", "the warm-up is not described")
    found["compliance"] = {"verdict": "not compliant", "beside": [{**beside, "reason": reason} for reason in reasons]}
    whole = Subject(FOLDER, typed_procedure(found), found)
    for redacted, each in ((False, whole), (True, published(whole))):
        text = text_of(each, "full")
        assert "without a key word" in text and "IETF-5.5.3-f" in text
        assert ("331" in text) == (reasons[1] in text) == (not redacted)
