"""`grete config`: the value of each setting, and where it comes from."""

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from grete.cli.reading import print_json
from grete.cli.settings_file import DEFAULT, address_of, origins_of, settings_of
from grete.cli.tables import print_table
from grete.settings import group_of, without_password

_DEFAULT = "default"


def config(
    log: str | None, kafka_config: Path | None, file: Path | None, sets: Sequence[str] | None, *, as_json: bool
) -> None:
    """Print a table of all settings, or a line of JSON for each. Raises ConfigError as a start of the job would."""
    address, origins = address_of(log, kafka_config, file), origins_of(sets, file)
    given = {"log": log, "kafka_config": None if kafka_config is None else str(kafka_config)}
    values: dict[str, object] = {"log": address.url, "kafka_config": address.config and str(address.config)}
    rows = [("log", name, value, _origin(name, given[name], value, file)) for name, value in values.items()]
    settings = msgspec.structs.asdict(settings_of(sets, file))
    settings |= {name: without_password(value) for name, value in settings.items() if isinstance(value, str)}
    rows += [(group_of(name), name, value, origins.get(name, _DEFAULT)) for name, value in settings.items()]
    if as_json:
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
