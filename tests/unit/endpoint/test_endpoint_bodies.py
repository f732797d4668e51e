"""Bodies are the JSON that the OpenAI protocols ask for; paths follow what people write as base URL."""

import json

import pytest

from fastllmload.endpoint import ENDPOINTS
from fastllmload.errors import InputError
from fastllmload.plan.settings import Workload


def body(name, workload=None, prompt='say "hi"\n', tokens=7):
    return json.loads(ENDPOINTS[name].encode_body('m"1', workload or Workload(), prompt, tokens))


def test_chat_body_is_one_user_message_with_usage_asked_for():
    assert body("openai-chat") == {
        "model": 'm"1',
        "messages": [{"role": "user", "content": 'say "hi"\n'}],
        "max_tokens": 7,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.0,
        "ignore_eos": True,
    }


def test_completions_body_without_stream_asks_for_no_stream_options():
    asked = Workload(streaming=False, temperature=None, ignore_eos=False)
    assert body("openai-completions", asked) == {
        "model": 'm"1', "prompt": 'say "hi"\n', "max_tokens": 7, "stream": False,
    }  # fmt: skip


def test_extra_body_replaces_fields_of_the_same_name():
    sent = body("openai-chat", Workload(extra_body='{"temperature": 1, "top_k": 5}'))
    assert (sent["temperature"], sent["top_k"]) == (1, 5)


@pytest.mark.parametrize("extra", ['{"model": 1}', '{"messages": []}', '{"max_tokens": 3}', "[1]", "{"])
def test_extra_body_that_contradicts_other_options_is_refused(extra):
    with pytest.raises(InputError, match="--extra-body"):
        ENDPOINTS["openai-chat"].body_pieces("m", Workload(extra_body=extra))


def test_token_ids_do_not_go_into_chat_messages():
    with pytest.raises(InputError, match="ids"):
        ENDPOINTS["openai-chat"].body_pieces("m", Workload(prompt_form="ids"))


@pytest.mark.parametrize(
    ("base", "path", "models"),
    [
        ("", "/v1/chat/completions", "/v1/models"),
        ("/v1", "/v1/chat/completions", "/v1/models"),
        ("/api/v1/", "/api/v1/chat/completions", "/api/v1/models"),
        ("/v1/chat/completions", "/v1/chat/completions", "/v1/models"),
    ],
)
def test_paths_follow_the_base_url(base, path, models):
    chat = ENDPOINTS["openai-chat"]
    assert (chat.path(base), chat.models_path(base)) == (path, models)
