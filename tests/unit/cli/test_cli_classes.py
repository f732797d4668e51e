"""Classes of traffic on the command line and in a config file."""

from __future__ import annotations

import pytest
from refusals import raises_code, says

from fastllmload.cli.main import main
from fastllmload.cli.options.reading import read_settings
from fastllmload.cli.options.sources import from_command_line, from_table, merge_config
from fastllmload.cli.options.table import BY_PARAMETER
from fastllmload.errors import InputError
from fastllmload.redact import Redactor


def words(*classes, **options):
    given = {"class": classes, **options}
    parameters = {name: found for name, found in given.items() if name in BY_PARAMETER}
    return read_settings(merge_config(from_command_line(parameters)), {}, Redactor([]))[0]


def table(**options):
    return read_settings(from_table(options, "", ""), {}, Redactor([]))[0]


def test_both_ways_say_the_same():
    """Words and a TOML table of the same names give the same settings; what is not said is the run's."""
    one = words(
        "chat rate=40 isl=512 goodput=ttft:200,tpot:50 header='X-Priority: 1' header='X-Team: a b'",
        "bulk rate=ramp:1,9 model=adapter endpoint=/v2/chat turns=2-3 cancel-share=0.1 cancel-after=20tok",
        osl="64", duration="20", arrival="constant", goodput=("e2el:3000",),
    )  # fmt: skip
    chat = {"name": "chat", "rate": 40, "isl": 512, "goodput": {"ttft": 200, "tpot": 50},
            "header": ["X-Priority: 1", "X-Team: a b"]}  # fmt: skip
    bulk = {"name": "bulk", "rate": "ramp:1,9", "model": "adapter", "endpoint": "/v2/chat", "turns": "2-3",
            "cancel-share": 0.1, "cancel-after": "20tok"}  # fmt: skip
    two = table(**{"class": [chat, bulk]}, osl=64, duration=20, arrival="constant", goodput={"e2el": 3000})
    assert one == two
    first, second = one.classes
    assert (first.name, first.load.rate, first.load.arrival, first.load.duration) == ("chat", 40.0, "constant", 20.0)
    assert (first.workload.isl, first.workload.osl, second.workload.isl) == ("512", "64", None)
    assert first.headers == (("X-Priority", "1"), ("X-Team", "a b")) and second.endpoint_path == "/v2/chat"
    assert second.load.rate == 5.0 and second.load.rate_curve == "ramp:1,9" and first.load.rate_curve is None
    assert second.behaviour.cancel_after == "20tok" and second.workload.turns == "uniform:2,3"
    assert one.output.goodput == (("e2el", 3000.0), ("chat/ttft", 200.0), ("chat/tpot", 50.0))
    assert one.load.rate == 45.0


def test_python_has_a_name_that_it_can_write():
    one = {"name": "a", "rate": 3}
    assert table(classes=[one], duration=5) == table(**{"class": [one]}, duration=5)


def test_a_replayed_plan_takes_the_targets_of_its_classes():
    """With --plan a class is a name and URLs; both notations mean the same."""
    one = words("chat url=http://a", "more url=http://b url=http://c", plan="file")
    two = table(**{"class": [{"name": "chat", "url": "http://a"}, {"name": "more", "url": ["http://b", "http://c"]}]},
                plan="file")  # fmt: skip
    assert one == two and one.classes == ()
    assert one.output.plan_urls == (("chat", ("http://a",)), ("more", ("http://b", "http://c")))


def test_protocols_and_targets_of_classes():
    """Both ways; without a class at the run's targets the first class's are the run's."""
    one = words("chat rate=4", "more rate=1 endpoint-type=completions url=http://b url=http://c", url=("http://a",))
    two = table(
        **{"class": [{"name": "chat", "rate": 4},
                     {"name": "more", "rate": 1, "endpoint-type": "completions", "url": ["http://b", "http://c"]}]},
        url="http://a",
    )  # fmt: skip
    assert one == two and one.target.urls == ("http://a",)
    chat, more = one.classes
    assert (chat.endpoint_type, chat.urls) == (None, ())
    assert (more.endpoint_type, more.urls) == ("openai-completions", ("http://b", "http://c"))
    away = words("chat rate=4 url=http://a", "more rate=1 url=http://b")
    assert away.target.urls == ("http://a",)


def test_classes_whose_answers_are_not_tokens():
    """Options about tokens reach the other classes alone, also where the run's own protocol has no tokens."""
    one = words("embed rate=4 goodput=e2el:90", "chat rate=1 endpoint-type=chat turns=2 goodput=ttft:50", osl="64",
                endpoint_type="embeddings", goodput=("e2el:3000", "chat/tpot:9"))  # fmt: skip
    embed, chat = one.classes
    assert (embed.workload.osl, chat.workload.osl, embed.workload.turns) == ("1", "64", None)
    assert one.output.goodput == (("e2el", 3000.0), ("chat/tpot", 9.0), ("embed/e2el", 90.0), ("chat/ttft", 50.0))
    alone = words("embed rate=4", "rank rate=1 endpoint-type=rerank", endpoint_type="embeddings", goodput=("e2e:9",))
    assert [each.workload.osl for each in alone.classes] == ["1", "1"]


def test_closed_classes_next_to_open_ones_and_alone():
    """A number of slots is a class's own load; a run whose classes all have slots has as many in flight."""
    mixed = words("chat rate=40 isl=512", "batch concurrency=16 osl=500", duration="9", max_prefill="4")
    same = table(**{"class": [{"name": "chat", "rate": 40, "isl": 512}, {"name": "batch", "concurrency": 16, "osl": 500}]},
                 duration=9, max_prefill=4)  # fmt: skip
    chat, batch = mixed.classes
    assert mixed == same and (mixed.load.rate, mixed.load.concurrency) == (40.0, None)
    assert (chat.load.rate, chat.load.concurrency) == (40.0, None)
    assert (batch.load.rate, batch.load.concurrency, batch.load.duration) == (None, 16, 9.0)
    closed = words("a concurrency=3", "b num-concurrent=2")
    assert (closed.load.rate, closed.load.concurrency, closed.load.duration) == (None, 5, 60.0)
    part = words("a share=1", "b concurrency=2", rate="8", arrival="constant")
    assert [one.load.rate for one in part.classes] == [8.0, None] and part.classes[1].load.concurrency == 2


def test_slots_of_a_class_that_change():
    """In any form of --concurrency, over the run's duration; the class's number, and the run's sum, are the most."""
    mixed = words("chat rate=40", "batch concurrency=ramp:1,64", duration="9")
    load = mixed.classes[1].load
    assert (load.concurrency_curve, load.concurrency, load.duration, load.rate) == ("ramp:1,64", 64, 9.0, None)
    assert (mixed.load.concurrency, mixed.load.concurrency_curve, mixed.load.rate) == (None, None, 40.0)
    closed = words("a concurrency=steps:4,9,2", "b concurrency=3")
    assert [one.load.concurrency for one in closed.classes] == [9, 3] and closed.load.concurrency == 12
    assert closed.load.concurrency_curve is None and closed.classes[0].load.duration == 60.0


def test_shares_of_the_rate():
    found = words("a share=0.75", "b share=0.25", rate="80")
    assert [one.load.rate for one in found.classes] == [60.0, 20.0] and found.load.rate == 80.0
    mixed = words("a share=0.25", "b rate=3", rate="80")
    assert [one.load.rate for one in mixed.classes] == [20.0, 3.0]
    thirds = words(*(f"{name} share=0.333333" for name in "abc"), rate="9")
    assert len(thirds.classes) == 3


@pytest.mark.parametrize(
    ("classes", "options", "said"),
    [
        (["chat"], {}, ("load-missing", "'chat'", "rate=RATE")),
        (["chat rate=1", "chat rate=2"], {}, ("option-repeated", "'chat'")),
        (["rate=1 isl=5"], {}, ("class-invalid", "--class", "rate=1", "a name")),
        (["chat rate"], {}, ("class-invalid", "'rate'")),
        (["chat 'rate=1"], {}, ("class-invalid", "cannot be read")),
        (["chat rate=1 speed=3"], {}, ("option-unknown", "--class", "'speed'")),
        (["chat rate=1 workers=3"], {}, ("option-not-applicable", "workers of class")),
        (["chat rate=1 tokenizer=none"], {}, ("option-not-applicable", "tokenizer of class")),
        (["chat rate=fast"], {}, ("rate-invalid", "rate of class", "'fast'")),
        (["chat rate=inf"], {}, ("class-load-invalid", "'chat'", "all at once")),
        (["chat rate=1"], {"concurrency": "4"}, ("class-load-invalid", "--concurrency", "--class")),
        (["chat concurrency=4 rate=2"], {}, ("class-load-invalid", "'chat'", "concurrency", "rate")),
        (["chat concurrency=4 share=0.5"], {"rate": "9"}, ("class-load-invalid", "'chat'", "share")),
        (["chat concurrency=4 arrival=constant"], {}, ("class-load-invalid", "'chat'", "arrival")),
        (["chat concurrency=4 rate-series=f"], {}, ("class-load-invalid", "'chat'", "rate-series")),
        (["chat concurrency=0"], {}, ("count-invalid", "concurrency of class", "'0'")),
        (["chat concurrency=ramp:1"], {}, ("rate-curve-invalid", "concurrency of class chat", "'ramp:1'")),
        (["chat concurrency=steps:0,0.2"], {}, ("schedule-empty", "concurrency of class chat", "steps:0,0.2")),
        (["chat concurrency=ramp:1,2000000"], {}, ("value-out-of-range", "concurrency of class chat", "ramp:1,2000000")),
        (["chat concurrency=ramp:1,4 rate=2"], {}, ("class-load-invalid", "'chat'", "concurrency", "rate")),
        (["chat concurrency=4", "b rate=2"], {"num_requests": "9"},
         ("class-load-invalid", "--num-requests", "'chat'", "--duration")),
        (["chat concurrency=4"], {"num_requests": "9", "duration": "3"}, ("class-load-invalid", "--num-requests")),
        (["chat concurrency=4", "b rate=2"], {"workload": "mooncake", "dataset_path": "f"},
         ("run-without-end", "'chat'", "--duration")),
        (["chat concurrency=4", "b rate=2"], {"max_concurrency": "9"},
         ("option-not-applicable", "--max-concurrency", "concurrency=SLOTS")),
        (["chat concurrency=ramp:1,4 session-start=stationary workload=weka dataset-path=f", "b rate=2"], {},
         ("options-conflict", "--session-start", "the curve of --concurrency")),
        (["chat concurrency=4 session-start=stationary workload=weka dataset-path=f models=a,b", "b rate=2"], {},
         ("options-conflict", "--session-start", "--models")),
        (["chat concurrency=4 session-start=stationary workload=weka dataset-path=f", "b rate=2"], {"save_plan": "f"},
         ("option-not-applicable", "'chat'", "session-start")),
        (["chat rate=4 session-start=share:0,0.5 workload=weka dataset-path=f", "b rate=2"], {},
         ("option-not-applicable", "share:0,0.5", "--concurrency")),
        (["chat rate=1 unix-socket=/tmp/s"], {}, ("option-not-applicable", "unix-socket of class", "url=http://HOST:PORT")),
        (["chat rate=1 url=https://me:word@h"], {}, ("url-invalid", "name or password")),
        (["chat rate=1 url=http://h"], {"url": ("http://g",)}, ("url-unused", "--url")),
        (["chat rate=1 prompt-form=ids"], {}, ("protocol-unsupported", "token ids", "openai-chat")),
        (["a rate=1 image=32x32 endpoint-type=completions", "b rate=1"],
         {}, ("protocol-unsupported", "images", "openai-completions")),
        (["a rate=1 turns=3 tool-turns=0.5 endpoint-type=ollama-completions"],
         {}, ("protocol-unsupported", "needs messages")),
        (["a rate=1 endpoint-type=completions", "b rate=1"], {"endpoint": "/v2/chat"
         }, ("protocol-unsupported", "another protocol")),
        (["chat rate=1 max-prefill=4"], {}, ("option-not-applicable", "max-prefill of class", "first token")),
        (["e rate=1 endpoint-type=embeddings osl=8", "chat rate=1"], {}, ("protocol-unsupported", "osl", "embeddings")),
        (["e rate=1 endpoint-type=embeddings turns=2", "chat rate=1"], {}, ("protocol-unsupported", "turns", "embeddings")),
        (["e rate=1 endpoint-type=embeddings", "chat rate=1"], {"turns": "2"},
         ("protocol-unsupported", "'e'", "turns")),
        (["e rate=1 endpoint-type=embeddings", "chat rate=1"], {"cancel_share": "0.1", "cancel_after": "2tok"},
         ("protocol-unsupported", "'e'", "cancel-after")),
        (["e rate=1 endpoint-type=embeddings goodput=ttft:9", "chat rate=1"], {},
         ("protocol-unsupported", "--goodput ttft")),
        (["e rate=1 endpoint-type=rerank", "chat rate=1"], {"goodput": ("ttft:9",)},
         ("protocol-unsupported", "'e' (rerank)", "CLASS/ttft", "e2el")),
        (["e rate=1 endpoint-type=rerank", "chat rate=1"], {"goodput": ("e/tpot:9",)},
         ("protocol-unsupported", "'e' (rerank)")),
        (["e rate=1", "f rate=1 endpoint-type=score"], {"osl": "8", "endpoint_type": "rerank"},
         ("protocol-unsupported", "--osl", "rerank")),
        (["a concurrency=4 trace-timing=recorded workload=weka dataset-path=f", "b rate=2"], {},
         ("options-conflict", "--trace-timing recorded", "concurrency")),
        (["a rate=4 trace-timing=recorded workload=weka dataset-path=f", "b rate=2"], {},
         ("options-conflict", "--trace-timing recorded", "rate")),
        (["a trace-timing=recorded trace-max-wait=1s workload=weka dataset-path=f", "b rate=2"], {},
         ("options-conflict", "--trace-timing recorded", "--trace-max-wait")),
        (["e rate=1 endpoint-type=rerank workload=weka dataset-path=f", "chat rate=1"], {},
         ("protocol-unsupported", "weka", "rerank")),
        (["e rate=1 endpoint-type=rerank prompt-form=ids", "chat rate=1"], {},
         ("protocol-unsupported", "token ids", "rerank")),
        (["chat rate=1 max-concurrency=4"], {}, ("option-not-applicable", "max-concurrency of class", "one cap")),
        ([""], {}, ("class-invalid", "--class ''")),
        (["a share=0.5", "b share=0.6"], {"rate": "10"}, ("class-share-invalid", "up to 1.1 of", "--rate;", "up to 1")),
        (["a share=0.5", "b share=0.3"], {"rate": "10"}, ("class-share-invalid", "up to 0.8 of", "--rate")),
        (["a share=0.9", "b share=0.3", "c rate=2"], {"rate": "10"}, ("class-share-invalid", "up to 1.2 of", "--rate")),
        (["chat rate=1 header='Authorization: Bearer K'"], {}, ("credential-exposed", "Authorization")),
        (["chat rate=1 goodput=other/ttft:3"], {}, ("option-not-applicable", "without a class")),
        (["chat share=0.5"], {}, ("class-share-invalid", "give a --rate")),
        (["chat share=2"], {"rate": "10"}, ("class-share-invalid", "'2'", "a part of")),
        (["chat share=0.5 rate=3"], {"rate": "10"}, ("class-share-invalid", "and a share")),
        (["chat rate=1 think-time=2s"], {}, ("option-not-applicable", "add --turns COUNT")),
        (["chat rate=1"], {"plan": "file"}, ("option-prescribed", "rate of class", "--plan")),
        (["chat"], {"plan": "file"}, ("option-prescribed", "part of the", "'NAME url=URL'")),
        (["chat url=http://a", "chat url=http://b"], {"plan": "file"}, ("option-repeated", "'chat'", "several")),
        (["chat url=https://me:word@h"], {"plan": "file"}, ("url-invalid", "name or password")),
    ],
)  # fmt: skip
def test_what_is_refused(classes, options, said):
    with pytest.raises(InputError) as error:
        words(*classes, **options)
    assert says(str(error.value), *said)
    assert "\n" not in str(error.value) and "Bearer K" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"cancel-share": "0.1"}, ("option-missing", "--cancel-share", "--cancel-after")),
        ({"cancel-after": "2s"}, ("option-missing", "--cancel-after", "--cancel-share")),
        (
            {"slow-readers": "0.1:20tok/s", "transport": "asyncio"},
            ("option-not-applicable", "--slow-readers", "--transport asyncio"),
        ),
        ({"slow-readers": "0.1:20"}, ("share-invalid", "slow-readers '0.1:20'", "0.05:20tok/s")),
        ({"abandon": "5s"}, ("time-invalid", "abandon '5s'", "ttft:5s")),
        ({"turns": "all"}, ("option-missing", "--turns all", "a data set")),
        (
            {"turns": "3", "workload": "csv", "dataset-path": "f"},
            ("option-not-applicable", "--turns", "csv", "are independent"),
        ),
        ({"turns": "x"}, ("count-invalid", "turns 'x'", "number of turns")),
        ({"turns": "3", "think-time": "-1"}, ("time-invalid", "think-time '-1'")),
        (
            {"turns": "3", "tool-turns": "0.5", "endpoint-type": "completions"},
            ("protocol-unsupported", "--tool-turns", "needs messages"),
        ),
        ({"tool-turns": "0.5"}, ("option-not-applicable", "tool-turns belongs", "add --turns COUNT")),
        (
            {"turns": "3", "prompt-form": "ids", "endpoint-type": "completions"},
            ("option-not-applicable", "--turns", "prompts of text"),
        ),
    ],
)
def test_what_users_cannot_do(options, said):
    with pytest.raises(InputError) as error:
        table(rate=1, **options)
    assert says(str(error.value), *said)


@pytest.mark.parametrize(
    ("word", "sent"), [("ignore-eos=false", False), ("ignore_eos=true", True), ("no-ignore-eos=true", False)]
)
def test_a_word_turns_a_switch(word, sent):
    assert words(f"a rate=1 {word}").classes[0].workload.ignore_eos is sent


def test_a_switch_is_true_or_false():
    with raises_code("option-value-type", "ignore-eos of class", "'yes'", "true or false"):
        words("a rate=1 ignore-eos=yes")


def test_the_refusal_of_a_class_in_a_file_does_not_show_its_password(tmp_path, capsys):
    file = tmp_path / "run.toml"
    file.write_text('[[class]]\nname = "a"\nrate = 2\nurl = "http://me:K7q4@127.0.0.1:1"\n')
    assert main(["--config", str(file)]) == 2
    said = capsys.readouterr().err
    assert says(said, "url-invalid") and "K7q4" not in said
