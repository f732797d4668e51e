"""`doctor`: checks whether this host, or each host of a Ray cluster, can run a benchmark, and says what to change."""

from __future__ import annotations

import os
import secrets
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click
import msgspec

from fastllmload.cli.options.sources import from_command_line, parse_options
from fastllmload.errors import InputError
from fastllmload.host import limits, probe
from fastllmload.settings import Hosts

if TYPE_CHECKING:
    from fastllmload.engine.hosts.placement.cluster import RayPlacement
    from fastllmload.engine.hosts.placement.host_actor import HostFacts

GOOD, WARN, BAD, UNKNOWN = "ok", "warn", "bad", "unknown"
# Read without a system call
FAST_CLOCKS = ("tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter")
ENOUGH_FILES, ENOUGH_PORTS, ENOUGH_BACKLOG = 4_096, 20_000, 1_024
ENOUGH_MEMORY, ENOUGH_DISK, ENOUGH_SPEED = 1 << 30, 2 << 30, 50e6
LATE_US, VERY_LATE_US = 500.0, 5_000.0
CLOCK_S, ANSWERED_S = 3.0, 5.0  # of exchanges; for the first one
WIDE_US, FAST_PPM = 1_000.0, 100.0  # `clock_bound` in certificate/criteria.py; two quartz clocks without NTP


@dataclass(frozen=True)
class HostFinding:
    """Result of one check. *fix* says what to change; empty when nothing needs to be changed."""

    name: str
    verdict: str
    text: str
    fix: str = ""


@click.command("doctor")
@click.option(
    "--runs",
    type=click.Path(path_type=Path),
    help="Folder whose disk is checked. Default: runs; with --ray, the temporary folder of each host.",
)
@click.option(
    "--ray", metavar="ADDRESS", help="Checks every host of a Ray cluster: HOST:PORT of its head, auto, local."
)
@click.option("--ray-resource", metavar="NAME", help="Only hosts that have this resource in Ray.")
def doctor(runs: Path | None, ray: str | None, ray_resource: str | None) -> int:
    """Check this host (limits, ports, clock, permissions) and say what to change. Exit code 1 if a check is bad."""
    if ray is None:
        if ray_resource is not None:
            raise InputError("option-missing", "--ray-resource belongs to several hosts; add --ray ADDRESS")
        return print_findings(examine(runs or Path("runs")), sys.stdout)
    fields = parse_options(from_command_line({"ray": ray, "ray_resource": ray_resource}))
    hosts, findings = examine_hosts(Hosts(**{name.partition(".")[2]: found for name, found in fields.items()}), runs)
    return print_hosts(hosts, findings, sys.stdout)


def examine_hosts(wanted: Hosts, runs: Path | None) -> tuple[list[HostFacts], list[list[HostFinding]]]:
    """The hosts that *wanted* describes, and the findings of each."""
    from fastllmload.engine.hosts.placement.cluster import inspect
    from fastllmload.engine.hosts.placement.host_actor import facts_here

    placement = inspect(wanted)
    try:
        hosts = placement.hosts()
        clocks = examine_clocks(placement)
        findings = placement.everywhere(examine_agents, None if runs is None else str(runs), list[HostFinding])
    finally:
        placement.close()
    own = facts_here("", "this host")
    return hosts, [
        [software(own, host), priority(host), ray_access(), clock, *found]
        for host, clock, found in zip(hosts, clocks, findings, strict=True)
    ]


def examine_clocks(placement: RayPlacement) -> list[HostFinding]:
    """Compare the clocks of all hosts with this one's at once, as a run does. The key is of these exchanges alone."""
    from fastllmload.engine.hosts.clock.exchange import ClockResponder
    from fastllmload.engine.hosts.link.messages import AgentConfig
    from fastllmload.engine.workers.fleet import environment

    key = secrets.token_bytes(32)
    responder = ClockResponder(key, environment(), placement.driver_address)
    try:
        asked = AgentConfig(
            address=placement.driver_address, tcp_port=0, udp_port=responder.port, key=key.hex(), host=0
        )
        return placement.everywhere(driver_clock, msgspec.json.encode(asked).decode(), HostFinding)
    finally:
        responder.stop()


def examine_agents(runs: str | None) -> list[HostFinding]:
    """Run all checks on a host where an agent writes to the temporary folder, if *runs* names no other one."""
    return examine(Path(runs or tempfile.gettempdir()))


def print_hosts(hosts: Sequence[HostFacts], findings: Sequence[list[HostFinding]], stream: TextIO) -> int:
    """Print the hosts, how many of them pass each check, and what to change where; returns 1 when something is bad."""
    for host in hosts:
        about = f"{host.cpus} CPUs, {host.machine}, fastllmload {host.fastllmload}, Python {host.python}"
        stream.write(f"{host.title:<40} {about}\n")
    counted: dict[str, Counter[str]] = {}
    same: dict[tuple[str, str, str], dict[str, list[str]]] = {}  # check, verdict, fix → text → hosts
    for host, found in zip(hosts, findings, strict=True):
        for one in found:
            counted.setdefault(one.name, Counter())[one.verdict] += 1
            if one.verdict != GOOD:
                same.setdefault((one.name, one.verdict, one.fix), {}).setdefault(one.text, []).append(host.name)
    verdicts = (GOOD, WARN, BAD, UNKNOWN)
    stream.write(f"\n{'check':<20} {''.join(f'{verdict:>9}' for verdict in verdicts)}\n")
    for name, counts in counted.items():
        numbers = (counts[verdict] or "" for verdict in verdicts)
        stream.write(f"{name:<20} {''.join(f'{number:>9}' for number in numbers)}".rstrip() + "\n")
    stream.write("\n")
    for (name, verdict, fix), texts in same.items():
        for text, names in texts.items():
            stream.write(f"{verdict:<8} {name:<20} {', '.join(names)}: {text}\n")
        if fix != "":
            stream.write(f"{'':<8} {'':<20} -> {fix}\n")
    every: Counter[str] = sum(counted.values(), Counter())
    stream.write(
        f"{every[BAD]} to change, {every[WARN]} to consider, of {every.total()} checks on {len(hosts)} hosts\n"
    )
    return 1 if every[BAD] else 0


def examine(runs: Path) -> list[HostFinding]:
    """Run all checks, quick ones first; takes about a second. *runs* is the folder that runs are written to."""
    checks: tuple[Callable[[], HostFinding], ...] = (
        open_files, ports, backlog, congestion_control, ip_versions, clock_source, governor, cores, steal, memory,
        kernel_stamps, packet_ring, modules, compiled, lambda: disk(runs), timers,
    )  # fmt: skip
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


def judged(
    name: str, text: str | None, wrong: bool, fix: str, *, verdict: str = WARN, unknown: str = "cannot be read"
) -> HostFinding:
    """*verdict* and *fix* if the check found something *wrong*; UNKNOWN without *text*."""
    if text is None:
        return HostFinding(name, UNKNOWN, unknown)
    return HostFinding(name, verdict, text, fix) if wrong else HostFinding(name, GOOD, text)


def software(own: HostFacts, host: HostFacts) -> HostFinding:
    from fastllmload.engine.hosts.placement.cluster import differences

    found = "; ".join(differences(own, host))
    text = f"fastllmload {host.fastllmload}, Python {host.python}, modules {host.compiled}"
    return judged("software", found or text, found != "", "install the same wheel on all hosts", verdict=BAD)


def priority(host: HostFacts) -> HostFinding:
    fix = "start Ray on this host with RAY_worker_niceness=0: other processes go first"
    return judged("priority of agents", f"nice {host.priority}", host.priority > 0, fix)


def ray_access() -> HostFinding:
    mode = os.environ.get("RAY_AUTH_MODE", "not set")
    fix = "export RAY_AUTH_MODE=token and one RAY_AUTH_TOKEN on all hosts: who reaches this Ray can run programs there"
    return judged("access to Ray", f"RAY_AUTH_MODE is {mode}", mode != "token", fix)


def driver_clock(asked: str | None) -> HostFinding:
    """Compare this host's clock with that of the driver, at the address in *asked*, an AgentConfig as JSON."""
    from fastllmload.engine.hosts.clock.exchanger import ClockExchanger
    from fastllmload.engine.hosts.link.messages import AgentConfig
    from fastllmload.records.host_clock import fit

    driver = msgspec.json.decode(asked or "", type=AgentConfig)
    where = f"{driver.address}, UDP port {driver.udp_port}"
    try:
        exchanger = ClockExchanger((driver.address, driver.udp_port), bytes.fromhex(driver.key), secrets.randbits(32))
        exchanger.start()
        until = time.monotonic() + ANSWERED_S
        while not len(exchanger.exchanges()) and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(CLOCK_S)
        exchanges = exchanger.stop()
        clock = fit(exchanges)
    except (OSError, ValueError):  # not sent, not answered, or not by a clock
        fix = "let UDP from this host to any port of the driver's host pass"
        return HostFinding("driver's clock", BAD, f"no datagram was answered by the driver at {where}", fix)
    bound_us = sorted(clock.bound_ns(exchanges[:, 0]).tolist())[len(exchanges) // 2] / 1e3
    middle = len(clock.rate) // 2
    ppm, within_ppm = float(clock.rate[middle]) * 1e6, float(clock.half_rate[middle]) * 1e6
    text = f"known within {bound_us:,.0f} us, {ppm:+.0f} ppm (within {within_ppm:.0f}), {len(exchanges)} exchanges"
    if bound_us > WIDE_US:
        fix = "a driver that is nearer to this host, or a quieter network: arrivals of two hosts cannot be compared closer"
        return HostFinding("driver's clock", WARN, text, fix)
    fix = "run chrony or another NTP client on this host and on the driver's: a run follows such a drift less closely"
    return judged("driver's clock", text, abs(ppm) - within_ppm > FAST_PPM, fix)


def open_files() -> HostFinding:
    limit = limits.file_limit()
    hard = "unlimited" if limit.hard is None else f"{limit.hard:,}"
    text = f"soft {limit.soft:,}, hard {hard}; a run raises the soft limit by itself"
    fix = "set 'nofile' to 65536 in /etc/security/limits.conf and log in again"
    return judged("open files", text, limit.hard is not None and limit.hard < ENOUGH_FILES, fix, verdict=BAD)


def ports() -> HostFinding:
    low, high = limits.port_range()
    free = limits.port_capacity(1)
    text = f"{low} to {high}: {free:,} connections per source address and target"
    fix = "sysctl net.ipv4.ip_local_port_range='1024 65535', or --source-address"
    return judged("local ports", text, free < ENOUGH_PORTS, fix)


def backlog() -> HostFinding:
    path = "/proc/sys/net/core/somaxconn"
    text = probe.setting(path) or ""
    few = text.isdecimal() and int(text) < ENOUGH_BACKLOG
    fix = f"sysctl net.core.somaxconn={4 * ENOUGH_BACKLOG}: bursts of connections to a local server get lost"
    return judged("listen backlog", text if text.isdecimal() else None, few, fix, unknown=f"{path} cannot be read")


def congestion_control() -> HostFinding:
    name = probe.setting("/proc/sys/net/ipv4/tcp_congestion_control")
    fix = "sysctl net.ipv4.tcp_congestion_control=cubic: bbr arms a timer for every socket"
    return judged("congestion control", name, (name or "").startswith("bbr"), fix)


def ip_versions() -> HostFinding:
    text = "available" if probe.is_own("::1") else None
    return judged("IPv6", text, False, "", unknown="not available; targets need an IPv4 address")


def clock_source() -> HostFinding:
    name = probe.setting("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    fix = "boot with clocksource=tsc: reading this clock takes a system call"
    return judged("clock source", name, name not in FAST_CLOCKS, fix, verdict=BAD)


def governor() -> HostFinding:
    name = probe.setting("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    fix = "cpupower frequency-set -g performance: clock changes look like latency"
    unknown = "not visible, as in most virtual machines"
    return judged("CPU governor", name, name != "performance", fix, unknown=unknown)


def cores() -> HostFinding:
    usable = probe.cores()
    fix = "give this process two cores: with one, a local target and the client take time from each other"
    return judged("cores", f"{usable:g}", usable < 2, fix)


def steal() -> HostFinding:
    share = probe.steal_share()
    text = None if share is None else f"{100 * share:.2f} % of CPU time since boot"
    fix = "use a machine with dedicated cores: the load of others is in your tail latencies"
    return judged("hypervisor steal", text, (share or 0) > 0.01, fix, unknown="/proc/stat does not report it")


def memory() -> HostFinding:
    free = probe.available_memory()
    text = None if free is None else f"{free / 1e9:.1f} GB available"
    few = free is not None and free < ENOUGH_MEMORY
    return judged("memory", text, few, "free at least 1 GB", unknown="/proc/meminfo does not report it")


def kernel_stamps() -> HostFinding:
    if probe.kernel_stamps():
        return HostFinding("kernel stamps", GOOD, "SO_TIMESTAMPNS works on TCP")
    fix = "leave the sandbox, or use a Linux kernel with SO_TIMESTAMPNS"
    return HostFinding("kernel stamps", WARN, "not available: stamps are taken in user space", fix)


def packet_ring() -> HostFinding:
    from fastllmload.engine.recording import tap

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
    return judged("disk of runs", text, speed < ENOUGH_SPEED, "write runs to a faster disk with --output")


def timers() -> HostFinding:
    late = probe.timer_lateness_us()
    p50, p99 = late[len(late) // 2], late[int(0.99 * (len(late) - 1))]
    text = f"sleeps of 1 ms end late by p50 {p50:,.0f} us, p99 {p99:,.0f} us, max {late[-1]:,.0f} us"
    if p99 > VERY_LATE_US:
        return HostFinding("timers", BAD, text, "find what keeps the cores busy: this host cannot pace requests now")
    return judged("timers", text, p99 > LATE_US, "a quieter host, or --workers below the number of cores")
