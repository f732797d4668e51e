"""Fail when a hot function touches the interpreter: every line of it must score 0 in Cython's annotation.

    python tools/annotate_budget.py [ROOM/MODULE ...]

HOT names what counts as hot, per module; a name that is no longer in its source is an error too, so that a
renamed function does not slip out of the budget. Inline functions of ``.pxd`` files need no entry: they are
``noexcept nogil``, and Cython refuses Python operations there.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "ext" / "fastllmload" / "_ext"

HOT: dict[str, tuple[str, ...]] = {
    "measure/deadlines": ("judge", "keeps", "longest_gap"),
    "events/delta": ("_scan", "template_read", "template_learn", "judge", "judge_text"),
    "http/response": (
        "body_begin",
        "body_lines",
        "body_eof",
        "line_byte",
        "size_byte",
        "trailer_byte",
        "broken",
        "head_size",
    ),
    "events/ndjson": ("ndjson_reset", "ndjson_next", "ndjson_eof", "deliver"),
    "events/sse": (
        "sse_reset",
        "sse_next",
        "skip_bom",
        "resume",
        "next_line",
        "whole_of_parts",
        "line_end",
        "field",
        "skip_space",
        "data_line",
        "join",
        "own_data",
        "other_field",
        "end_event",
        "keep",
        "die",
    ),
    "measure/tokenline": ("is_timed", "timed_of", "deviation"),
}

ANNOTATED = re.compile(r'<pre class="cython line score-(\d+)"[^>]*>.*?<span class="">(\d+)</span>')


def scores(source: Path) -> dict[int, int]:
    """Python-interaction score per line number of *source*."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / (source.stem + ".c")
        command = [
            sys.executable,
            "-m",
            "cython",
            "-3",
            "--annotate",
            "--shared",
            "fastllmload._ext._shared",
            "--module-name",
            f"fastllmload._ext.{source.parent.name}.{source.stem}",
            "-I",
            str(ROOT / "ext"),
            "-o",
            str(out),
            str(source),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"Cython refuses {source.name}:\n{done.stdout}{done.stderr}")
        html = out.with_suffix(".html").read_text(encoding="utf-8")
    return {int(number): int(score) for score, number in ANNOTATED.findall(html)}


def extent(lines: list[str], function: str) -> range | None:
    """Line numbers, counted from 1, of the function's signature and body; None when it is not there."""
    head = re.compile(rf"(\s*)c?p?def\s[^=#]*?\b{re.escape(function)}\(")
    for at, line in enumerate(lines):
        begun = head.match(line)
        if begun is None:
            continue
        end = at
        while not lines[end].split("#")[0].rstrip().endswith(":"):
            end += 1
        end += 1
        while end < len(lines) and (not lines[end].strip() or indent(lines[end]) > len(begun[1])):
            end += 1
        return range(at + 1, end + 1)
    return None


def indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def breaches(source: Path, functions: tuple[str, ...]) -> list[str]:
    """One sentence per line of a hot function that scores above 0, and per hot function that is gone."""
    lines = source.read_text(encoding="utf-8").splitlines()
    by_line = scores(source)
    found = []
    for function in functions:
        span = extent(lines, function)
        if span is None:
            found.append(f"{source.name}: {function} is listed as hot but is not there; correct HOT in this tool")
            continue
        for number in span:
            score = by_line.get(number, 0)
            if score > 0:
                found.append(f"{source.name}:{number}: {function} scores {score}: {lines[number - 1].strip()}")
    return found


def main(names: list[str]) -> int:
    unknown = sorted(set(names) - set(HOT))
    if unknown:
        raise SystemExit(f"no hot functions are listed for {', '.join(unknown)}; listed: {', '.join(HOT)}")
    found = [line for name in names or HOT for line in breaches(SOURCES / f"{name}.pyx", HOT[name])]
    print("\n".join(found) or f"{sum(map(len, HOT.values()))} hot functions, no Python interaction")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
