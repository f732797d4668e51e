"""What Ollama's two resources have in common: where they are, and the fields of a body besides model and prompt."""

from __future__ import annotations

from typing import Any

from fastllmload.endpoint.fields import LENGTHS, extra_fields
from fastllmload.endpoint.path import root
from fastllmload.endpoint.pieces import NUMBER
from fastllmload.errors import InputError
from fastllmload.settings import Workload

NO_IGNORE_EOS = "Ollama has no ignore_eos: a model may stop before the output length that was asked for (num_predict)"


def under_api(base_path: str, resource: str) -> str:
    """Path of *resource* (`chat`, `tags`). A base URL without a path means /api; one that ends in /api or in the
    resource is taken as it is.
    """
    path = base_path.rstrip("/")
    if path.endswith(f"/api/{resource}"):
        return path
    return f"{path}/{resource}" if path.endswith("/api") else f"{path}/api/{resource}"


def beside(base_path: str, resource: str, other: str) -> str:
    """Path of *other* on the server whose base path may name *resource*."""
    return under_api(root(base_path, resource), other)


def sampling_fields(workload: Workload) -> dict[str, Any]:
    """`stream` and `options`; num_predict is the request's output length.

    Fields of --extra-body replace ours, those of its `options` one by one; null takes one of ours out. InputError
    when it is no JSON object, or sets what an option decides.
    """
    extra = extra_fields(workload.extra_body)
    asked = extra.pop("options", None)
    if asked is not None and not isinstance(asked, dict):
        raise InputError(f"--extra-body sets 'options' to {asked!r}; Ollama wants an object there")
    refuse_lengths(extra, asked or {})
    options: dict[str, Any] = {"num_predict": NUMBER}
    if workload.temperature is not None:
        options["temperature"] = workload.temperature
    removed = [name for name, value in (asked or {}).items() if value is None and name in options]
    options = {name: value for name, value in (options | (asked or {})).items() if name not in removed}
    return {"stream": workload.streaming, "options": options, **extra}


def refuse_lengths(extra: dict[str, Any], options: dict[str, Any]) -> None:
    """The output length stands in num_predict and nowhere else."""
    for name in LENGTHS:
        if name in extra:
            raise InputError(f"--extra-body sets {name!r}, which Ollama does not know; --osl becomes num_predict")
    if options.get("num_predict", NUMBER) is not NUMBER:
        raise InputError("--extra-body sets 'num_predict', which --osl decides for each request; use --osl")


def refuse_ids(name: str, workload: Workload) -> None:
    """InputError for token-id prompts: no resource of Ollama takes them."""
    if workload.prompt_form == "ids":
        raise InputError(
            f"--prompt-form {workload.prompt_form} does not go with {name}: Ollama takes text only; "
            "use --prompt-form words or text"
        )
