"""Content and description of plans of each workload and prompt form."""

from __future__ import annotations

import base64
import json
import random
import struct
from collections import Counter

import pytest
from refusals import raises_code, says
from support.document_keys import undeclared

from fastllmload.cli.options.parsers import images
from fastllmload.documents.plan import ExactPrompts, PlanDescription, SkippedLengths, TokenizerFacts
from fastllmload.documents.write import plain
from fastllmload.endpoint import ENDPOINTS
from fastllmload.errors import InputError
from fastllmload.plan.build import build_plan, check_context_limit
from fastllmload.settings import Client, Load, RunSettings, Target, Workload
from fastllmload.workload.tokenizers.tokenizer import load_tokenizer

pytestmark = pytest.mark.slow

SHAREGPT = [
    {"conversations": [{"from": "human", "value": f"question {n}"}, {"from": "gpt", "value": "answer" + " answer" * n}]}
    for n in range(30)
]


def planned(directory, count=60, endpoint="openai-chat", **workload):
    settings = RunSettings(
        target=Target(endpoint_type=endpoint),
        load=Load(rate=10.0, num_requests=count),
        workload=Workload(**workload),
        client=Client(seed=42),
    )
    return build_plan(settings, phase="measure", endpoint=ENDPOINTS[endpoint], model="m", out_dir=directory)


def said(plan):
    return plan.description.workload


def sent(plan):
    return [json.loads(plan.body(number)) for number in range(plan.requests)]


def prompts(plan):
    """The text of each request's last message or prompt."""
    return [body["prompt"] if "prompt" in body else body["messages"][-1]["content"] for body in sent(plan)]


@pytest.mark.parametrize(
    ("endpoint", "workload", "form"),
    [
        ("openai-chat", {}, "words"),
        ("openai-chat", {"tokenizer": "o200k_base"}, "words"),
        ("openai-chat", {"prompt_form": "text"}, "text"),
        ("openai-chat", {"prompt_form": "native", "tokenizer": "o200k_base"}, "text"),
        ("openai-completions", {"prompt_form": "text"}, "text"),
    ],
)
def test_every_prompt_has_the_length_that_was_drawn(tmp_path, endpoint, workload, form):
    """In all forms of text, the tokenizer's count is that of the plan, which states how many were counted."""
    plan = planned(tmp_path, 200, endpoint, **workload)
    tokenizer = load_tokenizer(workload.get("tokenizer", "cl100k_base"))
    assert tokenizer.count_many(prompts(plan)) == plan.input_tokens.tolist()
    assert said(plan).prompt == form
    assert said(plan).exact == ExactPrompts(prompts=200, checked=200, exact=200, share=1.0)
    if form == "words" or workload == {"prompt_form": "text"}:
        assert plan.input_tokens[:3].tolist() == [455, 454, 171]


def test_text_form_decodes_the_ids_of_the_draft(tmp_path):
    """Form text begins with the bytes of the ids of IETF A.1.4: those of request 3 are in it."""
    plan = planned(tmp_path, 5, prompt_form="text")
    tokenizer = load_tokenizer("cl100k_base")
    assert prompts(plan)[3].startswith(tokenizer.decode([7816, 21747, 40319]))


def test_native_ids_are_sent_as_ids_if_the_protocol_allows(tmp_path):
    plan = planned(tmp_path, 50, "openai-completions", prompt_form="native", tokenizer="o200k_base")
    drawn = [number for prompt in prompts(plan) for number in prompt]
    assert [len(prompt) for prompt in prompts(plan)] == plan.input_tokens.tolist()
    assert 150_000 < max(drawn) < load_tokenizer("o200k_base").ordinary
    assert said(plan).prompt == "ids"


@pytest.mark.parametrize(
    ("workload", "sentence"),
    [
        ({"prompt_form": "text", "tokenizer": "o200k_base"},
         ("option-not-applicable", "--prompt-form text", "use --prompt-form native")),
        ({"name": "long-context", "isl": "list:9000,8192", "context_limit": 500},
         ("context-exceeded", "of list:9000,8192")),
        ({"name": "long-context", "isl": "choice:"}, ("length-invalid", "--isl 'choice:'")),
        ({"prefix_len": 5, "prefix_share": 1.5}, ("value-out-of-range", "--prefix-share", "0 to 1")),
    ],
)  # fmt: skip
def test_refusals(tmp_path, workload, sentence):
    with pytest.raises(InputError) as caught:
        planned(tmp_path, **workload)
    assert says(str(caught.value), *sentence) and "\n" not in str(caught.value)


def test_long_context(tmp_path):
    """Documents that differ from their first word on, one question of 100 tokens, 256 tokens of answer."""
    plan = planned(tmp_path, 12, name="long-context")
    texts = prompts(plan)
    assert load_tokenizer("cl100k_base").count_many(texts) == plan.input_tokens.tolist()
    assert plan.input_tokens.min() >= 8192 and plan.input_tokens.max() <= 32768
    assert set(plan.output_tokens.tolist()) == {256}
    documents, questions = zip(*(text.split("\n\n") for text in texts), strict=True)
    assert len(set(questions)) == 1 and len({text[:60] for text in documents}) == 12
    assert said(plan).deviations == ()


def test_long_context_beyond_the_model(tmp_path):
    """Targets that do not fit are left out, listed, and reported as a deviation."""
    plan = planned(tmp_path, 40, name="long-context", isl="target_lengths", context_limit=20_000)
    assert set(plan.input_tokens.tolist()) == {8192, 16384}
    assert said(plan).skipped == SkippedLengths(most_input=19_744, lengths=(32768, 65536, 131072), redrawn=0)
    assert "lengths above 19744 tokens are skipped (32768, 65536, 131072)" in plan.deviations[0]
    one_by_one = planned(tmp_path / "b", 5, name="long-context", isl="list:8192,9000,99000", context_limit=20_000)
    assert one_by_one.input_tokens.tolist() == [8192, 9000, 8192, 9000, 8192]


def test_a_range_beyond_the_model_is_drawn_again(tmp_path):
    plan = planned(tmp_path, 30, name="long-context", context_limit=16_000)
    assert plan.input_tokens.max() <= 15_744 and said(plan).skipped.redrawn > 10


def test_lengths_beyond_the_context(tmp_path):
    """The longest request is named; an equal length fits; without a limit or a tokenizer nothing is refused."""
    plan = planned(tmp_path, 20)
    whole = plan.input_tokens.astype(int) + plan.output_tokens
    check_context_limit(plan, int(whole.max()))
    check_context_limit(plan, None)
    with raises_code("context-exceeded", f"of {whole.max() - 1} tokens", f"request {whole.argmax()} has"):
        check_context_limit(plan, int(whole.max()) - 1)
    check_context_limit(planned(tmp_path / "b", 20, tokenizer="none"), 5)


@pytest.mark.parametrize(
    ("workload", "deviations"),
    [
        ({"prompt_form": "text"}, []),
        ({}, ["random words"]),
        ({"prompt_form": "text", "isl": "9"}, ["input lengths 9 instead of uniform:128,512"]),
        ({"prompt_form": "text", "temperature": None}, ["sent instead of 0"]),
        ({"prompt_form": "text", "prefix_len": 3}, ["prefixes of 3 tokens"]),
        ({"name": "conversation"}, ["conversation without ShareGPT"]),
        ({"name": "conversation", "osl": "5"}, ["conversation without ShareGPT", "output lengths 5"]),
        ({"name": "code-completion"}, ["without The Stack"]),
        ({"image": "9x9:2"}, ["random words", "images in every prompt: 9x9:2"]),
    ],
)
def test_deviations_from_the_standard(tmp_path, workload, deviations):
    """Differences from the workload's definition are reported in the plan, in this order."""
    found = planned(tmp_path, 3, **workload).deviations
    assert len(found) == len(deviations)
    assert all(text in sentence for text, sentence in zip(deviations, found, strict=True))


def test_conversation_of_the_real_data(tmp_path):
    """With the file there is no deviation; its hash, subset and quantiles are recorded."""
    file = tmp_path / "s.json"
    file.write_text(json.dumps(SHAREGPT))
    plan = planned(tmp_path / "a", 60, name="conversation", dataset_path=str(file))
    questions = {one["conversations"][0]["value"] for one in SHAREGPT}
    assert set(prompts(plan)) == questions
    assert plan.deviations == ()
    facts = said(plan).dataset
    assert (facts.rounds, facts.left_out, len(facts.sha256)) == (2.0, 0, 64)
    assert said(plan).without_system_prompt.output == (16, 29, 30)  # of 1 to 30, each twice
    assert {len(body["messages"]) for body in sent(plan)} == {1, 2}


def test_code_of_the_real_data(tmp_path):
    """Functions of the file follow the contexts, cut to the drawn length."""
    file = tmp_path / "stack.jsonl"
    file.write_text(
        "".join(json.dumps({"content": f"def real_{n}():\n" + "    pass\n" * 3000}) + "\n" for n in range(9))
    )
    plan = planned(tmp_path / "a", 40, name="code-completion", dataset_path=str(file))
    assert plan.deviations == () and said(plan).dataset.requests == 9
    assert all("def real_" in text for text in prompts(plan))
    assert said(plan).exact.share == 1.0


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "contains no code"),
        ('{"x": 1}\n', "line 1 contains no code"),
        ('{"content": 5', "line 1 column 14 is not JSON"),
    ],
)
def test_files_without_code_are_refused(tmp_path, text, sentence):
    file = tmp_path / "x"
    file.write_text(text)
    with pytest.raises(InputError, match=sentence):
        planned(tmp_path / "a", 3, name="code-completion", dataset_path=str(file))


def test_classes_of_fairness(tmp_path):
    """Rows know their class, the plan its name."""
    plan = planned(tmp_path, 300, name="fairness")
    assert plan.classes == ("short", "long")
    long = plan.request_class == 1
    assert 30 < long.sum() < 90
    assert plan.input_tokens[long].min() >= 1024 > 256 >= plan.input_tokens[~long].max()


def test_images_in_every_prompt(tmp_path):
    """Text first, then the requested number of different images; text tokens are counted, images are not."""
    plan = planned(tmp_path, 4, image="20x10:2")
    urls = []
    for body, tokens in zip(sent(plan), plan.input_tokens.tolist(), strict=True):
        text, *images = body["messages"][0]["content"]
        assert load_tokenizer("cl100k_base").count(text["text"]) == tokens
        urls += [one["image_url"]["url"] for one in images]
    assert len(set(urls)) == 8
    assert all(base64.b64decode(url.partition(",")[2]).startswith(b"\x89PNG") for url in urls)


def test_sets_of_images_by_share(tmp_path):
    """A set has several sizes; each prompt has one of the sets, as often as its share says, or none."""
    plan = planned(tmp_path, 600, image="16x8:1@1,16x8:1+32x24:2@2,none@1")
    found = Counter()
    for body in sent(plan):
        _, *images = body["messages"][0]["content"]
        pictures = [base64.b64decode(one["image_url"]["url"].partition(",")[2]) for one in images]
        found[tuple(struct.unpack(">II", picture[16:24]) for picture in pictures)] += 1
    assert found.keys() == {((16, 8),), ((16, 8), (32, 24), (32, 24)), ()}
    assert abs(found[(16, 8), (32, 24), (32, 24)] - 300) < 45 and abs(found[()] - 150) < 40  # 3.7 standard errors
    assert said(plan).image == "16x8:1@0.25,16x8:1+32x24:2@0.5,none@0.25"


@pytest.mark.parametrize(
    "text", ["8x", "8x8@0.5", "8x8,9x9", "8x8@0,9x9@1", "none", "8x8@x,9x9@1", "8x8:0", "0x8", "8x8+"]
)
def test_sets_of_images_that_are_none(text):
    with raises_code("image-invalid"):
        images(text)


def test_synthetic_images_of_a_data_set(tmp_path):
    """A data set names images by size; each request gets its own."""
    message = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "synthetic:16x16"}}]}
    file = tmp_path / "x.jsonl"
    file.write_text(json.dumps({"messages": [message], "output_tokens": 1}) + "\n")
    plan = planned(tmp_path / "a", 3, name="custom", dataset_path=str(file))
    urls = {body["messages"][0]["content"][0]["image_url"]["url"] for body in sent(plan)}
    assert len(urls) == 3 and all(url.startswith("data:image/png;base64,") for url in urls)


def test_how_tokens_are_counted_is_declared(tmp_path):
    """IETF 4.4: option, tokenizer with the size of its vocabulary, special tokens."""
    found = planned(tmp_path, 2, counting="B").counting
    assert found.option == "B"
    assert found.tokenizer == TokenizerFacts(name="cl100k_base", source="quicktok", vocabulary=100_277)
    assert "BOS, EOS" in found.special_tokens


def found_by_a_cache(texts, shared):
    """(tokens that an unlimited cache finds, all tokens) of prompts of which the first *shared* tokens count."""
    tokenizer, seen, found, whole = load_tokenizer("cl100k_base"), set(), 0, 0
    for text in texts:
        start = " ".join(text.split(" ")[: shared + 1])
        found += shared if start in seen else 0
        seen.add(start)
        whole += tokenizer.count(text)
    return found, whole


@pytest.mark.parametrize("form", ["words", "text"])
def test_the_plan_states_what_a_prefix_cache_can_find(tmp_path, form):
    """Recomputed from the prompts themselves, and from the definition of the draws: share 0.6, three prefixes."""
    plan = planned(tmp_path, 200, prefix_len=30, num_prefixes=3, prefix_share=0.6, isl="10", prompt_form=form)
    choice = random.Random("42/prefix")
    chosen = [choice.randrange(3) if choice.random() < 0.6 else None for _ in range(200)]
    assert (plan.prefix_tokens > 0).tolist() == [one is not None for one in chosen]
    again = 30 * (sum(one is not None for one in chosen) - 3)
    assert said(plan).prefix_hit_rate == again / 8000
    assert said(plan).shared_token_share == plan.prefix_tokens.sum() / 8000
    if form == "words":
        assert found_by_a_cache(prompts(plan), 30) == (again, 8000)


def test_a_plan_without_shared_text_states_no_hits(tmp_path):
    plan = planned(tmp_path, 20, prefix_len=30, prefix_share=0.0)
    assert plan.prefix_tokens is None and said(plan).prefix_hit_rate is None


def test_hits_of_code_completion(tmp_path):
    """Repeated contexts, from the counts by context in the plan."""
    plan = planned(tmp_path, 120, name="code-completion")
    contexts = said(plan).contexts
    again = sum(tokens * max(0, many - 1) for tokens, many in zip(contexts.tokens, contexts.chosen, strict=True))
    assert said(plan).prefix_hit_rate == again / plan.input_tokens.sum()


def test_hits_of_a_trace_are_those_of_the_requests_that_are_planned(tmp_path):
    """Half of the file, then twice the file: a second round shares nothing with the first."""
    file = tmp_path / "trace.jsonl"
    rows = [(600, [1, 2]), (600, [1, 3]), (1200, [1, 5, 4]), (512, [9])]
    file.write_text(
        "".join(
            json.dumps({"timestamp": 10 * n, "input_length": size, "output_length": 2, "hash_ids": ids}) + "\n"
            for n, (size, ids) in enumerate(rows)
        )
    )
    half = planned(tmp_path / "half", 2, name="mooncake", dataset_path=str(file))
    assert said(half).prefix_hit_rate == 512 / 1200
    assert half.prefix_tokens.tolist() == [512, 512]
    twice = planned(tmp_path / "twice", 8, name="mooncake", dataset_path=str(file))
    assert twice.prefix_tokens.tolist() == [512, 512, 512, 0] * 2
    assert said(twice).prefix_hit_rate == 1024 / 2912


TRACE = [{"timestamp": 10 * n, "input_length": 600, "output_length": 2, "hash_ids": [1, 2 + n]} for n in range(4)]


@pytest.mark.parametrize(
    ("workload", "entries"),
    [
        ({"name": "conversation"}, None),
        ({"name": "conversation"}, SHAREGPT),
        ({"name": "conversation", "turns": "2"}, SHAREGPT),
        ({"name": "code-completion", "tokenizer": "o200k_base"}, None),
        ({"name": "fairness", "context_limit": 9000}, None),
        ({"name": "sharegpt", "turns": "all"}, SHAREGPT),
        ({"name": "mooncake"}, TRACE),
        ({"prefix_len": 10, "num_prefixes": 3, "image": "16x16:1"}, None),
    ],
)
def test_a_description_is_read_as_it_was_written(tmp_path, workload, entries):
    """Each key has a type, is left out where it was, and a number stays an integer or not."""
    if entries is not None:
        file = tmp_path / "data"
        lines = "".join(json.dumps(entry) + "\n" for entry in entries)
        file.write_text(lines if entries is TRACE else json.dumps(entries))
        workload = {**workload, "dataset_path": str(file)}
    load = Load(num_requests=20) if entries is TRACE else Load(rate=10.0, num_requests=20)
    settings = RunSettings(load=load, workload=Workload(**workload))
    plan = build_plan(
        settings, phase="measure", endpoint=ENDPOINTS["openai-chat"], model="m", out_dir=tmp_path / "plan"
    )
    written = json.loads((plan.directory / "plan.json").read_text())["description"]
    assert list(undeclared(written, PlanDescription)) == []
    assert json.dumps(plain(plan.description), sort_keys=True) == json.dumps(written, sort_keys=True)


@pytest.mark.parametrize("form", ["words", "text", "ids"])
@pytest.mark.parametrize("more", [{}, {"prefix_len": 32}, {"turns": "3"}])
def test_a_salt_gives_other_prompts_of_the_same_lengths(tmp_path, form, more):
    """No two salts share the beginning of a prompt, so a prefix cache finds nothing of one in another."""
    if more.get("turns") and form != "words":
        pytest.skip("conversations are of words")
    endpoint = "openai-completions" if form == "ids" else "openai-chat"
    plans = [
        planned(tmp_path / f"{salt}", endpoint=endpoint, prompt_form=form, salt=salt, **more) for salt in (0, 1, 7)
    ]
    lengths = [plan.requests for plan in plans]
    assert lengths[0] == lengths[1] == lengths[2]
    assert (plans[0].t_start == plans[1].t_start).all()
    starts = [{str(prompt)[:40] for prompt in prompts(plan)} for plan in plans]
    assert not starts[0] & starts[1] and not starts[0] & starts[2] and not starts[1] & starts[2]
    if form != "text":
        assert (plans[0].input_tokens == plans[1].input_tokens).all()
