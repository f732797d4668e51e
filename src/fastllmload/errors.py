"""The tree of errors: the user's, the peer's and our own branch, each with its exit code
(docs/decisions/006-exit-codes.md).
"""


class FastLLMLoadError(Exception):
    """Root. *message* is one sentence: what, where, which value, what to do."""

    exit_code = 70


class InputError(FastLLMLoadError):
    """The user's branch: an option, a file or this machine's limits must change before a run makes sense."""

    exit_code = 2


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
