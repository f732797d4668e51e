"""Every way to end has its exit code and its sentence; help is instant; no output shows a key."""

from __future__ import annotations

import base64
import io
import json
import subprocess
import sys
import types
from pathlib import Path
from urllib.parse import quote

import click
import pytest
from refusals import says

from fastllmload import __version__
from fastllmload.cli import main as entry
from fastllmload.errors import HostLimitError, Interrupted, RunFolderError, TargetError

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _own_hooks(monkeypatch):
    """main() takes over the process's hooks, and the environment decides about targets and keys."""
    for module, name in ((sys, "excepthook"), (sys, "unraisablehook"), (entry.threading, "excepthook")):
        monkeypatch.setattr(module, name, getattr(module, name))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


@pytest.fixture
def engine(monkeypatch):
    """A stand-in for the supervisor at its import; `engine.execute` can be replaced."""
    module = types.ModuleType("fastllmload.engine.run")
    module.calls = []

    def execute(settings, secret, ui, placement=None):
        module.calls.append((settings, secret))
        return 0

    module.execute = execute
    monkeypatch.setitem(sys.modules, "fastllmload.engine.run", module)
    return module


def ends_with(engine, error):
    def execute(settings, secret, ui, placement=None):
        raise error

    engine.execute = execute


def test_options_alone_are_a_run(engine):
    assert entry.main(["--rate", "5"]) == 0
    assert entry.main(["run", "--rate", "5"]) == 0
    assert engine.calls[0][0] == engine.calls[1][0]
    assert engine.calls[0][0].load.rate == 5.0


@pytest.mark.parametrize("code", [0, 1, 3, 4])
def test_the_runs_code_is_the_exit_code(engine, code):
    engine.execute = lambda settings, secret, ui, placement: code
    assert entry.main(["--rate", "5"]) == code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TargetError("target-unreachable", "http://h:1 refused"), 3),
        (HostLimitError("load-exceeds-host", "too few files"), 2),
        (RunFolderError("not-a-run-folder", "runs/x"), 2),
        (Interrupted("interrupted", "stopped"), 4),
    ],
)
def test_each_branch_of_errors_is_one_sentence(engine, capsys, error, code):
    ends_with(engine, error)
    assert entry.main(["--rate", "5"]) == code
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"fastllmload: {error}\n")


def test_a_sentence_with_a_huge_value_in_it_is_shortened(engine, capsys):
    ends_with(engine, TargetError("figure-unknown", f"there is no column {'x' * 100_000}; name another"))
    assert entry.main(["--rate", "5"]) == 3
    said = capsys.readouterr().err
    assert (
        len(said) < 2100
        and said.startswith("fastllmload: there is")
        and said.endswith("; name another [figure-unknown]\n")
    )


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()])
def test_an_interrupt_is_code_4(engine, capsys, error):
    ends_with(engine, error)
    assert entry.main(["--rate", "5"]) == 4
    assert capsys.readouterr().err == "fastllmload: interrupted [interrupted]\n"


def test_a_bug_is_code_70_with_a_trace(engine, capsys):
    ends_with(engine, ZeroDivisionError("of something"))
    assert entry.main(["--rate", "5"]) == 70
    err = capsys.readouterr().err
    assert err.startswith("Traceback ")
    assert "test_cli_main.py" in err
    assert says(err.splitlines()[-1], "internal-error", f"fastllmload {__version__}")
    assert "ZeroDivisionError: of something" in err.splitlines()[-1]


KEY = 'sk-"hush~hush"/+1'


@pytest.mark.parametrize("way", ["argument", "environment", "file"])
def test_a_trace_shows_the_key_in_no_form(engine, capsys, monkeypatch, tmp_path, way):
    arguments = {
        "argument": ["--api-key", KEY],
        "environment": [],
        "file": ["--api-key-file", str(tmp_path / "k")],
    }[way]
    (tmp_path / "k").write_text(KEY + "\n")
    if way == "environment":
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
    forms = [
        KEY,
        base64.b64encode(KEY.encode()).decode(),
        base64.urlsafe_b64encode(KEY.encode()).decode(),
        quote(KEY, safe=""),
        quote(KEY),
        repr(KEY)[1:-1],
        json.dumps(KEY)[1:-1],
    ]

    def execute(settings, secret, ui, placement=None):
        ui.message(f"{settings} {secret.reveal()} {secret}")
        raise RuntimeError(" ".join([secret.reveal(), *forms]))

    engine.execute = execute
    assert entry.main(["--rate", "5", "--ui", "plain", *arguments]) == 70
    shown = "".join(capsys.readouterr())
    assert "RuntimeError: ***" in shown
    assert [form for form in forms if form in shown] == []
    assert "hush~hush" not in shown


def test_a_refused_value_does_not_show_the_key(engine, capsys):
    assert entry.main(["--rate", "5", "--url", "http://me:hunter2@host"]) == 2
    assert entry.main(["--rate", "5", "--api-key", "k\u00e9y", "--isl", "k\u00e9y"]) == 2
    err = capsys.readouterr().err
    assert "hunter2" not in err
    assert "k\u00e9y" not in err


def test_a_trace_without_its_workload_is_named_by_its_fields(capsys, tmp_path):
    spans = tmp_path / "spans.jsonl"
    spans.write_text('{"trace_id": "a", "span_id": "b"}\n')
    shared = tmp_path / "sharegpt.json"
    shared.write_text('[{"conversations": [{"from": "human", "value": "a"}]}]')
    for arguments, workloads in (
        (["plan", "--dataset-path", str(spans)], "otel, whose fields it has"),
        (["--rate", "1", "--dataset-path", str(shared)], "azure or burstgpt"),
    ):
        assert entry.main(arguments) == 2
        assert f"is the file of a workload; add --workload {workloads}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ("load-missing", "--rate")),
        (["--bogus"], ("option-unknown", "--bogus", "no counterpart")),
        (
            ["--ramp-up-strategy", "linear"],
            ("option-missing", "--ramp-up-strategy", "--ramp-up-start-rps", "--ramp-up-end-rps"),
        ),
        (["--rate-series", "absent.csv"], ("rate-curve-invalid", "absent.csv", "(No such file")),
        (
            ["--rate", "1", "--dataset-path", "f"],
            ("option-not-applicable", "--dataset-path", "--workload azure", "burstgpt"),
        ),
        (["--workload", "azure"], ("option-missing", "--workload azure", "--dataset-path FILE")),
        (
            ["--workload", "azure", "--dataset-path", "f", "--isl", "5"],
            ("option-not-applicable", "--isl", "--workload azure"),
        ),
        (["--prefix-shore", "1"], ("option-unknown", "--prefix-shore", "--prefix-share?")),
        (["--rate"], ("usage", "'--rate'", "see fastllmload --help")),
        (["--goodput", "--rate", "5"], ("usage", "'--goodput'")),
        (["--rate", "5", "extra"], ("usage", "'extra'", "http://HOST:PORT")),
        (["srch"], ("usage", "'srch'", "search?")),
        (["nothing-such"], ("usage", "'nothing-such'", "run, quick, simulate")),
        (["simulat"], ("usage", "'simulat'", "simulate?")),
        (["export", "runs/none", "--format", "xml"], ("value-invalid", "'xml'", "'jsonl'", "'csv'")),
        (["report"], ("usage", "'RUN'")),
    ],
)
def test_wrong_usage_is_code_2_and_one_sentence(engine, capsys, arguments, words):
    assert entry.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("fastllmload: ")
    assert says(err, *words)
    assert err.count("\n") == 1
    assert engine.calls == []


def test_version(capsys):
    assert entry.main(["--version"]) == 0
    assert capsys.readouterr().out == f"fastllmload {__version__}\n"


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["run", "--help"], ["--rate", "5", "--help"]])
def test_help_names_every_option_of_a_run(capsys, arguments):
    from fastllmload.cli.options.table import OPTIONS

    assert entry.main(arguments) == 0
    shown = " ".join(capsys.readouterr().out.split()).replace("- ", "-")
    assert [flag for option in OPTIONS for flag in option.flags if flag not in shown] == []


@pytest.mark.parametrize("command", ["quick", "search", "procedure ttft"])
def test_help_names_no_option_that_the_command_refuses(capsys, command):
    refused = {"quick": ("--rate", "--class"), "search": ("--concurrency", "--class"), "procedure ttft": ("--class",)}[
        command
    ]
    for flag in refused:
        assert entry.main([*command.split(), flag, "a rate=5" if flag == "--class" else "5"]) == 2
        assert capsys.readouterr().err.rstrip().endswith(("[option-prescribed]", "[option-not-applicable]"))
    assert entry.main([*command.split(), "--help"]) == 0
    first = [line.split()[:3] for line in capsys.readouterr().out.splitlines()]
    assert [flag for flag in refused for words in first if flag in words[:2]] == []


SPY = """
import sys
from fastllmload.cli.main import main
code = main(sys.argv[1:])
libraries = ("numpy", "uvloop", "rich", "httptools", "quicktok", "asyncio")
tables = ("_shared", "bytes", "bytes.jsonscan", "bytes.schema", "events", "events.dialect")  # of the endpoints
light = ["fastllmload._ext." + name for name in tables]
heavy = [name for name in sys.modules if name.split(".")[0] in libraries
         or name.startswith("fastllmload._ext.") and name not in light]
print("HEAVY", heavy)
sys.exit(code)
"""


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--help"], 0),
        (["run", "--help"], 0),
        (["plan", "--help"], 0),
        (["simulate", "--help"], 0),
        (["--version"], 0),
        (["--rate", "x"], 2),
        ([], 2),
        (["report", "--help"], 0),
        (["doctor", "--help"], 0),
        (["search", "--help"], 0),
        (["sweep", "--help"], 0),
    ],
)
def test_help_and_refusals_import_nothing_heavy(arguments, code):
    """`--help` answers within 0.3 s because of what it leaves alone."""
    ended = subprocess.run(
        [sys.executable, "-c", SPY, *arguments], capture_output=True, text=True, timeout=30, check=False
    )
    lines = ended.stdout.splitlines()
    # click ends `simulate --help` by itself only when it runs alone; here it comes back like the others
    assert ended.returncode == code, ended.stderr
    assert lines[-1] == "HEAVY []"


def test_python_m():
    command = [sys.executable, "-m", "fastllmload", "--rate", "0"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 2
    assert says(ended.stderr, "rate-invalid", "--rate '0'")


def test_stray_tracebacks_are_redacted(capsys, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-stray")
    entry.main(["--version"])
    capsys.readouterr()
    error = ValueError("lost sk-stray")
    sys.excepthook(ValueError, error, None)
    entry.threading.excepthook(
        types.SimpleNamespace(exc_type=ValueError, exc_value=error, exc_traceback=None, thread=None)
    )
    sys.unraisablehook(
        types.SimpleNamespace(exc_type=ValueError, exc_value=error, exc_traceback=None, err_msg=None, object="sk-stray")
    )
    assert capsys.readouterr().err.count("ValueError: lost ***") == 3


def test_the_view_is_closed_whatever_happens(engine, monkeypatch):
    closed = []
    from fastllmload.report.terminal import view

    class View(view.NoView):
        def close(self):
            closed.append(True)

    monkeypatch.setattr(view, "make_ui", lambda mode, stream, redact: View(view.Outlet(io.StringIO(), redact)))
    ends_with(engine, RuntimeError("x"))
    assert entry.main(["--rate", "5"]) == 70
    assert closed == [True]


def test_report_and_export_refuse_folders_without_a_run(capsys, tmp_path):
    for arguments in (
        ["report", str(tmp_path)],
        ["export", str(tmp_path)],
        ["report", str(tmp_path / "none")],
    ):
        assert entry.main(arguments) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_report_shows_a_run_again(capsys, tmp_path):
    golden = Path(__file__).parents[2] / "golden" / "terminal"
    (tmp_path / "run.json").write_text((golden / "run.json").read_text())
    assert entry.main(["report", str(tmp_path)]) == 0
    shown = capsys.readouterr().out.replace(str(tmp_path), "runs/20261121-051500-0a1b2c3d")
    assert shown == (golden / "summary-80.txt").read_text()


def test_calibrate_prints_what_was_measured(capsys, monkeypatch):
    module = types.ModuleType("fastllmload.certificate.calibration")
    module.calibrate = lambda: ["8,000 streams"]
    monkeypatch.setitem(sys.modules, "fastllmload.certificate.calibration", module)
    assert entry.main(["calibrate"]) == 0
    assert capsys.readouterr().out == "8,000 streams\n"
