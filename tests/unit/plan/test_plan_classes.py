"""Request classes: each independent of the others; together one sequence."""

from __future__ import annotations

from collections import Counter

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastllmload.documents.plan import ArrivalFacts, ExactPrompts
from fastllmload.documents.write import plain
from fastllmload.endpoint import ENDPOINTS
from fastllmload.engine.run_plans import classes_of
from fastllmload.engine.workers.routing import conversations
from fastllmload.plan.archive import load_plan, save_plan
from fastllmload.plan.build import build_plan
from fastllmload.plan.classes import build_classes, class_settings
from fastllmload.plan.description.facts import figures
from fastllmload.plan.description.text import class_line
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
