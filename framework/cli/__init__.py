"""The command line: `grete`. `main` declares the commands; a module below `commands` does the work of each."""

import io
import logging
import sys
from collections.abc import Callable

from framework.cli.patient_output import settle, standard_error
from framework.core.damage import named
from framework.errors import ExitCode, FrameworkError, exit_code
from framework.worker.open_files import raise_limit
from protocol.errors import DecodeError


def command_line() -> None:
    """Run the command that the arguments name."""
    if not __debug__:  # invariants are assertions: without them, a broken one would be written to the log
        print("grete: do not run it under python -O or PYTHONOPTIMIZE: its checks would be off", file=sys.stderr)
        sys.exit(ExitCode.USAGE)
    raise_limit()  # of this process and those that it starts
    if isinstance(sys.stdout, io.TextIOWrapper):  # in a pipe, too: a row that is followed comes at once
        sys.stdout.reconfigure(line_buffering=True)
    from framework.cli.main import app

    report_errors(app)


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
        print(f"grete: {error}", file=standard_error())
        sys.exit(exit_code(error))
    finally:
        settle()
