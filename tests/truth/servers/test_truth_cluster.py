"""Two replicas, an exporter of GPUs whose counters grow by a known law: figures of the run are the law's and the logs'."""

import json
import time
import urllib.request

import numpy as np
import pytest
from commands import command
from support.page_server import page_server
from support.prometheus_server import Store, prometheus_server

from fastllmload.records.run import load
from fastllmload.simulator.process import SimulatorProcess
from fastllmload.simulator.profile import SimulatorOptions
from fastllmload.simulator.truth import load as load_truth
from fastllmload.telemetry.series import load as load_telemetry

WATTS = {"0": 300.0, "1": 420.0}
RUN = ("--rate", "40", "--duration", "4", "--isl", "32", "--osl", "20", "--warmup", "0", "--seed", "7",
       "--telemetry-interval", "100ms", "--ui", "plain")  # fmt: skip


def dcgm(watts=WATTS, every_s=0.0, since=None):
    """A page of two GPUs that take constant power; the counters (mJ) are renewed every *every_s*."""
    start = time.monotonic() if since is None else since

    def page():
        now = time.monotonic() - start
        at = now if every_s == 0 else now // every_s * every_s
        lines = []
        for gpu, power in watts.items():
            labels = f'gpu="{gpu}",UUID="GPU-{gpu}",Hostname="node1",modelName="test"'
            lines.append(f"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{{labels}}} {7e9 + power * at * 1e3:.0f}")
            lines.append(f"DCGM_FI_DEV_POWER_USAGE{{{labels}}} {power}")
            lines.append(f"DCGM_FI_DEV_GPU_UTIL{{{labels}}} 75")
        return "\n".join(lines) + "\n"

    return page


def dated_within(folder, idle=False):
    """How far the energy of the window, or of the time before the first request (*idle*), may be off, as a share of it, by
    the times between which its reads were taken.
    """
    energies = load_telemetry(folder).named("gpu.energy_j")
    window = json.loads((folder / "run.json").read_text())["window"]
    ends = (window["w0_ns"], window["w1_ns"])
    if idle:
        rows = load(folder).rows
        ends = (min(series.t_ns[0] for series in energies), rows["t_dispatch"][rows["t_dispatch"] > 0].min())
    found = 0.0
    for series in energies:
        half = (series.t_after - series.t_before) / 2
        places = [int(np.searchsorted(series.t_ns, end)) for end in ends]
        found = max(found, sum(half[max(0, at - 1) : at + 1].max() for at in places) / (ends[1] - ends[0]))
    return found + 1e-5  # whole mJ


def run(folder, *options):
    done = command(*RUN, "-o", folder, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((folder / "run.json").read_text()), done.stdout


def test_replicas_and_energy_are_those_of_the_logs_and_the_law(tmp_path):
    logs = [tmp_path / f"truth{k}.bin" for k in (0, 1)]
    with (
        SimulatorProcess(SimulatorOptions(truth=str(logs[0]))) as one,
        SimulatorProcess(SimulatorOptions(truth=str(logs[1]))) as two,
        page_server(dcgm()) as exporter,
    ):
        document, said = run(
            tmp_path / "run", "--url", one.url, "--url", two.url, "--telemetry-url", exporter, "--goodput", "ttft:1000"
        )
    cluster, metrics = document["cluster"], document["metrics"]
    seconds = document["window"]["seconds"]
    total, within = sum(WATTS.values()), dated_within(tmp_path / "run")
    assert cluster["energy"]["power_w"] == pytest.approx(total, rel=within)
    assert metrics["energy_j"]["value"] == pytest.approx(total * seconds, rel=within)
    assert metrics["energy_per_output_token_j"]["value"] == pytest.approx(
        total / metrics["output_tok_s"]["value"], rel=within
    )
    assert metrics["energy_per_request_j"]["value"] == pytest.approx(total / metrics["req_s"]["value"], rel=within)
    assert metrics["good_requests_per_j"]["value"] == pytest.approx(document["request_goodput"] / total, rel=within)
    assert metrics["power_w"]["value"] == pytest.approx(total, rel=within)
    assert (cluster["energy"]["of"], cluster["energy"]["method"], cluster["energy"]["devices"]) == (
        "gpus",
        "counter",
        2,
    )
    assert [(gpu["uuid"], gpu["utilisation"]) for gpu in cluster["gpus"]] == [("GPU-0", 0.75), ("GPU-1", 0.75)]
    assert cluster["energy"]["energy_by_power_j"] == pytest.approx(total * seconds)
    for replica, log in zip(cluster["replicas"], logs, strict=True):
        counters_follow(tmp_path / "run", replica, load_truth(log))
    requests = np.array([each["requests"] for each in cluster["replicas"]])
    assert cluster["balance"]["requests"]["max_over_mean"] == pytest.approx(requests.max() / requests.mean())
    assert cluster["balance"]["requests"]["cv"] == pytest.approx(requests.std() / requests.mean())
    assert sum(each["request_share"] for each in cluster["replicas"]) == pytest.approx(1)
    assert "J/output token" in said and "energy" in said


def counters_follow(folder, replica, log):
    """Every read of the counter of tokens, and its increment, lies between what had been sent before it and after it."""
    (series,) = [one for one in load_telemetry(folder).named("generation_tokens") if one.origin == replica["origin"]]
    sent = np.sort(log.content()["t_ns"])
    least, most = (np.searchsorted(sent, t, side="right") for t in (series.t_before, series.t_after))
    assert (least <= series.value).all() and (series.value <= most).all()
    assert len(series.value) > 20 and series.value[-1] == len(sent)
    assert replica["generation_tokens"] in set(np.subtract.outer(series.value, series.value).ravel())


def test_pools_are_the_pages_of_one_label(tmp_path):
    """Three quarters of the requests go to one pool; each has a GPU of its own."""
    with (
        SimulatorProcess(SimulatorOptions()) as one,
        SimulatorProcess(SimulatorOptions()) as two,
        page_server(dcgm({"0": 300.0})) as first,
        page_server(dcgm({"7": 100.0})) as second,
    ):
        document, said = run(
            tmp_path / "run",
            *("--class", f"a share=0.75 url={one.url}", "--class", f"b share=0.25 url={two.url}"),
            *("--telemetry-url", f"prefill={one.url}", "--telemetry-url", f"decode={two.url}"),
            *("--telemetry-url", f"prefill={first}", "--telemetry-url", f"decode={second}"),
        )
    cluster = document["cluster"]
    prefill, decode = cluster["pools"]
    within = dated_within(tmp_path / "run")
    assert [(one["label"], one["replicas"], one["gpus"]) for one in (prefill, decode)] == [
        ("prefill", 1, 1), ("decode", 1, 1)]  # fmt: skip
    assert prefill["power_w"] == pytest.approx(300, rel=within) and decode["power_w"] == pytest.approx(100, rel=within)
    sent = {name: one["ok"] for name, one in document["classes"].items()}
    shares = [one["request_share"] for one in cluster["replicas"]]
    assert shares == pytest.approx([sent["a"] / sum(sent.values()), sent["b"] / sum(sent.values())], abs=0.05)
    assert cluster["balance"]["requests"]["max_over_mean"] == pytest.approx(2 * max(shares))
    assert prefill["running"] > decode["running"] and prefill["utilisation"] == 0.75
    assert "pool" in said and "prefill: " in said
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Pools" in page and "Power of each gpu" in page and "node1 gpu7 decode" in page and len(page) < 3_000_000
    assert "Pools" in (tmp_path / "run" / "report.md").read_text()


def cpx(watts=WATTS):
    """A page of boards that are divided into eight logical GPUs each, all of which repeat the power of their board; the
    energy (uJ) is with the first.
    """
    start = time.monotonic()

    def page():
        now, lines = time.monotonic() - start, []
        for number, (board, power) in enumerate(watts.items()):
            for part in range(8):
                labels = (
                    f'gpu_id="{8 * number + part}",gpu_partition_id="{part}",gpu_compute_partition_type="cpx",'
                    f'serial_number="SN-{board}",hostname="node1"'
                )
                joules = 7e3 + power * now if part == 0 else 0
                lines.append(f"gpu_energy_consumed{{{labels}}} {joules * 1e6:.0f}")
                lines.append(f"gpu_package_power{{{labels}}} {power}")
        return "\n".join(lines) + "\n"

    return page


def node_page():
    """A node exporter that has the full name of the node; three of four seconds of its CPUs are idle."""
    now = time.monotonic()
    cpu = "".join(f'node_cpu_seconds_total{{cpu="0",mode="{mode}"}} {part * now}\n' for mode, part in
                  (("idle", 0.75), ("user", 0.25)))  # fmt: skip
    return f'node_uname_info{{nodename="node1.example.org"}} 1\n{cpu}'


def test_partitions_of_a_board_and_two_names_of_a_node_count_once(tmp_path):
    with (
        SimulatorProcess(SimulatorOptions()) as server,
        page_server(cpx()) as exporter,
        page_server(node_page) as node,
    ):
        document, _ = run(
            tmp_path / "run", "--url", server.url, "--telemetry-url", exporter, "--telemetry-url", node,
            "--goodput", "ttft:1000",
        )  # fmt: skip
    cluster, metrics, total = document["cluster"], document["metrics"], sum(WATTS.values())
    within, seconds = dated_within(tmp_path / "run"), document["window"]["seconds"]
    assert [(gpu["uuid"], gpu["node"]) for gpu in cluster["gpus"]] == [
        ("SN-0", "node1.example.org"), ("SN-1", "node1.example.org")]  # fmt: skip
    assert (cluster["energy"]["devices"], cluster["energy"]["method"]) == (2, "counter")
    assert cluster["energy"]["energy_j"] == pytest.approx(total * seconds, rel=within)
    assert cluster["energy"]["energy_by_power_j"] == pytest.approx(total * seconds)
    tokens, requests = (metrics[name]["value"] for name in ("output_tok_s", "req_s"))
    assert metrics["energy_per_output_token_j"]["value"] == pytest.approx(total / tokens, rel=within)
    assert metrics["energy_per_request_j"]["value"] == pytest.approx(total / requests, rel=within)
    assert metrics["good_requests_per_j"]["value"] == pytest.approx(document["request_goodput"] / total, rel=within)
    (one,) = cluster["nodes"]
    assert (one["node"], one["gpus"]) == ("node1.example.org", 2) and one["cpu_busy"] == pytest.approx(0.25, rel=0.01)
    assert one["gpu_energy_j"] == pytest.approx(total * seconds, rel=within)


def without_power(page):
    return lambda: "\n".join(line for line in page().splitlines() if "POWER_USAGE" not in line) + "\n"


@pytest.mark.parametrize("power", [True, False])
def test_a_level_in_which_the_counter_is_renewed_once_says_why_it_has_no_energy(tmp_path, power):
    """Power is read often enough: it takes the place of the counter, which the run says."""
    page = dcgm(every_s=3) if power else without_power(dcgm(every_s=3))
    with SimulatorProcess(SimulatorOptions()) as server, page_server(page) as exporter:
        document, said = run(tmp_path / "run", "--url", server.url, "--telemetry-url", exporter, "--duration", "2")
    energy, metric = document["cluster"]["energy"], document["metrics"]["energy_j"]
    if power:
        assert energy["method"] == "power" and energy["power_w"] == pytest.approx(720)
        assert metric["source"] == "DCGM_FI_DEV_POWER_USAGE"
    else:
        assert energy["energy_j"] is None is metric["value"] and energy["reason"] is not None
        assert "[energy-not-measured]" in said and "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION" in metric["note"]


def test_the_idle_system_is_measured_before_the_first_request(tmp_path):
    """300 and 420 W until one second after the start of sampling are not changed by the load of this engine."""
    with SimulatorProcess(SimulatorOptions()) as server, page_server(dcgm()) as exporter:
        document, _ = run(
            tmp_path / "run",
            "--url",
            server.url,
            "--telemetry-url",
            exporter,
            "--telemetry-idle",
            "2",
            "--duration",
            "2",
        )
    energy, folder = document["cluster"]["energy"], tmp_path / "run"
    within, idle_within = dated_within(folder), dated_within(folder, idle=True)
    assert energy["idle_w"] == pytest.approx(720, rel=idle_within)
    assert energy["above_idle_j"] == pytest.approx(0, abs=(within + idle_within) * energy["energy_j"])


def test_speculative_decoding_is_that_of_the_engine(tmp_path):
    """3 drafted tokens, each accepted with 0.7 after accepted ones: 0.7, 0.49, 0.343 by position, 1.533 of a draft."""
    engine = SimulatorOptions(overrides=(("draft_tokens", "3"), ("acceptance", "0.7"), ("step_ms", "5")))
    with SimulatorProcess(engine) as server:
        document, said = run(tmp_path / "run", "--url", server.url, "--osl", "100")
    found = document["cluster"]["speculation"]
    drafts = found["draft_tokens"] / 3
    error = 4 * (3 / drafts) ** 0.5  # of a mean of values from 0 to 3
    assert drafts > 1000 and found["method"] == "counters"
    assert found["by_position"] == pytest.approx([0.7, 0.49, 0.343], abs=error)
    assert found["acceptance_length"] == pytest.approx(1 + sum(found["by_position"]))
    assert found["acceptance_rate"] == pytest.approx(sum(found["by_position"]) / 3)
    assert document["metrics"]["acceptance_length"]["value"] == found["acceptance_length"]
    assert "drafts" in said and document["counts"]["ok"] == document["counts"]["planned"]


def test_sessions_have_their_energy(tmp_path):
    """Each of two calls: energy of a session is power / sessions completed per second."""
    trace = tmp_path / "sessions.jsonl"
    call = {"t": 0, "type": "n", "in": 70, "out": 4, "hash_ids": [1], "api_time": 0.1}
    rows = ({"id": f"s{k}", "block_size": 64, "requests": [call, {**call, "t": 0.3}]} for k in range(30))
    trace.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with SimulatorProcess(SimulatorOptions()) as server, page_server(dcgm()) as exporter:
        done = command(
            *("--url", server.url, "--telemetry-url", exporter, "--dataset-path", trace, "--workload", "weka"),
            *(
                "--rate",
                "10",
                "--telemetry-interval",
                "100ms",
                "--warmup",
                "0",
                "--ui",
                "plain",
                "-o",
                tmp_path / "run",
            ),
        )
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads((tmp_path / "run" / "run.json").read_text())
    completed = document["sessions"]["completed_per_s"]
    power = document["cluster"]["energy"]["power_w"]  # the law's, see above; the window of 30 sessions has few reads
    assert document["metrics"]["energy_per_session_j"]["value"] == pytest.approx(power / completed)


def fetched(url):
    def page():
        with urllib.request.urlopen(f"{url}/metrics", timeout=5) as answer:
            return answer.read().decode()

    return page


@pytest.mark.parametrize("explicit", [True, False], ids=["prometheus+", "by its own page"])
def test_a_prometheus_server_in_between_changes_nothing_but_how_often(tmp_path, explicit):
    """Its clock is 7 s ahead and it scrapes another deployment too. Each value is dated so that the engine's log has it
    then; GPUs and replicas are those of the matched targets.
    """
    logs = [tmp_path / f"truth{k}.bin" for k in (0, 1)]
    with (
        SimulatorProcess(SimulatorOptions(truth=str(logs[0]))) as one,
        SimulatorProcess(SimulatorOptions(truth=str(logs[1]))) as two,
        SimulatorProcess(SimulatorOptions()) as other,
    ):
        mine, more = {"namespace": "llm"}, {"namespace": "llm", "pod": "vllm-1"}
        pages = {
            ("vllm", "10.0.0.1:8000"): (fetched(one.url), mine),
            ("vllm", "10.0.0.2:8000"): (fetched(two.url), more),
            ("dcgm", "10.0.0.1:9400"): (dcgm(), mine),
            ("vllm", "10.0.0.9:8000"): (fetched(other.url), {"namespace": "other"}),
            ("dcgm", "10.0.0.9:9400"): (dcgm({"8": 900.0}), {"namespace": "other"}),
        }
        store = Store(pages, 0.25, ahead_s=7.0)
        with prometheus_server(store) as url:
            document, said = run(
                tmp_path / "run", "--url", one.url, "--url", two.url, "--telemetry-match", 'namespace="llm"',
                "--telemetry-url", f"prometheus+{url}" if explicit else url,
            )  # fmt: skip
    cluster = document["cluster"]
    assert {gpu["uuid"] for gpu in cluster["gpus"]} == {"GPU-0", "GPU-1"}
    assert cluster["energy"]["power_w"] == pytest.approx(sum(WATTS.values()), rel=dated_within(tmp_path / "run"))
    assert {each["exporter"] for each in cluster["replicas"]} == {"fastllmload simulator"}
    assert [each["origin"].partition(" ")[0] for each in cluster["replicas"]] == [
        "http://10.0.0.1:8000", "http://10.0.0.2:8000"]  # fmt: skip
    assert "pod='vllm-1'" in cluster["replicas"][1]["origin"]
    for replica, log in zip(cluster["replicas"], logs, strict=True):
        dated_truly(tmp_path / "run", replica, load_truth(log))
    assert "3 targets are read from" in said and "telemetry-from-store" in said
    ranges = [int(question.rpartition("[")[2][:-2]) for question in store.questions if question.endswith("s]")]
    assert max(ranges) == 150 and sorted(ranges)[len(ranges) // 2] <= 15


def dated_truly(folder, replica, log):
    """Every value of the counter of tokens lies between what had been sent before its scrape and after it."""
    (series,) = [one for one in load_telemetry(folder).named("generation_tokens") if one.origin == replica["origin"]]
    sent = np.sort(log.content()["t_ns"])
    least, most = (np.searchsorted(sent, t, side="right") for t in (series.t_before, series.t_after))
    assert (least <= series.value).all() and (series.value <= most).all()
    assert len(series.value) > 10 and (np.diff(series.t_before) > 0).all() and len(set(series.value)) > 8
    assert replica["generation_tokens"] in set(np.subtract.outer(series.value, series.value).ravel())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--telemetry-match", 'namespace="absent"'), ("0 targets", "--telemetry-match")),
        (("--telemetry-match", "namespace=absent"), ("value-invalid", "--telemetry-match")),
        ((), ("no-prometheus", "404")),
    ],
)
def test_a_prometheus_server_without_the_series_is_refused(tmp_path, options, words, capfd):
    store = Store({("dcgm", "n1:9400"): (dcgm(), {"namespace": "llm"})}, 5.0)
    with prometheus_server(store) as url:
        address = f"{url}/no-prometheus" if "no-prometheus" in words else url
        done = command(*RUN, "-o", tmp_path / "run", "--telemetry-url", f"prometheus+{address}", *options)
    assert done.returncode == 2 and all(word in done.stderr for word in words), done.stderr
    assert done.stderr.count("\n") == 1 and not (tmp_path / "run" / "requests.npy").exists()


def throttled(power_since=0.0):
    """GPU 0 has NVML's bit of a slowdown by heat, GPU 1 a counter of violations by power that grows from
    *power_since* on.
    """
    start = time.monotonic()

    def page():
        grown = max(0.0, time.monotonic() - start - power_since) * 1e6
        of = ['gpu="0",UUID="GPU-0",Hostname="n7"', 'gpu="1",UUID="GPU-1",Hostname="n7"']
        return (
            f"DCGM_FI_DEV_CLOCKS_EVENT_REASONS{{{of[0]}}} 64\nDCGM_FI_DEV_CLOCKS_EVENT_REASONS{{{of[1]}}} 1\n"
            f"DCGM_FI_DEV_POWER_VIOLATION{{{of[0]}}} 5000\nDCGM_FI_DEV_POWER_VIOLATION{{{of[1]}}} {5000 + grown:.0f}\n"
        )

    return page


@pytest.mark.parametrize(("since", "named"), [(0.0, True), (3600.0, False)])
def test_throttled_gpus_are_named(tmp_path, since, named):
    """By bits and by a counter that grew in the window; a counter that stood still is none."""
    with SimulatorProcess(SimulatorOptions()) as server, page_server(throttled(since)) as exporter:
        _, said = run(tmp_path / "run", "--url", server.url, "--telemetry-url", exporter, "--duration", "2")
    assert "gpu0 of n7 was throttled in 100% of its samples" in said and "[gpu-throttled]" in said
    assert ("gpu1 of n7 was throttled by power: DCGM_FI_DEV_POWER_VIOLATION grew" in said) == named
    assert "gpu0 of n7 was throttled by power" not in said


def parts_that_begin_again(after_s):
    """(page of two engines of 100 tokens/s each, page of a node with two packages of 100 W each): the second engine and the
    counter of the second package begin again *after_s* later.
    """
    begun = time.monotonic() + after_s
    wrap = 262143.0

    def vllm():
        left = time.monotonic() - begun
        counted = (1e6 + 100 * left, 100 * left if left >= 0 else 5e5 + 100 * left)
        return "".join(f'vllm:generation_tokens_total{{engine="{k}"}} {value:.0f}\n' for k, value in enumerate(counted))

    def node():
        left = time.monotonic() - begun
        energies = [f'node_rapl_package_joules_total{{index="0"}} {1e5 + 100 * left:.6f}',
                    f'node_rapl_package_joules_total{{index="1"}} {100 * left % wrap:.6f}']  # fmt: skip
        return "\n".join(['node_uname_info{nodename="n1"} 1', 'node_load1{node="a"} 2', *energies]) + "\n"

    return vllm, node


def test_a_part_that_begins_again_in_the_window_counts_no_other_part_twice(tmp_path):
    """200 tokens/s and 200 W, less what one of two parts counted between two reads (100 ms, or how long a read was late)."""
    vllm, node = parts_that_begin_again(7.0)
    with SimulatorProcess(SimulatorOptions()) as server, page_server(vllm) as one, page_server(node) as other:
        document, said = run(
            tmp_path / "run", "--url", server.url, "--telemetry-url", one, "--telemetry-url", other,
            "--telemetry-url", server.url, "--scrape-metric", "node_load1", "--duration", "12",
        )  # fmt: skip
    cluster, seconds = document["cluster"], document["window"]["seconds"]
    found = load_telemetry(tmp_path / "run")
    longest = max(np.diff(one.t_before).max() for one in found.series if one.source_kind in ("server", "node")) / 1e9
    lost = 100 * 2 * longest  # between two reads, and at most that at the ends of the window
    assert cluster["replicas"][0]["generation_tokens"] == pytest.approx(200 * seconds, abs=2 * lost + 2)
    assert cluster["energy"]["energy_j"] == pytest.approx(200 * seconds, abs=lost + 1)
    assert [one["node"] for one in cluster["nodes"]] == ["n1"]
    assert said.count("[counter-restarted]") == 2


def test_a_page_that_takes_seconds_is_read_and_one_that_is_given_twice_is_read_once(tmp_path):
    """Each read takes 2.2 s; power is that of the law within how its reads are dated."""
    fast = dcgm()

    def slow():
        time.sleep(2.2)
        return fast()

    with SimulatorProcess(SimulatorOptions()) as server, page_server(slow) as exporter:
        document, _ = run(
            tmp_path / "run", "--url", server.url, "--duration", "12", "--telemetry-interval", "1s",
            *("--telemetry-url", exporter, "--telemetry-url", server.url, "--telemetry-url", f"{server.url}/metrics"),
        )  # fmt: skip
    energy = document["cluster"]["energy"]
    assert energy["power_w"] == pytest.approx(720, rel=dated_within(tmp_path / "run")) and energy["devices"] == 2
    pages = [one["origin"] for one in document["telemetry"]["sources"] if one["kind"] in ("server", "gpu")]
    assert len(pages) == len(set(pages)) == 2 and document["cluster"]["replicas"] == []


def test_a_page_is_of_one_pool(tmp_path):
    with page_server(dcgm()) as exporter:
        done = command(
            *RUN,
            "-o",
            tmp_path / "run",
            "--telemetry-url",
            f"prefill={exporter}",
            "--telemetry-url",
            f"decode={exporter}",
        )
    assert done.returncode == 2 and "[options-conflict]" in done.stderr and exporter in done.stderr
    assert "prefill" in done.stderr and "decode" in done.stderr and done.stderr.count("\n") == 1


def test_two_servers_of_one_pool_have_their_page(tmp_path):
    """All requests wait at one of them."""
    engine = SimulatorOptions(overrides=(("max_running", "1"),))
    with SimulatorProcess(engine) as one, SimulatorProcess(SimulatorOptions()) as two:
        run(
            tmp_path / "run", "--url", one.url, "--telemetry-url", f"decode={one.url}",
            "--telemetry-url", f"decode={two.url}", "--duration", "2",
        )  # fmt: skip
    page = (tmp_path / "run" / "report.html").read_text()
    assert f"waiting decode {one.url}/metrics" in page and f"waiting decode {two.url}/metrics" in page
