"""Which backend answered: counts, moves and caches of the report against the truth log of the servers."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import command
from truth.truth_bench import Measured, measure

from fastllmload.export.rows import record_blocks
from fastllmload.records.run import load
from fastllmload.report.text.traffic import backend_texts
from fastllmload.simulator.truth import load as load_truth

TRANSPORTS = pytest.mark.parametrize(
    "transport", [[], ["--http-version", "2"], ["--insecure"], ["--insecure", "--http-version", "2"]],
    ids=["http1", "http2", "http1-tls", "http2-tls"],
)  # fmt: skip
WORKERS = pytest.mark.parametrize("workers", ["1", "2"])
LOAD = ["--isl", "48", "--osl", "4", "--seed", "7", "--no-telemetry", "--warmup", "6"]
TURNS = ["--rate", "60", "-n", "60", "--turns", "uniform:1,4"]
CONSTANT: dict[str, Any] = {"ttft_ms": 1.0, "itl_ms": 1.0, "phase": "spread"}
# What vLLM's router hashes, the first that a request has (its docs/load_balancing).
HASHED = ("X-Session-ID", "X-User-ID", "X-Tenant-ID", "X-Request-ID", "body:user", "body:session_id")


def sent(directory: Path, options: list[str], **simulator: Any) -> Measured:
    given = {"backends": 4, **simulator}
    measured = measure(directory, [*LOAD, *options], tls="--insecure" in options, pin=False, **given)
    assert measured.exit_code == 0, measured.said
    return measured


def truth_of(measured: Measured) -> dict[int, tuple[str | None, np.void]]:
    """By request of the measured phase: the name in the note of the engine, and its row in the log."""
    number = next(phase["number"] for phase in measured.run.manifest["phases"] if phase["name"] == "measure")
    found = {}
    for one in measured.truth.requests[measured.truth.requests["phase"] == number]:
        note = dict(
            line.split(": ", 1) for line in measured.truth.notes.get(int(one["serial"]), "").split("\n") if line
        )
        found[int(one["key"])] = (note.get("backend"), one)
    return found


def check(measured: Measured) -> dict[str, Any]:
    """All counts against the truth; returns `backends` of run.json."""
    rows = measured.run.rows[(measured.run.rows["phase"] == 1) & (measured.run.rows["t_dispatch"] > 0)]
    theirs, figures = truth_of(measured), measured.document["backends"]
    names = {request: name for request, (name, _) in theirs.items()}
    assert {int(row["request"]) for row in rows} == names.keys()
    counts = Counter(names.values())
    assert {one["name"]: one["sent"] for one in figures["each"]} == dict(counts)
    assert (figures["named"], figures["unnamed"], figures["servers"]) == (len(rows), 0, len(counts))
    assert figures["max_over_mean"] == pytest.approx(max(counts.values()) * len(counts) / len(rows))
    for one in figures["each"]:
        logged = [row for name, row in theirs.values() if name == one["name"]]
        good = [row for row in logged if row["status"] == 200 and not row["fault"]]
        assert (one["ok"], one["failed"]) == (len(good), len(logged) - len(good))
        assert sum(error["count"] for error in one["errors"]) == one["failed"]
        assert one["output_tokens"] == sum(int(row["output_tokens"]) for row in good)
        assert one["cached_tokens"] == sum(int(row["cached_tokens"]) for row in good)
        assert one["share"] == pytest.approx(len(logged) / len(rows))
        streamed = measured.run.document.plan.description.streaming is not False
        assert one["ttft"]["n"] == len(good) and one["tpot"]["n"] == len(good) * streamed
        assert one["itl"]["n"] == sum(int(row["output_tokens"]) - 1 for row in good) * streamed
        assert one["success_rate"] == len(good) / len(logged)
    for rate in ("req_s", "output_tok_s"):
        of_all = measured.document["metrics"][rate]["value"]
        assert sum(one[rate] for one in figures["each"]) == pytest.approx(of_all)
    check_moves(measured, theirs)
    exported = [record for block in record_blocks(measured.run) for record in block if record["phase"] == "measure"]
    assert [record["backend"] for record in exported] == [names[request] for request in sorted(names)]
    again = load(measured.run.directory)
    assert backend_texts(again.document) == backend_texts(measured.run.document)
    return dict(figures)


def check_moves(measured: Measured, theirs: dict[int, tuple[str | None, np.void]]) -> None:
    rows = measured.run.rows[(measured.run.rows["phase"] == 1) & (measured.run.rows["t_dispatch"] > 0)]
    of_session: dict[int, list[int]] = {}
    for row in sorted(rows, key=lambda row: (row["session"], row["turn"])):
        of_session.setdefault(int(row["session"]), []).append(int(row["request"]))
    stayed: list[np.void] = []
    moved: list[np.void] = []
    for requests in of_session.values():
        for before, after in pairwise(requests):
            (stayed if theirs[before][0] == theirs[after][0] else moved).append(theirs[after][1])
    found = measured.document["backends"]["moves"]
    assert (found["compared"], found["stayed"], found["moved"]) == (len(stayed) + len(moved), len(stayed), len(moved))
    several = Counter(len({theirs[request][0] for request in requests}) for requests in of_session.values())
    assert {one["backends"]: one["sessions"] for one in found["by_backends"]} == dict(several)
    assert (found["sessions"], found["sessions_moved"]) == (len(of_session), len(of_session) - several[1])
    for name, these in (("stayed", stayed), ("moved", moved)):
        cached, prompts = (sum(int(one[of]) for one in these) for of in ("cached_tokens", "prompt_tokens"))
        assert found[f"cached_share_{name}"] == (pytest.approx(cached / prompts) if these else None)
        assert found[f"ttft_{name}"]["n"] == sum(one["status"] == 200 and not one["fault"] for one in these)


@TRANSPORTS
@WORKERS
def test_counts_and_moves_are_the_servers(tmp_path: Path, transport: list[str], workers: str) -> None:
    """A router that sends requests in turn: most turns move. Streamed and not."""
    stream = ["--no-stream"] * (workers == "2" and bool(transport))
    found = check(
        sent(tmp_path / "run", [*TURNS, *transport, *stream, "--workers", workers, "--backend-header", "X-Backend"])
    )
    assert found["moves"]["moved"] > found["moves"]["stayed"] and found["header"] == "X-Backend"


@TRANSPORTS
def test_failed_requests_have_their_backend(tmp_path: Path, transport: list[str]) -> None:
    """A refusal of the server itself names it, too; another turn follows none."""
    options = ["--rate", "150", "-n", "150", *transport, "--backend-header", "x-served-by"]
    measured = sent(tmp_path / "run", options, backend_header="x-served-by", faults=("status:0.2:503",), **CONSTANT)
    found = measured.document["backends"]
    logged = truth_of(measured)
    failures = Counter(name for name, row in logged.values() if row["status"] == 503)
    assert failures and {one["name"]: one["failed"] for one in found["each"] if one["failed"]} == dict(failures)
    assert {one["name"]: one["sent"] for one in found["each"]} == dict(Counter(name for name, _ in logged.values()))
    assert found["moves"] is None, "requests stand alone"


@pytest.mark.parametrize(
    ("options", "together"),
    [
        (["--affinity", "vllm"], True),
        (["--affinity", "generic"], True),
        (["--session-body", "user: {session}"], True),  # our own id of the request is not hashed
        (["--session-body", "user: {session}", "--session-header", "X-Request-ID: {request}"], False),
        ([], False),
    ],
)
def test_sessions_stay_where_the_router_keeps_them(tmp_path: Path, options: list[str], together: bool) -> None:
    found = check(
        sent(
            tmp_path / "run",
            [*TURNS, *options, "--workers", "2", "--backend-header", "x-backend"],
            backends=8, routed_by=HASHED,
        )
    )  # fmt: skip
    assert (found["moves"]["moved"] == 0) == together and found["servers"] == 8
    if together:
        assert found["moves"]["by_backends"] == [{"backends": 1, "sessions": found["moves"]["sessions"]}]


def test_engines_apart_have_caches_of_their_own(tmp_path: Path) -> None:
    """Two processes at one port: the log of which has a request is the truth. A turn that moved finds less in the cache."""
    measured = sent(
        tmp_path / "run", [*TURNS, "--fresh-connections", "--backend-header", "x-backend"], backends=1, processes=2
    )
    found = check(measured)
    second = load_truth(tmp_path / "run" / "truth.bin.1").requests
    number = next(phase["number"] for phase in measured.run.manifest["phases"] if phase["name"] == "measure")
    of_second = int((second["phase"] == number).sum())
    assert {one["name"]: one["sent"] for one in found["each"]} == {
        "backend-0": found["named"] - of_second,
        "backend-1": of_second,
    }
    moves = found["moves"]
    assert moves["moved"] > 10 and moves["stayed"] > 10
    assert moves["cached_share_moved"] < moves["cached_share_stayed"]


def test_a_token_and_the_backend_from_one_header(tmp_path: Path) -> None:
    """One header can be both, as tokens of some routers are the encoded backend; each answer has a new one here."""
    options = [*TURNS, "--session-token", "x-token", "--backend-header", "X-Token"]
    measured = sent(tmp_path / "run", options, session_token="x-token", **CONSTANT)
    number = next(phase["number"] for phase in measured.run.manifest["phases"] if phase["name"] == "measure")
    answered = {
        int(one["key"]): measured.truth.notes[int(one["serial"])].split("answered: ")[1].split("\n")[0]
        for one in measured.truth.requests
        if one["phase"] == number
    }
    exported = [record for block in record_blocks(measured.run) for record in block if record["phase"] == "measure"]
    assert [record["backend"] for record in exported] == [answered[request] for request in sorted(answered)]
    assert measured.document["backends"]["moves"]["stayed"] == 0


def test_more_names_than_there_is_room_for(tmp_path: Path) -> None:
    """They are counted together, and said to be no names of servers."""
    options = ["--rate", "inf", "-n", "6000", "--concurrency", "64", "--backend-header", "x-token", "--warmup", "0"]
    measured = measure(
        tmp_path / "run", ["--isl", "4", "--osl", "1", "--no-telemetry", *options[2:], "--workers", "1"],
        pin=False, session_token="x-token", null=True,
    )  # fmt: skip
    assert measured.exit_code == 0, measured.said
    found = measured.document["backends"]
    assert (found["named"], found["servers"], len(found["each"])) == (6000, 4096, 256)
    assert found["each"][0]["name"] is None and found["each"][0]["sent"] == 6000 - 4095
    assert f"{6000 - 4095:,} requests" in found["caveat"]


def test_a_header_that_answers_do_not_have(tmp_path: Path) -> None:
    measured = sent(tmp_path / "run", [*TURNS, "--backend-header", "x-absent"], **CONSTANT)
    found = measured.document["backends"]
    assert (found["named"], found["servers"], found["each"], found["max_over_mean"]) == (0, 0, [], None)
    assert found["unnamed"] == measured.document["counts"]["dispatched"]
    assert backend_texts(measured.run.document) == ["no answer has the header x-absent"]
    assert "[backend-header-absent]" in measured.said
    report = command("report", str(measured.run.directory))
    assert report.returncode == 0 and "x-absent" in report.stdout
