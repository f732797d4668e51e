"""Secrets are found in an argument list, and gone from the process list of a process that lives on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fastllmload.cli.argv import secrets_of

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("arguments", "secrets"),
    [
        (["--api-key", "K1"], ["K1"]),
        (["--api-key=K1", "--rate", "5"], ["K1"]),
        (["-H", "Authorization: Bearer K2"], ["Bearer K2", "K2"]),
        (["-HX-Api-Key: K3"], ["K3"]),
        (["--header=Cookie: a=b"], ["a=b"]),
        (["-H", "X-Tag: public"], []),
        (["-u", "http://me:K4@host"], ["K4"]),
        (["--base-url=http://me:K4@host/v1"], ["K4"]),
        (["--url", "http://host"], []),
        (["--class", "chat rate=1 url=http://me:K5@host"], ["K5"]),
        (["--class=chat header='Cookie: a=b' url=http://host"], ["a=b"]),
        (["--class", "chat header='X-Api-Key: K6 rate=1"], ["K6"]),
        (["--class", "chat rate=1 header='X-Tag: public'"], []),
        (["--extra-body", '{"api_key": "K7", "top_k": 5}'], ["K7"]),
        (['--extra-request-body={"a": {"token": "K8"}}'], ["K8"]),
        (["--class", """chat rate=1 extra-body='{"api_key": "K9"}'"""], ["K9"]),
        (["--vary", 'extra-body={"api_key":"Ka"},{"api_key":"Kb"}'], ['{"api_key":"Ka"},{"api_key":"Kb"}']),
        (["--vary", "header=X-Api-Key: Kc"], ["Kc"]),
        (["--vary", "rate=1,2"], []),
        (["--api-key"], []),
        (["--model", "--api-keys"], []),
    ],
)
def test_secrets_are_found(arguments, secrets):
    assert secrets_of(arguments) == secrets


LIVES_ON = """
import sys
from fastllmload.cli.main import main

class Run:
    @staticmethod
    def execute(settings, secret, ui, placement=None):
        print(secret.reveal() if secret is not None else "no key", *sys.argv, *sys.orig_argv, flush=True)
        sys.stdin.readline()
        return 0

sys.modules["fastllmload.engine.run"] = Run
sys.exit(main())
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["--api-key", "sk-very-secret"],
        ["--api-key=sk-very-secret"],
        ["--api-key", "sk-very-secret", "-H", "Cookie: sk-very-secret"],
        ["--api-key", "sk-very-secret", "--extra-body", '{"token": "sk-very-secret", "key": 4711}'],
    ],
)
def test_the_process_list_does_not_show_the_key(arguments):
    """The key is blanked in place: /proc/<pid>/cmdline keeps its length and all other words."""
    command = [sys.executable, "-c", LIVES_ON, "--rate", "5", *arguments, "--seed", "7"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        said = process.stdout.readline()
        shown = Path(f"/proc/{process.pid}/cmdline").read_bytes()
        process.communicate("go\n", timeout=20)
    key, _, own = said.partition(" ")
    assert key == "sk-very-secret"
    assert "sk-very-secret" not in own and "4711" not in own and b"4711" not in shown
    assert b"sk-very-secret" not in shown
    assert shown.endswith(b"\0--seed\x007\0")
    assert shown.count(b"*" * len("sk-very-secret")) >= 1
    assert process.returncode == 0
