"""Plain one-token requests, closed loop of 128: requests per CPU-second of the client. Target: at least 80,000."""

from pair import alternate, arguments, finish, limit, median, ours, server

TARGET = 80_000


def main() -> None:
    asked = arguments(__doc__, concurrency=128, seconds=4.0, rounds=3)
    load = ("-c", str(asked.concurrency), "-d", f"{asked.seconds}s", "--osl", "1", "--no-stream")
    with server(null=True) as engine:
        a, b = alternate(
            asked.rounds,
            lambda: ours(engine.url, *load),
            lambda: limit("closed", engine.port, concurrency=asked.concurrency, seconds=asked.seconds),
        )
    mine, theirs = median(a, "requests_per_cpu_s"), median(b, "requests_per_cpu_s")
    failures = sum(cost.failures for cost in (*a, *b))
    figures = {
        "ours_per_cpu_s": mine,
        "limit_per_cpu_s": theirs,
        "share_of_limit": mine / theirs,
        "target": TARGET,
    }
    finish("plain_requests", {**vars(asked), **figures, "failures": failures}, mine >= TARGET and failures == 0)


if __name__ == "__main__":
    main()
