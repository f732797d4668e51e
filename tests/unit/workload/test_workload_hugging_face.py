"""Data sets of Hugging Face: which columns are read, what a row becomes, and what is said where nothing can be read."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from refusals import raises_code

from fastllmload.cli.main import main
from fastllmload.plan.prompts.load import load_workload
from fastllmload.settings import Workload
from fastllmload.workload.dataset import Dataset
from fastllmload.workload.hugging_face import find_columns, local_file, read_hub
from fastllmload.workload.tokenizers.tokenizer import load_tokenizer

CHAT = [
    {"from": "system", "value": "be brief"}, {"from": "human", "value": "q1"}, {"from": "gpt", "value": "one two"},
    {"from": "human", "value": "q2"}, {"from": "gpt", "value": "three"}, {"from": "human", "value": "unanswered"},
]  # fmt: skip
ROLES = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi there"}]


class Table(list[dict[str, Any]]):
    """What this program uses of `datasets.Dataset`."""

    @property
    def column_names(self) -> list[str]:
        return list(self[0])

    def select_columns(self, names: list[str]) -> list[dict[str, Any]]:
        return [{name: row[name] for name in names} for row in self]


class Package(ModuleType):
    """In place of the package `datasets`: *found* is what any data set is; an exception is raised."""

    def __init__(self, found: Any) -> None:
        super().__init__("datasets")
        self.found, self.asked = found, list[tuple[Any, ...]]()
        self.config = SimpleNamespace(HF_HUB_OFFLINE=False)

    def disable_progress_bars(self) -> None:
        pass

    def load_dataset(self, path: str, name: str | None = None, **more: Any) -> Any:
        self.asked.append((path, name, more))
        self.was_offline = self.config.HF_HUB_OFFLINE and sys.modules["huggingface_hub"].constants.HF_HUB_OFFLINE
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


class Hub(ModuleType):
    """In place of the package `huggingface_hub`: *problem* is raised where the hub is asked."""

    def __init__(self, problem: Exception | None = None) -> None:
        super().__init__("huggingface_hub")
        self.problem, self.constants, self.timeouts = problem, SimpleNamespace(HF_HUB_OFFLINE=False), list[float]()

    def HfApi(self) -> Hub:
        return self

    def dataset_info(self, path: str, timeout: float) -> None:
        self.timeouts.append(timeout)
        if self.problem is not None:
            raise self.problem


def package(monkeypatch: pytest.MonkeyPatch, found: Any, problem: Exception | None = None) -> Package:
    own = Package(found)
    monkeypatch.setitem(sys.modules, "datasets", own)
    monkeypatch.setitem(sys.modules, "huggingface_hub", Hub(problem))
    return own


def hub(path: str = "org/name", **more: Any) -> Workload:
    return Workload(name="hf", dataset_path=path, **more)


def turns(workload: Workload) -> list[list[tuple[str, str | None]]]:
    return [each for _, _, each in read_hub(workload).rows]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"id": "1", "conversations": CHAT}, [("q1", "one two"), ("q2", "three")]),
        ({"conversation": ROLES, "model": "m"}, [("hello", "hi there")]),
        ({"prompt": "p", "messages": ROLES}, [("hello", "hi there")]),
        ({"question": "2+2?", "answer": "4"}, [("2+2?", "4")]),
        ({"instruction": "Sum up", "input": "a b", "output": "c", "text": "t"}, [("Sum up\n\na b", "c")]),
        ({"instruction": "Say hi", "input": "", "output": "hi"}, [("Say hi", "hi")]),
        ({"instruction": "Who?", "context": "She.", "response": "her"}, [("Who?\n\nShe.", "her")]),
        ({"task_id": "t/0", "prompt": "def f():", "canonical_solution": " pass"}, [("def f():", " pass")]),
        ({"problem": "x?", "solution": "1"}, [("x?", "1")]),
        ({"category": "c", "turns": ["first", "second"], "reference": []}, [("first", None), ("second", None)]),
        ({"messages": ROLES[:1]}, [("hello", None)]),
    ],
    ids=["sharegpt", "lmsys", "ultrachat", "gsm8k", "alpaca", "no-input", "dolly", "humaneval", "math", "mt-bench", "open"],
)  # fmt: skip
def test_what_a_row_becomes(
    row: dict[str, Any], expected: list[tuple[str, str | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    package(monkeypatch, {"train": Table([row])})
    assert turns(hub()) == [expected]


def test_first_questions_and_lengths_of_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer's tokens are the output length; all rows are in one digest, which other texts change."""
    package(monkeypatch, Table([{"question": "q", "answer": "one two three"}, {"question": "", "answer": "x"}]))
    found = load_workload(hub()).dataset
    tokenizer = load_tokenizer("cl100k_base")
    assert isinstance(found, Dataset) and tokenizer is not None and found.shuffled
    assert [(one.content, one.output_tokens) for one in found.requests] == [("q", tokenizer.count("one two three"))]
    assert found.left_out == 1
    package(monkeypatch, Table([{"question": "q", "answer": "one two four"}]))
    assert read_hub(hub()).sha256 != found.sha256


def test_rows_without_an_answer_are_left_out_where_others_have_one(monkeypatch: pytest.MonkeyPatch) -> None:
    package(monkeypatch, Table([{"question": "a", "answer": "b"}, {"question": "c", "answer": None}]))
    found = read_hub(hub())
    assert (len(found.rows), found.left_out) == (1, 1)


def test_all_turns_of_a_conversation(monkeypatch: pytest.MonkeyPatch) -> None:
    package(monkeypatch, Table([{"conversations": CHAT}]))
    found = load_workload(hub(turns="all")).dialogues
    assert found is not None
    assert [(turn.request.content, turn.reply) for turn in found.entries[0]] == [("q1", "one two"), ("q2", "three")]


def test_columns_by_name_and_their_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"prompt": "no", "text": f"t{n}", "summary": "s", "topic": "a" if n else None} for n in range(3)]
    columns = (("prompt", "text"), ("answer", "summary"), ("class", "topic"))
    package(monkeypatch, Table(rows))
    found = read_hub(hub(dataset_columns=columns)).requests(None)
    assert [(one.content, one.name) for one in found.requests] == [("t0", None), ("t1", "a"), ("t2", "a")]
    assert len(read_hub(hub(dataset_columns=columns, dataset_class="a")).rows) == 2
    with raises_code("class-unknown", "b"):
        read_hub(hub(dataset_columns=columns, dataset_class="b"))


def test_split_and_subset_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    own = package(monkeypatch, Table([{"prompt": "p"}]))
    read_hub(hub(hf_split="test[:9]", hf_subset="main"))
    assert own.asked == [("org/name", "main", {"split": "test[:9]"})]


def test_the_split_is_train_or_the_only_one(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = Table([{"prompt": "p"}]), Table([{"prompt": "q"}])
    package(monkeypatch, {"test": other, "train": one})
    assert turns(hub()) == [[("p", None)]]
    package(monkeypatch, {"test": other})
    assert turns(hub()) == [[("q", None)]]
    package(monkeypatch, {"test": other, "dev": one})
    with raises_code("dataset-not-loaded", "test, dev", "--hf-split"):
        read_hub(hub())


def test_pictures_are_refused_unless_only_texts_are_asked_for() -> None:
    has = ["images", "conversation"]
    with raises_code("dataset-column-unknown", "images", "prompt=conversation"):
        find_columns("d", has, {})
    assert find_columns("d", has, {"prompt": "conversation"}).used() == ["conversation"]


@pytest.mark.parametrize(
    ("row", "columns", "code", "named"),
    [
        ({"a": 1, "b": 2}, (), "dataset-column-unknown", ("a, b", "--dataset-column")),
        ({"prompt": "p"}, (("prompt", "x"),), "dataset-column-unknown", ("'x'", "prompt")),
        ({"prompt": 5}, (), "dataset-field-invalid", ("org/name row 0", "prompt", "5")),
        ({"prompt": "p", "answer": ["x"]}, (), "dataset-field-invalid", ("row 0", "answer")),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, (), "dataset-field-invalid", ("row 0",)),
        ({"prompt": " "}, (), "dataset-empty", ("org/name", "prompt")),
    ],
)  # fmt: skip
def test_what_cannot_be_read(
    row: dict[str, Any], columns: Any, code: str, named: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    package(monkeypatch, Table([row]))
    with raises_code(code, *named):
        read_hub(hub(dataset_columns=columns))


def test_what_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The package's own words are in the sentence, of any exception of it."""
    package(monkeypatch, RuntimeError("Couldn't reach 'org/name'.\nmore"))
    with raises_code("dataset-not-loaded", "org/name", "Couldn't reach 'org/name';"):
        read_hub(hub())
    for path in ("absent.parquet", str(tmp_path / "set.xlsx")):
        (tmp_path / "set.xlsx").write_text("x")
        with raises_code("dataset-not-loaded", path, ".parquet"):
            read_hub(hub(path))
    monkeypatch.setitem(sys.modules, "datasets", None)
    with raises_code("dataset-not-loaded", "pip install 'fastllmload[hf]'"):
        read_hub(hub())


def test_a_hub_without_an_answer_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package takes the data set from the cache, without its retries; else one sentence says why. An answer, such as
    that there is no such data set, leaves everything to the package.
    """
    cached = package(monkeypatch, Table([{"prompt": "p"}]), ConnectionError("Name or service not known\nmore"))
    assert turns(hub()) == [[("p", None)]]
    asked = sys.modules["huggingface_hub"]
    assert cached.was_offline and not cached.config.HF_HUB_OFFLINE and not asked.constants.HF_HUB_OFFLINE
    assert len(asked.timeouts) == 1 and 0 < asked.timeouts[0] <= 5
    absent = package(monkeypatch, FileNotFoundError("offline"), ConnectionError("Name or service not known\nmore"))
    with raises_code("dataset-not-loaded", "org/name", "(Name or service not known)"):
        read_hub(hub())
    assert absent.was_offline and not absent.config.HF_HUB_OFFLINE
    refused = ConnectionError("404")
    refused.response = 404  # type: ignore[attr-defined]
    for answer in (refused, ValueError("not a name")):
        answered = package(monkeypatch, RuntimeError("no such data set"), answer)
        with raises_code("dataset-not-loaded", "no such data set"):
            read_hub(hub())
        assert not answered.was_offline


def test_a_run_ends_before_anything_is_sent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package(monkeypatch, OSError("offline"))
    folder = tmp_path / "run"
    assert main(["--rate", "5", "--workload", "hf", "--dataset-path", "org/name", "-o", str(folder)]) == 2
    assert "dataset-not-loaded" in capsys.readouterr().err and not (folder / "requests.npy").exists()


FILE = "hf://datasets/org/name/part/rows.jsonl"
LINES = b'{"prompt": "a b", "output_tokens": 3}\n{"prompt": "c", "output_tokens": 4}\n'


class HubOfOneFile(BaseHTTPRequestHandler):
    """A hub whose data set org/name has one file."""

    def do_HEAD(self) -> None:
        is_file = self.path.startswith("/datasets/org/name/resolve/") and self.path.endswith("/part/rows.jsonl")
        found = LINES if is_file else b'{"id": "org/name"}' if self.path.startswith("/api/datasets/org/name") else None
        self.send_response(404 if found is None else 200)
        self.send_header("Content-Length", str(len(found or b"")))
        self.send_header("ETag", f'"{hashlib.sha256(LINES).hexdigest()}"')
        self.send_header("X-Repo-Commit", "0" * 40)
        if found is None:
            self.send_header("X-Error-Code", "EntryNotFound")
        self.end_headers()
        if self.command == "GET" and found is not None:
            self.wfile.write(found)

    do_GET = do_HEAD

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def own_hub() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), HubOfOneFile)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def plan_at_hub(hub: str, path: str, home: Path) -> subprocess.CompletedProcess[str]:
    command = ["plan", "--rate", "1", "--num-requests", "4", "--workload", "custom", "--dataset-path", path]
    return subprocess.run(
        [sys.executable, "-m", "fastllmload", *command],
        env={**os.environ, "HF_ENDPOINT": hub, "HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1"},
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip


def test_a_file_of_the_hub_is_fetched_once(own_hub: str, tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub", reason="without it no file of the hub is fetched")
    first = plan_at_hub(own_hub, FILE, tmp_path)
    assert first.returncode == 0, first.stderr
    assert "mean 3.5  min 3" in first.stdout
    kept = plan_at_hub("http://127.0.0.1:1", FILE, tmp_path)  # no hub: the copy of this host serves
    assert kept.returncode == 0, kept.stderr
    assert kept.stdout == first.stdout
    absent = plan_at_hub(own_hub, "hf://datasets/org/name/other.jsonl", tmp_path)
    assert absent.returncode == 2 and "other.jsonl cannot be fetched" in absent.stderr
    away = plan_at_hub("http://127.0.0.1:1", FILE, tmp_path / "empty")
    assert away.returncode == 2 and "the hub does not answer" in away.stderr and "dataset-not-loaded" in away.stderr


def test_names_of_files_of_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    assert local_file("rows.jsonl") == Path("rows.jsonl")
    for path in ("hf://datasets/org", "hf://datasets/org/name", "hf://datasets//name/x"):
        with raises_code("dataset-not-loaded", path, "OWNER/NAME/FILE"):
            local_file(path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with raises_code("dataset-not-loaded", FILE, "pip install 'fastllmload[hf]'"):
        local_file(FILE)


ROWS = [{"instruction": f"ask {n}", "input": "", "output": "word " * (n + 1), "kind": "ab"[n % 2]} for n in range(6)]


@pytest.mark.parametrize("form", ["jsonl", "json", "parquet", "csv", "folder", "saved", "saved-splits"])
def test_the_package_reads_files_and_folders(form: str, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="without the extra `hf` no file is read with the package")
    table = datasets.Dataset.from_list(ROWS)
    path = tmp_path / (f"rows.{form}" if form in ("jsonl", "json", "parquet", "csv") else "rows")
    if form == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    elif form == "json":
        path.write_text(json.dumps(ROWS))
    elif form == "parquet":
        table.to_parquet(str(path))
    elif form == "csv":
        table.to_csv(str(path))
    elif form == "folder":
        path.mkdir()
        table.to_parquet(str(path / "train.parquet"))
    elif form == "saved":
        table.save_to_disk(str(path))
    else:
        datasets.DatasetDict({"dev": table.select([0]), "train": table}).save_to_disk(str(path))
    columns = (("class", "kind"),)
    found = read_hub(hub(str(path), dataset_columns=columns))
    assert [(name, each[0][0], (each[0][1] or "").strip()) for _, name, each in found.rows] == [
        ("ab"[n % 2], f"ask {n}", ("word " * (n + 1)).strip()) for n in range(6)
    ]
    if form == "saved-splits":
        assert len(read_hub(hub(str(path), hf_split="dev")).rows) == 1
    if form == "parquet":
        assert len(read_hub(hub(str(path), hf_split="train[:4]")).rows) == 4
