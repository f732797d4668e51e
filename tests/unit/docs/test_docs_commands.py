"""Every command of the README and of docs/ works as it is printed.

Commands of the pages in `RUN` are run, for a second instead of minutes; those that name a server get the simulated engine
as that server. Of other pages the plan of a run is built. What takes minutes (searches, sweeps, tests, calibration)
is read by the program's own parser; `tools/guides` runs the tests of docs/procedures and writes their output there.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from real_run import real_run

from fastllmload.cli import main as cli
from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "bench/README.md")),
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if path.parent.name not in ("decisions", "spec")),
]
RUN = {"README.md", "start.md", "quick.md", "reports.md"}
BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"\s{2,}# .*")
SERVER = re.compile(r"https?://[\w.-]+(?::\d+)?")
NOT_OURS = {"pip", "duckdb", "jq"}
PARSED = {
    "search",
    "sweep",
    "overhead",
    "procedure",
    "calibrate",
    "simulate",
    "compliance",
    "compat",
}  # these take minutes, or need their folders
JUDGES = {"compare", "doctor"}  # exit code 1: what was asked does not hold
EXAMPLE = re.search(r"```toml\n(.*?)```", (ROOT / "docs/guides/endpoint-files.md").read_text(), re.DOTALL)[1]  # type: ignore[index]
FILES = {
    "sharegpt.json": json.dumps(
        [
            {"conversations": [{"from": "human", "value": f"What is {k}?"}, {"from": "gpt", "value": "A number."}]}
            for k in range(8)
        ]
    ),
    "server.toml": EXAMPLE,
    "adapters.txt": "base\nsql-adapter\nlaw-adapter\n",
    "sessions.jsonl": "".join(
        json.dumps(
            {
                "id": f"s{k}",
                "block_size": 64,
                "requests": [{"t": 0, "type": "n", "in": 70, "out": 4, "hash_ids": [1], "api_time": 1}],
            }
        )
        + "\n"
        for k in range(4)
    ),
    "questions.csv": "question,answer_length\nWhy is the sky blue?,20\n",
    "rows.json": '[{"instruction": "Name three rivers.", "topic": "water"}]',
    "prompts.txt": "Why is the sky blue?\nName three rivers.\n",
    "stack.jsonl": "".join(json.dumps({"content": f"def f{k}(x):\n    return x + {k}\n"}) + "\n" for k in range(8)),
}


def commands(page: Path) -> list[str]:
    """Lines after a prompt, with the lines that continue them and without comments."""
    found = []
    for block in BLOCK.findall(page.read_text(encoding="utf-8")):
        for line in re.sub(r"\\\n\s*", "", block).splitlines():
            if line.startswith("$ "):
                found.append(COMMENT.sub("", line[2:]))
    return found


WITH_COMMANDS = [page for page in PAGES if commands(page)]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The simulated engine under a URL, for commands that name one."""
    options = SimulatorOptions(ttft_ms=2.0, itl_ms=0.2, phase="spread", model="llama")
    with SimulatorProcess(options) as simulator:
        yield SERVER.match(simulator.url)[0]  # type: ignore[index]


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_work(page: Path, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands of one page share a folder, as a reader would type them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    for name, text in FILES.items():
        Path(name).write_text(text)
    for command in commands(page):
        program, *words = shlex.split(command)
        if program in ("fastllmload", "tools/fastllmload"):
            words = [SERVER.sub(server, word) for word in words]
            assert outcome(words, page.name in RUN, server) == 0, command
        elif program.startswith(("tools/", "python", ".venv/", "PYTHONPATH=")):
            check_ours(program, words)
        else:
            assert program in NOT_OURS, command


def outcome(words: list[str], to_run: bool, server: str = "") -> int:
    """Exit code of `fastllmload` with these words; 0 too of what is only read, and of a judgement that is made."""
    command = words[0] if words[0] in cli.fastllmload.table else "run"
    if command in PARSED or (command == "compare" and not Path(words[1]).exists()):
        read(words)
        return 0
    if "hf" in words:  # of a data set that a hub has
        read(["run", *words])
        return 0
    if command == "quick":
        return cli.main([*words, "--url", server, "--ui", "none"])
    if command == "run":
        needs_server = "--plan" in words or " url=" in " ".join(words)  # a plan asks no server for the model
        return cli.main(shortened(words) if to_run or needs_server else ["plan", *brief(words, "10")])
    if command == "plan":
        words = brief(words, "1" if words[1] == "save" else "10")  # a run sends the plan that was saved
    code = cli.main([str(real_run()) if word == "RUN" else word for word in words])
    return 0 if code == 1 and command in JUDGES else code


def read(words: list[str]) -> None:
    """Parse them as the command does; click.UsageError for what it does not know."""
    found: click.Command = cli.fastllmload
    context = click.Context(found)
    while isinstance(found, click.Group):
        name, *words = words
        inner = found.get_command(context, name)
        assert inner is not None, name
        found = inner
    found.make_context(name, list(words), parent=context)


def shortened(words: list[str]) -> list[str]:
    """The same load for a second, without a warm-up; a plan's own length otherwise."""
    return [
        *brief(words, "1"),
        "--ui",
        "none",
        "--no-telemetry",
        *(() if "--plan" in words else ("--warmup", "0", "--osl", "8")),
    ]


def brief(words: list[str], seconds: str) -> list[str]:
    return [seconds if before == "--duration" else word for before, word in zip(["", *words], words, strict=False)]


def check_ours(program: str, words: list[str]) -> None:
    """A script of the repository that a page names exists, and has the verbs and options."""
    script = next(word for word in [program, *words] if word.startswith(("tools/", "bench/", "tests/")))
    assert (ROOT / script).exists(), script
    options = [word for word in words if word.startswith("--")]
    verbs = words[:1] if script == "tools/check" else []
    text = "" if script.startswith("tests/") else (ROOT / script).read_text(encoding="utf-8")
    assert [each for each in (*options, *(f"{verb})" for verb in verbs)) if each not in text] == [], script


def test_prompts_are_marked() -> None:
    """A console block begins with a prompt, so that its commands are found."""
    for page in PAGES:
        for block in BLOCK.findall(page.read_text(encoding="utf-8")):
            assert block.startswith("$ "), (page.name, block)


def test_there_are_commands() -> None:
    assert ROOT / "README.md" in WITH_COMMANDS and sum(len(commands(page)) for page in WITH_COMMANDS) > 50


def test_a_wrong_option_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert outcome(["--rate", "20", "--duratoin", "5"], to_run=False) == 2
    with pytest.raises(click.UsageError):
        outcome(["search", "--mim", "5"], to_run=False)
