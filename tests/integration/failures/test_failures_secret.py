"""The API key, a credential header and a password in the URL are nowhere to be seen: not in what is printed, written
or thrown, and not in the process list. `bad_days` looks for the key in all of it, in each of these runs and all others.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from integration.bad_days import COMMAND, EMBEDDED, FAST, KEY, begin, of_process, report, run
from integration.turning_server import turning
from support.canned_server import canned

from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions

SHORT = ("--rate", "20", "--duration", "0.5")
QUICK = ("--isl", "16", "--osl", "8", "--warmup", "0")  # telemetry too: it is a process that knows headers
MODELS = (200, "application/json", b'{"object":"list","data":[{"id":"one"}]}')


@pytest.mark.parametrize("endpoint", ["openai-chat", "anthropic-messages"])
def test_a_run_that_needs_the_key(tmp_path: Path, endpoint: str) -> None:
    """On the command line, where the process blanks it; the server takes no other, so the requests do carry it, in each
    header that the protocol has for it.
    """
    options = (*SHORT, *QUICK, "--endpoint-type", endpoint)
    with SimulatorProcess(SimulatorOptions(ttft_ms=5, itl_ms=2, api_key=KEY)) as server:
        one = begin(tmp_path / "run", "--url", server.url, "--api-key", KEY, *options, OPENAI_API_KEY="")
        one.until_said("measure:")
        assert "--api-key" in of_process(one.process.pid, "cmdline")
        ended = one.end()
    document = ended.kept(0, "done")
    assert document["failed"] == 0
    assert "X-Api-Key" in json.dumps(document["config"]), "the header's name is kept, its value is not"
    assert KEY not in report(ended.folder).stdout


def test_a_header_of_ones_own(tmp_path: Path) -> None:
    """Sent to a server that says it back in every refusal."""
    with turning(500, good=5) as url:
        header = f"Authorization: Basic {KEY}"
        ended = run(tmp_path / "run", "--url", url, "-H", header, *SHORT, *FAST, OPENAI_API_KEY="")
    ended.kept(0, "done")


def test_a_password_in_the_url(tmp_path: Path) -> None:
    """It is refused, because a URL is shown and stored in many places; the refusal does not show it either."""
    ended = run(tmp_path / "run", "--url", f"http://me:{KEY}@127.0.0.1:9/v1", *SHORT)
    ended.refused(2, "me:***@127.0.0.1", "-H 'Authorization: ...'")


def test_a_server_that_says_the_key_back(tmp_path: Path) -> None:
    """Its sentence is quoted in the refusal, without the key."""
    said = json.dumps({"error": {"message": f"bad token Bearer {KEY}, or {KEY.encode().hex()}"}}).encode()
    answers = {"/v1/models": MODELS, "/v1/chat/completions": (400, "application/json", said)}
    with canned(answers) as server:
        ended = run(tmp_path / "run", "--url", f"{server.url}/v1", *SHORT)
    ended.refused(3, "400", "bad token")


def test_wrong_options_next_to_the_key(tmp_path: Path) -> None:
    run(tmp_path / "run", "--api-key", f"{KEY} with a blank", *SHORT).refused(2, "no usable key")
    run(tmp_path / "run", "--url", f"ftp://me:{KEY}@host", *SHORT).refused(2, "ftp")
    run(tmp_path / "run", "-H", f"Authorization Bearer {KEY}", *SHORT).refused(2, "Name: value")


def test_wrong_options_that_contain_an_unknown_secret(tmp_path: Path) -> None:
    """Each is the only place that the key is given in."""
    for options, part in (
        (("--url", f"http://{KEY}@127.0.0.1:9/v1"), "user name or password"),
        (("--url", f"http://127.0.0.1:9/v1?key={KEY}"), "query or fragment"),
        (
            ("--url", "http://127.0.0.1:9", "--telemetry-url", f"http://me:{KEY}@127.0.0.1:9/metrics"),
            "user name or password",
        ),
        (("-H", f"Authorization Bearer {KEY}"), "Name: value"),
        (("--header", KEY), "Name: value"),
    ):
        command = [*COMMAND, "-o", str(tmp_path / "run"), *options, *SHORT]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60, env={**os.environ, "OPENAI_API_KEY": ""}
        )
        assert done.returncode == 2 and part in done.stderr, done.stderr
        assert KEY not in done.stdout + done.stderr


def test_a_header_that_is_secret_by_a_word_of_its_name(tmp_path: Path) -> None:
    """There is no list of every gateway's header; what a name calls key, token or secret is stored without its value."""
    with SimulatorProcess(SimulatorOptions(ttft_ms=5, itl_ms=2)) as server:
        command = [*COMMAND, "-o", str(tmp_path / "run"), "--url", server.url, "-H", f"CF-Access-Client-Secret: {KEY}"]
        done = subprocess.run(
            [*command, "-H", "X-Short-Token: 7", *SHORT, *FAST, "--ui", "plain"],
            capture_output=True, text=True, timeout=90, env={**os.environ, "OPENAI_API_KEY": ""},
        )  # fmt: skip
    assert done.returncode == 0 and KEY not in done.stdout + done.stderr
    for path in [path for path in (tmp_path / "run").rglob("*") if path.is_file()]:
        assert KEY.encode() not in path.read_bytes(), path
    headers = json.loads((tmp_path / "run" / "run.json").read_text())["config"]["target"]["headers"]
    assert headers == [["CF-Access-Client-Secret", "***"], ["X-Short-Token", "***"]]


def test_a_key_in_the_body(tmp_path: Path) -> None:
    """Sent to a server that says the whole body back in every refusal; on the command line of the process, too."""
    body = json.dumps({"api_key": KEY, "more": [{"clientSecret": "7", "top_k": 5}]})
    with turning(500, good=5) as url:
        one = begin(tmp_path / "run", "--url", url, "--extra-body", body, *SHORT, *QUICK, OPENAI_API_KEY="")
        one.until_said("measure:")
        ended = one.end()
    document = ended.kept(0, "done")
    stored = json.loads(document["config"]["workload"]["extra_body"])
    assert stored == {"api_key": "***", "more": [{"clientSecret": "***", "top_k": 5}]}
    assert any("is too much" in each["text"] and "***" in each["text"] for each in document["error_texts"]["texts"])
    assert KEY not in report(ended.folder).stdout
    options = ("--extra-body", body[:-1], *SHORT)
    run(tmp_path / "wrong", *options).refused(2, "--extra-body '***' is not JSON")


BUG = """
import sys
from fastllmload.cli.main import main
from fastllmload.engine import run

def preflight(settings, urls, secret, *more, **named):
    held = secret.reveal()
    raise RuntimeError(f"the server at {urls} does not like {held} ({held!r})") from ValueError(held)

run.preflight = preflight
sys.exit(main())
"""


def test_a_bug_of_our_own_shows_its_trace_without_the_key(tmp_path: Path) -> None:
    ended = run(tmp_path / "run", *SHORT, *EMBEDDED, program=(sys.executable, "-c", BUG))
    assert ended.code == 70 and ended.document is None
    assert "Traceback" in ended.err and "ValueError: ***" in ended.err
    assert len(ended.sentences) == 1 and "[internal-error]" in ended.sentences[0]
