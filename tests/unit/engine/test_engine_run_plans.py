"""A replayed plan sets load, workload and model; options that contradict it are rejected."""

import math

import msgspec
import pytest
from refusals import raises_code

from fastllmload.engine.run_plans import build_plans, resolve_settings
from fastllmload.errors import InputError
from fastllmload.plan.archive import save_plan
from fastllmload.settings import Load, Output, RunSettings, Target, TrafficClass, Workload

pytestmark = pytest.mark.slow

ASKED = Workload(isl="8", osl="4")


@pytest.fixture
def saved(tmp_path):
    """`saved(load)` gives the path of a saved plan and its digest."""

    def save(load):
        plans = build_plans(resolve_settings(RunSettings(load=load, workload=ASKED), tmp_path), "m", tmp_path / "made")
        save_plan(plans.measure, tmp_path / "p.plan")
        return str(tmp_path / "p.plan"), plans.measure.digest

    return save


@pytest.mark.parametrize(
    ("load", "rate", "concurrency", "duration", "requests"),
    [
        (Load(rate=50.0, duration=1.0), 50.0, None, 1.0, None),
        (Load(rate=math.inf, num_requests=9), math.inf, None, None, 9),
        (Load(concurrency=3, num_requests=7), None, 3, None, 7),
        (Load(concurrency=3, duration=2.0), None, 3, 2.0, None),
    ],
)
def test_the_load_of_a_plan_is_restored(tmp_path, saved, load, rate, concurrency, duration, requests):
    file, digest = saved(load)
    replayed = resolve_settings(RunSettings(output=Output(plan=file)), tmp_path / "work")
    found = replayed.settings
    assert (found.load.rate, found.load.concurrency) == (rate, concurrency)
    assert (found.load.duration, found.load.num_requests) == (duration, requests)
    assert found.target.model == "m" and found.workload.osl == "4"
    plans = build_plans(replayed, "m", tmp_path / "work")
    assert plans.measure.digest == digest and plans.warmup.requests >= 100
    assert set(plans.warmup.output_tokens) == {4}


@pytest.mark.parametrize(
    ("target", "endpoint", "said"),
    [
        (Target(model="other"), "openai-chat", "names model 'm'"),
        (Target(), "openai-completions", "--endpoint-type openai-chat"),
    ],
)
def test_a_plan_that_contradicts_the_command_line_is_rejected(tmp_path, saved, target, endpoint, said):
    file, _ = saved(Load(rate=50.0, num_requests=3))
    asked = msgspec.structs.replace(target, endpoint_type=endpoint)
    settings = RunSettings(target=asked, output=Output(plan=file))
    with pytest.raises(InputError, match=said):
        resolve_settings(settings, tmp_path / "work")


# -- plans of classes ------------------------------------------------------------------------------------------------


def class_of(called, urls=(), model=None, endpoint_type=None, **workload):
    return TrafficClass(
        name=called, load=Load(rate=20.0, duration=1.0), workload=Workload(**{"isl": "8", "osl": "4"} | workload), urls=urls,
        model=model, endpoint_type=endpoint_type,
    )  # fmt: skip


@pytest.fixture
def classes_saved(tmp_path):
    """`classes_saved(*classes)` gives the path of a saved plan of them."""

    def save(*classes):
        asked = RunSettings(load=Load(rate=40.0, duration=1.0), workload=ASKED, classes=classes)
        plans = build_plans(resolve_settings(asked, tmp_path), "m", tmp_path / "made")
        save_plan(plans.measure, tmp_path / "p.plan")
        return str(tmp_path / "p.plan")

    return save


def replayed(file, work, *urls, **target):
    return resolve_settings(RunSettings(target=Target(**target), output=Output(plan=file, plan_urls=urls)), work)


def test_classes_of_a_plan_go_to_the_urls_of_the_command_line(tmp_path, classes_saved):
    """With their model and protocol; a class without a URL on the command line stays at the run's target."""
    file = classes_saved(class_of("a"), class_of("b", ("http://gone",), "other", "openai-completions"))
    found = replayed(file, tmp_path / "w", ("b", ("http://x", "http://y")), urls=("http://home",)).settings
    assert [one.urls for one in found.classes] == [(), ("http://x", "http://y")]
    assert [(one.model, one.endpoint_type) for one in found.classes] == [("m", None), ("other", "openai-completions")]
    assert found.target.urls == ("http://home",)
    moved = replayed(file, tmp_path / "w", ("a", ("http://z",)), ("b", ("http://x",))).settings
    assert moved.target.urls == ("http://z",)


@pytest.mark.parametrize(
    ("urls", "target", "said"),
    [
        ([], {}, ("class-without-url", "'b'", "--plan", "--class", "'b url=URL'")),
        ([("c", ("http://x",))], {}, ("class-unknown", "--class 'c'", "--plan", "are a, b")),
        ([("a", ("http://x",)), ("b", ("http://y",))], {"urls": ("http://z",)}, ("url-unused", "--url; leave")),
    ],
)
def test_urls_that_do_not_match_the_classes_of_a_plan(tmp_path, classes_saved, urls, target, said):
    file = classes_saved(class_of("a"), class_of("b", ("http://gone",)))
    with raises_code(*said):
        replayed(file, tmp_path / "w", *urls, **target)


def test_a_plan_without_classes_rejects_the_url_of_a_class(tmp_path, saved):
    file, _ = saved(Load(rate=50.0, duration=1.0))
    with raises_code("class-unknown", "--class 'a'", "--plan", "no classes"):
        replayed(file, tmp_path / "w", ("a", ("http://x",)))


def test_classes_are_replayed_without_the_files_that_they_were_made_from(tmp_path, classes_saved):
    """As with a plan without classes: the warm-up of a data set's class is Synthetic-Uniform."""
    file = tmp_path / "set.jsonl"
    file.write_text('{"prompt": "a", "output_tokens": 3, "session": 1}\n')
    one = class_of("b", name="custom", dataset_path=str(file), turns="all", isl=None, osl=None)
    plan = classes_saved(class_of("a"), one)
    file.unlink()
    plans = build_plans(replayed(plan, tmp_path / "w"), "m", tmp_path / "w")
    kinds = {one.name: one.workload.name for one in plans.warmup.description.classes}
    assert kinds == {"a": "synthetic-uniform", "b": "synthetic-uniform"}
    assert plans.measure.description.classes[1].workload.name == "custom"


@pytest.mark.parametrize("rates", [(20.0, None), (None, None)], ids=["mixed", "all closed"])
def test_the_slots_of_classes_are_restored(tmp_path, rates):
    """Of both phases; a cap on what is in flight does not go with them."""
    classes = tuple(
        TrafficClass(
            name=f"c{place}",
            load=Load(rate=rate, concurrency=None if rate else place + 2, duration=1.0),
            workload=ASKED,
        )
        for place, rate in enumerate(rates)
    )
    closed = 2 + 3 if rates[0] is None else None
    load = Load(rate=rates[0], concurrency=closed, duration=1.0)
    made = build_plans(resolve_settings(RunSettings(load=load, classes=classes), tmp_path), "m", tmp_path / "made")
    save_plan(made.measure, tmp_path / "p.plan")
    replayed = resolve_settings(RunSettings(output=Output(plan=str(tmp_path / "p.plan"))), tmp_path / "work")
    assert (replayed.settings.load.rate, replayed.settings.load.concurrency) == (rates[0], closed)
    again = build_plans(replayed, "m", tmp_path / "work")
    slots = {place: place + 2 for place, rate in enumerate(rates) if rate is None}
    assert again.measure.digest == made.measure.digest
    assert [again.warmup.body(i) for i in range(9)] == [made.warmup.body(i) for i in range(9)]
    assert again.measure.closed_classes == again.warmup.closed_classes == slots
    capped = RunSettings(load=Load(max_concurrency=4), output=Output(plan=str(tmp_path / "p.plan")))
    with raises_code("option-not-applicable", "--max-concurrency", repr(classes[min(slots)].name)):
        resolve_settings(capped, tmp_path / "capped")
