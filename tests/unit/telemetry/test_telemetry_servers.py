"""Each server's own names become ours; label sets are combined, and the server's name stays with the value."""

import math

import pytest
from metrics_peer import answering, peer, request, response
from prometheus_client.parser import text_string_to_metric_families
from server_pages import LLAMA_CPP, SGLANG, TGI, VLLM

from fastllmload.simulator.pages import METRICS, render_metrics
from fastllmload.telemetry.http_page import HttpPage
from fastllmload.telemetry.sensors.scrape import MOST_LABEL_SETS, Scrape
from fastllmload.telemetry.sensors.sensor import SensorError
from fastllmload.telemetry.servers import SOURCES, engine_of

FIGURES = dict.fromkeys(("stop", "length", "abort", "error"), 0.0)


def scraped(page, *extra, redact=str):
    with peer(answering(page if page.startswith(b"HTTP/") else response(page))) as server:
        scrape = Scrape(HttpPage(server.spec), extra, redact)
        try:
            return scrape.read()
        finally:
            scrape.close()


@pytest.mark.parametrize(
    "name", ['a"b', "a\\", "a\\n", "a\n# TYPE x counter\nx 1", "\x1b[31m", "\udcff", '"} 1\nup{x="']
)
def test_a_model_name_stays_text(name):
    """The simulated engine's page, as the reference reader reads it."""
    families = list(text_string_to_metric_families(render_metrics(name, FIGURES).decode()))
    samples = [sample for family in families for sample in family.samples]
    assert len(samples) == len(METRICS) + 4
    assert {sample.labels["model_name"] for sample in samples} == {name.replace("\udcff", "\ufffd")}


def values(page):
    return {reading.key.name: reading.value for reading in scraped(page)}


def test_vllm():
    assert values(VLLM) == {
        "running": 22.0, "waiting": 3.0, "kv_usage": 0.5, "prefix_cache_queries": 4.1e6, "prefix_cache_hits": 1.025e6,
        "preemptions": 7.0, "prompt_tokens": 51200.0, "generation_tokens": 25600.0, "requests_finished": 100.0,
        "queue_time_sum": 12.5, "queue_time_count": 100.0,
    }  # fmt: skip


def test_sglang():
    assert values(SGLANG) == {
        "running": 5.0, "waiting": 2.0, "kv_usage": 0.42, "prefix_cache_hits": 2000.0, "prefix_cache_queries": 8000.0,
        "prefix_cache_hit_rate": 0.125, "preemptions": 1.0, "prompt_tokens": 8000.0, "generation_tokens": 4400.0,
        "requests_finished": 40.0, "queue_time_sum": 4.0, "queue_time_count": 40.0, "model_load_time": 21.5,
    }  # fmt: skip


def test_tgi():
    assert values(TGI) == {
        "running": 4.0, "waiting": 7.0, "requests_finished": 44.0, "generation_tokens": 8123.0, "prompt_tokens": 9000.0,
        "queue_time_sum": 2.2, "queue_time_count": 44.0,
    }  # fmt: skip


def test_llama_cpp():
    assert values(LLAMA_CPP) == {
        "running": 1.0, "waiting": 4.0, "prompt_tokens": 512.0, "generation_tokens": 1024.0, "engine_steps": 700.0,
    }  # fmt: skip


def test_the_names_of_the_simulator_are_known():
    """A metric that is renamed there would silently be null here."""
    own = {
        f"fastllmload_simulator:{name}"
        for name in (
            "connections",
            "requests_total",
            "refused_total",
            "late_max_seconds",
            "tls_full_total",
            "tls_resumed_total",
            "tls_failed_total",
        )
    }
    assert {name for name, *_ in METRICS} - SOURCES == own


@pytest.mark.parametrize(
    ("page", "name"),
    [
        (VLLM, "vllm"),
        (SGLANG, "sglang"),
        (TGI, "tgi"),
        (LLAMA_CPP, "llama.cpp"),
        (
            render_metrics("m", dict.fromkeys(("stop", "length", "abort", "error"), 0)),
            "fastllmload simulator",
        ),
    ],
)
def test_a_page_gives_its_server_away(page, name):
    assert engine_of(page).name == name


def test_the_server_s_own_name_stays_with_the_value():
    sources = {reading.key.name: reading.key.source for reading in scraped(VLLM)}
    assert sources["kv_usage"] == "vllm:kv_cache_usage_perc" and sources["running"] == "vllm:num_requests_running"


def test_a_name_once_chosen_is_kept():
    """A series must not change its meaning when a server stops sending one of two names."""
    pages = [VLLM, VLLM.replace(b"vllm:kv_cache_usage_perc", b"vllm:other"), VLLM]

    def behave(connection):
        while request(connection):
            connection.sendall(response(pages.pop(0)))

    with peer(behave) as server:
        scrape = Scrape(HttpPage(server.spec))
        reads = [{reading.key.name: reading.value for reading in scrape.read()} for _ in range(3)]
        scrape.close()
    assert [read.get("kv_usage") for read in reads] == [0.5, None, 0.5]


def test_names_that_are_asked_for_keep_their_label_sets():
    asked = [reading for reading in scraped(VLLM, "vllm:request_success_total") if reading.key.labels]
    assert [(reading.key.labels, reading.value, reading.key.kind) for reading in asked] == [
        ("engine='0',finished_reason='stop',model_name='meta-llama/Llama-3.1-8B'", 90.0, "counter"),
        ("engine='0',finished_reason='length',model_name='meta-llama/Llama-3.1-8B'", 10.0, "counter"),
    ]


def test_label_sets_are_bounded_and_their_texts_redacted():
    page = b"".join(b'm{n="%d",key="sk-1"} 1\n' % number for number in range(1000))
    readings = scraped(page, "m", redact=lambda text: text.replace("sk-1", "***"))
    assert len(readings) == MOST_LABEL_SETS and not any("sk-1" in reading.key.labels for reading in readings)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (response(b"", "500 Oops"), "HTTP status 500"),
        (
            response(b"", "302 Found", "Location: http://elsewhere/sk-1"),
            "HTTP status 302, a redirect",
        ),
        (
            response(b"\x1f\x8b", "200 OK", "Content-Encoding: br"),
            "compressed",
        ),
        (response(b"<html>hello</html>"), "of the wanted"),
    ],
)
def test_unusable_pages_have_a_sentence(answer, sentence):
    with pytest.raises(SensorError) as raised:
        scraped(answer)
    assert sentence in str(raised.value) and "sk-1" not in str(raised.value)


def test_a_label_set_without_a_number_leaves_its_sum_unknown_and_no_other():
    """One of two engines says NaN of its running requests; the tokens of both, and the other GPU, are there."""
    page = (
        b'vllm:num_requests_running{engine="0"} 3\nvllm:num_requests_running{engine="1"} NaN\n'
        b'vllm:generation_tokens_total{engine="0"} 5\nvllm:generation_tokens_total{engine="1"} 7\n'
        b'DCGM_FI_DEV_POWER_USAGE{gpu="0"} NaN\nDCGM_FI_DEV_POWER_USAGE{gpu="1"} 250\n'
        b'vllm:kv_cache_usage_perc{engine="0"} +Inf\n'
    )
    found = {(reading.key.name, reading.key.labels): reading.value for reading in scraped(page)}
    assert math.isnan(found["running", ""]) and math.isnan(found["kv_usage", ""])
    assert found["generation_tokens", ""] == 12
    assert found["gpu.power_w", "gpu='1'"] == 250 and math.isnan(found["gpu.power_w", "gpu='0'"])


def grown(*pages):
    """Sums of the tokens of a page's engines over reads of *pages*, and at which of these a part began again."""
    found = []
    bodies = iter(pages)

    def behave(connection):
        while request(connection):
            connection.sendall(response(next(bodies).encode()))

    with peer(behave) as server:
        scrape = Scrape(HttpPage(server.spec))
        for _ in pages:
            (reading,) = scrape.read()
            found.append((reading.value, reading.restarted))
        scrape.close()
    return found


def engines(*values):
    return "".join(f'vllm:generation_tokens_total{{engine="{k}"}} {value}\n' for k, value in values)


def test_an_engine_that_begins_again_alone_does_not_count_the_others_again():
    """Engine 0 counts from 1000 to 1030; engine 1 from 500 to 7 again: the sum grows by 10 + 7, then by 20 + 1."""
    pages = (engines((0, 1000), (1, 500)), engines((0, 1010), (1, 7)), engines((0, 1030), (1, 8)))
    assert grown(*pages) == [(1500.0, False), (1517.0, True), (1538.0, False)]


def test_an_engine_that_is_left_out_keeps_what_it_had_counted():
    pages = (engines((0, 1000), (1, 500)), engines((0, 1010)), engines((0, 1010), (1, 501)), engines((0, 1010), (2, 4)))
    assert [value for value, _ in grown(*pages)] == [1500.0, 1510.0, 1511.0, 1515.0]


def test_the_counter_of_one_engine_goes_back_itself():
    assert grown(engines((0, 1000)), engines((0, 7))) == [(1000.0, False), (7.0, False)]
