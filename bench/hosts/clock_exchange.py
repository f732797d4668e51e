"""CPU that a host's clock costs: the responder's per exchange, at 100 hosts with 8 exchanges per second each, and the fit's.

Run it as ``python bench/hosts/clock_exchange.py [--hosts N] [--seconds S]``. The hosts are threads of one process, each
with a socket of its own. CPU of the responder is the time that it ran, system calls included.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
import time
from pathlib import Path

from fastllmload.engine.hosts.clock.exchange import ClockResponder
from fastllmload.engine.hosts.clock.exchanger import ClockExchanger
from fastllmload.records.host_clock import fit

TARGET_US = 100.0  # 0.8 ms per host and second


def ran_ns(pid: int) -> int:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    key = secrets.token_bytes(32)
    responder = ClockResponder(key, os.environ, "127.0.0.1")
    exchangers = [ClockExchanger(("127.0.0.1", responder.port), key, host) for host in range(options.hosts)]
    for exchanger in exchangers:
        exchanger.start()
    time.sleep(2.0)  # the burst
    before, own = ran_ns(responder.pid), time.process_time_ns()
    done = sum(len(exchanger.exchanges()) for exchanger in exchangers)
    time.sleep(options.seconds)
    after, own_after = ran_ns(responder.pid), time.process_time_ns()
    exchanges = sum(len(exchanger.exchanges()) for exchanger in exchangers) - done
    rows = [exchanger.stop() for exchanger in exchangers]
    resident_kib = Path(f"/proc/{responder.pid}/status").read_text().partition("VmRSS:")[2].split()[0]
    counts = responder.stop()
    begin = time.process_time()
    found = [fit(each) for each in rows]
    fitted_s = time.process_time() - begin
    bounds = sorted(int(clock.bound_ns(each[:, 0]).mean()) for clock, each in zip(found, rows, strict=True))
    figures = {
        "exchanges_per_s": round(exchanges / options.seconds, 1),
        "responder_us_per_exchange": round((after - before) / exchanges / 1e3, 2),
        "responder_us_per_host_and_s": round((after - before) / options.hosts / options.seconds / 1e3, 1),
        "responder_rss_mib": round(int(resident_kib) / 1024, 1),
        "host_us_per_exchange": round((own_after - own) / exchanges / 1e3, 2),
        "fit_us_per_exchange": round(fitted_s / sum(map(len, rows)) * 1e6, 2),
        "median_bound_us": round(bounds[len(bounds) // 2] / 1e3, 1),
        "replayed": counts.replayed,
    }
    print(json.dumps(figures))
    return 0 if figures["responder_us_per_exchange"] <= TARGET_US else 1


if __name__ == "__main__":
    sys.exit(main())
