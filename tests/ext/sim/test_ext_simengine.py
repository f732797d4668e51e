"""The batching engine in virtual time: every expected instant is worked out by hand from the profile."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastllmload._ext.sim.engine import Batching
from fastllmload._ext.sim.trial import Trial
from fastllmload.simulator.profile import Profile

MS = 1_000_000


def engine(**fields: Any) -> Batching:
    plain = {
        "step_ms": 10.0,
        "kv_blocks": 1000,
        "block_size": 16,
        "max_model_len": 4096,
        "prefix_cache": False,
    }
    return Batching(Profile(**(plain | fields)), 42)


def instants(tokens: list[tuple[int, int, int]], serial: int) -> list[float]:
    return [at / MS for at, one, _ in tokens if one == serial]


def test_a_step_starts_with_the_first_arrival_and_ends_after_its_time() -> None:
    trial = Trial(engine())
    trial.arrive(5 * MS, 16, 3)
    assert instants(trial.run(), 0) == [15, 25, 35]


def test_a_request_that_comes_during_a_step_waits_for_the_next() -> None:
    trial = Trial(engine())
    trial.arrive(0 + 1, 16, 3)
    trial.arrive(4 * MS, 16, 2)
    tokens = trial.run()
    assert instants(tokens, 1) == [20.000001, 30.000001]
    assert [serial for at, serial, _ in tokens if at == 20 * MS + 1] == [
        0,
        1,
    ]  # one burst, in order of admission


def test_the_time_of_a_step_is_the_sum_of_its_parts() -> None:
    trial = Trial(engine(per_sequence_us=500.0, per_prefill_token_us=100.0))
    trial.arrive(MS, 20, 2)
    trial.arrive(MS, 30, 2)
    # Step 1: 10 + 2 x 0.5 + 50 x 0.1 = 16 ms. Step 2, decoding: 10 + 2 x 0.5.
    assert instants(trial.run(), 1) == [17, 28]


def test_context_that_is_read_costs_time() -> None:
    trial = Trial(engine(per_kilo_context_us=1000.0))
    trial.arrive(MS, 2000, 2)
    assert instants(trial.run(), 0) == [11, 23]  # the second step reads 2,000 tokens: 2 ms


def test_a_long_prompt_is_computed_in_chunks_while_others_decode() -> None:
    trial = Trial(engine(step_tokens=100))
    trial.arrive(MS, 10, 6)
    trial.arrive(2 * MS, 250, 1)
    tokens = trial.run()
    assert instants(tokens, 0) == [11, 21, 31, 41, 51, 61]
    # 99 tokens of budget, and one that decodes: 99 + 99 + 52.
    assert instants(tokens, 1) == [41]


def test_no_more_sequences_run_than_allowed() -> None:
    trial = Trial(engine(max_running=2))
    for _ in range(5):
        trial.arrive(MS, 16, 4)
    trial.run_until(2 * MS)
    assert (trial.running, trial.waiting) == (2, 3)
    tokens = trial.run()
    assert [instants(tokens, serial)[0] for serial in range(5)] == [11, 11, 51, 51, 91]
    assert trial.sequence(4)["t_admitted"] == 81 * MS


def test_the_lowest_priority_number_runs_first() -> None:
    trial = Trial(engine(max_running=1, scheduler="priority"))
    trial.arrive(MS, 16, 2, priority=5)
    trial.arrive(2 * MS, 16, 1, priority=9)
    trial.arrive(3 * MS, 16, 1, priority=-1)
    assert [serial for _, serial, _ in trial.run()] == [0, 0, 2, 1]


def test_fcfs_ignores_priority() -> None:
    trial = Trial(engine(max_running=1))
    for priority in (5, 9, -1):
        trial.arrive(MS, 16, 1, priority=priority)
    assert [serial for _, serial, _ in trial.run()] == [0, 1, 2]


def test_the_youngest_is_preempted_and_repeats_no_token() -> None:
    # 8 blocks of 16: two prompts of 48 take 3 each; both grow to 4 at once (8), then to 5: one must go.
    cadence = engine(kv_blocks=8, max_model_len=128)
    trial = Trial(cadence)
    trial.arrive(MS, 48, 40)
    trial.arrive(MS, 48, 40)
    tokens = trial.run()
    assert cadence.preemptions == 1
    assert trial.sequence(0)["preemptions"] == 0 and trial.sequence(1)["preemptions"] == 1
    for serial in (0, 1):
        assert [produced for _, one, produced in tokens if one == serial] == list(range(1, 41))
    gaps = [b - a for a, b in zip(instants(tokens, 1), instants(tokens, 1)[1:], strict=False)]
    assert max(gaps) > 100 and sorted(gaps)[-2] == 10
    assert cadence.counters()["kv_usage"] == 0


def test_the_input_guardrail_and_the_floor_delay_the_queue() -> None:
    trial = Trial(engine(guard_in_ms=30.0, ttft_floor_ms=5.0))
    trial.arrive(MS, 16, 2)
    assert instants(trial.run(), 0) == [46, 56]


def test_the_output_guardrail_delays_each_token_alone() -> None:
    trial = Trial(engine(guard_out_ms=25.0))
    trial.arrive(MS, 16, 3)
    tokens = trial.run()
    assert instants(tokens, 0) == [36, 46, 56]
    assert trial.sequence(0)["delivered"]


def test_equal_prompt_beginnings_are_found_in_the_cache() -> None:
    cadence = engine(prefix_cache=True)
    trial = Trial(cadence)
    trial.arrive(MS, 64, 1, hashes=(1, 2, 3, 4))
    trial.arrive(100 * MS, 64, 1, hashes=(1, 2, 3, 4))
    trial.arrive(200 * MS, 80, 1, hashes=(1, 2, 9, 4, 5))
    trial.run()
    # The last token of a prompt is always computed, so the second finds 3 blocks of its 4.
    assert [trial.sequence(serial)["cached_tokens"] for serial in range(3)] == [0, 48, 32]
    assert (cadence.prefix_queries, cadence.prefix_hits) == (208, 80)


def test_a_cached_prefix_makes_prefill_shorter() -> None:
    trial = Trial(engine(prefix_cache=True, per_prefill_token_us=1000.0))
    trial.arrive(MS, 64, 1, hashes=(1, 2, 3, 4))
    trial.arrive(200 * MS, 64, 1, hashes=(1, 2, 3, 4))
    assert [at / MS for at, _, _ in trial.run()] == [75, 226]


def test_the_block_that_was_idle_for_longest_is_evicted() -> None:
    cadence = engine(prefix_cache=True, kv_blocks=4, max_model_len=64)
    trial = Trial(cadence)
    trial.arrive(1 * MS, 33, 1, hashes=(1, 2))
    trial.arrive(100 * MS, 33, 1, hashes=(7, 8))  # three blocks: evicts 2, the end of the older prefix
    trial.arrive(200 * MS, 33, 1, hashes=(1, 2))
    trial.run()
    assert trial.sequence(2)["cached_tokens"] == 16
    assert cadence.blocks.evictions >= 1


def test_an_aborted_sequence_gives_back_its_blocks_and_its_place() -> None:
    cadence = engine(max_running=1)
    trial = Trial(cadence)
    trial.arrive(MS, 160, 100)
    trial.arrive(MS, 16, 1)
    trial.arrive(MS, 16, 1)
    trial.run_until(35 * MS)
    assert cadence.counters()["kv_usage"] == pytest.approx(0.011)
    trial.abort(0)
    trial.abort(1)
    assert (trial.running, trial.waiting) == (0, 1)
    tokens = trial.run()
    assert [serial for _, serial, _ in tokens] == [0, 0, 0, 2]
    assert cadence.counters()["kv_usage"] == 0


@given(
    arrivals=st.lists(
        st.tuples(st.integers(0, 50), st.integers(1, 300), st.integers(1, 60), st.integers(-3, 3), st.integers(0, 3)),
        min_size=1,
        max_size=40,
    ),
    blocks=st.integers(25, 60),
    running=st.integers(1, 8),
    budget=st.integers(1, 64),
    scheduler=st.sampled_from(["fcfs", "priority"]),
    guard=st.sampled_from([0.0, 7.0]),
)
def test_every_request_gets_all_its_tokens_once_and_no_block_is_lost(
    arrivals: list[tuple[int, int, int, int, int]],
    blocks: int,
    running: int,
    budget: int,
    scheduler: str,
    guard: float,
) -> None:
    """Under any mix of queueing, chunking, preemption, sharing and priorities."""
    fields: dict[str, Any] = {
        "step_tokens": budget,
        "max_running": running,
        "scheduler": scheduler,
        "guard_out_ms": guard,
    }
    cadence = engine(kv_blocks=blocks, max_model_len=400, prefix_cache=True, **fields)
    runs = []
    for trial in (
        Trial(cadence),
        Trial(engine(kv_blocks=blocks, max_model_len=400, prefix_cache=True, **fields)),
    ):
        now = MS
        for gap, prompt, output, priority, family in arrivals:
            now += gap * MS
            trial.arrive(now, prompt, output, priority, tuple(family * 1000 + i for i in range(prompt // 16)))
        runs.append(trial.run())
        for serial, (_, _, output, _, _) in enumerate(arrivals):
            assert [n for _, one, n in runs[-1] if one == serial] == list(range(1, output + 1))
            assert trial.sequence(serial)["delivered"] and trial.sequence(serial)["blocks"] == 0
        assert (trial.running, trial.waiting) == (0, 0)
    assert runs[0] == runs[1]
    assert cadence.counters()["kv_usage"] == 0 and cadence.blocks.anonymous == 0
    assert cadence.blocks.shared == cadence.blocks.idle <= blocks


def test_the_shortest_prompt_runs_first() -> None:
    trial = Trial(engine(max_running=1, scheduler="shortest"))
    for prompt in (16, 64, 32):
        trial.arrive(MS, prompt, 1)
    assert [serial for _, serial, _ in trial.run()] == [0, 2, 1]


@pytest.mark.parametrize("step_tokens", [4096, 100])
def test_prefill_grows_with_its_exponent_in_however_many_chunks(step_tokens: int) -> None:
    trial = Trial(engine(per_prefill_token_us=1.0, prefill_exponent=1.5, step_tokens=step_tokens))
    trial.arrive(MS, 400, 1)
    steps = -(-400 // step_tokens)
    # 400 ^ 1.5 = 8,000 us, in addition to 10 ms for each step.
    assert instants(trial.run(), 0) == pytest.approx([1 + 10 * steps + 8], abs=1e-4)


def test_every_nth_step_takes_longer() -> None:
    trial = Trial(engine(pause_every=3, pause_ms=50.0))
    trial.arrive(MS, 16, 7)
    found = instants(trial.run(), 0)
    gaps = [b - a for a, b in zip([1.0, *found], found, strict=False)]
    assert gaps == [60, 10, 10, 60, 10, 10, 60]


def test_accepted_drafts_come_with_their_step() -> None:
    """3 tokens that are always accepted: after the first token 4 a step, and the last step has what is left."""
    trial = Trial(engine(draft_tokens=3, acceptance=1.0))
    trial.arrive(1, 16, 20)
    assert [tokens for _, _, tokens in trial.run()] == [1, 5, 9, 13, 17, 20]


def test_drafts_that_are_never_accepted_change_nothing() -> None:
    """They are counted: 19 verifications after the first token, none of whose 57 tokens is accepted."""
    one = engine(draft_tokens=3, acceptance=0.0)
    trial = Trial(one)
    trial.arrive(1, 16, 20)
    assert [tokens for _, _, tokens in trial.run()] == list(range(1, 21))
    assert [one.counters()[name] for name in ("drafts", "draft_tokens", "accepted_tokens")] == [19, 57, 0]
