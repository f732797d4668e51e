"""A run folder from elsewhere: whatever it holds, each command ends in time with 0, 1 or 2, and without a traceback."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden_file import GOLDEN
from real_run import real_run

from fastllmload.cli import main as entry

TRIES = int(os.environ.get("FUZZ_FOLDERS", "150"))
LONGEST_S = 20.0  # on a host that is busy with other things
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("report",), ("report", "--as", "full"), ("report", "--as", "markdown"), ("export",), ("export", "--format", "csv"),
    ("compliance",), ("compare",),
)  # fmt: skip
OF_PROCEDURES = (
    ("report",),
    *(("report", "--as", form) for form in ("full", "markdown", "minimum", "html")),
    ("compliance",),
)
SWAPS: tuple[Any, ...] = ("text", -1, 1e308, None, [], {}, True, [[]], {"a": []}, "\x1b]0;title\x07")
Mutation = Callable[[random.Random, Path], str]


@pytest.fixture(autouse=True)
def _own_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((sys, "excepthook"), (sys, "unraisablehook"), (entry.threading, "excepthook")):
        monkeypatch.setattr(module, name, getattr(module, name))


def said_by(folder: Path, *command: str) -> tuple[int, str]:
    name, *options = command
    folders = [str(folder), str(real_run())] if name == "compare" else [str(folder)]
    out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = entry.main([name, *folders, *options])
        out.flush()
    return code, out.buffer.getvalue().decode("utf-8", "replace") + err.getvalue()  # type: ignore[attr-defined]


def some_file(chance: random.Random, folder: Path) -> Path:
    found = sorted(
        path for path in folder.rglob("*") if path.is_file() and path.suffix in (".json", ".npy", ".md", ".hlog")
    )
    return chance.choice([*found, folder / "run.json", folder / "requests.npy", folder / "tokens.npy"])


def cut(chance: random.Random, folder: Path) -> str:
    path = some_file(chance, folder)
    data = path.read_bytes()
    path.write_bytes(data[: chance.randrange(len(data) + 1)])
    return f"{path.name} cut"


def scribbled(chance: random.Random, folder: Path) -> str:
    path = some_file(chance, folder)
    data = bytearray(path.read_bytes())
    for _ in range(chance.randint(1, 20) if data else 0):
        data[chance.randrange(len(data))] = chance.randrange(256)
    path.write_bytes(data)
    return f"{path.name} scribbled on"


def replaced(chance: random.Random, folder: Path) -> str:
    """By something other than a file, by an archive, by nested brackets."""
    path = some_file(chance, folder)
    path.unlink()
    how = chance.choice(("pipe", "zero", "dangling", "folder", "zip", "nested"))
    if how == "pipe":
        os.mkfifo(path)
    elif how == "zero":
        path.symlink_to("/dev/zero")
    elif how == "dangling":
        path.symlink_to(folder / "nowhere")
    elif how == "folder":
        path.mkdir()
    else:
        path.write_bytes(b"PK\x03\x04" + bytes(60) if how == "zip" else b"[" * 100_000)
    return f"{path.name} became {how}"


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """(container, key) of every value below."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield value, key
        yield from places(inner)


def swapped(chance: random.Random, folder: Path) -> str:
    path = folder / "run.json"
    document = json.loads(path.read_text())
    container, key = chance.choice(list(places(document)))
    container[key] = chance.choice(SWAPS)
    path.write_text(json.dumps(document))
    return f"run.json {key!r} = {container[key]!r}"


def extreme(chance: random.Random, folder: Path) -> str:
    """One field of all rows or events, or of one of them, at the end of what it holds; nothing says that it was changed."""
    name = chance.choice(("requests.npy", "tokens.npy"))
    records = np.load(folder / name)
    field = chance.choice(records.dtype.names)
    ends = np.iinfo(records.dtype[field])
    at = chance.choice((slice(None), chance.randrange(len(records)), len(records) - 1))
    records[field][at] = chance.choice((ends.min, ends.max, 0, ends.max - 1))
    np.save(folder / name, records)
    document = json.loads((folder / "run.json").read_text())
    del document["files"]
    (folder / "run.json").write_text(json.dumps(document))
    return f"{name} {field}[{at}] = {records[field][at]}"


@pytest.mark.parametrize("seed", range(8))
def test_whatever_a_folder_holds_each_command_ends_in_time_without_a_trace(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    mutations: tuple[Mutation, ...] = (cut, scribbled, replaced, swapped, swapped, extreme, extreme)
    for number in range(TRIES // 8):
        folder = tmp_path / str(number)
        shutil.copytree(real_run(), folder)
        what = chance.choice(mutations)(chance, folder)
        command = chance.choice(COMMANDS)
        begun = time.monotonic()
        code, said = said_by(folder, *command)
        assert code in (0, 1, 2), (what, command, said)
        assert "Traceback" not in said, (what, command, said)
        assert not any(ord(one) < 32 and one != "\n" for one in said), (what, command, said)
        assert time.monotonic() - begun < LONGEST_S, (what, command)
        shutil.rmtree(folder)


@pytest.mark.parametrize("seed", range(4))
def test_whatever_a_procedure_holds_its_report_ends_in_time_without_a_trace(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    for number in range(TRIES // 8):
        folder = tmp_path / str(number)
        folder.mkdir()
        document = json.loads((GOLDEN / "report" / "procedure.json").read_text())
        for level in document["levels"]:
            (folder / level["folder"]).mkdir(parents=True)
            shutil.copy(GOLDEN / "report" / "run.json", folder / level["folder"])
        container, key = chance.choice(list(places(document)))
        container[key] = chance.choice(SWAPS)
        (folder / "procedure.json").write_text(json.dumps(document))
        command = chance.choice(OF_PROCEDURES)
        code, said = said_by(folder, *command)
        what = (key, container[key], command, said)
        assert code in (0, 1, 2) and "Traceback" not in said, what
        assert not any(ord(one) < 32 and one != "\n" for one in said), what


@pytest.mark.parametrize("name", ["report.md", "latency.hlog", "report.html", "report.html.part", "report.md.part"])
@pytest.mark.parametrize("there", [True, False])
def test_a_link_in_the_folder_is_replaced_and_its_target_left_alone(tmp_path: Path, name: str, there: bool) -> None:
    folder, outside = tmp_path / "run", tmp_path / "precious"
    shutil.copytree(real_run(), folder)
    if there:
        outside.write_text("mine")
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(outside)
    code, said = said_by(folder, "report")
    assert code == 0, said
    assert not (folder / name).is_symlink()
    assert outside.read_text() == "mine" if there else not outside.exists()


HOSTILE = "\x1b]0;owned\x07\x1b[2J\r\n<script>alert(1)</script>|=1+1\u202e\x9b31m"


def test_what_a_server_said_stays_text_in_every_output(tmp_path: Path) -> None:
    """Escapes, ends of lines, markup and direction marks in URLs, model, error texts and class names of run.json."""
    folder = tmp_path / "run"
    shutil.copytree(real_run(), folder)
    document = json.loads((folder / "run.json").read_text())
    document["target"]["urls"] = document["config"]["target"]["urls"] = [HOSTILE]
    document["target"]["model"] = HOSTILE
    document["error_texts"] = {
        "texts": [{"http_status": 500, "error": "none", "text": HOSTILE, "requests": 3}],
        "left_out": 0,
    }
    document["incidents"] = [HOSTILE]
    document["run_id"] = "=cmd"
    (folder / "run.json").write_text(json.dumps(document))
    for form in ("terminal", "markdown", "full", "minimum", "json", "blog"):
        code, said = said_by(folder, "report", "--as", form)
        assert code == 0, said
        assert all(one.isprintable() or one == "\n" for one in said), (
            form,
            [one for one in said if not one.isprintable()],
        )
        if form in ("markdown", "full"):
            assert "<script>" not in said, form
        assert not any(line.startswith("<script>") for line in said.splitlines()), form  # no end of a line of its own
    code, page = said_by(folder, "report", "--as", "html")
    assert code == 0 and "<script>alert" not in page and "\x1b" not in page
    assert "\x1b" not in (folder / "report.md").read_text() and "<script>" not in (folder / "report.md").read_text()
    code, lines = said_by(folder, "export")
    assert code == 0 and all(one.isprintable() or one == "\n" for one in lines)
    assert all(json.loads(line)["url"] == HOSTILE for line in lines.splitlines())
    code, table = said_by(folder, "export", "--format", "csv")
    assert code == 0 and all(not line.startswith("=") for line in table.splitlines()), table[:300]
    assert "<script>" in table and all(one.isprintable() or one == "\n" for one in table)
    assert table.count("\n") == 1 + len(np.load(folder / "requests.npy"))
