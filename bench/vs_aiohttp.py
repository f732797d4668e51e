"""CPU per token, ours against a plain aiohttp client that parses with json and stamps in Python. Target: at most 1/5.

Both at the same load; then aiohttp at the most streams that it holds on one core (--held), because beyond that it reads
late, gets several events a read, and each costs it less. The bare C client runs next to them: its ratio is what any
client could reach at that load.
"""

import importlib.util
import sys

from pair import aiohttp, alternate, arguments, finish, limit, median, ours, paired_ratio, server, show

TARGET = 0.2


def main() -> None:
    if importlib.util.find_spec("aiohttp") is None:
        raise SystemExit(
            f"vs_aiohttp compares with aiohttp, which is not installed: {sys.executable} -m pip install aiohttp"
        )
    asked = arguments(__doc__, streams=2_000, held=600, tokens=200, itl_ms=20.0, rounds=3)
    with server(itl_ms=asked.itl_ms, ttft_ms=2 * asked.itl_ms, phase="spread") as engine:
        a, b = alternate(
            asked.rounds,
            lambda: ours(engine.url, "-c", str(asked.streams), "-n", str(asked.streams), "--osl", str(asked.tokens)),
            lambda: aiohttp(engine.port, asked.streams, asked.tokens),
        )
        bare = limit("streams", engine.port, streams=asked.streams, tokens=asked.tokens)
        held = aiohttp(engine.port, asked.held, asked.tokens)
    show(bare)
    show(held)
    ratio = paired_ratio(a, b, "us_per_token")
    failures = sum(cost.failures for cost in (*a, *b, bare, held))
    figures = {
        "ours_us": median(a, "us_per_token"),
        "aiohttp_us": median(b, "us_per_token"),
        "ratio": ratio,
        "limit_ratio": bare.us_per_token / median(b, "us_per_token"),
        "aiohttp_tokens_per_s": median(b, "tokens") / median(b, "wall_s"),
        "aiohttp_held_us": held.us_per_token,
        "ratio_to_held": median(a, "us_per_token") / held.us_per_token,
    }
    finish(
        "vs_aiohttp",
        {**vars(asked), **figures, "target": TARGET, "failures": failures},
        ratio <= TARGET and not failures,
    )


if __name__ == "__main__":
    main()
