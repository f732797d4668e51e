"""The drawn tree of errors: the user's, the peer's and our own branch, each with its exit code (contract, "Exit
codes").
"""


class FastLLMLoadError(Exception):
    """Root. *message* is one sentence: what, where, which value, what to do."""

    exit_code = 70


class InputError(FastLLMLoadError):
    """The user's branch: an option, a file or this machine's limits must change before a run makes sense."""

    exit_code = 2


class HostLimitError(InputError):
    """This machine cannot carry the run as asked: open files, ports, disk, memory."""


class RunFolderError(InputError):
    """A run folder or plan that cannot be read: truncated, of another schema version, or not one at all."""


class TargetError(FastLLMLoadError):
    """The peer's branch: the target could not be reached, or refused everything."""

    exit_code = 3


class Interrupted(FastLLMLoadError):
    """The user stopped the run; what was measured is written and marked."""

    exit_code = 4


class InternalError(FastLLMLoadError):
    """Our own branch: a bug, shown with its trace."""
