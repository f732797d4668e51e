"""Fail when a hot function touches the interpreter: no line of it may call Python's or Cython's own functions in the C code.

    python tools/annotate_budget.py [ROOM/MODULE ...]

HOT names what counts as hot, per module: what runs per event, per read or per batch, in the module's `.pyx` or inline in
its `.pxd`. A name that is no longer there is an error too, so that a renamed function does not slip out of the budget. The
line of a signature does not count: there stands what a function does when it raises.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "ext" / "fastllmload" / "_ext"

HOT: dict[str, str] = {
    "bytes/jsonfind": "json_member json_item",
    "bytes/jsonscan": "json_string escape hex4 utf8 digits json_number json_count json_digits json_skip container"
    " blank_text blank_character blank_unit",
    "http/response": "body_begin body_lines body_eof line_byte size_byte trailer_byte broken head_size",
    "events/calls": "text_reset calls_clear calls_free text_is index_said text_said value_span says_call add_call"
    " text_grows object_said value_said list_said choices_said call_of note read_event is_timed",
    "events/delta": "_scan template_reset template_read template_takes_slots template_learn recall to_character"
    " characters_of skip_characters judge judge_text",
    "events/dialect": "finish_of",
    "events/facts": "facts_clear facts_scan members variant_of variant_named value string text first object_value"
    " array_value objects items flag number",
    "events/grpc": "grpc_reset prefix_taken keep grpc_next deliver",
    "events/message": "key_numbered is_list zeros number_value ids raw_number character utf8_more",
    "events/ndjson": "ndjson_reset ndjson_next ndjson_eof deliver",
    "events/sse": "sse_reset sse_next skip_bom resume next_line whole_of_parts line_end field skip_space data_line join"
    " own_data other_field end_event keep die",
    "record/recorder": "event end_row",
    "receive/exchange": "ended_add ended_take exchange_open exchange_held exchange_give_back",
    "receive/http1": "refused open next _head eof",
    "receive/http2": "number never_opened header_read next _began _data _failing leave",
    "receive/multiplex": "home stream_find stream_close put_sent window_closed",
    "receive/websocket": "header_bytes header_read between open wrong",
    "receive/messages": "replies_sent put_text_header",
    "receive/protocol": "feed feed_streams arrives _feed_messages _messages _message"
    " _step _head _streams _body _payload _last_line _finish _end fail",
    "receive/timeline": "tokens_of put content like like_message may_be_token event _wrong _said _timed whole settle",
    "plan/pacer": "_planned due follower_is_next spin woke",
    "send/connection": "list_add list_remove",
    "send/pool": "find stream reuse put tail end_tails failed _left _watch",
    "send/reactor": "loop_earliest loop_read _poll _batch _on_beat _woken _take_times _next_beat _house _open_ahead",
    "send/releases": "arm release may_issue refill handle_ends follow cancel_overdue",
    "send/streams": "fed",
    "send/transport": "clock check_clock connected connect_failed send submitted event _read _got _earliest on_time"
    " _ready_ns _settle fed broken cancel",
    "measure/deadlines": "judge keeps longest_gap",
    "measure/tokenline": "is_timed timed_of deviation",
}

# In the C code each line begins with a comment that names it; Cython's annotation counts the same calls.
LINE = re.compile(r'/\* "(?:ext/)?fastllmload/_ext/([\w/.]+)":(\d+)$|/\* (function exit code) \*/', re.M)
CALL = re.compile(
    r"\b(Py[A-Z][a-z]+_[A-Z]\w+|__Pyx_(?!RefNanny|GOTREF|XGOTREF|GIVEREF|XGIVEREF|AddTraceback)[A-Z][A-Za-z]\w+)\("
)


def translated(module: str) -> str:
    """The C code of *module*: that of the latest build if nothing in ext/ has changed since."""
    built = ROOT / "build" / "cython" / "ext" / "fastllmload" / "_ext" / f"{module}.c"
    newest = max(path.stat().st_mtime for path in SOURCES.rglob("*.p[yx][xd]"))
    if built.exists() and built.stat().st_mtime > newest:
        return built.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "module.c"
        command = [
            sys.executable, "-m", "cython", "-3", "--shared", "fastllmload._ext._shared",
            "--module-name", f"fastllmload._ext.{module.replace('/', '.')}", "-I", "ext", "-o", str(out),
            f"ext/fastllmload/_ext/{module}.pyx",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
        if done.returncode != 0:
            raise SystemExit(f"Cython refuses {module}:\n{done.stdout}{done.stderr}")
        return out.read_text(encoding="utf-8")


def calls(module: str) -> dict[tuple[str, int], set[str]]:
    """(file, line) -> functions of the interpreter that the C code of *module* calls there."""
    code = translated(module)
    found: dict[tuple[str, int], set[str]] = {}
    marks = list(LINE.finditer(code))
    for mark, after in zip(marks, [*marks[1:], None], strict=True):
        if mark[3] is None:
            text = code[mark.end() : after.start() if after else None]
            found.setdefault((mark[1], int(mark[2])), set()).update(CALL.findall(text.split("*/", 1)[-1]))
    return found


def extent(lines: list[str], function: str) -> range | None:
    """Line numbers, counted from 1, of the function's body; None when it is not there."""
    head = re.compile(rf"(\s*)c?p?def\s[^=#]*?\b{re.escape(function)}\(")
    for at, line in enumerate(lines):
        begun = head.match(line)
        if begun is None:
            continue
        end = at
        while end < len(lines) and not lines[end].split("#")[0].rstrip().endswith(
            (":", "except -1", "noexcept", "nogil")
        ):
            end += 1
        if end == len(lines) or not lines[end].split("#")[0].rstrip().endswith(":"):
            continue  # a declaration
        first = end + 1
        end = first
        while end < len(lines) and (not lines[end].strip() or indent(lines[end]) > len(begun[1])):
            end += 1
        return range(first + 1, end + 1)
    return None


def indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def breaches(module: str, functions: str) -> list[str]:
    """One sentence per line of a hot function that calls the interpreter, and per hot function that is gone."""
    called = calls(module)
    sources = {
        f"{module}{kind}": path.read_text(encoding="utf-8").splitlines()
        for kind in (".pyx", ".pxd")
        if (path := SOURCES / f"{module}{kind}").exists()
    }
    found = []
    for function in functions.split():
        spans = [(name, lines, extent(lines, function)) for name, lines in sources.items()]
        if all(span is None for _, _, span in spans):
            found.append(f"{module}: {function} is listed as hot but is not there; correct HOT in this tool")
        found += [
            f"{name}:{number}: {function} calls {', '.join(sorted(called[name, number]))}: {lines[number - 1].strip()}"
            for name, lines, span in spans
            for number in span or ()
            if called.get((name, number))
        ]
    return found


def main(names: list[str]) -> int:
    unknown = sorted(set(names) - set(HOT))
    if unknown:
        raise SystemExit(f"no hot functions are listed for {', '.join(unknown)}; listed: {', '.join(HOT)}")
    found = [line for name in names or HOT for line in breaches(name, HOT[name])]
    print(
        "\n".join(found)
        or f"{sum(len(HOT[name].split()) for name in names or HOT)} hot functions, no Python interaction"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
