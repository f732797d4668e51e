"""Which runs may be compared, and what is said of those that may not."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest
from made_runs import config, document, plan, side, write_run
from refusals import raises_code

from fastllmload.compare.comparison import compare
from fastllmload.compare.report.blocks import differences_in_brief
from fastllmload.compare.side import RunRecord, Side, distinct_names, manifest_diff, read_side
from fastllmload.compare.workload import differences, same_plan
from fastllmload.documents.write import plain
from fastllmload.errors import InputError
from fastllmload.report.render.text import lines

pytestmark = pytest.mark.slow


def run(**parts: object) -> RunRecord:
    return RunRecord(Path("x"), document(50.0, **parts))


def test_runs_of_one_plan_are_of_one_workload() -> None:
    assert differences([side("a", [1.0, 2.0]), side("b", [3.0])]) == []


def test_another_plan_is_refused_and_what_differs_is_said() -> None:
    other = side("b", [3.0], plan=plan("e" * 64, seed=7, schedule="t" * 64))
    with pytest.raises(InputError) as refused:
        compare(side("a", [1.0]), other)
    assert "seed: 42 in a, 7 in b" in str(refused.value)
    assert "--different-workload" in str(refused.value)


def test_the_part_of_a_table_that_differs_is_named() -> None:
    """The message contains the difference, not the complete table."""
    sides = []
    for name, stream, schedule in (("a", "42/arrivals/1", "s"), ("b", "42/arrivals/2", "t")):
        planned = plan(schedule * 64, schedule=schedule * 64)
        planned["description"]["load"] = {
            "loop": "open",
            "arrivals": {"name": "poisson", "rate": 30.0, "stream": stream},
        }
        sides.append(side(name, [1.0], plan=planned))
    assert differences(sides) == ["load.arrivals.stream: '42/arrivals/1' in a, '42/arrivals/2' in b"]


def test_a_plan_that_differs_in_nothing_that_is_described_names_its_digests() -> None:
    found = differences([side("a", [1.0]), side("b", [1.0], plan=plan("e" * 64, schedule="t" * 64))])
    assert found == [f"requests: plan {'d' * 12} in a, {'e' * 12} in b"]


def test_only_the_name_of_the_model_may_differ() -> None:
    """It is in every body, so digests differ; the schedule and the description tell that the requests do not."""
    one, other = run(plan=plan("a" * 64, "llama")), run(plan=plan("b" * 64, "qwen"))
    assert same_plan(one, other)
    assert not same_plan(one, run(plan=plan("b" * 64, "qwen", schedule="t" * 64)))
    assert not same_plan(one, run(plan=plan("b" * 64, "llama")))


def test_rules_outside_the_plan_count_too() -> None:
    found = differences([side("a", [1.0]), side("b", [1.0], config=config(load__timeout=30.0))])
    assert found == ["load.timeout: 600.0 in a, 30.0 in b"]


def test_repetitions_with_seeds_of_their_own_match_pairwise() -> None:
    plans = [plan(letter * 64, schedule=letter * 64) for letter in "pqr"]
    sides = [
        Side(name, tuple(RunRecord(Path(f"{name}{k}"), document(1.0, plan=each)) for k, each in enumerate(plans)))
        for name in "ab"
    ]
    assert differences(sides) == []
    shorter = Side("b", sides[1].runs[:2])
    assert differences([sides[0], shorter]) != []


def test_a_protocol_of_a_file_is_named_by_the_file_and_a_digest() -> None:
    """Its text is of some hundred characters."""
    texts = ('server.toml {"text":"a"}', 'server.toml {"text":"b"}')
    sides = [side(text[-3], [1.0], config=config(target__endpoint_type=text)) for text in texts]
    digests = [hashlib.sha256(text.encode()).hexdigest()[:12] for text in texts]
    found = manifest_diff(sides)["config.target.endpoint_type"]
    assert found == tuple(f"server.toml ({digest})" for digest in digests)


def test_a_protocol_of_a_file_in_a_class_is_named_so_too() -> None:
    """Also where an earlier version wrote its text into the plan."""
    texts = ('server.toml {"text":"a"}', 'server.toml {"text":"b"}')
    named = [f"server.toml ({hashlib.sha256(text.encode()).hexdigest()[:12]})" for text in texts]
    classes = [
        [{"name": name, "endpoint_type": text, "load": {}, "workload": {}} for name in ("one", "two")] for text in texts
    ]
    sides = [side(str(k), [1.0], config={**config(), "classes": each}) for k, each in enumerate(classes)]
    found = manifest_diff(sides)["config.classes"]
    assert all(name in text and '"text"' not in text for name, text in zip(named, found, strict=True))
    plans = [
        {"digest": each, "description": {"classes": [{"name": "one", "endpoint": each}]}} for each in (*texts, named[0])
    ]
    old, other, new = (
        Side(each, (RunRecord(Path(each), document(1.0, plan=plan)),)) for each, plan in zip("abc", plans, strict=True)
    )
    (sentence,) = [text for text in differences([old, other]) if text.startswith("classes")]
    assert all(name in sentence for name in named) and '"text"' not in sentence
    assert not [text for text in differences([old, new]) if text.startswith("classes")]


def test_the_manifest_diff_leaves_out_what_every_run_has_of_its_own() -> None:
    environment = {"host": "two", "time_utc": "2026-02-02T00:00:00Z"}
    found = manifest_diff([side("a", [1.0]), side("b", [1.0], environment=environment)])
    assert found == {"environment.host": ("one", "two")}


def test_ports_of_simulated_engines_are_left_out_also_of_classes() -> None:
    """They take any free one. URLs of servers are compared."""
    for simulated, found in ((True, set()), (False, {"target.urls", "target.classes"})):
        targets = [
            {
                "urls": [url],
                "simulated": simulated,
                "classes": [{"name": name, "urls": [url]} for name in ("one", "two")],
            }
            for url in ("http://127.0.0.1:7001", "http://127.0.0.1:7002")
        ]
        sides = [side(str(k), [1.0], target=each) for k, each in enumerate(targets)]
        assert set(manifest_diff(sides)) == found


def test_folders_of_runs_are_sides(tmp_path: Path) -> None:
    for seed, name in enumerate(("r1", "r2")):
        write_run(tmp_path / "old" / name, seed, n=20)
    found = read_side([f"base={tmp_path / 'old'}"])
    assert found.name == "base" and [each.folder.name for each in found.runs] == ["r1", "r2"]
    assert read_side([str(tmp_path / "old" / "r1")]).name == "r1"


def test_folders_of_levels_and_interrupted_runs_are_not_compared(tmp_path: Path) -> None:
    """A search or sweep has levels at several loads, and possibly remains of a killed start."""
    for name in ("000-rate-5", "000-rate-5.cut-1"):
        write_run(tmp_path / "sweep" / "levels" / name, 1, n=20)
    with raises_code("not-a-run-folder", "levels/000-rate-5"):
        read_side([str(tmp_path / "sweep")])
    write_run(tmp_path / "search" / "levels" / "000-rate-5", 1, n=20)
    write_run(tmp_path / "search" / "levels" / "001-rate-9", 2, n=20)
    with raises_code("not-a-run-folder", "2 levels", tmp_path / "search" / "levels"):
        read_side([str(tmp_path / "search")])
    assert [each.folder.name for each in read_side([str(tmp_path / "sweep" / "levels")]).runs] == ["000-rate-5"]


def test_the_numbers_of_a_run_without_any_are_computed(tmp_path: Path) -> None:
    """As of a run that was killed before it wrote them."""
    folder = write_run(tmp_path / "r", 1, n=50)
    whole = read_side([str(folder)]).first.document
    bare = {
        key: value for key, value in plain(whole).items() if key in ("schema_version", "status", "phases", "config")
    }
    (folder / "run.json").write_text(json.dumps({**bare, "status": "running"}))
    again = read_side([str(folder)]).first
    assert not again.complete
    assert again.document.metric("ttft").n


def test_bad_folders(tmp_path: Path) -> None:
    with raises_code("not-a-run-folder", tmp_path / "none", "not exist"):
        read_side([str(tmp_path / "none")])
    with raises_code("not-a-run-folder", tmp_path, "contains none"):
        read_side([str(tmp_path)])
    folder = str(write_run(tmp_path / "r", 1, n=5))
    with raises_code("run-repeated", folder, "given twice"):
        read_side([folder, folder])


def test_sides_of_one_name_get_numbers() -> None:
    names = [each.name for each in distinct_names([side("x", [1.0]), side("y", [1.0]), side("x", [1.0])])]
    assert names == ["x#1", "y", "x#3"]


def test_a_copy_of_a_run_is_not_another_run(tmp_path: Path) -> None:
    """It began at the same instant. Twice the same spread of nothing would make every difference significant."""
    folder = write_run(tmp_path / "a", 1, n=5)
    copy = shutil.copytree(folder, tmp_path / "b")
    with raises_code("run-repeated", f"{copy} is a copy", folder):
        read_side([str(folder), str(copy)])


def test_a_run_on_both_sides_is_reported(tmp_path: Path) -> None:
    """Its difference to itself is 0, and means nothing."""
    folder = str(write_run(tmp_path / "a", 1, n=50))
    found = compare(*distinct_names([read_side([folder]), read_side([folder])]))
    assert any("the same run" in note and "both sides: " in note for note in found.notes)


def brief(key: str, *values: str) -> str:
    """The line of a difference on the terminal."""
    return list(lines(differences_in_brief({key: values})))[1]


def test_long_values_are_cut_where_they_still_differ() -> None:
    same = "[['profile', 'engines/default.toml'], ['steps', 'many'], "
    text = brief("config.target.simulate", f"{same}['seed', '1000']]", f"{same}['seed', '1001']]")
    assert "1000" in text and "1001" in text and "default.toml" not in text
    assert brief("config.load.rate", "70", "71") == "- config.load.rate: 70 | 71"
