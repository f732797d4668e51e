"""The tree of errors: the user's, the peer's and our own branch, each with its exit code (docs/running.md).

Every error has a code, which names its condition: `codes.toml` lists the codes with cause and remedy, and so does
docs/codes.md. A code does not change when a sentence does.
"""

from __future__ import annotations

from collections.abc import Sequence


def coded(code: str, sentence: str) -> str:
    """*sentence* as it is shown: with its code at the end."""
    return f"{sentence} [{code}]"


class FastLLMLoadError(Exception):
    """Root. *message* is one sentence: what, where, which value, what to do. `str()` adds the code."""

    exit_code = 70

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return coded(self.code, self.message)


class InputError(FastLLMLoadError):
    """The user's branch: an option, a file or this machine's limits must change before a run makes sense."""

    exit_code = 2

    @staticmethod
    def of_all(problems: Sequence[InputError]) -> InputError:
        """The only one of *problems*, or one error with each of them on a line."""
        if len(problems) == 1:
            return problems[0]
        return InputError("several-problems", "\n".join(map(str, problems)))


class HostLimitError(InputError):
    """This host lacks open files, ports, disk space or memory for the run."""


class RunFolderError(InputError):
    """A run folder or plan cannot be read: it is truncated, has another schema version, or is something else."""


class TargetError(FastLLMLoadError):
    """The peer's branch: the target could not be reached, or refused everything."""

    exit_code = 3


class Interrupted(FastLLMLoadError):
    """The user stopped the run; what was measured is saved and marked as interrupted."""

    exit_code = 4


class InternalError(FastLLMLoadError):
    """Our own branch: a bug, printed with its traceback."""


class InvalidValue(ValueError):
    """A text that is not a value. *problem* completes a sentence that begins with the option and the text."""

    def __init__(self, code: str, problem: str) -> None:
        super().__init__(code, problem)
        self.code = code
        self.problem = problem

    def __str__(self) -> str:
        return self.problem


def value_code(problem: ValueError) -> str:
    """The code of *problem*; that of any invalid value where the text was refused by another library."""
    return problem.code if isinstance(problem, InvalidValue) else "value-invalid"
