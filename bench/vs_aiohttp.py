"""CPU per token, ours against a plain aiohttp client that parses with json and stamps in Python. Target: at most 1/5."""

from pair import aiohttp, alternate, arguments, finish, median, ours, paired_ratio, server

TARGET = 0.2


def main() -> None:
    asked = arguments(__doc__, streams=2_000, tokens=200, itl_ms=20.0, rounds=3)
    with server(itl_ms=asked.itl_ms, ttft_ms=2 * asked.itl_ms, phase="spread") as engine:
        a, b = alternate(
            asked.rounds,
            lambda: ours(
                engine.url, "-c", str(asked.streams), "-n", str(asked.streams), "--osl", str(asked.tokens)
            ),
            lambda: aiohttp(engine.port, asked.streams, asked.tokens),
        )
    ratio = paired_ratio(a, b, "us_per_token")
    failures = sum(cost.failures for cost in (*a, *b))
    figures = {"ours_us": median(a, "us_per_token"), "aiohttp_us": median(b, "us_per_token"), "ratio": ratio}
    finish(
        "vs_aiohttp",
        {**vars(asked), **figures, "target": TARGET, "failures": failures},
        ratio <= TARGET and not failures,
    )


if __name__ == "__main__":
    main()
