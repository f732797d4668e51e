"""Plans on disk: opened, verified, saved to one file and read back bit for bit; damage is reported in one sentence."""

import json
import zipfile

import numpy as np
import pytest
from refusals import raises_code
from support.plan_builder import asked, build

from fastllmload.errors import RunFolderError
from fastllmload.plan.archive import load_plan, save_plan
from fastllmload.plan.plan import Plan, digest_of

pytestmark = pytest.mark.slow

CLOSED = {"rate": None, "duration": None, "load__concurrency": 2, "load__num_requests": 30}
MEMBERS = [
    "t_sched.npy",
    "input_tokens.npy",
    "output_tokens.npy",
    "request_class.npy",
    "body_offset.npy",
    "bodies.bin",
]


def files(directory):
    return {file.name: file.read_bytes() for file in directory.iterdir()}


@pytest.mark.parametrize("settings", [asked(), asked(**CLOSED)])
def test_round_trip(tmp_path, settings):
    """Saved and loaded, every file of the plan is the same; saving the copy gives the same plan file."""
    plan = build(tmp_path / "a", settings)
    save_plan(plan, tmp_path / "one.plan")
    copy = load_plan(tmp_path / "one.plan", tmp_path / "b")
    assert files(tmp_path / "a") == files(tmp_path / "b")
    assert (copy.digest, copy.schedule_hash) == (plan.digest, plan.schedule_hash)
    save_plan(copy, tmp_path / "two.plan")
    assert (tmp_path / "one.plan").read_bytes() == (tmp_path / "two.plan").read_bytes()
    assert not list(tmp_path.glob("*.part"))


def test_loading_over_another_plan(tmp_path):
    """An earlier schedule in the folder does not become part of a closed loop's plan."""
    save_plan(build(tmp_path / "closed", asked(**CLOSED)), tmp_path / "closed.plan")
    build(tmp_path / "used")
    assert load_plan(tmp_path / "closed.plan", tmp_path / "used").t_sched is None


def test_empty_plan(tmp_path):
    """A disabled warm-up can be opened, saved and loaded too."""
    plan = build(tmp_path / "a", asked(load__warmup_requests=0), phase="warmup")
    save_plan(plan, tmp_path / "one.plan")
    copy = load_plan(tmp_path / "one.plan", tmp_path / "b")
    assert (copy.requests, len(copy.bodies), copy.body_offset.tolist()) == (0, 0, [0])


@pytest.mark.parametrize("name", MEMBERS)
def test_changed_member(tmp_path, name):
    """One flipped bit in any member is found by verify and named."""
    build(tmp_path)
    data = bytearray((tmp_path / name).read_bytes())
    data[-1] ^= 1
    (tmp_path / name).write_bytes(data)
    with pytest.raises(RunFolderError, match=name.replace(".", r"\.") if "offset" not in name else "inconsistent"):
        Plan.open(tmp_path).verify()


@pytest.mark.parametrize("name", [*MEMBERS, "plan.json"])
@pytest.mark.parametrize("left", [0, 40])
def test_cut_member(tmp_path, name, left):
    """A missing or cut file is refused when the plan is opened."""
    build(tmp_path)
    data = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(data[:left])
    with pytest.raises(RunFolderError):
        Plan.open(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(RunFolderError):
        Plan.open(tmp_path)


def rewrite(directory, **changes):
    document = json.loads((directory / "plan.json").read_text())
    document.update(changes)
    document["digest"] = digest_of(document)
    (directory / "plan.json").write_text(json.dumps(document))


def test_changed_document(tmp_path):
    """An edited description, a later schema and members that a plan does not have are refused, each in its own
    words.
    """
    build(tmp_path)
    text = (tmp_path / "plan.json").read_text()
    (tmp_path / "plan.json").write_text(text.replace('"seed": 42', '"seed": 43'))
    with raises_code("plan-changed", "the digest"):
        Plan.open(tmp_path)
    (tmp_path / "plan.json").write_text(text)
    rewrite(tmp_path, schema_version=2)
    with raises_code("schema-version", "schema_version 2"):
        Plan.open(tmp_path)
    rewrite(tmp_path, schema_version=1, members={"../../secret": ""})
    with raises_code("plan-file-invalid", "members"):
        Plan.open(tmp_path)
    rewrite(tmp_path, members={}, description={"load": {"loop": 5}})
    with raises_code("plan-file-invalid", "plan.json", "`description.load.loop`"):
        Plan.open(tmp_path)


def test_inconsistent_arrays_are_refused(tmp_path):
    """Another length or type of an array is refused, even where its own file is sound."""
    plan = build(tmp_path)
    np.save(tmp_path / "output_tokens.npy", np.zeros(plan.requests + 1, dtype=np.int32))
    with raises_code("plan-file-invalid", "inconsistent"):
        Plan.open(tmp_path)
    np.save(tmp_path / "output_tokens.npy", np.zeros(plan.requests))
    with raises_code("plan-file-invalid", "int32"):
        Plan.open(tmp_path)


def damaged(source, target, *, drop=(), add=(), compress=zipfile.ZIP_STORED):
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", compress) as new:
        for entry in old.infolist():
            if entry.filename not in drop:
                new.writestr(entry.filename, old.read(entry.filename))
        for name in add:
            new.writestr(name, b"x")


def test_errors_inside_a_plan_file_name_that_file(tmp_path):
    save_plan(build(tmp_path / "a"), tmp_path / "good.plan")
    damaged(tmp_path / "good.plan", tmp_path / "bad.plan", drop=("t_sched.npy",), add=("t_sched.npy",))
    with raises_code("plan-file-invalid", "bad.plan", "t_sched.npy") as caught:
        load_plan(tmp_path / "bad.plan", tmp_path / "unpacked")
    assert "unpacked" not in str(caught.value)


def test_invalid_plan_files_are_refused(tmp_path):
    """Missing, foreign, cut, incomplete, padded and compressed files are refused, and nothing lands outside
    the folder.
    """
    good, bad, into = tmp_path / "good.plan", tmp_path / "bad.plan", tmp_path / "deep" / "into"
    save_plan(build(tmp_path / "a"), good)
    with raises_code("plan-file-invalid", bad, "not exist"):
        load_plan(bad, into)
    bad.write_bytes(b"PK not a zip")
    with raises_code("plan-file-invalid", bad, "complete plan file"):
        load_plan(bad, into)
    bad.write_bytes(good.read_bytes()[:-2000])
    with raises_code("plan-file-invalid", bad, "complete plan file"):
        load_plan(bad, into)
    damaged(good, bad, drop=("bodies.bin",))
    with raises_code("plan-file-invalid", bad, "members"):
        load_plan(bad, into)
    damaged(good, bad, add=("../outside",))
    with raises_code("plan-file-invalid", bad, "members"):
        load_plan(bad, into)
    damaged(good, bad, compress=zipfile.ZIP_DEFLATED)
    with raises_code("plan-file-invalid", bad, "compressed"):
        load_plan(bad, into)
    assert not into.exists()
    assert not (tmp_path / "deep" / "outside").exists()


def test_a_folder_in_place_of_a_plan_file(tmp_path):
    """The folder plan/ of a run holds the plan's record, not a plan that can be sent."""
    with raises_code("plan-file-invalid", tmp_path, "a folder", "--save-plan"):
        load_plan(tmp_path, tmp_path / "b")
    (tmp_path / "file").touch()
    with raises_code("plan-file-invalid", tmp_path / "file" / "plan", "Not a directory"):
        load_plan(tmp_path / "file" / "plan", tmp_path / "b")


def test_flipped_bit_in_a_plan_file(tmp_path):
    """A changed body in the plan file is found while it is unpacked."""
    save_plan(build(tmp_path / "a"), tmp_path / "one.plan")
    data = bytearray((tmp_path / "one.plan").read_bytes())
    data[data.index(b'"max_tokens"') + 15] ^= 1
    (tmp_path / "one.plan").write_bytes(data)
    with raises_code("plan-file-invalid", "one.plan", "complete plan file"):
        load_plan(tmp_path / "one.plan", tmp_path / "b")


def test_consistent_forgery_of_a_body(tmp_path):
    """A plan file whose container is sound but whose bodies are not those of its digest is refused."""
    save_plan(build(tmp_path / "a"), tmp_path / "one.plan")
    with zipfile.ZipFile(tmp_path / "one.plan") as old, zipfile.ZipFile(tmp_path / "two.plan", "w") as new:
        for entry in old.infolist():
            data = old.read(entry.filename)
            new.writestr(entry.filename, data[:-1] + b"]" if entry.filename == "bodies.bin" else data)
    with raises_code("plan-changed", "SHA-256 of bodies.bin"):
        load_plan(tmp_path / "two.plan", tmp_path / "b")


def test_saving_where_nothing_can_be_written(tmp_path):
    """A missing folder is one sentence, and no part of a file stays."""
    with raises_code("output-not-writable", tmp_path / "missing", "--save-plan"):
        save_plan(build(tmp_path / "a"), tmp_path / "missing" / "one.plan")


@pytest.mark.parametrize("settings", [asked(), asked(**CLOSED)])
def test_record_in_the_run_folder(tmp_path, settings):
    """`plan.json` as it is, and one row of instants and lengths per request."""
    plan = build(tmp_path / "a", settings)
    plan.write_record(tmp_path / "run" / "plan")
    rows = np.load(tmp_path / "run" / "plan" / "schedule.npy")
    expected = np.full(plan.requests, -1) if plan.t_sched is None else plan.t_sched
    assert np.array_equal(rows["t_sched_ns"], expected)
    assert np.array_equal(rows["input_tokens"], plan.input_tokens)
    assert np.array_equal(rows["output_tokens"], plan.output_tokens)
    assert (tmp_path / "run" / "plan" / "plan.json").read_bytes() == (tmp_path / "a" / "plan.json").read_bytes()


def test_a_plan_of_another_version(tmp_path):
    """Keys that this version does not know are part of the digest and of the record; missing ones have no value."""
    build(tmp_path / "a")
    description = json.loads((tmp_path / "a" / "plan.json").read_text())["description"]
    del description["streaming"]
    description["load"]["unknown"] = 1
    rewrite(tmp_path / "a", description=description)
    plan = Plan.open(tmp_path / "a")
    assert (plan.description.streaming, plan.description.load.cycles) == (None, False)
    plan.write_record(tmp_path / "run")
    assert Plan.read_record(tmp_path / "run").digest == plan.digest
