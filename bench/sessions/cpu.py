"""CPU per token of graphs with forks and joins over that of conversations with as many turns. Target: at most 1.05.

PYTHONPATH=src python bench/sessions/cpu.py [--rounds 4]
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(BENCH))

from pair import alternate, arguments, finish, median, ours, paired_ratio, server  # noqa: E402

RATIO = 1.05


def cpu(rounds: int) -> tuple[dict[str, Any], bool]:
    """500 sessions of 4 calls of 100 tokens at once: a fork and a join in each, against as many turns."""
    with tempfile.TemporaryDirectory(prefix="fastllmload-bench-") as parent:
        trace = Path(parent) / "trace.jsonl"
        lines = []
        for session in range(500):
            for number, waits in enumerate(([], [0], [0], [1, 2])):
                line: dict[str, Any] = {"request_id": f"{session}.{number}", "session_id": f"{session}.{number % 3}"}
                line |= {"wait_for": [f"{session}.{one}" for one in waits]} if waits else {"timestamp": 0}
                blocks = [10 * session, *range(10 * session + 1, 10 * session + 1 + number)]
                lines.append({**line, "input_length": 16 * len(blocks), "output_length": 100, "hash_ids": blocks})
        trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
        both = ("-c", "250", "-n", "500")
        with server(itl_ms=20.0, ttft_ms=40.0, phase="spread") as engine:
            graphs, lines_of_turns = alternate(
                rounds,
                lambda: ours(
                    engine.url, *both, "--workload", "agentic-mooncake", "--dataset-path", str(trace), isl=None
                ),
                lambda: ours(engine.url, *both, "--turns", "4", "--history", "planned", "--osl", "100"),
            )
        ratio = paired_ratio(graphs, lines_of_turns, "us_per_token")
        figures = {"graphs_us": median(graphs, "us_per_token"), "turns_us": median(lines_of_turns, "us_per_token")}
        return {**figures, "ratio": ratio}, ratio <= RATIO


def main() -> None:
    asked = arguments(__doc__, rounds=4)
    figures, met = cpu(asked.rounds)
    finish("sessions/cpu", figures, met)


if __name__ == "__main__":
    main()
