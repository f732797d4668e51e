"""Time and peak memory of planning: 150,000 Synthetic-Uniform requests, 48 million token ids, in each form of prompt.

    PYTHONPATH=src python bench/plan_150000.py [--requests 150000]

Each form is planned by a process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FORMS = {"words": "openai-chat", "text": "openai-chat", "ids": "openai-completions"}
MOST_S, MOST_MB = 60.0, 1500.0


def plan_one(form: str, requests: int) -> None:
    """Print what the plan of one form took."""
    began = time.perf_counter()
    from fastllmload.documents.plan import ExactPrompts
    from fastllmload.documents.write import plain
    from fastllmload.endpoint import ENDPOINTS
    from fastllmload.plan.build import build_plan
    from fastllmload.settings import Load, RunSettings, Workload

    settings = RunSettings(load=Load(rate=500.0, num_requests=requests), workload=Workload(prompt_form=form))
    with tempfile.TemporaryDirectory() as folder:
        plan = build_plan(settings, phase="measure", endpoint=ENDPOINTS[FORMS[form]], model="m", out_dir=Path(folder))
        usage = resource.getrusage(resource.RUSAGE_SELF)
        figures = {
            "form": form,
            "requests": plan.requests,
            "token_ids": int(plan.input_tokens.sum()),
            "body_mb": round(len(plan.bodies) / 1e6, 1),
            "exact": plain(plan.description.workload.exact or ExactPrompts()),
            "seconds": round(time.perf_counter() - began, 2),
            "cpu_s": round(usage.ru_utime + usage.ru_stime, 2),
            "peak_mb": round(usage.ru_maxrss / 1024, 1),
        }
    print(json.dumps(figures))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=150_000)
    parser.add_argument("--form", choices=FORMS)
    asked = parser.parse_args()
    if asked.form is not None:
        plan_one(asked.form, asked.requests)
        return 0
    found = []
    for form in FORMS:
        command = [sys.executable, __file__, "--form", form, "--requests", str(asked.requests)]
        line = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        print(line, end="")
        found.append(json.loads(line))
    met = all(one["seconds"] <= MOST_S and one["peak_mb"] <= MOST_MB for one in found)
    print(json.dumps({"bench": "plan_150000", "met": met, "most_s": MOST_S, "most_mb": MOST_MB}))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
