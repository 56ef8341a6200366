"""`grete config`: the value of each setting, and where it comes from."""

import os
from pathlib import Path

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from grete.cli.options import AsJson, KafkaConfig, LogOption, Set, SettingsPath
from grete.cli.reading import print_json
from grete.cli.settings_file import DEFAULT, address_of, origins_of, settings_of
from grete.cli.tables import print_table
from grete.settings import group_of, without_password

app = typer.Typer(add_completion=False)
_DEFAULT = "default"


@app.command()
def config(
    *,
    json: AsJson = False,
    log: LogOption = None,
    kafka_config: KafkaConfig = None,
    settings: SettingsPath = None,
    set: Set = None,
) -> None:
    """Print each setting with its value and its source: default, file, environment or command line."""
    address, origins = address_of(log, kafka_config, settings), origins_of(set, settings)
    given = {"log": log, "kafka_config": None if kafka_config is None else str(kafka_config)}
    values: dict[str, object] = {"log": address.url, "kafka_config": address.config and str(address.config)}
    rows = [("log", name, value, _origin(name, given[name], value, settings)) for name, value in values.items()]
    all_of = msgspec.structs.asdict(settings_of(set, settings))
    all_of |= {name: without_password(value) for name, value in all_of.items() if isinstance(value, str)}
    rows += [(group_of(name), name, value, origins.get(name, _DEFAULT)) for name, value in all_of.items()]
    if json:
        for group, name, value, origin in rows:
            print_json({"group": group, "name": name, "value": value, "origin": origin})
        return
    table = Table("group", "setting", "value", "origin", box=None)
    for group, name, value, origin in rows:
        table.add_row(group, name, "–" if value is None else str(value), origin)
    print_table(Console(), table)


def _origin(name: str, given: str | None, value: object, file: Path | None) -> str:
    """Return where an option of the log comes from."""
    variable = f"GRETE_{name.upper()}"
    if given is not None:
        return f"environment: {variable}" if os.environ.get(variable) == given else f"--{name.replace('_', '-')}"
    return _DEFAULT if value in (None, address_of(None, None, Path(os.devnull)).url) else str(file or DEFAULT)
