"""Reads a job's settings: defaults, over them a TOML file, then the environment, then the command line.

The file has each setting under the one name that it has everywhere, in the table of its group or in none. The table
``log`` has the options ``log`` and ``kafka_config``, so that every command finds the job's log without being told.
"""

import os
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from grete.errors import ConfigError
from grete.logs.address import EMBEDDED, LogAddress
from grete.settings import GROUPS, Settings, environment_texts, group_of, nearest, with_texts
from grete.trusted import require_own

DEFAULT = Path("grete.toml")
FILE_BYTES_MAX = 1 << 20  # all settings take 2 KiB; a device has no end
LOG, LOG_OPTIONS = "log", ("log", "kafka_config")


class SettingsFile(NamedTuple):
    """The content of a file: settings and options of the log, as texts by name."""

    settings: dict[str, str]
    options: dict[str, str]


def settings_of(sets: Sequence[str] | None, file: Path | None) -> Settings:
    """Return the settings; ``sets``: NAME=VALUE from the command line. Raises ConfigError."""
    flags = _flags(sets)
    of_file, of_environment = _read(file).settings, environment_texts(dict(os.environ))
    try:
        return with_texts(Settings(), of_file | of_environment | flags)
    except ConfigError as error:
        name = error.setting or ""
        if name in flags:
            where = f"--set {name}={flags[name]}: "
        elif name in of_environment:
            where = f"GRETE_{name.upper()}={of_environment[name]} in the environment: "
        else:  # a default works
            where = f"{file or DEFAULT}: " if name in of_file else ""
        raise ConfigError(f"{where}{error}", setting=error.setting) from error


def origins_of(sets: Sequence[str] | None, file: Path | None) -> dict[str, str]:
    """Return name of a setting → where its value comes from; one that is left out has its default."""
    origins = dict.fromkeys(_read(file).settings, str(file or DEFAULT))
    origins |= {name: f"environment: GRETE_{name.upper()}" for name in environment_texts(dict(os.environ))}
    return origins | dict.fromkeys(_flags(sets), "--set")


def _flags(sets: Sequence[str] | None) -> dict[str, str]:
    """Return the settings of the command line. Raises ConfigError."""
    flags = {}
    for text in sets or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--set {text}: write NAME=VALUE, such as --set checkpoint_interval_ms=100")
        flags[name] = value
    return flags


def address_of(log: str | None, kafka_config: Path | None, file: Path | None) -> LogAddress:
    """Return the job's log: what the command line or the environment says, else the file, else the embedded log."""
    options = _read(file).options
    if kafka_config is None and "kafka_config" in options:
        kafka_config = (file or DEFAULT).parent / options["kafka_config"]
    return LogAddress(log or options.get("log", EMBEDDED), kafka_config)


def _read(file: Path | None) -> SettingsFile:
    """Return the settings in a file; None: in grete.toml of the current folder, if it is there. Raises ConfigError."""
    if file is None and not DEFAULT.exists():
        return SettingsFile({}, {})
    path = file or DEFAULT
    if file is None:
        require_own(path, f"name it by --settings {DEFAULT} if you trust it")
    try:
        with path.open("rb") as opened:
            content = opened.read(FILE_BYTES_MAX + 1)
        if len(content) > FILE_BYTES_MAX:
            raise ConfigError(f"it has more than {FILE_BYTES_MAX:,} bytes: name a file in TOML")
        return _parsed(tomllib.loads(content.decode()).items())
    except OSError as error:
        raise ConfigError(f"--settings {path}: {error.strerror}: name a file in TOML") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}: write NAME = VALUE, in UTF-8") from error
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}", setting=error.setting) from error


def _parsed(document: Iterable[tuple[str, object]]) -> SettingsFile:
    found = SettingsFile({}, {})
    for name, value in document:
        if isinstance(value, dict):
            _check_table(name)
            for key, each in value.items():
                _add(found, name, key, each)
        else:
            _add(found, None, name, value)
    return found


def _check_table(name: str) -> None:
    tables = (*GROUPS, LOG)
    if name not in tables:
        raise ConfigError(f"unknown table [{name}]: {nearest(name, tables)}")


def _add(found: SettingsFile, table: str | None, name: str, value: object) -> None:
    """Note one line of the file. Raises ConfigError for a wrong name, table or type, and for a second value."""
    belongs = LOG if name in LOG_OPTIONS else group_of(name)
    if table is not None and table != belongs:
        raise ConfigError(f"{name} is in [{table}]: write it in [{belongs}], or above all tables", setting=name)
    texts = found.options if belongs == LOG else found.settings
    if name in texts:
        raise ConfigError(f"{name} is given twice, in [{belongs}] and above all tables: leave one", setting=name)
    if belongs == LOG or isinstance(getattr(Settings(), name), str):
        if not isinstance(value, str):
            raise ConfigError(f'{name} = {value!r}: write a text, such as {name} = "…"', setting=name)
    elif type(value) is not int:  # in Python, a bool is an int
        raise ConfigError(f"{name} = {value!r}: must be an integer, without quotes", setting=name)
    texts[name] = str(value)
