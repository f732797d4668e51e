"""Builds the packet filter of a run: classic BPF that keeps the segments between this host and the run's targets.

The filter sees each frame from its network header on. It keeps incoming frames from a watched address and port and outgoing
frames to one, if they have payload or begin or end a connection, and only their headers. On the loopback interface
(*looped*) every outgoing frame also comes in, so outgoing frames are dropped and both directions are taken from incoming
ones: from a watched side, or to one.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field

from fastllmload.errors import HostLimitError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

LD_VALUE, LD_WORD, LD_HALF, LD_BYTE = 0x00, 0x20, 0x28, 0x30  # A = k; A = the value at k
LD_HALF_X, LD_BYTE_X = 0x48, 0x50  # A = the value at X + k
LD_SCRATCH, LDX_SCRATCH, STORE = 0x60, 0x61, 0x02
LDX_IPV4_HEADER = 0xB1  # X = 4 * (byte at k & 15)
ADD, ADD_X, AND, RSH, TXA = 0x04, 0x0C, 0x54, 0x74, 0x87
JUMP, IF_EQUAL, IF_EQUAL_X, IF_BITS = 0x05, 0x15, 0x1D, 0x45
RETURN, RETURN_A = 0x06, 0x16
PACKET_TYPE = 0xFFFFF004  # the kernel's SKF_AD_OFF + SKF_AD_PKTTYPE
INCOMING, OUTGOING = 0, 4
TCP, FIN_SYN_RST = 6, 7
EXTENSIONS = (0, 43, 44, 51, 60, 135)  # headers that may be between an IPv6 header and TCP
IPV6_HEADER, TCP_HEADER, EXTENDED = 40, 20, 160  # bytes; EXTENDED are kept of a frame with such headers
MOST_INSTRUCTIONS = 4096
PORT, KEPT, END, ADDRESS = 0, 1, 2, 3  # scratch words; an address has up to four, from ADDRESS on


@dataclass
class Program:
    """Instructions with named jump targets, which are all ahead."""

    code: list[tuple[int, int, str | None, str | None]] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)

    def do(self, operation: int, k: int = 0) -> None:
        self.code.append((operation, k, None, None))

    def place(self, name: str) -> None:
        self.places[name] = len(self.code)

    def jump(self, name: str) -> None:
        self.code.append((JUMP, 0, name, None))

    def test(self, operation: int, k: int, name: str) -> None:
        """Jump to *name*, at any distance, if the test holds; else continue."""
        self.code.append((operation, k, ".next", ".over"))
        self.jump(name)

    def unless(self, operation: int, k: int, name: str) -> None:
        self.code.append((operation, k, ".over", ".next"))
        self.jump(name)

    def assembled(self) -> bytes:
        near = {".next": 0, ".over": 1, ".after": 2, None: 0}
        out = bytearray()
        for at, (operation, k, true, false) in enumerate(self.code):
            if operation == JUMP:
                assert true is not None
                out += struct.pack("=HBBI", operation, 0, 0, self.places[true] - at - 1)
            else:
                out += struct.pack("=HBBI", operation, near[true], near[false], k)
        return bytes(out)


@dataclass(frozen=True)
class FilterSide:
    """Where a frame has one of its two sides. *address*: offsets of its words; *load_port* reads the port at *port*."""

    address: tuple[int, ...]
    load_port: int
    port: int


def on_wire(address: str) -> Address:
    """The address in packets: without a zone, and IPv4 if it is mapped into IPv6."""
    found = ipaddress.ip_address(address.partition("%")[0])
    return (found.ipv4_mapped or found) if found.version == 6 else found


def packet_filter(watched: Iterable[tuple[str, int]], *, looped: bool = False) -> bytes:
    """The program for these numeric addresses and ports. HostLimitError for more than the kernel takes."""
    ports: dict[Address, list[int]] = {}
    for address, port in watched:
        ports.setdefault(on_wire(address), []).append(port)
    program = Program()
    program.do(LD_BYTE, 0)
    program.do(RSH, 4)
    program.test(IF_EQUAL, 4, "ipv4")
    program.test(IF_EQUAL, 6, "ipv6")
    program.do(RETURN, 0)
    program.place("ipv4")
    ipv4(program, {each: found for each, found in ports.items() if each.version == 4}, looped)
    program.place("ipv6")
    ipv6(program, {each: found for each, found in ports.items() if each.version == 6}, looped)
    program.place("none")
    program.do(RETURN, 0)
    if len(program.code) > MOST_INSTRUCTIONS:
        raise HostLimitError(
            "tap-unavailable",
            f"{len(ports)} target addresses need a packet filter of {len(program.code)} instructions, and the kernel "
            f"takes {MOST_INSTRUCTIONS}; use fewer targets, or --timestamps kernel",
        )
    return program.assembled()


def ipv4(program: Program, ports: dict[Address, list[int]], looped: bool) -> None:
    """Drop frames without news first: when a stream is received, half of all frames are acknowledgements."""
    program.do(LD_BYTE, 9)
    program.unless(IF_EQUAL, TCP, "none")
    program.do(LD_HALF, 6)
    program.test(IF_BITS, 0x1FFF, "none")  # a later fragment has no TCP header
    program.do(LDX_IPV4_HEADER, 0)
    program.do(TXA)
    program.do(ADD, TCP_HEADER)
    program.do(STORE, KEPT)
    program.do(LD_BYTE_X, 13)
    program.test(IF_BITS, FIN_SYN_RST, "news4")
    program.do(LD_BYTE_X, 12)
    program.do(AND, 0xF0)
    program.do(RSH, 2)
    program.do(ADD_X)
    payload(program, "news4", length_at=2)
    program.place("news4")
    program.do(LDX_IPV4_HEADER, 0)
    source, target = FilterSide((12,), LD_HALF_X, 0), FilterSide((16,), LD_HALF_X, 2)
    directions(program, source, target, ports, looped)


def ipv6(program: Program, ports: dict[Address, list[int]], looped: bool) -> None:
    """The same for IPv6; frames with extension headers are kept, because their reader can parse those."""
    extensions(program)
    program.do(LD_BYTE, IPV6_HEADER + 13)
    program.test(IF_BITS, FIN_SYN_RST, "news6")
    program.do(LD_BYTE, IPV6_HEADER + 12)
    program.do(AND, 0xF0)
    program.do(RSH, 2)
    payload(program, "news6", length_at=4)
    program.place("news6")
    program.do(LD_VALUE, IPV6_HEADER + TCP_HEADER)
    program.do(STORE, KEPT)
    source = FilterSide((8, 12, 16, 20), LD_HALF, IPV6_HEADER)
    target = FilterSide((24, 28, 32, 36), LD_HALF, IPV6_HEADER + 2)
    directions(program, source, target, ports, looped)


def directions(
    program: Program, source: FilterSide, target: FilterSide, ports: dict[Address, list[int]], looped: bool
) -> None:
    """Keep incoming frames by their source and outgoing ones by their target; *looped*: incoming ones by either."""
    out, judge = f"out {len(program.code)}", f"judge {len(program.code)}"
    program.do(LD_BYTE, PACKET_TYPE)
    program.unless(IF_EQUAL, INCOMING, "none" if looped else out)
    other_side(program, source)
    if looped:
        sides(program, ports, out)
        program.place(out)
    else:
        program.jump(judge)
        program.place(out)
        program.unless(IF_EQUAL, OUTGOING, "none")
    other_side(program, target)
    program.place(judge)
    sides(program, ports, "none")


def extensions(program: Program) -> None:
    """Continue with TCP; keep frames with extension headers if their direction is incoming or outgoing."""
    program.do(LD_BYTE, 6)
    program.test(IF_EQUAL, TCP, "tcp6")
    for header in EXTENSIONS:
        program.test(IF_EQUAL, header, "extended")
    program.do(RETURN, 0)
    program.place("extended")
    program.do(LD_BYTE, PACKET_TYPE)
    program.test(IF_EQUAL, INCOMING, "walk")
    program.unless(IF_EQUAL, OUTGOING, "none")
    program.place("walk")
    program.do(RETURN, EXTENDED)
    program.place("tcp6")


def other_side(program: Program, side: FilterSide) -> None:
    """Copy the address and port of *side* to their scratch words."""
    for number, at in enumerate(side.address):
        program.do(LD_WORD, at)
        program.do(STORE, ADDRESS + number)
    program.do(side.load_port, side.port)
    program.do(STORE, PORT)


def payload(program: Program, name: str, length_at: int) -> None:
    """Register A has the length of the headers: there is payload if IP states another length, which is 0 above 64 KiB."""
    program.do(STORE, END)
    program.do(LDX_SCRATCH, END)
    program.do(LD_HALF, length_at)
    program.test(IF_EQUAL, 0, name)
    program.test(IF_EQUAL_X, 0, "none")


def sides(program: Program, ports: dict[Address, list[int]], otherwise: str) -> None:
    """Keep frames with one of these addresses and ports; jump to *otherwise* for the rest."""
    for address, found in ports.items():
        after = f"after {address} {len(program.code)}"
        words = struct.unpack(f">{len(address.packed) // 4}I", address.packed)
        for number, word in enumerate(words):
            program.do(LD_SCRATCH, ADDRESS + number)
            program.unless(IF_EQUAL, word, after)
        program.do(LD_SCRATCH, PORT)
        for port in sorted(set(found)):
            program.code.append((IF_EQUAL, port, ".next", ".after"))
            program.do(LD_SCRATCH, KEPT)
            program.do(RETURN_A)
        program.jump(otherwise)
        program.place(after)
    program.jump(otherwise)
