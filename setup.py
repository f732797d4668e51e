"""Table of compiled modules and build modes.

FLL_BUILD picks the mode (release, strict, debug, sanitize, trace); FLL_ONLY=room/a,room/b limits an in-place build to some modules.
"""

import os
import sys
from glob import glob

from setuptools import Extension, setup

if not sys.platform.startswith("linux"):
    raise SystemExit("fastllmload builds on Linux only: uvloop and the epoll/timerfd reactor need it")

MODES = {
    "release": (["-O2", "-g0", "-Wall", "-Wextra"], []),
    "strict": (["-O2", "-Wall", "-Wextra", "-Werror"], []),
    "debug": (["-O0", "-g"], []),
    "sanitize": (
        ["-O0", "-g1", "-fsanitize=address,undefined", "-fno-omit-frame-pointer"],
        ["-fsanitize=address,undefined"],
    ),
    "trace": (["-O0", "-g0", "-DCYTHON_TRACE_NOGIL=1"], []),  # reports each line to coverage
}
# -Wno lines silence what Cython itself generates, not what we write.
GENERATED = ["-Wno-unused-parameter", "-Wno-missing-field-initializers", "-Wno-cast-function-type"]
CORES = len(os.sched_getaffinity(0))
SHARED = "fastllmload._ext._shared"  # what Cython would generate into each module (memory views, functions), compiled once
SOURCES = sorted(glob("ext/fastllmload/_ext/*/*.p[yx][xd]"))
MODULES = [path.removesuffix(".pyx") for path in SOURCES if path.endswith(".pyx")]


def extensions() -> list[Extension]:
    mode = os.environ.get("FLL_BUILD", "release")
    if mode not in MODES:
        raise SystemExit(f"FLL_BUILD={mode!r} is not a build mode; choose one of {', '.join(MODES)}")
    only = [name for name in os.environ.get("FLL_ONLY", "").split(",") if name]
    compile_args, link_args = MODES[mode]
    given = {"extra_compile_args": compile_args + GENERATED, "extra_link_args": link_args}
    modules = [
        Extension(
            path.removeprefix("ext/").replace("/", "."),
            [f"{path}.pyx"],
            depends=SOURCES,
            **given,
        )
        for path in MODULES
        if not only or path.removeprefix("ext/fastllmload/_ext/") in only
    ]
    return modules if only else [*modules, Extension(SHARED, ["ext/fastllmload/_ext/_shared.c"], **given)]


def compiled() -> list[Extension]:
    from Cython.Build import cythonize
    from Cython.Compiler import Options

    Options.warning_errors = os.environ.get("FLL_BUILD") == "strict"
    traced = os.environ.get("FLL_BUILD") == "trace"
    return cythonize(
        extensions(),
        include_path=["ext"],
        build_dir=None if traced else "build/cython",  # Cython's plugin of coverage wants the C file beside its source
        shared_utility_qualified_name=SHARED,
        compiler_directives={"language_level": "3str", "linetrace": traced},
        nthreads=CORES if sys.version_info < (3, 14) else 0,  # the pool needs fork, which 3.14 no longer starts with
    )


setup(ext_modules=compiled(), options={"build_ext": {"parallel": CORES}})
