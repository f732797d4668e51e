"""Files that a translated command reads: users at a rate, texts at their instants, conversations, traces of lengths."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from refusals import raises_code

from fastllmload.cli.compat.made_files import user_turns
from fastllmload.cli.compat.translate import Translation, translations
from fastllmload.cli.main import main


def translated(*words: str) -> Translation:
    (found,) = translations(words, {})
    return found


def made(found: Translation) -> list[dict[str, Any]]:
    ((path, text),) = found.files.items()
    assert all(command[command.index("--dataset-path") + 1] == path for command in found.commands)
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("users", "turns"), [(15, 20), (6, 4), (3, 2), (1, 5), (8, 3)])
def test_users_send_at_the_rate_from_the_start(users: int, turns: int) -> None:
    """Each slot of 1/rate has at most one turn; a user's turns are users/rate apart; no session has more than its turns."""
    rate, found = 2.0, list[tuple[float, int]]()
    for at, session in user_turns(users, rate, turns, 10**6):
        if at >= 100:
            break
        found.append((at, session))
    slots = [round(at * rate) for at, _ in found]
    assert len(set(slots)) == len(slots) and slots == sorted(slots)
    by_session: dict[int, list[float]] = {}
    for at, session in found:
        by_session.setdefault(session, []).append(at)
    gaps = {round(after - at, 6) for instants in by_session.values() for at, after in pairwise(instants)}
    assert gaps <= {users / rate} and max(map(len, by_session.values())) <= turns
    if turns > users:
        assert len(found) == 200, "as many as the rate says, with users of all ages"


def test_the_ages_of_users_at_the_start() -> None:
    """15 users with 20 turns: a new user at once, then those with 6, 11, 16, 2, ... turns left, as AIPerf's documentation
    lists them.
    """
    left: dict[int, int] = {}
    order = []
    for at, session in user_turns(15, 1.0, 20, 15):
        if at < 15:
            order.append(session)
        left[session] = left.get(session, 0) + 1
    assert [left[session] for session in order] == [20, 6, 11, 16, 2, 7, 12, 17, 3, 8, 13, 18, 4, 9, 14]


USERS = ("aiperf", "profile", "-m", "m", "--streaming", "--user-centric-rate", "2", "--num-users", "4")


def test_users_of_aiperf_are_a_graph() -> None:
    words = (*USERS, "--session-turns-mean", "5", "--shared-system-prompt-length", "100", "--isl", "20", "--osl", "9")
    found = translated(
        *words, "--user-context-prompt-length", "300", "--benchmark-duration", "10", "--concurrency", "7"
    )
    head, *calls = made(found)
    assert head["block_tokens"] == 100 and len(calls) == 20, "2 a second for 10 s"
    firsts = [call for call in calls if "at_s" in call]
    assert {(call["input_tokens"], tuple(call["hash_ids"])) for call in firsts} == {(420, (0,))}
    assert {call["after"][1]["wait_s"] for call in calls if "after" in call} == {2.0}
    (command,) = found.commands
    assert not {"--rate", "--concurrency", "--num-requests", "--turns", "--isl"} & set(command)
    assert command[command.index("--max-concurrency") + 1] == "7" and command[command.index("--duration") + 1] == "10"
    assert len(made(translated(*words, "--request-count", "7"))) == 8
    assert len(made(translated(*USERS, "--session-turns-mean", "5", "--concurrency", "9"))) == 18, (
        "twice the concurrency"
    )


def test_users_who_cannot_be_translated() -> None:
    def changes(*words: str) -> set[str]:
        return {lack.option for lack in translated(*words).lacks if lack.kind == "changes"}

    assert changes(*USERS, "--session-turns-mean", "5", "--session-turns-stddev", "2") == {"--user-centric-rate 2"}
    assert changes(*USERS[:-2]) == {"--user-centric-rate 2"}
    assert changes("aiperf", "profile", "-m", "m", "--num-users", "3") == {"--num-users 3"}
    with raises_code("count-invalid", "--num-users", "'x'"):
        translated(*USERS[:-1], "x")
    with raises_code("plan-too-large"):
        translated(*USERS, "--session-turns-mean", "5", "--benchmark-duration", "1000000")


def test_texts_at_their_instants() -> None:
    """Milliseconds from the first one on; those outside the offsets are left out, and a length of its own counts first."""
    Path("t.jsonl").write_text(
        '{"timestamp": 500, "text_input": "b", "output_length": 5}\n{"timestamp": 100, "text_input": "a"}\n'
        '{"timestamp": 900, "text_input": "c"}\n'
    )
    words = ("aiperf", "profile", "-m", "m", "--input-file", "t.jsonl", "--custom-dataset-type", "mooncake_trace")
    calls = made(translated(*words, "--osl", "7", "--fixed-schedule-end-offset", "600"))
    assert [(call["at_s"], call["messages"][0]["content"], call["output_tokens"]) for call in calls] == [
        (0, "a", 7), (0.4, "b", 5)]  # fmt: skip
    faster = made(translated(*words, "--synthesis-speedup-ratio", "2"))
    assert [call["at_s"] for call in faster] == [0, 0.2, 0.4] and faster[0]["body"] == {"max_tokens": None}
    Path("t.jsonl").write_text('{"timestamp": 1, "text_input": "a", "image": "b"}\n')
    with raises_code("dataset-field-invalid", "t.jsonl"):
        translated(*words)


def test_recorded_bodies_of_evalscope() -> None:
    body = {"model": "a", "messages": [{"role": "user", "content": "x"}], "max_tokens": 7, "top_p": 0.5, "stream": True}
    other = json.dumps({"model": "b", "prompt": "y"})
    rows = [{"body": body, "timestamp": "2024-01-01T00:00:04Z"},
            {"body": other, "timestamp": 1704067200, "completion_tokens": 3}]  # fmt: skip
    Path("w.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("evalscope", "perf", "--dataset", "workload_trace", "--dataset-path", "w.jsonl", "--open-loop")
    first, second = made(translated(*words))
    assert (first["at_s"], first["model"], first["body"]) == (0, "b", {"max_tokens": None})
    assert (second["at_s"], second["output_tokens"], second["body"]) == (4, 7, {"top_p": 0.5})
    arguments = '{"speed": 2.0, "model_mapping": {"a": "c"}, "match_output_length": true}'
    first, second = made(translated(*words, "--dataset-args", arguments))
    assert (first["output_tokens"], first["body"]) == (3, {"ignore_eos": True})
    assert (second["at_s"], second["model"]) == (2, "c")
    with raises_code("value-invalid", "--dataset-args"):
        translated(*words, "--dataset-args", '{"speed": 0}')


def test_conversations_of_evalscope() -> None:
    rows = [[{"role": "user", "content": "a"}, {"role": "assistant", "content": "-"}, {"role": "user", "content": "b"}],
            {"conversation": [{"human": "c", "assistant": "d"}, {"human": "e", "assistant": "f"}]}]  # fmt: skip
    Path("c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("evalscope", "perf", "--model", "m", "--dataset-path", "c.jsonl", "--parallel", "2", "--dataset")
    found = translated(*words, "custom_multi_turn", "--multi-turn", "--max-turns", "3")
    assert made(found) == [{"session": str(n), "prompt": text} for n, text in ((0, "a"), (0, "b"), (1, "c"), (1, "e"))]
    assert found.commands[0][found.commands[0].index("--turns") + 1] == "3"
    Path("c.jsonl").write_text(json.dumps(rows[1]))
    (history,) = made(translated(*words, "share_gpt_en"))
    assert [each["content"] for each in history["messages"]] == ["c", "d", "e"]
    Path("c.jsonl").write_text("[1]\n")
    with raises_code("dataset-field-invalid", "c.jsonl"):
        translated(*words, "custom_multi_turn", "--multi-turn")


def test_questions_of_some_numbers_of_characters() -> None:
    Path("q.jsonl").write_text('{"question": "four"}\n{"question": "eleven char"}\n')
    words = ("evalscope", "perf", "--model", "m", "--dataset", "openqa", "--dataset-path", "q.jsonl")
    assert made(translated(*words, "--min-prompt-length", "5")) == [{"prompt": "eleven char"}]
    assert made(translated(*words, "--max-prompt-length", "4")) == [{"prompt": "four"}]
    assert not translated(*words).files and not translated(*words, "--min-prompt-length", "0").files


def test_payloads_of_genai_perf() -> None:
    """Turns of sessions follow each other's replies; texts have instants."""
    Path("p.jsonl").write_text(
        '{"session_id": "a", "delay": 1000, "input_length": 50, "output_length": 10}\n'
        '{"session_id": "b", "input_length": 20, "output_length": 20}\n'
        '{"session_id": "a", "text": "x", "output_length": 3}\n'
    )
    words = ("genai-perf", "profile", "-m", "m", "--endpoint-type", "chat", "--input-file", "payload:p.jsonl")
    found = translated(*words, "--session-concurrency", "2", "--session-delay-ratio", "0.5")
    first, _, third = made(found)
    assert (first["at_s"], first["input_tokens"]) == (0, 50)
    assert third["after"] == [{"call": "0", "wait_s": 0.5}] and third["messages"] == [{"role": "user", "content": "x"}]
    (command,) = found.commands
    assert [command[command.index(name) + 1] for name in ("--concurrency", "--num-requests")] == ["2", "2"]
    Path("p.jsonl").write_text('{"timestamp": 0, "text": "a"}\n{"timestamp": 250, "text": "b"}\n')
    assert [call["at_s"] for call in made(translated(*words))] == [0, 0.25]


REPLAY = ("guidellm", "run", "--profile", "kind=replay", "--data")


def test_traces_of_guidellm() -> None:
    Path("r.jsonl").write_text('{"ts": 7.5, "in": 20, "output_length": 3}\n{"ts": 7, "in": 10, "output_length": 4}\n')
    columns = "timestamp_column=ts,prompt_tokens_column=in"
    found = translated(*REPLAY, f"kind=trace_synthetic,source.kind=json_file,source.path=r.jsonl,{columns}")
    assert [(call["at_s"], call["input_tokens"], call["output_tokens"]) for call in made(found)] == [
        (0, 10, 4),
        (0.5, 20, 3),
    ]
    (command,) = translated(*REPLAY, "kind=mooncake,path=r.jsonl,time_scale=0.5").commands
    assert command[command.index("--workload") + 1] == "mooncake", "whose instants are milliseconds here, seconds there"
    assert command[command.index("--trace-speed") + 1] == "0.002"
    (command,) = translated(*REPLAY, "kind=weka,path=w.json,max_wait=30", "--data-loader", "samples=2").commands
    assert [command[command.index(name) + 1] for name in ("--workload", "--trace-max-wait", "--num-requests")] == [
        "weka", "30", "2"]  # fmt: skip
    assert "--trace-speed" not in command and "--no-ignore-eos" not in command
    with raises_code("dataset-field-invalid", "r.jsonl"):
        translated(*REPLAY, "kind=trace_synthetic,path=r.jsonl")


def test_the_file_is_written_before_the_command_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compat", "--print", *USERS, "--session-turns-mean", "2", "--benchmark-duration", "3"]) == 0
    (written,) = Path("runs").glob("compat-users-*.jsonl")
    assert f"written    {written}" in capsys.readouterr().out.splitlines()
    assert main(["plan", "-m", "m", "--workload", "graph", "--dataset-path", str(written)]) == 0
