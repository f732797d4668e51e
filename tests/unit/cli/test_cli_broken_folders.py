"""Whatever happened to a run folder: one clear sentence and exit code 2, or what can still be read; never a trace."""

from __future__ import annotations

import contextlib
import html
import io
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from real_run import real_run
from refusals import says

from fastllmload.cli import main as entry

pytestmark = pytest.mark.slow

COMMANDS = ("report --as full", "report --as blog", "export", "report --as html", "export --format hlog")
MAIN = ("run.json", "requests.npy", "tokens.npy")  # what every command reads; the others fill in a part
READERS = {"hiccup_intervals.npy": ("export --format hlog",)}
MEASURED = ("metrics", "certificate", "counts", "telemetry", "server", "completed", "failed", "slo", "errors", "window")


@pytest.fixture(autouse=True)
def _own_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((sys, "excepthook"), (sys, "unraisablehook"), (entry.threading, "excepthook")):
        monkeypatch.setattr(module, name, getattr(module, name))


def saved(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def damages(path: Path) -> Iterator[tuple[str, bytes | None]]:
    """Ways to break the file; None removes it."""
    data = path.read_bytes()
    yield "missing", None
    yield "empty", b""
    yield "half", data[: len(data) // 2]
    yield "tail cut", data[:-3]
    yield "garbage", b"\x00\xff" * 50
    if path.suffix == ".npy":
        yield "other dtype", saved(np.zeros((3, 2), "<f4"))
        yield "scalar", saved(np.array(3))
    if path.suffix == ".json":
        yield "list", b"[]"
        yield "newer", json.dumps({**json.loads(data), "schema_version": 99, "version": 99}).encode()


def said_by(command: str, folder: Path) -> tuple[int, str, str]:
    name, *options = command.split()
    if name == "compare":  # with the folder that it names
        options, folder = [str(folder)], Path(options[0])
    out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = entry.main([name, str(folder), *options])
        out.flush()
    return code, out.buffer.getvalue().decode("utf-8"), err.getvalue()  # type: ignore[attr-defined]


def unmeasured(folder: Path) -> None:
    """The folder of a killed run: it has rows, but no figures."""
    manifest = json.loads((folder / "run.json").read_text())
    kept = {name: value for name, value in manifest.items() if name not in MEASURED}
    (folder / "run.json").write_text(json.dumps({**kept, "status": "killed"}))


@pytest.mark.parametrize("killed", [False, True])
def test_every_file_in_every_way(tmp_path: Path, killed: bool) -> None:
    whole, tried = tmp_path / "whole", 0
    shutil.copytree(real_run(), whole)
    if killed:
        unmeasured(whole)
    for path in sorted(path for path in whole.rglob("*") if path.is_file()):
        kept = path.read_bytes()
        for how, content in list(damages(path)):
            if path.name not in MAIN and how in ("garbage", "tail cut"):
                continue
            if content is None:
                path.unlink()
            else:
                path.write_bytes(content)
            others = READERS.get(path.name, ("report --as full" if killed else "report --as html",))
            for command in COMMANDS if path.name in MAIN else others:
                code, out, err = said_by(command, whole)
                what = (path.name, how, command, err)
                assert code in (0, 2), what
                lines = [line for line in err.splitlines() if not line.startswith("note ")]
                assert len(lines) == (1 if code == 2 else 0), what
                assert "Traceback" not in out + err, what
                assert code == 2 or out, what
                tried += 1
            path.write_bytes(kept)
    assert tried > 80


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("run.json", b'{"schema_version": 1, "status": "do', ("run-file-damaged", "run.json", "not JSON")),
        ("run.json", b'{"schema_version": 2}', ("schema-version", "schema_version 2", "reads 1")),
        ("run.json", b'{"schema_version": 1, "phases": {}}', ("run-file-damaged", "run.json", "`phases`")),
        (
            "run.json",
            b'{"schema_version": 1, "config": {"load": 3}}',
            ("run-file-damaged", "run.json", "`config.load`"),
        ),
        ("requests.npy", b"", ("run-file-damaged", "requests.npy", "0 bytes")),
        ("requests.npy", saved(np.zeros(3)), ("run-file-layout", "requests.npy")),
    ],
)
def test_the_sentence_says_what_is_wrong(
    tmp_path: Path, name: str, content: bytes | None, words: tuple[str, ...]
) -> None:
    shutil.copytree(real_run(), tmp_path / "run")
    if content is None:
        (tmp_path / "run" / name).unlink()
    else:
        (tmp_path / "run" / name).write_bytes(content)
    code, _, err = said_by("export", tmp_path / "run")
    assert (code, says(err, *words)) == (2, True), err


def test_a_killed_run_is_measured_and_marked(tmp_path: Path) -> None:
    shutil.copytree(real_run(), tmp_path / "run")
    unmeasured(tmp_path / "run")
    for command in ("report", "report --as markdown", "report --as minimum"):
        code, out, _ = said_by(command, tmp_path / "run")
        assert code == 0
        assert "INCOMPLETE (killed)" in out


EVIDENCE = ("requests.npy", "tokens.npy", "plan/schedule.npy", "plan/plan.json", "hiccup_intervals.npy")


@pytest.mark.parametrize("name", EVIDENCE)
@pytest.mark.parametrize("how", ["empty", "half", "one byte short", "garbage", "some bytes changed"])
def test_every_command_says_which_file_is_not_whole(tmp_path: Path, name: str, how: str) -> None:
    """A run that concluded lists its files: whatever was cut or changed is named where it matters, and no figure is made
    of it.
    """
    folder, whole = tmp_path / "run", real_run()
    shutil.copytree(whole, folder)
    data = (folder / name).read_bytes()
    changed = bytes(byte ^ 1 if k % 97 == 50 else byte for k, byte in enumerate(data))
    cut = {"empty": b"", "half": data[: len(data) // 2], "one byte short": data[:-1]}
    (folder / name).write_bytes({**cut, "garbage": b"\x8f" * len(data), "some bytes changed": changed}[how])
    size = f"{len(cut[how]):,} bytes where {len(data):,} are expected" if how in cut else "CRC-32"
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.name.startswith("report.")}
    code, out, err = said_by("report", folder)
    assert code == 0 and name in err and size in err and " ok, " in out
    assert before == {path.name: path.read_bytes() for path in folder.iterdir() if path.name.startswith("report.")}
    code, page, err = said_by("report --as html", folder)
    assert code == 0 and name in err and "DAMAGED FILES" in page and name in page
    code, out, _ = said_by("compliance", folder)
    assert code == 1 and (size in " ".join(out.split()) or how not in cut)
    for command in ("compare", "export", "export --format csv", "export --format hlog"):
        code, out, err = said_by(f"compare {whole}" if command == "compare" else command, folder)
        assert "Traceback" not in out + err and code in (0, 2), (command, err)
        if command == "compare" and name in EVIDENCE[:2]:
            assert "No figure could" in out
        if command.startswith("export") and name in EVIDENCE[:2]:
            assert name in err


def test_lists_of_requests_with_lost_events_are_null(tmp_path: Path) -> None:
    """Whole requests keep every stamp; of the others nothing that would need their events is reported."""
    folder = tmp_path / "run"
    shutil.copytree(real_run(), folder)
    _, whole, _ = said_by("export", folder)
    path = folder / "tokens.npy"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    _, out, err = said_by("export", folder)
    pairs = [(json.loads(a), json.loads(b)) for a, b in zip(whole.splitlines(), out.splitlines(), strict=True)]
    lost = [b for _, b in pairs if b["token_ns"] is None]
    assert 0 < len(lost) < len(pairs) and f"{len(lost):,} of {len(pairs):,} " in err
    for a, b in pairs:
        gone = {key for key, value in b.items() if value is None and a[key] is not None}
        assert {key for key in a if a[key] != b[key]} == gone
        assert b["token_ns"] is not None or gone == {
            *("token_ns", "token_counts", "read_ids", "untimed_ns", "untimed_counts", "timed_tokens"),
        }


@pytest.mark.parametrize("name", ["requests.npy", "tokens.npy"])
def test_a_killed_run_with_lost_records_has_no_figures_of_them(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "run"
    shutil.copytree(real_run(), folder)
    unmeasured(folder)
    path = folder / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    code, out, _ = said_by("report --as json", folder)
    found = json.loads(out)
    assert code == 0 and found["incidents"][-1].startswith(f"{path} is cut: ")
    for metric in ("itl", "tpot", "output_tok_s", "tokens_in_flight"):
        entry = found["metrics"][metric]
        assert entry.get("p50", entry.get("value")) is None and name in entry["note"]
    assert (found["metrics"]["ttft"]["p50"] is None) == (name == "requests.npy")
    assert found["slo"] is None and found["certificate"] is None


@pytest.mark.parametrize("command", ["report", "report --as full", "report --as html", "export"])
def test_a_folder_without_checksums_says_what_cannot_be_found(tmp_path: Path, command: str) -> None:
    """One sentence where run.json has no list of files, none where it has one."""
    folder = Path(shutil.copytree(real_run(), tmp_path / "run"))
    lines = "run.json has no checksums of the run's files"
    assert lines not in "".join(said_by(command, folder)[1:])
    document = json.loads((folder / "run.json").read_text())
    del document["files"]
    (folder / "run.json").write_text(json.dumps(document))
    code, out, err = said_by(command, folder)
    assert code == 0 and err.count(lines) == 1
    assert (lines in html.unescape(out)) == (command == "report --as html"), "the page keeps it"
