"""The command `fastllmload`: runs a subcommand and turns every outcome into a message and an exit code."""

from __future__ import annotations

import errno
import os
import sys
import threading
import traceback
from collections.abc import Sequence
from types import TracebackType

import click

from fastllmload import __version__
from fastllmload.cli import argv
from fastllmload.cli.compat.meanings import unknown_options
from fastllmload.cli.group import LazyCommand, LazyGroup
from fastllmload.cli.streams import install_tolerant_streams, output_failure, reopen_closed_streams
from fastllmload.errors import FastLLMLoadError, coded
from fastllmload.redact import Redactor
from fastllmload.report.terminal.outlet import on_screen
from fastllmload.settings import KEY_VARIABLES

WRONG_INPUT, INTERRUPTED, BUG = 2, 4, 70
NO_FILES = (errno.EMFILE, errno.ENFILE)
NO_NAMES = (errno.ENAMETOOLONG, errno.ELOOP)
READERS = ("report", "export", "compare", "compliance")  # commands that read folders and run nothing
CONTENT_ERRORS = (  # what a folder's content can raise; a NameError, an AssertionError or an ImportError is a bug
    ArithmeticError, AttributeError, BufferError, EOFError, LookupError, MemoryError, RecursionError, SyntaxError,
    TypeError, ValueError,
)  # fmt: skip
NAME_CHARACTERS = 60  # printed of a file name that is too long
MESSAGE_CHARACTERS = 2000  # printed of a message that is too long

fastllmload = LazyGroup(
    "fastllmload",
    {
        "run": LazyCommand("fastllmload.cli.commands.run:run", "run once (the default)"),
        "quick": LazyCommand(
            "fastllmload.cli.commands.quick:quick", "run asiai's short benchmark, one request at a time"
        ),
        "simulate": LazyCommand("fastllmload.simulator.__main__:main", "serve the simulated engine"),
        "plan": LazyCommand("fastllmload.cli.commands.plan:plan", "build, describe, save or verify a plan"),
        "procedure": LazyCommand(
            "fastllmload.cli.commands.procedure:procedure", "run one of the ten tests of the IETF draft"
        ),
        "search": LazyCommand(
            "fastllmload.cli.commands.search:search", "find the highest rate or concurrency at which objectives hold"
        ),
        "sweep": LazyCommand("fastllmload.cli.commands.sweep:sweep", "run each combination of options"),
        "overhead": LazyCommand("fastllmload.cli.commands.overhead:overhead", "measure what a gateway adds"),
        "report": LazyCommand(
            "fastllmload.cli.commands.report:report", "report again on a run, procedure, search or sweep"
        ),
        "collect": LazyCommand(
            "fastllmload.cli.commands.collect:collect", "copy the files that hosts of a run have kept"
        ),
        "compliance": LazyCommand(
            "fastllmload.cli.commands.compliance:compliance", "judge a run or procedure by the IETF draft"
        ),
        "compare": LazyCommand("fastllmload.cli.commands.compare:compare", "compare runs, with tests and gates"),
        "export": LazyCommand(
            "fastllmload.cli.commands.export:export",
            "write a run's rows as JSON lines, CSV, Parquet or interval logs, or vLLM's result file",
        ),
        "compat": LazyCommand(
            "fastllmload.cli.commands.compat:compat", "run another tool's command line (vllm bench serve, aiperf ...)"
        ),
        "calibrate": LazyCommand(
            "fastllmload.cli.commands.run:calibrate", "measure how much load this host can generate"
        ),
        "explain": LazyCommand("fastllmload.cli.commands.explain:explain", "explain a code at the end of a message"),
        "doctor": LazyCommand("fastllmload.cli.commands.doctor:doctor", "check this host and say what to change"),
    },
    default="run",
    help="Load generator and measuring instrument for LLM serving.\n\n"
    "Without a command, one run: fastllmload --rate 500 --duration 30",
)
click.version_option(__version__, message="fastllmload %(version)s", help="Show the version and exit.")(fastllmload)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command in *arguments* (by default those of the process) and return its exit code."""
    if arguments is not None:
        return _run(list(arguments))
    reopen_closed_streams()
    install_tolerant_streams()
    code = _run(sys.argv[1:])
    failure = output_failure()
    return code if failure is None else _fail(Redactor([]), failure, code or WRONG_INPUT)


def _run(arguments: list[str]) -> int:
    """Run the command; print a message for whatever went wrong and return the exit code."""
    secrets = argv.secrets_of(arguments)
    redact = Redactor([*secrets, *(os.environ.get(name, "") for name in KEY_VARIABLES)])
    if secrets:
        argv.hide(secrets)
    _redact_stray_tracebacks(redact)
    try:
        return _invoke(arguments, redact)
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.NoSuchOption as error:
        return _fail(redact, coded("option-unknown", unknown_options(error, arguments)), WRONG_INPUT)
    except click.ClickException as error:
        return _fail(redact, coded(_usage_code(error), _usage(error)), WRONG_INPUT)
    except FastLLMLoadError as error:
        if error.exit_code == BUG:
            return _bug(redact, error)
        return _fail(redact, str(error), error.exit_code)
    except OSError as error:
        message = _file_system_message(error)
        return _bug(redact, error) if message is None else _fail(redact, message, WRONG_INPUT)
    except (KeyboardInterrupt, click.Abort):
        return _fail(redact, coded("interrupted", "interrupted"), INTERRUPTED)
    except Exception as error:  # noqa: BLE001 - any error ends with a message and exit code 70
        folder = _folder_read(arguments) if isinstance(error, CONTENT_ERRORS) else None
        return _bug(redact, error) if folder is None else _fail(redact, _unreadable(folder, error), WRONG_INPUT)


def _folder_read(arguments: Sequence[str]) -> str | None:
    """The first folder in the arguments of a command that only reads folders; None for every other command."""
    if not arguments or arguments[0] not in READERS:
        return None
    return next((each for each in arguments[1:] if not each.startswith("-") and os.path.isdir(each)), None)


def _unreadable(folder: str, error: Exception) -> str:
    """Message for a folder whose files were changed after the run: any line of code can fail on a wrong type."""
    *_, last = traceback.extract_tb(error.__traceback__)
    what = f"{type(error).__name__}: {error}".splitlines()[0][:200].rstrip()
    return coded(
        "run-file-damaged",
        f"{folder} cannot be shown: one of its files is not as fastllmload writes it ({what}, at "
        f"{os.path.basename(last.filename)}:{last.lineno}); if it was not changed, please report this with the folder",
    )


def _file_system_message(error: OSError) -> str | None:
    """Message for a file-system error that any command can hit, or None if it is unexpected and therefore a bug."""
    why = str(error.strerror).lower()
    if error.errno in NO_FILES:
        return coded("too-many-open-files", f"{why}: raise the limit with 'ulimit -n 4096' and start again")
    if error.errno in NO_NAMES and error.filename is not None:
        name = os.fsdecode(error.filename)
        short = name if len(name) <= NAME_CHARACTERS else f"{name[:NAME_CHARACTERS]}..."
        return coded("file-name-unusable", f"{why}: {short}; give a shorter one, or repair the links in it")
    return None


def _invoke(arguments: list[str], redact: Redactor) -> int:
    """The command's exit code. Not in click's `standalone_mode`, which would end the process itself."""
    with fastllmload.make_context("fastllmload", arguments, obj=redact) as context:
        code = fastllmload.invoke(context)
    return 0 if code is None else int(code)


def _usage(error: click.ClickException) -> str:
    """click's own message, with a reference to --help when it proposes nothing."""
    sentence = error.format_message().rstrip(".")
    if "id you mean" in sentence or "; " in sentence:
        return sentence
    context = getattr(error, "ctx", None)  # errors of the parser itself have none
    return f"{sentence}; see {'fastllmload' if context is None else context.command_path} --help"


def _usage_code(error: click.ClickException) -> str:
    wrong_value = isinstance(error, click.BadParameter) and not isinstance(error, click.MissingParameter)
    return "value-invalid" if wrong_value else "usage"


def _fail(redact: Redactor, sentence: str, code: int) -> int:
    print(on_screen(shortened(redact(f"fastllmload: {sentence}"))), file=sys.stderr)
    return code


def shortened(sentence: str) -> str:
    """*sentence* without its middle where a quoted value or line makes it longer than a screen."""
    if len(sentence) <= MESSAGE_CHARACTERS:
        return sentence
    return f"{sentence[: MESSAGE_CHARACTERS // 2]} … {sentence[-MESSAGE_CHARACTERS // 2 :]}"


def _bug(redact: Redactor, error: BaseException) -> int:
    trace = "".join(traceback.format_exception(error))
    sys.stderr.write(redact(trace))
    what = f"{type(error).__name__}: {error}".splitlines()[0].rstrip()
    sentence = f"this is a bug in fastllmload {__version__}, please report it with the trace above: {what}"
    return _fail(redact, sentence if isinstance(error, FastLLMLoadError) else coded("internal-error", sentence), BUG)


def _redact_stray_tracebacks(redact: Redactor) -> None:
    """Redact tracebacks that no `except` sees, those of threads and destructors: they must not contain a key."""

    def show(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
        sys.stderr.write(redact("".join(traceback.format_exception(kind, error, trace))))

    def in_thread(hook: threading.ExceptHookArgs) -> None:
        show(hook.exc_type, hook.exc_value, hook.exc_traceback)

    def unraisable(hook: sys.UnraisableHookArgs) -> None:
        sys.stderr.write(redact(f"{hook.err_msg or 'Exception ignored in'}: {hook.object!r}\n"))
        show(hook.exc_type, hook.exc_value, hook.exc_traceback)

    sys.excepthook = show
    threading.excepthook = in_thread
    sys.unraisablehook = unraisable


if __name__ == "__main__":
    sys.exit(main())
