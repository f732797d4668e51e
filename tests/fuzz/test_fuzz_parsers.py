"""The fuzz targets on a sanitizer build (address, undefined behaviour): no report, no exception."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DRIVER = Path(__file__).with_name("fuzz_drive.py")
SOURCES = ROOT / "ext" / "fastllmload" / "_ext"
TARGETS = {
    "http/response": ("head", "body"), "events/sse": ("sse",), "events/ndjson": ("ndjson",), "events/delta": ("delta",),
}  # fmt: skip
BESIDE = ("bytes/jsonscan", "events/facts", "events/tree", "http/headlike")  # instrumented too: called by those
RUNS = 12000


def runtime(name: str) -> Path | None:
    """Where gcc keeps a sanitizer's runtime; None when it is not installed."""
    try:
        said = subprocess.run(
            ["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
    except FileNotFoundError:
        return None
    return Path(said).resolve() if os.path.isabs(said) and Path(said).exists() else None


def sanitized(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The driver under both runtimes; Python's own allocator is off, its pools hide over-reads."""
    runtimes = [runtime("libasan.so"), runtime("libubsan.so")]
    environment = dict(
        os.environ,
        LD_PRELOAD=" ".join(str(path) for path in runtimes if path is not None),
        PYTHONMALLOC="malloc",
        PYTHONPATH=str(ROOT / "src"),
        ASAN_OPTIONS="detect_leaks=0:halt_on_error=1",
        UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1",
        OPENBLAS_NUM_THREADS="1",
    )
    command = [sys.executable, str(DRIVER), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the instrumented modules; the working tree's own modules stay as they are."""
    if runtime("libasan.so") is None or runtime("libubsan.so") is None:
        pytest.skip("gcc's libasan and libubsan are not installed, so the sanitizer build cannot run")
    folder = tmp_path_factory.mktemp("sanitize")
    names = [name for name in (*TARGETS, *BESIDE) if (SOURCES / f"{name}.pyx").exists()]
    environment = dict(os.environ, FLL_BUILD="sanitize", FLL_ONLY=",".join(names))
    command = [
        sys.executable,
        "setup.py",
        "-q",
        "build_ext",
        "--build-lib",
        str(folder),
        "--build-temp",
        str(folder / "temp"),
    ]
    (ROOT / "build").mkdir(exist_ok=True)
    with open(ROOT / "build" / ".lock", "w") as lock:  # tools/build generates the same C files
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False
        )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_the_sanitizer_is_awake(built: Path) -> None:
    """A defect on purpose is reported, so silence elsewhere means something."""
    done = sanitized(str(built), "--overread")
    assert done.returncode != 0 and "heap-buffer-overflow" in done.stderr, done.stderr[-2000:]


@pytest.mark.parametrize(
    ("module", "target"), [(module, target) for module, targets in TARGETS.items() for target in targets]
)
def test_damaged_input_under_sanitizers(built: Path, module: str, target: str) -> None:
    """Fixed seed and count; for a long search run the driver by hand with another seed."""
    assert (SOURCES / f"{module}.pyx").exists()
    done = sanitized(str(built), "--target", target, "--runs", str(RUNS))
    assert done.returncode == 0 and "runtime error" not in done.stderr, done.stderr[-4000:]
    assert done.stdout == f"{target}: {RUNS} runs, seed 1\n"
