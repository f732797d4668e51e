"""CPU of the smallest run (its simulated engine, worker, row writer and telemetry included) over that of a Python that
imports what every command needs (with one thread of numpy's library, as a run has): what a run costs apart from its load.
Target: 18.
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from pair import arguments, finish

RUN = "--rate 10 --duration 1 --warmup 1 --osl 2 --isl 16 --workers 1 --ui none"
IMPORTS = "import numpy, msgspec, click"
MOST = 18.0


def cpu_s(*words: str, **environment: str) -> float:
    """User and system time of a Python with *words* and of all processes that it waited for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL, env={**os.environ, **environment})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    asked = arguments(__doc__, runs=7)
    runs, imports = [], []
    for _ in range(asked.runs):
        with tempfile.TemporaryDirectory() as scratch:
            runs.append(cpu_s("-m", "fastllmload", *RUN.split(), "-o", str(Path(scratch, "run"))))
        imports.append(cpu_s("-c", IMPORTS, OPENBLAS_NUM_THREADS="1"))
        print(f"a run {runs[-1]:.2f} s, imports {imports[-1]:.3f} s", flush=True)
    run, imported = min(runs), min(imports)  # other work on the host only adds
    ratio = run / imported
    facts = {"run_s": run, "run_p50_s": statistics.median(runs), "imports_s": imported, "ratio": ratio}
    finish("startup", facts, ratio <= MOST)


if __name__ == "__main__":
    main()
