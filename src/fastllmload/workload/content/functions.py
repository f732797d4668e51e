"""Generated functions in Python, JavaScript and TypeScript, as a substitute for real code."""

from __future__ import annotations

import random
from collections.abc import Callable

from fastllmload.workload.content.prose import NOUNS, pick, split_words

ACTIONS = split_words(
    "load save parse merge split filter sort count find build check fetch group index reduce render update verify"
)
LANGUAGES = ("python", "javascript", "typescript")
SUFFIX = {"python": "py", "javascript": "js", "typescript": "ts"}


class FunctionGenerator:
    """Functions drawn from *seed*, without end."""

    def __init__(self, seed: str) -> None:
        self._stream = random.Random(seed)
        self._writers: dict[str, Callable[[], str]] = {
            "python": self._python,
            "javascript": lambda: self._script(typed=False),
            "typescript": lambda: self._script(typed=True),
        }

    def language(self) -> str:
        return pick(LANGUAGES, self._stream)

    def repository(self, language: str, size: int) -> str:
        """A file of at least *size* characters: its path, imports and functions."""
        module = f"{self._noun()}/{self._noun()}_{self._noun()}.{SUFFIX[language]}"
        parts = [self._head(language, module)]
        while sum(map(len, parts)) < size:
            parts.append(self.function(language))
        return "\n".join(parts)

    def function(self, language: str) -> str:
        return self._writers[language]()

    def functions(self, language: str, size: int) -> str:
        parts = [self.function(language)]
        while sum(map(len, parts)) < size:
            parts.append(self.function(language))
        return "\n".join(parts)

    def _head(self, language: str, path: str) -> str:
        a, b, c, d = (self._noun() for _ in range(4))
        if language == "python":
            return (
                f"# {path}\nfrom __future__ import annotations\n\nimport json\nfrom dataclasses import dataclass\n\n"
                f"from {a}.{b} import {c.title()}{d.title()}\n\n{a.upper()}_LIMIT = {self._number()}\n\n\n"
                f"@dataclass\nclass {b.title()}{c.title()}:\n    {a}: int\n    {d}: str\n\n"
            )
        return (
            f'// {path}\nimport {{ {c}{d.title()} }} from "./{a}/{b}";\n\n'
            f"const {a.upper()}_LIMIT = {self._number()};\nconst {b}{c.title()} = new Map();\n\n"
        )

    def _python(self) -> str:
        verb, a, b, c = self._verb(), self._noun(), self._noun(), self._noun()
        limit, step = self._number(), self._number()
        return (
            f"def {verb}_{a}_{b}({a}s: list[int], {c}: int = {limit}) -> dict[str, int]:\n"
            f'    """{verb.title()} every {a} whose {b} is below {c}."""\n'
            f"    {b}s = {{}}\n"
            f"    for number, {a} in enumerate({a}s):\n"
            f"        if {a} % {step} == 0 and {a} < {c}:\n"
            f'            {b}s[f"{a}-{{number}}"] = {a} * {limit} + {c}\n'
            f"        elif {a} > {limit + step}:\n"
            f'            raise ValueError(f"{a} {{{a}}} is above the {c}")\n'
            f"    return {b}s\n\n"
        )

    def _script(self, typed: bool) -> str:
        verb, a, b, c = self._verb(), self._noun(), self._noun(), self._noun()
        limit, step = self._number(), self._number()
        array, number, result = (": number[]", ": number", ": Record<string, number>") if typed else ("", "", "")
        return (
            f"export function {verb}{a.title()}{b.title()}({a}s{array}, {c}{number} = {limit}){result} {{\n"
            f"  // {verb.title()} every {a} whose {b} is below {c}.\n"
            f"  const {b}s{result} = {{}};\n"
            f"  {a}s.forEach(({a}, index) => {{\n"
            f"    if ({a} % {step} === 0 && {a} < {c}) {{\n"
            f"      {b}s[`{a}-${{index}}`] = {a} * {limit} + {c};\n"
            f"    }} else if ({a} > {limit + step}) {{\n"
            f"      throw new RangeError(`{a} ${{{a}}} is above the {c}`);\n"
            f"    }}\n  }});\n  return {b}s;\n}}\n\n"
        )

    def _verb(self) -> str:
        return pick(ACTIONS, self._stream)

    def _noun(self) -> str:
        return pick(NOUNS, self._stream)

    def _number(self) -> int:
        return 2 + int(self._stream.random() * 9998)
