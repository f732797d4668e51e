"""Plans of the measured phase: exact bodies, digests that depend on what is asked and on nothing else."""

import json
import math

import numpy as np
import pytest
from refusals import raises_code
from support.plan_builder import asked, build

from fastllmload.errors import InputError
from fastllmload.plan.bodies import stitcher, write_bodies
from fastllmload.plan.pace import measured_pace
from fastllmload.settings import Load
from fastllmload.workload.content.words import text_table
from fastllmload.workload.lengths import Fixed
from fastllmload.workload.synthetic import Independent, Quota, Synthetic
from fastllmload.workload.tokenizers.tokenizer import load_tokenizer

pytestmark = pytest.mark.slow

KEY = "sk-never-in-a-plan"
GOLDEN = {
    "requests": 199,
    "schedule": "2cd633aecbec0b7d9fff34e8a2d85142349ef57d4584da91a2490eb434601197",
    "bodies": "1f7c77e3abb1103b5cc19bd429c8af96b5246292aabf966b10f5371e6d92e1b9",
    "digest": "8c2ebd9a74a047f2a5cad15e9fc98ac5dc841da258b7fdda80086383fbe10f6b",
}


def bodies(plan):
    return [plan.body(i) for i in range(plan.requests)]


def test_bodies_hold_what_the_arrays_say(tmp_path):
    """Every body is JSON whose prompt has exactly input_tokens tokens and whose limits are output_tokens."""
    plan = build(tmp_path, asked(rate=300.0, duration=10.0))
    tokenizer = load_tokenizer("cl100k_base")
    assert plan.requests > 2500
    for i, body in enumerate(bodies(plan)):
        sent = json.loads(body)
        assert tokenizer.count(sent["prompt"]) == plan.input_tokens[i]
        assert sent == {
            "model": "m",
            "prompt": sent["prompt"],
            "max_tokens": plan.output_tokens[i],
            "min_tokens": plan.output_tokens[i],
            "stream": True,
        }
    assert 128 <= plan.input_tokens.min() < plan.input_tokens.max() <= 512
    assert 64 <= plan.output_tokens.min() < plan.output_tokens.max() <= 256


def test_arrays_fit_the_engine(tmp_path):
    """Types, shapes and order that workers rely on; everything is mapped read-only."""
    plan = build(tmp_path)
    n = plan.requests
    types = {"t_sched": "<i8", "input_tokens": "<i4", "output_tokens": "<i4", "request_class": "<u2"}
    for name, dtype in types.items():
        array = getattr(plan, name)
        assert (array.dtype.str, array.shape, array.flags.c_contiguous) == (dtype, (n,), True)
        assert not array.flags.writeable
    assert (plan.body_offset.dtype.str, plan.body_offset.shape) == ("<u8", (n + 1,))
    assert (plan.bodies.dtype.str, len(plan.bodies)) == ("|u1", plan.body_offset[-1])
    assert plan.t_sched[0] >= 0
    assert plan.t_sched[-1] < 10_000_000_000
    assert bool(np.all(np.diff(plan.t_sched) >= 0))


def test_golden_digest(tmp_path):
    """Seed 42, 20/s for 10 s: the same plan on every machine, to the bit."""
    plan = build(tmp_path)
    assert plan.requests == GOLDEN["requests"]
    assert plan.schedule_hash == GOLDEN["schedule"]
    assert plan.document.members["bodies.bin"] == GOLDEN["bodies"]
    assert plan.digest == GOLDEN["digest"]


def test_nothing_else_changes_the_digest(tmp_path):
    """Workers, target, headers, output and display are not part of a plan."""
    other = asked(
        client__workers=7,
        client__timestamps="user",
        target__urls=("http://127.0.0.1:1",),
        target__headers=(("authorization", "Bearer x"),),
        output__directory="elsewhere",
        load__timeout=3.0,
    )
    assert build(tmp_path / "a").digest == build(tmp_path / "b", other).digest


@pytest.mark.parametrize(
    "change",
    [
        {"client__seed": 43},
        {"client__seed": 0},
        {"load__rate": 21.0},
        {"load__duration": 9.0},
        {"load__arrival": "constant"},
        {"load__burstiness": 0.5},
        {"workload__isl": "200"},
        {"workload__osl": "100"},
        {"workload__name": "synthetic-skewed"},
        {"workload__tokenizer": "o200k_base"},
        {"workload__prompt_form": "ids"},
        {"workload__prefix_len": 5},
        {"target__endpoint_type": "openai-completions"},
    ],
)
def test_settings_change_the_digest(tmp_path, change):
    """Every option that changes what is sent, or when, changes the digest."""
    assert build(tmp_path / "a").digest != build(tmp_path / "b", asked(**change)).digest


def test_load_never_changes_the_requests(tmp_path):
    """Another rate, process or loop sends the same bodies in the same order."""
    plain = bodies(build(tmp_path / "a"))
    for k, change in enumerate(
        [{"load__rate": 35.0}, {"load__arrival": "bursty"}, {"load__rate": None, "load__concurrency": 4}]
    ):
        other = bodies(build(tmp_path / str(k), asked(**change)))
        shared = min(len(plain), len(other))
        assert shared > 100
        assert plain[:shared] == other[:shared]


def test_rate_only_scales_the_schedule(tmp_path):
    """Levels of a sweep share their stream: half the rate, twice the instants."""
    slow, fast = build(tmp_path / "a", asked(rate=10.0)), build(tmp_path / "b", asked(rate=20.0))
    assert np.abs(slow.t_sched - 2 * fast.t_sched[: slow.requests]).max() <= 2


def test_bounds(tmp_path):
    """A count is exact, a duration half open, and together the first one to end counts."""
    assert build(tmp_path, asked(duration=None, load__num_requests=17)).requests == 17
    assert build(tmp_path, asked(load__arrival="constant")).requests == 200
    assert build(tmp_path, asked(load__arrival="constant", load__num_requests=30)).requests == 30
    assert build(tmp_path, asked(load__arrival="constant", load__num_requests=300)).requests == 200
    plan = build(tmp_path, asked(rate=math.inf, duration=None, load__num_requests=40))
    assert plan.t_sched.tolist() == [0] * 40
    assert plan.description.load.arrivals.rate == "inf"


def test_closed_loop_has_no_schedule(tmp_path):
    """A count-bounded closed loop holds its requests once; an earlier schedule in the folder is gone."""
    build(tmp_path)
    assert (tmp_path / "t_sched.npy").exists()
    plan = build(tmp_path, asked(rate=None, duration=None, load__concurrency=3, load__num_requests=50))
    assert (plan.t_sched, plan.schedule_hash, plan.requests) == (None, None, 50)
    assert (plan.concurrency, plan.duration_s, plan.cycles) == (3, None, False)
    assert not (tmp_path / "t_sched.npy").exists()


def test_pool_of_a_timed_closed_loop(tmp_path):
    """2,000 requests or 20 per slot, whichever is more; long prompts stop it at 32 million tokens, but not
    below a round.
    """
    short = {"rate": None, "workload__isl": "2", "workload__osl": "3"}
    plan = build(tmp_path, asked(**short, load__concurrency=8))
    assert (plan.requests, plan.cycles, plan.duration_s, plan.concurrency) == (2000, True, 10.0, 8)
    assert build(tmp_path, asked(**short, load__concurrency=150)).requests == 3000
    long = {"rate": None, "workload__isl": "100k", "workload__tokenizer": "none"}
    assert build(tmp_path, asked(**long, load__concurrency=8)).requests == 320
    assert build(tmp_path, asked(**long, load__concurrency=330)).requests == 330


def test_shared_prefixes(tmp_path):
    """Prefixes are added to --isl, prompts stay exact, and every prompt starts with one of them."""
    plan = build(tmp_path, asked(rate=50.0, workload__prefix_len=40, workload__num_prefixes=3, workload__isl="10"))
    tokenizer = load_tokenizer("cl100k_base")
    prompts = [json.loads(body)["prompt"] for body in bodies(plan)]
    assert {tokenizer.count(prompt) for prompt in prompts} == {50} == set(plan.input_tokens.tolist())
    starts = {" ".join(prompt.split(" ")[:41]) for prompt in prompts}
    assert len(starts) == 3
    assert len(set(prompts)) == plan.requests


def test_prompts_as_ids(tmp_path):
    """Form ids sends IETF A.1.4's own token ids as a JSON array."""
    plan = build(tmp_path, asked(workload__prompt_form="ids"))
    sent = [json.loads(body) for body in bodies(plan)]
    assert [len(body["prompt"]) for body in sent] == plan.input_tokens.tolist()
    assert [body["prompt"][:3] for body in sent[:2]] == [[3278, 97196, 36048], [21178, 97154, 57912]]


def test_no_secret_in_a_plan(tmp_path):
    """A key in the extra headers reaches no file of the plan."""
    build(tmp_path, asked(target__headers=(("authorization", f"Bearer {KEY}"), ("x-api-key", KEY))))
    files = list(tmp_path.iterdir())
    assert len(files) == 7
    assert not any(KEY.encode() in file.read_bytes() for file in files)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rate": None, "load__concurrency": 0}, "--concurrency 0"),
        ({"duration": 0.0}, "--duration 0"),
        ({"duration": math.inf}, "--duration inf"),
        ({"load__num_requests": 0}, "--num-requests 0"),
        ({"rate": 0.001, "duration": 1.0}, "--rate 0.001"),
        ({"load__arrival": "poison"}, "--arrival 'poison'"),
        ({"workload__name": "novel"}, "--workload 'novel'"),
        ({"workload__isl": "x"}, "--isl 'x'"),
        ({"workload__osl": "uniform:2,1"}, "--osl 'uniform:2,1'"),
        ({"workload__tokenizer": "bpe"}, "--tokenizer 'bpe'"),
        ({"workload__prompt_form": "html"}, "--prompt-form 'html'"),
        ({"workload__prefix_len": -1}, "--prefix-len -1"),
        ({"workload__num_prefixes": 0}, "--num-prefixes 0"),
    ],
)
def test_refusals(tmp_path, change, words):
    """One sentence that names the option and the value; nothing is written."""
    with pytest.raises(InputError) as caught:
        build(tmp_path / "plan", asked(**change))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "plan").exists()


def test_unknown_phase(tmp_path):
    """An unknown phase is an error of the caller."""
    with pytest.raises(ValueError, match="cooldown"):
        build(tmp_path, phase="cooldown")


def test_full_disk(full_device):
    """A full disk is reported in one sentence, not by a signal."""
    batches = Synthetic(Independent(Fixed(500), Fixed(1)), 100_256, 1).batches(Quota(2000))
    with raises_code("output-not-writable", "No space left", "free some space"):
        write_bodies(full_device, batches, stitcher(text_table(None), b"{", [b"}"]))


def test_folder_that_cannot_be_written(tmp_path):
    """The message for a folder below a file names the remedy."""
    (tmp_path / "file").write_text("")
    with raises_code("output-not-writable", "--output"):
        build(tmp_path / "file" / "plan")


@pytest.mark.parametrize(
    ("load", "said"),
    [
        (Load(rate=5.0, num_requests=10**12), ("plan-too-large", "--num-requests 1,000,000,000,000")),
        (Load(rate=math.inf, num_requests=10**12), ("plan-too-large", "--num-requests 1,000,000,000,000")),
        (Load(concurrency=4, num_requests=10**12), ("plan-too-large", "--num-requests 1,000,000,000,000")),
        (Load(rate=1e6, duration=1e8), ("plan-too-large", "--rate 1e+06", "--duration 1e+08 s", "1e+14 requests")),
    ],
)
def test_too_many_requests_are_refused(load, said):
    with raises_code(*said):
        measured_pace(load, "s")


def test_a_count_bounds_a_long_duration():
    assert measured_pace(Load(rate=1e6, duration=1e8, num_requests=10), "s").quota.requests == 10
