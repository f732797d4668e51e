"""Clean runs are valid, each injected fault is found and named, and the host's faults are attributed to it."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from evidence_maker import MS, START_NS, clean, hdr_histogram, millisecond_timer, stopped, with_dispatch, with_worker

from fastllmload.certificate.ceiling import Ceiling
from fastllmload.certificate.evidence import (
    BRACKET_CLASSES,
    ArrivalEvidence,
    CertificateEvidence,
    HostRecord,
    MeasuredWindow,
    Sends,
    Stamps,
    Times,
    bracket_class,
)
from fastllmload.certificate.figures import FigureBound
from fastllmload.certificate.judge import judge_evidence
from fastllmload.documents.certificate import Certificate
from fastllmload.documents.run_parts.hosts import InterfaceUse
from fastllmload.documents.write import plain

pytestmark = pytest.mark.slow


def codes(certificate: Certificate, severity: str | None = None) -> set[str]:
    return {r.code for r in certificate.reasons if severity is None or r.severity == severity}


@pytest.mark.parametrize(
    ("process", "shape", "rate"),
    [
        ("poisson", 1.0, 20.0),
        ("poisson", 1.0, 500.0),
        ("poisson", 1.0, 2_000.0),
        ("constant", 1.0, 500.0),
        ("uniform", 1.0, 300.0),
        ("bursty", 0.25, 300.0),
        ("gamma", 4.0, 300.0),
    ],
)
def test_clean_runs_are_valid(process: str, shape: float, rate: float) -> None:
    """Over many seeds at least 99 % of clean runs are valid, and none is invalid."""
    verdicts = [judge_evidence(clean(seed, rate, 3.0, process, shape)).verdict for seed in range(100)]
    assert verdicts.count("valid") >= 99
    assert "invalid" not in verdicts


def test_all_documented_keys_are_there() -> None:
    """The certificate has all documented keys, with figures that follow from the evidence."""
    evidence = clean()
    found = judge_evidence(evidence)
    assert set(plain(found)) >= {
        "verdict", "reasons", "schedule_lag_us", "offered_rate", "planned_rate", "arrival_tests", "workers",
        "socket_to_user_us", "coalesced_read_share", "timestamp_source", "headroom", "latency_error_bar_us",
    }  # fmt: skip
    lag = (evidence.sends.t_dispatch - evidence.sends.t_sched) / 1e3
    assert found.schedule_lag_us.p99 == pytest.approx(np.percentile(lag, 99))
    assert found.schedule_lag_us.max == pytest.approx(lag.max())
    assert found.planned_rate == len(lag) / 20
    assert found.timestamp_source == "kernel"
    assert found.coalesced_read_share == 0
    assert found.workers[0].cpu_share == pytest.approx(0.3)
    assert found.latency_error_bar_us["itl"].p99 == 5
    assert found.generator_limited is False and found.reasons == ()


@pytest.mark.parametrize(("rate", "ms"), [(3_000.0, 20), (3_000.0, 50), (500.0, 50), (0.5, 50), (0.5, 500)])
def test_a_stop_is_always_caught(rate: float, ms: float) -> None:
    """20 ms by the releases of a busy run; 50 ms by the heartbeat alone, at any time and any load."""
    for seed in range(25):
        found = judge_evidence(stopped(clean(seed, rate, 6.0), 2.0 + seed * 0.1317, ms))
        assert codes(found, "note") & {"late_release", "worker_stall"}
        assert all(reason.cause == "generator" for reason in found.reasons)


def test_a_socket_that_waits_for_its_turn_is_not_a_stall() -> None:
    """A busy worker read other sockets and released requests meanwhile; kernel stamps are not affected."""
    evidence = clean()
    waited = hdr_histogram(np.concatenate([np.full(99_990, 30_000), np.full(10, 43 * MS)]))
    beats = hdr_histogram(np.full(100, 40 * MS))
    found = judge_evidence(
        with_worker(evidence, histograms={"socket_to_user": waited, "beat": beats}, batch_max_ns=36 * MS)
    )
    assert found.verdict == "valid" and found.socket_to_user_us.max >= 43_000
    assert found.workers[0].stall_max_us == 1_000


def test_stalls_that_were_not_recorded_are_not_known() -> None:
    found = judge_evidence(with_worker(clean(), stalls=None))
    assert found.workers[0].stall_max_us is None and found.verdict == "valid"


def test_a_stop_of_the_host_is_attributed_to_it() -> None:
    """The hiccup meter was late at the same instants: cause and text name the host."""
    evidence = stopped(clean(), 9.0, 60)
    stall = np.array([[START_NS + 9_000_500_000, 59 * MS]])
    found = judge_evidence(replace(evidence, host=replace(evidence.host, stalls=stall)))
    (reason,) = [r for r in found.reasons if r.code == "late_release"]
    assert reason.cause == "host" and "no processor" in reason.text
    assert found.host.late_explained == found.host.late_intervals > 0


def causes(found: dict[str, Any]) -> dict[str, str]:
    return {reason.code: reason.cause for reason in found.reasons}


def test_each_reason_is_attributed_separately() -> None:
    """The host stopped for 60 ms; the generator caused ten stops of 8 ms, each within the limits of a single stop."""
    evidence = stopped(clean(), 9.0, 60)
    for second in range(10):
        evidence = stopped(evidence, 10.3 + second / 2, 8)
    stall = np.array([[START_NS + 9_000_500_000, 59 * MS]])
    found = judge_evidence(replace(evidence, host=replace(evidence.host, stalls=stall)))
    assert 0 < found.host.late_explained < found.host.late_intervals
    assert causes(found)["late_release"] == causes(found)["worker_stall"] == "host"
    assert set(causes(judge_evidence(evidence)).values()) == {"generator"}


def test_a_longer_stop_of_the_generator_in_addition_to_the_hosts() -> None:
    evidence = stopped(stopped(clean(), 9.0, 60), 14.0, 50)
    stall = np.array([[START_NS + 9_000_500_000, 59 * MS]])
    found = judge_evidence(replace(evidence, host=replace(evidence.host, stalls=stall)))
    assert causes(found)["late_release"] == causes(found)["worker_stall"] == "generator"


def test_p99_of_the_lag_is_attributed_to_the_host_when_all_other_releases_were_in_time() -> None:
    """Thirty stops of 12 ms within 20 s make a P99 of some milliseconds; without eight of them it is still too large."""
    evidence = clean()
    at = [START_NS + 3_000_000_000 + number * 500_000_000 for number in range(30)]
    for instant in at:
        evidence = stopped(evidence, (instant - START_NS) / 1e9, 12)
    stalls = np.array([[instant + 500_000, 11 * MS] for instant in at])
    found = judge_evidence(replace(evidence, host=replace(evidence.host, stalls=stalls)))
    assert causes(found)["schedule_lag"] == "host" and found.generator_limited is True
    some = judge_evidence(replace(evidence, host=replace(evidence.host, stalls=stalls[:8])))
    assert causes(some)["schedule_lag"] == "generator"


def test_a_short_hiccup_does_not_explain_a_long_stop() -> None:
    evidence = stopped(clean(), 9.0, 60)
    stall = np.array([[START_NS + 9_000_500_000, 6 * MS], [START_NS + 15_000_000_000, 80 * MS]])
    found = judge_evidence(replace(evidence, host=replace(evidence.host, stalls=stall)))
    assert next(r for r in found.reasons if r.code == "late_release").cause == "generator"


def test_jitter_that_arrival_tests_cannot_find_is_found_as_lag() -> None:
    """N(0.6, 0.45) ms of independent jitter: KS against Poisson does not find it, the lag does."""
    evidence = clean(3)
    rng = np.random.default_rng(9)
    jitter = np.maximum(rng.normal(0.6e6, 0.45e6, len(evidence.sends.t_sched)), 0).astype(np.int64)
    found = judge_evidence(with_dispatch(evidence, evidence.sends.t_sched + jitter))
    assert found.arrival_tests.sends.ks_p > 1e-3
    assert found.verdict == "suspect" and "schedule_lag" in codes(found)
    assert found.generator_limited is True


@pytest.mark.parametrize("rate", [500.0, 1_000.0, 3_000.0])
def test_millisecond_timers_are_quantised(rate: float) -> None:
    """Releases at multiples of 1 ms: so are the gaps, and bursts share an instant."""
    found = judge_evidence(millisecond_timer(clean(4, rate)))
    assert found.verdict != "valid"
    assert "quantised_sends" in codes(found) and "clumped_sends" in codes(found)


def test_early_sends_are_never_valid() -> None:
    evidence = clean()
    dispatch = evidence.sends.t_dispatch.copy()
    dispatch[100] = evidence.sends.t_sched[100] - 5_000
    assert codes(judge_evidence(with_dispatch(evidence, dispatch)), "suspect") == {"early_release"}
    dispatch[::20] = evidence.sends.t_sched[::20] - 5_000
    assert judge_evidence(with_dispatch(evidence, dispatch)).verdict == "invalid"


def test_falling_behind_is_drift_and_a_wrong_rate() -> None:
    """A generator that adds each delay to all later arrivals: clean latencies, 10 % too slow."""
    evidence = clean(2)
    since = evidence.sends.t_sched - START_NS
    found = judge_evidence(with_dispatch(evidence, START_NS + (since * 1.1).astype(np.int64)))
    assert found.verdict == "invalid"
    assert {"drift", "rate", "schedule_lag"} <= codes(found, "invalid")
    assert found.offered_rate == pytest.approx(found.planned_rate / 1.1, rel=0.03)


def test_a_stall_is_not_a_drift() -> None:
    found = judge_evidence(stopped(clean(6), 19.0, 400))
    assert "late_release" in codes(found) and "drift" not in codes(found)


def test_unsent_requests_count_against_the_rate() -> None:
    evidence = clean(5)
    found = judge_evidence(replace(evidence, sends=replace(evidence.sends, not_sent=1_000)))
    assert "rate" in codes(found, "invalid")


def test_a_cap_that_delays_releases_is_not_a_limit_of_the_client() -> None:
    """Half of them are sent after the window: the server was too slow for the cap, and a reason reports it."""
    evidence = clean()
    sends = evidence.sends
    later = np.where(np.arange(len(sends.t_sched)) % 2, 60_000_000_000, 0)
    held = replace(
        sends, cap=4, held=later, t_dispatch=sends.t_dispatch + later, all_dispatch=sends.all_dispatch + later
    )
    found = judge_evidence(replace(evidence, sends=held))
    assert found.rate_error > 0.4 and "capped" in codes(found, "suspect")
    assert "rate" not in codes(found) and not found.generator_limited


def test_a_single_request_has_no_rate() -> None:
    """A window bounded by count spans the first to the last request: of one request, it is the length of its submission."""
    evidence = clean()
    alone = np.array([START_NS], np.int64)
    window = MeasuredWindow(START_NS, START_NS + 900, counted=True)
    sends = Sends(evidence.sends.arrivals, alone, alone + 200, alone + 200)
    found = judge_evidence(replace(evidence, window=window, sends=sends))
    assert found.offered_rate is None and found.planned_rate is None and found.rate_error is None


def test_a_schedule_of_another_process_is_found() -> None:
    """Exponential gaps truncated at 3 means, a common error, in place of a Poisson process."""
    rng = np.random.default_rng(8)
    gaps = np.minimum(rng.exponential(1.0, 20_000), 3.0) / 500
    t = START_NS + np.rint(np.cumsum(gaps) * 1e9).astype(np.int64)
    evidence = clean()
    window = MeasuredWindow(START_NS, int(t[-1]) + 1)
    found = judge_evidence(
        replace(evidence, window=window, sends=Sends(evidence.sends.arrivals, t, t + 20_000, t + 20_000))
    )
    reason = next(r for r in found.reasons if r.code == "schedule_shape")
    assert reason.cause == "plan"


def test_correlated_gaps_are_found() -> None:
    """The right distribution of gaps in the wrong order: KS does not find it, autocorrelation and dispersion do."""
    rng = np.random.default_rng(8)
    gaps = np.sort(rng.exponential(1.0, 10_000)).reshape(100, 100)
    gaps = gaps[rng.permutation(100)].ravel() / 500
    t = START_NS + np.rint(np.cumsum(gaps) * 1e9).astype(np.int64)
    evidence = clean()
    found = judge_evidence(
        replace(
            evidence,
            window=MeasuredWindow(START_NS, int(t[-1]) + 1),
            sends=Sends(evidence.sends.arrivals, t, t + 20_000, t + 20_000),
        )
    )
    assert found.arrival_tests.schedule.ks_p > 1e-3
    assert "schedule_shape" in codes(found)


def held(evidence: CertificateEvidence, ms: int) -> Times:
    """One release in a hundred was held back for that long."""
    return np.where(np.arange(len(evidence.sends.t_sched)) % 100, 0, ms * MS)


FAULTS = [
    ("gc", "suspect", lambda e: with_worker(e, counts={**e.workers[0].counts, "gc_runs": 1})),
    ("clock_step", "suspect", lambda e: with_worker(e, counts={**e.workers[0].counts, "clock_steps": 1})),
    ("worker_died", "invalid", lambda e: with_worker(e, died=True)),
    ("cpu", "note", lambda e: with_worker(e, cpu_ns=e.workers[0].cpu_ns * 3)),
    ("cpu", "suspect", lambda e: with_worker(e, cpu_ns=(e.workers[0].t_ns - START_NS))),
    ("run_queue", "note", lambda e: with_worker(e, run_delay_ns=5_000 * MS)),
    ("worker_stall", "note", lambda e: stopped(replace(e, host=HostRecord()), 5.0, 36)),
    ("no_samples", "suspect", lambda e: replace(e, workers=())),
    ("no_fd", "invalid", lambda e: replace(e, no_fd=1)),
    ("no_port", "invalid", lambda e: replace(e, no_port=3)),
    ("no_memory", "invalid", lambda e: replace(e, no_memory=1)),
    ("fd_headroom", "suspect", lambda e: with_worker(e, fd_limit=205)),
    ("port_headroom", "note", lambda e: replace(e, host=replace(e.host, ports=260))),
    ("disk_full", "invalid", lambda e: replace(e, disk_full=True)),
    ("host_steal", "note", lambda e: replace(e, host=replace(e.host, steal_share=0.1))),
    ("host_hiccups", "note", lambda e: replace(e, host=replace(e.host, hiccups=hdr_histogram(np.arange(0, 4 * MS, 2_000))))),
    ("headroom", "suspect", lambda e: replace(e, ceiling=Ceiling(9_000, 100_000))),
    ("headroom", "note", lambda e: replace(e, ceiling=Ceiling(15_000, 100_000))),
    ("coalesced", "note", lambda e: replace(e, stamps=replace(e.stamps, coalesced=e.stamps.kernel))),
    ("kernel_stamps_missing", "note", lambda e: replace(e, stamps=replace(e.stamps, user=e.stamps.kernel // 100))),
    ("batched_delivery", "note", lambda e: replace(e, stamps=replace(e.stamps, batched=e.stamps.kernel // 2))),
    ("clamped", "note", lambda e: replace(e, stamps=replace(e.stamps, clamped=e.stamps.requests // 2))),
    ("capped", "suspect", lambda e: replace(e, sends=replace(e.sends, cap=10, held=held(e, 900)))),
    ("capped_prefill", "suspect", lambda e: replace(e, sends=replace(e.sends, prefill_cap=10, prefill_held=held(e, 900)))),
    ("slots_empty", "suspect", lambda e: replace(e, sends=replace(e.sends, slots_empty=0.006))),
    ("slots_empty", "invalid", lambda e: replace(e, sends=replace(e.sends, slots_empty=0.03))),
    ("nothing_measured", "invalid", lambda e: replace(e, ok=0)),
    ("no_releases", "invalid", lambda e: replace(e, sends=Sends(e.sends.arrivals, *[np.empty(0, np.int64)] * 3))),
]  # fmt: skip


@pytest.mark.parametrize(("code", "severity", "fault"), FAULTS, ids=[f"{c}-{s}" for c, s, _ in FAULTS])
def test_each_fault_has_its_reason(code: str, severity: str, fault) -> None:
    """The reason has the right code and severity, and a text without unfilled placeholders."""
    found = judge_evidence(fault(clean()))
    reason = next(r for r in found.reasons if r.code == code)
    assert reason.severity == severity
    assert "{" not in reason.text and reason.text
    assert found.verdict == ("valid" if codes(found) == codes(found, "note") else found.verdict)
    if severity != "note":
        assert found.verdict != "valid"


def carried(**changes: float) -> InterfaceUse:
    quiet = dict.fromkeys(("rx_errors", "rx_dropped", "tx_errors", "tx_dropped"), 0)
    fields = {
        "speed_bits_per_s": 10**9,
        "rx_packets": 60_000,
        "tx_packets": 40_000,
        "peak_rx_bytes_per_s": 10**6,
        **quiet,
    }
    return InterfaceUse(name="eth0", **{**fields, **changes})


@pytest.mark.parametrize(
    ("one", "code", "severity"),
    [
        (carried(rx_dropped=5), None, None),
        (carried(rx_dropped=10, tx_errors=2), "nic_losses", "note"),
        (carried(rx_dropped=900, rx_errors=200), "nic_losses", "suspect"),
        (carried(rx_packets=50, tx_packets=50, rx_dropped=1), None, None),  # a few packets say nothing
        (carried(rx_packets=50, tx_packets=50, rx_dropped=200), "nic_losses", "suspect"),
        (carried(peak_tx_bytes_per_s=0.6 * 10**9 / 8), "nic_load", "note"),
        (carried(peak_tx_bytes_per_s=0.9 * 10**9 / 8), "nic_load", "suspect"),
        (carried(peak_tx_bytes_per_s=0.9 * 10**9 / 8, speed_bits_per_s=None), None, None),
    ],
)
def test_a_network_interface_that_loses_packets_or_is_full_is_a_reason(
    one: InterfaceUse, code: str | None, severity: str | None
) -> None:
    """The worst interface decides; a full link limits the generator."""
    evidence = clean()
    found = judge_evidence(replace(evidence, host=replace(evidence.host, interfaces=(carried(), one))))
    assert [(reason.code, reason.severity) for reason in found.reasons] == ([] if code is None else [(code, severity)])
    assert found.generator_limited is (code == "nic_load" and severity == "suspect")


def test_a_run_without_an_answer_does_not_lack_samples() -> None:
    """It has no window, whatever samples there are."""
    found = judge_evidence(replace(clean(), ok=0, workers=()))
    assert "nothing_measured" in codes(found) and "no_samples" not in codes(found)


def test_stamps_of_the_process_are_judged_by_their_delay() -> None:
    """User stamps are valid if the process reads its sockets in time; a delay above 1 ms explains uncertain figures."""
    evidence = clean()
    stamps = Stamps(requested="user", user=1000, requests=100)
    on_time = replace(evidence, stamps=stamps)
    assert judge_evidence(on_time).verdict == "valid"
    assert judge_evidence(on_time).timestamp_source == "user"
    slow = {**evidence.workers[0].histograms, "socket_to_user": hdr_histogram(np.full(1000, 3 * MS))}
    found = judge_evidence(with_worker(on_time, histograms=slow))
    assert "user_stamps_late" in codes(found, "note") and found.generator_limited
    beats_only = {"beat": hdr_histogram(np.full(1000, 3 * MS))}
    assert "user_stamps_late" in codes(judge_evidence(with_worker(on_time, histograms=beats_only)), "note")


def test_the_same_delay_does_not_affect_kernel_stamps() -> None:
    evidence = clean()
    slow = {**evidence.workers[0].histograms, "socket_to_user": hdr_histogram(np.full(1000, 3 * MS))}
    assert judge_evidence(with_worker(evidence, histograms=slow)).verdict == "valid"


def test_a_closed_loop_has_a_turn_around_time_instead_of_a_plan() -> None:
    """No rate and no arrival tests; the first fill has a spread, and slow turn-arounds are late releases."""
    evidence = clean()
    rng = np.random.default_rng(0)
    freed = np.sort(START_NS + rng.integers(0, 20_000 * MS, 5_000))
    fill = START_NS + np.arange(128) * 9_000
    sends = Sends(
        ArrivalEvidence("closed"), freed, freed + 15_000, np.concatenate([fill, freed + 15_000]), first_fill=fill
    )
    found = judge_evidence(replace(evidence, sends=sends))
    assert found.verdict == "valid"
    assert found.planned_rate is None and plain(found.arrival_tests) == {}
    assert found.first_fill_us == pytest.approx(127 * 9)
    slow = replace(sends, t_dispatch=freed + 2 * MS)
    assert "schedule_lag" in codes(judge_evidence(replace(evidence, sends=slow)))


def test_the_first_fill_is_not_a_stall() -> None:
    """Nothing is read while a closed loop of thousands is filled at once; a stop that is longer than that is reported."""
    evidence = clean()
    fill = START_NS + np.arange(8_000) * 17_000
    freed = np.sort(START_NS + np.random.default_rng(0).integers(200 * MS, 20_000 * MS, 5_000))
    sends = Sends(ArrivalEvidence("closed"), freed, freed + 15_000, np.concatenate([fill, freed]), first_fill=fill)
    filled = replace(evidence, sends=sends)
    assert judge_evidence(with_worker(filled, stalls=np.array([[START_NS, START_NS + 140 * MS]]))).verdict == "valid"
    assert "worker_stall" in codes(
        judge_evidence(with_worker(filled, stalls=np.array([[START_NS, START_NS + 200 * MS]])))
    )


def test_requests_at_rate_inf_are_not_late() -> None:
    """All requests are due at one instant; their spread is not a lag."""
    evidence = clean()
    t = np.full(2_000, START_NS)
    sends = Sends(ArrivalEvidence("inf", float("inf")), t, t + np.arange(2_000) * 20_000, t + np.arange(2_000) * 20_000)
    assert judge_evidence(replace(evidence, sends=sends)).verdict == "valid"


def test_nothing_known_is_not_valid() -> None:
    """Without workers, host and ceiling the figures are None and the verdict is suspect."""
    evidence = clean()
    bare = CertificateEvidence(evidence.window, evidence.sends, workers=(), host=HostRecord())
    found = judge_evidence(bare)
    assert found.verdict == "suspect" and codes(found) == {"no_samples"}
    assert found.headroom is None and found.host.hiccup_p99_us is None
    assert found.latency_error_bar_us["ttft"].p99 is None


def figures(**low: float) -> tuple[FigureBound, ...]:
    """P99 of each metric is 50 ms, with *low* as its lower bound."""
    return tuple(FigureBound(metric, "p99", 50.0, below, 50.01) for metric, below in low.items())


@pytest.mark.parametrize(
    ("value", "low", "high", "severity"),
    [
        (50.0, 49.0, 50.0, "valid"),  # 2 %
        (50.0, 48.9, 50.0, "suspect"),
        (50.0, 50.0, 54.9, "suspect"),
        (50.0, 50.0, 55.1, "invalid"),
        (2.0, 1.91, 2.09, "valid"),  # 100 us
        (2.0, 1.5, 2.0, "suspect"),  # 500 us
        (2.0, 1.4, 2.0, "invalid"),
        (0.0, 0.0, 0.05, "valid"),
    ],
)
def test_the_rule_of_a_figure(value: float, low: float, high: float, severity: str) -> None:
    """An error of 2 % or 100 us (the larger) is valid, of 10 % or 500 us suspect, a larger one invalid."""
    assert FigureBound("ttft", "p99", value, low, high).severity == severity


def test_the_verdict_is_that_of_the_worst_figure_and_names_it() -> None:
    """A run can be valid for E2E and suspect for ITL."""
    found = judge_evidence(replace(clean(), figures=figures(e2e=49.9, itl=46.0)))
    assert found.verdict == "suspect"
    assert {name: one.verdict for name, one in found.figures.items()} == {"e2e": "valid", "itl": "suspect"}
    (reason,) = found.reasons
    assert (reason.code, reason.figure, reason.severity) == ("uncertain_figure", "itl_p99", "suspect")
    assert reason.value == pytest.approx(4.0) and re.findall(r"\d+ (?:ms|%)", reason.text) == [
        "50 ms",
        "46 ms",
        "8 %",
    ]
    assert judge_evidence(replace(clean(), figures=figures(itl=20.0))).verdict == "invalid"


def test_late_sends_make_figures_from_the_scheduled_instant_uncertain() -> None:
    """The same figure from the submission is certain, so late sends are the cause, and the generator may be the limit."""
    found = judge_evidence(replace(clean(), figures=figures(ttft=49.9, ttft_sched=40.0)))
    (reason,) = found.reasons
    assert reason.figure == "ttft_sched_p99" and "sent late" in reason.text and found.generator_limited
    found = judge_evidence(replace(clean(), figures=figures(ttft=40.0, ttft_sched=40.0)))
    assert all("read late" in reason.text for reason in found.reasons) and not found.generator_limited


def stalled(ready_share: float, **host: Any) -> CertificateEvidence:
    """Ten stalls of 12 ms with late sends, in which the thread was ready to run for *ready_share* of the time."""
    evidence = clean()
    begins = [START_NS + second * 1_000_000_000 for second in range(3, 13)]
    for begin in begins:
        evidence = stopped(evidence, (begin - START_NS) / 1e9, 12)
    spans = np.array([[begin, begin + 12 * MS] for begin in begins])
    evidence = with_worker(evidence, stalls=spans, stall_ready=np.full(len(spans), round(12 * MS * ready_share)))
    return replace(evidence, figures=figures(ttft_sched=40.0), host=replace(evidence.host, **host))


@pytest.mark.parametrize(
    ("ready_share", "host", "cause"),
    [
        (0.9, {}, "host"),
        (0.3, {}, "generator"),
        (0.9, {"throttled": True}, "generator"),
        (0.01, {"steal_t_ns": START_NS + np.arange(20) * 1_000_000_000, "steal_ns": np.arange(20) * 10 * MS}, "host"),
        (0.01, {"steal_t_ns": START_NS + np.arange(20) * 1_000_000_000, "steal_ns": np.arange(20) * MS}, "generator"),
        (
            0.0,
            {"steal_t_ns": START_NS + np.arange(20) * 1_000_000_000, "steal_ns": np.arange(20) * 10 * MS},
            "generator",
        ),
    ],
)
def test_the_cause_of_lateness(ready_share: float, host: dict[str, Any], cause: str) -> None:
    """The host where the thread was ready without a processor, or the hypervisor took it; else the generator, as where a
    signal stopped it (ready for exactly 0 ns) while the hypervisor was busy elsewhere.
    """
    found = judge_evidence(stalled(ready_share, **host))
    assert causes(found)["uncertain_figure"] == cause
    assert ("quota" in found.reasons[0].text) is bool(host.get("throttled"))


def test_competing_processes_are_named() -> None:
    found = judge_evidence(stalled(0.9, competitors=("make (process 7) 3.2 s of CPU",)))
    assert found.host.competitors == ("make (process 7) 3.2 s of CPU",)


def test_a_cpu_quota_also_stops_the_hiccup_meter() -> None:
    """All that would be attributed to the host is then the generator's, hiccups included."""
    evidence = stalled(0.9, throttled=True, hiccups=hdr_histogram(np.full(1_000, 60 * MS)))
    spans = evidence.workers[0].stalls
    assert spans is not None
    hiccups = np.column_stack([spans[:, 0], spans[:, 1] - spans[:, 0]])
    found = judge_evidence(replace(evidence, host=replace(evidence.host, stalls=hiccups)))
    assert {"host_hiccups", "uncertain_figure"} <= codes(found)
    assert {reason.cause for reason in found.reasons} == {"generator"}


def test_a_read_that_the_host_made_late_does_not_explain_a_longer_stop_elsewhere() -> None:
    """A read was 2 ms late without a processor; a stop of 300 ms, in which no request ended, made the figure uncertain."""
    waited = [START_NS + 3_000 * MS, START_NS + 3_003 * MS]
    stop = [START_NS + 5_000 * MS, START_NS + 5_300 * MS]
    evidence = with_worker(clean(), stalls=np.array([waited, stop]), stall_ready=np.array([3 * MS, 0]))
    late = Stamps(kernel=1_000, requests=100, late_user=np.array([[waited[0], waited[0] + 2 * MS]]))
    found = judge_evidence(replace(evidence, stamps=late, figures=figures(itl=40.0)))
    assert causes(found)["uncertain_figure"] == "generator"


@pytest.mark.parametrize(
    ("figure", "on_time", "late", "cause"),
    [
        (FigureBound("itl", "p50", 0.1, 0.0, 0.3), {250: 900}, {5_000: 20}, "timestamps"),  # the reads have no stamps
        (
            FigureBound("itl", "p99", 20.0, 10.0, 30.0),
            {250: 900},
            {5_000: 20},
            "generator",
        ),  # too large an error for reads on time
        (
            FigureBound("itl", "p50", 0.1, 0.0, 0.5),
            {110: 900},
            {250: 20},
            "generator",
        ),  # brackets of reads on time are narrower
        (
            FigureBound("tpot", "p99", 8.0, 7.7, 8.3),
            {250: 900},
            {5_000: 20},
            "generator",
        ),  # the error of a mean needs the widest
        # too wide for a read on time
        (FigureBound("tpot", "p99", 8.0, 7.7, 8.3), {250: 900, 5_000: 20}, {}, "generator"),
        (FigureBound("tpot", "p99", 2.0, 1.7, 2.3), {250: 900}, {}, "timestamps"),
        (FigureBound("itl", "p50", 0.1, 0.0, 0.3), {}, {}, "generator"),  # an older run folder: not known
    ],
)
def test_a_figure_may_be_uncertain_although_nothing_was_late(
    figure: FigureBound, on_time: dict[int, int], late: dict[int, int], cause: str
) -> None:
    """*on_time*, *late*: number of events by the width of their brackets in us, without and with a stall."""
    brackets = np.zeros((2, BRACKET_CLASSES), np.int64)
    for row, widths in enumerate((on_time, late)):
        for us, count in widths.items():
            brackets[row, bracket_class(us * 1e3)] += count
    found = judge_evidence(
        replace(clean(), stamps=Stamps("user", 1_000, requests=100, brackets=brackets), figures=(figure,))
    )
    (reason,) = found.reasons
    assert (reason.code, reason.cause) == ("uncertain_figure", cause) and not found.generator_limited
    assert ("read on time" in reason.text) is (cause == "timestamps")


@pytest.mark.parametrize(("kernel", "why"), [(0, "neither the kernel nor"), (1_000, "the kernel stamps")])
def test_a_bound_without_a_late_read_says_which_stamps_were_missing(kernel: int, why: str) -> None:
    """Segments that came together are read at once: the kernel stamped the last of them only."""
    brackets = np.zeros((2, BRACKET_CLASSES), np.int64)
    brackets[0, bracket_class(250e3)] = 900
    stamps = Stamps(user=1_000 - kernel, kernel=kernel, requests=100, brackets=brackets)
    found = judge_evidence(replace(clean(), stamps=stamps, figures=(FigureBound("itl", "p50", 0.1, 0.0, 0.3),)))
    assert causes(found)["uncertain_figure"] == "timestamps"
    assert why in next(r.text for r in found.reasons if r.code == "uncertain_figure")


@pytest.mark.parametrize(("batched", "cause"), [(450, "path"), (100, "generator")])
def test_events_that_were_sent_together_share_a_read_because_of_the_path(batched: int, cause: str) -> None:
    """Half of the events share a read; most of them came within a millisecond, or few."""
    stamps = Stamps(kernel=500, coalesced=500, requests=100, batched=batched)
    assert causes(judge_evidence(replace(clean(), stamps=stamps)))["coalesced"] == cause


def test_lag_is_attributed_to_the_host_where_other_causes_delay_less_than_one_percent_of_the_releases() -> None:
    """The host's stalls delay half of the releases, and the generator's own 0.6 %, which alone exceed no limit."""
    evidence = clean()
    begins = START_NS + np.arange(2_000, 18_000, 16) * MS
    dispatch = released_after(evidence.sends.t_sched, begins, 8 * MS)
    alone = np.flatnonzero(dispatch == evidence.sends.t_dispatch)
    own = alone[:: max(1, len(alone) // (len(dispatch) * 6 // 1_000))]
    dispatch[own] = evidence.sends.t_sched[own] + 3 * MS
    spans = np.column_stack([begins, begins + 8 * MS])
    found = judge_evidence(
        with_worker(with_dispatch(evidence, dispatch), stalls=spans, stall_ready=np.full(len(spans), 8 * MS))
    )
    assert causes(found)["schedule_lag"] == "host"


def test_bursts_of_sends_are_attributed_to_the_host_where_it_delayed_most_of_them() -> None:
    """Half a second of the generator's stalls and ten of the host's: a reason about all sends together has one cause."""
    evidence = clean()
    begins = START_NS + np.arange(2_000, 18_000, 8) * MS
    evidence = with_dispatch(evidence, released_after(evidence.sends.t_sched, begins, 5 * MS))
    spans = np.column_stack([begins, begins + 5 * MS])
    ready = np.full(len(spans), 5 * MS)
    ready[::20] = 0
    found = judge_evidence(with_worker(evidence, stalls=spans, stall_ready=ready))
    assert causes(found)["clumped_sends"] == "host"
    assert (
        causes(judge_evidence(with_worker(evidence, stalls=spans, stall_ready=0 * ready)))["clumped_sends"]
        == "generator"
    )


def released_after(t_sched: np.ndarray, begins: np.ndarray, ns: int) -> np.ndarray:
    """Releases due within *ns* after one of *begins* are sent at the end of that interval, one after the other."""
    index = np.searchsorted(begins, t_sched, side="right") - 1
    begin = begins[np.maximum(index, 0)]
    late = (index >= 0) & (t_sched < begin + ns)
    dispatch = t_sched + 20_000
    dispatch[late] = begin[late] + ns
    return np.maximum.accumulate(dispatch)
