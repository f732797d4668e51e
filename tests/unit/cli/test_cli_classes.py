"""Classes of traffic on the command line and in a config file."""

from __future__ import annotations

import pytest

from fastllmload.cli.main import main
from fastllmload.cli.options.raw import from_command_line, from_table
from fastllmload.cli.options.resolve import merge_config, resolve_merged
from fastllmload.cli.options.table import BY_PARAMETER
from fastllmload.errors import InputError
from fastllmload.redact import Redactor


def words(*classes, **options):
    given = {"class": classes, **options}
    parameters = {name: found for name, found in given.items() if name in BY_PARAMETER}
    return resolve_merged(merge_config(from_command_line(parameters)), {}, Redactor([]))[0]


def table(**options):
    return resolve_merged(from_table(options, "", ""), {}, Redactor([]))[0]


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


def test_a_replayed_plan_is_told_where_its_classes_go():
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
        (["chat"], {}, "class 'chat' has no rate; add rate=RATE"),
        (["chat rate=1", "chat rate=2"], {}, "'chat' is given twice"),
        (["rate=1 isl=5"], {}, "is not a name"),
        (["chat rate"], {}, "has 'rate' without a value"),
        (["chat 'rate=1"], {}, "cannot be read"),
        (["chat rate=1 speed=3"], {}, "--class chat: 'speed' is not an option"),
        (["chat rate=1 workers=3"], {}, "workers of class chat cannot differ between classes"),
        (["chat rate=1 tokenizer=none"], {}, "tokenizer of class chat cannot differ"),
        (["chat rate=fast"], {}, "rate of class chat 'fast' is not a rate"),
        (["chat rate=inf"], {}, "cannot send all at once"),
        (["chat rate=1"], {"concurrency": "4"}, "--concurrency does not go with --class: classes are open loops"),
        (["chat concurrency=4"], {}, "concurrency of class chat is refused: classes are open loops"),
        (["chat rate=1 unix-socket=/tmp/s"], {}, "goes to the run's socket, or to a url=http://HOST:PORT"),
        (["chat rate=1 url=https://me:word@h"], {}, "carries a user name or password"),
        (["chat rate=1 url=http://h"], {"url": ("http://g",)}, "nothing goes to --url"),
        (["chat rate=1 prompt-form=ids"], {}, "token ids, which openai-chat cannot carry"),
        (["a rate=1 image=32x32 endpoint-type=completions", "b rate=1"], {}, "images, which openai-completions"),
        (["a rate=1 turns=3 tool-turns=0.5 endpoint-type=ollama-completions"], {}, "needs messages"),
        (["a rate=1 endpoint-type=completions", "b rate=1"], {"endpoint": "/v2/chat"}, "belongs to another protocol"),
        (["chat rate=1 max-concurrency=4"], {}, "one run has one cap"),
        ([""], {}, "--class '' is not a name"),
        (["a share=0.5", "b share=0.6"], {"rate": "10"}, "add up to 1.1 of the run's --rate; make them add up to 1"),
        (["a share=0.5", "b share=0.3"], {"rate": "10"}, "add up to 0.8 of the run's --rate"),
        (["a share=0.9", "b share=0.3", "c rate=2"], {"rate": "10"}, "add up to 1.2 of the run's --rate"),
        (["chat rate=1 header='Authorization: Bearer K'"], {}, "is a credential"),
        (["chat rate=1 goodput=other/ttft:3"], {}, "write it without a class"),
        (["chat share=0.5"], {}, "give a --rate that does not change"),
        (["chat share=2"], {"rate": "10"}, "write a part of the run's rate"),
        (["chat share=0.5 rate=3"], {"rate": "10"}, "has a rate and a share"),
        (["chat rate=1 think-time=2s"], {}, "add --turns COUNT"),
        (["chat rate=1"], {"plan": "file"}, "rate of class chat is part of the plan that --plan replays"),
        (["chat"], {"plan": "file"}, "the rest of a class is part of the plan"),
        (["chat url=http://a", "chat url=http://b"], {"plan": "file"}, "'chat' is given twice; keep one, with several"),
        (["chat url=https://me:word@h"], {"plan": "file"}, "carries a user name or password"),
    ],
)  # fmt: skip
def test_what_is_refused(classes, options, said):
    with pytest.raises(InputError) as error:
        words(*classes, **options)
    assert said in str(error.value)
    assert "\n" not in str(error.value) and "Bearer K" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"cancel-share": "0.1"}, "--cancel-share needs --cancel-after"),
        ({"cancel-after": "2s"}, "--cancel-after needs --cancel-share"),
        ({"slow-readers": "0.1:20tok/s", "transport": "asyncio"}, "not --transport asyncio"),
        ({"slow-readers": "0.1:20tok/s", "url": "https://h"}, "--url is https"),
        ({"slow-readers": "0.1:20"}, "write for example 0.05:20tok/s"),
        ({"abandon": "5s"}, "write for example ttft:5s"),
        ({"turns": "all"}, "takes what a data set has"),
        ({"turns": "3", "workload": "csv", "dataset-path": "f"}, "whose requests are independent"),
        ({"turns": "x"}, "is not a number of turns"),
        ({"turns": "3", "think-time": "-1"}, "is not a think time"),
        ({"turns": "3", "tool-turns": "0.5", "endpoint-type": "completions"}, "needs messages"),
        ({"tool-turns": "0.5"}, "add --turns COUNT"),
        ({"turns": "3", "prompt-form": "ids", "endpoint-type": "completions"}, "needs prompts of text"),
    ],
)
def test_what_users_cannot_do(options, said):
    with pytest.raises(InputError) as error:
        table(rate=1, **options)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("word", "sent"), [("ignore-eos=false", False), ("ignore_eos=true", True), ("no-ignore-eos=true", False)]
)
def test_a_word_turns_a_switch(word, sent):
    assert words(f"a rate=1 {word}").classes[0].workload.ignore_eos is sent


def test_a_switch_is_true_or_false():
    with pytest.raises(InputError, match="ignore-eos of class a is 'yes'; write true or false"):
        words("a rate=1 ignore-eos=yes")


def test_the_refusal_of_a_class_in_a_file_does_not_show_its_password(tmp_path, capsys):
    file = tmp_path / "run.toml"
    file.write_text('[[class]]\nname = "a"\nrate = 2\nurl = "http://me:K7q4@127.0.0.1:1"\n')
    assert main(["--config", str(file)]) == 2
    said = capsys.readouterr().err
    assert "carries a user name or password" in said and "K7q4" not in said
