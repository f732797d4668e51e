"""What a prefix cache sees of a workload: nothing where nothing is shared, and exactly what is where it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from truth.truth_bench import measure

import fastllmload
from fastllmload.plan.archive import load_plan
from fastllmload.records.layout import MEASURE, OK

BLOCK = 16  # tokens of the simulated engine's cache blocks
FAST = {"set.step_ms": "0.02", "set.kv_blocks": "100000", "set.block_size": str(BLOCK)}


def served(folder: Path, **options: Any) -> Any:
    """Rows of a run one request at a time, so that a cached block is there when it is asked for."""
    done = fastllmload.run(
        concurrency=1, num_requests=60, warmup=0, endpoint_type="openai-completions", output=str(folder / "run"),
        simulate=FAST, save_plan=str(folder / "plan"), **options,
    )  # fmt: skip
    rows = done.rows[(done.rows["phase"] == MEASURE) & (done.rows["status"] == OK)]
    assert len(rows) == 60
    return rows


@pytest.mark.parametrize(
    "options",
    [
        {"workload": "synthetic-uniform", "osl": "1"},
        {"workload": "synthetic-uniform", "prompt_form": "text", "osl": "1"},
        {"workload": "long-context", "isl": "list:700,900", "osl": "1"},
        {"workload": "synthetic-uniform", "prefix_len": 64, "prefix_share": 0, "osl": "1"},
    ],
    ids=["words", "text", "long-context", "prefixes of their own"],
)
def test_nothing_is_found_where_nothing_is_shared(tmp_path: Path, options: dict[str, Any]) -> None:
    """No block of any prompt was there before."""
    assert served(tmp_path, **options)["cached_tokens"].sum() == 0


def test_a_shared_prefix_is_found_as_often_as_it_comes_again(tmp_path: Path) -> None:
    """Prefixes of 8 blocks: all 128 tokens in every request whose prefix was sent before, none in the others."""
    rows = served(
        tmp_path, workload="synthetic-uniform", isl="uniform:20,60", osl="1", prefix_len=8 * BLOCK, num_prefixes=4,
        prefix_share=0.8, prefix_zipf=1.5,
    )  # fmt: skip
    plan = load_plan(tmp_path / "plan", tmp_path / "unpacked")
    starts = [tuple(json.loads(plan.body(n))["prompt"].split(" ")[: 8 * BLOCK + 1]) for n in range(plan.requests)]
    again = [start in starts[:n] for n, start in enumerate(starts)]
    assert 25 < sum(again) < 60
    assert rows["cached_tokens"].tolist() == np.where(again, 8 * BLOCK, 0).tolist()


@pytest.mark.parametrize(("workload", "least"), [("conversation", 0.1), ("code-completion", 0.4)])
def test_what_the_standard_workloads_share_is_found(tmp_path: Path, workload: str, least: float) -> None:
    """The engine splits text at spaces, so its counts differ from the plan's; shared parts are found all the same."""
    rows = served(tmp_path, workload=workload, osl="1")
    assert least < rows["cached_tokens"].sum() / rows["prompt_tokens"].sum() < 0.8


def test_a_data_set_of_the_hub_is_sent_as_it_is(tmp_path: Path) -> None:
    """The engine gets each question as often as the others, and as many tokens of answer as the set's answers have."""
    datasets = pytest.importorskip("datasets", reason="without the extra `hf` no data set is read with the package")
    rows = [{"question": " ".join(["ask"] * (n + 1)), "answer": " word" * (2 * n + 1)} for n in range(8)]
    datasets.Dataset.from_list(rows).save_to_disk(str(tmp_path / "set"))
    measured = measure(
        tmp_path / "run",
        ["--rate", "200", "-n", "40", "--workload", "hf", "--dataset-path", str(tmp_path / "set"), "--no-telemetry",
         "--save-plan", str(tmp_path / "plan")],
        pin=False, ttft_ms=1.0, itl_ms=0.5,
    )  # fmt: skip
    assert measured.exit_code == 0, measured.said
    number = next(phase["number"] for phase in measured.run.manifest["phases"] if phase["name"] == "measure")
    found = measured.truth.requests[measured.truth.requests["phase"] == number]
    assert sorted(found["output_tokens"].tolist()) == sorted(5 * [2 * n + 1 for n in range(8)])
    plan = load_plan(tmp_path / "plan", tmp_path / "unpacked")
    texts = sorted(json.loads(plan.body(n))["messages"][0]["content"] for n in range(40))
    assert texts == sorted(5 * [row["question"] for row in rows])
