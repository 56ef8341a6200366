"""The command line: `grete`. `main` declares the commands; a module below `commands` does the work of each."""

import io
import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from grete.cli.output.patient_output import settle, standard_error
from grete.core.changelog.damage import named
from grete.errors import ExitCode, FrameworkError, exit_code
from grete.protocol.errors import DecodeError
from grete.state.read.shown import printable
from grete.worker.logs.open_files import out_of, raise_limit


def command_line() -> None:
    """Run the command that the arguments name."""
    if not __debug__:  # invariants are assertions: without them, a broken one would be written to the log
        print("grete: do not run it under python -O or PYTHONOPTIMIZE: its checks would be off", file=sys.stderr)
        sys.exit(ExitCode.USAGE)
    _fill_standard_files()
    raise_limit()  # of this process and those that it starts
    if isinstance(sys.stdout, io.TextIOWrapper):  # in a pipe, too: a row that is followed comes at once
        sys.stdout.reconfigure(line_buffering=True)
    from grete.cli.main import app

    report_errors(app)


def _fill_standard_files() -> None:
    """Open /dev/null where standard input, output or error was closed.

    The next file would get its number otherwise, one of the state's perhaps, and a library in C prints into it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # it is the lowest free number: this one


def report_errors(app: Callable[[], object]) -> None:
    """Run a command line. An error of ours becomes one line on standard error and an exit code by its kind."""
    told = logging.StreamHandler(standard_error())
    told.setFormatter(logging.Formatter("grete: %(message)s"))
    logging.getLogger("grete.definition").handlers = [told]
    logging.getLogger("grete").addHandler(logging.NullHandler())  # a worker logs; for people, the error says it all
    try:
        app()
    except (FrameworkError, DecodeError) as raised:
        error = named(raised)
        print(printable(f"grete: {error}"), file=standard_error())
        sys.exit(exit_code(error))
    except OSError as error:
        _leave_out_the_rest()
        print(printable(f"grete: {refused_by_system(error)}"), file=standard_error())
        sys.exit(ExitCode.USAGE if isinstance(error, PermissionError) else ExitCode.FAILED)
    finally:
        settle()


def _leave_out_the_rest() -> None:
    """Drop what standard output does not take: the interpreter would try again at its end, and exit with 120."""
    try:
        print(end="", flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def refused_by_system(error: OSError) -> str:
    """Return the refusal of the operating system, with the remedy, in a line. Raises the error if it names nothing."""
    where, why = error.filename, error.strerror or str(error)
    if isinstance(error, PermissionError) and where is not None:
        return (
            f"{where}: {why}: this user ({os.geteuid()}) may not use it; {owner(Path(os.fsdecode(where)))}: run the "
            "command as that user, or choose another --directory"
        )
    if (text := out_of(error)) is not None:
        return text
    if where is None:
        raise error
    return f"{where}: {why}: check the path, and start again"


def owner(path: Path) -> str:
    """Return whose a path is, or the first folder above it that can be seen."""
    for each in (path.absolute(), *path.absolute().parents):
        with suppress(OSError):
            return f"{each} belongs to user {each.stat().st_uid}"
    return "its owner is not known"
