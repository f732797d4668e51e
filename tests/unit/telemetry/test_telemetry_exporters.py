"""The page of each exporter: it is recognised, its names and units become ours, and a GPU is there once."""

import re
from pathlib import Path

import pytest
from exporter_pages import (
    AMD,
    CPX,
    DCGM,
    DYNAMO_COMPONENT,
    DYNAMO_FRONTEND,
    ENSEMBLE,
    LLM_D_EPP,
    MIG,
    NODE,
    SPECULATIVE,
    TRITON,
    TRTLLM,
)
from metrics_peer import answering, peer, response
from server_pages import SGLANG, VLLM

from fastllmload.redact import labelled, url_secrets
from fastllmload.telemetry.exposition import Exposition
from fastllmload.telemetry.http_page import HttpPage
from fastllmload.telemetry.sensors.scrape import Scrape
from fastllmload.telemetry.servers import FOUND, KNOWN, SOURCES, engine_of


def read(page):
    """(name, labels) -> (value, unit, kind) of every reading of a page."""
    with peer(answering(response(page))) as server:
        scrape = Scrape(HttpPage(server.spec))
        try:
            readings = scrape.read()
        finally:
            scrape.close()
    return {(one.key.name, one.key.labels): (one.value, one.key.unit, one.key.kind) for one in readings}


def plain(page):
    return {name: value for (name, _), (value, *_) in read(page).items()}


PAGES = [
    (TRTLLM, "tensorrt-llm", "server"),
    (TRITON, "triton", "server"),
    (DYNAMO_FRONTEND, "dynamo frontend", "router"),
    (DYNAMO_COMPONENT, "dynamo component", "server"),
    (LLM_D_EPP, "llm-d epp", "router"),
    (DCGM, "dcgm", "gpu"),
    (MIG, "dcgm", "gpu"),
    (AMD, "amd", "gpu"),
    (NODE, "node", "node"),
    (TRITON[TRITON.index(b"nv_gpu_power") :], "triton devices", "gpu"),
    (SPECULATIVE, "vllm", "server"),
    (b"# HELP dynamo_component_x y\n" + DYNAMO_COMPONENT + VLLM, "vllm", "server"),
]


@pytest.mark.parametrize(("page", "name", "role"), PAGES, ids=[name for _, name, _ in PAGES])
def test_a_page_is_recognised(page, name, role):
    found = engine_of(page)
    assert (found.name, found.role) == (name, role)


def test_a_page_of_something_else_has_no_exporter():
    assert engine_of(b"go_goroutines 5\nprocess_cpu_seconds_total 1\n") is None


def test_tensorrt_llm():
    assert plain(TRTLLM) == {
        "running": 6.0, "waiting": 2.0, "paused": 1.0, "kv_usage": 0.62, "prefix_cache_hit_rate": 0.1,
        "prefix_cache_hit_blocks": 30.0, "prefix_cache_missed_blocks": 90.0, "prompt_tokens": 4000.0,
        "generation_tokens": 900.0, "requests_finished": 9.0, "queue_time_sum": 0.5, "queue_time_count": 9.0,
        "draft_tokens": 300.0, "accepted_tokens": 120.0, "acceptance_length": 2.2,
    }  # fmt: skip


def test_triton():
    """Its gauges of TensorRT-LLM have a label that says what is counted; energy is in J, use from 0 to 1."""
    assert plain(TRITON) == {
        "running": 5.0, "waiting": 1.0, "kv_usage": 0.25, "requests_finished": 44.0, "gpu.power_w": 250.5,
        "gpu.energy_j": 205620.5, "gpu.utilisation": 0.5, "gpu.memory_used_bytes": 2.0**30,
    }  # fmt: skip


def test_dynamo():
    assert plain(DYNAMO_FRONTEND) == {
        "running": 8.0, "waiting": 3.0, "requests_finished": 20.0, "prompt_tokens": 5000.0, "generation_tokens": 1500.0,
        "server_ttft_sum": 4.5, "server_ttft_count": 20.0,
    }  # fmt: skip
    assert plain(DYNAMO_COMPONENT) == {
        "running": 4.0, "kv_usage": 0.3, "prefix_cache_hit_rate": 0.4, "requests_finished": 17.0,
    }  # fmt: skip


def test_llm_d():
    assert plain(LLM_D_EPP) == {
        "running": 12.0, "waiting": 1.5, "kv_usage": 0.45, "requests_finished": 60.0, "prompt_tokens": 6000.0,
        "prefix_cache_queries": 6000.0, "prefix_cache_hits": 1500.0, "generation_tokens": 900.0, "server_ttft_sum": 6.0,
        "server_ttft_count": 60.0,
    }  # fmt: skip


def test_dcgm():
    """Energy is in mJ, use in percent, memory in MiB."""
    gpu = "gpu='0',node='n1',uuid='GPU-aa'"
    assert read(DCGM) == {
        ("gpu.sm_clock_mhz", gpu): (1980.0, "MHz", "gauge"),
        ("gpu.temperature_c", gpu): (61.0, "degrees Celsius", "gauge"),
        ("gpu.power_w", gpu): (512.25, "W", "gauge"),
        ("gpu.energy_j", gpu): (pytest.approx(15152422.938), "J", "counter"),
        ("gpu.utilisation", gpu): (pytest.approx(0.87), "share", "gauge"),
        ("gpu.memory_used_bytes", gpu): (2048 * 2.0**20, "bytes", "gauge"),
        ("gpu.engine_active", gpu): (0.81, "share", "gauge"),
    }


def test_partitions_share_the_energy_of_their_gpu():
    gpu = "gpu='0',node='n1',uuid='GPU-aa'"
    found = {name: value for (name, labels), (value, *_) in read(MIG).items() if labels == gpu}
    assert found == {
        "gpu.energy_j": 5.0, "gpu.memory_used_bytes": 150 * 2.0**20, "gpu.engine_active": pytest.approx(0.3),
    }  # fmt: skip


def test_a_gpu_with_a_value_of_its_own_is_not_added_to_its_partitions():
    page = "".join(
        f'DCGM_FI_DEV_FB_USED{{gpu="0",UUID="GPU-aa"{part},Hostname="n1"}} {value}\n'
        for part, value in (("", 300), (',GPU_I_ID="1"', 100), (',GPU_I_ID="2"', 200))
    )
    assert plain(page.encode()) == {"gpu.memory_used_bytes": 300 * 2.0**20}


@pytest.mark.parametrize("serial", ["N/A", "", "unknown"])
def test_gpus_whose_serial_number_is_not_known_have_only_their_number(serial):
    page = "".join(
        f'gpu_package_power{{gpu_id="{gpu}",serial_number="{serial}",hostname="n2"}} {100 + gpu}\n' for gpu in (0, 1)
    )
    assert {labels for _, labels in read(page.encode())} == {"gpu='0',node='n2'", "gpu='1',node='n2'"}


def test_amd():
    """Energy is in uJ, and a counter although the page says gauge; use is in percent, memory in MB."""
    found = read(AMD)
    first, second = ("gpu='0',node='n2',uuid='SN-0'", "gpu='1',node='n2',uuid='SN-1'")
    assert found["gpu.energy_j", first] == (pytest.approx(14000000.125, abs=1e-6), "J", "counter")
    assert found["gpu.energy_j", second][0] == 2e6
    assert (found["gpu.power_w", first][0], found["gpu.power_w", second][0]) == (748.0, 751.0)
    assert found["gpu.utilisation", first][0] == pytest.approx(0.93)
    assert found["gpu.memory_used_bytes", first][0] == 183265e6
    assert found["gpu.temperature_c", first][0] == 76.0 and found["gpu.sm_clock_mhz", first][0] == 2100.0


def test_a_node_is_named_by_itself():
    assert {labels for _, labels in read(NODE)} == {"node='n1'"}
    assert plain(NODE) == {
        "node.cpu_s": 2000.0, "node.cpu_idle_s": 1700.0, "node.memory_available_bytes": 6.4e10, "node.load1": 3.5,
        "cpu.energy_j": 3000.75, "dram.energy_j": 300.0,
    }  # fmt: skip


def test_speculation_and_adapters_of_vllm():
    """Counters of several engines are added, by position; of the label sets of adapters the newest counts."""
    found = {(name, labels): value for (name, labels), (value, *_) in read(SPECULATIVE).items()}
    assert found == {
        ("drafts", ""): 200.0, ("draft_tokens", ""): 300.0, ("accepted_tokens", ""): 150.0,
        ("accepted_at", "position='0'"): 100.0, ("accepted_at", "position='1'"): 50.0,
        ("adapters_used", ""): 2.0, ("adapters_total", ""): 4.0,
    }  # fmt: skip


def test_speculation_and_adapters_of_sglang():
    more = b'sglang:spec_accept_length{a="b"} 2.5\nsglang:spec_accept_rate 0.75\n'
    pool = b"sglang:lora_pool_slots_used 3\nsglang:lora_pool_slots_total 8\n"
    found = plain(SGLANG + more + pool)
    assert [found[name] for name in ("acceptance_length", "acceptance_rate", "adapters_used", "adapters_total")] == [
        2.5, 0.75, 3.0, 8.0]  # fmt: skip


def test_queues_between_prefill_and_decode_of_sglang():
    queues = ("prefill_prealloc", "prefill_inflight", "decode_prealloc", "decode_transfer")
    page = "".join(f'sglang:num_{name}_queue_reqs{{tp_rank="0"}} {n}\n' for n, name in enumerate(queues, 1))
    assert plain(page.encode()) == {
        "prefill_bootstrapping": 1, "prefill_transferring": 2, "decode_preallocating": 3, "decode_transferring": 4
    }  # fmt: skip


def test_the_table_says_each_name_once_and_has_no_empty_unit():
    for known in KNOWN:
        pairs = [(source.name, tuple(sorted(source.labels.items()))) for source in known.sources]
        assert len(set(pairs)) == len(pairs) and known.unit != ""
    assert {one.role for one in FOUND.exporter.values()} == {"server", "router", "gpu", "node"}


def test_the_guide_lists_every_exporter():
    guide = (Path(__file__).parents[3] / "docs/guides/telemetry.md").read_text()
    rows = [line.split("|")[1] for line in guide.splitlines() if line.startswith("| `")]
    assert {name for row in rows for name in re.findall("`([^`]+)`", row)} >= set(FOUND.exporter)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("http://h:1/metrics", (None, "http://h:1/metrics")),
        ("prefill=http://h:1", ("prefill", "http://h:1")),
        ("h:1/m?a=b", (None, "h:1/m?a=b")),
        ("a=b=c", ("a", "b=c")),
    ],
)
def test_a_label_is_what_is_in_front_of_the_url(text, found):
    assert labelled(text) == found


def test_the_password_of_a_labelled_url_is_a_secret():
    assert url_secrets("node1=https://user:pass-word@h:1") == ["pass-word"]


def test_partitions_of_amd_are_one_board():
    """Power and energy are the board's, whichever partitions repeat them; what is of a partition alone is left out."""
    found = read(CPX)
    first, second = "gpu='0',node='n2',uuid='SN-0'", "gpu='8',node='n2',uuid='SN-1'"
    assert found == {
        ("gpu.power_w", first): (700.0, "W", "gauge"), ("gpu.power_w", second): (701.0, "W", "gauge"),
        ("gpu.energy_j", first): (7.0, "J", "counter"), ("gpu.energy_j", second): (8.0, "J", "counter"),
        ("gpu.temperature_c", first): (70.0, "degrees Celsius", "gauge"),
        ("gpu.temperature_c", second): (70.0, "degrees Celsius", "gauge"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("label", "more"),
    [('serial_number="N/A"', ""), ('gpu_uuid="U-{gpu}",serial_number="SN-{board}"', ",uuid='U-{first}'")],
    ids=["without a serial number", "with a UUID for each partition"],
)
def test_a_board_is_one_by_its_serial_number_or_the_numbers_of_its_partitions(label, more):
    page = "".join(
        f'gpu_package_power{{gpu_id="{2 * board + part}",gpu_partition_id="{part}",hostname="n2",'
        f'{label.format(gpu=2 * board + part, board=board)}}} {100 + board}\n'
        for board in (0, 1) for part in (1, 0)
    )  # fmt: skip
    expected = {
        ("gpu.power_w", f"gpu='{2 * board}',node='n2'" + more.format(first=2 * board)): 100.0 + board
        for board in (0, 1)
    }
    assert {key: value for key, (value, *_) in read(page.encode()).items()} == expected


def test_a_partition_without_a_value_leaves_that_of_its_board():
    last = b'gpu_package_power{gpu_id="7",gpu_partition_id="7",gpu_compute_partition_type="cpx",serial_number="SN-0",'
    page = CPX.replace(last + b'hostname="n2"} 700', last + b'hostname="n2"} NaN')
    assert b"NaN" in page
    assert read(page)["gpu.power_w", "gpu='0',node='n2',uuid='SN-0'"][0] == 700.0


def test_requests_of_an_ensemble_are_there_by_model():
    found = {labels: value for (_, labels), (value, *_) in read(ENSEMBLE).items()}
    assert found == {
        "model='ensemble'": 40.0, "model='preprocessing'": 40.0, "model='tensorrt_llm'": 41.0,
        "model='postprocessing'": 40.0,
    }  # fmt: skip


def test_ranks_of_sglang_count_the_same_requests():
    """Of two engines (dp_rank) with four ranks each, two of them of the next stage: the lowest of each, added."""
    page = "".join(
        f'sglang:{name}{{model_name="m",dp_rank="{dp}",pp_rank="{pp}",tp_rank="{tp}"}} {value + 10 * dp}\n'
        for name, value in (("num_running_reqs", 5), ("num_retracted_requests_total", 3), ("token_usage", 0.5),
                            ("queue_time_seconds_sum", 2.5), ("queue_time_seconds_count", 7))
        for dp in (0, 1) for pp in (0, 1) for tp in (2 * dp, 2 * dp + 1)
    )  # fmt: skip
    assert plain(page.encode()) == {
        "running": 20.0, "preemptions": 16.0, "kv_usage": 5.5, "queue_time_sum": 15.0, "queue_time_count": 24.0,
    }  # fmt: skip


def test_a_rank_that_is_there_later_changes_no_counter():
    later = (
        b'sglang:prompt_tokens_total{tp_rank="1"} 100\n',
        b'sglang:prompt_tokens_total{tp_rank="1"} 120\nsglang:prompt_tokens_total{tp_rank="0"} 120\n',
    )
    with peer(answering(b"")) as server:
        scrape = Scrape(HttpPage(server.spec))
        readings = [scrape.readings(Exposition(SOURCES).read(page)) for page in later]
    found = [[one.value for one in each if one.key.name == "prompt_tokens"] for each in readings]
    assert found == [[100.0], [120.0]]


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
def test_a_host_engine_asked_by_loopback_does_not_name_a_node(name):
    page = DCGM.replace(b'Hostname="n1"', f'Hostname="{name}"'.encode())
    assert {labels for _, labels in read(page)} == {"gpu='0',uuid='GPU-aa'"}
