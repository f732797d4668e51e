"""Over gRPC, on a server that is an implementation of its own, every figure is what that server noted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("grpc", reason="needs grpcio")

from certificates import certificate
from commands import command
from grpc_server import KSERVE, Asked, grpc_server, listed

from fastllmload.metrics.tokens.counts import count_tokens
from fastllmload.records.layout import ERROR_NAMES, FINISH_NAMES, STATUS_NAMES
from fastllmload.records.run import Run, load

LOAD = ["--rate", "60", "--duration", "2", "--isl", "24", "--osl", "12", "--warmup", "4", "--seed", "7", "--workers", "1",
        "--ui", "none"]  # fmt: skip
TYPES = {
    "vllm-grpc": ("--prompt-form", "ids"),
    "vllm-grpc text": (),
    "vllm-grpc whole": ("--no-stream", "--prompt-form", "ids"),
    "sglang-grpc": ("--prompt-form", "ids"),
    "kserve-grpc": (),
}
CONTENT = 3  # delta.EventKind


def measured(folder: Path, name: str, port: int, *more: str, scheme: str = "http") -> tuple[Run, str]:
    url = f"{scheme}://127.0.0.1:{port}"
    done = command("--endpoint-type", name, "--url", url, "-o", folder, *LOAD, *more)
    assert done.returncode in (0, 1), done.stderr
    return load(folder), done.stdout + done.stderr


def joined(run: Run, log: dict[str, Asked]) -> list[tuple[np.void, np.ndarray, np.ndarray, Asked]]:
    """(row, times and tokens of its content events, what the server noted) of each measured request."""
    number = next(phase["number"] for phase in run.manifest["phases"] if phase["name"] == "measure")
    noted = {tuple(map(int, ident.split("-")[-2:])): one for ident, one in log.items() if "probe" not in ident}
    found = []
    for r in np.flatnonzero(run.rows["phase"] == 1):
        row = run.rows[r]
        own = slice(run.first_event[r], run.first_event[r + 1])
        content = run.event_kind[own] == CONTENT
        tokens: Any = run.event_tokens[own][content]
        found.append((row, run.event_t[own][content], tokens, noted[number, int(row["request"])]))
    return found


@pytest.mark.parametrize("case", TYPES)
def test_figures_are_the_servers_own(tmp_path: Path, case: str) -> None:
    """Ids, lengths, usage, tokens and statuses are equal; nothing came before it was sent, or was sent after it came."""
    name = case.split()[0]
    with grpc_server() as (port, engine):
        run, said = measured(tmp_path / "run", name, port, *TYPES[case])
    pairs = joined(run, engine.log)
    assert len(pairs) > 60
    for row, times, tokens, one in pairs:
        assert (STATUS_NAMES[row["status"]], FINISH_NAMES[row["finish"]], one.status) == ("ok", "length", 0), said
        assert (int(row["output_target"]), one.ignore_eos, one.stream) == (one.tokens, True, "whole" not in case)
        if isinstance(one.prompt, list):
            assert len(one.prompt) == row["input_target"]
        else:
            assert len(one.prompt.split()) == row["input_target"]
        assert row["prompt_tokens"] == len(one.prompt)
        assert row["cached_tokens"] == {"vllm-grpc": 2 * ("whole" not in case), "sglang-grpc": 1}.get(name, -1)
        assert row["bytes_sent"] > len(one.body)
        assert one.metadata["x-fastllmload-request"].endswith(one.ident)
        assert tokens.sum() == one.tokens and len(times) == len(one.sent)
        assert row["t_submit_start"] <= one.came
        assert (times >= np.array(one.sent)).all() and row["t_end"] >= times[-1]
    counts = count_tokens(run).output[run.rows["phase"] == 1]
    assert list(counts) == [one.tokens for *_, one in pairs]


def test_sessions_are_named_in_metadata(tmp_path: Path) -> None:
    """Each call has the headers that it would have over HTTP."""
    given = ["--prompt-form", "ids", "--session-header", "X-Session: {session} {final}", "--affinity", "smg"]
    with grpc_server() as (port, engine):
        run, _ = measured(tmp_path / "run", "vllm-grpc", port, *given)
    for row, _, _, one in joined(run, engine.log):
        name = one.ident.rpartition("-")[0] + f"-s{row['session']}"
        assert (one.metadata["x-session"], one.metadata["x-smg-routing-key"]) == (f"{name} true", name)


def test_figures_over_tls(tmp_path: Path) -> None:
    """HTTP/2 by ALPN: what came over TLS is what was sent."""
    import grpc

    chain, key = certificate(tmp_path, "server")
    credentials = grpc.ssl_server_credentials([(key.read_bytes(), chain.read_bytes())])
    with grpc_server(credentials=credentials) as (port, engine):
        run, said = measured(
            tmp_path / "run", "sglang-grpc", port, "--prompt-form", "ids", "--insecure", scheme="https"
        )
    for row, times, tokens, one in joined(run, engine.log):
        assert STATUS_NAMES[row["status"]] == "ok", said
        assert tokens.sum() == one.tokens and (times >= np.array(one.sent)).all()


def test_the_probe_says_what_the_server_said(tmp_path: Path) -> None:
    """A method that a server lacks, and a status before the first token, end the run with a sentence."""
    import grpc

    def refuse(one: Asked, place: int, context: Any) -> None:
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "prompt is empty")

    with grpc_server(disturb=refuse) as (port, _):
        said = refused(tmp_path / "a", "vllm-grpc", port, "--prompt-form", "ids")
        assert "INVALID_ARGUMENT (3): prompt is empty" in said
        said = refused(tmp_path / "b", "vllm-grpc", port, "--prompt-form", "ids", "--endpoint", "/other.Service/Method")
        assert "UNIMPLEMENTED (12)" in said and "does it speak vllm-grpc?" in said


def refused(folder: Path, name: str, port: int, *more: str) -> str:
    done = command("--endpoint-type", name, "--url", f"http://127.0.0.1:{port}", "-o", folder, *LOAD, *more)
    assert done.returncode not in (0, 1)
    return " ".join(done.stderr.split())


def test_failures_are_the_servers_own(tmp_path: Path) -> None:
    """A status after some tokens, with a message that needs percent-encoding, and calls that the server breaks off."""
    import grpc

    def disturb(one: Asked, place: int, context: Any) -> None:
        number = int(one.ident.rsplit("-", 1)[1], 16)
        if "probe" not in one.ident and place == 3 and number % 3 == 1:
            one.status = 13
            context.abort(grpc.StatusCode.INTERNAL, "engine died: 100 % übel")
        if "probe" not in one.ident and place == 0 and number % 3 == 2:
            one.status = 8
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "queue is full")

    with grpc_server(disturb=disturb) as (port, engine):
        run, said = measured(tmp_path / "run", "vllm-grpc", port, "--prompt-form", "ids")
    pairs = joined(run, engine.log)
    assert {one.status for *_, one in pairs} == {0, 8, 13}
    for row, times, _, one in pairs:
        failed = ("stream_error", "grpc_status") if one.status else ("ok", "none")
        assert (STATUS_NAMES[row["status"]], ERROR_NAMES[row["error"]]) == failed
        assert row["error_number"] == one.status and len(times) == len(one.sent)
    texts = {one["text"] for one in run.manifest["error_texts"]["texts"]}
    assert any("INTERNAL (13): engine died: 100 % übel" in text for text in texts), (texts, said)
    assert any("RESOURCE_EXHAUSTED (8): queue is full" in text for text in texts)


@pytest.mark.parametrize("name", ["vllm-grpc", "sglang-grpc", "kserve-grpc"])
def test_a_saved_plan_sends_the_same_messages(tmp_path: Path, name: str) -> None:
    """All but the id of each request."""
    saved = str(tmp_path / "grpc.plan")
    with grpc_server(gap_s=0.001) as (port, engine):
        measured(tmp_path / "drawn", name, port, *TYPES[name], "--save-plan", saved)
        drawn = sorted(without_id(one) for one in engine.log.values() if "probe" not in one.ident)
        engine.log.clear()
        target = ("--endpoint-type", name, "--url", f"http://127.0.0.1:{port}", "-o", tmp_path / "replayed")
        done = command(*target, "--plan", saved, "--warmup", "4", "--ui", "none")
        assert done.returncode in (0, 1), done.stderr
        replayed = sorted(without_id(one) for one in engine.log.values() if "probe" not in one.ident)
    first, second = (load(tmp_path / folder).rows for folder in ("drawn", "replayed"))
    planned = first[first["phase"] == 1], second[second["phase"] == 1]
    same = Counter(drawn) & Counter(replayed)
    assert same.total() >= len(planned[0]) == len(planned[1]) > 60
    assert {STATUS_NAMES[status] for status in planned[1]["status"]} == {"ok"}


@pytest.mark.parametrize(
    ("models", "options", "code"),
    [
        (None, (), "model-missing"), (b"\x0f", (), "model-missing"), ((), (), "model-missing"),
        (((b"a", b"UNAVAILABLE"),), (), "model-missing"), (((b"a", b"READY"), (b"b", b"READY")), (), "model-ambiguous"),
        (((b"a", b"READY"),), ("-m", "b"), "model-not-offered"),
    ],
)  # fmt: skip
def test_models_that_triton_does_not_list(models: Any, options: tuple[str, ...], code: str) -> None:
    """Without a list that can be read, -m is needed; else its name must be in the list."""
    answers = (
        {} if models is None else {KSERVE + "RepositoryIndex": models if isinstance(models, bytes) else listed(*models)}
    )
    with grpc_server(answers=answers) as (port, _):
        done = command(
            "--endpoint-type", "kserve-grpc", "--url", f"http://127.0.0.1:{port}", "--rate", "5", "-n", "3", *options
        )  # fmt: skip
    assert done.returncode == 2 and f"[{code}]" in done.stderr, done.stderr


def without_id(one: Asked) -> bytes:
    ident = one.ident.encode()
    return one.body.replace(bytes([len(ident)]) + ident, b"", 1)
