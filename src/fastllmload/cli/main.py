"""The command `fastllmload`: finds the command, turns every way to end into a sentence and an exit code
(contract).
"""

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
from fastllmload.cli.group import LazyCommand, LazyGroup
from fastllmload.cli.streams import be_patient, open_closed, said_in_vain
from fastllmload.errors import FastLLMLoadError
from fastllmload.redact import Redactor
from fastllmload.report.terminal.outlet import on_screen

WRONG_INPUT, INTERRUPTED, BUG = 2, 4, 70
NO_FILES = (errno.EMFILE, errno.ENFILE)
NO_NAMES = (errno.ENAMETOOLONG, errno.ELOOP)
READERS = ("report", "export", "compare", "compliance")  # commands that read folders and run nothing
OF_CONTENT = (  # what a folder's content can raise; a NameError, an assertion or an import that fails is a bug of ours
    ArithmeticError,
    AttributeError,
    BufferError,
    EOFError,
    LookupError,
    MemoryError,
    RecursionError,
    SyntaxError,
    TypeError,
    ValueError,
)
SHOWN = 60  # characters of a name that is too long
LONGEST_SENTENCE = 2000  # characters that are shown of one

fastllmload = LazyGroup(
    "fastllmload",
    {
        "run": LazyCommand("fastllmload.cli.commands.run:run", "one run (the default)"),
        "quick": LazyCommand("fastllmload.cli.commands.quick:quick", "asiai's short benchmark, one request at a time"),
        "simulate": LazyCommand("fastllmload.simulator.__main__:main", "serve the simulated engine"),
        "plan": LazyCommand("fastllmload.cli.commands.plan:plan", "build, describe, save or verify a plan"),
        "procedure": LazyCommand(
            "fastllmload.cli.commands.procedure:procedure", "one of the ten tests of the IETF draft"
        ),
        "search": LazyCommand(
            "fastllmload.cli.commands.search:search", "the highest rate or concurrency at which objectives hold"
        ),
        "sweep": LazyCommand("fastllmload.cli.commands.sweep:sweep", "one run for each combination of options"),
        "report": LazyCommand("fastllmload.cli.commands.run:report", "show a run again"),
        "compliance": LazyCommand(
            "fastllmload.cli.commands.compliance:compliance", "judge a run or procedure by the IETF draft"
        ),
        "compare": LazyCommand("fastllmload.cli.commands.compare:compare", "compare runs, with tests and gates"),
        "export": LazyCommand("fastllmload.cli.commands.run:export", "write a run's requests as JSONL or CSV"),
        "calibrate": LazyCommand("fastllmload.cli.commands.calibrate:calibrate", "measure this host's ceiling"),
        "doctor": LazyCommand("fastllmload.cli.commands.run:doctor", "check this host and say what to change"),
    },
    default="run",
    help="Load generator and measuring instrument for LLM serving.\n\n"
    "Without a command, one run: fastllmload --rate 500 --duration 30",
)
fastllmload.params.append(
    click.Option(
        ["--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=lambda context, _, asked: _show_version(context, asked),
        help="Show the version and exit.",
    )
)


def _show_version(context: click.Context, asked: bool) -> None:
    if asked:
        click.echo(f"fastllmload {__version__}")
        context.exit()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command in *arguments* (by default those of the process) and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if arguments is not None:
        return _ended(given)
    open_closed()
    be_patient()
    code = _ended(given)
    unsaid = said_in_vain()
    return code if unsaid is None else _say(Redactor([]), unsaid, code or WRONG_INPUT)


def _ended(given: list[str]) -> int:
    """The exit code, after a sentence for whatever went wrong."""
    secrets = argv.secrets_of(given)
    redact = Redactor([*secrets, *_environment_secrets()])
    if secrets:
        argv.hide(secrets)
    _redact_stray_tracebacks(redact)
    try:
        return _invoke(given, redact)
    except click.exceptions.Exit as ending:
        return ending.exit_code
    except click.ClickException as error:
        return _say(redact, _usage(error), WRONG_INPUT)
    except FastLLMLoadError as error:
        if error.exit_code == BUG:
            return _bug(redact, error)
        return _say(redact, str(error), error.exit_code)
    except OSError as error:
        sentence = _of_this_host(error)
        return _bug(redact, error) if sentence is None else _say(redact, sentence, WRONG_INPUT)
    except (KeyboardInterrupt, click.Abort):
        return _say(redact, "interrupted", INTERRUPTED)
    except Exception as error:  # noqa: BLE001 - whatever it is, it ends as a sentence and exit code 70
        folder = _folder_read(given) if isinstance(error, OF_CONTENT) else None
        return _bug(redact, error) if folder is None else _say(redact, _unreadable(folder, error), WRONG_INPUT)


def _folder_read(given: Sequence[str]) -> str | None:
    """The first folder that a command which only reads folders was given; None for every other command."""
    if not given or given[0] not in READERS:
        return None
    return next((each for each in given[1:] if not each.startswith("-") and os.path.isdir(each)), None)


def _unreadable(folder: str, error: Exception) -> str:
    """What a folder holds is what this program wrote, or was changed: a text where a number belongs can meet any line."""
    *_, last = traceback.extract_tb(error.__traceback__)
    what = f"{type(error).__name__}: {error}".splitlines()[0][:200].rstrip()
    return (
        f"{folder} cannot be shown: one of its files is not as fastllmload writes it ({what}, at "
        f"{os.path.basename(last.filename)}:{last.lineno}); if nobody changed it, please report this with the folder"
    )


def _of_this_host(error: OSError) -> str | None:
    """The sentence for what any command may meet where files are opened; None: it should have been foreseen."""
    why = str(error.strerror).lower()
    if error.errno in NO_FILES:
        return f"{why}: raise the limit with 'ulimit -n 4096' and start again"
    if error.errno in NO_NAMES and error.filename is not None:
        name = os.fsdecode(error.filename)
        shown = name if len(name) <= SHOWN else f"{name[:SHOWN]}..."
        return f"{why}: {shown}; give a shorter one, or mend the links in it"
    return None


def _environment_secrets() -> list[str]:
    return [found for name in ("OPENAI_API_KEY",) if (found := os.environ.get(name, "")) != ""]


def _invoke(arguments: list[str], redact: Redactor) -> int:
    """The command's own exit code; click's `standalone_mode` would end the process in ways of its own."""
    with fastllmload.make_context("fastllmload", arguments, obj=redact) as context:
        code = fastllmload.invoke(context)
    return 0 if code is None else int(code)


def _usage(error: click.ClickException) -> str:
    """click's own sentence, and where to look when it has no proposal."""
    sentence = error.format_message().rstrip(".")
    if "id you mean" in sentence or "; " in sentence:
        return sentence
    context = getattr(error, "ctx", None)  # the parser's own complaints have none
    return f"{sentence}; see {'fastllmload' if context is None else context.command_path} --help"


def _say(redact: Redactor, sentence: str, code: int) -> int:
    print(on_screen(shortened(redact(f"fastllmload: {sentence}"))), file=sys.stderr)
    return code


def shortened(sentence: str) -> str:
    """*sentence* without the middle where a value or a line of a file in it makes it longer than a screen."""
    if len(sentence) <= LONGEST_SENTENCE:
        return sentence
    return f"{sentence[: LONGEST_SENTENCE // 2]} … {sentence[-LONGEST_SENTENCE // 2 :]}"


def _bug(redact: Redactor, error: BaseException) -> int:
    trace = "".join(traceback.format_exception(error))
    sys.stderr.write(redact(trace))
    what = f"{type(error).__name__}: {error}".splitlines()[0].rstrip()
    return _say(
        redact,
        f"this is a bug in fastllmload {__version__}, please report it with the trace above: {what}",
        BUG,
    )


def _redact_stray_tracebacks(redact: Redactor) -> None:
    """Also what no `except` sees, in threads and destructors, must not show a key."""

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
