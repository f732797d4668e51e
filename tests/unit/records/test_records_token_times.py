"""All tokens of a chunk have its time; the source of the number of tokens of a chunk is named."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_run import KIND, ORIGIN_NS, Request, Shape, draw_requests, duration_phase, write_manifest, write_workers

from fastllmload.export.rows import record_blocks
from fastllmload.metrics.tokens.counts import UNKNOWN, count_tokens, tokens_of_chunks
from fastllmload.metrics.tokens.timeline import on_timeline, timeline
from fastllmload.metrics.tokens.times import TIMES_SOURCES, TokenTimes, token_times
from fastllmload.records import generated_text as text_records
from fastllmload.records import layout
from fastllmload.records.generated_text import paired
from fastllmload.records.run import Run, load
from fastllmload.workload.tokenizers.tokenizer import load_tokenizer

pytestmark = pytest.mark.slow


def times_of(run: Run) -> TokenTimes:
    return token_times(run, np.ones(len(run.rows), bool), count_tokens(run))


def folder(path: Path, requests: list[Request], text: bool = False) -> Run:
    write_workers(path, requests, text=text)
    write_manifest(path, phases=[duration_phase(ORIGIN_NS, 5.0)])
    return load(path)


def request(number: int, chunks: list[tuple[str, str, int]], usage: int = -1) -> Request:
    """One ok request whose chunks are (kind, text, stated tokens), 10 ms apart."""
    start = ORIGIN_NS + number * 10**9
    times = [start + (k + 1) * 10_000_000 for k in range(len(chunks))]
    content = [t for t, (kind, _, _) in zip(times, chunks, strict=True) if kind == "content"]
    text = [(t, json.dumps(words)[1:-1].encode()) for t, (kind, words, _) in zip(times, chunks, strict=True)
            if words and kind != "reasoning"]  # fmt: skip
    fields = {
        "request": number, "phase": layout.MEASURE, "status": layout.OK, "t_sched": start, "t_dispatch": start,
        "t_submit": start, "t_headers": start + 1, "t_any": times[0], "t_first": content[0], "t_last": times[-1],
        "t_end": times[-1] + 1, "completion_tokens": usage, "prompt_tokens": -1, "reasoning_tokens": -1,
        "cached_tokens": -1, "content_events": len(content), "text_bytes": sum(len(words) for _, words in text),
    }  # fmt: skip
    return Request(fields, [(t, KIND[kind], 1, said) for t, (kind, _, said) in zip(times, chunks, strict=True)], text)


def test_each_source_of_chunk_sizes(tmp_path: Path) -> None:
    """Stated by the server; as many chunks as tokens; counted in the text; unknown, so one token per chunk."""
    said = request(0, [("content", "", 3), ("content", "", 1)])
    single = request(1, [("content", "", 0), ("content", "", 0)], usage=2)
    counted = request(2, [("content", "Hello there", 0), ("content", ", how are you", 0), ("content", "?", 0)])
    unknown = request(3, [("content", "", 0), ("content", "", 0)], usage=5)
    run = folder(tmp_path, [said, single, counted, unknown], text=True)
    times = times_of(run)
    assert [TIMES_SOURCES[source] for source in times.source] == ["server", "single", "text", "chunk"]
    assert times.count.tolist() == [4, 2, 7, 2] and times.single.tolist() == [1, 2, 1, 2]
    chunk = times.chunks.t_ns
    assert times.t_ns.tolist() == np.repeat(chunk, [3, 1, 1, 1, 2, 4, 1, 1, 1]).tolist()


def test_text_that_does_not_match_the_events_leaves_the_sizes_unknown(tmp_path: Path) -> None:
    """A tool call may come without text: then texts cannot be matched to events."""
    run = folder(tmp_path, [request(0, [("content", "Hello there my friend", 0), ("tool", "", 0)])], text=True)
    assert [TIMES_SOURCES[source] for source in times_of(run).source] == ["chunk"]


def test_a_chunk_that_completes_no_token_has_no_token_time(tmp_path: Path) -> None:
    """Three tokens in two of the three chunks, as stated by the server: one gap of 20 ms; the middle chunk has none."""
    run = folder(tmp_path, [request(0, [("content", "", 1), ("content", "", layout.TOKENS_NONE), ("content", "", 2)])])
    times = times_of(run)
    assert [TIMES_SOURCES[source] for source in times.source] == ["server"]
    assert times.after(run.rows["t_submit"]).tolist() == [10_000_000, 30_000_000, 30_000_000]
    assert (times.single.tolist(), times.bearing.tolist()) == ([1], [2])
    assert next(record_blocks(run))[0]["token_counts"] == [1, 0, 2]


def test_text_belongs_to_the_events_that_have_some(tmp_path: Path) -> None:
    """A token without text lies between two texts: its chunk gets no token of the text, and the others keep theirs."""
    lines = request(0, [("content", "Hello there", 0), ("content", "", 1), ("content", ", how are you", 0)])
    t, kind, stamp, said = lines.events[1]
    lines.events[1] = t, kind, stamp | layout.STAMP_WITHOUT_TEXT, said
    times = times_of(folder(tmp_path, [lines], text=True))
    assert [TIMES_SOURCES[source] for source in times.source] == ["text"]
    assert times.sizes is not None and times.sizes.tolist() == [2, 0, 4]


def test_reasoning_tokens_that_only_the_events_report(tmp_path: Path) -> None:
    """Usage counts 9 tokens and names no reasoning; the events say that 4 of them are."""
    chunks = [
        ("reasoning", "a", 1),
        ("reasoning", "b", 3),
        ("whitespace", "\n", 1),
        ("content", "c", 2),
        ("content", "d", 2),
    ]
    thinking = request(0, chunks, usage=9)
    thinking.fields |= {"reasoning_events": 2, "leading_events": 1}
    silent = request(1, [("reasoning", "a", 0), ("content", "c", 2)], usage=9)
    silent.fields |= {"reasoning_events": 1}
    tokens = count_tokens(folder(tmp_path, [thinking, silent]))
    assert (tokens.reasoning.tolist(), tokens.timed.tolist()) == ([4, 0], [4, UNKNOWN])


def test_leading_whitespace_and_reasoning_have_no_token_times(tmp_path: Path) -> None:
    chunks = [("reasoning", "so", 0), ("whitespace", "\n\n", 0), ("content", "One two", 0), ("whitespace", "\n", 0)]
    run = folder(tmp_path, [request(0, chunks)], text=True)
    times = times_of(run)
    assert times.count.tolist() == [3] and times.after(run.rows["t_submit"]).tolist() == [30_000_000] * 2 + [40_000_000]


words = st.sampled_from(
    ["Hello", " world", " 12", "3", "'s", " don", "'t", "\n\n", "  ", " x", "é", " 你好", "\ud83d", "\ude00", "."]
)


@settings(deadline=None)
@given(st.lists(st.lists(words, max_size=4).map("".join), max_size=12), st.sampled_from(["cl100k_base", "qwen3"]))
def test_counting_only_the_tail_is_counting_it_all(pieces: list[str], name: str) -> None:
    """n_k = c_k - c_(k-1), c_k = max(c_(k-1), tokens of the first k pieces), by the definition."""
    tokenizer = load_tokenizer(name)
    found, before = list(tokens_of_chunks(pieces, tokenizer)), 0
    for k, n in enumerate(found):
        now = max(before, tokenizer.count(paired("".join(pieces[: k + 1]))))
        assert n == now - before
        before = now


WITHOUT_CUTS = {
    "chinese": "人工智能是计算机科学的一个分支。它企图了解智能的实质。",
    "thai": "ปัญญาประดิษฐ์คือความฉลาดเทียมที่สร้างขึ้น",
    "one letter": "a",
    "blanks": " ",
    "digits": "3141592653589793",
    "emoji": "😀👩\u200d👧",
    "halves": "\ud83d\ude00x\ude00\ud83d",
    "code": "if(x){y=[1,2,3];\n\t\treturn f(x)+1;}\n",
}


class Weighed:
    """The tokenizer, with the characters that it has read."""

    def __init__(self, name: str) -> None:
        self.tokenizer = load_tokenizer(name)
        self.read = 0

    def __getattr__(self, name: str) -> object:
        def weighed(what: str | list[int]) -> object:
            self.read += len(what)
            return getattr(self.tokenizer, name)(what)

        return weighed


@pytest.mark.parametrize("name", ["cl100k_base", "qwen3"])
@pytest.mark.parametrize("script", WITHOUT_CUTS)
def test_text_without_a_cut_is_counted_in_linear_time(script: str, name: str) -> None:
    """By the definition too, with at most a few hundred characters read for each that came."""
    rng, pieces, text = np.random.default_rng(1), [], WITHOUT_CUTS[script] * (1600 // len(WITHOUT_CUTS[script]))
    while text:
        size = int(rng.choice([1, 1, 2, 3]))
        pieces.append(text[:size])
        text = text[size:]
    tokenizer = Weighed(name)
    found, before = list(tokens_of_chunks(pieces, tokenizer)), 0  # type: ignore[arg-type]
    assert tokenizer.read < 400 * len(pieces)
    for k, n in enumerate(found):
        now = max(before, tokenizer.tokenizer.count(paired("".join(pieces[: k + 1]))))  # type: ignore[union-attr]
        assert n == now - before
        before = now


def test_a_flood_of_chunks_is_not_counted_in_its_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk of such a request counts as one token, and the source states it."""
    monkeypatch.setattr("fastllmload.metrics.tokens.counts.MOST_CHUNKS", 3)
    chunks = [("content", "One two three", 0)] * 4
    run = folder(tmp_path, [request(0, chunks), request(1, chunks[:3])], text=True)
    times = times_of(run)
    assert [TIMES_SOURCES[source] for source in times.source] == ["chunk", "text"]
    assert times.count[0] == 4 < times.count[1]


@pytest.mark.parametrize("seed", range(3))
def test_the_compiled_timeline_is_the_one_of_the_export(tmp_path: Path, seed: int) -> None:
    """Two ways to the same events: a mask over all of them, and one pass over those of chosen rows."""
    run = folder(tmp_path, draw_requests(seed, Shape(requests=80, tokens_per_event=3, say_tokens=True)))
    chosen = np.random.default_rng(seed).random(len(run.rows)) < 0.6
    line = timeline(run, chosen)
    mask = on_timeline(run) & np.repeat(chosen, np.diff(run.first_event))
    assert line.t_ns.tolist() == run.event_t[mask].tolist() and line.tokens.tolist() == run.event_tokens[mask].tolist()
    assert line.events.tolist() == np.bincount(run.events["row"][mask], minlength=len(run.rows))[chosen].tolist()


def test_counts_from_the_text_only(tmp_path: Path) -> None:
    """Three tokens, the middle of the second one, and its end: what the figures are made from is in the export."""
    chunks = [("reasoning", "hm", 0), ("whitespace", "\n", 0), ("content", "One two th", 0), ("content", "ree", 0)]
    run = folder(tmp_path, [request(0, chunks)], text=True)
    record = next(record_blocks(run))[0]
    times = times_of(run)
    assert times.sizes is not None and record["token_counts"] == times.sizes.tolist()
    assert sum(record["token_counts"]) == record["timed_tokens"] == record["output_tokens"] - 1
    assert [len(record[name]) for name in ("untimed_ns", "untimed_counts", "token_ns")] == [2, 2, 2]
    assert record["untimed_ns"] == run.event_t[:2].tolist() and record["untimed_counts"] == [None, None]


@pytest.mark.parametrize("at_once", [1, 3, 1 << 16])
def test_the_text_of_a_request_is_its_pieces_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    """Of requests whose pieces lie among each other's: short ones, long ones, halves of a pair, escapes."""
    monkeypatch.setattr(text_records, "AT_ONCE", at_once)
    said = [["a", " b", '"\\', "\ud83d", "\ude00"], ["x" * 500, "y", "é" * 300], ["", "z"]]
    run = folder(
        tmp_path,
        [request(number, [("content", one, 0) for one in some]) for number, some in enumerate(said)],
        text=True,
    )
    assert dict(text_records.texts(run)) == {row: paired("".join(some)) for row, some in enumerate(said)}
    assert dict(text_records.chunk_texts(run, None, 3)) == {row: [one for one in said[row] if one] for row in (1, 2)}
