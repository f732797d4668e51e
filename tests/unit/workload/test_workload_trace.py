"""Traces: files as published, one sentence for each error, and text shared exactly where blocks were."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from refusals import raises_code, says

from fastllmload.errors import InputError
from fastllmload.plan.prompts.load import load_workload
from fastllmload.settings import Workload
from fastllmload.workload.replay import Replay
from fastllmload.workload.synthetic import Quota
from fastllmload.workload.trace import Trace, prefix_hit_rate, read_trace, rounds

CORPORA = Path(os.environ.get("FASTLLMLOAD_CORPORA", Path(__file__).parents[4] / "shared" / "corpora")) / "traces"
AZURE_2024 = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2024-05-10 00:00:00.009930+00:00,2162,5\n2024-05-10 00:00:01.5+00:00,9,7\n"
)
BURST = (
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,ChatGPT,472,18,490,Conversation log\n45,GPT-4,1087,0,1087,Conversation log\n118.25,ChatGPT,417,276,693,API log\n"
)
MOON = (
    '{"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [7, 8, 9]}\n'
    '{"timestamp": 250, "input_length": 1030, "output_length": 2, "hash_ids": [7, 8, 10]}\n'
    '{"timestamp": 250, "input_length": 600, "output_length": 3, "hash_ids": [11, 12]}\n'
)


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "trace"
    file.write_text(text)
    return file


def test_azure(tmp_path: Path) -> None:
    """Seven digits of a second and CRLF in 2023, a zone in 2024; the first request is time zero."""
    text = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
        "2023-11-16 18:17:03.9799600,4808,10\r\n2023-11-16 18:17:04.0319600,3180,8\r\n"
    )
    trace = read_trace("azure", written(tmp_path, text))
    assert trace.t_ns.tolist() == [0, 52_000_000] and trace.input.tolist() == [4808, 3180]
    later = read_trace("azure", written(tmp_path, AZURE_2024))
    assert later.t_ns.tolist() == [0, 1_490_070_000] and later.output.tolist() == [5, 7]


def test_burstgpt_failed_requests_are_left_out_and_counted(tmp_path: Path) -> None:
    trace = read_trace("burstgpt", written(tmp_path, BURST))
    assert trace.t_ns.tolist() == [0, 113_250_000_000] and trace.left_out == 1


def test_generic(tmp_path: Path) -> None:
    trace = read_trace("trace", written(tmp_path, "timestamp,input,output\n0.000000001,3,4\n1,5,6\n"))
    assert trace.t_ns.tolist() == [0, 999_999_999] and len(trace) == 2


def test_mooncake(tmp_path: Path) -> None:
    """Request 2 finds its two full blocks in request 1; ids are numbered from 0."""
    trace = read_trace("mooncake", written(tmp_path, MOON))
    assert trace.blocks_of(1) == [0, 1, 3] and trace.t_ns.tolist() == [0, 250_000_000, 250_000_000]
    assert prefix_hit_rate(trace) == pytest.approx(1024 / 2730)


def test_blocks_of_another_size(tmp_path: Path) -> None:
    """Ids of 64 tokens, which all rows fit and 512 does not: three of four blocks are shared, and nothing is cut off."""
    text = (
        '{"timestamp": 0, "input_length": 256, "output_length": 2, "hash_ids": [0, 1, 2, 3]}\n'
        '{"timestamp": 9, "input_length": 300, "output_length": 3, "hash_ids": [0, 1, 2, 4, 5]}\n'
    )
    trace = read_trace("mooncake", written(tmp_path, text))
    assert trace.block_tokens == 64 and prefix_hit_rate(trace) == pytest.approx(192 / 556)
    (batch,) = Replay(trace, 100_256, 42).batches(Quota(2))
    assert np.array_equal(batch.drawn[:192], batch.drawn[256:448]) and batch.drawn[192] != batch.drawn[448]


@pytest.mark.parametrize("asked", [{"cache_blocks": 4}, {"session_start": "stationary"}, {"trace_max_wait": "1s"}])
def test_options_of_sessions_need_sessions(tmp_path: Path, asked: dict[str, Any]) -> None:
    """Rows of Mooncake are sessions where any of them has a session_id, not only the first."""
    workload = Workload(name="mooncake", dataset_path=str(written(tmp_path, MOON)), **asked)
    with raises_code("option-not-applicable", f"--{next(iter(asked)).replace('_', '-')}", "session_id"):
        load_workload(workload)
    lines = MOON.splitlines()
    lines[1:] = [line.replace("}", ', "session_id": "s"}') for line in lines[1:]]
    Path(workload.dataset_path).write_text("\n".join(lines))
    graph = load_workload(msgspec.structs.replace(workload, trace_prompts="whole")).graph
    assert graph is not None and graph.sessions == 2 and len(graph) == 3


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("azure", "", ("dataset-invalid", "line 1", "'TIMESTAMP'", "has nothing")),
        ("azure", "TIMESTAMP,GeneratedTokens\n", ("dataset-invalid", "'ContextTokens'")),
        ("azure", "TIMESTAMP,ContextTokens,GeneratedTokens\n", ("dataset-empty", "(0 rows")),
        ("azure", "TIMESTAMP,ContextTokens,GeneratedTokens\nnoon,1,1\n", ("dataset-field-invalid", "line 2", "'noon'")),
        ("trace", "timestamp,input,output\n1,5,6\n0.5,5,6\n", ("trace-unsorted", "line 3: timestamp '0.5'")),
        ("trace", "timestamp,input,output\n1,5\n", ("dataset-field-invalid", "line 2: 2 values", "has 3")),
        ("trace", "timestamp,input,output\n1,nan,6\n", ("dataset-field-invalid", "line 2", "'nan'", "0 to 16000000")),
        ("trace", "timestamp,input,output\n1,x,6\n", ("dataset-field-invalid", "line 2", "'x'")),
        ("trace", "timestamp,input,output\n1,inf,6\n", ("dataset-field-invalid", "line 2", "'inf'")),
        ("trace", "timestamp,input,output\n1,1e9,6\n", ("dataset-field-invalid", "line 2", "'1e9'")),
        (
            "mooncake",
            '{"timestamp": 0, "input_length": 99999999, "output_length": 1, "hash_ids": [1]}',
            ("dataset-field-invalid", "line 1: input_length", "99999999", "16000000"),
        ),
        (
            "mooncake",
            MOON.splitlines()[0] + '\n{"timestamp": NaN}\n',
            ("dataset-invalid", "line 2 column 15", "invalid character"),
        ),
        ("trace", "timestamp,input,output\n1,-4,6\n", ("dataset-field-invalid", "line 2", "'-4'")),
        ("mooncake", "{", ("dataset-invalid", "line 1 column 2", "too early", "correct")),
        ("mooncake", MOON.replace("250", "-5", 1), ("dataset-field-invalid", "line 2: timestamp", "-5")),
        (
            "mooncake",
            MOON.replace("[7, 8, 9]", "[7]"),
            ("dataset-field-invalid", "line 1: 1 hash_ids", "512 tokens", "input_length 1100"),
        ),
        ("mooncake", MOON.replace("250", "50", 1).replace("250", "20"), ("trace-unsorted", "line 3: timestamp 20")),
        (
            "mooncake",
            MOON.replace("600", "1100").replace("[11, 12]", "[11, 8, 12]"),
            ("dataset-field-invalid", "line 3", "hash_ids", " 8 "),
        ),
        (
            "mooncake",
            MOON.replace("[11, 12]", "[11, 8]"),
            ("dataset-field-invalid", "line 1", "hash_ids", " 8 ", "512", "88"),
        ),
        (
            "mooncake",
            MOON.replace("[11, 12]", "[11, 12, 13]"),
            ("dataset-field-invalid", "line 3: 3 hash_ids", "600 tokens"),
        ),
        ("mooncake", '{"timestamp": 0, "input_length": 1}\n', ("dataset-invalid", "line 1", "missing required field")),
    ],
)
def test_one_sentence(tmp_path: Path, name: str, text: str, sentence: tuple[str, ...]) -> None:
    with pytest.raises(InputError) as caught:
        read_trace(name, written(tmp_path, text))
    assert says(str(caught.value), *sentence) and "\n" not in str(caught.value)


def test_binary_and_missing_files_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "x"
    with raises_code("file-unreadable", file, "No such file"):
        read_trace("azure", file)
    file.write_bytes(b"\xff\x00")
    with raises_code("dataset-invalid", "byte 0", "not UTF-8"):
        read_trace("azure", file)


def test_a_part_of_a_trace(tmp_path: Path) -> None:
    trace = read_trace("mooncake", written(tmp_path, MOON)).part(0.2, None)
    assert trace.t_ns.tolist() == [50_000_000, 50_000_000] and trace.blocks_of(1) == [4, 5]
    with raises_code("schedule-empty", "--trace-from 5 s", "spans 0 to"):
        trace.part(5.0, None)


def test_shared_blocks_share_text_and_nothing_else_does(tmp_path: Path) -> None:
    """Position by position: equal for equal ids, different for different ones, in every round of the trace."""
    trace = read_trace("mooncake", written(tmp_path, MOON))
    (batch,) = Replay(trace, 100_256, 42).batches(Quota(6))
    first, second, third, again, *_ = np.split(batch.drawn, np.cumsum(batch.prompt)[:-1])
    assert batch.prompt.tolist() == [1100, 1030, 600, 1100, 1030, 600]
    assert np.array_equal(first[:1024], second[:1024]) and first[1024] != second[1024]
    assert not np.isin(third[:88], first[:88]).all() and not np.array_equal(third[512:600], first[512:600])
    assert not np.array_equal(first[:512], again[:512])
    (other,) = Replay(trace, 100_256, 43).batches(Quota(1))
    assert not np.array_equal(other.drawn[:512], first[:512])


def test_rounds_continue_after_the_end_of_the_trace() -> None:
    trace = Trace("trace", "", np.array([0, 10**9, 2 * 10**9]), np.ones(3, np.int64), np.ones(3, np.int64))
    endless = rounds(trace.t_ns, 2.0)
    assert next(endless).tolist() == [0.0, 0.5, 1.0] and next(endless).tolist() == [1.5, 2.0, 2.5]


@pytest.mark.skipif(not CORPORA.is_dir(), reason="the public traces are not there (FASTLLMLOAD_CORPORA)")
@pytest.mark.parametrize(
    ("name", "file", "rows", "seconds"),
    [
        ("azure", "azure_llm_2023_conv.csv", 19_366, 3501.721),
        ("azure", "azure_llm_2023_code.csv", 8_819, 3435.9),
        ("mooncake", "mooncake_conversation_first3000.jsonl", 3_000, None),
        ("mooncake", "mooncake_synthetic_first1000.jsonl", 1_000, None),
    ],
)
def test_public_traces(name: str, file: str, rows: int, seconds: float | None) -> None:
    trace = read_trace(name, CORPORA / file)
    assert len(trace) + trace.left_out == rows
    if seconds is not None:
        assert trace.t_ns[-1] / 1e9 == pytest.approx(seconds, rel=0.01)
    if name == "mooncake":
        rate = prefix_hit_rate(trace)
        assert rate is not None and 0.1 < rate < 0.6


def table(tmp_path, text, name="trace"):
    (tmp_path / "t").write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_trace(name, tmp_path / "t")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "trace",
            "timestamp,input,output\n1700000000000,9,5\n",
            ("dataset-field-invalid", "'1700000000000'", "write seconds"),
        ),
        ("trace", "timestamp,input,output\n\u00b2,9,5\n", ("dataset-field-invalid", "'²'")),
        ("trace", "timestamp,input,output\r1,9,5\r", ("dataset-invalid", "not CSV", "new-line character")),
        ("azure", "TIMESTAMP,ContextTokens,GeneratedTokens\n5,9,5\n", ("dataset-field-invalid", "'5'")),
        (
            "azure",
            "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-02-30 00:00:00,9,5\n",
            ("dataset-field-invalid", "'2024-02-30 00:00:00'"),
        ),
        (
            "mooncake",
            MOON.replace("[7, 8, 9]", "[7, 8, 99999999999999999999]"),
            ("dataset-field-invalid", "line 1", "hash_ids"),
        ),
        (
            "mooncake",
            MOON.replace('"timestamp": 250', '"timestamp": 1e15'),
            ("dataset-field-invalid", "line 2", "timestamp", "1e+15"),
        ),
        ("trace", b"\x1f\x8b\x08\x00", ("dataset-invalid", "gzip file")),
        ("trace", "timestamp,input,output\n".encode("utf-16"), ("dataset-invalid", "UTF-16")),
    ],
)
def test_a_trace_that_would_be_misread_is_refused(tmp_path, name, text, said):
    with pytest.raises(InputError) as error:
        table(tmp_path, text, name)
    assert says(str(error.value), *said)


def test_time_zones_of_azure_timestamps(tmp_path):
    """The same instant in three zones, to a tenth of a microsecond."""
    moments = ("2024-05-10 23:59:59.9000001", "2024-05-11T01:59:59.9000001+02:00", "2024-05-10 18:29:59.9000001-0530")
    rows = "".join(f"{at},9,5\n" for at in (*moments, "2024-05-11 00:00:00Z"))
    found = table(tmp_path, "TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows, "azure")
    assert found.t_ns.tolist() == [0, 0, 0, 99_999_900]
