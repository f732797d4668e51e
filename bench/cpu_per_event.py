"""CPU per token, ours against the bare C client: 2,000 streams at 50 tokens/s, every event its own segment.

Target: at most 1.05 x. With --coalesce 16 (16 events a write, parsing dominates): at most 2.5 x. --timestamps tap adds the
kernel's work for the packet ring, which falls on the process that sends or receives: at most 1.15 x. --usage on
has 75 bytes of usage in each of our events. --tls on: both through OpenSSL, handshakes included; at most 1.25 x, with
--streams 500 --tokens 1000.
"""

from pair import alternate, arguments, finish, limit, median, ours, paired_ratio, server

TARGETS = {"tap": 1.15}


def main() -> None:
    asked = arguments(
        __doc__,
        streams=2_000,
        tokens=208,
        itl_ms=20.0,
        coalesce=1,
        rounds=6,
        timestamps="kernel",
        usage="off",
        tls="off",
    )
    words = (
        "-c",
        str(asked.streams),
        "-n",
        str(asked.streams),
        "--osl",
        str(asked.tokens),
        "--timestamps",
        asked.timestamps,
    )
    secured = asked.tls == "on"
    target = 2.5 if asked.coalesce > 1 else 1.25 if secured else TARGETS.get(asked.timestamps, 1.05)
    trust, tls = (["--insecure"], {"tls": 1}) if secured else ([], {})
    options = {
        "itl_ms": asked.itl_ms,
        "ttft_ms": 2 * asked.itl_ms,
        "phase": "spread",
        "coalesce": asked.coalesce,
    }
    with server(tls=secured, **options) as engine:
        a, b = alternate(
            asked.rounds,
            lambda: ours(engine.url, *words, *trust, usage=asked.usage),
            lambda: limit("streams", engine.port, streams=asked.streams, tokens=asked.tokens, **tls),
        )
    ratio = paired_ratio(a, b, "us_per_token")
    failures = sum(cost.failures for cost in (*a, *b))
    figures = {"ours_us": median(a, "us_per_token"), "limit_us": median(b, "us_per_token"), "ratio": ratio}
    finish(
        "cpu_per_event",
        {
            **vars(asked),
            **figures,
            "target": target,
            "failures": failures,
            "gc_runs": max(c.more["gc_runs"] for c in a),
        },
        ratio <= target and failures == 0,
    )


if __name__ == "__main__":
    main()
