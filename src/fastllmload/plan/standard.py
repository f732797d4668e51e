"""Definitions of the standard workloads (IETF 4.3.2 and A), and deviations of a run's workload from them."""

from __future__ import annotations

import msgspec

from fastllmload.documents.plan import WorkloadDescription
from fastllmload.endpoint.body import extra_fields, sampling_fields
from fastllmload.settings import Workload

UNIFORM = ("uniform:128,512", "uniform:64,256")
SKEWED = ("lognormal:5.5,1.0,32,4096", "lognormal:4.5,1.2,16,2048")
LENGTHS = {  # workload: (input, output)
    "synthetic-uniform": UNIFORM,
    "synthetic-skewed": SKEWED,
    "fairness": SKEWED,
    "fairness-short": SKEWED,
    "fairness-long": SKEWED,
    "long-context": ("uniform_range", "256"),
}
OUTPUT = "output lengths"
OWN_TEXT = ("conversation", "code-completion")
VARIANTS = ("uniform_range", "target_lengths", "uniform:8192,32768", "choice:8192,16384,32768,65536,131072")


def deviations(workload: Workload) -> tuple[str, ...]:
    """Deviations from the standard workload of that name, a sentence each; they are part of the plan's digest."""
    if workload.name not in LENGTHS and workload.name not in OWN_TEXT:
        return ()
    return (*_lengths(workload), *_prompts(workload), *_turns(workload), *_fields(workload))


def without_output(found: WorkloadDescription) -> WorkloadDescription:
    """*found* without the output length, where answers are not tokens."""
    kept = tuple(text for text in found.deviations if not text.startswith(OUTPUT))
    return msgspec.structs.replace(found, osl=None, deviations=kept)


def _lengths(workload: Workload) -> list[str]:
    isl, osl = LENGTHS.get(workload.name, (None, None))
    found = []
    variants = VARIANTS if workload.name == "long-context" else (isl,)
    if workload.isl is not None and workload.isl not in variants:
        found.append(f"input lengths {workload.isl} instead of {isl}")
    if workload.osl is not None and workload.osl != osl:
        found.append(f"{OUTPUT} {workload.osl} instead of {osl or 'those of the workload'}")
    if workload.least_output:
        found.append(f"answers of fewer than {workload.least_output} tokens were raised to that")
    return found


def _prompts(workload: Workload) -> list[str]:
    found = []
    drawn = workload.name in LENGTHS and workload.name != "long-context"
    if workload.tokenizer == "none":
        found.append("no tokenizer: lengths are words, not tokens")
    elif drawn and workload.prompt_form == "words":
        found.append("prompts of random words instead of random token ids (--prompt-form text has those)")
    elif drawn and workload.prompt_form == "native":
        named = "a tokenizer.json" if "/" in workload.tokenizer else workload.tokenizer
        found.append(f"token ids of {named}'s own range instead of cl100k_base's")
    if workload.prefix_len:
        found.append(f"prefixes of {workload.prefix_len} tokens, where the workload shares none")
    if workload.image is not None:
        found.append(f"images in every prompt: {workload.image}")
    return found


def _turns(workload: Workload) -> list[str]:
    if workload.turns is None:
        return []
    return [f"conversations of several turns ({workload.turns}), where the workload's requests stand alone"]


def _fields(workload: Workload) -> list[str]:
    found = []
    if workload.temperature != 0:
        value = "not sent" if workload.temperature is None else f"{workload.temperature:g}"
        found.append(f"temperature {value} instead of 0")
    sampling = sampling_fields(extra_fields(workload.extra_body))
    if sampling:
        values = ", ".join(f"{name} {value}" for name, value in sampling.items())
        found.append(f"{values} instead of the server's own")
    return found
