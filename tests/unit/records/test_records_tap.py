"""Events get the time at which their last byte could be read, from constructed segments in any order."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from typed_documents import typed

from fastllmload._ext.tap.segment import segment_dtype
from fastllmload.documents.run import RunDocument
from fastllmload.documents.run_parts.hosts import HostEntry, Tap
from fastllmload.errors import RunFolderError
from fastllmload.records import layout
from fastllmload.records.tap_times import SEGMENTS, WATCHED, Watched, join_tap, with_taps, write_watched

SENT, SYN, FIN, RST, UNSURE, LOST = 1, 2, 4, 8, 16, 32
MS, US = 1_000_000, 1_000
ZERO = 10_000 * MS
HEAD, EVENT = 100, 50
DONE, CONTENT, ROLE = (layout.EVENT_NAMES.index(name) for name in ("done", "content", "role"))


@dataclass
class Wire:
    """A capture, with the rows and events of a late reader: each read is *late* after its last segment."""

    base: int = 0xFFFFFF00  # sequence numbers wrap in the middle of an answer
    late: int = 30 * MS
    segments: list[tuple[int, ...]] = field(default_factory=list)
    rows: list[dict[str, int]] = field(default_factory=list)
    events: list[dict[str, int]] = field(default_factory=list)

    def put(
        self, t: int, seq: int, length: int, flags: int, port: int = 40_000, remote: int = 0, local: int = 0
    ) -> None:
        self.segments.append((ZERO + t, seq & 0xFFFFFFFF, length, port, remote, local, flags, 0))

    def open(self, t: int, **side: int) -> None:
        self.put(t, self.base - 1_000, 0, SENT | SYN, **side)
        self.put(t + 100 * US, self.base - 1, 0, SYN, **side)

    def sends(self, t: int, offset: int, length: int = 200, **side: int) -> None:
        self.put(t, self.base - 999 + offset, length, SENT, **side)

    def comes(self, t: int, offset: int, length: int, flags: int = 0, **side: int) -> None:
        self.put(t, self.base + offset, length, flags, **side)

    def request(self, t: int, *, begin: int = 0, events: int = 4, read: list[int] | None = None, **fields: int) -> int:
        """A row that was sent at *t*: a head of HEAD bytes, then *events* of EVENT bytes. *read*: when each was read."""
        read = [t + 1_000 * MS] * events if read is None else read
        end = ZERO + (read[-1] if read else t + 1_000 * MS)
        number = len(self.rows)
        self.rows.append(
            {
                "t_sched": ZERO + t, "t_dispatch": ZERO + t, "t_submit_start": ZERO + t, "t_submit": ZERO + t + 50 * US,
                "t_headers": ZERO + read[0] if read else end, "t_any": ZERO + read[0] if read else 0,
                "t_first": ZERO + read[0] if read else 0, "t_last": end, "t_end": end, "t_end_user": end,
                "stream_begin": begin & 0xFFFFFFFF, "head_end": (begin + HEAD) & 0xFFFFFFFF, "bytes_sent": 200,
                "bytes_received": HEAD + EVENT * events, "local_port": 40_000, "events": events, "content_events": events,
                "status": layout.OK, "phase": layout.MEASURE, "flags": layout.FLAG_STREAM, "url": 0,
                "request": number, **fields,
            }
        )  # fmt: skip
        for place, at in enumerate(read):
            self.events.append(
                {
                    "t_ns": ZERO + at, "row": number, "kind": CONTENT, "stamp": layout.STAMP_COALESCED,
                    "bracket_ns": layout.BRACKET_OPEN, "offset": (begin + HEAD + EVENT * (place + 1)) & 0xFFFFFFFF,
                }
            )  # fmt: skip
        return number

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        rows = np.zeros(len(self.rows), layout.REQUEST)
        for number, fields in enumerate(self.rows):
            for name, value in fields.items():
                rows[name][number] = value
        events = np.zeros(len(self.events), layout.EVENT)
        for number, fields in enumerate(self.events):
            for name, value in fields.items():
                events[name][number] = value
        return rows, events

    def write(self, folder: Path, remote: tuple[int, ...] = (0,), tls: tuple[bool, ...] = (False,)) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        np.array(sorted(self.segments, key=lambda each: each[0]), segment_dtype()).tofile(folder / SEGMENTS)
        write_watched(folder, Watched(remote=remote, tls=tls))

    def join(self, folder: Path, remote: tuple[int, ...] = (0,), tls: tuple[bool, ...] = (False,)) -> Joined:
        rows, events = self.arrays()
        first = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(np.bincount(events["row"], minlength=len(rows)), out=first[1:])
        self.write(folder, remote, tls)
        facts = join_tap(folder, rows, events, first)[None]
        assert facts.joined + facts.narrowed + sum(facts.unmatched.values()) == len(events)
        return Joined(rows, events, facts)


@dataclass
class Joined:
    rows: np.ndarray
    events: np.ndarray
    facts: Tap

    @property
    def times(self) -> list[int]:
        return [(int(t) - ZERO) // US for t in self.events["t_ns"]]

    @property
    def classes(self) -> list[int]:
        return [int(stamp) & layout.STAMP_CLASS_MASK for stamp in self.events["stamp"]]

    def row(self, *names: str, number: int = 0) -> list[int]:
        return [(int(self.rows[name][number]) - ZERO) // US for name in names]


def answer(wire: Wire, at: list[int], *, begin: int = 0, **side: int) -> None:
    """The head with the first event at at[0], then each event at its time."""
    wire.comes(at[0], begin, HEAD + EVENT, **side)
    for place, t in enumerate(at[1:], 1):
        wire.comes(t, begin + HEAD + EVENT * place, EVENT, **side)


def simple() -> Wire:
    wire = Wire()
    wire.open(0)
    wire.request(10 * MS)
    wire.sends(10 * MS + 20 * US, 0)
    answer(wire, [20 * MS, 30 * MS, 40 * MS, 50 * MS])
    return wire


def test_every_time_of_a_row_is_that_of_its_segment(tmp_path: Path) -> None:
    found = simple().join(tmp_path)
    assert found.times == [20_000, 30_000, 40_000, 50_000], "though all was read a second later"
    assert found.classes == [layout.STAMP_TAP] * 4
    assert list(found.events["bracket_ns"]) == [0] * 4
    assert found.row("t_headers", "t_any", "t_first", "t_last", "t_end") == [20_000, 20_000, 20_000, 50_000, 50_000]
    assert found.row("t_wire", "t_end_user") == [10_020, 1_010_000], "what user space saw stays"
    assert found.facts.matched_share == 1.0
    assert found.facts.requests_timed == 1


def test_the_same_read_bit_stays(tmp_path: Path) -> None:
    wire = simple()
    wire.events[1]["stamp"] |= layout.STAMP_SAME_READ
    assert wire.join(tmp_path).events["stamp"][1] == layout.STAMP_TAP | layout.STAMP_SAME_READ


def test_a_retransmission_does_not_make_bytes_later(tmp_path: Path) -> None:
    wire = simple()
    wire.comes(60 * MS, HEAD + EVENT, EVENT)
    wire.comes(61 * MS, 0, HEAD + 4 * EVENT)
    wire.sends(62 * MS, 0)
    found = wire.join(tmp_path)
    assert found.times == [20_000, 30_000, 40_000, 50_000]
    assert found.row("t_wire") == [10_020]
    assert found.facts.retransmitted == 2


def test_bytes_after_a_gap_arrive_with_the_segment_that_closes_it(tmp_path: Path) -> None:
    """The second segment was lost on its way; it overlaps others when it comes again."""
    wire = Wire()
    wire.open(0)
    wire.request(10 * MS)
    wire.comes(20 * MS, 0, HEAD + EVENT)
    wire.comes(40 * MS, HEAD + 2 * EVENT, EVENT)
    wire.comes(50 * MS, HEAD + 3 * EVENT, EVENT)
    wire.comes(90 * MS, HEAD + EVENT, EVENT + 10)
    found = wire.join(tmp_path)
    assert found.times == [20_000, 90_000, 90_000, 90_000]
    assert found.facts.out_of_order == 2


def test_the_kernels_stamp_of_waiting_bytes_is_too_early(tmp_path: Path) -> None:
    """The kernel stamps the last byte read; the tap knows when the byte came that the others waited for."""
    wire = Wire()
    wire.open(0)
    wire.request(10 * MS, read=[20 * MS, 50 * MS, 50 * MS, 50 * MS], t_end_user=ZERO + 91 * MS)
    wire.comes(20 * MS, 0, HEAD + EVENT)
    wire.comes(40 * MS, HEAD + 2 * EVENT, EVENT)
    wire.comes(50 * MS, HEAD + 3 * EVENT, EVENT)
    wire.comes(90 * MS, HEAD + EVENT, EVENT)
    found = wire.join(tmp_path)
    assert found.times == [20_000, 90_000, 90_000, 90_000]
    assert found.row("t_last", "t_end") == [90_000, 90_000]


def test_any_order_of_segments_gives_the_time_of_the_complete_prefix(tmp_path: Path) -> None:
    """Against the definition, for 200 captures: shuffled, repeated, cut anywhere, across the wrap of the sequence."""
    draw = random.Random(1)
    for turn in range(200):
        total = HEAD + EVENT * 20
        cuts = sorted({0, total, *(draw.randrange(1, total) for _ in range(draw.randrange(30)))})
        pieces = list(itertools.pairwise(cuts))
        pieces += [
            (max(0, a - draw.randrange(60)), min(total, b + draw.randrange(60))) for a, b in draw.sample(pieces, 1)
        ]
        if turn % 2:
            draw.shuffle(pieces)
        wire = Wire(base=draw.choice((0, 7, 0xFFFFFFFF, 0xFFFFFE00, 1 << 31, 0x7FFFFF00)))
        wire.open(0)
        wire.request(10 * MS, events=20)
        arrived = np.full(total, 1 << 62, np.int64)
        for number, (a, b) in enumerate(pieces):
            t = (20 + number) * MS
            wire.comes(t, a, b - a)
            arrived[a:b] = np.minimum(arrived[a:b], t)
        whole = np.maximum.accumulate(arrived)
        expected = [int(whole[HEAD + EVENT * (place + 1) - 1]) // US for place in range(20)]
        assert wire.join(tmp_path / str(turn)).times == expected, turn


def test_a_reused_connection_continues_at_its_offset(tmp_path: Path) -> None:
    wire = Wire()
    wire.open(0)
    begin = 0
    for number in range(3):
        t = (10 + 100 * number) * MS
        wire.request(t, begin=begin, flags=layout.FLAG_STREAM | (layout.FLAG_REUSED if number else 0))
        wire.sends(t + 20 * US, 200 * number)
        answer(wire, [t + 10 * MS, t + 20 * MS, t + 30 * MS, t + 40 * MS], begin=begin)
        begin += HEAD + 4 * EVENT
        wire.comes(t + 41 * MS, begin, 5)  # the last chunk: of no request any more
        begin += 5
    found = wire.join(tmp_path)
    assert found.times == [at + 100_000 * number for number in range(3) for at in (20_000, 30_000, 40_000, 50_000)]
    assert [found.row("t_wire", number=number)[0] for number in range(3)] == [10_020, 110_020, 210_020]


def test_a_port_that_is_used_again_is_another_connection(tmp_path: Path) -> None:
    """The same port, other sequence numbers; a connection without a request lies between."""
    wire = Wire()
    for number, t in enumerate((0, 200 * MS)):
        wire.base = 5_000 + 77_777 * number
        wire.open(t)
        wire.request(t + 10 * MS)
        wire.sends(t + 10 * MS + 20 * US, 0)
        answer(wire, [t + 20 * MS, t + 30 * MS, t + 40 * MS, t + 50 * MS])
        wire.comes(t + 51 * MS, HEAD + 4 * EVENT, 0, FIN)
        wire.base = 999
        wire.open(t + 100 * MS)
    found = wire.join(tmp_path)
    assert found.times == [at + number * 200_000 for number in range(2) for at in (20_000, 30_000, 40_000, 50_000)]
    assert found.facts.unmatched["no_handshake"] == 0


def test_a_connection_without_its_handshake_keeps_its_stamps(tmp_path: Path) -> None:
    wire = simple()
    wire.segments = wire.segments[2:]
    before = [(event["t_ns"] - ZERO) // US for event in wire.events]
    found = wire.join(tmp_path)
    assert found.times == before
    assert found.classes == [layout.STAMP_COALESCED] * 4
    assert found.facts.unmatched["no_handshake"] == 4


def test_handshakes_that_are_repeated_change_nothing(tmp_path: Path) -> None:
    wire = simple()
    again = [(t + 3 * MS, *rest) for t, *rest in wire.segments[:2]]
    wire.segments[2:2] = again
    assert wire.join(tmp_path).times == [20_000, 30_000, 40_000, 50_000]


def test_without_the_sent_handshake_only_the_sending_is_not_known(tmp_path: Path) -> None:
    wire = simple()
    del wire.segments[0]
    found = wire.join(tmp_path)
    assert found.times == [20_000, 30_000, 40_000, 50_000]
    assert int(found.rows["t_wire"][0]) == 0


def test_lost_frames_affect_only_events_that_they_may_contain(tmp_path: Path) -> None:
    """The segment of the second event is missing, and the ring reports it; the third came while frames were still lost."""
    wire = Wire()
    wire.open(0)
    wire.request(10 * MS, events=5, read=[22 * MS, 60 * MS, 60 * MS, 110 * MS, 120 * MS])
    wire.comes(20 * MS, 0, HEAD + EVENT)
    wire.comes(40 * MS, HEAD + 2 * EVENT, EVENT)
    wire.put(45 * MS, 1, 20 * MS // US, LOST)
    wire.comes(100 * MS, HEAD + 3 * EVENT, EVENT)
    wire.comes(110 * MS, HEAD + 4 * EVENT, EVENT)
    found = wire.join(tmp_path)
    assert found.classes == [3, 2, 2, 3, 3]
    assert found.times == [20_000, 60_000, 60_000, 100_000, 110_000]
    assert found.facts.unmatched | {"gap": 1, "lost": 1} == found.facts.unmatched
    assert found.facts.gaps == 1


def test_events_after_an_unexplained_gap_keep_their_stamps(tmp_path: Path) -> None:
    wire = simple()
    del wire.segments[4]  # of the second event
    found = wire.join(tmp_path)
    assert found.classes == [3, 2, 2, 2]
    assert found.facts.unmatched["missing"] == 3
    assert list(found.events["bracket_ns"][1:]) == [990 * MS] * 3, "but what is before it bounds them"


def test_an_event_without_a_time_lies_between_its_neighbours(tmp_path: Path) -> None:
    wire = simple()
    wire.segments[4] = (*wire.segments[4][:6], UNSURE, 0)
    for bracket in (985 * MS, 900 * MS, layout.BRACKET_OPEN):
        for event in wire.events:
            event["bracket_ns"] = bracket
        found = wire.join(tmp_path)
        assert found.classes == [3, 2, 3, 3]
        assert found.times == [20_000, 40_000, 40_000, 50_000], "not after the next one"
        expected = 15 if bracket == 985 * MS else 20
        assert found.events["bracket_ns"][1] == expected * MS, "nor before the one that it follows"


def test_segments_around_a_change_of_the_wall_clock_have_no_time(tmp_path: Path) -> None:
    wire = simple()
    wire.segments = [(*each[:6], each[6] | UNSURE, 0) for each in wire.segments]
    found = wire.join(tmp_path)
    assert found.classes == [layout.STAMP_COALESCED] * 4
    assert int(found.rows["t_wire"][0]) == 0


def test_a_time_after_the_read_is_not_a_match(tmp_path: Path) -> None:
    wire = simple()
    for event in wire.events:
        event["t_ns"] = ZERO + 35 * MS
    wire.rows[0]["t_end_user"] = ZERO + 60 * MS
    found = wire.join(tmp_path)
    assert found.facts.unmatched["contradicted"] == 2


def test_exact_stamps_of_the_kernel_are_compared(tmp_path: Path) -> None:
    wire = simple()
    for event, t in zip(wire.events, (20, 30, 40, 50), strict=True):
        event |= {"t_ns": ZERO + t * MS + 3 * US, "stamp": layout.STAMP_KERNEL, "bracket_ns": 0}
    facts = wire.join(tmp_path).facts.against_kernel_stamps_us
    assert facts.n == 4
    assert facts.max == pytest.approx(3.0, rel=0.01)


def test_an_answer_before_the_end_of_its_submission_is_clamped_and_counted(tmp_path: Path) -> None:
    """On loopback the answer can be stamped before send() has returned."""
    wire = Wire()
    wire.open(0)
    wire.request(10 * MS)
    answer(wire, [10 * MS + 30 * US, 10 * MS + 40 * US, 40 * MS, 50 * MS])
    found = wire.join(tmp_path)
    assert found.times == [10_050, 10_050, 40_000, 50_000]
    assert found.row("t_headers", "t_first") == [10_050, 10_050]
    assert found.rows["flags"][0] & layout.FLAG_CLAMPED


@pytest.mark.parametrize(
    ("fields", "end"),
    [
        ({"error": layout.ERROR_NAMES.index("deadline")}, 1_010_000),
        ({"error": layout.CLIENT_CANCELLED}, 1_010_000),
        ({"error": layout.ERROR_NAMES.index("closed_in_body")}, 70_000),
        ({"error": layout.ERROR_NAMES.index("reset")}, 70_000),
        ({}, 70_000),  # a body as long as the connection
        ({"t_end": ZERO + 1_009 * MS}, 60_000),  # its framing ended it
        ({"flags": layout.FLAG_STREAM | layout.FLAG_DONE, "t_end": ZERO + 1_009 * MS}, 50_000),
    ],
)
def test_the_end_of_a_row_is_the_time_of_its_cause(tmp_path: Path, fields: dict[str, int], end: int) -> None:
    """The last event, the last byte, the peer's close, or the client."""
    wire = simple()
    wire.rows[0] |= {"bytes_received": HEAD + 4 * EVENT + 5, **fields}
    wire.comes(60 * MS, HEAD + 4 * EVENT, 5)
    wire.comes(70 * MS, HEAD + 4 * EVENT + 5, 0, FIN)
    assert wire.join(tmp_path).row("t_end") == [end]


def test_a_reset_ends_an_answer(tmp_path: Path) -> None:
    wire = Wire()
    wire.open(0)
    wire.request(
        10 * MS, events=0, read=[], error=layout.ERROR_NAMES.index("closed_before_response"), head_end=0, t_headers=0
    )
    wire.comes(30 * MS, 0, 0, RST)
    assert wire.join(tmp_path).row("t_end") == [30_000]


def test_targets_and_ports_are_distinguished(tmp_path: Path) -> None:
    """Two targets, two URLs of the second one, and the same port to both."""
    wire = Wire()
    for number, (url, remote) in enumerate(((0, 0), (1, 1), (2, 1))):
        side = {"remote": remote, "port": 40_000 + (number == 2)}
        wire.base = 1_000 * (number + 1)
        wire.open(0, **side)
        wire.request(10 * MS, url=url, local_port=side["port"])
        wire.sends(10 * MS + number * US, 0, **side)
        answer(wire, [at * MS + number * US for at in (20, 30, 40, 50)], **side)
    wire.request(10 * MS, url=3)  # a Unix socket
    found = wire.join(tmp_path, remote=(0, 1, 1, -1), tls=(False,) * 4)
    assert found.times[:12] == [at * 1_000 + number for number in range(3) for at in (20, 30, 40, 50)]
    assert found.facts.unmatched["not_watched"] == 4


def test_two_addresses_of_this_host_with_one_port_are_not_guessed(tmp_path: Path) -> None:
    """Rows say the port, not the address: where both are open at once no event is given another's time."""
    wire = Wire()
    for local in (0, 1):
        wire.open(local * MS, local=local)
        wire.request((10 + local) * MS)
        answer(wire, [at * MS + local * US for at in (20, 30, 40, 50)], local=local)
    found = wire.join(tmp_path)
    assert found.facts.joined == 0
    assert found.facts.unmatched["ambiguous_port"] == 8


def test_one_address_after_the_other_is_not_a_contradiction(tmp_path: Path) -> None:
    wire = Wire()
    for local in (0, 1):
        t = 100 * MS * local
        wire.open(t, local=local)
        wire.request(t + 10 * MS)
        answer(wire, [t + at * MS for at in (20, 30, 40, 50)], local=local)
        wire.comes(t + 60 * MS, HEAD + 4 * EVENT, 0, FIN, local=local)
    assert wire.join(tmp_path).facts.joined == 8


def encrypted(read: list[int], brackets: list[int]) -> Wire:
    """Segments at 20, 30, 40 and 50 ms, whose bytes say nothing of plain offsets; events read at *read*."""
    wire = Wire()
    wire.open(0)
    wire.sends(MS, 0, 500)
    wire.comes(2 * MS, 0, 3_000)  # the TLS handshake
    wire.request(10 * MS, read=read)
    wire.sends(10 * MS + 20 * US, 500)
    for place, at in enumerate((20, 30, 40, 50)):
        wire.comes(at * MS, 3_000 + 90 * place, 90)
    for event, bracket in zip(wire.events, brackets, strict=True):
        event |= {"stamp": layout.STAMP_USER, "bracket_ns": bracket}
    return wire


def test_an_encrypted_event_has_the_only_segment_of_its_bracket(tmp_path: Path) -> None:
    wire = encrypted([21 * MS, 31 * MS, 41 * MS, 51 * MS], [layout.BRACKET_OPEN, 10 * MS, 10 * MS, 10 * MS])
    found = wire.join(tmp_path, tls=(True,))
    assert found.times == [20_000, 30_000, 40_000, 50_000]
    assert found.classes == [layout.STAMP_TAP] * 4
    assert found.row("t_wire", "t_headers", "t_first", "t_last", "t_end") == [10_020, 20_000, 20_000, 50_000, 50_000]


def test_an_encrypted_event_does_not_get_the_segment_of_the_previous_read(tmp_path: Path) -> None:
    """Brackets begin a little before the read before: its segment is not the next event's."""
    wire = encrypted([21 * MS, 31 * MS, 41 * MS, 51 * MS], [12 * MS] * 4)
    found = wire.join(tmp_path, tls=(True,))
    assert (found.times, found.facts.joined) == ([20_000, 30_000, 40_000, 50_000], 4)


def test_several_segments_narrow_an_encrypted_bracket(tmp_path: Path) -> None:
    wire = encrypted([21 * MS, 45 * MS, 45 * MS, 60 * MS], [10 * MS, 24 * MS, 24 * MS, 15 * MS])
    found = wire.join(tmp_path, tls=(True,))
    assert found.times == [20_000, 40_000, 40_000, 50_000]
    assert [int(b) // MS for b in found.events["bracket_ns"]] == [0, 10, 10, 0]
    assert found.classes == [3, 2, 2, 3]
    assert (found.facts.joined, found.facts.narrowed) == (2, 2)


def test_an_encrypted_bracket_in_which_the_ring_lost_frames_stays(tmp_path: Path) -> None:
    wire = encrypted([21 * MS, 45 * MS, 45 * MS, 60 * MS], [10 * MS, 24 * MS, 24 * MS, 15 * MS])
    wire.put(44 * MS, 1, 2_000, LOST)
    found = wire.join(tmp_path, tls=(True,))
    assert found.times == [20_000, 45_000, 45_000, 50_000]
    assert found.facts.unmatched["lost"] == 2


def test_without_files_nothing_is_joined_and_wrong_files_are_reported(tmp_path: Path) -> None:
    rows, events = np.zeros(1, layout.REQUEST), np.zeros(0, layout.EVENT)
    first = np.zeros(2, np.int64)
    assert join_tap(tmp_path, rows, events, first) == {}
    (tmp_path / SEGMENTS).write_bytes(b"")
    write_watched(tmp_path, Watched(remote=(0,), tls=(False,)))
    assert join_tap(tmp_path, rows, events, first)[None].events == 0
    for text in ("{", "[]", '{"remote": [0], "tls": []}', '{"remote": [99999999], "tls": [false]}'):
        (tmp_path / WATCHED).write_text(text)
        with pytest.raises(RunFolderError, match=WATCHED):
            join_tap(tmp_path, rows, events, first)


def test_segments_of_each_host_are_joined_to_its_own_rows(tmp_path: Path) -> None:
    """Two hosts used the same port at the same time by their own clocks, with answers at other times."""
    wires = [simple(), Wire()]
    wires[1].open(0)
    wires[1].request(10 * MS)
    wires[1].sends(10 * MS + 20 * US, 0)
    answer(wires[1], [21 * MS, 32 * MS, 43 * MS, 54 * MS])
    parts = [wire.arrays() for wire in wires]
    alone = [wire.join(tmp_path / f"alone-{number}") for number, wire in enumerate(wires)]
    rows, events = (np.concatenate([part[k] for part in parts]) for k in range(2))
    rows["worker"], events["row"] = [0, 1], [0] * 4 + [1] * 4
    for number, wire in enumerate(wires):
        wire.write(tmp_path / "hosts" / str(number))
    hosts = [HostEntry(host=number, workers=(number,)) for number in range(2)]
    facts = join_tap(tmp_path / "workers", rows, events, np.array([0, 4, 8]), hosts)
    counts = {number: (each.events, each.joined, each.requests_timed) for number, each in facts.items()}
    assert counts == {None: (8, 8, 2), 0: (4, 4, 1), 1: (4, 4, 1)}
    assert events["t_ns"].tolist() == [*alone[0].events["t_ns"], *alone[1].events["t_ns"]]
    assert rows["t_wire"].tolist() == [int(one.rows["t_wire"][0]) for one in alone]
    (tmp_path / "hosts" / "1" / WATCHED).unlink()
    rest = join_tap(tmp_path / "workers", rows, events, np.array([0, 4, 8]), hosts)
    assert {number: each.events for number, each in rest.items()} == {None: 4, 0: 4}


def test_the_tap_of_a_run_has_the_sums_of_its_hosts() -> None:
    """Of a host that was lost there is only what was joined; a host without a ring has none."""
    rings = [
        {"interface": None, "segments": 40, "drops": 1, "other_frames": {"cut": 2}, "events": None, "joined": 21},
        {"interface": "lo", "segments": 10, "drops": 0, "other_frames": {"cut": 1, "bad": 4}, "events": None},
    ]
    hosts = [{"host": 0, "tap": rings[0]}, {"host": 2}, {"host": 5}, {"host": 7, "tap": rings[1]}]
    joined = {None: Tap(events=30), 0: Tap(events=20), 2: Tap(events=6), 7: Tap(events=4)}
    found = with_taps(typed({"hosts": hosts}), joined)
    assert [host.tap and host.tap.events for host in found.hosts] == [20, 6, None, 4]
    frames = {"cut": 3, "bad": 4}
    assert found.tap == Tap(segments=50, drops=1, other_frames=frames, events=30, joined=21, matched_share=0.7)
    alone = with_taps(typed({"tap": {"segments": 3}}), {None: Tap(events=2)})
    assert alone.tap == Tap(segments=3, events=2)
    assert with_taps(RunDocument(), {}) == RunDocument()


def test_bytes_at_random_are_joined_or_not(tmp_path: Path) -> None:
    """Random bytes as a capture do not change the order and raise no error."""
    draw = np.random.default_rng(2)
    for turn in range(50):
        wire = simple()
        noise = draw.integers(0, 256, segment_dtype().itemsize * 500, np.uint8).view(segment_dtype())
        noise["port"], noise["remote"], noise["local"] = 40_000, 0, 0
        noise["t_ns"] = ZERO + draw.integers(0, 1_000 * MS, 500)
        noise["flags"] &= 0x1F
        wire.segments = sorted([*wire.segments, *noise.tolist()])
        found = wire.join(tmp_path / str(turn))
        assert (np.diff(found.events["t_ns"]) >= 0).all()
        assert found.row("t_submit")[0] <= found.row("t_headers")[0] <= found.times[0]
