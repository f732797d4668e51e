"""The views: live on a terminal, lines elsewhere, nothing but the folder; secrets and lost readers in all of
them.
"""

from __future__ import annotations

import io
import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec.structs import replace as change
from typed_documents import typed

from fastllmload.documents.certificate import Certificate, Reason
from fastllmload.documents.run_parts.target import TargetFacts
from fastllmload.redact import Redactor
from fastllmload.report.render.terminal import lines_of
from fastllmload.report.terminal.live import LiveView, render_snapshot
from fastllmload.report.terminal.outlet import Outlet
from fastllmload.report.terminal.plain import PlainView, host_lines, phase_line, snapshot_line
from fastllmload.report.terminal.snapshot import ClassSnapshot, HostSnapshot, Snapshot
from fastllmload.report.terminal.view import NoView, make_ui
from fastllmload.report.text import failures, numbers

GOLDEN = Path(__file__).parents[2] / "golden" / "terminal"
FULL = Snapshot(
    t=12.3,
    phase="measure",
    asked_rate=500.0,
    achieved_rate=498.734,
    released=6150,
    ended=4900,
    ok=4893,
    failed=7,
    in_flight=1250,
    connections=1300,
    ttft_p50_ms=44.1,
    ttft_p99_ms=121.07,
    itl_p50_ms=20.3,
    itl_p99_ms=24.6,
    e2e_p50_ms=3200.0,
    lag_p50_us=4.2,
    lag_p99_us=33.1,
    client_cpu=0.43,
    events_per_s=79_812.4,
    errors={"timeout": 4, "reset_after_reuse": 3},
    gc_runs=0,
    eta=17.7,
)
EMPTY = Snapshot(t=0.0, phase="warmup")


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


def document(name="run"):
    return typed(json.loads((GOLDEN / f"{name}.json").read_text()))


def same_as_golden(name, text):
    if os.environ.get("FLL_GOLDEN") == "write":
        (GOLDEN / name).write_text(text)
    assert text == (GOLDEN / name).read_text()


# -- which view ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "stream", "term", "view"),
    [
        ("auto", Terminal, "xterm", LiveView),
        ("auto", Terminal, "dumb", PlainView),
        ("auto", Terminal, "", PlainView),
        ("auto", io.StringIO, "xterm", PlainView),
        ("live", io.StringIO, "xterm", LiveView),
        ("plain", Terminal, "xterm", PlainView),
        ("none", Terminal, "xterm", NoView),
    ],
)
def test_the_view_for_a_stream(monkeypatch, mode, stream, term, view):
    monkeypatch.setenv("TERM", term)
    assert type(make_ui(mode, stream())) is view


def test_an_unknown_mode_is_a_bug():
    with pytest.raises(ValueError, match="one of auto"):
        make_ui("fancy", io.StringIO())


# -- plain ---------------------------------------------------------------------------------------------------


def whole_run(ui, found, snapshots):
    ui.banner(["SIMULATED TARGET: the embedded simulated engine", "load     open loop, poisson, 500/s"])
    ui.phase("warmup", 100, None)
    ui.phase("measure", 15_000, 30.0)
    for snapshot in snapshots:
        ui.update(snapshot)
    ui.message("worker 1 died")
    ui.finish(found, folder="runs/x")
    ui.close()


def test_what_waits_for_a_first_token_is_shown_with_a_cap_on_it() -> None:
    capped = replace(FULL, in_flight=12, waiting=4)
    assert "in flight 12, waiting 4, " in snapshot_line(capped) and "waiting" not in snapshot_line(FULL)
    shown, without = ("\n".join(line.plain for line in render_snapshot(each).renderables) for each in (capped, FULL))
    assert "connections, 4 waiting for a first token\n" in shown and "waiting" not in without


def test_both_kinds_of_first_token_while_answers_reason():
    """Without reasoning there is one, as before."""
    thinking = replace(FULL, ttft_any_p50_ms=12.5, ttft_any_p99_ms=20.25)
    assert "ttft 44.10/121.1 ms, ttft_any 12.50/20.25 ms, itl" in snapshot_line(thinking)
    assert "ttft_any" not in snapshot_line(FULL)
    both, one = ("\n".join(line.plain for line in render_snapshot(each).renderables) for each in (thinking, FULL))
    assert re.search(r"ttft +p50 +44.10 +p99 +121.1 ms  first answer token\n", both)
    assert re.search(r"ttft_any +p50 +12.50 +p99 +20.25 ms  first token of any kind\n", both)
    assert "ttft_any" not in one and "answer token" not in one


def test_gaps_between_chunks_have_their_own_name_where_itl_spreads_them():
    """With --itl-option B, ITL is known only after the run; the counters have the time between chunks."""
    spread = replace(FULL, gaps="tbc")
    assert "tbc 20.30/24.60 ms" in snapshot_line(spread) and "itl" not in snapshot_line(spread)
    rows = [line.plain.split()[0] for line in render_snapshot(spread).renderables]
    assert "tbc" in rows and "itl" not in rows


def test_plain_lines_of_a_run():
    stream = io.StringIO()
    at = [Snapshot(t=t / 4, phase="measure", asked_rate=500.0, achieved_rate=499.0) for t in range(49)]
    whole_run(make_ui("plain", stream), document(), [*at, FULL])
    same_as_golden("plain.txt", stream.getvalue())


def test_plain_prints_one_line_every_five_seconds_in_each_phase():
    stream = io.StringIO()
    ui = make_ui("plain", stream)
    for name in ("warmup", "measure"):
        ui.phase(name, None, None)
        for quarter in range(4 * 16):
            ui.update(Snapshot(t=quarter / 4, phase=name))
    times = re.findall(r"^ +(\d:\d\d) (\w+)", stream.getvalue(), re.MULTILINE)
    assert times == [(t, name) for name in ("warmup", "measure") for t in ("0:05", "0:10", "0:15")]


def test_failing_urls_are_named_during_the_run():
    """Also before anything failed, so that the live view keeps its height."""
    quiet = Snapshot(t=5.0, phase="measure", failed_at={})
    bad = replace(
        quiet, failed=9, errors={"reset": 9}, failed_at={"http://b/v1": 1, "http://a/v1": 6, "http://c/v1": 2}
    )
    assert "failed at" not in snapshot_line(quiet)
    assert snapshot_line(bad).endswith("; reset 9; failed at http://a/v1 6, http://c/v1 2 and 1 more")

    def drawn(snapshot):
        return [line.plain for line in render_snapshot(snapshot).renderables]

    assert drawn(quiet)[-1].split() == ["failed", "at", "none"]
    assert drawn(bad)[-1].endswith("http://a/v1 6, http://c/v1 2, http://b/v1 1")
    assert len(drawn(quiet)) == len(drawn(bad)) == len(drawn(replace(quiet, failed_at=None))) + 1


def a_host(number, **changed):
    made = HostSnapshot(
        number=number, name=f"gpu-cluster-node-{number:03}", sent=987_654, ok=987_000, failed=0, in_flight=5_000,
        events_per_s=250_123.0, lag_p99_us=45.6,
    )  # fmt: skip
    return replace(made, **changed)


def live_lines(snapshot):
    return [line.plain for line in render_snapshot(snapshot).renderables]


def test_three_hosts_are_shown_in_their_order():
    """Each on a line of at most 80 characters, with the end of its name; a host that reports nothing is silent."""
    hosts = [a_host(0), a_host(1, silent_s=4.2), a_host(2, status="lost", silent_s=30.0, failed=12)]
    lines = live_lines(replace(FULL, hosts=hosts))[-4:]
    assert lines[0].split() == ["3", "hosts", "sent", "ok", "failed", "flight", "events/s", "lag", "p99", "us"]
    assert [line[:25].split() for line in lines[1:]] == [
        ["0", "…er-node-000", "running"], ["1", "…er-node-001", "silent", "4", "s"], ["2", "…er-node-002", "lost"],
    ]  # fmt: skip
    assert lines[1][25:].split() == ["987,654", "987,000", "0", "5,000", "250,123", "45.60"]
    assert all(len(line) <= 80 for line in lines)
    plain = host_lines(replace(FULL, hosts=hosts))
    assert [line.split(",")[0].strip() for line in plain] == [
        "host 0 (gpu-cluster-node-000) running", "host 1 (gpu-cluster-node-001) silent 4 s",
        "host 2 (gpu-cluster-node-002) lost",
    ]  # fmt: skip
    assert "in flight 5,000, events 250,123/s, lag p99 45.60 us" in plain[0]


def test_of_a_hundred_hosts_the_worst_are_shown_and_the_others_counted():
    changes = {70: {"status": "lost"}, 7: {"status": "late"}, 33: {"silent_s": 5.0}, 50: {"failed": 3}}
    changes |= {number: {"lag_p99_us": 900.0 + number} for number in (10, 11, 12, 13, 14)}
    hosts = [a_host(number, **changes.get(number, {})) for number in range(100)]
    lines = live_lines(replace(FULL, ttft_any_p50_ms=1.0, failed_at={}, hosts=hosts))
    assert len(lines) <= 24 and all(len(line) <= 80 for line in lines[-10:])
    assert [line.split()[0] for line in lines[-9:-1]] == ["70", "7", "33", "50", "14", "13", "12", "11"]
    assert lines[-1] == "92 more hosts: 92 running"
    plain = host_lines(replace(FULL, hosts=hosts))
    assert [line.split()[1] for line in plain] == ["70", "7", "33", "more"]


def test_one_host_has_no_table():
    assert host_lines(FULL) == [] and not any("hosts" in line for line in live_lines(FULL))


def test_classes_of_a_mix_have_a_line_each():
    """With those that fail first where there is no room for all; names are redacted and cut."""
    made = [
        ClassSnapshot(name=f"class-{number}", in_flight=number, ok=100, p50_ms=20.5, p99_ms=1234.0)
        for number in range(3)
    ]
    lines = live_lines(replace(FULL, classes=made))[-4:]
    assert lines[0].split() == ["3", "classes", "flight", "ok", "failed", "p50", "ms", "p99", "ms"]
    assert [line.split() for line in lines[1:]] == [
        [f"class-{number}", "ttft", str(number), "100", "0", "20.50", "1,234"] for number in range(3)
    ]
    many = [replace(made[0], name=f"a-very-long-name-{number}", failed=number % 20) for number in range(20)]
    lines = live_lines(replace(FULL, ttft_any_p50_ms=1.0, failed_at={}, classes=many))
    assert len(lines) <= 24 and all(len(line) <= 80 for line in lines[-10:]) and lines[-1] == "12 more classes"
    assert lines[-9].split()[4] == "19" and lines[-9].startswith("a-very-long-n…")
    hidden = render_snapshot(replace(FULL, classes=made), lambda text: text.replace("class-1", "*"))
    assert "class-1" not in "\n".join(line.plain for line in hidden.renderables)


def test_names_of_hosts_are_redacted_in_the_live_view():
    secret = render_snapshot(
        replace(FULL, hosts=[a_host(0, name="sk-secret")]), lambda text: text.replace("secret", "*")
    )
    assert "secret" not in "\n".join(line.plain for line in secret.renderables)


def test_a_snapshot_without_anything_is_not_available():
    assert snapshot_line(replace(EMPTY, phase="measure")).count("n/a") == 5
    assert snapshot_line(EMPTY).count("n/a") == 2 and "ttft" not in snapshot_line(EMPTY)
    assert "None" not in snapshot_line(EMPTY)


def test_closed_loop_and_all_at_once():
    assert "64 slots, 120.0/s" in snapshot_line(Snapshot(t=1, phase="m", concurrency=64, achieved_rate=120.0))
    everything = Snapshot(t=1, phase="m", asked_rate=float("inf"), achieved_rate=9000.0)
    assert "9,000 of all" in snapshot_line(everything)


def test_errors_are_named_after_what_ended_the_request():
    """In the files they keep their own names."""
    shown = failures.errors({"deadline": 3, "drain": 2, "event": 1, "reset": 4})
    assert shown == "reset 4, timeout 3, cancelled at the end 2, stream_error 1"


@pytest.mark.parametrize(
    ("planned", "seconds", "text"),
    [
        (15_000, 30.0, "m: 15,000 requests in 0:30"),
        (10, None, "m: 10 requests"),
        (1, None, "m: 1 request"),
        (None, 90.0, "m: 1:30"),
        (None, None, "m"),
    ],
)
def test_phase_lines(planned, seconds, text):
    assert phase_line("m", planned, seconds) == text


def test_none_prints_only_the_run_folder():
    stream = io.StringIO()
    whole_run(make_ui("none", stream), document(), [FULL])
    assert stream.getvalue() == "runs/x\n"


# -- live ----------------------------------------------------------------------------------------------------


def drawn(snapshot, columns):
    from rich.console import Console

    console = Console(file=io.StringIO(), width=columns, color_system=None)
    console.print(render_snapshot(snapshot))
    return console.file.getvalue()


@pytest.mark.parametrize("columns", [40, 80])
def test_the_live_view(columns):
    same_as_golden(f"live-{columns}.txt", drawn(FULL, columns))


def test_the_warm_up_is_marked_as_not_measured_and_keeps_the_height():
    warming, measuring = (drawn(replace(EMPTY, phase=phase), 80) for phase in ("warmup", "measure"))
    assert warming.count("in the warm-up") == 4 and "not measured" not in measuring
    assert len(warming.splitlines()) == len(measuring.splitlines())


@pytest.mark.parametrize("columns", [20, 40, 80, 200])
@pytest.mark.parametrize("snapshot", [FULL, EMPTY])
def test_the_live_view_fits_any_terminal(columns, snapshot):
    lines = drawn(snapshot, columns).splitlines()
    assert len(lines) <= 22
    assert max(map(len, lines)) <= columns
    assert "None" not in "".join(lines)


def test_live_draws_four_times_a_second_at_most():
    now = [0.0]
    stream = Terminal()
    ui = LiveView(Outlet(stream, str), str, now=lambda: now[0])
    ui.phase("measure", 10, 1.0)
    drawn_at = []
    for step in range(100):
        now[0] = step / 64  # exact in binary, as 0.25 is
        before = len(stream.getvalue())
        ui.update(FULL)
        if len(stream.getvalue()) > before:
            drawn_at.append(now[0])
    ui.close()
    assert drawn_at == [0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5]


def test_live_releases_the_terminal_and_ends_with_the_summary(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    whole_run(make_ui("live", stream), document(), [FULL])
    shown = stream.getvalue()
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 1
    summary = shown[shown.index("\x1b[?25h") :].partition("\n")[2]
    assert "worker 1 died" in shown
    assert summary.splitlines()[-1].startswith("SIMULATED ENGINE")
    assert "\x1b[3" not in summary


def test_close_without_finish_shows_the_cursor_and_can_be_repeated():
    stream = Terminal()
    ui = make_ui("live", stream)
    ui.phase("measure", None, None)
    ui.update(FULL)
    ui.close()
    ui.close()
    assert stream.getvalue().count("\x1b[?25h") == 1


@pytest.mark.parametrize(("no_color", "coloured"), [(None, True), ("", True), ("1", False)])
def test_colour_only_on_a_terminal_without_no_color(monkeypatch, no_color, coloured):
    if no_color is not None:
        monkeypatch.setenv("NO_COLOR", no_color)
    for stream, expected in ((Terminal(), coloured), (io.StringIO(), False)):
        make_ui("plain", stream).finish(document(), folder="runs/x")
        assert ("\x1b[1;33mverdict" in stream.getvalue()) == expected


@pytest.mark.parametrize(("rows", "lines"), [("10", 23), ("24", 23), ("50", 49)])
def test_the_summary_may_use_the_terminals_lines(monkeypatch, rows, lines):
    monkeypatch.setenv("LINES", rows)
    assert lines_of(Terminal()) == lines
    assert lines_of(io.StringIO()) == 23


def test_the_summary_follows_the_terminals_width(monkeypatch):
    for columns in (40, 120):
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("NO_COLOR", "1")
        stream = Terminal()
        make_ui("plain", stream).finish(document(), folder="runs/20261121-051500-0a1b2c3d")
        assert stream.getvalue() == (GOLDEN / f"summary-{columns}.txt").read_text()


# -- whatever is written -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["live", "plain"])
def test_no_view_prints_a_secret(mode):
    stream = Terminal()
    ui = make_ui(mode, stream, Redactor(["sk-hidden"]))
    reason = Reason(severity="suspect", text="the server says: bad key sk-hidden")
    found = change(
        document(), certificate=Certificate(verdict="suspect", reasons=(reason,)), target=TargetFacts(model="sk-hidden")
    )
    ui.banner(["to sk-hidden"])
    ui.phase("measure", None, None)
    ui.update(Snapshot(t=6, phase="measure", errors={"sk-hidden": 3}))
    ui.message("the server says sk-hidden " * 4)
    ui.finish(found)
    assert "hidden" not in stream.getvalue()
    assert "***" in stream.getvalue()


class Gone(io.StringIO):
    """A pipe that is closed after N writes."""

    def __init__(self, after):
        super().__init__()
        self.left = after

    def write(self, text):
        self.left -= 1
        if self.left < 0:
            raise BrokenPipeError(32, "Broken pipe")
        return super().write(text)


@pytest.mark.parametrize("mode", ["live", "plain", "none"])
@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_closed_pipe_does_not_end_the_run(mode, after):
    stream = Gone(after)
    whole_run(make_ui(mode, stream), document(), [FULL])
    assert stream.left >= -1  # nothing is tried again


# -- numbers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "n/a"),
        (float("nan"), "n/a"),
        ("3", "n/a"),
        (True, "n/a"),
        (0, "0"),
        (0.01234, "0.0123"),
        (3.21654, "3.217"),
        (48.315, "48.31"),
        (812.44, "812.4"),
        (12345.6, "12,346"),
        (float("inf"), "inf"),
        (-3.5, "-3.500"),
    ],
)
def test_quantities(value, text):
    assert numbers.quantity(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00"), (7.9, "0:07"), (300, "5:00"), (3723, "1:02:03"), (None, "n/a"), (-1, "0:00")],
)
def test_clock(seconds, text):
    assert numbers.clock(seconds) == text


def test_errors_are_ranked_and_bounded():
    classes = {"a": 1, "b": 9, "c": 0, "d": 2, "e": 3, "f": 4}
    assert failures.errors(classes) == "b 9, f 4, e 3, d 2, and 1 more classes"
    assert failures.errors({}) == ""


@pytest.mark.parametrize("mode", ["plain", "live"])
def test_server_text_cannot_control_the_terminal(mode):
    """Escapes and line ends of a model's name are replaced, in the first `target:` line and in every message."""

    class Stream(io.StringIO):
        def isatty(self):
            return False

    stream = Stream()
    view = make_ui(mode, stream)
    view.banner(["target: http://h, openai-chat, model \x1b]0;owned\x07evil\nVALID\x9b2J\u202e"])
    view.message("it said \x1b[2J")
    view.close()
    said = stream.getvalue()
    assert not any(one in said for one in ("\x1b]", "\x1b[2J", "\x07", "\x9b", "\u202e"))
    assert not any(line.startswith("VALID") for line in said.splitlines())
