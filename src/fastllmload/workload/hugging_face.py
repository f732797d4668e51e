"""Data sets in the form of Hugging Face, read with the package `datasets` (extra `hf`): from the hub or from this host.

A row becomes a conversation by its columns. The prompt is in the first of PROMPTS that the data set has, in the form of its
value: a text, a list of texts (questions without answers), or a chat (`from` and `value`, or `role` and `content`). The
answer to a text is in the first of ANSWERS; an instruction has its `input` or `context` added to it.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from fastllmload.errors import InputError
from fastllmload.files import LARGEST_DATASET
from fastllmload.settings import Workload
from fastllmload.workload.dataset import Dataset, check_not_empty, format_value
from fastllmload.workload.dialogues import Dialogues, ScriptedTurn
from fastllmload.workload.request import DatasetRequest, field_error
from fastllmload.workload.tokenizers.tokenizer import Tokenizer

PROMPTS = (
    "conversations", "conversation", "messages", "turns", "prompt", "question", "instruction", "problem", "query",
)  # fmt: skip
ANSWERS = ("response", "output", "answer", "completion", "canonical_solution", "solution")
CONTEXTS = ("input", "context")  # of an instruction
PICTURES = ("image", "images", "video", "audio")  # which are not sent
ROLES = ("prompt", "answer", "class")  # of --dataset-column
USERS, ASSISTANTS = ("human", "user"), ("gpt", "assistant")
FILES = {".parquet": "parquet", ".jsonl": "json", ".json": "json", ".csv": "csv", ".arrow": "arrow", ".txt": "text"}
SAVED = ("dataset_info.json", "dataset_dict.json")  # in a folder that `save_to_disk` wrote
HUB_TIMEOUT_S = 5.0
OF_HUB = "hf://datasets/"  # begins the path of a file of the hub: hf://datasets/OWNER/NAME[@REVISION]/FILE
Pair = tuple[str, str | None]  # a question and its answer, if there is one


@dataclass(frozen=True)
class HubColumns:
    """Names of the columns that are read; *context* is added to the prompt."""

    prompt: str
    answer: str | None = None
    context: str | None = None
    name: str | None = None

    def used(self) -> list[str]:
        return list(dict.fromkeys(filter(None, (self.prompt, self.answer, self.context, self.name))))


@dataclass(frozen=True)
class HubDataset:
    """Questions and answers of each usable row, with its place and its class. *sha256* is that of these texts."""

    sha256: str
    rows: Sequence[tuple[str, str | None, list[Pair]]]
    left_out: int

    def requests(self, tokenizer: Tokenizer | None) -> Dataset:
        """The first question of each row; its answer gives the output length."""
        found = [
            DatasetRequest(where, turns[0][0], _length(turns[0][1], tokenizer), name)
            for where, name, turns in self.rows
        ]
        return Dataset("hf", self.sha256, found, self.left_out, shuffled=True)

    def dialogues(self) -> Dialogues:
        """All turns of each row."""
        entries = [
            tuple(
                ScriptedTurn(DatasetRequest(f"{where} turn {number}", question, None, name), None, answer)
                for number, (question, answer) in enumerate(turns, 1)
            )
            for where, name, turns in self.rows
        ]
        return Dialogues(self.sha256, entries, self.left_out, True)


def read_hub(workload: Workload) -> HubDataset:
    """The data set that *workload* names. InputError: it cannot be loaded, or its columns have no prompts."""
    path = str(workload.dataset_path)
    table = _split(_load(workload), path, workload.hf_split)
    columns = find_columns(path, table.column_names, dict(workload.dataset_columns))
    rows, digest, left_out, size = [], hashlib.sha256(), 0, 0
    for number, row in enumerate(table.select_columns(columns.used())):
        where = f"{path} row {number}"
        turns = pairs_of(row, columns, where)
        name = None if columns.name is None or row[columns.name] is None else str(row[columns.name])
        if not turns:
            left_out += 1
            continue
        encoded = msgspec.json.encode((name, turns))
        digest.update(encoded)
        size += len(encoded)
        if size > LARGEST_DATASET:
            raise InputError(
                "dataset-invalid",
                f"--dataset-path {path} has more than {LARGEST_DATASET >> 30} GiB of text; take a part, such as "
                "--hf-split 'train[:100000]'",
            )
        rows.append((where, name, turns))
    if any(turns[0][1] is not None for _, _, turns in rows):  # those without an answer have no output length
        answered = [one for one in rows if one[2][0][1] is not None]
        left_out, rows = left_out + len(rows) - len(answered), answered
    if not rows:
        raise InputError("dataset-empty", f"--dataset-path {path} contains no row with a prompt in {columns.prompt!r}")
    found = HubDataset(digest.hexdigest(), rows, left_out)
    return found if workload.dataset_class is None else _of_class(found, workload.dataset_class)


def _of_class(found: HubDataset, name: str) -> HubDataset:
    mine = [one for one in found.rows if one[1] == name]
    check_not_empty(mine, name, sorted({one[1] or "" for one in found.rows}))
    return HubDataset(found.sha256, mine, found.left_out + len(found.rows) - len(mine))


def _length(answer: str | None, tokenizer: Tokenizer | None) -> int | None:
    return None if answer is None or tokenizer is None else max(1, tokenizer.count(answer))


def _load(workload: Workload) -> Any:
    """A table or a mapping of them by split, as the package loads it."""
    path, subset, split = str(workload.dataset_path), workload.hf_subset, workload.hf_split
    try:
        import datasets  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        raise InputError(
            "dataset-not-loaded",
            f"--workload hf --dataset-path {path} needs the package datasets; install it with pip install "
            "'fastllmload[hf]'",
        ) from None
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    local, away = Path(path), None
    try:
        kind = FILES.get(local.suffix.lower())
        if local.is_file() or kind is not None:
            if kind is None or not local.is_file():
                raise ValueError(f"it is not a file that ends in {', '.join(FILES)}")
            return datasets.load_dataset(kind, data_files={"train": path}, split=split)
        if any((local / name).exists() for name in SAVED):
            return datasets.load_from_disk(path)
        away = hub_problem(path)
        with offline(datasets) if away is not None else nullcontext():
            return datasets.load_dataset(path, subset, split=split)
    except Exception as problem:  # of the package, of the hub's client and of its HTTP library
        raise InputError(
            "dataset-not-loaded",
            f"--dataset-path {path} cannot be loaded as a data set of Hugging Face: {_said(problem, away)}; give the name "
            "of one that the hub or this host's cache has, or a file or folder, with --hf-subset or --hf-split if needed",
        ) from problem


def local_file(path: str) -> Path:
    """*path*, or the copy on this host of a file of the hub, which is fetched if this host's cache lacks it.

    InputError: a file of the hub that cannot be had.
    """
    if not path.startswith(OF_HUB):
        return Path(path)
    owner, _, rest = path.removeprefix(OF_HUB).partition("/")
    repository, _, name = rest.partition("/")
    repository, _, revision = repository.partition("@")
    if not (owner and repository and name):
        raise InputError(
            "dataset-not-loaded", f"--dataset-path {path} has not the form {OF_HUB}OWNER/NAME/FILE; correct it"
        )
    try:
        import huggingface_hub
    except ImportError:
        raise InputError(
            "dataset-not-loaded",
            f"--dataset-path {path} needs the package huggingface_hub; install it with pip install 'fastllmload[hf]'",
        ) from None
    repository = f"{owner}/{repository}"
    away = hub_problem(repository)
    try:
        found = huggingface_hub.hf_hub_download(
            repository, name, repo_type="dataset", revision=revision or None, local_files_only=away is not None
        )
    except Exception as problem:  # of the hub's client and of its HTTP library
        raise InputError(
            "dataset-not-loaded",
            f"--dataset-path {path} cannot be fetched: {_said(problem, away)}; give a file that the hub or this host has",
        ) from problem
    return Path(found)


def _said(problem: Exception, away: str | None) -> str:
    """*away*: why the hub gives no answer at all."""
    return first_line(problem) if away is None else f"the hub does not answer ({away}), and this host's cache lacks it"


def first_line(problem: Exception) -> str:
    said = next((line.strip() for line in str(problem).splitlines() if line.strip()), type(problem).__name__)
    return said.rstrip(".")


def hub_problem(path: str) -> str | None:
    """Why the hub gives no answer at all to one request for the data set *path*; None where it answers, in whatever way.

    The package asks again after errors of connections, for half a minute in all, and this cannot be set.
    """
    try:
        from huggingface_hub import HfApi, constants  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        return None
    if constants.HF_HUB_OFFLINE:  # as the user asked
        return None
    try:
        HfApi().dataset_info(path, timeout=HUB_TIMEOUT_S)
    except Exception as problem:  # noqa: BLE001 -- errors of connections have no class that is the same in all versions
        refused = getattr(problem, "response", None) is not None or isinstance(problem, ValueError)
        return None if refused else first_line(problem)
    return None


@contextmanager
def offline(datasets: Any) -> Iterator[None]:
    """The packages take data sets from this host's cache alone."""
    from huggingface_hub import constants

    settings: tuple[Any, ...] = (constants, datasets.config)
    before = [one.HF_HUB_OFFLINE for one in settings]
    try:
        for one in settings:
            one.HF_HUB_OFFLINE = True
        yield
    finally:
        for one, was in zip(settings, before, strict=True):
            one.HF_HUB_OFFLINE = was


def _split(found: Any, path: str, asked: str | None) -> Any:
    """The split *asked* for, `train`, or the only one."""
    if not isinstance(found, Mapping):
        return found
    name = asked or ("train" if "train" in found else next(iter(found)) if len(found) == 1 else None)
    if name not in found:
        which = "several splits" if name is None else f"no split {name!r}"
        raise InputError(
            "dataset-not-loaded", f"--dataset-path {path} has {which}; choose one of {', '.join(found)} with --hf-split"
        )
    return found[name]


def find_columns(path: str, has: Sequence[str], asked: Mapping[str, str]) -> HubColumns:
    """Which columns of those that *has* names are read; *asked*: column by role, as with --dataset-column."""
    absent = [name for name in asked.values() if name not in has]
    if absent:
        raise InputError("dataset-column-unknown", f"--dataset-column names {absent[0]!r}; {path} has {', '.join(has)}")
    prompt = asked.get("prompt") or next((name for name in PROMPTS if name in has), None)
    if prompt is None:
        raise InputError(
            "dataset-column-unknown",
            f"--dataset-path {path} has no column of prompts that is known; name one of {', '.join(has)}: --dataset-column "
            "prompt=NAME,answer=NAME",
        )
    pictures = [name for name in PICTURES if name in has]
    if pictures and "prompt" not in asked:
        raise InputError(
            "dataset-column-unknown",
            f"--dataset-path {path} has {pictures[0]!r}, which is not sent; --dataset-column prompt={prompt} sends its "
            "texts alone",
        )
    answer = asked.get("answer") or next((name for name in ANSWERS if name in has and name != prompt), None)
    context = next((name for name in CONTEXTS if name in has), None) if prompt == "instruction" else None
    return HubColumns(prompt, answer, context, asked.get("class"))


def pairs_of(row: Mapping[str, Any], columns: HubColumns, where: str) -> list[Pair]:
    """Questions and answers of *row*; none where it has no prompt. InputError for values of another form."""
    prompt = row[columns.prompt]
    if isinstance(prompt, str):
        more = "" if columns.context is None else str(row[columns.context] or "").strip()
        text = f"{prompt}\n\n{more}" if more and prompt.strip() else prompt
        return [(text, _answer(row, columns, where))] if text.strip() else []
    if prompt is None:
        return []
    if isinstance(prompt, list) and all(isinstance(one, str) for one in prompt):
        return [(one, None) for one in prompt if one.strip()]
    if isinstance(prompt, list) and all(isinstance(one, Mapping) for one in prompt):
        return list(_chat([_message(one, where) for one in prompt]))
    raise field_error(
        f"{where}: {columns.prompt} is {format_value(prompt)}, neither a text, nor a list of texts, nor a chat; name "
        "another column with --dataset-column prompt=NAME"
    )


def _answer(row: Mapping[str, Any], columns: HubColumns, where: str) -> str | None:
    answer = None if columns.answer is None else row[columns.answer]
    if answer is not None and not isinstance(answer, str):
        raise field_error(
            f"{where}: {columns.answer} is {format_value(answer)}, not a text; name another column with --dataset-column "
            "answer=NAME"
        )
    return answer if answer and answer.strip() else None


def _message(one: Mapping[str, Any], where: str) -> tuple[str, str]:
    role, text = one.get("from", one.get("role")), one.get("value", one.get("content"))
    if not isinstance(role, str) or not (text is None or isinstance(text, str)):
        raise field_error(
            f"{where}: {format_value(dict(one))} is not a message with from and value, or role and content"
        )
    return role, text or ""


def _chat(messages: Sequence[tuple[str, str]]) -> Iterator[Pair]:
    """Alternating questions and answers from the first question on, up to the first message out of order."""
    start = next((at for at, (role, _) in enumerate(messages) if role in USERS), len(messages))
    for at in range(start, len(messages), 2):
        role, question = messages[at]
        answer_role, answer = messages[at + 1] if at + 1 < len(messages) else ("", "")
        answered = answer_role in ASSISTANTS and answer.strip()
        if role not in USERS or not question.strip() or (at > start and not answered):
            return
        yield question, answer if answered else None
        if not answered:
            return
