"""Figures over several pages, computed by hand: energy by counters, replicas, pools, speculative decoding, adapters."""

from dataclasses import replace

import numpy as np
import pytest

from fastllmload.metrics.run.window import Window
from fastllmload.telemetry.cluster import cluster_of, of_asked_models, warnings
from fastllmload.telemetry.energy import by_counter, by_power
from fastllmload.telemetry.files import SourceEntry
from fastllmload.telemetry.series import TelemetryRecord, TelemetrySeries
from fastllmload.telemetry.server_figures import Spans, server_figures

S = 1_000_000_000
ZERO = 1_000_000 * S  # ns since boot are large
WINDOW = Window(ZERO + 10 * S, ZERO + 20 * S, closed=False)
GPU = "gpu='{0}',node='n1',uuid='GPU-{0}'"


def series(
    name, values, unit="J", kind="counter", origin="http://e:9400/metrics", role="gpu", labels="", pool=None, t=None
):
    """One value per second from ZERO, or at *t*."""
    at = ZERO + (np.arange(len(values)) if t is None else np.array(t)) * S
    at = at.astype(np.int64)
    return TelemetrySeries(
        name, f"their_{name}", origin, role, unit, kind, labels, at, at, np.array(values, np.float64), pool
    )


def record(*given, facts=()):
    pages = {one.origin: one for one in given}
    sources = [SourceEntry(origin, one.source_kind, label=one.pool, exporter="x") for origin, one in pages.items()]
    if facts:
        sources.append(SourceEntry("nvml", "power", facts=list(facts)))
    return TelemetryRecord(tuple(given), tuple(sources))


def cluster(*given, **more):
    found = record(*given, **more)
    return cluster_of(found, Spans(found, WINDOW), WINDOW, None)


def straight(watts, start=7e6):
    return [start + watts * second for second in range(31)]


# -- energy -----------------------------------------------------------------------------------------------------------


def test_a_counter_is_interpolated_at_the_ends_of_the_window():
    """100 W for 10.5 s, then 300 W: in the window 0.5 s of the one and 9.5 s of the other."""
    at = [0, 4, 8, 10.5, 14, 19, 25]
    joules = [100 * min(t, 10.5) + 300 * max(0, t - 10.5) for t in at]
    assert by_counter(series("e", joules, t=at), WINDOW).watts == pytest.approx((50 + 2850) / 10)


def test_a_counter_that_is_renewed_rarely_counts_where_it_changes():
    """It is renewed every 4 s at 250 W; between these reads it repeats itself."""
    values = [250.0 * (second // 4 * 4) for second in range(31)]
    found = by_counter(series("e", values), WINDOW)
    assert found.watts == pytest.approx(250) and found.n == 2


@pytest.mark.parametrize(
    ("values", "words"), [([5.0] * 31, "did not change"), ([5.0] * 15 + [9.0] * 16, "changed once")]
)
def test_less_than_two_new_values_give_none(values, words):
    found = by_counter(series("e", values), WINDOW)
    assert found.watts is None and words in found.reason


def test_what_is_read_outside_of_the_window_is_not_counted():
    values = [0.0] * 31
    for second in range(31):
        values[second] = 1e6 * second if second < 10 else 9e6 + 50 * (second - 9) if second <= 20 else 1e9 + second
    assert by_counter(series("e", values, t=range(31)), WINDOW).watts == pytest.approx(50, rel=0.01)


def test_a_restarted_counter_counts_from_zero_again():
    values = [100.0 * second for second in range(15)] + [100.0 * second for second in range(16)]
    found = by_counter(series("e", values), WINDOW)
    assert found.watts == pytest.approx(90)  # what it counted in the second of the restart is lost
    said = warnings(record(series("e", values)), Spans(record(series("e", values)), WINDOW), None)
    assert len(said) == 1 and "went back 1 times" in said[0] and "[counter-restarted]" in said[0]


def test_gaps_are_left_out():
    values = straight(120)
    values[12] = values[13] = float("nan")
    assert by_counter(series("e", values), WINDOW).watts == pytest.approx(120)


def test_power_needs_two_reads():
    assert by_power(series("p", [5.0] * 31, "W", "gauge"), WINDOW).watts == 5.0
    found = by_power(series("p", [5.0, 7.0], "W", "gauge", t=[5, 15]), WINDOW)
    assert found.watts is None and "was read 1 times" in found.reason


def test_energy_is_the_sum_over_all_gpus_of_all_nodes():
    found = cluster(
        series("gpu.energy_j", straight(300), labels=GPU.format(0)),
        series("gpu.energy_j", straight(420), labels="gpu='0',node='n2',uuid='GPU-9'", origin="http://f:9400/metrics"),
        series("gpu.power_w", [310.0] * 31, "W", "gauge", labels=GPU.format(0)),
    )
    assert found.energy.power_w == pytest.approx(720) and found.energy.energy_j == pytest.approx(7200)
    assert (found.energy.of, found.energy.devices, found.energy.method, found.energy.n) == ("gpus", 2, "counter", 10)
    assert [node.gpu_energy_j for node in found.nodes] == pytest.approx([3000, 4200])
    assert found.gpus[0].energy_by_power_j == pytest.approx(3100)
    assert found.energy.energy_by_power_j is None  # of one GPU only


def test_a_gpu_that_three_sources_report_counts_once():
    """DCGM's, Triton's and NVML's figures are of one device, by its UUID."""
    found = cluster(
        series("gpu.energy_j", straight(300), labels=GPU.format(0)),
        series("gpu.energy_j", straight(301), labels="uuid='gpu-0'", origin="http://t:8002/metrics", role="server"),
        series("gpu0.energy_j", straight(302), origin="nvml", role="power"),
        facts=[{"index": 0, "uuid": "GPU-0"}],
    )
    (gpu,) = found.gpus
    assert gpu.power_w == pytest.approx(300) and len(gpu.sources) == 3 and (gpu.node, gpu.gpu) == ("n1", "0")
    assert found.energy.devices == 1


def test_a_gpu_without_a_counter_is_power_and_time_and_one_without_both_makes_the_sum_unknown():
    power = series("gpu.power_w", [200.0] * 31, "W", "gauge", labels=GPU.format(1))
    found = cluster(series("gpu.energy_j", straight(300), labels=GPU.format(0)), power)
    assert found.energy.method == "mixed" and found.energy.power_w == pytest.approx(500)
    silent = series("gpu.utilisation", [0.5] * 31, "share", "gauge", labels=GPU.format(2))
    unknown = cluster(series("gpu.energy_j", straight(300), labels=GPU.format(0)), silent)
    assert unknown.energy.energy_j is None and unknown.energy.reason == unknown.gpus[1].reason is not None


def test_without_gpus_it_is_of_the_cpus_of_all_nodes():
    nodes = [f"http://n{k}:9100/metrics" for k in (1, 2)]
    found = cluster(
        *(series("cpu.energy_j", straight(80), origin=origin, role="node") for origin in nodes),
        series("dram.energy_j", straight(10), origin=nodes[0], role="node"),
        series("node.cpu_s", [4.0 * t for t in range(31)], "s", origin=nodes[0], role="node"),
        series("node.cpu_idle_s", [1.0 * t for t in range(31)], "s", origin=nodes[0], role="node"),
    )
    assert (found.energy.of, found.energy.devices) == ("cpus", 2) and found.energy.power_w == pytest.approx(170)
    assert [one.cpu_energy_j for one in found.nodes] == pytest.approx([900, 800])
    assert found.nodes[0].cpu_busy == pytest.approx(0.75) and found.nodes[1].cpu_busy is None


def test_idle_power_is_that_before_the_first_request():
    """60 W up to second 5, then 300 W."""
    joules = [60.0 * min(t, 5) + 300.0 * max(0, t - 5) for t in range(31)]
    found = record(series("gpu.energy_j", joules, labels=GPU.format(0)))
    energy = cluster_of(found, Spans(found, WINDOW), WINDOW, None, idle_until_ns=ZERO + 5 * S).energy
    assert energy.idle_w == pytest.approx(60) and energy.above_idle_j == pytest.approx(2400)


def test_idle_power_is_not_mixed_with_that_of_the_load():
    """100 W until second 9, then 700 W; the counter is renewed every 4 s: nothing between the reads at 8 and 12 is idle."""
    at = [second // 4 * 4 for second in range(31)]
    joules = [100.0 * min(t, 9) + 700.0 * max(0, t - 9) for t in at]
    power = [100.0 if second <= 9 else 700.0 for second in range(31)]
    for given in (
        series("gpu.energy_j", joules, labels=GPU.format(0)),
        series("gpu.power_w", power, "W", "gauge", labels=GPU.format(0)),
    ):
        found = record(given)
        energy = cluster_of(found, Spans(found, WINDOW), WINDOW, None, idle_until_ns=ZERO + 19 * S // 2).energy
        assert energy.idle_w == pytest.approx(100)


def test_a_gpu_whose_uuid_only_one_exporter_says_counts_once():
    """By node and number; not where two GPUs of that node have the number."""
    plain = series("gpu.energy_j", straight(301), labels="gpu='0',node='n1'", origin="http://t/metrics")
    one = series("gpu.energy_j", straight(300), labels=GPU.format(0))
    for given in ((one, plain), (plain, one)):
        (gpu,) = cluster(*given).gpus
        assert gpu.uuid == "GPU-0" and len(gpu.sources) == 2 and gpu.power_w == pytest.approx(300)
    other = series("gpu.energy_j", straight(100), labels="gpu='0',node='n1',uuid='GPU-7'")
    elsewhere = series("gpu.energy_j", straight(50), labels="gpu='0',node='n2'", origin="http://t/metrics")
    assert len(cluster(one, other, plain).gpus) == 3 and len(cluster(one, elsewhere).gpus) == 2


def test_a_series_that_was_asked_for_makes_no_node():
    """Its labels are the exporter's own, {node="a"} included."""
    page = {"origin": "http://n:9100/metrics", "role": "node"}
    given = (
        series("cpu.energy_j", straight(80), labels="node='n1'", **page),
        series("node_filesystem_avail_bytes", [5.0] * 31, "", "gauge", labels="mountpoint='/',node='a'", **page),
        series("node_disk_io_now", [5.0] * 31, "", "gauge", **page),
    )
    assert [one.node for one in cluster(*given).nodes] == ["n1"]


# -- replicas, pools --------------------------------------------------------------------------------------------------


def server(number, requests, tokens, running, pool=None):
    origin = f"http://s{number}:8000/metrics"
    return (
        series(
            "requests_finished", [requests * t for t in range(31)], "requests", origin=origin, role="server", pool=pool
        ),
        series("generation_tokens", [tokens * t for t in range(31)], "tokens", origin=origin, role="server", pool=pool),
        series("running", [running] * 31, "requests", "gauge", origin=origin, role="server", pool=pool),
    )


def test_balance_between_replicas():
    """3 and 1 requests a second: shares 3/4 and 1/4, largest / mean 3/2, standard deviation 1 / mean 2."""
    found = cluster(*server(1, 3.0, 10.0, 4.0), *server(2, 1.0, 10.0, 2.0))
    assert [one.request_share for one in found.replicas] == pytest.approx([0.75, 0.25])
    assert [one.token_share for one in found.replicas] == pytest.approx([0.5, 0.5])
    requests, tokens = found.balance["requests"], found.balance["generation_tokens"]
    assert (requests.max_over_mean, requests.cv) == pytest.approx((1.5, 0.5))
    assert (tokens.max_over_mean, tokens.cv) == pytest.approx((1.0, 0.0))


def test_one_server_alone_has_no_table():
    assert cluster(*server(1, 3.0, 10.0, 4.0)) is None


def test_pools_have_their_servers_and_gpus():
    found = cluster(
        *server(1, 3.0, 10.0, 4.0, "prefill"),
        *server(2, 1.0, 20.0, 2.0, "decode"),
        *server(3, 1.0, 30.0, 3.0, "decode"),
        series("gpu.energy_j", straight(300), labels=GPU.format(0), pool="decode"),
        series("gpu.utilisation", [0.5] * 31, "share", "gauge", labels=GPU.format(0), pool="decode"),
    )
    prefill, decode = found.pools
    assert (prefill.label, prefill.replicas, prefill.gpus, prefill.energy_j) == ("prefill", 1, 0, None)
    assert (decode.running, decode.generation_tok_s, decode.utilisation) == pytest.approx((5.0, 50.0, 0.5))
    assert decode.energy_j == pytest.approx(3000)


def test_routers_are_not_added_to_their_servers():
    router = series(
        "generation_tokens", [30.0 * t for t in range(31)], "tokens", origin="http://r/metrics", role="router"
    )
    found = record(*server(1, 3.0, 10.0, 4.0), *server(2, 1.0, 20.0, 2.0), router)
    assert server_figures(Spans(found, WINDOW), None)["generation_tokens"].value == pytest.approx(300)
    waiting = series("waiting", [3.0] * 31, "requests", "gauge", origin="http://r/metrics", role="router")
    found = record(*server(1, 3.0, 10.0, 4.0), *server(2, 1.0, 20.0, 2.0), waiting)
    figure = server_figures(Spans(found, WINDOW), None)["waiting"]
    assert (figure.value, figure.source) == (3.0, "their_waiting (1 router)")
    alone = record(router)
    assert server_figures(Spans(alone, WINDOW), None)["generation_tokens"].value == pytest.approx(300)


# -- caches, speculative decoding, adapters -----------------------------------------------------------------------------


def counter(name, per_second, **more):
    return series(
        name, [per_second * t for t in range(31)], "tokens", origin="http://s:8000/metrics", role="server", **more
    )


def test_the_hit_rate_says_whether_it_is_of_tokens_or_blocks():
    def rate(*given):
        figure = server_figures(Spans(record(*given), WINDOW), None)["prefix_cache_hit_rate"]
        return figure.value, figure.source.rpartition(", ")[2]

    assert rate(counter("prefix_cache_hits", 3.0), counter("prefix_cache_queries", 4.0)) == (0.75, "tokens")
    assert rate(counter("prefix_cache_hit_blocks", 3.0), counter("prefix_cache_missed_blocks", 9.0)) == (0.25, "blocks")
    gauge = series("prefix_cache_hit_rate", [0.125] * 31, "share", "gauge", origin="http://s/metrics", role="server")
    assert rate(gauge) == (0.125, "the server's gauge")


def of(number, name, per_second, role="server", kind="counter"):
    values = [per_second * t for t in range(31)] if kind == "counter" else [per_second] * 31
    return series(name, values, "", kind, origin=f"http://{number}/metrics", role=role)


def test_the_hit_rate_of_servers_that_count_differently_says_which_it_is_of():
    """3 of 4 and 1 of 4 tokens, 1 of 4 blocks, a gauge, and a server without any: 4 of 8 tokens of the first two."""
    given = (
        of("a", "prefix_cache_hits", 3.0), of("a", "prefix_cache_queries", 4.0),
        of("b", "prefix_cache_hits", 1.0), of("b", "prefix_cache_queries", 4.0),
        of("c", "prefix_cache_hit_blocks", 1.0), of("c", "prefix_cache_missed_blocks", 3.0),
        of("d", "prefix_cache_hit_rate", 0.75, kind="gauge"), of("e", "running", 1.0, kind="gauge"),
        of("r", "prefix_cache_hits", 99.0, "router"), of("r", "prefix_cache_queries", 99.0, "router"),
    )  # fmt: skip
    spans = Spans(record(*given), WINDOW)
    figure = server_figures(spans, None)["prefix_cache_hit_rate"]
    assert figure.value == pytest.approx(0.5) and "(2 of 5 servers)" in figure.source
    (said,) = warnings(record(*given), spans, None)
    assert "[servers-left-out]" in said and "http://a/metrics, http://b/metrics" in said
    for origin, why in (("c", "counts blocks"), ("d", "gauge"), ("e", "does not report it")):
        assert f"http://{origin}/metrics ({why}" in said or (origin == "d" and why in said)
    assert "http://r/" not in said
    assert [one.prefix_cache_hit_rate for one in cluster(*given).replicas] == pytest.approx(
        [0.75, 0.25, 0.25, 0.75, None]
    )
    same = given[:4]
    assert warnings(record(*same), Spans(record(*same), WINDOW), None) == []


def test_a_ratio_is_of_servers_that_have_both_of_its_counters():
    """2 preemptions of 10 requests; 90 requests of a server that counts no preemptions have no part in it."""
    given = (of("a", "preemptions", 2.0), of("a", "requests_finished", 10.0), of("b", "requests_finished", 90.0))
    figure = server_figures(Spans(record(*given), WINDOW), None)["preemption_rate"]
    assert figure.value == pytest.approx(0.2) and "(1 of 2 servers)" in figure.source


def test_a_counter_that_a_server_shows_from_its_first_event_on_began_at_zero():
    """The page is there from the start, its counter of preemptions from second 12 on: 3 and 4 more in the window."""
    late = series("preemptions", [3.0] * 3 + [7.0] * 16, "", origin="http://a/metrics", role="server",
                  t=range(12, 31))  # fmt: skip
    given = (of("a", "running", 1.0, kind="gauge"), late)
    assert server_figures(Spans(record(*given), WINDOW), None)["preemptions"].value == 7
    assert server_figures(Spans(record(late), WINDOW), None)["preemptions"].value == 4  # nothing says that it was 0


def test_a_page_that_ends_in_the_window_is_said_and_not_added():
    """Both serve 10 tokens a second; the page of one is not read from second 15 on."""
    ended = [10.0 * t if t < 15 else float("nan") for t in range(31)]
    given = (
        of("a", "generation_tokens", 10.0), series("generation_tokens", ended, origin="http://b/metrics", role="server"),
    )  # fmt: skip
    spans = Spans(record(*given), WINDOW)
    assert server_figures(spans, None)["generation_tokens"].value is None
    found = cluster(*given)
    assert [one.generation_tokens for one in found.replicas] == [100, None] and found.balance == {}
    assert [one.token_share for one in found.replicas] == [None, None]
    (said,) = warnings(record(*given), spans, found)
    assert "[metrics-page-ended]" in said and "http://b/metrics" in said and "http://a/" not in said


def test_acceptance_is_one_and_accepted_tokens_of_a_draft():
    """10 drafts of 3 tokens a second, 15 tokens accepted: 1 + 15/10 tokens a verification, half of the tokens."""
    found = cluster(
        counter("drafts", 10.0), counter("draft_tokens", 30.0), counter("accepted_tokens", 15.0),
        counter("accepted_at", 9.0, labels="position='0'"), counter("accepted_at", 4.0, labels="position='1'"),
        counter("accepted_at", 2.0, labels="position='10'"),
    ).speculation  # fmt: skip
    assert (found.acceptance_length, found.acceptance_rate) == pytest.approx((2.5, 0.5))
    assert found.by_position == pytest.approx((0.9, 0.4, 0.2)) and found.method == "counters"


def test_servers_that_count_no_drafts_have_no_part_in_the_length():
    """One that accepts 15 tokens of 10 drafts a second, one that says 45 of 60 tokens and not of how many drafts."""
    other = [
        series(name, [rate * t for t in range(31)], "tokens", origin="http://o/metrics", role="server")
        for name, rate in (("draft_tokens", 60.0), ("accepted_tokens", 45.0))
    ]
    found = cluster(
        counter("drafts", 10.0), counter("draft_tokens", 30.0), counter("accepted_tokens", 15.0), *other
    ).speculation
    assert (found.acceptance_length, found.acceptance_rate) == pytest.approx((2.5, 60 / 90))


def test_acceptance_by_gauges_says_so():
    pair = [
        series(name, [value] * 31, "", "gauge", origin="http://s/metrics", role="server")
        for name, value in (("acceptance_length", 2.5), ("acceptance_rate", 0.75))
    ]
    found = cluster(*pair).speculation
    assert (found.acceptance_length, found.acceptance_rate, found.method) == (2.5, 0.75, "gauges")
    assert cluster(counter("draft_tokens", 0.0), counter("accepted_tokens", 0.0)) is None


def test_servers_that_drafted_nothing_have_no_part_in_gauges_of_acceptance():
    """SGLang's gauges are 0 without drafts: of one server until second 15, of another always. A rate of 0 with drafts
    counts.
    """
    given = []
    for number, length, rate in (
        ("a", [0.0] * 15 + [2.5] * 16, [0.0] * 15 + [0.5] * 16), ("b", [0.0] * 31, [0.0] * 31), ("c", [1.0] * 31, [0.0] * 31)
    ):  # fmt: skip
        more = {"kind": "gauge", "origin": f"http://{number}/metrics", "role": "server"}
        given += [series("acceptance_length", length, "", **more), series("acceptance_rate", rate, "", **more)]
    found = cluster(*given).speculation
    assert (found.acceptance_length, found.acceptance_rate) == pytest.approx((1.75, 0.25))
    assert "(2 of 3 servers)" in found.source
    assert cluster(*given[2:4]) is None


def test_a_part_of_a_sum_that_began_again_is_said():
    """The sum does not go back; the warning is by the reads that the record lists."""
    given = replace(of("a", "generation_tokens", 10.0), restarts_ns=np.array([ZERO + 15 * S, ZERO + 25 * S]))
    (said,) = warnings(record(given), Spans(record(given), WINDOW), None)
    assert "[counter-restarted]" in said and "1 times" in said


def test_a_full_pool_of_adapters_is_said():
    """Of the reads in seconds 10 to 19 the last four are full."""
    used = [2.0] * 16 + [4.0] * 15
    more = {"kind": "gauge", "origin": "http://s/metrics", "role": "server"}
    given = (series("adapters_used", used, "", **more), series("adapters_total", [4.0] * 31, "", **more))
    found = cluster(*given)
    pool = found.adapters
    assert (pool.used_mean, pool.used_max, pool.total, pool.full_share) == pytest.approx((2.8, 4.0, 4.0, 0.4))
    (said,) = warnings(record(*given), Spans(record(*given), WINDOW), found)
    assert "all 4 places" in said and "40%" in said and "[adapters-full]" in said


# -- one node, one request -------------------------------------------------------------------------------------------------


def of_node(name, watts, uuid=None, gpu="0", origin="http://e:9400/metrics"):
    labels = f"gpu='{gpu}',node='{name}'" + ("" if uuid is None else f",uuid='{uuid}'")
    return series("gpu.energy_j", straight(watts), labels=labels, origin=origin)


def busy_node(name, origin):
    return [
        series("node.cpu_s", [16.0 * t for t in range(31)], "s", origin=origin, role="node", labels=f"node='{name}'"),
        series("node.cpu_idle_s", [12.0 * t for t in range(31)], "s", origin=origin, role="node", labels=f"node='{name}'"),
    ]  # fmt: skip


@pytest.mark.parametrize("names", [("n1", "n1.example.org"), ("n1.example.org", "n1"), ("N1", "n1")])
def test_a_short_and_a_full_name_are_one_node(names):
    """The exporter of GPUs has one, that of the node the other: energy and use of CPUs are of one node."""
    found = cluster(of_node(names[0], 100), *busy_node(names[1], "http://e:9100/metrics"))
    (node,) = found.nodes
    assert node.node.lower() == max(names, key=len).lower() == found.gpus[0].node.lower()
    assert node.gpus == 1 and node.gpu_energy_j == pytest.approx(1000) and node.cpu_busy == pytest.approx(0.25)


def test_a_gpu_without_a_uuid_is_that_of_the_full_name():
    found = cluster(of_node("n1", 100), of_node("n1.example.org", 100, uuid="GPU-0", origin="http://f:9400/metrics"))
    assert [gpu.node for gpu in found.gpus] == ["n1.example.org"] and found.energy.power_w == pytest.approx(100)


@pytest.mark.parametrize("others", [("n1.a", "n1.b"), ("n2.a",), ("10.0.0.1",)])
def test_other_names_are_other_nodes(others):
    """Of two full names that begin so neither is that of the short one; an address is not a name."""
    given = [of_node(name, 100, gpu=str(k)) for k, name in enumerate(("n1", *others))]
    found = cluster(*given)
    assert [node.node for node in found.nodes] == ["n1", *others]
    assert found.energy.power_w == pytest.approx(100 * len(given))


def test_the_meters_of_a_node_with_two_names_count_once():
    given = [
        series("cpu.energy_j", straight(50), origin=origin, role="node", labels=f"node='{name}'")
        for name, origin in (("n1", "http://e:9100/m"), ("n1.example.org", "http://f:9100/m"))
    ]
    energy = cluster(*given).energy
    assert (energy.of, energy.devices) == ("cpus", 1) and energy.power_w == pytest.approx(50)


@pytest.mark.parametrize(
    ("models", "requests"), [(["ensemble"], 10.0), (["other"], 11.0), (["ensemble", "preprocessing"], 20.0)]
)
def test_requests_of_an_ensemble_count_once(models, requests):
    """Those of the models that the run asks; of a page that has none of them, of the one that counts the most."""
    counted = {"ensemble": 1.0, "preprocessing": 1.0, "tensorrt_llm": 1.1}
    pages = [
        series("requests_finished", [rate * t for t in range(31)], "requests", origin=origin, role="server",
               labels=f"model='{model}'")
        for origin in ("http://a:8002/metrics", "http://b:8002/metrics") for model, rate in counted.items()
    ]  # fmt: skip
    found = of_asked_models(record(*pages), models, WINDOW)
    replicas = cluster_of(found, Spans(found, WINDOW), WINDOW, None).replicas
    assert [one.requests for one in replicas] == [pytest.approx(requests)] * 2
    assert [one.request_share for one in replicas] == [0.5, 0.5]
    assert of_asked_models(record(*pages[:1]), ["x"], WINDOW).series == (pages[0],)
