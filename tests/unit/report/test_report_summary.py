"""The closing summary of a fixed run.json, byte for byte; whatever is missing is `n/a`, and it always fits
one screen.

After an intended change: FLL_GOLDEN=write python -m pytest tests/unit/report, then read the difference.
"""

from __future__ import annotations

import io
import json
import os
import re
from pathlib import Path

import pytest
from summary_text import summary_lines
from typed_documents import typed

from fastllmload.documents.redaction import redacted
from fastllmload.report.documents import traffic
from fastllmload.report.render.terminal import SCREEN, print_screen
from fastllmload.report.terminal.outlet import Outlet
from fastllmload.report.terminal.summary import summary
from fastllmload.report.text.verdict import SIMULATED, simulated

GOLDEN = Path(__file__).parents[2] / "golden" / "terminal"


def document(name="run"):
    return json.loads((GOLDEN / f"{name}.json").read_text())


def text_of(found, width=80, folder="runs/20261121-051500-0a1b2c3d"):
    return "".join(f"{line.text}\n" for line in summary_lines(typed(found), width, folder))


def same_as_golden(name, text):
    if os.environ.get("FLL_GOLDEN") == "write":
        (GOLDEN / name).write_text(text)
    assert text == (GOLDEN / name).read_text()


@pytest.mark.parametrize("width", [40, 80, 120])
def test_a_run_against_the_simulated_engine(width):
    same_as_golden(f"summary-{width}.txt", text_of(document(), width))


def test_an_interrupted_run_with_little_data():
    same_as_golden("summary-nulls.txt", text_of(document("run-nulls"), folder=None))


def test_requests_without_an_end_are_counted_separately():
    """For a run whose worker died, all planned requests are on the line."""
    found = document()
    found["completed"], found["failed"] = 211, 1
    found["counts"] = {"in_flight": 7, "not_sent": 1_110}
    line = next(line for line in text_of(found).splitlines() if line.startswith("requests"))
    assert line.split(None, 1)[1] == "211 ok, 1 failed (0.4717 %), 7 cut off, 1,110 never sent"


def test_unusual_endings_are_reported_on_terminal_and_in_markdown():
    """They are counted with the server's words, which are escaped; without them the line is missing."""
    found = document()
    assert "also ok" not in text_of(found)
    found["counts"] = {"unknown_finish": 1_200, "cut_after_end": 3}
    found["error_texts"] = {"texts": [], "left_out": 0, "finish_reasons": [{"word": "eos\n<b>x", "requests": 1_200}]}
    lines = text_of(found).splitlines()
    assert any(re.search(r'1,200 .*"eos <b>x"', line) for line in lines)
    assert any(line.startswith("           3 ") for line in lines)
    (items,) = traffic.blocks(typed(found))
    assert items.texts == [
        'also ok: 1,200 with a finish_reason that is not known: "eos <b>x"',
        "also ok: 3 without the end of the HTTP message, after their finish_reason",
    ]


def test_an_empty_document():
    same_as_golden("summary-empty.txt", text_of({}, folder=None))


def without(found, path):
    """*found* without the value at *path*."""
    copy = json.loads(json.dumps(found))
    inner = copy
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return copy


def paths(found, before=()):
    for key, value in found.items():
        yield (*before, key)
        if isinstance(value, dict):
            yield from paths(value, (*before, key))


def test_any_part_may_be_missing_or_null():
    whole = document()
    for path in paths(whole):
        for changed in (without(whole, path), replaced(whole, path, None)):
            lines = summary_lines(typed(changed), 80, "runs/x")
            assert len(lines) <= SCREEN
            assert "None" not in "".join(line.text for line in lines)


def replaced(found, path, value):
    copy = json.loads(json.dumps(found))
    inner = copy
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return copy


@pytest.mark.parametrize("width", [40, 60, 80, 200])
@pytest.mark.parametrize("reasons", [0, 1, 5, 50])
def test_it_fits_one_screen_with_any_number_of_reasons(width, reasons):
    found = document()
    found["certificate"]["reasons"] = [
        {"severity": "suspect", "text": f"reason {n}: " + "word " * 30} for n in range(reasons)
    ]
    lines = summary_lines(typed(found), width, "r")
    assert len(lines) <= SCREEN
    assert max(len(line.text) for line in lines) <= width
    if reasons:
        assert "reason 0" in "".join(line.text for line in lines)
    assert any("in run.json)" in line.text for line in lines) == (reasons >= 5 or (reasons >= 1 and width < 60))


def test_a_tall_terminal_has_every_reason():
    found = document()
    found["certificate"]["reasons"] = [{"severity": "suspect", "text": f"reason {n}"} for n in range(9)]
    short, tall = ([line.text for line in summary_lines(typed(found), 80, "r", screen)] for screen in (SCREEN, 49))
    assert len(short) <= SCREEN < len(tall) <= 49
    assert sum("- reason" in text for text in tall) == 9
    assert not any("in run.json" in text for text in tall)


def test_reasons_that_do_not_fit_are_dropped_and_counted():
    found = document()
    found["certificate"]["reasons"] = [
        {"severity": "suspect", "text": f"reason {n} " + "word " * 20 + "ends here"} for n in range(9)
    ]
    lines = [line.text for line in summary_lines(typed(found), 80, "r")]
    begun = sum(text.startswith(" " * 11 + "- ") for text in lines)
    assert begun == sum("ends here" in text for text in lines) >= 1
    assert f"({9 - begun} more reasons" in "".join(lines)


def with_much_to_say():
    """A document with few samples and a compliance verdict, which add lines."""
    found = document()
    for name in ("ttft", "tpot", "e2e"):
        found["metrics"][name]["n"] = 200
    found["compliance"] = {"verdict": "not compliant", "must": {"hold": 49, "of": 52}}
    return found


@pytest.mark.parametrize("width", [40, 60, 80])
def test_the_most_severe_reason_is_always_printed(width):
    found = with_much_to_say()
    lines = [line.text for line in summary_lines(typed(found), width, "r")]
    assert len(lines) <= SCREEN
    assert "releases were late" in "".join(lines[:4])
    assert any(line.startswith("compliance not compliant") for line in lines)


@pytest.mark.parametrize("notes", [0, 1, 2])
def test_the_most_severe_reason_is_complete_next_to_notes(notes):
    """With as many reasons as fit, and one more, in a document with all optional lines."""
    found = with_much_to_say()
    found["slo"] = {"slo_attainment": 0.586, "objectives": [{"objective": "ttft", "unit": "ms"}]}
    note = {"severity": "note", "text": "a note " + "word " * 12}
    grave = {"severity": "suspect", "text": "late " + "word " * 20 + "ends here"}
    found["certificate"]["reasons"] = [grave] + notes * [note]
    for screen in range(SCREEN, SCREEN + 8):
        text = "\n".join(line.text for line in summary_lines(typed(found), 80, "r", screen))
        assert "ends here" in text and ("..." in text or "in run.json" in text) is (text.count("a note") < notes)


def test_a_truncated_reason_is_marked():
    found = document()
    found["certificate"]["reasons"] = [{"severity": "note", "text": "note " + "word " * 200}]
    text = "\n".join(line.text for line in summary_lines(typed(found), 80, "r"))
    assert " ...\n" in text and "run.json)" in text


def test_a_narrow_terminal_drops_complete_columns():
    wide, narrow = (text_of(document(), width).splitlines() for width in (120, 60))
    for line in narrow:
        label = line.split()[0]
        if label in ("rate", "lag", "headroom", "throughput"):
            parts = next(other for other in wide if other.startswith(label))[11:].split(", ")
            assert set(line[11:].split(", ")) <= set(parts)


def test_objectives_have_attainment_and_unit():
    found = document()
    found["slo"] = {"slo_attainment": 0.586, "objectives": [{"objective": "ttft", "unit": "ms"}]}
    assert "goodput    58.6 % of requests (497.9/s) meet ttft 200 ms, tpot 50" in text_of(found)


def test_requests_do_not_meet_objectives_of_sessions():
    found = document()
    found["slo"] = {"slo_attainment": 0.586, "objectives": [{"objective": "ttft", "unit": "ms"}]}
    found["config"]["output"]["goodput"] = [["session_makespan", 250.0], ["ttft", 12.0]]
    assert "meet ttft 12 ms" in text_of(found) and "session_makespan" not in text_of(found)


def test_failures_have_their_share():
    assert "requests   14,962 ok, 7 failed (0.0468 %)" in text_of(document())
    found = document() | {"failed": 0, "errors": []}
    assert "requests   14,962 ok, 0 failed\n" in text_of(found)


FAILING = [
    {"url": "http://a:1/v1", "dispatched": 40, "ok": 40, "failed": 0, "errors": []},
    {"url": "http://b:2/v1", "dispatched": 41, "ok": 40, "failed": 1, "errors": []},
    {"url": "http://c:3/v1", "dispatched": 1041, "ok": 0, "failed": 1041, "errors": []},
]


def test_failing_urls_are_one_line_most_failures_first():
    found = document() | {"by_target": FAILING}
    assert "\nfailed     1,041/1,041 http://c:3/v1, 1/41 http://b:2/v1\n" in text_of(found)
    assert "\nfailed     http://c:3/v1, http://b:2/v1\n" in text_of(found, 50)
    many = document() | {"by_target": FAILING * 5}
    assert "\nfailed     1,041/1,041 http://c:3/v1 and 9 more\n" in text_of(many, 50)
    assert "\nfailed " not in text_of(document() | {"by_target": FAILING[:1]})
    found["target"] = {**found["target"], "urls": [one["url"] for one in FAILING]}
    withheld = text_of(redacted(found))
    assert "1,041/1,041 target-2, 1/41 target-1" in withheld and "http" not in withheld


@pytest.mark.parametrize("width", [40, 80])
def test_with_failing_urls_it_still_fits_one_screen(width):
    """In a document with all optional lines of a run with real targets."""
    said = {"http_status": 500, "error": "http_status", "text": "out of memory", "requests": 7}
    found = document() | {"by_target": FAILING * 20, "error_texts": {"texts": [said], "left_out": 0}}
    found["target"] = found["target"] | {"simulated": False}
    found["compliance"] = {"verdict": "not compliant", "must": {"hold": 49, "of": 52}}
    found["certificate"]["reasons"] = [
        {"severity": "suspect", "text": f"reason {n}: " + "word " * 30} for n in range(9)
    ]
    lines = summary_lines(typed(found), width, "r")
    assert len(lines) <= SCREEN and max(len(line.text) for line in lines) <= width
    assert sum(line.text.startswith("failed ") for line in lines) == 1


def test_the_most_frequent_error_message_is_one_line():
    said = {
        "http_status": 500,
        "error": "http_status",
        "text": '{"error": {"message": "CUDA out of memory"}}',
        "requests": 7,
    }
    found = document() | {"error_texts": {"texts": [said], "left_out": 0}}
    assert '\n           7 x "CUDA out of memory"\n' in text_of(found)
    assert all(len(line.text) <= 40 for line in summary_lines(typed(found), 40))
    long = document() | {"error_texts": {"texts": [said | {"text": "x" * 900}], "left_out": 0}}
    assert any(line.text.endswith("xxx...") and len(line.text) <= 80 for line in summary_lines(typed(long), 80))


def test_the_simulated_engine_is_the_first_and_the_last_line():
    lines = summary_lines(typed(document()), 80)
    assert lines[0].text == lines[-1].text == str(SIMULATED)
    assert lines[1].text.startswith("verdict")


def test_a_real_target_has_no_such_lines_and_the_verdict_first():
    found = document("run-nulls")
    assert not simulated(typed(found))
    lines = summary_lines(typed(found), 80)
    assert lines[0].text.startswith("verdict    INVALID, INCOMPLETE (interrupted)")
    assert str(SIMULATED) not in [line.text for line in lines]


def test_the_most_severe_reason_comes_first():
    reasons = [line.text.strip() for line in summary_lines(typed(document()), 120) if line.text.startswith(" ")]
    assert reasons[0].startswith("- releases were late")
    assert reasons[1].startswith("- note: ") and reasons[1].endswith("[gc]")


@pytest.mark.parametrize("cause", ["host", "generator"])
def test_other_processes_are_named_where_the_host_was_the_cause(cause):
    found = document()
    found["certificate"]["reasons"] = [{"severity": "suspect", "text": "late", "cause": cause}]
    found["certificate"]["host"] = {"competitors": ["gcc", "make\x1b[2J"]}
    assert ("           - note: also running: gcc, make\ufffd[2J\n" in text_of(found)) is (cause == "host")


def test_the_run_folder_is_never_truncated():
    folder = "/a/very/long/path/" + "x" * 100
    assert f"run        {folder}" in text_of(document(), 40, folder)


def test_few_samples_are_marked():
    found = document()
    found["metrics"]["ttft"]["n"] = 999
    row = next(line.text for line in summary_lines(typed(found), 80) if line.text.startswith("ttft "))
    assert row.split() == ["ttft", "48.31", "44.10", "71.22", "83.50", "121.1*", "188.8*", "203.4"]
    assert any(line.text.startswith("* fewer samples") for line in summary_lines(typed(found), 80))


def test_seconds_are_shown_as_milliseconds():
    row = next(line.text for line in summary_lines(typed(document()), 80) if line.text.startswith("e2e "))
    assert row.split()[1:3] == ["3,291", "3,200"]


def test_a_run_timed_by_chunks_has_no_itl_row():
    names = [line.text.split()[0] for line in summary_lines(typed(document("run-nulls")), 80)]
    assert "tbc" in names
    assert "itl" not in names


def test_everything_at_once():
    """Its arrival process is named inf, which is not printed."""
    found = document()
    found["plan"]["description"]["load"]["arrivals"] |= {"name": "inf", "rate": "inf"}
    assert any("all at once, planned" in line.text for line in summary_lines(typed(found), 80))


@pytest.mark.parametrize("colour", [True, False])
def test_only_a_terminal_gets_colours_and_secrets_are_redacted(colour, monkeypatch):
    """NO_COLOR and a dumb terminal are respected too."""

    class Stream(io.StringIO):
        def isatty(self):
            return colour

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Stream()
    print_screen(Outlet(stream, lambda text: text.replace("SUSPECT", "***")), summary(typed(document())))
    assert ("\x1b[1;33mverdict    ***\x1b[0m\n" in stream.getvalue()) is colour
    assert ("\nverdict    ***\n" in stream.getvalue()) is not colour and "SUSPECT" not in stream.getvalue()


def with_intervals(reasons):
    found = document()
    found["metrics"]["ttft"]["ci95"] = {"p99": [118.2, 125.9]}
    found["metrics"]["e2e"] = {**found["metrics"]["e2e"], "ci95": {"p99": None}}
    found["metrics"]["e2e"]["not_estimable"] = {"p99": {"reason": "too few", "requests_needed": 30_000}}
    found["certificate"]["reasons"] = reasons
    return text_of(found)


def test_the_interval_of_p99_is_printed_where_it_fits():
    assert "p99 95 %   ttft 118.2-125.9, e2e n/a (needs 30,000)\n" in with_intervals([])


def test_reasons_against_the_run_come_before_intervals():
    shown = with_intervals([{"severity": "note", "text": f"reason {k}"} for k in range(30)])
    assert "p99 95 %" not in shown and len(shown.splitlines()) <= SCREEN


def test_a_cold_start_is_next_to_the_verdict_with_the_first_token_time():
    found = document()
    assert "COLD START" not in text_of(found)
    found["declarations"] = {"cold_start": "yes"}
    assert "verdict    " in text_of(found) and ", COLD START\n" in text_of(found)
    found["metrics"]["cold_start_latency"] = {"unit": "ms", "value": 8123.4}
    assert ", COLD START (first token after 8,123 ms)\n" in text_of(found)
    assert ", INCOMPLETE (interrupted), COLD START" in text_of({**found, "status": "interrupted"})


def test_the_p99_of_a_small_class_is_marked():
    latency = {"unit": "ms", "n": 40, "p50": 20.0, "p99": 90.0}
    one = {"ok": 40, "failed": 0, "left": 0, "ttft": latency, "tpot": latency}
    many = {**one, "ttft": {**latency, "n": 1000}}
    text = text_of({**document(), "classes": {"few": one, "many": many}})
    assert "ttft 20.00, p99 90.00*; tpot" in text and "ttft 20.00, p99 90.00; tpot" in text


def test_classes_with_other_targets_have_url_and_protocol():
    """Not where all classes have the same target and protocol; withheld with --redact like every URL."""
    latency = {"unit": "ms", "n": 40, "p50": 20.0, "p99": 90.0}
    one = {"ok": 40, "failed": 0, "left": 0, "ttft": latency, "tpot": latency}
    here = {**one, "endpoint_type": "openai-chat", "urls": ["http://a:1"], "model": "m"}
    there = {**one, "endpoint_type": "openai-completions", "urls": ["http://b:2"], "model": "n"}
    found = {**document(), "classes": {"chat": here, "more": there}}
    found["target"] = {
        **found["target"], "urls": ["http://a:1", "http://b:2"],
        "classes": [{"name": name, "endpoint_type": each["endpoint_type"]} for name, each in found["classes"].items()],
    }  # fmt: skip
    text = text_of(found)
    assert "targets    chat to http://a:1 (openai-chat, model m)" in text
    assert "more to http://b:2 (openai-completions, model n)" in text and "(openai-chat, openai-completions, " in text
    withheld = text_of(redacted(found))
    assert "more to target-1 (openai-completions" in withheld and "http" not in withheld
    assert "targets " not in text_of({**found, "classes": {"chat": here, "more": here}})
