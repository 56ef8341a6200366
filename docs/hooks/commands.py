"""The command line, from the declarations in framework/cli/commands: each command with its arguments and options."""

from collections.abc import Iterator
from typing import Any

import typer.main

from docs.hooks.markdown import code, one_line, table
from grete.cli.main import app
from grete.errors import ExitCode


def part() -> str:
    """Return a section for each command. Raises ValueError for a command or an option that has no help."""
    root: Any = typer.main.get_command(app)  # click's, or typer's own copy of it: that depends on typer's release
    codes = ", ".join(f"{each.value} {each.name.lower()}" for each in ExitCode)
    intro = f"{one_line(root.help)} Every command ends with one of the [exit codes](errors.md#exit-codes): {codes}."
    return "\n\n".join([intro, *(_section(name, command) for name, command in commands(root, "grete"))])


def commands(group: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield (whole name, command) for each command of a group and its groups, in the order of the declarations."""
    for each, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{name} {each}")
        elif not command.hidden:
            yield f"{name} {each}", command


def _section(name: str, command: Any) -> str:
    """Return heading, usage, help and parameters of a command."""
    if not command.help:
        raise ValueError(f"{name} has no docstring")
    context = command.make_context(name, [], resilient_parsing=True)
    usage = command.get_usage(context).partition(": ")[2]
    records = [record for each in command.params if (record := each.get_help_record(context)) and each.name != "help"]
    silent = [written for written, said in records if not said]
    if silent:
        raise ValueError(f"{name}: no help for {', '.join(silent)}")
    rows = [(code(written.replace("\\", "")), one_line(said)) for written, said in records]
    lines = [f"## {name}", one_line(command.help), f"    {one_line(usage)}"]
    return "\n\n".join([*lines, *([table(("argument or option", "what it does"), rows)] if rows else [])])
