"""Files that a translated command reads: what other tools generate or read otherwise, in formats of ours.

Users of AIPerf (`--user-centric-rate`) and of inference-perf (`enable_multi_turn_chat`) are a graph of calls, and so are
texts that have instants of their own; conversations of evalscope are lines of `--workload custom`.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import json
import math
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fastllmload.cli.compat.distributions import number
from fastllmload.cli.compat.fetched import one
from fastllmload.cli.compat.foreign_command import ForeignCommand
from fastllmload.errors import InputError
from fastllmload.workload.hugging_face import local_file

MOST_CALLS = 1_000_000  # of a file that is made here
ISO = re.compile(r"\d{4}-\d\d-\d\d")
USUAL_ANSWER = 1024  # tokens, of answers whose length the model decides


@dataclass(frozen=True)
class TurnLengths:
    """Tokens of what a session begins with, *shared* with those of its group and *alone*; of each turn, with spread."""

    shared: int
    alone: int
    turn: tuple[float, float]
    answer: tuple[float, float]


def user_calls(reading: ForeignCommand) -> None:
    """AIPerf's users at a rate: each sends a turn every users/rate seconds, and some have begun before the run."""
    users, rate = (
        counted("--num-users", one(reading, "users")),
        number("--user-centric-rate", one(reading, "user_rate")),
    )
    turns = round(number("--session-turns-mean", one(reading, "turns") or "1"))
    if rate == 0 or turns < 1:
        raise InputError("number-invalid", f"--user-centric-rate {rate:g} with {turns} turns sends nothing; give more")
    seconds = number("--benchmark-duration", one(reading, "seconds") or "inf", finite=False)
    bounded = any(name in reading.variables for name in ("seconds", "count", "sessions"))
    usual = MOST_CALLS + 1 if bounded else max(10, 2 * int(one(reading, "slots") or "1"))
    most = counted("--request-count", one(reading, "count") or str(usual))
    sessions = counted("--num-sessions", one(reading, "sessions") or str(MOST_CALLS))
    found: dict[int, list[float]] = {}
    for at, session in itertools.islice(user_turns(users, rate, turns, sessions), most):
        if at >= seconds:
            break
        found.setdefault(session, []).append(at)
    answer = one(reading, "asked_output") or one(reading, "output") or str(USUAL_ANSWER)
    texts = [one(reading, "input"), one(reading, "input_spread"), answer, one(reading, "output_spread")]
    isl, isl_spread, osl, osl_spread = (number("--isl or --osl", text) for text in texts)
    begins = [int(number("--shared-system-prompt-length", one(reading, name) or "0")) for name in ("system", "context")]
    lengths = TurnLengths(begins[0], begins[1], (isl, isl_spread), (osl, osl_spread))
    keep(reading, "users", graph_lines([(0, instants) for instants in found.values()], lengths, one(reading, "seed")))


def user_turns(users: int, rate: float, turns: int, sessions: int) -> Iterator[tuple[float, int]]:
    """Instant and session of each turn, by time: as if users had come one after the other before the run, so that some have
    only some of their turns left; each is followed by another one. *sessions* limits their number.
    """
    gap, gaps = users / rate, max(1, turns - 1)
    step = next((each for each in range(2, users) if math.gcd(each, users) == 1), 1)
    numbers = itertools.count(1)
    due = [(0.0, 0, turns)]
    for user in range(users):
        age = (users - user) * gaps
        left = gaps - age // users
        if left > 0:
            slot = (user * step if math.gcd(users, gaps) > 1 else age) % users
            due.append(((users - slot) / rate, next(numbers), left))
    heapq.heapify(due)
    while due:
        at, session, left = heapq.heappop(due)
        yield at, session
        if left == 1:
            session, left = next(numbers), turns + 1
        if session < sessions:
            heapq.heappush(due, (at + gap, session, left - 1))


def chat_calls(reading: ForeignCommand) -> None:
    """inference-perf's users who take turns at a rate, over all stages; each user's chat grows."""
    groups = counted("--data.shared_prefix.num_groups", one(reading, "groups"))
    users = groups * counted("--data.shared_prefix.num_prompts_per_group", one(reading, "users_each"))
    stream, instants, begin = random.Random("chat"), list[float](), 0.0
    rates, lasting = reading.variables["stage_rate"], reading.variables["stage_duration"]
    for rate, seconds in zip(rates, lasting, strict=True):
        per_second, length = number("--load.stages rate", rate), number("--load.stages duration", seconds)
        at = begin
        while at < begin + length and len(instants) <= MOST_CALLS:
            instants.append(at)
            at += stream.expovariate(per_second) if one(reading, "load") == "poisson" else 1 / per_second
        begin += length + number("--load.interval", one(reading, "interval"))
    tokens = [one(reading, f"{name}_length") for name in ("system", "question", "answer")]
    if not all(each.isdecimal() for each in tokens):
        reading.lack("--data.shared_prefix.enable_multi_turn_chat", {"changes": "turns of a chat have one length here"})
        return
    system, question, answer = map(int, tokens)
    sessions = [(user % groups, instants[user::users]) for user in range(min(users, len(instants)))]
    lines = graph_lines(sessions, TurnLengths(system, 0, (question, 0), (answer, 0)), "0")
    keep(reading, "chats", lines)
    first = {name: values[:1] for name, values in reading.variables.items() if name.startswith("stage_")}
    reading.variables |= first  # the file has all stages, so there is one run


def graph_lines(
    sessions: Sequence[tuple[int, list[float]]], lengths: TurnLengths, seed: str
) -> Iterator[dict[str, Any]]:
    """Calls of *sessions* (their group and the instants of their turns): a turn is due as long after the turn before it was
    due, and not before the reply to that.
    """
    if sum(len(instants) for _, instants in sessions) > MOST_CALLS:
        raise InputError(
            "plan-too-large", f"more than {MOST_CALLS} turns are too many for a file; ask for a shorter run"
        )
    stream = random.Random(f"{seed}/lengths")
    if lengths.shared:
        yield {"fastllmload_graph": 1, "source": "graph", "block_tokens": lengths.shared, "scope": "file"}
    for place, (group, instants) in enumerate(sessions):
        for turn, at in enumerate(instants):
            own, answer = drawn(stream, lengths.turn), drawn(stream, lengths.answer)
            call = {"id": f"{place}-{turn}", "session": str(place), "output_tokens": answer}
            if turn == 0:
                first = lengths.shared + lengths.alone + own
                shared = {"hash_ids": [group]} if lengths.shared else {}
                yield {**call, "at_s": round(at, 9), "input_tokens": first, **shared}
            else:
                before = f"{place}-{turn - 1}"
                since = {"call": before, "wait_s": round(at - instants[turn - 1], 9), "from": "start"}
                yield {**call, "after": [before, since], "context": before, "input_tokens": own}


def drawn(stream: random.Random, length: tuple[float, float]) -> int:
    mean, spread = length
    return max(1, int(stream.gauss(mean, spread))) if spread else int(mean)


def conversations(reading: ForeignCommand) -> None:
    """evalscope's conversations, of messages or of questions with answers: the questions, for `--workload custom`."""
    path = one(reading, "path")
    keep(reading, "conversations", conversation_lines(path, list(rows_of(path))))


def conversation_lines(path: str, rows: Sequence[Any]) -> Iterator[dict[str, Any]]:
    for place, row in enumerate(rows):
        found = row.get("conversation", row.get("messages")) if isinstance(row, dict) else row
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            raise InputError(
                "dataset-field-invalid", f"{path} line {place + 1} is not a conversation: a list of messages"
            )
        asked = [each.get("human", each.get("content") if each.get("role") == "user" else None) for each in found]
        yield from ({"session": str(place), "prompt": text} for text in asked if text is not None)


def histories(reading: ForeignCommand) -> None:
    """evalscope's conversations, each as one request: all messages up to the last question."""
    path = one(reading, "path")
    keep(reading, "histories", history_lines(path, list(rows_of(path))))


def history_lines(path: str, rows: Sequence[Any]) -> Iterator[dict[str, Any]]:
    for place, row in enumerate(rows):
        found = row.get("conversation") if isinstance(row, dict) else None
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            raise InputError(
                "dataset-field-invalid", f"{path} line {place + 1} has no conversation: a list of questions"
            )
        messages = [
            {"role": role, "content": text.strip()}
            for each in found for role, text in (("user", each.get("human", "")), ("assistant", each.get("assistant", "")))
            if text.strip()
        ]  # fmt: skip
        while messages and messages[-1]["role"] == "assistant":
            messages.pop()
        if messages:
            yield {"messages": messages}


def payload(reading: ForeignCommand) -> None:
    """GenAI-Perf's turns of sessions: each is sent some milliseconds after the reply to the one before it."""
    path, ratio = one(reading, "file"), number("--session-delay-ratio", one(reading, "delay_ratio"))
    isl, osl = one(reading, "input"), one(reading, "asked_output") or one(reading, "output") or str(USUAL_ANSWER)
    calls, latest = list[dict[str, Any]](), dict[str, tuple[str, float]]()
    for place, row in enumerate(rows_of(path)):
        if not isinstance(row, dict) or "session_id" not in row:
            raise InputError("dataset-field-invalid", f"{path} has a line without session_id; add it")
        session, own = str(row["session_id"]), int(row.get("input_length") or isl)
        call = {"id": str(place), "session": session, "output_tokens": int(row.get("output_length") or osl)}
        text = row.get("text")
        said = {"messages": [{"role": "user", "content": text}]} if text is not None else {"input_tokens": own}
        if session in latest:
            before, wait = latest[session]
            call |= {"after": [{"call": before, "wait_s": round(wait, 9)}], "context": before}
        else:
            call["at_s"] = 0
        calls.append(call | said)
        latest[session] = str(place), float(row.get("delay") or 0) * ratio / 1000
    reading.variables["file_sessions"] = [str(len(latest))]
    keep(reading, "payload", calls)


def sessions(reading: ForeignCommand) -> None:
    """How many of AIPerf's conversations, again and again from the first, have as many turns as requests are asked for."""
    path, asked = one(reading, "file"), counted("--request-count", one(reading, "count"))
    rows = [row for row in rows_of(path) if isinstance(row, dict) and isinstance(row.get("turns"), list)]
    turns = [sum(turn.get("role") != "system" for turn in row["turns"]) for row in rows]
    if sum(turns) > 0:
        sent = itertools.accumulate(itertools.cycle(turns))
        reading.variables["file_sessions"] = [str(next(place for place, many in enumerate(sent, 1) if many >= asked))]


def timed_bodies(reading: ForeignCommand) -> None:
    """evalscope's recorded bodies at their instants, in seconds."""
    path = one(reading, "path")
    rows = sorted((row for row in rows_of(path)), key=lambda row: instant(path, row, "timestamp"))
    if count := one(reading, "number_given"):
        rows = rows[: counted("--number", count)]
    first = instant(path, rows[0], "timestamp") if rows else 0.0
    arguments = json.loads(one(reading, "dataset_args") or "{}")
    speed = number("--dataset-args speed", str(arguments.get("speed", 1)))
    if speed == 0 or arguments.keys() - {"speed", "model_override", "model_mapping", "match_output_length"}:
        raise InputError(
            "value-invalid", f"--dataset-args {json.dumps(arguments)} are not those of a trace of requests"
        )
    keep(reading, "requests", (body_call(path, place, row, (instant(path, row, "timestamp") - first) / speed, arguments)
                              for place, row in enumerate(rows)))  # fmt: skip


def body_call(path: str, place: int, row: dict[str, Any], at: float, arguments: Mapping[str, Any]) -> dict[str, Any]:
    found = row.get("body")
    body = json.loads(found) if isinstance(found, str) else dict(found or {})
    if arguments.get("match_output_length") and row.get("completion_tokens"):
        body |= {"max_tokens": row["completion_tokens"], "ignore_eos": True}
    if row.get("headers"):
        raise InputError(
            "dataset-field-invalid", f"{path} has headers of single requests, which are not sent; remove them"
        )
    if "model" in body:
        body["model"] = arguments.get("model_mapping", {}).get(
            body["model"], arguments.get("model_override") or body["model"]
        )
    messages = body.pop("messages", None) or [{"role": "user", "content": body.pop("prompt", None)}]
    longest = [body.pop(name) for name in ("max_tokens", "max_completion_tokens") if name in body]
    call = {
        "id": f"{place}",
        "at_s": round(at, 9),
        "messages": messages,
        "output_tokens": (longest or [USUAL_ANSWER])[0],
    }
    model = body.pop("model", None)
    body = {name: value for name, value in body.items() if name not in ("stream", "stream_options")}
    if not longest:
        body["max_tokens"] = None
    return call | ({"model": model} if model else {}) | ({"body": body} if body else {})


def timed_texts(reading: ForeignCommand) -> None:
    """AIPerf's texts at their timestamps, in milliseconds."""
    path, answer = one(reading, "file"), one(reading, "asked_output") or one(reading, "output")
    rows = [row for row in rows_of(path) if isinstance(row, dict)]
    scale = 1000 * number("--synthesis-speedup-ratio", one(reading, "speed") or "1")
    low, high = (number("--fixed-schedule offset", one(reading, name) or usual, finite=False)
                 for name, usual in (("offset", "0"), ("offset_end", "inf")))  # fmt: skip
    timed = sorted(
        (at, place) for place, row in enumerate(rows) if low <= (at := instant(path, row, "timestamp")) <= high
    )
    if count := one(reading, "count"):
        timed = timed[: counted("--request-count", count)]
    calls = []
    for at, place in timed:
        row = rows[place]
        text = row.get("text_input", row.get("text"))
        if not isinstance(text, str) or row.keys() - {
            "timestamp",
            "text_input",
            "text",
            "output_length",
            "extra",
            "type",
        }:
            raise InputError(
                "dataset-field-invalid",
                f"{path} has a line of other fields than timestamp, text, output_length and extra; leave them out",
            )
        body = dict(row.get("extra") or {})
        longest = row.get("output_length") or (int(answer) if answer else None)
        if longest is None:
            body["max_tokens"] = None
        call = {"id": str(place), "at_s": round((at - timed[0][0]) / scale, 9), "output_tokens": longest or USUAL_ANSWER,
                "messages": [{"role": "user", "content": text}]}  # fmt: skip
        calls.append(call | ({"body": body} if body else {}))
    keep(reading, "texts", calls)


def trace_rows(reading: ForeignCommand) -> None:
    """GuideLLM's traces of instants in seconds and lengths alone."""
    path = one(reading, "data")
    names = {part: one(reading, f"data_{part}_column") or usual
             for part, usual in (("timestamp", "timestamp"), ("prompt_tokens", "input_length"),
                                 ("output_tokens", "output_length"))}  # fmt: skip
    rows = sorted((instant(path, row, names["timestamp"]), place, row) for place, row in enumerate(rows_of(path)))
    if count := one(reading, "data_samples"):
        rows = rows[: counted("--data-samples", count)]
    calls = []
    for at, place, row in rows:
        own, answer = row.get(names["prompt_tokens"]), row.get(names["output_tokens"])
        if not isinstance(own, int) or not isinstance(answer, int):
            raise InputError(
                "dataset-field-invalid", f"{path} has a line without lengths in {names['prompt_tokens']} and "
                f"{names['output_tokens']}; name the columns with prompt_tokens_column and output_tokens_column",
            )  # fmt: skip
        calls.append(
            {"id": str(place), "at_s": round(at - rows[0][0], 9), "input_tokens": own, "output_tokens": answer}
        )
    keep(reading, "trace", calls)


def entries(reading: ForeignCommand) -> None:
    """evalscope's questions of some numbers of characters, which it counts where it has no tokenizer."""
    path, low = one(reading, "path"), number("--min-prompt-length", one(reading, "min_prompt"))
    high, field = number("--max-prompt-length", one(reading, "max_prompt")), FIELDS.get(one(reading, "dataset"))
    text = file_text(path)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if field is not None:
        rows = json_rows(path, text)
        lines = [row[field].strip() for row in rows if isinstance(row, dict) and isinstance(row.get(field), str)]
    keep(reading, "entries", ({"prompt": line} for line in lines if low <= len(line) <= high))


FIELDS = {"openqa": "question", "longalpaca": "instruction"}  # of evalscope's data sets


def json_rows(path: str, text: str) -> list[Any]:
    """The elements of a JSON list, or JSON lines."""
    if text.lstrip().startswith("["):
        try:
            found = json.loads(text)
        except ValueError as problem:
            raise InputError("json-invalid", f"{path} is not JSON: {problem}") from None
        return list(found)
    return list(rows_of(path))


def file_text(path: str) -> str:
    try:
        return local_file(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeError) as problem:
        raise InputError("file-unreadable", f"{path} cannot be read: {problem}") from None


def instant(path: str, row: Any, name: str) -> float:
    try:
        text = str(row[name])
        return float(text) if not ISO.match(text) else datetime.fromisoformat(text).timestamp()
    except (KeyError, TypeError, ValueError):
        raise InputError("dataset-field-invalid", f"{path} has a line without {name}, an instant") from None


def rows_of(path: str) -> Iterator[Any]:
    """Objects of JSON lines. InputError for a file that has none, or others."""
    for place, line in enumerate(file_text(path).splitlines(), 1):
        if line.strip():
            try:
                yield json.loads(line)
            except ValueError as problem:
                raise InputError("json-invalid", f"{path} line {place} is not JSON: {problem}") from None


def counted(option: str, text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise InputError("count-invalid", f"{option} {text!r} is not a number of 1 or more")
    return int(text)


def keep(reading: ForeignCommand, name: str, rows: Iterable[dict[str, Any]]) -> None:
    """Note the file of *rows*, whose name has its digest, and the variable `made` with its path."""
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path = f"runs/compat-{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.jsonl"
    reading.files[path] = text
    reading.variables["made"] = [path]


def bench_requests(reading: ForeignCommand) -> None:
    """The requests of trtllm-bench's file, or the first of them: a text or token ids, and the length of the answer."""
    path, most = one(reading, "data"), one(reading, "most") or "0"
    rows = list(rows_of(path))[: int(most) if most.isdecimal() and int(most) else None]
    lines = []
    for place, row in enumerate(rows, 1):
        ids = row.get("input_ids", row.get("logits")) if isinstance(row, dict) else None
        prompt = ids if ids is not None else row.get("prompt") if isinstance(row, dict) else None
        if prompt is None or "output_tokens" not in row:
            raise InputError(
                "dataset-field-invalid", f"{path} line {place} needs prompt or input_ids, and output_tokens"
            )
        lines.append({"prompt": prompt, "output_tokens": row["output_tokens"]})
    reading.variables["entries"] = [str(len(lines))]
    keep(reading, "requests", lines)


MAKERS = {
    "users": user_calls, "chats": chat_calls, "conversations": conversations, "histories": histories,
    "requests": timed_bodies, "texts": timed_texts, "sessions": sessions, "payload": payload,
    "trace": trace_rows, "entries": entries, "bench-requests": bench_requests,
}  # fmt: skip
