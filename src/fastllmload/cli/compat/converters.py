"""Values of other tools' options that are more than a text: pairs, lists, JSON, and what each of them becomes."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fastllmload.cli.compat.foreign_command import ForeignCommand, Lack
from fastllmload.errors import InputError

PAIR_FIELDS = ("isl", "isl_stddev", "osl", "osl_stddev", "prob")
MOONCAKE = {"input_length", "hash_ids", "text_input"}  # fields of a trace
NATIVE_LONGEST = "max_new_tokens"  # the same in SGLang's sampling_params
LONGEST = ("max_tokens", "max_completion_tokens", "max_output_tokens")  # fields with the most tokens of an answer


def json_value(text: str) -> Any:
    """A JSON value, or the text itself."""
    try:
        return json.loads(text.lower() if text in ("True", "False", "None") else text)
    except ValueError:
        return text


def pairs(flag: str, values: Iterable[str], joint: str) -> Iterator[tuple[str, Any]]:
    """`NAME<joint>VALUE`, several in one text after commas or blanks, or a JSON object."""
    for value in values:
        if value.lstrip().startswith("{"):
            found = json_value(value)
            if not isinstance(found, dict):
                raise InputError("json-invalid", f"{flag} {value!r} is not a JSON object")
            yield from found.items()
            continue
        for part in re.split(r"[,\s]+", value.strip()):
            name, found, text = part.partition(joint)
            if not found:
                raise InputError("value-invalid", f"{flag} {part!r} is not of the form NAME{joint}VALUE; write it so")
            yield name, text


def headers(reading: ForeignCommand, flag: str, entry: Mapping[str, Any], values: list[str]) -> None:
    for value in values:
        translated = json_value(value)
        if isinstance(translated, dict):
            reading.written += [("-H", f"{name}: {text}") for name, text in translated.items()]
            continue
        name, found, text = re.match(r"([^:=]*)([:=]?)(.*)", value, re.DOTALL).groups()  # type: ignore[union-attr]
        if not found:
            raise InputError("header-invalid", f"{flag} {value!r} is not a header; write NAME=VALUE or 'NAME: VALUE'")
        reading.written.append(("-H", f"{name.strip()}: {text.strip()}"))


def objectives(reading: ForeignCommand, flag: str, entry: Mapping[str, Any], values: list[str]) -> None:
    names = reading.table["objectives"]
    for name, limit in pairs(flag, values, ":"):
        if name in names:
            reading.written.append(("--goodput", f"{names[name]}:{limit}"))
        else:
            reading.lacks.append(Lack(f"{flag} {name}", "cannot", "no objective of ours has this meaning"))


def inputs(reading: ForeignCommand, flag: str, entry: Mapping[str, Any], values: list[str]) -> None:
    """Fields of the body; the longest answer is the variable *length* of *entry*, where it has one."""
    for name, value in pairs(flag, values, ":"):
        if "length" in entry and name in LONGEST and str(value).isdecimal():
            reading.variables[entry["length"]] = [str(value)]
            continue
        found = json_value(value) if isinstance(value, str) else value
        if "length" in entry and isinstance(found, dict) and isinstance(found.get(NATIVE_LONGEST), int):
            found = dict(found)
            reading.variables[entry["length"]] = [str(found.pop(NATIVE_LONGEST))]
        reading.body[name] = found


def settings(reading: ForeignCommand, flag: str, entry: Mapping[str, Any], values: list[str]) -> None:
    """Variables `<as>_NAME`; of another text (a file, a data set's name) `<as>`. Where *entry* goes *by_kind*, the setting
    `kind` is a part of the other names; where it counts *once*, a second group is refused.
    """
    prefix = entry["as"]
    for value in listed(values):
        if entry.get("once") and flag in reading.given:
            reading.lacks.append(Lack(f"{flag} {value}", "changes", "several are not put together; give one"))
            continue
        if entry.get("once"):  # and it replaces what a file or a variable said
            reading.variables = {
                name: texts for name, texts in reading.variables.items() if name.partition("_")[0] != prefix
            }
        reading.given.add(flag)
        if "=" not in value and not value.lstrip().startswith("{"):
            reading.variables[prefix] = [value]
            continue
        open_ended = [name[len(prefix) + 1 : -2] for name in reading.table.get("settings", {}) if name.endswith("_*")]
        found = dict(flattened_pairs(nested(pairs(flag, [value], "=")).items(), open_ended))
        kind = found.pop("kind", "") if entry.get("by_kind") else ""
        if kind:
            setting(reading, f"{flag} kind={kind}", f"{prefix}_{kind}", [kind])
        for name, one in found.items():
            joint = f"{prefix}_{kind}_{name}" if kind else f"{prefix}_{name}"
            if reading.table.get("settings", {}).get(joint, {}).get("convert") == "buckets":
                buckets(reading, f"{flag} {name}", one)
                continue
            if isinstance(one, dict):  # a field of the body
                one = json.dumps(one)
            texts = [str(each) for each in one] if isinstance(one, list) else [str(one)]
            setting(reading, f"{flag} {name}", joint, texts)


def listed(values: Iterable[str]) -> Iterator[str]:
    """*values*, of a JSON list its elements."""
    for value in values:
        found = json_value(value) if value.lstrip().startswith("[") else None
        if isinstance(found, list):
            yield from (each if isinstance(each, str) else json.dumps(each) for each in found)
        else:
            yield value


def setting(reading: ForeignCommand, typed_as: str, name: str, texts: list[str]) -> None:
    """Note the setting *name*: a variable, or by an entry whose name ends in * a field of the body or a header."""
    known = reading.table.get("settings", {})
    pattern = next((each for each in known if each.endswith("*") and name.startswith(each[:-1])), "")
    translated = (
        known.get(name) or known.get(pattern) or ({} if name in known else {"changes": "it has no counterpart"})
    )
    texts = [translated.get("values", {}).get(text, text) for text in texts]
    if reading.lack(typed_as, translated):
        return
    if "body" in translated:
        reading.body[name.removeprefix(pattern[:-1])] = json_value(texts[0])
    elif "header" in translated:
        reading.written.append(("-H", f"{name.removeprefix(pattern[:-1])}: {texts[0]}"))
    else:
        reading.variables[translated.get("as", name)] = texts


def nested(found: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """*found* with an object for the names `a.b` and `a.c`."""
    tree: dict[str, Any] = {}
    for name, value in found:
        *path, last = name.split(".")
        place = tree
        for part in path:
            inner = place.setdefault(part, {})
            place = inner if isinstance(inner, dict) else {}
        place[last] = json_value(value) if path and isinstance(value, str) else value
    return tree


def flattened_pairs(
    found: Iterable[tuple[str, Any]], open_ended: Collection[str], front: str = ""
) -> Iterator[tuple[str, Any]]:
    """*found* with names such as `a_b` for what lies in nested objects; what lies in *open_ended* ones stays as it is."""
    for name, value in found:
        joint = f"{front}{name}"
        if isinstance(value, dict) and joint in open_ended:
            yield from ((f"{joint}_{inner}", one) for inner, one in value.items())
        elif isinstance(value, dict):
            yield from flattened_pairs(value.items(), open_ended, f"{joint}_")
        elif value is not None:
            yield joint, value


def buckets(reading: ForeignCommand, typed_as: str, found: Any) -> None:
    """GuideLLM's groups of prefixes: one group where all prefixes have one length and are equally likely, else a class
    each.
    """
    try:
        rows = [(int(one["prefix_tokens"]), int(one.get("prefix_count", 1)), float(one.get("bucket_weight", 100)))
                for one in found]  # fmt: skip
    except (AttributeError, KeyError, TypeError, ValueError):
        rows = []
    if not rows or min(min(count, weight) for _, count, weight in rows) <= 0 or min(tokens for tokens, *_ in rows) < 0:
        raise InputError(
            "value-invalid",
            f"{typed_as} {json.dumps(found)} is not a list of objects with prefix_tokens of 0 or more, and prefix_count and "
            "bucket_weight above 0",
        )
    if len({(tokens, weight / count) for tokens, count, weight in rows}) == 1:
        reading.variables["data_prefix_tokens"] = [str(rows[0][0])]
        reading.variables["data_prefix_count"] = [str(sum(count for _, count, _ in rows))]
        return
    whole = sum(weight for *_, weight in rows)
    for number, (tokens, count, weight) in enumerate(rows, 1):
        prefix = f" prefix-len={tokens} num-prefixes={count}" if tokens else ""
        reading.written.append(("--class", f"prefix{number} share={weight / whole:.9g}{prefix}"))
    reading.variables["data_buckets"] = [str(len(rows))]


PAIR = re.compile(r"\(?(\d+)(?:\|([\d.]+))?,(\d+)(?:\|([\d.]+))?\)?:([\d.]+)")


def length_pairs(reading: ForeignCommand, flag: str, entry: Mapping[str, Any], values: list[str]) -> None:
    """AIPerf's ISL|STDDEV,OSL|STDDEV:PERCENT;... (also in brackets, or as JSON) become a class each."""
    found = json_value(values[0])
    pairs_read = found.get("pairs", []) if isinstance(found, dict) else []
    rows = [tuple(str(each.get(name) or 0) for name in PAIR_FIELDS) for each in pairs_read if isinstance(each, dict)]
    rows = rows or [tuple(part or "0" for part in each.groups()) for each in PAIR.finditer(values[0].replace(" ", ""))]
    shares = [float(share) for *_, share in rows]
    if not rows or abs(sum(shares) - 100) > 0.01:
        raise InputError(
            "value-invalid", f"{flag} {values[0]!r} is not of the form ISL,OSL:PERCENT;... with percents that make 100"
        )
    for number, (isl, isl_spread, osl, osl_spread, _) in enumerate(rows, 1):
        lengths = [f"{isl}" if float(isl_spread) == 0 else f"normal:{isl},{isl_spread}"]
        lengths += [f"{osl}" if float(osl_spread) == 0 else f"normal:{osl},{osl_spread}"]
        text = f"pair{number} share={shares[number - 1] / 100:.9g} isl={lengths[0]} osl={lengths[1]}"
        reading.written.append(("--class", text))
    reading.variables["pairs"] = [str(len(rows))]


def rates(reading: ForeignCommand, flag: str, entry: Mapping[str, Any], values: list[str]) -> None:
    """SGLang's START,STOP,STEP without STOP itself, or a list of another number of rates."""
    try:
        given = [int(one) for one in values[0].split(",")]
        found = list(range(*given)) if len(given) == 3 else given
    except ValueError:
        found = []
    if not found:
        raise InputError("value-invalid", f"{flag} {values[0]!r} is not START,STOP,STEP or a list of rates")
    reading.variables["rate"] = [str(one) for one in found]


def override(reading: ForeignCommand, flag: str, entry: Mapping[str, Any], values: list[str]) -> None:
    """GuideLLM's list of values for one setting of a profile."""
    name = (values or [""])[0].rpartition(".")[2]
    if len(values) == 2 and name in ("rate", "streams"):
        reading.variables["rate"] = values[1].strip("[]").replace(" ", "").split(",")
    else:
        reading.lacks.append(
            Lack(" ".join((flag, *values)), "changes", "only a rate or streams can differ between runs")
        )


def prompts(reading: ForeignCommand, flag: str, entry: Mapping[str, Any], values: list[str]) -> None:
    """AIPerf's file of prompts: its type, unless that was given, by its first line, and which fields it has."""
    variables = reading.variables
    payload, path = values[0].startswith("payload:"), values[0].removeprefix("payload:")
    variables["file"] = [path]
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:  # which the run reports
        return
    first = json_value(next((line for line in text.splitlines() if line.strip()), ""))
    names = set(first) if isinstance(first, dict) else set()
    kind = "multi_turn" if "turns" in names else "mooncake_trace" if names & MOONCAKE else "single_turn"
    variables.setdefault("file_type", [str(first["type"]) if "type" in names else kind])
    if payload and "session_id" in names:
        variables["file_type"] = ["payload_sessions"]
    elif payload and "timestamp" in names:
        variables["schedule"] = ["true"]
    variables["file_lines"] = [str(sum(1 for line in text.splitlines() if line.strip()))]
    for name, field in (("lengths", "output_length"), ("texts", "text_input"), ("times", "timestamp")):
        if f'"{field}"' in text:
            variables[f"file_{name}"] = ["true"]


def found(reading: ForeignCommand, flag: str, entry: Mapping[str, Any], values: list[str]) -> None:
    """A data set that the tool fetches, whose file `fetched.find_file` finds where *entry* names places of it."""
    reading.variables[entry["as"]] = [values[0]]
    if values[0] not in entry["files"] and "other" in entry:
        reading.lack(f"{flag} {values[0]}", {"changes": entry["other"]})


def swept(reading: ForeignCommand, flag: str, entry: Mapping[str, Any], values: list[str]) -> None:
    """GenAI-Perf's MIN:MAX in powers of 2, or by 1 where *entry* has `by_one`, MIN:MAX:STEP, or a list."""
    bounds = values[0].split(":")
    bounds += ["1"] if len(bounds) == 2 and entry.get("by_one") else []
    try:
        given = [int(one) for one in (bounds if len(bounds) > 1 else values[0].split(","))]
    except ValueError:
        given = []
    if len(bounds) == 3 and len(given) == 3 and given[2] > 0:
        given = list(range(given[0], given[1] + 1, given[2]))
    elif len(bounds) == 2 and len(given) == 2:
        given = [1 << power for power in range(given[1].bit_length()) if given[0] <= 1 << power <= given[1]]
    elif len(bounds) > 1:
        given = []
    if not given:
        raise InputError("value-invalid", f"{flag} {values[0]!r} is not MIN:MAX, MIN:MAX:STEP or a list of numbers")
    reading.variables[entry["as"]] = [str(one) for one in given]


def template(reading: ForeignCommand, flag: str, entry: Mapping[str, Any], values: list[str]) -> None:
    """evalscope's body of a request, with %m for the model and %p for the prompt: its fields."""
    text = values[0]
    if text.startswith("@"):
        try:
            text = Path(text[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeError) as problem:
            raise InputError("file-unreadable", f"{flag} {values[0]} cannot be read: {problem}") from None
    fields = json_value(text)
    if not isinstance(fields, dict):
        raise InputError("json-invalid", f"{flag} {values[0]!r} is not a JSON object")
    if fields.pop("messages", [{"role": "user", "content": "%p"}]) != [{"role": "user", "content": "%p"}]:
        reading.lacks.append(Lack(f"{flag} messages", "changes", "a prompt is the only message; leave the others out"))
    if fields.pop("prompt", "%p") != "%p" or fields.pop("model", "%m") != "%m":
        reading.lacks.append(Lack(flag, "changes", "model and prompt are the run's; write %m and %p for them"))
    for name, variable in entry["variables"].items():
        if name in fields:
            reading.variables[variable] = [json.dumps(fields.pop(name)).strip('"')]
    reading.body |= fields


def resolution(reading: ForeignCommand, flag: str, entry: Mapping[str, Any], values: list[str]) -> None:
    """HEIGHTxWIDTH, or one number for both."""
    height, _, width = values[0].partition("x")
    if not f"{height}{width}".isdecimal():
        reading.lacks.append(Lack(f"{flag} {values[0]}", "changes", "all images have one size"))
    reading.variables |= {"image_height": [height], "image_width": [width or height]}


def stages(reading: ForeignCommand, flag: str, entry: Mapping[str, Any], values: list[str]) -> None:
    """Stages of a rate and a duration, or of a concurrency and a number of requests."""
    found = json_value(values[0])
    if not isinstance(found, list) or not all(isinstance(stage, dict) for stage in found) or not found:
        raise InputError("json-invalid", f"{flag} {values[0]!r} is not a list of stages")
    for name in dict.fromkeys(name for stage in found for name in stage if stage[name] is not None):
        reading.variables[f"stage_{name}"] = [str(stage.get(name, "")) for stage in found]
    if len(found) > 1:  # and how many of their values differ
        vary = sum(len({str(stage.get(name)) for stage in found}) > 1 for name in found[0])
        reading.variables["stages_vary"] = [str(vary)]


def only(reading: ForeignCommand, flag: str, entry: Mapping[str, Any], values: list[str]) -> None:
    """The single element of a list; several have no counterpart."""
    found = [str(each) for each in list_of(values[0])]
    if len(found) == 1:
        reading.variables[entry["as"]] = found


def list_of(text: str) -> list[Any]:
    """A JSON list, or what commas are between."""
    found = json_value(text)
    return found if isinstance(found, list) else text.split(",")
