"""Options that a test, a search or a sweep has of its own: from its config file as from the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from refusals import says

from fastllmload.cli.main import main
from fastllmload.overhead import run as overhead_run
from fastllmload.procedure import run
from fastllmload.search import run as search_run
from fastllmload.sweep import run as sweep_run


@pytest.fixture
def conducted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What would be conducted; nothing is sent."""
    found: list[tuple[Any, ...]] = []

    def keep(*words: Any) -> int:
        found.append(words)
        return 0

    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.setattr(run, "run_procedure", keep)
    monkeypatch.setattr(search_run, "run_search", keep)
    monkeypatch.setattr(sweep_run, "run_sweep", keep)
    monkeypatch.setattr(overhead_run, "run_overhead", keep)
    return found


def config(folder: Path, text: str) -> str:
    path = folder / "c.toml"
    path.write_text(text)
    return str(path)


def test_a_test_reads_its_own_from_the_file(conducted: list[tuple[Any, ...]], tmp_path: Path) -> None:
    path = config(tmp_path, 'slo-ttft-p99 = 200\ninitial = 4\nquick = true\nseed = 7\n[hook]\nrestart = "a=1 b"\n')
    assert main(["procedure", "capacity", "--config", path, "--initial", "2"]) == 0
    _, settings, _, parameters, terms, _ = conducted[0]
    assert (parameters.slo_ttft_p99_ms, parameters.initial, settings.client.seed) == (200.0, 2, 7)
    assert terms.quick and terms.commands == {"restart": "a=1 b"}


def test_a_search_reads_its_own_from_the_file(conducted: list[tuple[Any, ...]], tmp_path: Path) -> None:
    path = config(tmp_path, 'what = "concurrency"\nmax_levels = 5\nstep = "10%"\ninterleave = true\nsettle = 0\n')
    assert main(["search", "--config", path, "--max", "64"]) == 0
    _, _, parameters, terms, _ = conducted[0]
    assert (parameters.what, parameters.levels, parameters.step, parameters.maximum) == ("concurrency", 5, 0.1, 64)
    assert parameters.interleave and terms.settle_s == 0


def test_a_sweep_reads_its_own_from_the_file(conducted: list[tuple[Any, ...]], tmp_path: Path) -> None:
    path = config(tmp_path, 'runs = 2\nduration = 5\n[vary]\nrate = "1,2"\nosl = "8,16"\n')
    assert main(["sweep", "--config", path]) == 0
    cells, _, terms, _ = conducted[0]
    assert [dict(cell.values) for cell in cells][1] == {"rate": "1", "osl": "16"} and len(cells) == 4
    assert terms.runs == 2


@pytest.mark.parametrize(
    ("words", "text", "said"),
    [
        (["procedure", "capacity"], "initail = 4", ("option-unknown", "'initail'", "initial?")),
        (["run", "--rate", "1"], "initial = 4", ("option-unknown", "'initial'", "of a run")),
        (["procedure", "capacity"], 'initial = "x"', ("count-invalid", "initial in ", "'x'")),
        (["procedure", "capacity"], "quick = 1", ("option-value-type", "quick in ", "true or false")),
    ],
)
def test_what_the_file_has_wrong_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], text: str, said: tuple[str, ...]
) -> None:
    assert main([*words, "--config", config(tmp_path, text)]) == 2
    assert says(capsys.readouterr().err, *said)


def test_an_overhead_reads_its_own_from_the_file(conducted: list[tuple[Any, ...]], tmp_path: Path) -> None:
    """Both ways are the URLs of the run, so that their secrets and TLS options are treated as there."""
    text = 'direct = "http://a:1"\nthrough = ["https://b:2", "https://c:3"]\npairs = 6\nrate = 5\ninsecure = true\n'
    assert main(["overhead", "--config", config(tmp_path, text), "--fail-if", "p99_ttft_ms > +2ms"]) == 0
    settings, direct, through, _, terms, _ = conducted[0]
    assert (direct, through) == (("http://a:1",), ("https://b:2", "https://c:3"))
    assert settings.target.urls == (*direct, *through) and settings.load.duration == 10.0
    assert terms.pairs == 6 and [gate.limit for gate in terms.gates] == [2.0]


def test_each_way_has_its_own_key_model_and_headers(conducted: list[tuple[Any, ...]], tmp_path: Path) -> None:
    (tmp_path / "key").write_text("gateway-key-1\n")
    own = ["--through-model", "team", "--through-api-key-file", str(tmp_path / "key"), "--through-header", "x-a: 1"]
    ways = [
        "--direct",
        "http://a:1",
        "--through",
        "http://b:1",
        "-m",
        "m",
        "-H",
        "x-both: 2",
        "--direct-header",
        "x-d: 3",
    ]
    assert main(["overhead", "--rate", "5", *ways, *own]) == 0
    settings, _, _, _, terms, _ = conducted[0]
    assert (settings.target.model, settings.target.headers) == ("m", (("x-both", "2"),))
    assert (terms.direct.headers, terms.direct.secret) == ((("x-d", "3"),), None)
    assert (terms.through.model, terms.through.headers) == ("team", (("x-a", "1"),))
    assert terms.through.secret is not None and terms.through.secret.reveal() == "gateway-key-1"
    assert main(["overhead", "--rate", "5", *ways, "--through-api-key", "gateway-key-2"]) == 0
    assert conducted[1][4].through.secret.reveal() == "gateway-key-2"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (
            [
                "--direct",
                "http://a:1",
                "--through",
                "http://b:1",
                "--through-api-key",
                "k",
                "--through-api-key-file",
                "f",
            ],
            ("options-conflict", "--through-api-key"),
        ),
        (["--direct", "http://a:1"], ("option-missing", "--through")),
        (["--through", "http://a:1"], ("option-missing", "--direct")),
        (["--direct", "http://a:1", "--through", "b c"], ("url-invalid", "--through")),
        (
            ["--direct", "http://a:1", "--through", "http://b:1", "--url", "http://c:1"],
            ("option-not-applicable", "--url"),
        ),
        (["--direct", "http://a:1", "--through", "http://b:1", "http://c:1"], ("option-not-applicable", "--url")),
        (["--direct", "http://a:1", "--through", "http://b:1", "--pairs", "5"], ("value-out-of-range", "write 6")),
        (["--direct", "http://a:1", "--through", "http://b:1", "--pairs", "2"], ("value-out-of-range", "4 to 100")),
        (["--direct", "http://a:1", "--through", "http://b:1", "--fail-if", "p99"], ("gate-invalid", "'p99'")),
    ],
)
def test_an_overhead_without_two_ways_is_refused(
    conducted: list[tuple[Any, ...]],
    arguments: list[str],
    why: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["overhead", "--rate", "5", *arguments]) == 2
    said = capsys.readouterr().err
    assert says(said, *why) and said.count("\n") == 1 and conducted == []
