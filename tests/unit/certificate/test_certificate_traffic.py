"""Arrivals of mixed traffic: only instants drawn before time zero form a process, and each class has its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from evidence_maker import MS, START_NS, clean, schedule

from fastllmload.certificate.arrivals import arrival_tests
from fastllmload.certificate.evidence import ArrivalEvidence, CertificateEvidence, Sends
from fastllmload.certificate.judge import judge_evidence, schedule_surprise

LAG = 20_000


def sends_of(t_sched: np.ndarray, order: np.ndarray, **fields: object) -> Sends:
    found = {name: value[order] if isinstance(value, np.ndarray) else value for name, value in fields.items()}
    arrivals = found.pop("arrivals")
    return Sends(arrivals, t_sched[order], t_sched[order] + LAG, t_sched[order] + LAG, **found)  # type: ignore[arg-type]


def with_turns(evidence: CertificateEvidence, seed: int = 4) -> CertificateEvidence:
    """Each first turn is followed by one at a multiple of 100 ms, which is not a Poisson process."""
    rng = np.random.default_rng(seed)
    first = evidence.sends.t_sched
    later = START_NS + rng.integers(1, 200, len(first)) * 100 * MS
    both, follows = np.concatenate([first, later]), np.repeat([False, True], len(first))
    order = np.argsort(both, kind="stable")
    return replace(evidence, sends=sends_of(both, order, arrivals=evidence.sends.arrivals, follows=follows))


def test_turns_that_follow_replies_are_not_arrivals() -> None:
    """The schedule is judged by the first turns only; lag and rate include all turns."""
    plain, talking = clean(), with_turns(clean())
    alone, found = judge_evidence(plain), judge_evidence(talking)
    assert found.arrival_tests.tested == len(plain.sends.t_sched) == found.arrival_tests.follow_replies
    assert found.arrival_tests.schedule == alone.arrival_tests.schedule
    assert found.schedule_lag_us.n == 2 * alone.schedule_lag_us.n
    assert found.offered_rate == 2 * alone.offered_rate and found.rate_error == 0
    assert not [reason for reason in found.reasons if reason.code == "schedule_shape"]


def mixture(processes: dict[str, tuple[str, float, str]], seed: int = 2) -> Sends:
    """*processes*: by class the requested process, its rate, and the actual process."""
    rng = np.random.default_rng(seed)
    parts = [schedule(rng, rate, 60.0, actual) for _, rate, actual in processes.values()]
    both = np.concatenate(parts)
    numbers = np.repeat(np.arange(len(parts), dtype=np.uint16), [len(part) for part in parts])
    classes = tuple(
        (name, number, ArrivalEvidence(requested, rate, zero_ns=START_NS))
        for number, (name, (requested, rate, _)) in enumerate(processes.items())
    )
    order = np.argsort(both, kind="stable")
    return sends_of(both, order, arrivals=ArrivalEvidence("classes", 50.0), request_class=numbers, classes=classes)


def test_each_class_is_tested_against_its_own_process() -> None:
    """Poisson and constant arrivals together are neither; each class passes the test of its own process."""
    tests = arrival_tests(mixture({"a": ("poisson", 40.0, "poisson"), "b": ("constant", 20.0, "constant")}))
    classes = tests.schedule.classes
    assert classes["a"].ks_p > 1e-3 and classes["b"].gap_error_us < 1
    assert classes["b"].ks_p is None
    assert schedule_surprise(tests.schedule) < 4
    assert tests.sends.ks_p is None, "the sends of all classes together have no known distribution"


def test_a_class_with_another_process_than_requested_is_found() -> None:
    tests = arrival_tests(mixture({"a": ("poisson", 40.0, "poisson"), "b": ("poisson", 40.0, "uniform")}))
    surprise = schedule_surprise(tests.schedule)
    assert surprise is not None and surprise > 6


def test_a_class_with_few_arrivals_is_not_tested() -> None:
    tests = arrival_tests(mixture({"a": ("poisson", 40.0, "poisson"), "b": ("poisson", 0.5, "poisson")}))
    assert list(tests.schedule.classes) == ["a"]
