"""`grete config`: the value of each setting, and where it comes from."""

import os
from pathlib import Path

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from grete.cli.job_command import command
from grete.cli.options import AsJson, JobOptions
from grete.cli.output.reading import print_json
from grete.cli.output.tables import print_table
from grete.cli.settings_file import DEFAULT, address_of, origins_of, settings_of
from grete.settings import group_of, without_password

app = typer.Typer(add_completion=False)
_DEFAULT = "default"


@command(app, without="directory")
def config(*, given: JobOptions, json: AsJson = False) -> None:
    """Print each setting with its value and its source: default, file, environment or command line."""
    file, config = given.settings, given.kafka_config
    address, origins = address_of(given.log, config, file), origins_of(given.set, file)
    said = {"log": given.log, "kafka_config": None if config is None else str(config)}
    values = ("log", address.url), ("kafka_config", address.config and str(address.config))
    rows = [("log", name, value, _origin(name, said[name], value, file)) for name, value in values]
    settings = msgspec.structs.asdict(settings_of(given.set, file))
    settings |= {name: without_password(value) for name, value in settings.items() if isinstance(value, str)}
    rows += [(group_of(name), name, value, origins.get(name, _DEFAULT)) for name, value in settings.items()]
    if json:
        for group, name, value, origin in rows:
            print_json({"group": group, "name": name, "value": value, "origin": origin})
        return
    table = Table("group", "setting", "value", "origin", box=None)
    for group, name, value, origin in rows:
        table.add_row(group, name, "–" if value is None else str(value), origin)
    print_table(Console(), table)


def _origin(name: str, given: str | None, value: object, file: Path | None) -> str:
    """Return the source of an option of the log."""
    variable = f"GRETE_{name.upper()}"
    if given is not None:
        return f"environment: {variable}" if os.environ.get(variable) == given else f"--{name.replace('_', '-')}"
    return _DEFAULT if value in (None, address_of(None, None, Path(os.devnull)).url) else str(file or DEFAULT)
