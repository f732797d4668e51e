"""`doctor`: checks whether this host can run a benchmark, and says what to change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from fastllmload.engine.recording import tap
from fastllmload.host import limits, probe

GOOD, WARN, BAD, UNKNOWN = "ok", "warn", "bad", "unknown"
# Read without a system call
FAST_CLOCKS = ("tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter")
ENOUGH_FILES, ENOUGH_PORTS, ENOUGH_BACKLOG = 4_096, 20_000, 1_024
ENOUGH_MEMORY, ENOUGH_DISK, ENOUGH_SPEED = 1 << 30, 2 << 30, 50e6
LATE_US, VERY_LATE_US = 500.0, 5_000.0


@dataclass(frozen=True)
class HostFinding:
    """Result of one check. *fix* says what to change; empty when nothing needs to be changed."""

    name: str
    verdict: str
    text: str
    fix: str = ""


def examine(runs: Path) -> list[HostFinding]:
    """Run all checks, quick ones first; takes about a second. *runs* is the folder that runs are written to."""
    checks: tuple[Callable[[], HostFinding], ...] = (
        open_files,
        ports,
        backlog,
        congestion_control,
        ip_versions,
        clock_source,
        governor,
        cores,
        steal,
        memory,
        kernel_stamps,
        packet_ring,
        modules,
        compiled,
        lambda: disk(runs),
        timers,
    )
    return [check() for check in checks]


def print_findings(findings: list[HostFinding], stream: TextIO) -> int:
    """Print a line per finding with its fix below; returns 1 when something is bad, else 0."""
    for finding in findings:
        stream.write(f"{finding.verdict:<8} {finding.name:<20} {finding.text}\n")
        if finding.fix != "":
            stream.write(f"{'':<8} {'':<20} -> {finding.fix}\n")
    bad = sum(finding.verdict == BAD for finding in findings)
    warned = sum(finding.verdict == WARN for finding in findings)
    stream.write(f"{bad} to change, {warned} to consider, of {len(findings)} checks\n")
    return 1 if bad else 0


def open_files() -> HostFinding:
    limit = limits.file_limit()
    hard = "unlimited" if limit.hard is None else f"{limit.hard:,}"
    text = f"soft {limit.soft:,}, hard {hard}; a run raises the soft limit by itself"
    if limit.hard is not None and limit.hard < ENOUGH_FILES:
        return HostFinding(
            "open files", BAD, text, "set 'nofile' to 65536 in /etc/security/limits.conf and log in again"
        )
    return HostFinding("open files", GOOD, text)


def ports() -> HostFinding:
    low, high = limits.port_range()
    free = limits.port_capacity(1)
    text = f"{low} to {high}: {free:,} connections per source address and target"
    if free < ENOUGH_PORTS:
        return HostFinding(
            "local ports", WARN, text, "sysctl net.ipv4.ip_local_port_range='1024 65535', or --source-address"
        )
    return HostFinding("local ports", GOOD, text)


def backlog() -> HostFinding:
    return _at_least(
        "listen backlog",
        "/proc/sys/net/core/somaxconn",
        ENOUGH_BACKLOG,
        f"sysctl net.core.somaxconn={4 * ENOUGH_BACKLOG}: bursts of connections to a local server get lost",
    )


def _at_least(name: str, path: str, least: int, fix: str) -> HostFinding:
    value = probe.setting(path)
    if value is None or not value.isdecimal():
        return HostFinding(name, UNKNOWN, f"{path} cannot be read")
    return HostFinding(name, GOOD, value) if int(value) >= least else HostFinding(name, WARN, value, fix)


def congestion_control() -> HostFinding:
    name = probe.setting("/proc/sys/net/ipv4/tcp_congestion_control")
    if name is None:
        return HostFinding("congestion control", UNKNOWN, "cannot be read")
    if name.startswith("bbr"):
        fix = "sysctl net.ipv4.tcp_congestion_control=cubic: bbr arms a timer for every socket"
        return HostFinding("congestion control", WARN, name, fix)
    return HostFinding("congestion control", GOOD, name)


def ip_versions() -> HostFinding:
    if probe.ipv6():
        return HostFinding("IPv6", GOOD, "available")
    return HostFinding("IPv6", UNKNOWN, "not available; targets need an IPv4 address")


def clock_source() -> HostFinding:
    name = probe.setting("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    if name is None:
        return HostFinding("clock source", UNKNOWN, "cannot be read")
    if name in FAST_CLOCKS:
        return HostFinding("clock source", GOOD, name)
    return HostFinding("clock source", BAD, name, "boot with clocksource=tsc: reading this clock takes a system call")


def governor() -> HostFinding:
    name = probe.setting("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    if name is None:
        return HostFinding("CPU governor", UNKNOWN, "not visible, as in most virtual machines")
    if name == "performance":
        return HostFinding("CPU governor", GOOD, name)
    return HostFinding(
        "CPU governor", WARN, name, "cpupower frequency-set -g performance: clock changes look like latency"
    )


def cores() -> HostFinding:
    usable = probe.cores()
    if usable < 2:
        fix = "give this process two cores: with one, a local target and the client take time from each other"
        return HostFinding("cores", WARN, f"{usable:g}", fix)
    return HostFinding("cores", GOOD, f"{usable:g}")


def steal() -> HostFinding:
    share = probe.steal_share()
    if share is None:
        return HostFinding("hypervisor steal", UNKNOWN, "/proc/stat does not report it")
    text = f"{100 * share:.2f} % of CPU time since boot"
    if share > 0.01:
        return HostFinding(
            "hypervisor steal",
            WARN,
            text,
            "use a machine with dedicated cores: the load of others is in your tail latencies",
        )
    return HostFinding("hypervisor steal", GOOD, text)


def memory() -> HostFinding:
    free = probe.available_memory()
    if free is None:
        return HostFinding("memory", UNKNOWN, "/proc/meminfo does not report it")
    text = f"{free / 1e9:.1f} GB available"
    if free < ENOUGH_MEMORY:
        return HostFinding("memory", WARN, text, "free at least 1 GB")
    return HostFinding("memory", GOOD, text)


def kernel_stamps() -> HostFinding:
    if probe.kernel_stamps():
        return HostFinding("kernel stamps", GOOD, "SO_TIMESTAMPNS works on TCP")
    fix = "leave the sandbox, or use a Linux kernel with SO_TIMESTAMPNS"
    return HostFinding("kernel stamps", WARN, "not available: stamps are taken in user space", fix)


def packet_ring() -> HostFinding:
    without = "--timestamps tap, for exact times of a starved client, is not possible"
    try:
        permitted = tap.permitted()
    except OSError as problem:
        text = f"this kernel has no packet sockets ({problem.strerror}): {without}"
        return HostFinding("packet ring", WARN, text, "use a Linux kernel with them (CONFIG_PACKET), outside a sandbox")
    if permitted:
        return HostFinding("packet ring", GOOD, "permitted: --timestamps tap can stamp each segment before TCP")
    return HostFinding("packet ring", WARN, f"not permitted, {tap.NEEDS}: {without}", tap.GRANT)


def modules() -> HostFinding:
    return _importable("libraries", ["uvloop", "httptools", "msgspec", "numpy", "hdrh.histogram", "rich", "quicktok"])


def compiled() -> HostFinding:
    return _importable("compiled modules", probe.compiled_names())


def _importable(name: str, wanted: list[str]) -> HostFinding:
    wrong = probe.not_importable(wanted)
    if wrong:
        first, why = next(iter(wrong.items()))
        text = f"{len(wrong)} of {len(wanted)} cannot be imported: {', '.join(wrong)}"
        return HostFinding(name, BAD, text, f"install fastllmload again; {first}: {why}")
    return HostFinding(name, GOOD, f"{len(wanted)} importable")


def disk(runs: Path) -> HostFinding:
    try:
        free = probe.free_disk(runs)
        speed = probe.disk_speed(runs)
    except OSError as error:
        return HostFinding("disk of runs", BAD, f"{runs}: {error.strerror}", "choose another folder with --output")
    text = f"{speed / 1e6:,.0f} MB/s, {free / 1e9:,.1f} GB free"
    if free < ENOUGH_DISK:
        return HostFinding("disk of runs", WARN, text, "free at least 2 GB, or write runs elsewhere with --output")
    if speed < ENOUGH_SPEED:
        return HostFinding("disk of runs", WARN, text, "write runs to a faster disk with --output")
    return HostFinding("disk of runs", GOOD, text)


def timers() -> HostFinding:
    late = probe.timer_lateness_us()
    p50, p99 = late[len(late) // 2], late[int(0.99 * (len(late) - 1))]
    text = f"sleeps of 1 ms end late by p50 {p50:,.0f} us, p99 {p99:,.0f} us, max {late[-1]:,.0f} us"
    if p99 > VERY_LATE_US:
        return HostFinding("timers", BAD, text, "find what keeps the cores busy: this host cannot pace requests now")
    if p99 > LATE_US:
        return HostFinding("timers", WARN, text, "a quieter host, or --workers below the number of cores")
    return HostFinding("timers", GOOD, text)
