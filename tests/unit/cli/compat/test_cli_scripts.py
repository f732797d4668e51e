"""Commands of other tools in scripts: loops, variables, sums, several commands, comments."""

from __future__ import annotations

from pathlib import Path

import pytest
from refusals import raises_code

from fastllmload.cli.compat.shell import commands_in, statements
from fastllmload.cli.compat.translate import Translation, translations

BENCH = "vllm bench serve --model m --dataset-name random"


def values(text: str, *options: str) -> list[tuple[str, ...]]:
    """Of each command in *text*: the values of *options* of ours."""
    return [tuple(value_of(one, option) for option in options) for one in translations([text], {})]


def value_of(found: Translation, option: str) -> str:
    (command,) = found.commands
    return command[command.index(option) + 1] if option in command else ""


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (f"for C in 1 8; do\n  {BENCH} --max-concurrency $C\ndone", [("1", "1000"), ("8", "1000")]),
        (f"for C in 2 4; do {BENCH} --max-concurrency ${{C}} --num-prompts $((C * 10)); done", [("2", "20"), ("4", "40")]),
        (f"L='1 2'\nfor C in $L; do N=$(( $C * 5 )); {BENCH} --max-concurrency \"$C\" --num-prompts ${{N}}; done",
         [("1", "5"), ("2", "10")]),
        (f"L=(3 6)\nfor C in \"${{L[@]}}\"; do {BENCH} --max-concurrency $C; done", [("3", "1000"), ("6", "1000")]),
        (f"for C in {{1..2}}; do for N in $(seq 10 10 20); do\n{BENCH} --max-concurrency $C --num-prompts $N\ndone; done",
         [("1", "10"), ("1", "20"), ("2", "10"), ("2", "20")]),
        (f"cd /x && {BENCH} --max-concurrency ${{CONC:-16}}\n{BENCH} --max-concurrency 32 > out.log",
         [("16", "1000"), ("32", "1000")]),
        (f"{BENCH} \\   # a comment\n  --max-concurrency 4 \\\n", [("4", "1000")]),
        (f"# first\necho \"it's; on\"; {BENCH} --max-concurrency 5 # last", [("5", "1000")]),
    ],
)  # fmt: skip
def test_each_command_of_a_script(text: str, wanted: list[tuple[str, ...]]) -> None:
    assert values(text, "--concurrency", "--num-requests") == wanted


def test_values_keep_their_quotes() -> None:
    text = f"""BODY='{{"a": "b c"}}'\nNAME="x y"\n{BENCH} --extra-body "$BODY" --label "$NAME" --metadata '$NAME'"""
    assert values(text, "--extra-body", "--metadata") == [('{"a": "b c"}', "$NAME")]


def test_variables_reach_the_tool_unless_the_text_has_used_them() -> None:
    """As exported ones: of LLMPerf the server; `MODEL` is only a part of the command."""
    llmperf = "export OPENAI_API_BASE=http://h:1/v1\nMODEL=m\npython token_benchmark_ray.py --model $MODEL"
    (found,) = translations([llmperf], {})
    assert value_of(found, "--url") == "http://h:1/v1" and value_of(found, "--model") == "m" and not found.lacks


def test_dates_of_file_names_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.strftime", lambda form: f"<{form}>")
    (found,) = translations([f"{BENCH} --save-result --result-filename r_$(date +%Y%m%d).json"], {})
    assert found.save is not None and found.save["filename"] == "r_<%Y%m%d>.json"


def test_paths_of_files_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path, wanted in (
        ("$(realpath ./a/../b.json)", str(tmp_path.resolve() / "b.json")),
        ('"$(pwd)/$(basename /x/b.json)"', str(tmp_path / "b.json")),
        ("$(dirname x/y/z)/b.json", "x/y/b.json"),
    ):
        text = f"vllm bench serve --model m --dataset-name custom --dataset-path {path} --num-prompts 3"
        assert values(text, "--dataset-path") == [(wanted,)]


def test_a_program_of_unknown_path_is_found_by_its_words() -> None:
    assert values('"$VLLM" bench serve --model m --dataset-name random --port 9', "--url") == [("http://127.0.0.1:9",)]


def test_other_programs_are_named() -> None:
    (found,) = translations([f"set -e\nmkdir -p out\n{BENCH}\nvllm serve m &"], {})
    assert [(lack.option, lack.kind) for lack in found.lacks] == [("set, mkdir, vllm", "cannot")]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (f"{BENCH} --tokenizer <model_path> --port <port>", "<model_path>, <port>"),
        (f"if true; then {BENCH}; fi", "'if'"), (f"for C in 1 2; do {BENCH}", "no done"),
        (f"{BENCH} --num-prompts $((X * 2))", "$((X * 2))"), (f"{BENCH} --seed $(hostname)", "$(hostname)"),
        (f"for C in {{1..2000}}; do {BENCH}; done", "1000"), ("echo 'a", "words"),
    ],
)  # fmt: skip
def test_what_a_script_leaves_open(text: str, named: str) -> None:
    with raises_code("usage", named):
        translations([text], {})


def test_statements_end_at_lines_and_marks_outside_quotes() -> None:
    assert list(statements("a; b 'c; d'\ne && f #g; h")) == ["a", "b 'c; d'", "e", "f"]
    assert commands_in("A=1\nrun $A", {}, lambda text: text.startswith("run")) == (["run 1"], ())


def test_a_server_of_ours_replaces_the_published_one(tmp_path: Path) -> None:
    (found,) = translations([f"{BENCH} --base-url http://published:8000"], {}, "http://mine:9")
    assert value_of(found, "--url") == "http://mine:9" and found.commands[0].count("--url") == 1
