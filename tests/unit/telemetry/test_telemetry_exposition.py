"""Prometheus text: wanted names are read as the reference reader reads them, and nothing else costs anything."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from server_pages import VLLM

from fastllmload.telemetry.exposition import Exposition, labels, looks_like_metrics


def read(text, *names):
    return Exposition(names).read(text)


def test_label_sets_of_one_name_come_in_the_order_of_the_page():
    found = read(VLLM, "vllm:num_requests_running").values["vllm:num_requests_running"]
    assert [value for _, value in found] == [12.0, 10.0]
    assert labels(found[1][0]) == {"engine": "1", "model_name": "meta-llama/Llama-3.1-8B"}


def test_a_name_that_begins_another_does_not_take_its_values():
    found = read(b"a 1\na_total 2\na_total_x 3\n", "a", "a_total")
    assert {name: series[0][1] for name, series in found.values.items()} == {"a": 1.0, "a_total": 2.0}


def test_a_label_may_hold_braces_quotes_spaces_and_line_feeds():
    found = read(b'm{a="}{ \\" x",b="\\\\",c="1\\n2"} 5\n', "m").values["m"]
    assert found[0][1] == 5.0 and labels(found[0][0]) == {"a": '}{ " x', "b": "\\", "c": "1\n2"}


@pytest.mark.parametrize(
    "line", [b"m 1", b"m 1\r", b"m\t1", b"m  1 1700000000000", b"m {} 1", b"m{} 1", b'm{a="b",} 1.0']
)
def test_spellings_that_the_format_allows(line):
    assert [value for _, value in read(b"x 3\n" + line + b"\ny 4\n", "m").values["m"]] == [1.0]


@pytest.mark.parametrize(
    "line",
    [
        b"m",
        b"m x",
        b"m 1x",
        b"m 1_000",
        b'm{a="b 1',
        b'm{a="b"}1',
        b" m 1",
        b"m0 1",
        b"# m 1",
        b"m infinity",
        b"m 0x10",
    ],
)
def test_lines_other_than_samples_are_ignored(line):
    assert read(line + b"\n", "m").values == {}


@pytest.mark.parametrize("value", [b"NaN", b"+Inf", b"-Inf", b"1e999"])
def test_values_that_are_not_finite_are_not_numbers(value):
    (_, first), (_, second) = read(b"m " + value + b"\nm 2\n", "m").values["m"]
    assert math.isnan(first) and second == 2.0


def test_type_lines_of_wanted_names_are_kept():
    found = read(b"# TYPE m counter\n# TYPE other gauge\n#  TYPE  n\tgauge\nm 1\n", "m", "n")
    assert found.kinds == {"m": "counter", "n": "gauge"}


def test_a_web_page_or_json_is_not_a_metrics_page():
    assert looks_like_metrics(VLLM) and looks_like_metrics(b"up 1")
    for page in (b"", b"<html>\n<p>a 1</p>\n", b'{"a": 1}', b"# HELP a b\n", b"hello world\n"):
        assert not looks_like_metrics(page)


def test_nothing_wanted_reads_nothing():
    assert read(VLLM).values == {}


@given(st.binary(max_size=2000))
def test_garbage_is_read_without_failing(data):
    found = Exposition(["m", "vllm:num_requests_running"]).read(data)
    assert set(found.values) <= {"m", "vllm:num_requests_running"}


NASTY = [
    b"m{" * 40000,
    b'm{a="' + b'\\"' * 100000,
    b"m" + b" " * 200000 + b"x",
    b'm{a="x",\n' * 30000,
    b"\n" * 300000,
]


@pytest.mark.parametrize("page", NASTY, ids=range(len(NASTY)))
def test_no_page_takes_more_than_linear_work(page):
    """One that backtracked would be at this for hours."""
    assert Exposition(["m"]).read(page).values == {}
    assert not looks_like_metrics(page)


TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)


@given(
    st.lists(
        st.tuples(st.dictionaries(st.sampled_from("abc"), TEXT, max_size=3), st.floats(allow_nan=False)),
        max_size=6,
    )
)
def test_it_reads_what_the_reference_reader_reads(series):
    parser = pytest.importorskip(
        "prometheus_client.parser", reason="without prometheus-client our reader is not compared with the reference"
    )
    lines = ["# TYPE m gauge"]
    for names, value in series:
        escaped = {
            name: text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for name, text in names.items()
        }
        block = ",".join(f'{name}="{text}"' for name, text in escaped.items())
        number = {float("inf"): "+Inf", float("-inf"): "-Inf"}.get(value, repr(value))
        lines.append(f"m{{{block}}} {number}")
    page = "\n".join(lines) + "\n"
    theirs = [
        (sample.labels, sample.value)
        for family in parser.text_string_to_metric_families(page)
        for sample in family.samples
    ]
    ours = [(labels(block), value) for block, value in read(page.encode(), "m").values.get("m", [])]
    assert [block for block, _ in ours] == [block for block, _ in theirs]
    for (_, number), (_, their) in zip(ours, theirs, strict=True):
        assert number == their if math.isfinite(their) else math.isnan(number)
