"""AIPerf's files of settings (schemaVersion 2.0, and the flat form before it) as words of its command line.

A setting without an option there becomes one with its path (`--phases.profiling.x`), which is then named as unknown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fastllmload.cli.compat.expressions import filled
from fastllmload.errors import InputError

VARIABLE = re.compile(r"\$\{(\w+)(?::([^}]*))?\}")
EXPRESSION = re.compile(r"\{\{(.*?)\}\}")
CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
AROUND = {"schema_version", "random_seed", "variables", "sweep", "multi_run", "benchmark", "plot", "no_sweep_table"}
LISTS = {"models": "model", "datasets": "dataset", "urls": "url"}  # plural: singular
# By path: the option of aiperf profile. A switch has ! after it, a spread of lengths ~.
OPTIONS = {
    "random_seed": "--random-seed", "multi_run.num_runs": "--num-profile-runs",
    "multi_run.cooldown_seconds": "--profile-run-cooldown-seconds", "multi_run.confidence_level": "--confidence-level",
    "multi_run.disable_warmup_after_first": "--profile-run-disable-warmup-after-first!",
    "multi_run.set_consistent_seed": "--set-consistent-seed!",
    "model": "--model", "tokenizer.name": "--tokenizer", "tokenizer": "--tokenizer", "artifacts.dir": "--artifact-dir",
    "endpoint.url": "--url", "endpoint.type": "--endpoint-type", "endpoint.streaming": "--streaming!",
    "endpoint.api_key": "--api-key", "endpoint.timeout": "--request-timeout-seconds", "endpoint.path": "--endpoint",
    "endpoint.custom_endpoint": "--endpoint", "endpoint.headers": "--header", "endpoint.extra": "--extra-inputs",
    "endpoint.url_strategy": "--url-strategy", "endpoint.session_header": "--session-header",
    "endpoint.use_server_token_count": "--use-server-token-count!",
    "endpoint.wait_for_model_timeout": "--wait-for-model-timeout",
    "dataset.entries": "--num-dataset-entries", "dataset.path": "--input-file", "dataset.format": "--custom-dataset-type",
    "dataset.sampling": "--dataset-sampling-strategy", "dataset.prompts.isl": "--isl~", "dataset.prompts.osl": "--osl~",
    "dataset.prompts.batch_size": "--prompt-batch-size", "dataset.prompts.sequence_distribution": "--sequence-distribution",
    "dataset.prefix_prompts.pool_size": "--num-prefix-prompts", "dataset.prefix_prompts.length": "--prefix-prompt-length",
    "dataset.prefix_prompts.shared_system_length": "--shared-system-prompt-length",
    "dataset.prefix_prompts.user_context_length": "--user-context-prompt-length",
    "dataset.turns": "--session-turns~", "dataset.turn_delay": "--session-turn-delay~",
    "dataset.images.batch_size": "--image-batch-size", "dataset.images.width": "--image-width~",
    "dataset.images.height": "--image-height~", "dataset.images.format": "--image-format",
    "dataset.random_seed": "--random-seed",
    "dataset.synthesis.speedup_ratio": "--synthesis-speedup-ratio",
    "slos": "--goodput",
}  # fmt: skip
OF_A_PHASE = {
    "concurrency": "concurrency", "prefill_concurrency": "prefill-concurrency", "rate": "request-rate",
    "concurrency_ramp": "concurrency-ramp-duration", "prefill_ramp": "prefill-concurrency-ramp-duration",
    "rate_ramp": "request-rate-ramp-duration",
}  # fmt: skip
OF_THE_RUN = {
    "requests": "--request-count", "duration": "--benchmark-duration", "sessions": "--num-sessions",
    "grace_period": "--benchmark-grace-period", "smoothness": "--arrival-smoothness", "users": "--num-users",
    "cancellation.rate": "--request-cancellation-rate", "cancellation.delay": "--request-cancellation-delay",
    "auto_offset": "--fixed-schedule-auto-offset!", "start_offset": "--fixed-schedule-start-offset",
    "end_offset": "--fixed-schedule-end-offset",
}  # fmt: skip
OF_THE_WARMUP = {"requests": "--warmup-request-count", "duration": "--warmup-duration",
                 "grace_period": "--warmup-grace-period"}  # fmt: skip
KINDS = {"concurrency": [], "constant": ["--arrival-pattern", "constant"], "poisson": ["--arrival-pattern", "poisson"],
         "gamma": ["--arrival-pattern", "gamma"], "fixed_schedule": ["--fixed-schedule"], "user_centric": []}  # fmt: skip
SECONDS = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600}


def words(tree: Mapping[str, Any], environment: Mapping[str, str]) -> Iterator[str]:
    """InputError for a variable of the environment that is not set, and for an expression that cannot be computed."""
    settings = substituted(snake(tree), environment)
    body = settings.get("benchmark")
    others = {name: value for name, value in settings.items() if name not in AROUND}
    body = {**others, **body} if isinstance(body, dict) else others
    short = [
        {"name": name, **value} for name in ("warmup", "profiling") if isinstance(value := body.pop(name, None), dict)
    ]
    body = {**body, "phases": short} if short and "phases" not in body else body
    settings = computed(settings, dict(settings.get("variables") or {}))
    body = computed(body, dict(settings.get("variables") or {}))
    swept = sweep_values(settings.get("sweep") or {}, body)
    for name in ("random_seed", "multi_run"):
        yield from options(settings.get(name), name, swept)
    for name, value in body.items():
        if name != "phases":
            yield from options(first(value) if name in LISTS else value, LISTS.get(name, name), swept)
    found = body.get("phases") or []
    for phase in [found] if "type" in found else found.values() if isinstance(found, dict) else found:
        yield from phase_words(phase, swept)
    for path in swept:
        yield from (f"--sweep.{path}", json.dumps(swept[path]))


def first(value: Any) -> Any:
    """The single element of a list; several stay a list."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def options(value: Any, path: str, swept: dict[str, list[Any]]) -> Iterator[str]:
    """Words of one setting and of those in it."""
    option = OPTIONS.get(path)
    several = swept.pop(path, None)
    if several is not None:
        value = ",".join(map(str, several))
    if value is None or (path == "dataset.type" and value in ("synthetic", "file")):
        return
    if path == "model" and isinstance(value, list):
        value = ",".join(str(each["name"] if isinstance(each, dict) else each) for each in value)
    if path == "model" and isinstance(value, dict):
        value = value.get("name", value)
    if path == "dataset.type" and value == "public":
        return
    if path in ("dataset.dataset", "dataset.public", "dataset.name_of_set"):
        yield from ("--public-dataset", str(value))
    elif path in ("dataset.name", "dataset.kind"):
        return
    elif path == "endpoint.headers" and isinstance(value, dict):
        for name, text in value.items():
            yield from ("--header", f"{name}: {text}")
    elif option and option.endswith("!"):
        if value is True:
            yield option[:-1]
    elif option and option.endswith("~"):
        yield from spread(option[:-1], value, path)
    elif option and isinstance(value, list):
        yield from (option, *(map(str, value)))
    elif option and not isinstance(value, dict):
        yield from (option, str(value))
    elif path in ("endpoint.extra", "slos"):
        texts = [f"{name}:{text if isinstance(text, str) else json.dumps(text)}" for name, text in value.items()]
        yield from (str(option), *texts)
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from options(first(inner) if name in LISTS else inner, f"{path}.{LISTS.get(name, name)}", swept)
    else:
        yield from (f"--{path}", value if isinstance(value, str) else json.dumps(value))


def spread(option: str, value: Any, path: str) -> Iterator[str]:
    """A number, or a distribution with a mean and a spread."""
    long = {"--isl": "--isl", "--osl": "--osl"}.get(option)
    if not isinstance(value, dict):
        yield from (long or f"{option}-mean", str(value))
        return
    known = {"mean", "stddev", "std", "type", "value"}
    if value.keys() - known or value.get("type", "normal") not in ("normal", "fixed"):
        yield from (f"--{path}", json.dumps(value))
        return
    yield from (long or f"{option}-mean", str(value.get("mean", value.get("value"))))
    if (deviation := value.get("stddev", value.get("std"))) is not None:
        yield from (f"{option}-stddev", str(deviation))


def phase_words(phase: Any, swept: dict[str, list[Any]]) -> Iterator[str]:
    if not isinstance(phase, dict):
        raise InputError(
            "config-invalid", f"phases have {phase!r}, which is not a phase; write name, type and load of each"
        )
    name = str(phase.get("name", "profiling"))
    warmup = phase.get("kind", name) == "warmup" or phase.get("exclude_from_results") is True
    kind = str(phase.get("type", "concurrency"))
    if not warmup and name != "profiling" and phase.get("kind") != "profiling":
        yield from ("--phases", name)
    if not warmup:
        yield from KINDS.get(kind, ["--phases.type", kind])
    flat = {path: value for path, value in flattened(phase) if path not in ("name", "kind", "type", "dataset")}
    if not warmup:
        flat |= {
            path.rpartition(".")[2]: swept.pop(path) for path in list(swept) if path in OF_A_PHASE or path in OF_THE_RUN
        }
    for path, value in flat.items():
        text = ",".join(map(str, value)) if isinstance(value, list) else seconds(value)
        option = (OF_THE_WARMUP if warmup else OF_THE_RUN).get(path)
        if path in OF_A_PHASE and not option:
            option = f"--{'warmup-' if warmup else ''}{OF_A_PHASE[path]}"
            option = "--user-centric-rate" if option == "--request-rate" and kind == "user_centric" else option
        if path in ("exclude_from_results", "seamless"):
            continue
        if option and option.endswith("!"):
            yield from [option[:-1]] if value is True else []
        else:
            yield from (option or f"--phases.{name}.{path}", text)


def sweep_values(sweep: Mapping[str, Any], body: Mapping[str, Any]) -> dict[str, list[Any]]:
    """By path in the body, or name of a phase's field: the values of a grid of one parameter; others as they are written."""
    found = sweep.get("parameters", sweep.get("variables"))
    if not isinstance(found, dict):
        return {"runs": [sweep]} if sweep else {}
    names = {str(each.get("name", "profiling")) for each in body.get("phases") or [] if isinstance(each, dict)}
    phase = re.compile(rf"(benchmark\.)?phases\.({'|'.join(map(re.escape, names | {'profiling', '0'}))})\.")
    data = re.compile(r"(benchmark\.)?datasets\.\w+\.")
    short = {phase.sub("", data.sub("dataset.", path)).removeprefix("benchmark."): list(values)
             for path, values in found.items() if isinstance(values, list)}  # fmt: skip
    return short if sweep.get("type", "grid") == "grid" or len(short) == 1 else {"parameters": [found]}


def flattened(tree: Mapping[str, Any], front: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from flattened(value, f"{front}{name}.")
        elif value is not None:
            yield f"{front}{name}", value


def seconds(value: Any) -> str:
    """*value*, of a time such as `5m` its seconds."""
    found = re.fullmatch(r"([\d.]+)\s*(s|sec|m|min|h)", str(value))
    return f"{float(found[1]) * SECONDS[found[2]]:g}" if found else str(value)


def snake(value: Any) -> Any:
    """*value* with names such as `url_strategy` for `urlStrategy`, but in headers, fields of bodies and paths."""
    if isinstance(value, dict):
        kept = ("headers", "extra", "parameters", "variables", "slos")
        return {CAMEL.sub("_", str(name)).lower() if "." not in str(name) else str(name): one if name in kept else snake(one)
                for name, one in value.items()}  # fmt: skip
    return [snake(each) for each in value] if isinstance(value, list) else value


def replaced(value: Any, pattern: re.Pattern[str], text_of: Callable[[re.Match[str]], str]) -> Any:
    """*value* with what *text_of* gives for each match of *pattern* in its texts, which may become numbers."""
    if isinstance(value, dict):
        return {name: replaced(one, pattern, text_of) for name, one in value.items()}
    if isinstance(value, list):
        return [replaced(each, pattern, text_of) for each in value]
    return plain(pattern.sub(text_of, value)) if isinstance(value, str) and pattern.search(value) else value


def substituted(value: Any, environment: Mapping[str, str]) -> Any:
    """*value* with `${NAME}` and `${NAME:default}` from the environment."""

    def text_of(found: re.Match[str]) -> str:
        text = environment.get(found[1], found[2])
        if text is None:
            raise InputError(
                "config-invalid", f"${{{found[1]}}} of the file is not set; write {found[1]}=VALUE in front"
            )
        return text

    return replaced(value, VARIABLE, text_of)


def computed(value: Any, variables: Mapping[str, Any]) -> Any:
    """*value* with the results of expressions in `{{ }}`, which may use *variables*, also computed."""

    def text_of(found: re.Match[str]) -> str:
        expression = re.sub(r"\|\s*(int|float)\s*$", "", found[1].strip()).strip()
        used = set(re.findall(r"\w+", expression))
        others = {name: one for name, one in variables.items() if one != found.string}
        try:
            return filled(
                "{" + expression + "}", {name: str(computed(others[name], others)) for name in used & others.keys()}
            )
        except (KeyError, SyntaxError, TypeError):
            raise InputError(
                "config-invalid", f"{{{{ {expression} }}}} of the file cannot be computed; write its value"
            ) from None

    return replaced(value, EXPRESSION, text_of)


def plain(text: str) -> Any:
    """A number or a truth value, or the text itself."""
    try:
        found = json.loads(text)
    except ValueError:
        return text
    return found if isinstance(found, bool | int | float) else text
