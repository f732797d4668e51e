"""Every field that reveals something is withheld: a walk over all types puts a canary into each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec
import pytest

from fastllmload.documents.fields import Reveals
from fastllmload.documents.read import convert, fields, members
from fastllmload.documents.redaction import (
    SETTINGS,
    command_without_values,
    declared,
    is_path,
    redacted,
    reveals_capacity,
    struct_of,
    without_names,
)
from fastllmload.documents.run import RunDocument
from fastllmload.documents.write import plain

NUMBER, TEXT = 918273, "canary-text"
PATHS = {Reveals.FILE: "canary/tokenizer", Reveals.MODEL: "/canary/model", Reveals.CURVE: "series:canary.csv"}
PUBLIC = {Reveals.FILE: "cl100k_base", Reveals.MODEL: "org/model", Reveals.CURVE: "ramp:1,5"}
OPEN = {"config": {"load": {"rate": 5.0}}}  # a declared rate: names are withheld, the load is not


def example(kind: Any, reveals: Reveals, wanted: frozenset[Reveals], inside: tuple[type, ...] = ()) -> Any:
    """A value of *kind* with a canary in every field of the kinds *wanted*, and an ordinary value elsewhere."""
    canary = reveals in wanted
    struct = struct_of(kind)
    if struct is not None:
        inner, within = SETTINGS.get(struct, {}), (*inside, struct)
        return {
            key: example(each, inner.get(key) or declared(each), wanted, within)
            for key, each in fields(struct).items()
            if not recursive(each, within)
        }
    for one in members(kind):
        if get_origin(one) is dict:
            item = get_args(one)[1]
            return {"name": example(item, reveals if canary else declared(item), wanted, inside)}
        if get_origin(one) is tuple:
            first = get_args(one)[0]
            if get_args(one)[-1] is not Ellipsis:
                return [example(each, reveals, wanted, inside) for each in get_args(one)]
            return [example(first, reveals if canary else declared(first), wanted, inside)]
    kinds = members(kind)
    if bool in kinds:
        return True
    if int in kinds or float in kinds:
        return NUMBER if canary else 3
    if str in kinds or Any in kinds:
        return PATHS.get(reveals, TEXT) if canary else PUBLIC.get(reveals, "open")
    return None


def recursive(kind: Any, within: tuple[type, ...]) -> bool:
    """Whether a field of *kind* would hold a table of a type that it lies in."""
    items = [get_args(one)[0] for one in members(kind) if get_origin(one) is tuple]
    items += [get_args(one)[1] for one in members(kind) if get_origin(one) is dict]
    return any(struct_of(each) and issubclass(struct_of(each), within) for each in [kind, *items])  # type: ignore[arg-type]


def canaries(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from canaries(inner, f"{path}.{key}")
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from canaries(inner, f"{path}[]")
    elif value in (NUMBER, TEXT, *PATHS.values()):
        yield path


def leaked(document: dict[str, Any], limit: bool) -> list[str]:
    return list(canaries(redacted(document, limit)))


@pytest.mark.parametrize("reveals", [Reveals.NAME, Reveals.ENGINE, *PATHS])
@pytest.mark.parametrize("limit", [False, True])
def test_no_name_and_no_limit_of_the_server_is_left_in_any_document(reveals: Reveals, limit: bool) -> None:
    document = example(RunDocument, Reveals.NOTHING, frozenset((reveals,)))
    document["config"]["load"] = OPEN["config"]["load"]
    assert len(list(canaries(document))) > (10 if reveals is Reveals.NAME else 1)
    assert leaked(document, limit) == []


def test_an_export_has_all_figures_and_no_name() -> None:
    """Names are fields: no text is searched for them. URLs and hosts of the run have numbers, by which rows name them."""
    names = frozenset((Reveals.NAME, Reveals.SENTENCE, *PATHS))
    assert list(canaries(plain(without_names(example(RunDocument, Reveals.NOTHING, names))))) == []
    figures = example(RunDocument, Reveals.NOTHING, frozenset((Reveals.LOAD, Reveals.ENGINE)))
    figures["error_texts"] = {}  # texts of the server, not figures
    assert len(list(canaries(plain(without_names(figures))))) == len(list(canaries(figures))) > 150
    found = without_names(
        {
            **OPEN,
            "target": {"urls": ["http://a", "http://b"]},
            "hosts": [{"host": 0, "name": "rack", "address": "10.0.0.1"}],
        }
    )
    assert found.target.urls == ("target-0", "target-1")
    assert (found.hosts[0].name, found.hosts[0].address) == ("host-0", "host-0")


def test_a_series_of_the_server_that_the_user_named_is_withheld() -> None:
    """It may be a memory figure under the server's own name; its name is one that the user wrote."""
    entry = {"source": "x", "unit": "", "kind": "gauge", "n": 5, "mean": 0.5}
    series = [{**entry, "name": name} for name in ("own:kv_usage", "kv_usage", "server_ttft_sum")]
    asked = {**OPEN["config"], "telemetry": {"metrics": ["own:kv_usage"]}}
    found = redacted({"config": asked, "telemetry": {"series": series}})
    assert [(each["name"], each["mean"]) for each in found["telemetry"]["series"]] == [
        ("withheld", "withheld"), ("kv_usage", "withheld"), ("server_ttft_sum", 0.5),
    ]  # fmt: skip
    assert found["config"]["telemetry"]["metrics"] == ["withheld"]


@pytest.mark.parametrize("reveals", PUBLIC)
def test_a_name_other_than_a_path_is_kept(reveals: Reveals) -> None:
    """A tokenizer of a list, a public model; a curve, which is the load, where the load is declared."""
    document = example(RunDocument, Reveals.NOTHING, frozenset())
    document["config"]["load"] = {"rate": 5.0, "rate_curve": PUBLIC[Reveals.CURVE]}
    document["plan"]["description"]["load"] = {"loop": "open", "arrivals": {"rate": 5.0, "changes": "ramp:1,5"}}
    kept, hidden = (str(redacted(document, limit)).count(PUBLIC[reveals]) for limit in (False, True))
    assert kept == str(document).count(PUBLIC[reveals]) >= 2
    assert hidden == (0 if reveals is Reveals.CURVE else kept)


@pytest.mark.parametrize(
    ("what", "path", "name"),
    [
        (Reveals.FILE, "tokenizers/mine", "o200k_base"),
        (Reveals.FILE, "tokenizer.json", "gpt-4"),
        (Reveals.MODEL, "/models/mine", "meta-llama/Llama-3.1-8B"),
        (Reveals.MODEL, "~/mine", "@cf/meta/llama-3.1-8b-instruct"),
        (Reveals.MODEL, "models/mine/q4.gguf", "accounts/fireworks/models/qwen3"),
        (Reveals.MODEL, "C:\\models\\mine", "llama-3-8b.gguf"),
        (Reveals.CURVE, "series:rates.csv", "steps:1x5,2x5"),
        (Reveals.NOTHING, "", "/open"),
    ],
)
def test_paths_are_distinguished_from_names(what: Reveals, path: str, name: str) -> None:
    assert is_path(path, what) is (path != "") and not is_path(name, what)


def test_a_closed_loop_among_classes_shows_a_capacity() -> None:
    loads = [{"load": {"loop": loop}} for loop in ("open", "closed")]
    for classes, shows in ((loads[:1], False), (loads, True)):
        description = {"load": {"loop": "open", "arrivals": {"rate": 5.0}}, "classes": classes}
        document = {"config": {"load": {"rate": 5.0}}, "plan": {"description": description}}
        assert reveals_capacity(document) is shows


def test_no_load_and_no_sentence_is_left_where_the_load_is_a_capacity() -> None:
    document = example(RunDocument, Reveals.NOTHING, frozenset((Reveals.LOAD, Reveals.SENTENCE)))
    assert len(list(canaries(document))) > 150
    assert leaked(document, True) == []


@pytest.mark.parametrize("limit", [False, True])
def test_latencies_under_the_names_of_vllm_are_kept(limit: bool) -> None:
    found = redacted({**OPEN, "p99_ttft_ms": 12.5, "median_tpot_any_ms": 8.0, "request_throughput": 5.0}, limit)
    assert (found["p99_ttft_ms"], found["median_tpot_any_ms"]) == (12.5, 8.0)
    assert found["request_throughput"] == ("withheld" if limit else 5.0)


def test_a_declared_rate_keeps_its_counts() -> None:
    document = example(RunDocument, Reveals.NOTHING, frozenset((Reveals.LOAD,)))
    document["config"]["load"] = {"rate": 5.0, "max_concurrency": None}
    document["plan"]["description"]["load"] = {"loop": "open", "arrivals": {"rate": 5.0}}
    assert len(leaked(document, False)) > 100


def test_a_redacted_document_is_still_a_run_document() -> None:
    document = example(RunDocument, Reveals.NOTHING, frozenset(Reveals))
    convert(document, RunDocument)
    assert convert(redacted(document, True), RunDocument).withheld


def test_unknown_keys_are_left_out() -> None:
    found = redacted({**OPEN, "secret": TEXT, "counts": {"ok": 1, "other": TEXT}})
    assert found["counts"] == {"ok": 1}
    assert "secret" not in found


def test_every_text_of_settings_that_can_be_a_name_is_declared() -> None:
    """What a user may write freely into a setting: texts, less those that the program itself gives a list of values."""
    closed = re.compile(
        r"name|endpoint_type|arrival|isl|osl|prompt_form|continuous_usage|dataset_class|dataset_lengths|counting|turns"
        r"|think_time|history|prefix_stream|timestamps|transport|decode|record_text|ui|itl_option|percentile_metrics|power"
        r"|cancel_after|slow_readers|abandon|goodput|collect|on_host_loss|trace_timing|trace_max_wait|trace_prompts|session_start|server"
        r"|model_order|image"
    )
    free = []
    for struct, known in SETTINGS.items():
        for key, kind in fields(struct).items():
            text = str in members(kind) or (get_origin(members(kind)[0]) is tuple and "str" in str(kind))
            if text and key not in known and not closed.fullmatch(key):
                free.append(f"{struct.__name__}.{key}")
    assert free == []


def test_a_command_keeps_the_values_of_public_options_only() -> None:
    words = [
        "fastllmload",
        "-u",
        "http://h",
        "--rate=5",
        "-n100",
        "--osl",
        "64",
        "--seed",
        "42",
        "--class",
        "chat rate=5",
    ]
    hidden = ["fastllmload", "-u", "withheld", "--rate=withheld", "-nwithheld", "--osl", "64", "--seed", "42",
              "--class", "withheld"]  # fmt: skip
    assert command_without_values(words, with_load=False) == hidden
    assert command_without_values(words, with_load=True)[3:5] == ["--rate=5", "-n100"]


def test_a_command_keeps_names_of_tokenizers_models_and_curves_but_no_path() -> None:
    public = ["run", "--tokenizer", "gpt-4", "--model=org/m", "-m", "org/m", "-morg/m", "--rate", "ramp:1,5"]
    private = ["run", "--tokenizer", "a/tok", "--model=/m/m", "-m", "~/m", "-m/m/m", "--rate", "series:a.csv"]
    assert command_without_values(public, with_load=True) == public
    assert command_without_values(private, with_load=True) == [
        "run", "--tokenizer", "withheld", "--model=withheld", "-m", "withheld", "-mwithheld", "--rate", "withheld",
    ]  # fmt: skip


def test_types_of_run_documents_are_structs_of_this_package() -> None:
    """Nothing in run.json is a free table except those that hold names or are withheld as a whole."""
    free = []

    def walk(struct: type[msgspec.Struct], path: str) -> None:
        for key, kind in fields(struct).items():
            inner = struct_of(kind)
            items = [get_args(one)[-1] for one in members(kind) if get_origin(one) is dict]
            items += [get_args(one)[0] for one in members(kind) if get_origin(one) is tuple]
            for each in [kind, *items]:
                if Any in members(each) and declared(kind) is Reveals.NOTHING:
                    free.append(f"{path}.{key}")
                inner = inner or struct_of(each)
            if inner is not None and inner not in seen:
                seen.add(inner)
                walk(inner, f"{path}.{key}")

    seen: set[type] = {RunDocument}
    walk(RunDocument, "")
    assert free == [".metrics.d_p_ms", ".users.denominators"]


def test_the_module_searches_no_text() -> None:
    source = (Path(__file__).parents[3] / "src" / "fastllmload" / "documents" / "redaction.py").read_text()
    assert "import re" not in source
