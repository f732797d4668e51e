"""Request classes: each independent of the others; together one sequence."""

from __future__ import annotations

from collections import Counter

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastllmload.arrivals.curve import read_curve, slot_changes
from fastllmload.documents.plan import ArrivalFacts, ExactPrompts
from fastllmload.documents.write import plain
from fastllmload.endpoint import ENDPOINTS
from fastllmload.engine.banner import loop
from fastllmload.engine.run_plans import classes_of
from fastllmload.engine.workers.routing import conversations, slot_pools
from fastllmload.plan.archive import load_plan, save_plan
from fastllmload.plan.build import build_plan
from fastllmload.plan.classes import build_classes, class_settings
from fastllmload.plan.description.facts import figures
from fastllmload.plan.description.text import class_line, describe_as_text
from fastllmload.plan.plan import FOLLOWS
from fastllmload.settings import Load, RunSettings, TrafficClass, UserBehavior, Workload

pytestmark = pytest.mark.slow

CHAT = ENDPOINTS["openai-chat"]


def traffic(name, rate, seconds=3.0, turns=None, arrival="poisson", behaviour=None, isl="4", **load):
    return TrafficClass(
        name=name,
        load=Load(rate=rate, duration=seconds, arrival=arrival, **load),
        workload=Workload(isl=isl, osl="uniform:1,9", tokenizer="none", turns=turns, think_time="0.5"),
        behaviour=behaviour or UserBehavior(),
    )


def run_of(*classes, seconds=3.0, **load):
    return RunSettings(
        load=Load(rate=1.0, duration=seconds, **load), workload=Workload(tokenizer="none"), classes=classes
    )


def build(settings, folder, phase="measure"):
    return build_classes(settings, phase=phase, model="m", out_dir=folder)


def sent(plan, number):
    """(instant, body) of class *number*, as often as it is sent."""
    return Counter(
        (int(plan.t_sched[i]), plan.body(i)) for i in np.flatnonzero(np.asarray(plan.request_class) == number)
    )


ANY = st.lists(
    st.tuples(st.floats(1, 30), st.sampled_from([None, "1", "uniform:1,4"]), st.sampled_from(["poisson", "constant"])),
    min_size=1, max_size=4,
)  # fmt: skip


@given(ANY)
@settings(max_examples=25)
def test_a_class_is_the_same_as_in_a_run_of_its_own(tmp_path_factory, kinds):
    """Same instants, same bytes, turns together and in order; the whole is ascending in its starts."""
    folder = tmp_path_factory.mktemp("classes")
    classes = [traffic(f"c{n}", rate, turns=turns, arrival=arrival) for n, (rate, turns, arrival) in enumerate(kinds)]
    run = run_of(*classes)
    plan = build(run, folder / "all")
    for number, one in enumerate(classes):
        alone = build_plan(
            class_settings(run, one), phase="measure", endpoint=CHAT, model="m", out_dir=folder / f"{number}"
        )
        assert sent(plan, number) == Counter((int(t), alone.body(i)) for i, t in enumerate(alone.t_sched))
    starts = plan.starts
    assert (np.diff(plan.t_sched[starts]) >= 0).all()
    if plan.turns is None:
        assert all(turns is None for _, turns, _ in kinds)
        return
    assert (plan.t_sched[plan.turns["turn"] > 0] == FOLLOWS).all() and (plan.t_sched[starts] >= 0).all()
    assert (np.diff(plan.turns["session"].astype(int)) == (plan.turns["turn"][1:] == 0)).all()
    last = plan.turns["flags"] & 1
    assert (last[:-1] == (plan.turns["turn"][1:] == 0)).all() and last[-1] == 1


@pytest.mark.parametrize("workers", [1, 2, 7, 64])
def test_any_number_of_workers_gets_the_same_requests(tmp_path, workers):
    """Every start goes to one worker, and the digest does not depend on workers."""
    plan = build(run_of(traffic("a", 9, turns="uniform:1,3"), traffic("b", 20)), tmp_path)
    dealt = [conversations(plan, worker, workers)["numbers"] for worker in range(workers)]
    assert sorted(np.concatenate(dealt).tolist()) == plan.starts.tolist()
    again = build(run_of(traffic("a", 9, turns="uniform:1,3"), traffic("b", 20)), tmp_path / "again")
    assert again.digest == plan.digest


def test_one_class_does_not_change_another(tmp_path):
    with_one = build(run_of(traffic("a", 10)), tmp_path / "1")
    with_two = build(run_of(traffic("x", 33, isl="50"), traffic("a", 10)), tmp_path / "2")
    assert sent(with_one, 0) == sent(with_two, 1)


def test_a_count_bounds_all_together(tmp_path):
    """The first n arrivals of the mixture: those that the longer run begins with."""
    classes = [traffic("a", 10, seconds=None), traffic("b", 25, seconds=None)]
    cut = build(run_of(*classes, seconds=None, num_requests=40), tmp_path / "n")
    whole = build(run_of(*[traffic("a", 10), traffic("b", 25)]), tmp_path / "d")
    assert len(cut.starts) == 40
    assert cut.t_sched.tolist() == whole.t_sched[:40].tolist()
    assert [cut.body(i) for i in range(40)] == [whole.body(i) for i in range(40)]


def test_the_description_of_classes_survives_a_plan_file(tmp_path):
    classes = (traffic("a", 10, turns="2", behaviour=UserBehavior(abandon="ttft:1s")), traffic("b", 5))
    plan = build(run_of(*classes), tmp_path / "plan")
    save_plan(plan, tmp_path / "file")
    found = load_plan(tmp_path / "file", tmp_path / "back")
    assert found.digest == plan.digest and found.classes == ("a", "b")
    named = tuple(msgspec.structs.replace(one, model="m") for one in classes)  # as their bodies do
    assert classes_of(found.description) == named
    assert found.description.load.arrivals == ArrivalFacts(name="classes", rate=15.0, stream="42/class")
    one = found.description.classes[0]
    assert one.requests == 2 * one.starts and one.conversations.turns_max == 2
    assert (found.client["abandon_ns"][found.request_class == 0] == 1_000_000_000).all()
    assert not found.client["abandon_ns"][found.request_class == 1].any()


def test_the_warm_up_has_all_classes_by_their_rates(tmp_path):
    plan = build(run_of(traffic("a", 30), traffic("b", 10)), tmp_path, "warmup")
    counts = Counter(plan.request_class.tolist())
    assert counts[0] >= 75 and counts[1] >= 25 and counts[0] > 2 * counts[1]
    assert plan.description.classes[0].requests == counts[0]


def test_deviations_name_their_class(tmp_path):
    plan = build(run_of(traffic("chat", 40.0), traffic("batch", 10.0, isl="9")), tmp_path)
    assert any(text.startswith("chat: input lengths 4 instead of") for text in plan.deviations)
    assert any(text.startswith("batch: input lengths 9 instead of") for text in plan.deviations)


def test_classes_within_a_class_are_reported_as_not_distinguished(tmp_path):
    """A data set's own classes are not classes of the run, and the plan states that."""
    file = tmp_path / "d.jsonl"
    file.write_text(
        '{"prompt": "a", "output_tokens": 1, "class": "x"}\n{"prompt": "b", "output_tokens": 2, "class": "y"}\n'
    )
    data = Workload(name="custom", dataset_path=str(file), tokenizer="none")
    mixed = Workload(name="fairness", tokenizer="none")
    own = (
        TrafficClass(name="a", load=Load(rate=5.0, duration=3.0), workload=data),
        TrafficClass(name="b", load=Load(rate=5.0, duration=3.0), workload=mixed),
        traffic("c", 5.0),
    )
    plan = build(run_of(*own), tmp_path / "plan")
    assert plan.classes == ("a", "b", "c")
    lines = {one.name: class_line(one) for one in plan.description.classes}
    assert "its own classes (x, y) not distinguished" in lines["a"]
    assert "its own classes (short, long) not distinguished" in lines["b"]
    assert "not distinguished" not in lines["c"]


def test_prompts_of_exact_length_are_counted_over_all_classes(tmp_path):
    drawn = Workload(isl="9", osl="2")
    own = [TrafficClass(name=name, load=Load(rate=5.0, duration=3.0), workload=drawn) for name in "ab"]
    plan = build(run_of(*own, traffic("c", 5.0)), tmp_path / "plan")
    parts = [one.workload.exact for one in plan.description.classes]
    assert plan.description.workload.exact == ExactPrompts(
        prompts=plan.requests,
        checked=parts[0].checked + parts[1].checked,
        exact=parts[0].exact + parts[1].exact,
        share=1.0,
    )
    assert parts[2].checked == 0 < parts[0].checked


def test_a_class_without_requests_has_only_its_settings(tmp_path):
    plan = build(
        run_of(traffic("a", 1000, seconds=None), traffic("b", 0.001, seconds=None), seconds=None, num_requests=3),
        tmp_path,
    )
    assert plain(plan.description.classes[1]).keys() == {"name", "own_targets", "requests", "starts", "settings"}
    assert class_line(plan.description.classes[1]) == "no requests in this phase"


def test_a_warm_up_of_classes_without_tokens_lasts_as_long_as_the_others(tmp_path):
    """The tokens of the methodology are those of the classes that have some; the other class is sent until then."""
    silent = msgspec.structs.replace(traffic("embed", 30.0, arrival="constant"), endpoint_type="openai-embeddings")
    run = run_of(silent, traffic("chat", 60.0, arrival="constant"), seconds=600.0)
    plan = build(run, tmp_path / "warm", phase="warmup")
    of_chat = np.asarray(plan.request_class) == 1
    assert plan.output_tokens[of_chat].sum() >= 10_000 and not plan.output_tokens[~of_chat].any()
    assert plan.t_sched[~of_chat][-1] == pytest.approx(plan.t_sched[of_chat][-1], abs=1e9 / 30)
    assert (~of_chat).sum() == pytest.approx(of_chat.sum() / 2, abs=2)
    for load, requests in (
        ({"warmup_tokens": 50}, None),
        ({"warmup_requests": 9}, (3, 6)),
        ({"warmup_requests": 0}, (0, 0)),
    ):
        asked = msgspec.structs.replace(run, classes=tuple(
            msgspec.structs.replace(one, load=msgspec.structs.replace(one.load, **load)) for one in run.classes
        ))  # fmt: skip
        several = build(asked, tmp_path / str(len(load) + (requests or (7,))[0]), phase="warmup")
        counts = tuple(np.bincount(several.request_class, minlength=2).tolist())
        assert counts == requests if requests else counts[0] > 0 and several.output_tokens.sum() >= 50


def test_a_plan_says_which_classes_have_output_tokens(tmp_path):
    silent = msgspec.structs.replace(traffic("embed", 30.0), endpoint_type="openai-embeddings")
    plan = build(run_of(silent, traffic("chat", 30.0)), tmp_path / "plan")
    embed, chat = plan.description.classes
    assert (embed.output_tokens, embed.workload.osl) == (0, None) and chat.output_tokens > 0
    assert "output" not in class_line(embed) and "->" not in class_line(embed) and "output tokens" in class_line(chat)
    found = figures(plan)
    assert found.output_tokens == chat.output_tokens and found.output_length.min >= 1


def closed(name, slots, turns=None, **load):
    return TrafficClass(
        name=name,
        load=Load(concurrency=slots, duration=3.0, **load),
        workload=Workload(isl="4", osl="3", tokenizer="none", turns=turns),
    )


@pytest.mark.parametrize("turns", [None, "uniform:1,3"])
def test_closed_classes_come_after_all_others(tmp_path, turns):
    """Open classes are those of the run without them; each closed one is the pool of a closed loop, without instants."""
    classes = (closed("x", 5), traffic("a", 12), closed("y", 2, turns=turns), traffic("b", 7, turns=turns))
    plan = build(run_of(*classes), tmp_path / "mix")
    alone = build(run_of(classes[1], classes[3]), tmp_path / "open")
    assert plan.closed_classes == {0: 5, 2: 2} and (plan.concurrency, plan.cycles, plan.closed_cycles) == (
        None,
        False,
        True,
    )
    n = plan.open_requests
    assert n == alone.requests and plan.t_sched[:n].tolist() == alone.t_sched.tolist()
    assert [plan.body(i) for i in range(n)] == [alone.body(i) for i in range(n)]
    assert plan.t_start.tolist() == alone.t_start.tolist() and plan.arrivals.tolist() == alone.starts.tolist()
    assert plan.open_starts.tolist() == alone.starts.tolist()
    assert (plan.t_sched[n:] == FOLLOWS).all()
    assert plan.request_class[n:].tolist() == sorted(plan.request_class[n:].tolist())
    for number in plan.closed_classes:
        one = classes[number]
        own = build_plan(
            class_settings(run_of(*classes), one),
            phase="measure",
            endpoint=CHAT,
            model="m",
            out_dir=tmp_path / one.name,
        )
        mine = np.flatnonzero(plan.request_class == number)
        assert [plan.body(i) for i in mine] == [own.body(i) for i in range(own.requests)]
        found = plan.description.classes[number]
        assert (found.concurrency, found.load.loop, found.load.cycles) == (one.load.concurrency, "closed", True)
    plan.write_record(tmp_path / "record")
    record = plan.read_record(tmp_path / "record")
    assert record.closed_classes == plan.closed_classes and record.t_sched.tolist() == plan.t_sched.tolist()
    if turns is None:
        assert record.t_start.tolist() == alone.t_start.tolist()
    else:
        assert record.turns["session"].tolist() == plan.turns["session"].tolist()


def test_classes_that_are_all_closed_are_a_closed_loop(tmp_path):
    plan = build(run_of(closed("x", 5), closed("y", 2)), tmp_path)
    load = plan.description.load
    assert (load.loop, load.concurrency, load.cycles, load.arrivals, load.duration_s) == ("closed", 7, True, None, 3.0)
    assert plan.t_sched is None and plan.t_start is None and plan.closed_classes == {0: 5, 1: 2}
    assert plan.open_requests == 0 == len(plan.open_starts) and plan.requests == 4000
    counted = figures(plan)
    assert (counted.requests, counted.pool, counted.samples) == (None, 4000, None)


def test_a_plan_says_how_slots_of_classes_change(tmp_path):
    """Of the class in full, of all classes the most; a warm-up has their mean number, and a record of the plan the same."""
    run = run_of(closed("x", 8, concurrency_curve="ramp:2,8"), traffic("a", 12), closed("y", 4))
    plan = build(run, tmp_path / "plan")
    assert class_line(plan.description.classes[0]).startswith("ramp:2,8 in flight, ")
    assert "closed loops of ramp:2,8 and 4 in flight" in describe_as_text(plan)
    assert "closed loop, up to 12 in flight in 2 classes" in loop(plan, run.load)
    assert "closed loop, 4 in flight in 1 class" in loop(build(run_of(*run.classes[1:]), tmp_path / "other"), run.load)
    plan.write_record(tmp_path / "record")
    assert plan.read_record(tmp_path / "record").class_slot_changes.keys() == {0}
    warm = build(run, tmp_path / "warm", "warmup")
    assert warm.closed_classes == {0: 5, 2: 4} and not warm.class_slot_changes and not warm.description.slots_change


def test_figures_of_a_mix_are_those_of_its_open_classes(tmp_path):
    plan = build(run_of(closed("x", 5), traffic("a", 12)), tmp_path)
    counted, many = figures(plan), plan.open_requests
    assert (counted.requests, counted.pool, counted.samples) == (many, 2000, None)
    assert counted.output_tokens == plan.output_tokens[:many].sum()
    line, text = class_line(plan.description.classes[0]), describe_as_text(plan)
    assert line.startswith("5 in flight, ") and "2,000 requests" in line
    assert f"{many:,}, and" in text and "closed loop of 5 in flight" in text


@pytest.mark.parametrize("turns", [None, "2"])
@pytest.mark.parametrize("workers", [1, 2, 3, 7])
def test_every_request_of_a_closed_class_is_one_workers(tmp_path, workers, turns):
    """All slots and all requests, each once; no worker has more slots than another by two, nor a slot more work by two."""
    plan = build(run_of(closed("x", 5, turns=turns), traffic("a", 12), closed("y", 4), closed("z", 1)), tmp_path)
    dealt = [slot_pools(plan, worker, workers) for worker in range(workers)]
    found = [pools for pools in dealt if pools is not None]
    assert sum(pools.slots for pools in found).tolist() == [5, 4, 1]
    totals = [0 if pools is None else int(pools.slots.sum()) for pools in dealt]
    assert max(totals) - min(totals) <= 1
    for place, number in enumerate(plan.closed_classes):
        mine = []
        for pools in found:
            ends = np.cumsum(pools.sizes)
            numbers = pools.numbers[ends[place] - pools.sizes[place] : ends[place]]
            assert (pools.slots[place] > 0) == (len(numbers) > 0) == (pools.limits[place] > 0)
            mine += numbers.tolist()
        starts = plan.starts[plan.request_class[plan.starts] == number]
        assert sorted(mine) == starts.tolist()
    for pools in found:
        last = int(pools.numbers.max()) + plan.requests * (int((pools.limits // pools.sizes.clip(1)).max()) - 1)
        assert last < 1 << 32


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
def test_slots_that_change_are_dealt_to_workers(tmp_path, workers):
    """All openings and closings of each curve, each once; slots of a class without a curve open at time zero. A schedule has
    openings in front of arrivals of the same instant, and none of its arrivals changes.
    """
    curves = {0: "steps:5,2,4", 2: "ramp:1,4"}
    plan = build(run_of(closed("x", 5, concurrency_curve=curves[0]), traffic("a", 12),
                        closed("y", 4, concurrency_curve=curves[2]), closed("z", 3)), tmp_path)  # fmt: skip
    assert plan.closed_classes == {0: 5, 2: 4, 3: 3} and plan.description.slots_change
    asked = {number: slot_changes(read_curve(curve, 3.0), 3.0) for number, curve in curves.items()}
    assert {number: each.t_ns.tolist() for number, each in plan.class_slot_changes.items()} == {
        number: each.t_ns.tolist() for number, each in asked.items()
    }
    found = [pools for worker in range(workers) if (pools := slot_pools(plan, worker, workers)) is not None]
    opens = np.concatenate([pools.opens_ns for pools in found])
    of_pool = np.concatenate([pools.opens_of for pools in found])
    for place, number in enumerate((0, 2)):
        rises = np.diff(asked[number].slots, prepend=0) > 0
        assert sorted(opens[of_pool == place].tolist()) == sorted(asked[number].t_ns[rises].tolist())
        closes = [pools.closes_ns[int(pools.closes[:place].sum()) :][: pools.closes[place]] for pools in found]
        assert sorted(np.concatenate(closes).tolist()) == asked[number].t_ns[~rises].tolist()
    assert (opens[of_pool == 2] == 0).all() and (of_pool == 2).sum() == 3
    for worker, pools in enumerate(found):
        mine = plan.t_start[worker::workers]
        schedule, arrays = pools.schedule(np.append(mine, pools.opens_ns[-1]))
        assert (np.diff(schedule) >= 0).all() and (schedule[arrays[4]] == pools.opens_ns).all()
        assert np.delete(schedule, arrays[4]).tolist() == sorted([*mine.tolist(), int(pools.opens_ns[-1])])
        assert schedule.tolist().index(pools.opens_ns[-1]) in arrays[4]


def test_a_warmup_has_both_kinds_of_classes(tmp_path):
    """Open ones as without the closed ones; these share as many requests and tokens again by their slots."""

    def planned(name, *places, **warmup):
        each = (
            closed("x", 6, **warmup),
            traffic("a", 30, **warmup),
            closed("y", 2, **warmup),
            traffic("b", 10, **warmup),
        )
        return build(run_of(*(each[place] for place in places or range(4))), tmp_path / name, "warmup")

    plan, alone = planned("mix", warmup_requests=40), planned("open", 1, 3, warmup_requests=40)
    assert np.bincount(plan.request_class).tolist() == [30, 30, 10, 10]
    assert plan.t_start.tolist() == alone.t_start.tolist()
    assert plan.closed_classes == {0: 6, 2: 2} and not plan.closed_cycles and plan.duration_s is None
    limits = [slot_pools(plan, worker, 2).limits for worker in range(2)]
    assert sum(limits).tolist() == [30, 10]
    few = planned("few", warmup_requests=3)
    assert sum(slot_pools(few, worker, 2).slots for worker in range(2)).tolist() == [3, 1]  # a slot per request
    timed = planned("timed", warmup_seconds=2.0)
    assert timed.closed_cycles and timed.duration_s == 2.0
    counts = [one.load.arrivals is not None and one.requests for one in timed.description.classes]
    assert counts[1] > 20 and counts[0] is False
