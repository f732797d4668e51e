"""One option's text becomes its value, or a ValueError that ends a sentence."""

from __future__ import annotations

import math

import pytest
from refusals import raises_code

from fastllmload.cli.options import parsers as read
from fastllmload.cli.options.table import WORKLOAD
from fastllmload.errors import InvalidValue


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1), ("100", 100), ("1k", 1000), ("2.5k", 2500), ("1M", 1_000_000), ("1e3", 1000)],
)
def test_counts_take_suffixes(text, value):
    assert read.count(text) == value


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "2.0005k", "", "k", "ten", "1 000", "1kk", "inf", "nan", "0x10"])
def test_counts_are_whole_and_above_zero(text):
    with pytest.raises(ValueError, match="whole number above 0"):
        read.count(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [("30s", 30), ("5m", 300), ("200ms", 0.2), ("1h", 3600), ("1.5", 1.5), ("90", 90), ("2min", 120), ("1d", 86_400)],
)
def test_times_take_suffixes(text, value):
    assert read.seconds(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["0", "0s", "-5s", "5 minutes", "1w", "", "s", "inf"])
def test_times_are_above_zero(text):
    with pytest.raises(ValueError, match="write for example 200ms"):
        read.seconds(text)


@pytest.mark.parametrize(
    ("text", "value"), [("0.05", 0.05), ("500", 500), ("1k", 1000), ("inf", math.inf), ("INF", math.inf)]
)
def test_rates(text, value):
    assert read.rate(text) == value


@pytest.mark.parametrize("text", ["0", "-1", "nan", "fast", "-inf", "5/s"])
def test_rates_are_above_zero(text):
    with raises_code("rate-invalid", "per second above 0"):
        read.rate(text)


@pytest.mark.parametrize(
    ("text", "requests", "tokens", "seconds"),
    [
        ("100", 100, 0, None),
        ("0", 0, 0, None),
        ("10000tok", 0, 10_000, None),
        ("10ktok", 0, 10_000, None),
        ("30s", 0, 0, 30.0),
        ("2m", 0, 0, 120.0),
        ("100,10000tokens", 100, 10_000, None),
        ("1k", 1000, 0, None),
    ],
)
def test_warmup_is_requests_tokens_or_time(text, requests, tokens, seconds):
    fields = read.warmup(text)
    assert fields["load.warmup_requests"] == requests
    assert fields["load.warmup_tokens"] == tokens
    assert fields.get("load.warmup_seconds") == seconds


@pytest.mark.parametrize("text", ["", "warm", "-1", "1.5", "0s", "10.5tok", "5,,5"])
def test_warmup_refuses_garbage(text):
    with raises_code("warmup-invalid", "a warm-up"):
        read.warmup(text)


@pytest.mark.parametrize("text", ["localhost:8000", "10.0.0.1:8000/v1", "[::1]:80"])
def test_a_host_with_a_port_is_a_url_of_http(text):
    assert read.url(text) == f"http://{text}"


@pytest.mark.parametrize("text", ["0", "65536", "http", "8k", "-1"])
def test_ports(text):
    with raises_code("value-out-of-range", "8000"):
        read.port(text)


@pytest.mark.parametrize("text", ["{}", '{"input": 0.3}', "1", '{"input": 2, "output": 0}'])
def test_ratios_that_are_none(text):
    with raises_code("share-invalid"):
        read.range_ratio(text)


@pytest.mark.parametrize("text", ["3", "x", "nan"])
def test_penalties_that_are_none(text):
    with raises_code("number-invalid", "-2 to 2"):
        read.penalty(text)


@pytest.mark.parametrize("text", ["http://localhost:8000", "https://example.test/v1", "http://[::1]:8000"])
def test_urls(text):
    assert read.url(text) == text


def test_a_url_loses_its_last_slash():
    assert read.url("http://localhost:8000/v1/") == "http://localhost:8000/v1"
    assert read.url("wss://localhost:8000/v1") == "https://localhost:8000/v1"
    assert read.url("ws://localhost:8000") == "http://localhost:8000"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("localhost", "no scheme"),
        ("ftp://host", "scheme 'ftp'"),
        ("http://host/v 1", "blank as %20"),
        ("http://host/v1\r\nX-Tag: 1", "control character"),
        ("http://host/caf\u00e9", "beyond ASCII in its path"),
        ("unix:/run/s", "write --unix-socket /run/s"),
        ("http://", "no host"),
        ("http://host:0", "host and port"),
        ("http://host:99999", "not a URL"),
        ("http://[::1", "not a URL"),
        ("http://host/v1?x=1", "query"),
        ("http://user:password@host", "user name"),
    ],
)
def test_urls_that_are_none(text, why):
    with raises_code("url-invalid", why):
        read.url(text)


def test_headers():
    assert read.header("X-Tag:  a: b ") == ("X-Tag", "a: b")
    assert read.header("X-Empty:") == ("X-Empty", "")


@pytest.mark.parametrize(
    "text", ["no colon", ": value", "Bad Name: x", "X-Line: a\r\nX-More: b", "X-Euro: \u20ac", "X-Del: \x7f"]
)
def test_headers_that_would_break_a_request(text):
    with raises_code("header-invalid"):
        read.header(text)


def test_objectives():
    assert read.objective("ttft:200") == ("ttft", 200.0)
    assert read.objective("E2EL:3s") == ("e2el", 3000.0) == read.objective("e2e:3000ms")
    assert read.objective("tpot:50ms") == ("tpot", 50.0)
    assert read.objective("fluidity:90%") == ("fluidity", 0.9)
    assert read.objective("reading:20") == ("reading", 20.0)
    assert read.objective("2/itl:60") == ("2/itl", 60.0)
    assert read.objective("long prompts/idle:0.5s") == ("long prompts/idle", 500.0)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("ttft", "limit in ms"),
        ("ttft:", "in ms"),
        ("ttft:0", "ms above 0"),
        ("ttft:-1", "ms above 0"),
        ("speed:5", "ttft, tpot"),
        ("fluidity:1.5", "a share above 0"),
        ("reading:5ms", "reading:20"),
        ("/ttft:5", "no class of"),
        ("2/speed:5", "ttft, tpot"),
        ("", "ttft, tpot"),
        (":5", "ttft, tpot"),
    ],
)
def test_objectives_that_are_none(text, form):
    with raises_code("objective-invalid", form):
        read.objective(text)


def test_deadlines():
    assert read.prefill_deadline("100") == ((0, 100.0),) == read.prefill_deadline("0.1s")
    assert read.prefill_deadline("4k:400,256:80ms") == ((256, 80.0), (4000, 400.0))
    assert read.milliseconds("50") == 50 == read.milliseconds("0.05s")


@pytest.mark.parametrize("text", ["", "0", "256:", "256:0", "256:80,256:90", "a:80", "256:80,"])
def test_deadlines_that_are_none(text):
    with raises_code("time-invalid"):
        read.prefill_deadline(text)


def test_cpus():
    assert read.cpus("0,2-4") == (0, 2, 3, 4)


@pytest.mark.parametrize("text", ["", "a", "1,1", "3-2", "1-", "-1"])
def test_cpus_that_are_none(text):
    with pytest.raises(ValueError, match="0,2-3"):
        read.cpus(text)


def test_json_object_stays_the_text_that_it_was():
    assert read.json_object('{"top_k": 5}') == '{"top_k": 5}'
    for text, why in (("[1]", "not an object"), ("{", "not JSON"), ("", "not JSON")):
        with raises_code("json-invalid", why):
            read.json_object(text)


@pytest.mark.parametrize("text", ["256", "uniform:128,512", "normal:550,150", "lognormal:5.5,1.0,32,4096"])
def test_lengths(text):
    assert read.lengths(text) == text


@pytest.mark.parametrize("text", ["", "abc", "uniform:5", "uniform:9,3", "zipf:1", "-5", "0"])
def test_lengths_that_are_none(text):
    with raises_code("length-invalid", "uniform:a,b"):
        read.lengths(text)


def test_one_of_proposes_the_nearest():
    with raises_code("choice-unknown", "poisson?"):
        read.arrival("poison")
    with pytest.raises(InvalidValue) as caught:  # no other word, however alike its letters are
        read.one_of("custom", "dynamo")("auto")
    assert "?" not in caught.value.problem
    assert read.arrival("onoff:2,8") == "onoff:2,8"


def test_a_path_as_the_workload_is_refused_with_where_a_file_is_given():
    with raises_code("choice-unknown", "dataset-path FILE, and --workload names its format"):
        WORKLOAD("traces/sessions.jsonl")
    with raises_code("choice-unknown", "did you mean weka"):
        WORKLOAD("wekka")


def test_temperature_may_be_left_to_the_server():
    assert read.temperature("none") is None
    assert read.temperature("0") == 0.0
    with raises_code("number-invalid", "below 0"):
        read.temperature("-1")


def test_share_is_below_one():
    assert read.share("0.15") == read.share("15%") == 0.15
    for text in ("1", "-0.1", "100%"):
        with raises_code("share-invalid", "a share"):
            read.share(text)


@pytest.mark.parametrize("text", ["rate", "=1,2", ""])
def test_an_axis_names_its_option(text: str) -> None:
    """`--vary rate` has forgotten its values; it is not a label."""
    with pytest.raises(ValueError, match="NAME=V1,V2"):
        read.axis(text)
    assert read.axis("isl=uniform:128,512;256") == ("isl", "uniform:128,512;256")
