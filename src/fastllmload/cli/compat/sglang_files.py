"""Requests that SGLang's client makes, as graphs of calls: names of a trace's blocks at its instants, and groups with a
shared prefix whose lengths are drawn.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from fastllmload.cli.compat.distributions import number
from fastllmload.cli.compat.fetched import one
from fastllmload.cli.compat.foreign_command import ForeignCommand
from fastllmload.cli.compat.made_files import MOST_CALLS, counted, instant, keep, rows_of
from fastllmload.errors import InputError

NAME_TOKENS = 4  # of `id_1234`, in which an id of three or four figures is two tokens
SENTENCE_TOKENS = 13  # around the names
USUAL_ANSWER = 256
MOST_BLOCKS = 128  # of a prefix, whose length is rounded to them


def block_names(reading: ForeignCommand) -> None:
    """A prompt is the names of a record's blocks with a sentence, not the text of the record's length."""
    path, slowdown = one(reading, "path"), number("--mooncake-slowdown-factor", one(reading, "slowdown"))
    rows = [row for row in rows_of(path) if isinstance(row, dict)][: counted("--num-prompts", one(reading, "prompts"))]
    timed = sorted((instant(path, row, "timestamp"), place) for place, row in enumerate(rows))
    keep(reading, "blocks", name_calls(path, rows, timed, slowdown / 1000))


def name_calls(
    path: str, rows: list[dict[str, Any]], timed: list[tuple[float, int]], scale: float
) -> Iterator[dict[str, Any]]:
    yield {"fastllmload_graph": 1, "source": "graph", "block_tokens": NAME_TOKENS, "scope": "file"}
    for at, place in timed:
        names, answer = rows[place].get("hash_ids", []), rows[place].get("output_length", USUAL_ANSWER)
        if not isinstance(names, list) or not isinstance(answer, int):
            raise InputError(
                "dataset-field-invalid",
                f"{path} has a record whose hash_ids are not a list, or whose output_length is not a number",
            )
        yield {
            "id": str(place), "at_s": round((at - timed[0][0]) * scale, 9), "hash_ids": names,
            "input_tokens": NAME_TOKENS * len(names) + SENTENCE_TOKENS, "output_tokens": answer,
        }  # fmt: skip


def shared_prefixes(reading: ForeignCommand) -> None:
    """Each group has as many prompts; its prefix, and each question and answer, has a length from ratio * L to L."""
    ratio = number("--gsp-range-ratio", one(reading, "gsp_ratio"))
    if not 0 <= ratio <= 1:
        raise InputError("number-invalid", f"--gsp-range-ratio {ratio:g} must be 0 to 1")
    groups, each = (
        counted("--gsp-num-groups", one(reading, "groups")),
        counted("--gsp-prompts-per-group", one(reading, "each")),
    )
    if groups * each > MOST_CALLS:
        raise InputError(
            "plan-too-large", f"{groups} groups of {each} prompts are more than {MOST_CALLS}; ask for fewer"
        )
    stream = random.Random(f"{one(reading, 'seed') or '1'}/groups")

    def drawn(name: str, option: str) -> int:
        longest = counted(option, one(reading, name))
        return stream.randint(max(1, int(longest * ratio)), longest)

    block = max(1, counted("--gsp-system-prompt-len", one(reading, "system")) // MOST_BLOCKS)
    systems = [max(1, round(drawn("system", "--gsp-system-prompt-len") / block)) for _ in range(groups)]
    calls = list[dict[str, Any]]()
    for place in range(groups * each):
        group = place // each
        own, answer = drawn("question", "--gsp-question-len"), drawn("answer", "--gsp-output-len")
        blocks = [2 * MOST_BLOCKS * group + number for number in range(systems[group])]
        calls.append({"id": str(place), "at_s": 0, "hash_ids": blocks, "input_tokens": block * len(blocks) + own,
                      "output_tokens": answer})  # fmt: skip
    if "ordered" not in reading.variables:
        stream.shuffle(calls)
    keep(
        reading, "groups", [{"fastllmload_graph": 1, "source": "graph", "block_tokens": block, "scope": "file"}, *calls]
    )


MAKERS = {"block-names": block_names, "shared-prefixes": shared_prefixes}
