"""The table of routes, and what is removed from pages of servers."""

import pytest
from refusals import raises_code

from fastllmload.engine.control.credentials import without_credentials
from fastllmload.engine.control.kinds import EMPTYING, END, Route, kinds, route_of
from fastllmload.records.server_info import changes, steady
from fastllmload.redact import Redactor, request_secrets
from fastllmload.settings import CONTROL_VERBS, CONTROLLED
from fastllmload.telemetry.servers import ENGINES


def test_the_table_has_the_kinds_and_verbs_that_the_options_name():
    assert tuple(kinds()) == CONTROLLED
    for kind in kinds().values():
        assert set(kind.verbs) <= {*CONTROL_VERBS, f"profile{END}"}
        assert set(kind.absent) <= set(kind.verbs)
        assert ("profile" in kind.verbs) == (f"profile{END}" in kind.verbs)
        assert ("sleep" in kind.verbs) == ("wake" in kind.verbs)
    assert set(EMPTYING) <= set(CONTROL_VERBS)


def test_every_kind_is_known_by_its_page():
    known = {engine.name for engine in ENGINES}
    assert all(set(kind.engines) <= known and kind.engines for kind in kinds().values())


def test_a_route_has_alternatives_and_may_be_optional():
    assert route_of("POST /a | POST /b, if there") == Route("POST", "/a", (Route("POST", "/b"),), optional=True)
    assert route_of("GET /a?b=c") == Route("GET", "/a?b=c")

    body = '{"tags": ["model", "kv_cache"]}'
    assert kinds()["tensorrt-llm"].routes("sleep") == (Route("POST", "/release_memory", body=body),)
    assert kinds()["tensorrt-llm"].routes("wake")[0].text == "POST /resume_memory"


@pytest.mark.parametrize("verb", ["reset-cache", "flush", "profile"])
def test_tensorrt_llm_has_no_route_to_empty_or_profile(verb):
    with raises_code("control-unsupported", f"--between {verb}", "TensorRT-LLM"):
        kinds()["tensorrt-llm"].routes(verb)


def test_credentials_in_texts_and_fields():
    known = Redactor(["sesame-1234"])
    assert without_credentials({"a_token": "x", "n": 5, "text": "sesame-1234 is open"}, known) == {
        "a_token": "***", "n": 5, "text": "*** is open",
    }  # fmt: skip
    line = "vllm serve m --api-key=abc --hf-token abc --max-num-seqs 8 API_KEY=abc tokenizer=t"
    hidden = "vllm serve m --api-key=*** --hf-token *** --max-num-seqs 8 API_KEY=*** tokenizer=t"
    assert without_credentials([line], known) == [hidden]
    assert without_credentials("args: {'api_key': 'abc', 'port': 80}", known) == "args: {'api_key': '***', 'port': 80}"


def test_secrets_of_a_request():
    assert request_secrets("POST http://u:pass@h/x?timeout=30&api_key=abc") == ["pass", "abc"]
    assert request_secrets("reset-cache") == []


def test_changes_without_what_changes_by_itself():
    before = {"a": {"b": 1, "state": 5}, "c": [1, {"state": 1}]}
    after = {"a": {"b": 2, "state": 6}, "c": [1, {"state": 2}], "d": None}
    assert changes(steady(before, ["state"]), steady(after, ["state"])) == ["a.b: 1 -> 2", "d: missing -> null"]
    many = changes({}, {str(n): n for n in range(30)})
    assert len(many) == 21 and many[-1] == "and 10 more"
