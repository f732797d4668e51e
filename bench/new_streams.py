"""New streamed requests on one client core: open loop, 8,000/s of 16 tokens. Target: all sent, none failed, rate
within 0.5 %.
"""

from typing import Any

from pair import arguments, finish, limit, ours, server, show

from fastllmload.records.run import Run


def figures(run: Run) -> dict[str, Any]:
    certificate = run.document.certificate
    assert certificate is not None and certificate.schedule_lag_us is not None
    lag = certificate.schedule_lag_us
    return {
        "offered_rate": certificate.offered_rate, "planned_rate": certificate.planned_rate,
        "rate_error": certificate.rate_error,
        "lag_p50_us": lag.p50, "lag_p99_us": lag.p99, "lag_max_us": lag.max,
    }  # fmt: skip


def main() -> None:
    asked = arguments(__doc__, rate=8_000.0, seconds=10.0, tokens=16, itl_ms=2.0, null=0)
    options = {"null": True} if asked.null else {"itl_ms": asked.itl_ms, "ttft_ms": asked.itl_ms, "phase": "spread"}
    with server(**options) as engine:
        mine = ours(
            engine.url,
            "-r",
            str(asked.rate),
            "-d",
            f"{asked.seconds}s",
            "--osl",
            str(asked.tokens),
            keep=figures,
        )
        show(mine)
        bare = limit("open", engine.port, rate=asked.rate, seconds=asked.seconds, tokens=asked.tokens, streams=512)
        show(bare)
    found = {"cpu_share": mine.cpu_s / mine.wall_s, "limit_cpu_share": bare.cpu_s / bare.wall_s, **mine.more}
    met = mine.failures == 0 and mine.more["rate_error"] <= 0.005
    finish("new_streams", {**vars(asked), "requests": mine.requests, "failures": mine.failures, **found}, met)


if __name__ == "__main__":
    main()
