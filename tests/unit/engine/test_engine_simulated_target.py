"""--simulate NAME=VALUE sets any option of the simulated engine, with validation."""

import msgspec
import pytest

from fastllmload.cli.main import main
from fastllmload.engine.simulated_target import engine_options, options_of
from fastllmload.errors import InputError
from fastllmload.settings import Load, Target, TrafficClass, Workload


def test_options_are_parsed_by_name_and_type():
    found = options_of(
        [
            ("ttft-ms", "5"),
            ("null", "true"),
            ("seed", "7"),
            ("fault", "reset:0.1"),
            ("fault", "stall:0.2"),
            ("log", "x-a"),
            ("log", "body:b"),
            ("route-by", "x-a"),
            ("route_by", "x-b"),
            ("backends", "3"),
            ("set.step_ms", "9"),
        ]
    )
    assert (found.ttft_ms, found.null, found.seed) == (5.0, True, 7)
    assert (found.logged, found.routed_by, found.backends) == (("x-a", "body:b"), ("x-a", "x-b"), 3)
    assert (found.faults, found.overrides) == (("reset:0.1", "stall:0.2"), (("step_ms", "9"),))


@pytest.mark.parametrize(
    "pair",
    [("nope", "1"), ("port", "80"), ("die_with_parent", "1"), ("overrides", "1"), ("ttft_ms", "soon"), ("seed", "1.5")],
)
def test_unknown_options_are_rejected(pair):
    with pytest.raises(InputError, match="--simulate"):
        options_of([pair])


@pytest.mark.parametrize(
    "words",
    [
        "procedure ttft --quick --rate 5",
        "procedure ttft --quick --rate 5 --runs 2",
        "search --max 10 --goodput ttft:100",
        "sweep --rate 5 --duration 1 --vary osl=4,8",
    ],
)
@pytest.mark.parametrize(
    ("wrong", "said"), [("set.kv_blocks=1", "kv_blocks x block_size"), ("set.nope=1", "no field 'nope'")]
)
def test_invalid_engine_options_are_rejected_before_anything_is_written(words, wrong, said, tmp_path, capsys):
    folder = tmp_path / "made"
    code = main([*words.split(), "--simulate", wrong, "--output", str(folder)])
    error = capsys.readouterr().err
    assert code == 2 and said in error
    assert not folder.exists()


def test_the_engine_serves_the_models_of_the_run_and_of_its_classes():
    """But not those of a class with a server of its own; the model of --simulate is served anyway."""
    named = {"a": {"model": "l1", "models": (("l1", 1.0), ("l2", 1.0))}, "b": {"model": "x", "urls": ("http://h",)}}
    classes = [TrafficClass(name=name, load=Load(), workload=Workload(), **own) for name, own in named.items()]
    found = engine_options(Target(models=(("l1", 1.0), ("main", 1.0)), simulate=(("model", "main"),)), classes)
    assert found.model == "main" and found.more_models == ("l1", "l2")
    assert engine_options(Target(model="m"), classes).more_models == ("l1", "l2", "m")
    assert engine_options(Target(model="simulated")).more_models == ()


@pytest.mark.parametrize("words", [("-m", "own/name"), ("--models", "own/name")])
def test_one_model_runs_without_a_server(words, tmp_path, capsys):
    """Whichever of the two options names it, requests have its name."""
    load = ["--rate", "50", "-n", "5", "--warmup", "0", "--isl", "8", "--osl", "2", "--ui", "none"]
    assert main([*words, *load, "--output", str(tmp_path / "run")]) == 0, capsys.readouterr().err
    assert msgspec.json.decode((tmp_path / "run" / "run.json").read_bytes())["target"]["model"] == "own/name"


def test_classes_and_sweeps_with_models_run_without_a_server(tmp_path, capsys):
    """A class without a model sends the engine's own, not the adapter of another class."""
    short = ["--warmup", "0", "--isl", "8", "--osl", "2", "--ui", "none", "--num-requests", "20"]
    classes = ["--class", "chat rate=40 models=l1,l2", "--class", "text rate=40 endpoint-type=openai-completions"]
    assert main([*classes, *short, "--output", str(tmp_path / "run")]) == 0, capsys.readouterr().err
    document = msgspec.json.decode((tmp_path / "run" / "run.json").read_bytes())
    assert [one["model"] for one in document["target"]["classes"]] == ["l1", "simulated"]
    sent = {one["name"]: one["sent"] for one in document["models"]}
    assert set(sent) == {"l1", "l2", "simulated"} and sum(sent.values()) == 20
    words = ["sweep", "--models", "l1,l2", "--vary", "rate=50", *short, "--output", str(tmp_path / "sweep")]
    assert main(words) == 0, capsys.readouterr().err
