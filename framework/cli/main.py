"""The command line: each command is a module of its name in ``commands``, which is imported when it is asked for."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.metadata import version
from typing import Any

import typer
import typer.main
from typer.core import TyperGroup

COMMANDS = (
    "run",
    "up",
    "worker",
    "config",
    "doctor",
    "new",
    "check-determinism",
    "backfill",
    "audit",
    "checkpoints",
    "members",
    "export",
    "plan",
    "apply",
    "migrate",
    "rescale",
    "fork",
    "replay",
    "snapshot",
    "state",
    "sql",
    "changelog",
    "topic",
    "dlq",
    "incident",
)


class _Modules(Mapping[str, Any]):
    """The commands by name. A module is imported when its command is asked for: a worker needs no user interface."""

    def __getitem__(self, name: str) -> Any:
        if name not in COMMANDS:
            raise KeyError(name)
        command = typer.main.get_command(import_module(f"grete.cli.commands.{name.replace('-', '_')}").app)
        command.name = name
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class _Commands(TyperGroup):
    """The group of all commands."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands: Any = _Modules()


app = typer.Typer(
    cls=_Commands,
    name="grete",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Exactly-once stream processing in Python, on Kafka or on a log in one local file.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"grete {version('grete')}")
        raise typer.Exit


@app.callback()
def _root(version: bool = typer.Option(False, "--version", help="Print the version.", callback=_print_version)) -> None:
    """Run before every command."""
