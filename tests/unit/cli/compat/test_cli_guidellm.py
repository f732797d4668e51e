"""GuideLLM's command lines: profiles, data, scenarios and variables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from compat_runs import SGLANG, VLLM, settings_of
from refusals import says

from fastllmload.cli.commands.plan import build_in
from fastllmload.cli.main import main
from fastllmload.settings import RunSettings

SWEPT = ("guidellm", "--data", "prompt_tokens=9,output_tokens=4", "--max-seconds", "5")


@pytest.mark.parametrize(
    ("words", "shown", "runs", "arrival"),
    [
        ((), "rate=spaced:10", 10, "constant"),
        (("--rate-type", "sweep", "--rate", "5.0"), "rate=spaced:5", 5, "constant"),
        (("--profile", "kind=sweep,sweep_size=4,strategy_type=poisson"), "rate=spaced:4", 4, "poisson"),
    ],
)
def test_the_sweep_of_guidellm_is_spaced_rates(
    words: tuple[str, ...], shown: str, runs: int, arrival: str, sent: list[RunSettings],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """It is its default, of ten runs; its rate is the number of runs."""
    settings_of(sent, *SWEPT, *words)
    assert shown in capsys.readouterr().err
    assert [each.load.concurrency for each in sent] == [1, 512, *[None] * (runs - 2)]
    assert {each.load.arrival for each in sent[2:]} == {arrival}


def test_the_sweep_of_guidellm_has_its_cap(
    sent: list[RunSettings], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings_of(sent, *SWEPT, "--profile", "kind=sweep,max_concurrency=64")
    assert (sent[1].load.concurrency, sent[2].load.max_concurrency) == (64, 64)
    monkeypatch.setenv("GUIDELLM__MAX_CONCURRENCY", "100")
    settings_of(sent, *SWEPT)
    assert (sent[1].load.concurrency, sent[2].load.max_concurrency) == (100, 100)
    assert main(["compat", *SWEPT, "--rate", "2"]) == 2
    assert says(capsys.readouterr().err, "value-invalid", "3 to 1,000")


GUIDELLM = (
    "guidellm",
    "benchmark",
    "--profile",
    "constant",
    "--rate",
    "2",
    "--data",
    "prompt_tokens=9,output_tokens=4",
)


@pytest.mark.parametrize(
    ("words", "share"),
    [(("--max-seconds", "40", "--warmup-percent", "0.1"), 0.1), (("--max-seconds", "40", "--warmup-percent", "10"), 0.25),
     (("--max-requests", "50", "--warmup", "10"), 0.2),
     (("--max-seconds", "40", "--max-requests", "20", "--warmup", "value=5,mode=requests"), 0.25),
     (("--max-seconds", "40", "--warmup", '{"percent": 0.3}'), 0.3), (("--max-seconds", "40"), 0)],
)  # fmt: skip
def test_guidellms_warm_up_is_a_part_of_the_measurement(
    words: tuple[str, ...], share: float, sent: list[RunSettings]
) -> None:
    """Below 1 a share, else seconds, or requests where there is no duration."""
    load = settings_of(sent, *GUIDELLM, *words).load
    assert (load.ramp_share, load.warmup_requests) == (share, 0)


DATA = ("--data", "prompt_tokens=9,output_tokens=4")


def test_scenarios_of_guidellm(sent: list[RunSettings], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Built-in ones, and files of each of its generations; what is typed goes before what they say, wherever it stands."""
    settings_of(sent, "guidellm", "--max-seconds", "5", "--rate", "4", "--scenario", "rag")
    assert len(sent) == 4 and sent[0].workload.isl == "normal:4096,512,2048,6144"
    assert (
        settings_of(sent, "guidellm", "--scenario", "chat.json", "--max-seconds", "5").workload.osl
        == "normal:256,64,1,1024"
    )
    (tmp_path / "flat.yaml").write_text(
        "target: http://a:1\nrequest_type: text_completions\nprofile: constant\nrate: [1, 5]\nmax_seconds: 30\n"
        "data:\n  prompt_tokens: 50\n  prompt_tokens_stdev: 5\n  output_tokens: 60\n"
    )
    settings = settings_of(sent, "guidellm", "benchmark", "--rate", "7", "--scenario", "flat.yaml", *DATA)
    assert [one.load.rate for one in sent] == [7] and settings.load.duration == 30
    assert (settings.workload.isl, settings.workload.osl) == ("9", "4")
    settings_of(sent, "guidellm", "benchmark", "--scenario=flat.yaml")
    assert [(one.load.rate, one.workload.isl) for one in sent] == [(1, "normal:50,5,25,75"), (5, "normal:50,5,25,75")]
    spec = {
        "backend": {"kind": "openai_http", "target": "http://b:2"},
        "profile": {"kind": "concurrent", "streams": [2, 3]},
        "constraints": [{"kind": "max_requests", "count": 8}, {"kind": "max_errors", "count": 1}],
        "data": [{"kind": "synthetic_text", "prompt_tokens": 6, "output_tokens": 3}],
        "outputs": [{"kind": "json", "path": "x.json"}],
    }
    (tmp_path / "spec.json").write_text(json.dumps({"spec": spec}))
    settings = settings_of(sent, "guidellm", "run", "-c", "spec.json")
    assert [one.load.concurrency for one in sent] == [2, 3] and settings.target.urls == ("http://b:2",)
    assert settings.load.num_requests == 8
    for text, code in (("- a", "config-invalid"), ("a: [", "config-invalid")):
        (tmp_path / "bad.yaml").write_text(text)
        assert main(["compat", "guidellm", "run", "-c", "bad.yaml"]) == 2
        assert says(capsys.readouterr().err, code, "bad.yaml")


def test_prefixes_of_guidellm(sent: list[RunSettings], capsys: pytest.CaptureFixture[str]) -> None:
    """Prefixes of one length, equally likely, are one group; others are classes, which share a rate."""
    group = {"prefix_tokens": 100, "prefix_count": 2, "bucket_weight": 50}
    data = {"prompt_tokens": 9, "output_tokens": 4}
    words = ("guidellm", "--max-seconds", "5", "--profile")
    typed = json.dumps({**data, "prefix_buckets": [group, {**group, "prefix_count": 4, "bucket_weight": 100}]})
    workload = settings_of(sent, *words, "concurrent", "--rate", "2", "--data", typed).workload
    assert (workload.prefix_len, workload.num_prefixes) == (100, 6)
    typed = json.dumps({**data, "prefix_buckets": [group, {"prefix_tokens": 30, "bucket_weight": 150}]})
    settings = settings_of(sent, *words, "constant", "--rate", "8", "--data", typed)
    assert [(one.load.rate, one.workload.prefix_len, one.workload.num_prefixes) for one in settings.classes] == [
        (2, 100, 2),
        (6, 30, 1),
    ]
    typed = json.dumps({**data, "prefix_buckets": [group, {"prefix_tokens": 0, "bucket_weight": 150}]})
    settings = settings_of(sent, *words, "constant", "--rate", "8", "--data", typed)
    assert [(one.load.rate, one.workload.prefix_len) for one in settings.classes] == [(2, 100), (6, 0)]
    assert main(["compat", *words, "concurrent", "--rate", "2", "--data", typed]) == 2
    assert says(capsys.readouterr().err, "compat-load-differs", "--data prefix_buckets")
    assert main(["compat", *words, "constant", "--rate", "2", "--data", '{"prefix_buckets": [{}]}']) == 2
    assert says(capsys.readouterr().err, "value-invalid", "prefix_buckets")
    assert main(["compat", *words, "constant", "--rate", "2", *DATA, *DATA]) == 2
    assert says(capsys.readouterr().err, "compat-load-differs", "--data prompt_tokens=9")


GUIDED = ("guidellm", "--profile", "concurrent", "--rate", "2", "--max-seconds", "5", "--data")


@pytest.mark.parametrize(
    ("name", "text", "more", "form", "columns", "osl"),
    [("a.csv", "prompt,output_tokens_count,x\nWhy?,5,y\n", (), "csv",
      (("prompt", "prompt"), ("output_tokens", "output_tokens_count")), None),
     ("a.jsonl", '{"id": 1, "question": "Why?"}\n', (), "custom", (("prompt", "question"),), "1024"),
     ("a.json", '[{"prompt": "Why?", "article": "How?"}]', ("--data-column-mapper", '{"text_column": "article"}'),
      "custom", (("prompt", "article"),), "1024"),
     ("a.jsonl", '{"q": "Why?", "n": 5}\n', ("--data-column-mapper", "kind=generative_column_mapper,"
      "column_mappings.text_column=q,column_mappings.output_tokens_count_column=n"), "custom",
      (("prompt", "q"), ("output_tokens", "n")), None)],
)  # fmt: skip
def test_files_of_guidellm(
    name: str, text: str, more: tuple[str, ...], form: str, columns: Any, osl: str | None, sent: list[RunSettings],
    tmp_path: Path,
) -> None:  # fmt: skip
    """Their columns are found by their names; an answer without a length ends where the model ends it."""
    (tmp_path / name).write_text(text)
    workload = settings_of(sent, *GUIDED, name, *more).workload
    assert (workload.name, workload.dataset_columns, workload.osl) == (form, columns, osl)
    assert workload.ignore_eos == (osl is None)
    assert build_in(tmp_path / "plan", msgspec.structs.replace(sent[0], target=msgspec.structs.replace(
        sent[0].target, model="m"))).requests != 0  # fmt: skip


def test_rows_of_turns_are_conversations(
    sent: list[RunSettings], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        {"prefix": "Be brief.", "prompt_0": "Why?", "output_tokens_count_0": 5,
         "prompt_1": "How?", "output_tokens_count_1": 6},
        {"prompt_0": "Who?", "prompt_1": "When?", "prompt_2": "Where?", "output_tokens_count_2": 7, "prompt_3": "What?"},
    ]  # fmt: skip
    (tmp_path / "turns.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = settings_of(sent, *GUIDED, "turns.jsonl", "--max-requests", "30")
    assert (settings.workload.name, settings.workload.turns, settings.load.num_requests) == ("custom", "all", 10)
    first = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]
    written = [json.loads(line) for line in Path(settings.workload.dataset_path or "").read_text().splitlines()]
    assert written == [
        {"session": "0", "messages": first, "output_tokens": 5}, {"session": "0", "prompt": "How?", "output_tokens": 6},
        {"session": "1", "prompt": "Who?"}, {"session": "1", "prompt": "When?"},
        {"session": "1", "prompt": "Where?", "output_tokens": 7}, {"session": "1", "prompt": "What?"},
    ]  # fmt: skip
    assert "--max-requests 30: nearly the same" in capsys.readouterr().err
    words = ("guidellm", "--max-seconds", "5", "--profile", "constant", "--rate", "6", "--data", "turns.jsonl")
    assert settings_of(sent, *words).load.rate == 2  # conversations of 3 turns on the average


def test_other_data_of_guidellm(sent: list[RunSettings], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--data", "org/name", "--data-args", '{"name": "3.0.0", "split": "test"}', "--data-column-mapper")
    workload = settings_of(sent, *GUIDED[:-1], *words, "column_mappings.text_column=article").workload
    assert (workload.name, workload.dataset_path, workload.hf_split, workload.hf_subset) == (
        "hf", "org/name", "test", "3.0.0"
    )  # fmt: skip
    assert workload.dataset_columns == (("prompt", "article"),)
    typed = '{"kind": "huggingface", "source": "org/name", "load_kwargs": {"split": "test"}}'
    workload = settings_of(sent, *GUIDED, typed).workload
    assert (workload.dataset_path, workload.hf_split) == ("org/name", "test")
    (tmp_path / "lengths.json").write_text('{"prompt_tokens": 30, "prompt_tokens_stdev": 2, "output_tokens": 8}')
    assert settings_of(sent, *GUIDED, "lengths.json").workload.isl == "normal:30,2,20,40"
    for name, text in (
        ("a.csv", "x,y\n1,2\n"),
        ("b.csv", "system_prompt,prompt\n1,2\n"),
        ("c.csv", "prompt_0,prompt_1\n1,2\n"),
    ):
        (tmp_path / name).write_text(text)
        assert main(["compat", *GUIDED, name]) == 2
        assert says(capsys.readouterr().err, "compat-load-differs", f"--data {name}")
    for data in ("https://h/rows.parquet", "kind=mooncake,path=mooncake.jsonl", "kind=synthetic_image"):
        assert main(["compat", *GUIDED, data]) == 2
        assert says(capsys.readouterr().err, "compat-load-differs", "--data")


def test_fields_of_a_body_stay_as_deep_as_they_were_written(sent: list[RunSettings]) -> None:
    deep = {"chat_template_kwargs": {"enable_thinking": False}, "top_p": 0.9}
    for words in (
        ("--backend-kwargs", json.dumps({"extras": {"body": deep, "headers": {"X-A": "b"}}})),
        ("--backend-args", json.dumps({"extra_body": deep, "headers": {"X-A": "b"}})),
        ("--backend", "kind=openai_http,extras.body.chat_template_kwargs.enable_thinking=false,extras.body.top_p=0.9,"
         "extras.headers.X-A=b"),
    ):  # fmt: skip
        settings = settings_of(sent, *GUIDED[:-1], *DATA, *words)
        assert json.loads(settings.workload.extra_body or "") == deep
        assert settings.target.headers == (("X-A", "b"),)


def test_images_of_guidellm(sent: list[RunSettings], capsys: pytest.CaptureFixture[str]) -> None:
    data = "kind=synthetic_image,width=640,height=480,images_per_request=2,text_tokens=30,output_tokens=8"
    workload = settings_of(sent, *GUIDED, data).workload
    assert (workload.image, workload.isl, workload.osl) == ("640x480:2", "30", "8")
    assert main(["compat", *GUIDED, "kind=synthetic_image,text_tokens=30"]) == 2
    assert says(capsys.readouterr().err, "compat-load-differs", "--data kind=synthetic_image")


def test_lengths_of_early_versions_of_guidellm(sent: list[RunSettings]) -> None:
    data = "prompt_tokens=100,prompt_tokens_variance=30,generated_tokens=20,generated_tokens_variance=0"
    words = ("GUIDELLM__NUM_SWEEP_PROFILES=3", "guidellm", "--data-type", "emulated", "--max-seconds", "5")
    workload = settings_of(sent, *words, "--data", data).workload
    assert (workload.isl, workload.osl, len(sent)) == ("uniform:70,130", "20", 5)


def test_a_refused_value_is_named_as_it_was_typed(sent: list[RunSettings], capsys: pytest.CaptureFixture[str]) -> None:
    words = (*GUIDELLM, "--max-seconds", "5", "--warmup-percent", "10", "--cooldown-percent", "10")
    assert main(["compat", *words]) == 2 and sent == []
    shown = capsys.readouterr().err
    assert says(shown, "share-invalid", "--ramp-share is --max-seconds 5, --warmup-percent 10")
    assert "--cooldown-percent: not done" in shown
    assert main(["compat", *VLLM, "--num-prompts", "x"]) == 2
    assert says(capsys.readouterr().err, "count-invalid", "--num-requests is --num-prompts x")


def test_guidellms_groups_of_settings(sent: list[RunSettings], capsys: pytest.CaptureFixture[str]) -> None:
    words = ["guidellm", "run", "--backend", "kind=openai_http,target=http://h:8,extras.headers.X-A=b",
             "--profile", '{"kind": "concurrent", "streams": [1, 4], "warmup": 5}', "--seed", "kind=static,value=7",
             "--constraint", "kind=max_duration,seconds=20", "--constraint", "kind=max_errors,count=3",
             "--data", "kind=synthetic_text,prompt_tokens=256"]  # fmt: skip
    settings = settings_of(sent, *words)
    assert [one.load.concurrency for one in sent] == [1, 4] and settings.target.headers == (("X-A", "b"),)
    assert (settings.load.duration, settings.load.num_requests, settings.load.ramp_share) == (20, None, 0.25)
    assert json.loads(settings.workload.extra_body or "") == {"max_tokens": None} and not settings.workload.ignore_eos
    assert settings.client.seed == 7 and "--constraint kind=max_errors: not done" in capsys.readouterr().err
    settings_of(sent, *words, "--constraint", "kind=over_saturation")
    assert "--over-saturation: not done" in capsys.readouterr().err, "as the duration ends the run"
    endless = ("guidellm", "--data", "prompt_tokens=9", "--profile", "synchronous", "--detect-saturation")
    assert main(["compat", *endless]) == 2 and says(capsys.readouterr().err, "compat-load-differs", "--over-saturation")
    settings_of(sent, *words[:4], "--profile", "kind=poisson", "--override", "profile.rate", "3,5", *words[8:])
    assert [one.load.rate for one in sent] == [3, 5]


def test_variables_of_the_environment(
    sent: list[RunSettings], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that a tool reads are its options, and those of others are named; an option goes before its variable."""
    monkeypatch.setenv("GUIDELLM_MAX_SECONDS", "7")
    words = ("GUIDELLM_TARGET=http://h:1", "GUIDELLM_RATE=9", "GUIDELLM__OPENAI__API_KEY=key-secret-9",
             "CUDA_VISIBLE_DEVICES=0", "OTHER=1", *GUIDELLM)  # fmt: skip
    settings = settings_of(sent, *words)
    shown = capsys.readouterr().err
    assert (settings.target.urls, settings.load.rate, settings.load.duration) == (("http://h:1",), 2, 7)
    assert "CUDA_VISIBLE_DEVICES: ignored" in shown and "OTHER: not done" in shown and "key-secret-9" not in shown
    assert main(["compat", "GUIDELLM__NOVEL=1", *GUIDELLM]) == 2
    assert says(capsys.readouterr().err, "compat-load-differs", "GUIDELLM__NOVEL")
    monkeypatch.delenv("GUIDELLM_MAX_SECONDS")
    assert settings_of(sent, "API_KEY=k-8", *SGLANG, "vllm").target.headers == (("Authorization", "k-8"),)
    assert main(["compat", "HTTPS_PROXY=http://p", *VLLM]) == 2
    assert says(capsys.readouterr().err, "compat-load-differs", "HTTPS_PROXY")


def test_rates_that_are_repeated_or_a_range(sent: list[RunSettings]) -> None:
    settings_of(sent, *GUIDELLM[:2], "--data", "prompts.txt", "--max-seconds", "5", "--profile", "concurrent",
                "--rate", "2", "--rate", "4,8")  # fmt: skip
    assert [each.load.concurrency for each in sent] == [2, 4, 8] and sent[0].workload.name == "text"
    settings_of(sent, *SGLANG, "sglang", "--multi", "--request-rate-range", "1,10,4")
    assert [each.load.rate for each in sent] == [1, 5, 9]


def test_turns_of_guidellm_at_a_rate_are_counted_otherwise(
    sent: list[RunSettings], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--data", "prompt_tokens=9,output_tokens=4,turns=3", "--max-seconds", "5")
    assert main(["compat", "guidellm", *words]) == 2
    assert says(capsys.readouterr().err, "compat-load-differs", "--data turns=3")
    for profile, arrival in (("constant", "constant"), ("poisson", "poisson")):
        load = settings_of(sent, "guidellm", "--profile", profile, "--rate", "6", *words).load
        assert (load.rate, load.arrival, load.duration) == (2.0, arrival, 5.0)
        assert "--data turns=3: nearly the same: a rate counts turns" in capsys.readouterr().err
    settings_of(sent, "guidellm", "--profile", "constant", "--rate", "3,6", *words)
    assert [each.load.rate for each in sent] == [1, 2]
    settings = settings_of(sent, "guidellm", "--profile", "synchronous", *words, "--max-requests", "10")
    assert (settings.workload.turns, settings.load.num_requests) == ("3", 4)
    assert "--max-requests 10: nearly the same" in capsys.readouterr().err
