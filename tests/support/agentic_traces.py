"""Random traces of agentic sessions in Dynamo's Agentic Mooncake format, and what must be true of their replay."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BLOCK = 64


@dataclass(frozen=True)
class Row:
    """One call, as written; *waits*: numbers of the rows that it waits for, *wait_ms* after the last of them has ended."""

    waits: tuple[int, ...]
    wait_ms: float
    input: int
    output: int
    blocks: tuple[int, ...]


def write_trace(
    path: Path, sessions: int, seed: int = 1, *, most: int = 8, gap_ms: float = 20.0, output: int = 4
) -> list[Row]:
    """Sessions with tools, sub-agents and joins: an agent's prompts grow, and those of a session share their first block."""
    stream, rows, lines, block = random.Random(seed), [], [], 0
    for session in range(sessions):
        first = len(rows)
        shared, block = block, block + 1
        agents: list[tuple[str, list[int], int]] = []  # name, blocks, latest row
        for number in range(stream.randint(1, most)):
            begin = number == 0 or (len(agents) < 4 and stream.random() < 0.3)
            agent = len(agents) if begin else stream.randrange(len(agents))
            if begin:
                agents.append((f"{session}.{agent}", [shared], -1))
            name, blocks, latest = agents[agent]
            new = stream.randint(1, 3)
            blocks = [*blocks, *range(block, block + new)]
            block += new
            waits = set() if number == 0 else {latest} if latest >= 0 else {stream.randrange(first, first + number)}
            if number and stream.random() < 0.4:
                waits.add(stream.randrange(first, first + number))
            tool = stream.choice([0.0, 0.0, 2.0, 15.0])
            row = Row(tuple(sorted(waits)), tool, BLOCK * len(blocks), output, tuple(blocks))
            line: dict[str, Any] = {"request_id": f"r{len(rows)}", "session_id": name}
            line |= {"timestamp": session * gap_ms} if not waits else {"wait_for": [f"r{one}" for one in row.waits]}
            line |= {"tool_wait_ms": tool} if tool else {}
            lines.append({**line, "input_length": row.input, "output_length": output, "hash_ids": list(blocks)})
            agents[agent] = (name, blocks, len(rows))
            rows.append(row)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return rows


def growing(path: Path, sessions: int, seed: int) -> None:
    """Sessions of one agent: 2 to 12 calls of 20 ms, 80 ms apart, each prompt a block longer than the one before it."""
    stream, lines = random.Random(seed), []
    for session in range(sessions):
        for turn in range(stream.randint(2, 12)):
            row = {
                "id": f"{session}.{turn}", "session": str(session), "input_tokens": BLOCK * (turn + 2), "output_tokens": 3,
                "hash_ids": [0, *(1000 * (session + 1) + one for one in range(turn + 1))],
                "start_s": session + turn * 0.1, "end_s": session + turn * 0.1 + 0.02, "wait_s": 0.08 if turn else 0,
                **({"after": [f"{session}.{turn - 1}"]} if turn else {}),
            }  # fmt: skip
            lines.append(json.dumps(row))
    path.write_text(json.dumps({"fastllmload_graph": 1, "block_tokens": BLOCK}) + "\n" + "\n".join(lines) + "\n")
