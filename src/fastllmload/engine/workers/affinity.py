"""Checks before the run the CPUs that workers are pinned to and the addresses that they connect from."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Sequence

from fastllmload.errors import InputError

FAMILIES = {4: "inet", 6: "inet6"}
FAMILY_NAMES = {"inet": "IPv4", "inet6": "IPv6"}
Address = tuple[str, str, int]  # family, numeric address, port


def check_pinned_cpus(cpus: Sequence[int] | None) -> None:
    """InputError for a CPU that this process may not run on; its own affinity is not changed."""
    before = os.sched_getaffinity(0)
    for cpu in cpus or ():
        try:
            os.sched_setaffinity(0, {cpu})
        except (OSError, OverflowError):
            usable = ", ".join(map(str, sorted(before)))
            raise InputError(
                "cpu-unavailable", f"--pin names CPU {cpu}, which this process cannot run on; it can run on {usable}"
            ) from None
        finally:
            os.sched_setaffinity(0, before)


def check_source_addresses(sources: Sequence[str]) -> None:
    """InputError for a source address that is invalid or not on this host."""
    families = {source: family_of(source) for source in sources}
    if len(set(families.values())) > 1:
        raise InputError(
            "source-address-family",
            f"--source-address names IPv4 and IPv6 addresses ({', '.join(sources)}); give those of the target's family",
        )
    for source, family in families.items():
        with socket.socket(socket.AF_INET6 if family == "inet6" else socket.AF_INET, socket.SOCK_STREAM) as trial:
            try:
                trial.bind((source, 0))
            except OSError as problem:
                raise InputError(
                    "source-address-unusable",
                    f"--source-address {source} cannot be used on this host: {(problem.strerror or '').lower()}; "
                    "give an address that one of its interfaces has",
                ) from None


def family_of(source: str) -> str:
    try:
        return FAMILIES[ipaddress.ip_address(source).version]
    except ValueError:
        raise InputError(
            "source-address-invalid", f"--source-address {source!r} is not an IPv4 or IPv6 address"
        ) from None


def reachable_from(addresses: Sequence[Address], sources: Sequence[str], target: str) -> list[Address]:
    """Those of the *target*'s *addresses* that can be reached from *sources*: of the same family, or Unix sockets."""
    if not sources:
        return list(addresses)
    family = family_of(sources[0])
    found = [address for address in addresses if address[0] in ("unix", family)]
    if not found:
        others = ", ".join(sorted({FAMILY_NAMES[address[0]] for address in addresses}))
        raise InputError(
            "source-address-family",
            f"{target} has {others} addresses only and cannot be reached from --source-address {sources[0]}; "
            "give one of that family",
        )
    return found
