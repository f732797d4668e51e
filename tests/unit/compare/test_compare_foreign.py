"""Result files of other tools as sides: figures by our definitions, where they differ, what cannot be had, refusals."""

from __future__ import annotations

import json
from pathlib import Path

import foreign_files as files
import numpy as np
import pytest
from made_runs import write_run
from refusals import raises_code, says

from fastllmload.cli.main import main
from fastllmload.compare.comparison import Comparison, Row, compare
from fastllmload.compare.side import Side, read_side

TTFT_MS = [each * 1e3 for each in files.TTFTS]


def side(path: Path, *found: dict[str, object]) -> Side:
    return read_side([files.write(path, *found)])


def row(found: Comparison, name: str) -> Row:
    return next(each for each in found.rows if each.figure.name == name)


def figures(found: Side, *names: str) -> dict[str, float | None]:
    """metric_statistic of the only run."""
    document = found.first.document
    return {name: document.metric(name.rpartition("_")[0]).statistic(name.rpartition("_")[2]) for name in names}  # type: ignore[misc]


@pytest.mark.parametrize("detailed", [False, True])
def test_vllm(tmp_path: Path, detailed: bool) -> None:
    """TTFT is ttft_any, TPOT tpot_any; with details the figures are recomputed, and have intervals."""
    found = side(tmp_path / "v.json", files.vllm(detailed))
    gaps = "itl" if detailed else "tbc"
    wanted = {
        "ttft_any_p50": float(np.median(TTFT_MS)), "ttft_any_p99": float(np.percentile(TTFT_MS, 99)), "tpot_any_mean": 10.0,
        f"{gaps}_p50": 10.0, "e2e_p50": float(np.median(TTFT_MS)) + 40, "req_s_makespan_value": 200 / files.seconds(),
        "output_tok_s_makespan_value": 1000 / files.seconds(), "success_rate_value": 1.0,
    }  # fmt: skip
    assert figures(found, *wanted) == pytest.approx(wanted)
    document = found.first.document
    assert (document.metric("ttft_any").interval("p50") is not None) == detailed
    assert "ttft" not in (document.metrics or {}) and "output_tok_s" not in (document.metrics or {})


def test_failures_of_vllm_are_left_out(tmp_path: Path) -> None:
    """A failed request has zeros in the lists; earlier versions write no count of them."""
    given = files.vllm(completed=199, num_prompts=200)
    given["errors"][7], given["ttfts"][7], given["itls"][7], given["output_lens"][7] = "refused", 0.0, [], 0
    del given["failed"]
    found = side(tmp_path / "v.json", given)
    assert found.first.document.metric("ttft_any").n == 199
    assert figures(found, "success_rate_value") == {"success_rate_value": 0.995}


def test_aiperf(tmp_path: Path) -> None:
    """The summary alone; with its records; the records alone, where the warm-up and the failure are left out."""
    alone = side(tmp_path / "a.json", files.aiperf())
    wanted = {
        "ttft_any_p99": float(np.percentile(TTFT_MS, 99)),
        "tpot_any_p50": 10.0,
        "e2e_mean": float(np.mean(TTFT_MS)) + 40,
    }
    assert figures(alone, *wanted) == pytest.approx(wanted) and alone.first.foreign.requests is None
    (tmp_path / "x").mkdir()
    files.write(tmp_path / "x" / "profile_export_aiperf.json", files.aiperf())
    records = files.write(tmp_path / "x" / "profile_export.jsonl", *files.aiperf_records())
    for both in (read_side([str(tmp_path / "x")]), read_side([records])):
        assert figures(both, *wanted) == pytest.approx(wanted)
        assert both.first.document.metric("itl").interval("p50") is not None
    assert figures(read_side([records]), "success_rate_value") == pytest.approx({"success_rate_value": 200 / 201})
    files.write(tmp_path / "x" / "profile_export.jsonl", *files.aiperf_records()[:50])
    other = read_side([str(tmp_path / "x")]).first.foreign
    assert other is not None and other.requests is None and "49 of 200" in other.notes[0]


@pytest.mark.parametrize("requests", [False, True])
def test_guidellm(tmp_path: Path, requests: bool) -> None:
    """Its ITL summary is weighted and its latency ends with the stream: tpot_any and e2e come from requests only."""
    found = side(tmp_path / "benchmarks.json", files.guidellm(requests))
    metrics = found.first.document.metrics or {}
    assert ("tpot_any" in metrics, "e2e" in metrics) == (requests, requests)
    wanted = {
        "ttft_any_mean": float(np.mean(TTFT_MS)),
        "total_duration_mean": float(np.mean(TTFT_MS)) + 42,
        "req_s_value": 10.0,
    }
    wanted |= {"tpot_any_p99": 10.0, "e2e_mean": float(np.mean(TTFT_MS)) + 40} if requests else {}
    assert figures(found, *wanted) == pytest.approx(wanted, rel=1e-5)
    assert not requests or found.first.document.metric("ttft_any").n == 200  # without the warm-up


def test_one_of_several_is_named(tmp_path: Path) -> None:
    path = files.write(tmp_path / "benchmarks.json", files.guidellm(benchmarks=3))
    with raises_code("result-file-several", "3", "#1"):
        read_side([path])
    with raises_code("result-file-several", "#4"):
        read_side([f"{path}#4"])
    assert read_side([f"{path}#2"]).first.foreign is not None
    lines = files.write(tmp_path / "v.json", files.vllm(), files.vllm(factor=2.0))  # --append-result
    assert read_side([f"{lines}#2"]).first.document.metric("tpot_any").mean == pytest.approx(20)


def test_a_difference_between_files_with_details(tmp_path: Path) -> None:
    """Twice as slow is found, with an interval; gaps are compared where both are between tokens."""
    found = compare(side(tmp_path / "a.json", files.vllm()), side(tmp_path / "b.json", files.vllm(factor=2.0)))
    for name in ("p50_ttft_any_ms", "p50_e2e_ms", "p50_itl_ms"):
        assert row(found, name).change.relative == pytest.approx(1.0)
    assert row(found, "p50_ttft_any_ms").result == "worse" and not found.same_requests
    assert "vLLM" in row(found, "p99_ttft_any_ms").definitions[0]
    assert row(found, "req_s_makespan").change.interval is None


def test_summaries_have_no_interval(tmp_path: Path) -> None:
    """The difference is shown, no interval and no p are."""
    found = compare(side(tmp_path / "a.json", files.vllm(False)), side(tmp_path / "b.json", files.vllm(False, 2.0)))
    change = row(found, "p99_ttft_any_ms").change
    assert change.relative == pytest.approx(1.0) and change.interval is None and change.p is None
    assert "--save-detailed" in (change.why_not or "")


def test_several_files_a_side_are_tested(tmp_path: Path) -> None:
    """With three files a side the run is the unit, and summaries suffice."""
    paths = [files.write(tmp_path / f"{k}.json", files.vllm(False, 1 + 0.5 * (k > 2) + 0.01 * k)) for k in range(6)]
    found = compare(read_side(paths[:3]), read_side(paths[3:]))
    assert row(found, "p50_ttft_any_ms").result == "worse" and found.test == "welch"


def test_what_means_another_thing_is_not_compared(tmp_path: Path) -> None:
    """Gaps of chunks against gaps of tokens; a figure that the tool does not have."""
    detailed, alone = side(tmp_path / "a.json", files.vllm()), side(tmp_path / "b.json", files.vllm(False, 2.0))
    gaps = row(compare(detailed, alone), "p50_itl_ms")
    assert gaps.result == "not comparable" and gaps.change.difference is None and "tbc" in (gaps.change.why_not or "")
    ours = read_side([str(write_run(tmp_path / "run", 1, 300))])
    found = compare(ours, detailed, ["p50_ttft_ms", "p50_ttft_any_ms"], different_workload=True)
    assert row(found, "p50_ttft_ms").result == "not comparable"
    assert "ttft_any" in (row(found, "p50_ttft_ms").change.why_not or "")
    assert row(found, "p50_ttft_any_ms").change.interval is not None


def test_known_differences_of_the_load(tmp_path: Path) -> None:
    base = side(tmp_path / "a.json", files.vllm())
    with raises_code("workloads-differ", "10 requests/s", "8 in flight"):
        compare(base, side(tmp_path / "b.json", files.vllm(request_rate="inf", max_concurrency=8)))
    with raises_code("workloads-differ", "input tokens", "16.0"):
        compare(base, side(tmp_path / "c.json", files.vllm(total_input_tokens=16 * files.REQUESTS)))


def test_files_of_no_known_tool(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"a": 1}')
    (tmp_path / "y.json").write_text("not JSON")
    for name in ("x.json", "y.json"):
        with raises_code("result-file-unknown", "--save-result", "benchmarks.json"):
            read_side([str(tmp_path / name)])
    with raises_code("schema-version", "2.0"):
        side(tmp_path / "a.json", files.aiperf(schema_version="2.0"))
    with raises_code("schema-version", "3"):
        side(tmp_path / "g.json", files.guidellm(version=3))
    with raises_code("result-file-invalid"):
        side(tmp_path / "v.json", files.vllm(ttfts=[0.1]))
    with raises_code("result-file-invalid"):
        side(tmp_path / "w.json", files.vllm(ttfts={"a": "b"}))
    with raises_code("result-file-invalid", "duration is '9 s'"):
        side(tmp_path / "d.json", files.vllm(duration="9 s"))
    with raises_code("result-file-invalid", "-0.1 s"):
        side(tmp_path / "n.json", files.vllm(ttfts=[-0.1] * files.REQUESTS))


@pytest.mark.parametrize("constant", [float("nan"), float("inf"), -float("inf")])
def test_what_python_writes_for_no_value_is_none(tmp_path: Path, constant: float) -> None:
    """`vllm bench serve` writes NaN where no answer has two tokens; msgspec reads no such JSON."""
    found = side(tmp_path / "v.json", files.vllm(False, median_tpot_ms=constant, mean_tpot_ms=constant))
    assert "tpot_any" not in (found.first.document.metrics or {})
    assert figures(found, "ttft_any_p50") == {"ttft_any_p50": pytest.approx(float(np.median(TTFT_MS)))}


def test_every_output_says_that_a_side_is_foreign(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base, new = (
        files.write(tmp_path / f"{name}.json", files.vllm(factor=f)) for name, f in (("a", 1.0), ("b", 1.0001))
    )
    written = [f"--{kind}={tmp_path / kind}" for kind in ("json", "markdown", "html")]
    assert main(["compare", base, new, *written]) == 0
    outputs = [capsys.readouterr().out, *((tmp_path / kind).read_text() for kind in ("markdown", "html"))]
    for text in (each.replace("\\", "") for each in outputs):
        assert "(foreign: vLLM," in text and "p50_ttft_any_ms *" in text and "definition of p50_ttft_any_ms" in text
    found = json.loads((tmp_path / "json").read_text())
    assert found["base"]["runs"][0]["foreign"] == "vLLM" and found["same_workload"] is None
    assert found["figures"]["p50_ttft_any_ms"]["definitions"]
    assert main(["compare", base, new, "--strict"]) == 1  # nothing is known of its client
    capsys.readouterr()
    assert main(["compare", base, new, "--systems"]) == 2
    assert says(capsys.readouterr().err, "methods-differ", "vLLM")


def test_our_run_exported_and_imported(tmp_path: Path) -> None:
    """`export --format vllm --detailed` of a run, compared with the run itself: the same values, and nothing is shown."""
    folder = write_run(tmp_path / "run", 1, 600)
    made = json.loads((folder / "run.json").read_text())
    made["phases"][0]["ramp_share"] = 0.0  # vLLM leaves no time out
    (folder / "run.json").write_text(json.dumps({name: each for name, each in made.items() if name != "metrics"}))
    assert main(["export", str(folder), "--format", "vllm", "--detailed", "-o", str(tmp_path / "v.json")]) == 0
    found = compare(read_side([str(folder)]), read_side([str(tmp_path / "v.json")]), different_workload=True)
    compared = {each.figure.name: each for each in found.rows}
    for name in (
        "p50_ttft_any_ms",
        "p99_ttft_any_ms",
        "p50_tpot_any_ms",
        "p99_tpot_any_ms",
        "p50_e2e_ms",
        "p99_e2e_ms",
    ):
        assert compared[name].new.value == pytest.approx(compared[name].base.value, rel=1e-9), name
        ends = compared[name].base.ci95
        assert compared[name].new.ci95 == (None if ends is None else pytest.approx(ends, rel=1e-6)), name
        assert compared[name].result in ("not shown", "not estimable")
    for name in ("output_tok_s_makespan", "req_s_makespan"):
        assert compared[name].new.value == pytest.approx(compared[name].base.value, rel=0.01)
