"""Texts of failed responses are redacted, bounded, merged over workers, and shown in one line."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest
from refusals import raises_code

from fastllmload.documents.run_parts.backends import BackendNames
from fastllmload.documents.write import plain
from fastllmload.records.error_texts import (
    LONGEST,
    NAME,
    answered_text,
    encode_texts,
    message_of,
    read_texts,
    remaining_texts,
    with_backends,
)
from fastllmload.records.layout import ERROR_NAMES
from fastllmload.redact import Redactor

HTTP_STATUS = ERROR_NAMES.index("http_status")
KEY = "sk-very-secret"


def worker(folder: Path, number: int, *texts: tuple[bytes, int], left_out: int = 0) -> None:
    write(folder, number, [(500, HTTP_STATUS, text, n) for text, n in texts], left_out)


def write(folder: Path, number: int, taken: list[tuple[int, int, bytes, int]], left_out: int = 0) -> None:
    directory = folder / "workers" / str(number)
    directory.mkdir(parents=True)
    (directory / NAME).write_bytes(encode_texts(taken, left_out, Redactor([KEY])))


def test_equal_texts_of_workers_are_one_and_the_most_frequent_comes_first(tmp_path: Path) -> None:
    worker(tmp_path, 0, (b"rare", 3), (b"often", 2), left_out=1)
    worker(tmp_path, 1, (b"often", 5), left_out=2)
    found = read_texts(tmp_path)
    assert [(each.text, each.requests) for each in found.texts] == [("often", 7), ("rare", 3)]
    assert found.left_out == 3
    assert found.texts[0].http_status == 500 and found.texts[0].error == "http_status"


def test_names_of_backends_are_kept_by_worker(tmp_path: Path) -> None:
    """Those of a file replace what was known of its worker; others stay. Secrets and control characters are blanked."""
    for number, names in ((0, [b"pod-1", b"p\x1bod"]), (2, [f"at {KEY}".encode()])):
        directory = tmp_path / "workers" / str(number)
        directory.mkdir(parents=True)
        said = [answered_text(name, Redactor([KEY])) for name in names]
        (directory / NAME).write_bytes(encode_texts([], 0, Redactor([KEY]), said))
    before = tuple(BackendNames(worker=worker, names=("pod-1",)) for worker in (0, 1))
    found = with_backends(tmp_path, before)
    assert [(each.worker, each.names[:1]) for each in found[:2]] == [(0, ("pod-1",)), (1, ("pod-1",))]
    assert found[0].names[1] == "p\ufffdod" and KEY not in found[2].names[0]
    assert read_texts(tmp_path).texts == () and with_backends(tmp_path / "none", before) == before


def test_unknown_finish_reasons_are_not_failures(tmp_path: Path) -> None:
    write(tmp_path, 0, [(200, 0, b"finish_reason: wandered", 3), (500, HTTP_STATUS, b"busy", 1)])
    found = read_texts(tmp_path)
    assert plain(found)["finish_reasons"] == [{"word": "wandered", "requests": 3}]
    assert [each.text for each in found.texts] == ["busy"]


def test_texts_of_workers_that_are_merged_again_are_counted_once(tmp_path: Path) -> None:
    """Worker 1 had two of five when the run was merged, and has three now."""
    word = (200, 0, b"finish_reason: wandered", 3)
    write(tmp_path, 0, [(500, HTTP_STATUS, b"busy", 3), word], left_out=4)
    write(tmp_path, 1, [(500, HTTP_STATUS, b"busy", 2)], left_out=1)
    before = read_texts(tmp_path)
    shutil.rmtree(tmp_path / "workers")
    write(tmp_path, 1, [(500, HTTP_STATUS, b"busy", 3), (500, HTTP_STATUS, b"late", 1), word], left_out=1)
    (tmp_path / "workers" / "merged").mkdir()
    (tmp_path / "workers" / "merged" / NAME).write_bytes(msgspec.json.encode(remaining_texts(tmp_path, before)))
    found = read_texts(tmp_path)
    assert [(each.text, each.requests) for each in found.texts] == [("busy", 5), ("late", 1)]
    assert plain(found)["finish_reasons"] == [{"word": "wandered", "requests": 3}] and found.left_out == 5


def test_a_folder_without_any_has_none(tmp_path: Path) -> None:
    assert plain(read_texts(tmp_path)) == {"texts": [], "left_out": 0, "finish_reasons": []}


@pytest.mark.parametrize("before", [0, LONGEST - 5])
def test_no_part_of_a_key_is_kept(tmp_path: Path, before: int) -> None:
    worker(tmp_path, 0, (b"x" * before + f"wrong key {KEY}!".encode(), 1))
    text = read_texts(tmp_path).texts[0].text
    assert "sk-" not in text and len(text) <= LONGEST


def test_control_characters_are_replaced(tmp_path: Path) -> None:
    worker(tmp_path, 0, (b"\x1b[31mred\x07 \xff\n", 1))
    assert read_texts(tmp_path).texts[0].text == "\ufffd[31mred\ufffd \ufffd\n"


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    worker(tmp_path, 0, (b"x", 1))
    (tmp_path / "workers" / "0" / "error_texts.json").write_text('{"texts": [{}]}')
    with raises_code("run-file-damaged", "error_texts.json"):
        read_texts(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"error": {"message": "CUDA out\\n of memory", "code": 500}}', "CUDA out of memory"),
        ('{"object": "error", "message": "too long"}', "too long"),
        ('{"detail": [{"msg": "field required", "loc": ["body"]}]}', "field required"),
        ('{"error": "overloaded"}', "overloaded"),
        ('{"code": 7}', '{"code": 7}'),
        (
            "<html><head><title>502</title><style>p {}</style></head><body><h1>Bad\nGateway</h1></body></html>",
            "Bad Gateway",
        ),
        ("upstream  connect\nerror", "upstream connect error"),
        ("[" * 100_000, "[" * 100_000),
        ('{"error":' * 100_000, '{"error":' * 100_000),
    ],
)
def test_one_line_for_people(text: str, message: str) -> None:
    assert message_of(text) == message
