"""The message about failed warm-up requests, and the distinction between an unreachable target and one that refuses."""

import socket

import pytest

from fastllmload.engine.warmup_check import WarmUpCheck, unreachable
from fastllmload.engine.workers.spec import TargetSpec


def target(family, address, port=0, url="http://a/v1"):
    return TargetSpec(url=url, family=family, address=address, port=port, head_prefix="")


@pytest.fixture
def listening(tmp_path):
    """Endpoints that accept connections: a TCP port, a Unix socket; and a closed TCP port."""
    with socket.create_server(("127.0.0.1", 0)) as inet, socket.socket(socket.AF_UNIX) as local:
        local.bind(str(tmp_path / "socket"))
        local.listen()
        with socket.create_server(("127.0.0.1", 0)) as closed:
            gone = closed.getsockname()[1]
        yield inet.getsockname()[1], str(tmp_path / "socket"), gone


def test_a_warm_up_without_failures_has_no_sentence():
    assert WarmUpCheck(ended=10, failed=0, classes={}).sentence() is None
    assert WarmUpCheck(ended=0, failed=0, classes={}).sentence() is None


@pytest.mark.parametrize(
    ("warmup", "lost", "values"),
    [
        (
            WarmUpCheck(1_200, 7, {"http_status": 7}),
            (),
            ["7 of the 1,200", "(http_status 7)"],
        ),
        (
            WarmUpCheck(40, 20, {"connect_refused": 19, "reset": 1}, {"http://b/v1": 20}),
            (),
            ["20 of the 40", "(connect_refused 19, reset 1; at http://b/v1 20)"],
        ),
        (
            WarmUpCheck(3, 3, {"connect_refused": 3}),
            ("http://a/v1",),
            ["all 3", "(connect_refused 3)", "http://a/v1"],
        ),
    ],
)
def test_the_sentence(warmup, lost, values):
    sentence = warmup.sentence(lost)
    assert [value for value in values if value not in sentence] == []


def test_one_target_that_accepts_connections_is_enough(listening):
    port, path, gone = listening
    closed = target("inet", "127.0.0.1", gone)
    assert unreachable([closed, target("inet", "127.0.0.1", port)]) == []
    assert unreachable([closed, target("unix", path)], "127.0.0.1") == []
    assert unreachable([target("inet", "127.0.0.1", port)], "127.0.0.1") == []


def test_unreachable_targets_are_named_once_each(listening, tmp_path):
    _, _, gone = listening
    found = unreachable(
        [
            target("inet", "127.0.0.1", gone, url="http://a/v1"),
            target("inet", "127.0.0.1", gone, url="http://a/v1"),
            target("unix", str(tmp_path / "missing"), url="http://localhost"),
        ]
    )
    assert found == ["http://a/v1", "http://localhost"]
