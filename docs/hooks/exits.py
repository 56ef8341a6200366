"""Errors and exit codes, from framework/errors.py."""

import grete.errors
from docs.hooks.markdown import code, summary, table
from grete.errors import FIELDS, ExitCode, FrameworkError, exit_code


def part() -> str:
    """Return the table of exit codes and that of the errors."""
    codes = [(str(each.value), code(each.name), each.meaning, each.advice) for each in ExitCode]
    rows = [
        (code(kind.__name__), _base(kind), summary(kind.__doc__), _code(kind))
        for kind in vars(grete.errors).values()
        if isinstance(kind, type) and issubclass(kind, FrameworkError)
    ]
    fields = ", ".join(map(code, FIELDS))
    return "\n\n".join(
        [
            "## Exit codes",
            table(("code", "name", "why the process ended", "what a service manager should do"), codes),
            "## Errors",
            table(("error", "is a", "what it means, and what to do", "exit code"), rows),
            "## Fields",
            f"An error has these fields where they are known, and so has its line in the log: {fields}.",
        ]
    )


def _base(kind: type[FrameworkError]) -> str:
    """Return the class above, nothing for the root."""
    return "" if kind is FrameworkError else code(kind.__mro__[1].__name__)


def _code(kind: type[FrameworkError]) -> str:
    """Return the exit code of a command, and that of a worker if it is another one."""
    error = kind.__new__(kind)  # its fields do not matter here
    command, worker = exit_code(error), exit_code(error, worker=True)
    return str(command.value) if command == worker else f"{command.value}; of a worker {worker.value}"
